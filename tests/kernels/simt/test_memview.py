"""The memory view: sectors, lines, efficiency and bank conflicts against counting by hand, on random accesses."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernels.simt import cuda, launch, vector_load
from kernels.simt.sanitize import Sanitizer, coalescing

FULL = 0xFFFFFFFF
TYPES = (np.float16, np.float32, np.float64, np.int8)


def rows(kernel, args, block=32, grid=1, schedule="in-order"):
    watch = Sanitizer()
    with watch:
        launch(kernel, grid, block, args, observers=[watch], schedule=schedule)
    assert not watch.faults
    return watch.memory.rows


def one(found, array, kind="read"):
    return next(row for row in found if (row.array, row.kind) == (array, kind))


def by_hand(places, itemsize, unit):
    """Different units of so many bytes that elements at these places touch."""
    return len({byte // unit for place in places for byte in range(place * itemsize, (place + 1) * itemsize)})


@given(
    st.lists(st.lists(st.integers(0, 300), min_size=32, max_size=32), min_size=1, max_size=3),
    st.sampled_from(TYPES),
    st.integers(1, 70),
    st.booleans(),
)
def test_random_gathers_agree_with_counting_by_hand(turns, dtype, threads, store):
    def kernel(memory, index):
        for turn in range(len(turns)):
            place = index[turn, cuda.threadIdx.x % 32]
            if store:
                memory[place] = 1
            else:
                memory[place]

    memory, index = np.zeros(301, dtype), np.array(turns, np.int32)
    row = one(rows(kernel, (memory, index), threads), "memory", "write" if store else "read")
    requests = [turn[: min(32, threads - warp)] for warp in range(0, threads, 32) for turn in turns]
    itemsize = memory.itemsize
    assert (row.requests, row.lanes) == (len(requests), threads * len(turns))
    assert row.sectors == sum(by_hand(places, itemsize, 32) for places in requests)
    assert row.lines == sum(by_hand(places, itemsize, 128) for places in requests)
    assert row.bytes == sum(len(set(places)) * itemsize for places in requests)
    assert row.sizes == {itemsize}
    assert row.efficiency == pytest.approx(row.bytes / (32 * row.sectors))


@given(st.lists(st.integers(0, 200), min_size=32, max_size=32), st.sampled_from(TYPES), st.integers(1, 32))
def test_random_shared_accesses_agree_with_counting_banks_by_hand(places, dtype, threads):
    def kernel(index):
        row = cuda.shared.array(201, dtype)
        row[index[cuda.threadIdx.x]] = 1

    found = one(rows(kernel, (np.array(places),), threads), "row", "write")
    itemsize = np.dtype(dtype).itemsize
    words = {byte // 4 for place in places[:threads] for byte in range(place * itemsize, (place + 1) * itemsize)}
    degree = max(sum(word % 32 == bank for word in words) for bank in range(32))
    assert (found.requests, found.degree, found.wavefronts) == (1, degree, degree)
    assert (found.sectors, found.lines) == (0, 0)


@given(st.integers(0, 40), st.integers(0, 3))
def test_vector_loads_count_all_their_bytes(start, shift):
    count = 1 << shift
    load = vector_load(count)

    def kernel(memory):
        load(memory, (start + cuda.threadIdx.x * 3) * count)

    row = one(rows(kernel, (np.zeros(2000, np.float32),)), "memory")
    places = [(start + lane * 3) * count + e for lane in range(32) for e in range(count)]
    assert (row.requests, row.sizes, row.bytes) == (1, {4 * count}, 128 * count)
    assert (row.sectors, row.lines) == (by_hand(places, 4, 32), by_hand(places, 4, 128))


@pytest.mark.parametrize(
    ("stride", "sectors", "lines", "efficiency"),
    [(0, 1, 1, 1 / 8), (1, 4, 1, 1.0), (2, 8, 2, 0.5), (8, 32, 8, 1 / 8), (64, 32, 32, 1 / 8)],
)
def test_the_strides_of_the_textbook(stride, sectors, lines, efficiency):
    def kernel(memory):
        memory[cuda.threadIdx.x * stride]

    row = one(rows(kernel, (np.zeros(2048, np.float32),)), "memory")
    assert (row.sectors_per_request, row.lines_per_request, row.efficiency) == (sectors, lines, efficiency)


@pytest.mark.parametrize(("width", "degree"), [(32, 32), (33, 1), (34, 2), (1, 1), (0, 1)])
def test_a_column_of_a_shared_square_conflicts_unless_its_rows_are_padded(width, degree):
    def kernel():
        square = cuda.shared.array(34 * 32, np.float32)
        square[cuda.threadIdx.x * width] = 1

    assert one(rows(kernel, ()), "square", "write").degree == degree


def test_lanes_are_grouped_by_turn_of_a_loop_not_by_time():
    def kernel(memory):
        for turn in range(4):
            memory[turn * 32 + cuda.threadIdx.x]

    row = one(rows(kernel, (np.zeros(128, np.float32),)), "memory")
    assert (row.requests, row.lanes, row.sectors, row.lines) == (4, 128, 16, 4)


def test_lanes_that_stay_away_are_not_counted():
    def kernel(memory):
        if cuda.threadIdx.x % 4 == 0:
            memory[cuda.threadIdx.x]

    row = one(rows(kernel, (np.zeros(64, np.float32),), 64), "memory")
    assert (row.requests, row.lanes, row.sectors, row.bytes) == (2, 16, 8, 64)


def test_a_specialised_instruction_stays_one_instruction():
    # CPython rewrites hot instructions while they run, and reports other offsets from then on.
    def kernel(memory):
        for _ in range(50):
            memory[cuda.threadIdx.x]

    row = one(rows(kernel, (np.zeros(64, np.float32),), 64), "memory")
    assert (row.requests, row.sectors) == (100, 400)


def test_two_sites_of_one_line_and_two_launch_orders_add_up():
    def kernel(memory):
        memory[cuda.threadIdx.x] + memory[cuda.threadIdx.x + 32]

    expected = (2 * 2 * 2, 2 * 2 * 2 * 4)
    for schedule in ("in-order", "reversed", "random:1"):
        found = one(rows(kernel, (np.zeros(96, np.float32),), 64, 2, schedule), "memory")
        assert (found.requests, found.sectors) == expected


def test_totals_and_the_least_coalesced_first():
    def kernel(near, far):
        near[cuda.threadIdx.x] = far[cuda.threadIdx.x * 8]

    watch = Sanitizer()
    with watch:
        launch(kernel, 1, 32, (np.zeros(32, np.float32), np.zeros(256, np.float32)), observers=[watch])
    assert watch.memory.total("global", "read") == (1, 32)
    assert watch.memory.total("global", "write") == (1, 4)
    assert watch.memory.total("global", "read", "write") == (2, 36)
    assert watch.memory.total("shared", "read") == (0, 0)
    assert [row.array for row in coalescing(watch.memory.rows)] == ["far", "near"]
    assert watch.memory.rows[0].where.startswith("tests/kernels/simt/test_memview.py:")


def test_a_slice_argument_counts_from_its_own_start():
    # On a GPU it would be copied to memory of its own.
    def kernel(memory):
        memory[cuda.threadIdx.x]

    whole = np.zeros(64, np.float32)
    assert one(rows(kernel, (whole[3:],)), "memory").sectors == 4
