"""Which thread reads an element: the classic kernels, the 2d kernel that vLLM still runs, and tiny-vllm's.

Group sizes and vector sizes come from `kernels.layout`. The steps name what the kernel's own code names.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kernels import layout as formulas
from kernels.explorer import writers
from kernels.explorer.places import Layout
from kernels.explorer.work import WARP, Found, Load, Point, Step, finished, homes, nobody

CLASSIC = ("classic-k", "classic-v")
FLASH = ("nhd-k", "nhd-v", "hnd-k", "hnd-v", "side-nhd", "side-hnd")
HEAD_SIZES = (32, 64, 80, 96, 112, 120, 128, 192, 256)
"""What vLLM compiles the classic kernels for."""
TINY = {"block_size": 16, "head_size": 64, "num_heads": 32, "num_kv_heads": 8, "dtype": "bfloat16"}
"""tiny-vllm's constants."""
TINY_INT = 2**31


@dataclass(frozen=True)
class Kernel:
    """A kernel by its name on the command line, the layouts that it touches, and how its work is found."""

    id: str
    title: str
    layouts: tuple[str, ...]
    work: Callable[[Kernel, Layout, str, Point], Load]

    def loads(self, point: Point) -> tuple[Load, ...]:
        """Its access to K and V of a point, in each of its layouts. Raises ArgumentError for sizes that it cannot."""
        return tuple(self.work(self, made, kind, point) for made, kind in homes(*self.layouts))


def _query_heads(point: Point) -> str:
    group = point.geometry.group
    first, last = point.head * group, (point.head + 1) * group - 1
    return f"blockIdx.x = {first}" if first == last else f"blockIdx.x = {first} to {last}"


def classic(kernel: Kernel, made: Layout, kind: str, point: Point) -> Load:
    """The classic kernels: a warp takes every fourth block, then lanes divide its keys one way, its values another."""
    warps = formulas.num_warps()
    blocks = f"{_query_heads(point)} (query heads), blockIdx.y = the sequence"
    ordinal, steps = point.logical, []
    if kernel.id == "classic-v2":
        per_partition = formulas.PARTITION_SIZE // point.geometry.block_size
        partition, ordinal = divmod(point.logical, per_partition)
        blocks += f", blockIdx.z = {partition} (partition)"
        steps = [
            Step("partition_idx", f"{point.logical} // {per_partition} blocks a partition", partition),
            Step("block in the partition", f"{point.logical} % {per_partition}", ordinal),
        ]
    warp = ordinal % warps
    steps.append(Step("warp_idx", f"{ordinal} % {warps} warps", warp))
    divide = _classic_keys if kind == "K" else _classic_values
    return divide(made, point, blocks, warp, steps)


def _classic_keys(made: Layout, point: Point, blocks: str, warp: int, steps: list[Step]) -> Load:
    """A thread group takes a token; its threads take turns at the token's vectors."""
    size, e = point.geometry.block_size, point.geometry.computed
    group = formulas.thread_group_size(size)
    vec = formulas.vec_size(group, e)
    formulas.num_vecs_per_thread(point.geometry.head_size, group, e)
    groups = WARP // group
    vec_idx, inside = divmod(point.channel, vec)
    turn, member = divmod(vec_idx, group)
    in_warp = point.offset % groups
    # Blocks of more tokens than a warp has lanes are taken in turns of 32 tokens, beginning with the warp's own.
    again = (point.offset // groups - warp) % (size // groups)
    lane = in_warp * group + member
    thread = warp * WARP + lane
    if size > groups:
        steps.append(Step("i", f"({point.offset} // {groups} - {warp}) % {size // groups}", again))
    steps += [
        Step("THREAD_GROUP_SIZE", f"max({WARP} lanes // {size} tokens, 1)", group),
        Step("VEC_SIZE", f"max(16 bytes // {group} threads // {e} bytes, 1)", vec),
        Step("thread group in the warp", f"{point.offset} % {groups}", in_warp),
        Step("vec_idx", f"{point.channel} // {vec}", vec_idx),
        Step("thread_group_offset", f"{vec_idx} % {group}", member),
        Step("j", f"{vec_idx} // {group}", turn),
        Step("lane", f"{in_warp} * {group} + {member}", lane),
        Step("thread_idx", f"{warp} * {WARP} + {lane}", thread),
        Step("element of the vector", f"{point.channel} % {vec}", inside),
    ]

    def of_lane(lane: int) -> Found:
        offset = (warp * groups + lane // group + again * WARP) % size
        channel = (lane % group + turn * group) * vec
        return point.byte(made, "K", point.head, offset, channel), vec * point.geometry.itemsize

    return finished(made.id, "K", "loads", blocks, thread, vec, inside, steps, of_lane)


def _classic_values(made: Layout, point: Point, blocks: str, warp: int, steps: list[Step]) -> Load:
    """A row is one channel: a few lanes share its tokens, and the warp reads several rows at once."""
    size, e = point.geometry.block_size, point.geometry.computed
    vec, per_row = formulas.v_vec_size(size, e), formulas.num_v_vecs_per_row(size, e)
    rows = formulas.num_rows_per_iter(size, e)
    turn, row = divmod(point.channel, rows)
    piece, inside = divmod(point.offset, vec)
    lane = row * per_row + piece
    thread = warp * WARP + lane
    steps += [
        Step("V_VEC_SIZE", f"min(16 bytes // {e} bytes, {size} tokens)", vec),
        Step("NUM_V_VECS_PER_ROW", f"{size} tokens // {vec}", per_row),
        Step("NUM_ROWS_PER_ITER", f"{WARP} lanes // {per_row}", rows),
        Step("i", f"{point.channel} // {rows}", turn),
        Step("lane", f"({point.channel} % {rows}) * {per_row} + {point.offset} // {vec}", lane),
        Step("thread_idx", f"{warp} * {WARP} + {lane}", thread),
        Step("element of the vector", f"{point.offset} % {vec}", inside),
    ]

    def of_lane(lane: int) -> Found:
        channel = lane // per_row + turn * rows
        if channel >= point.geometry.head_size:
            return None
        first = point.byte(made, "V", point.head, lane % per_row * vec, channel)
        return first, vec * point.geometry.itemsize

    return finished(made.id, "V", "loads", blocks, thread, vec, inside, steps, of_lane)


def tile_of(block_size: int) -> int:
    """Tokens in one tile of the 2d port: the block where that is a power of two, at most 32; otherwise 32."""
    return min(block_size, 32) if block_size & (block_size - 1) == 0 else 32


def tiles(kernel: Kernel, made: Layout, kind: str, point: Point) -> Load:
    """The 2d kernel: 128 threads copy a tile element by element, in the order of the cache."""
    if point.geometry.itemsize < point.geometry.computed:
        return nobody(made.id, kind, "loads", (), "Our port of this kernel has no fp8.")
    tile, x = tile_of(point.geometry.block_size), point.geometry.x
    threads, many = formulas.NUM_THREADS, point.geometry.head_size * tile
    tile_number, n = divmod(point.token, tile)
    if kind == "K":
        i = point.channel // x * x * tile + n * x + point.channel % x
        how = f"{point.channel} // {x} * {x * tile} + {n} * {x} + {point.channel} % {x}"
    else:
        i, how = point.channel * tile + n, f"{point.channel} * {tile} + {n}"
    turn, thread = divmod(i, threads)
    steps = [
        Step("tile", f"{point.token} // {tile} tokens", tile_number),
        Step("offs_n", f"{point.token} % {tile}", n),
        Step("i", how, i),
        Step("thread_idx", f"{i} % {threads}", thread),
        Step("turn of the loop", f"{i} // {threads}", turn),
    ]

    def of_lane(lane: int) -> Found:
        at = turn * threads + thread // WARP * WARP + lane
        if at >= many:
            return None
        if kind == "K":
            n, channel = at // x % tile, at // (x * tile) * x + at % x
        else:
            channel, n = divmod(at, tile)
        logical, offset = divmod(tile_number * tile + n, point.geometry.block_size)
        if logical >= len(point.table):
            return None
        return point.byte(made, kind, point.head, offset, channel, logical), point.geometry.itemsize

    blocks = f"blockIdx.x = the sequence, blockIdx.y = {point.head} (KV head)"
    return finished(made.id, kind, "loads", blocks, thread, 1, 0, steps, of_lane)


def tiny(kernel: Kernel, made: Layout, kind: str, point: Point) -> Load:
    """tiny-vllm: a thread for each channel, which walks all tokens alone."""
    if point.geometry.itemsize < point.geometry.computed:
        return nobody(made.id, kind, "loads", (), "tiny-vllm has no fp8 cache.")
    thread = point.channel
    steps = [
        Step("thread_id", "the channel", thread),
        Step("warp", f"{thread} // {WARP}", thread // WARP),
        Step("lane", f"{thread} % {WARP}", thread % WARP),
        Step("turn of the loop", "the token", point.token),
    ]

    def of_lane(lane: int) -> Found:
        channel = thread // WARP * WARP + lane
        if channel >= point.geometry.head_size:
            return None
        return point.byte(made, kind, point.head, point.offset, channel), point.geometry.itemsize

    group = point.geometry.group
    first, last = point.head * group, (point.head + 1) * group - 1
    heads = f"{first}" if first == last else f"{first} to {last}"
    blocks = f"blockIdx.x = the sequence, blockIdx.y = {heads} (query heads)"
    return finished(made.id, kind, "loads", blocks, thread, 1, 0, steps, of_lane)


KERNELS = {
    made.id: made
    for made in (
        Kernel("classic-v1", "vLLM's classic kernel, v1", CLASSIC, classic),
        Kernel("classic-v2", "vLLM's classic kernel, v2", CLASSIC, classic),
        Kernel("reshape-and-cache", "vLLM's writer, classic layout", CLASSIC, writers.classic),
        Kernel("reshape-and-cache-flash", "vLLM's writer, NHD and HND", FLASH, writers.flash),
        Kernel("paged-2d", "The 2d kernel that vLLM runs today", CLASSIC, tiles),
        Kernel("tiny-vllm", "tiny-vllm's kernel", ("tiny",), tiny),
    )
}


def notes(kernel: Kernel, point: Point) -> tuple[str, ...]:
    """Where these sizes are none that upstream has, or go wrong there."""
    geometry, found = point.geometry, []
    if kernel.work is classic and geometry.block_size not in (8, 16, 32):
        found.append("vLLM compiles this kernel for block sizes 8, 16 and 32 only.")
    if kernel.work is classic and geometry.head_size not in HEAD_SIZES:
        found.append(f"vLLM compiles this kernel for head sizes {', '.join(map(str, HEAD_SIZES))} only.")
    if kernel.work is writers.flash and geometry.block_size % 16:
        found.append("vLLM's FlashAttention cache takes block sizes that are multiples of 16 only.")
    if kernel.work is tiles:
        found.append("Triton does not say which thread loads what. The threads are those of our port.")
    if kernel.work is tiny:
        found += [
            f"tiny-vllm's own {name} is {value}: a constant in its code."
            for name, value in TINY.items()
            if getattr(geometry, name) != value
        ]
        if point.table[point.logical] * 2 * geometry.block_elements * geometry.itemsize >= TINY_INT:
            found.append(
                "tiny-vllm computes a block's first byte as an int. This one is past 2^31 and comes out wrong."
            )
    return tuple(found)
