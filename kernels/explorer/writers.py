"""Which thread writes an element: vLLM's two cache writers, each with one thread block for each new token."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernels import layout as formulas
from kernels.explorer.places import Layout, strides
from kernels.explorer.work import WARP, Found, Load, Point, Step, finished, nobody

if TYPE_CHECKING:
    from kernels.explorer.lanes import Kernel

BLOCKS = "blockIdx.x = the token's place in slot_mapping"


def classic(kernel: Kernel, made: Layout, kind: str, point: Point) -> Load:
    """`reshape_and_cache`: a thread takes one (head, x-group) pair, and threads number 512 at most."""
    geometry, x = point.geometry, point.geometry.x
    groups = geometry.head_size // x
    threads = formulas.writer_threads(geometry.num_kv_heads, geometry.head_size, x)
    group, inside = divmod(point.channel, x)
    thread = point.head * groups + group
    steps = [
        Step("h_block_count", f"{geometry.head_size} // {x}", groups),
        Step("h_block", f"{point.channel} // {x}", group),
        Step("thread", f"{point.head} * {groups} + {group}", thread),
        Step("threads started", f"min({geometry.num_kv_heads} * {groups}, {formulas.MAX_WRITER_THREADS})", threads),
        Step("element of the group", f"{point.channel} % {x}", inside),
    ]
    if thread >= threads:
        why = f"No thread has number {thread}: {threads} are started and there is no loop. This element is not written."
        return nobody(made.id, kind, "stores", steps, why)

    def of_lane(lane: int) -> Found:
        number = thread // WARP * WARP + lane
        if number >= threads:
            return None
        head, group = divmod(number, groups)
        if kind == "K":
            return point.byte(made, kind, head, point.offset, group * x), x * geometry.itemsize
        return point.byte(made, kind, head, point.offset, group * x + inside), geometry.itemsize

    # Of K a thread's x elements are neighbours and go at once; of V they lie a row apart, so it stores one by one.
    vector, element = (x, inside) if kind == "K" else (1, 0)
    return finished(made.id, kind, "stores", BLOCKS, thread, vector, element, steps, of_lane)


def flash(kernel: Kernel, made: Layout, kind: str, point: Point) -> Load:
    """`reshape_and_cache_flash`: all threads along a token's whole row where its heads touch, else a warp a head."""
    geometry, size = point.geometry, point.geometry.head_size
    vec = 8 if geometry.computed == 2 else 4
    threads = formulas.writer_threads(geometry.num_kv_heads, size, 1)
    head_stride = strides(made, geometry)["head"]
    steps = [
        Step("blockDim.x", f"min({geometry.num_kv_heads} * {size}, {formulas.MAX_WRITER_THREADS})", threads),
        Step("VEC_SIZE", f"{geometry.computed} bytes an element", vec),
    ]
    if head_stride == size:
        return _whole_row(made, kind, point, vec, threads, steps)
    steps.append(Step("head_stride", f"not {size}: the heads do not touch", head_stride))
    if threads < WARP:
        why = f"{threads} threads make no warp, and this kernel gives heads to warps."
        return nobody(made.id, kind, "stores", steps, why)
    return _head_by_head(made, kind, point, vec, threads, steps)


def _whole_row(made: Layout, kind: str, point: Point, vec: int, threads: int, steps: list[Step]) -> Load:
    size = point.geometry.head_size
    at = point.head * size + point.channel
    number, inside = divmod(at, vec)
    turn, thread = divmod(number, threads)
    steps += [
        Step("head_stride", "the head size: a token's heads are one run", size),
        Step("element of the row", f"{point.head} * {size} + {point.channel}", at),
        Step("vector", f"{at} // {vec}", number),
        Step("thread", f"{number} % {threads}", thread),
        Step("turn of the loop", f"{number} // {threads}", turn),
        Step("element of the vector", f"{at} % {vec}", inside),
    ]

    def of_lane(lane: int) -> Found:
        own = thread // WARP * WARP + lane
        first = (turn * threads + own) * vec
        if own >= threads or first >= point.geometry.num_kv_heads * size:
            return None
        head, channel = divmod(first, size)
        return point.byte(made, kind, head, point.offset, channel), vec * point.geometry.itemsize

    return finished(made.id, kind, "stores", BLOCKS, thread, vec, inside, steps, of_lane)


def _head_by_head(made: Layout, kind: str, point: Point, vec: int, threads: int, steps: list[Step]) -> Load:
    size, warps = point.geometry.head_size, threads // WARP
    warp = point.head % warps
    number, inside = divmod(point.channel, vec)
    turn, lane = divmod(number, WARP)
    steps += [
        Step("warp", f"{point.head} % {warps} warps", warp),
        Step("vector", f"{point.channel} // {vec}", number),
        Step("lane", f"{number} % {WARP}", lane),
        Step("thread", f"{warp} * {WARP} + {lane}", warp * WARP + lane),
        Step("turn of the loop", f"{number} // {WARP}", turn),
        Step("element of the vector", f"{point.channel} % {vec}", inside),
    ]

    def of_lane(lane: int) -> Found:
        channel = (turn * WARP + lane) * vec
        if channel >= size:
            return None
        return point.byte(made, kind, point.head, point.offset, channel), vec * point.geometry.itemsize

    return finished(made.id, kind, "stores", BLOCKS, warp * WARP + lane, vec, inside, steps, of_lane)
