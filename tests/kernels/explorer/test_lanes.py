"""Lanes against the machine: run the kernel, listen to every access, and see which thread touched the element."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
from numba.types import float16

from kernels import layout as formulas
from kernels.errors import ArgumentError
from kernels.explorer import KERNELS, Explained, Geometry, Load, explain
from kernels.explorer.lanes import HEAD_SIZES, TINY, tile_of
from kernels.kernel import Backend
from kernels.simt.access import Observer
from kernels.simt.record import Recorder
from kernels.tiny_vllm import paged
from kernels.vllm import classic_v1, paged_2d
from kernels.vllm.cache import reshape_and_cache
from kernels.vllm.cache_flash import reshape_and_cache_flash
from kernels.vllm.classic_v2 import buffers, paged_attention_v2

NUMPY = {"float32": "float32", "float16": "float16", "bfloat16": "uint16", "fp8": "float16"}


class Ears(Observer):
    """Keeps who touched which element of the named arrays: (array, block, element) -> threads."""

    def __init__(self, kind: str, *names: str) -> None:
        self.kind, self.names, self.block = kind, names, 0
        self.heard: dict[tuple[str, int, int], set[int]] = defaultdict(set)

    def block_start(self, number: int) -> None:
        self.block = number

    def access(
        self, kind: str, memory: Any, index: int, count: int, value: Any, lane: Any, code: Any, lasti: int
    ) -> None:
        if kind == self.kind and memory.space == "global" and memory.name in self.names:
            for element in range(index, index + count):
                self.heard[memory.name, self.block, element].add(lane.number)


def points(geometry: Geometry, table: list[int], many: int, seed: int) -> Iterable[tuple[int, int, int]]:
    """The corners, and points between them."""
    last = len(table) * geometry.block_size - 1, geometry.num_kv_heads - 1, geometry.head_size - 1
    rng = random.Random(seed)
    yield (0, 0, 0)
    yield last
    for _ in range(many):
        yield rng.randint(0, last[0]), rng.randint(0, last[1]), rng.randint(0, last[2])


def agree(load: Load, ears: Ears, array: str, block: int, element: int, size: int, base: int = 0) -> None:
    """The thread is the only one that touched the element, and each lane of its warp touched what is said of it."""
    assert ears.heard[array, block, element] == {load.thread}, load
    assert load.warp * 32 + load.lane == load.thread
    assert (load.first // size, load.size // size) == (element - load.element, load.vector)
    assert len(load.lanes) == 32
    sectors = set()
    for number, lane in enumerate(load.lanes):
        if lane is None:
            continue
        for at in range(lane.first // size, (lane.first + lane.size) // size):
            assert load.warp * 32 + number in ears.heard[array, block, at + base], (load, number)
        sectors |= {byte // 32 for byte in range(lane.first, lane.first + lane.size)}
    assert load.sectors == len(sectors)
    own = load.lanes[load.lane]
    assert own is not None
    assert (own.first, own.size) == (load.first, load.size)


def caches(geometry: Geometry, blocks: int) -> tuple[Any, Any, dict[str, str]]:
    stored = "uint8" if geometry.dtype == "fp8" else NUMPY[geometry.dtype]
    x, heads, width, size = geometry.x, geometry.num_kv_heads, geometry.head_size, geometry.block_size
    k_cache = np.zeros((blocks, heads, width // x, size, x), stored)
    return k_cache, np.zeros((blocks, heads, width, size), stored), {"kv_cache_dtype": kv_dtype(geometry)}


def kv_dtype(geometry: Geometry) -> str:
    return "fp8" if geometry.dtype == "fp8" else "auto"


# -- the classic kernels


CLASSIC = [
    Geometry(16, 64, 4, 2, "float16"),
    Geometry(8, 80, 2, 2, "bfloat16"),
    Geometry(32, 32, 3, 1, "float32"),
    Geometry(16, 32, 2, 1, "float32"),
    Geometry(8, 120, 1, 1, "float16"),
    Geometry(16, 96, 2, 2, "fp8"),
    Geometry(32, 64, 2, 1, "fp8"),
    Geometry(8, 32, 2, 1, "float32"),
]
TABLE = [6, 1, 3, 0, 8, 2]


def decode_arguments(geometry: Geometry, table: list[int]) -> tuple[Any, ...]:
    k_cache, v_cache, _ = caches(geometry, max(table) + 1)
    tokens = len(table) * geometry.block_size
    q = np.zeros((1, geometry.num_heads, geometry.head_size), NUMPY[geometry.dtype])
    return (
        q, k_cache, v_cache, geometry.num_kv_heads, 1.0, np.array([table], np.int32), np.array([tokens], np.int32),
        geometry.block_size, tokens, None, kv_dtype(geometry),
    )  # fmt: skip


@pytest.mark.parametrize("geometry", CLASSIC, ids=str)
def test_v1_reads_by_these_lanes(geometry: Geometry) -> None:
    ears = Ears("read", "k_cache", "v_cache")
    arguments = decode_arguments(geometry, TABLE)
    classic_v1.paged_attention_v1(np.zeros_like(arguments[0]), *arguments, backend=Backend("sim", observers=(ears,)))
    for point in points(geometry, TABLE, 60, seed=1):
        found = explain("classic-v1", geometry, TABLE, *point)
        for load, array in zip(found.loads, ("k_cache", "v_cache"), strict=True):
            place = found.place(load.layout)
            # The grid is (query heads, sequences): every query head of the group reads it, and no other.
            for head in range(geometry.num_heads):
                if found.first_query_head <= head <= found.last_query_head:
                    agree(load, ears, array, head, place.element, geometry.itemsize)
                else:
                    assert (array, head, place.element) not in ears.heard


def test_v2_reads_by_these_lanes_in_this_partition() -> None:
    geometry, table = Geometry(32, 32, 2, 1, "float16"), random.Random(2).sample(range(40), 36)
    ears = Ears("read", "k_cache", "v_cache")
    out, *rest = np.zeros((1, 2, 32), "float16"), *decode_arguments(geometry, table)
    exp_sums, max_logits, tmp_out = buffers(1, 2, 32, len(table) * 32, "float16")
    backend = Backend("sim", observers=(ears,))
    paged_attention_v2(out, exp_sums, max_logits, tmp_out, *rest, backend=backend)
    met = set()
    for point in points(geometry, table, 60, seed=3):
        found = explain("classic-v2", geometry, table, *point)
        for load, array in zip(found.loads, ("k_cache", "v_cache"), strict=True):
            partition = point[0] // 512
            met.add(partition)
            assert load.blocks.endswith(f"blockIdx.z = {partition} (partition)")
            assert load.steps[0].value == partition
            for head in range(2):
                agree(load, ears, array, partition * 2 + head, found.place(load.layout).element, 2)
    assert met == {0, 1, 2}


@pytest.mark.parametrize("block_size", [4, 64, 128])
def test_block_sizes_that_vllm_does_not_compile_follow_the_same_code(block_size: int) -> None:
    geometry, table = Geometry(block_size, 64, 2, 2, "float16"), [4, 0, 2, 5, 1]
    ears = Ears("read", "k_cache", "v_cache")
    q, k_cache, v_cache, _, _, tables, lengths, *_ = decode_arguments(geometry, table)
    shared = formulas.v1_shared_bytes(int(lengths[0]), block_size, 64)
    launch = classic_v1.paged_attention_v1_kernel.specialise(HEAD_SIZE=64, BLOCK_SIZE=block_size, scalar_t=float16)
    one = np.ones(1, np.float32)
    launch.on(Backend("sim", observers=(ears,)))[(2, 1, 1), 128, 0, shared](
        q.copy().reshape(-1), q.reshape(-1), k_cache.reshape(-1), v_cache.reshape(-1), 2, np.float32(1),
        tables.reshape(-1), lengths, len(table), np.zeros(2, np.float32), 128, geometry.block_elements,
        64 * block_size, one, one,
    )  # fmt: skip
    for point in points(geometry, table, 60, seed=4):
        found = explain("classic-v1", geometry, table, *point)
        for load, array in zip(found.loads, ("k_cache", "v_cache"), strict=True):
            agree(load, ears, array, point[1], found.place(load.layout).element, geometry.itemsize)
    assert any("block sizes 8, 16 and 32 only" in note for note in found.notes)


def test_a_recorded_trace_shows_the_thread_at_the_address() -> None:
    """The machine's other witness: the recorder sees all 128 threads load, whole vectors at a time."""
    geometry = Geometry(16, 64, 4, 2, "float16")
    recorder = Recorder(range(128), [(3, 0, 0)], limit=1_000_000)
    arguments = decode_arguments(geometry, TABLE[:3])
    classic_v1.paged_attention_v1(np.zeros_like(arguments[0]), *arguments, backend=Backend("sim", tracer=recorder))
    trace = recorder.trace()
    readers = defaultdict(set)
    for event in trace.events:
        if event.kind in ("read", "vector"):
            for element in range(event.index, event.index + max(1, len(event.values))):
                readers[trace.arrays[event.array].name, element].add(trace.threads[event.thread].number)
    for token, head, channel in points(geometry, TABLE[:3], 60, seed=5):
        found = explain("classic-v1", geometry, TABLE[:3], token, head, channel)
        for load, array in zip(found.loads, ("k_cache", "v_cache"), strict=True):
            # Query head 3 reads KV head 1 alone.
            wanted = {load.thread} if head == 1 else set()
            assert readers[array, found.place(load.layout).element] == wanted


@pytest.mark.parametrize(("block_size", "sectors"), [(8, 4), (16, 8), (32, 16)])
def test_a_keys_load_touches_as_many_sectors_as_the_machine_counts(block_size: int, sectors: int) -> None:
    """The page on the SIMT machine has these numbers; its memory view counted them."""
    load = explain("classic-v1", Geometry(block_size), [3, 1], 2, 0, 0).loads[0]
    assert load.sectors == sectors
    assert sum(lane.size for lane in load.lanes if lane) == sectors * 32


# -- the writers


@pytest.mark.parametrize(
    "geometry",
    [
        Geometry(16, 64, 3, 3, "float16"),
        Geometry(8, 32, 2, 2, "float32"),
        Geometry(5, 48, 5, 5, "fp8"),
        Geometry(16, 128, 40, 40, "bfloat16"),
    ],
    ids=str,
)
def test_the_classic_writer_writes_by_these_threads(geometry: Geometry) -> None:
    ears = Ears("write", "key_cache", "value_cache")
    table = [2, 0]
    k_cache, v_cache, options = caches(geometry, 3)
    tokens = 3
    key = np.zeros((tokens, geometry.num_kv_heads, geometry.head_size), NUMPY[geometry.dtype])
    slots = np.array([table[t // geometry.block_size] * geometry.block_size + t for t in range(tokens)], np.int64)
    backend = Backend("sim", observers=(ears,))
    reshape_and_cache(key, key, k_cache, v_cache, slots, **options, backend=backend)
    nobody = 0
    for token, head, channel in points(geometry, table, 80, seed=6):
        found = explain("reshape-and-cache", geometry, table, token % tokens, head, channel)
        for load, array in zip(found.loads, ("key_cache", "value_cache"), strict=True):
            element = found.place(load.layout).element
            if load.missing:
                nobody += 1
                assert "no loop" in load.missing
                assert (array, found.token, element) not in ears.heard
            else:
                agree(load, ears, array, found.token, element, geometry.itemsize)
    assert (nobody > 0) == (geometry.num_kv_heads == 40)


@pytest.mark.parametrize("order", ["nhd", "hnd"])
@pytest.mark.parametrize(
    "geometry",
    [
        Geometry(16, 64, 3, 3, "float16"),
        Geometry(16, 48, 5, 5, "fp8"),
        Geometry(16, 256, 20, 20, "bfloat16"),
        Geometry(16, 128, 6, 6, "float32"),
        Geometry(1, 64, 2, 2, "float16"),
    ],
    ids=str,
)
def test_the_flash_writer_writes_by_these_threads(geometry: Geometry, order: str) -> None:
    stored = caches(geometry, 1)[0].dtype
    heads, width, size, tokens = geometry.num_kv_heads, geometry.head_size, geometry.block_size, 2
    table = [2, 0]
    key = np.zeros((tokens, heads, width), NUMPY[geometry.dtype])
    slots = np.array([table[t // size] * size + t % size for t in range(tokens)], np.int64)

    def turned(cache: Any) -> Any:
        return cache if order == "nhd" else cache.swapaxes(1, 2)

    shape = (3, size, heads) if order == "nhd" else (3, heads, size)
    for apart in (True, False):
        ears = Ears("write", "key_cache", "value_cache")
        if apart:
            views = [turned(np.zeros((*shape, width), stored)) for _ in range(2)]
        else:
            both = turned(np.zeros((*shape, 2 * width), stored))
            views = [both[..., :width], both[..., width:]]
        backend = Backend("sim", observers=(ears,))
        reshape_and_cache_flash(key, key, *views, slots, kv_dtype(geometry), backend=backend)
        for token, head, channel in points(geometry, table, 40, seed=7):
            found = explain("reshape-and-cache-flash", geometry, table, token % tokens, head, channel)
            for load in found.loads:
                if order not in load.layout or load.layout.startswith("side") == apart:
                    continue
                # The kernel counts a view's elements from the view's start: V's begins a head behind K's.
                base = -width if not apart and load.kind == "V" else 0
                array = "key_cache" if load.kind == "K" else "value_cache"
                element = found.place(load.layout, load.kind).element
                assert ears.heard[array, found.token, element + base] == {load.thread}
                for number, lane in enumerate(load.lanes):
                    for byte in range(lane.first, lane.first + lane.size) if lane else ():
                        at = byte // geometry.itemsize + base
                        assert load.warp * 32 + number in ears.heard[array, found.token, at]
                assert load.first // geometry.itemsize == element - load.element
    assert any("multiples of 16" in note for note in found.notes) == (size % 16 > 0)


def test_a_flash_writer_of_less_than_a_warp_gives_heads_to_nobody() -> None:
    found = explain("reshape-and-cache-flash", Geometry(16, 8, 1, 1, "float16"), [0], 0, 0, 0)
    assert {load.layout for load in found.loads if load.missing} == {"hnd-k", "hnd-v", "side-nhd", "side-hnd"}
    assert all("8 threads make no warp" in load.missing for load in found.loads if load.missing)


# -- the 2d kernel and tiny-vllm's


@pytest.mark.parametrize(
    "geometry",
    [Geometry(16, 64, 4, 2, "float16"), Geometry(48, 32, 2, 1, "float32"), Geometry(8, 48, 2, 2, "float16")],
    ids=str,
)
def test_the_2d_kernel_loads_by_these_threads(geometry: Geometry) -> None:
    table = [4, 0, 3]
    ears = Ears("read", "key_cache_ptr", "value_cache_ptr")
    q, k_cache, v_cache, _, _, tables, lengths, *_ = decode_arguments(geometry, table)
    paged_2d.paged_attention_2d(
        np.zeros_like(q), q, k_cache, v_cache, tables, lengths, backend=Backend("sim", observers=(ears,))
    )
    for point in points(geometry, table, 60, seed=8):
        found = explain("paged-2d", geometry, table, *point)
        for load, array in zip(found.loads, ("key_cache_ptr", "value_cache_ptr"), strict=True):
            # The grid is (sequences, KV heads).
            agree(load, ears, array, point[1], found.place(load.layout).element, geometry.itemsize)
    assert "our port" in found.notes[0]


def test_the_tile_is_the_ports() -> None:
    assert [tile_of(size) for size in range(1, 257)] == [paged_2d.tile_size(size) for size in range(1, 257)]


@pytest.mark.parametrize("head_size", [32, 64, 128])
@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_tiny_vllm_loads_by_these_threads(head_size: int, dtype: str) -> None:
    geometry, table = Geometry(16, head_size, 8, 2, dtype), [3, 1]
    ears = Ears("read", "kv_cache")
    q = np.zeros((1, 8, head_size), dtype)
    cache = np.zeros((4, 2, 16, 2, head_size), dtype)
    paged.tiny_attention(
        0, 1, q, cache, np.array([[table]], np.int32), np.array([32], np.int32), np.array([0], np.int32),
        np.zeros_like(q), marked=True, backend=Backend("sim", observers=(ears,)),
    )  # fmt: skip
    for point in points(geometry, table, 40, seed=9):
        found = explain("tiny-vllm", geometry, table, *point)
        for load in found.loads:
            for head in range(found.first_query_head, found.last_query_head + 1):
                element = found.place("tiny", load.kind).element
                agree(load, ears, "kv_cache", head, element, geometry.itemsize)


# -- what is refused, and what is only said


@pytest.mark.parametrize(
    ("geometry", "argument", "must"),
    [
        (Geometry(24), "block_size", "divide the warp of 32 lanes"),
        (Geometry(96), "block_size", "rows of 12 loads"),
        (Geometry(256, dtype="float32"), "block_size", "rows of 64 loads"),
        (Geometry(1, 24), "head_size", "divisible by group_size = 32"),
        (Geometry(4, 24), "head_size", "divisible by group_size"),
    ],
    ids=str,
)
def test_sizes_that_a_classic_kernel_cannot_are_refused_and_the_others_go_on(
    geometry: Geometry, argument: str, must: str
) -> None:
    if geometry == Geometry(4, 24):
        assert explain("classic-v1", geometry, [0], 0, 0, 0).loads
        return
    for kernel in ("classic-v1", "classic-v2"):
        with pytest.raises(ArgumentError, match=must) as caught:
            explain(kernel, geometry, [0], 0, 0, 0)
        assert caught.value.argument == argument
    assert explain("paged-2d", geometry, [0], 0, 0, 0).loads


@pytest.mark.parametrize(("kernel", "says"), [("paged-2d", "Our port of this kernel"), ("tiny-vllm", "no fp8 cache")])
def test_kernels_without_fp8_say_so(kernel: str, says: str) -> None:
    for load in explain(kernel, Geometry(dtype="fp8"), [0], 0, 0, 0).loads:
        assert says in load.missing
        assert (load.thread, load.warp, load.lane, load.lanes) == (-1, -1, -1, ())


def said(kernel: str, geometry: Geometry, table: list[int]) -> tuple[str, ...]:
    found: Explained = explain(kernel, geometry, table, 0, 0, 0)
    return found.notes


def test_notes_say_what_upstream_does_not_have() -> None:
    assert said("classic-v1", Geometry(), [0]) == ()
    assert said("classic-v1", Geometry(head_size=48), [0]) == (
        "vLLM compiles this kernel for head sizes 32, 64, 80, 96, 112, 120, 128, 192, 256 only.",
    )
    assert HEAD_SIZES == classic_v1.HEAD_SIZES
    own = Geometry(**TINY)
    assert said("tiny-vllm", own, [65535]) == ()
    assert "past 2^31" in said("tiny-vllm", own, [65536])[0]
    assert [note.split(" is ")[0] for note in said("tiny-vllm", Geometry(), [0])] == [
        "tiny-vllm's own head_size", "tiny-vllm's own dtype",
    ]  # fmt: skip
    constants = (paged.BLOCK_SIZE, paged.HEAD_DIM, paged.NUM_Q_HEADS, paged.NUM_Q_HEADS // paged.GQA_Q_TO_K_RATIO)
    assert tuple(TINY.values())[:4] == constants
    found, wide = np.zeros(1, np.int64), np.zeros(1, np.int64)
    paged.block_starts(np.array([65536], np.int32), found, wide)
    assert found[0] != wide[0] == explain("tiny-vllm", own, [65536], 0, 0, 0).place("tiny").first


def test_every_kernel_answers_for_each_of_its_layouts() -> None:
    for name, kernel in KERNELS.items():
        found = explain(name, Geometry(), [7, 2, 5], 20, 3, 10)
        assert tuple(dict.fromkeys(load.layout for load in found.loads)) == kernel.layouts
        assert all(load.kind in ("K", "V") for load in found.loads)
    assert formulas.NUM_THREADS == classic_v1.NUM_THREADS
