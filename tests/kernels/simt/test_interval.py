"""Intervals: which rows they hold, and the numbers that say which accesses belong together."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kernels.simt import cuda, launch
from kernels.simt import interval as module
from kernels.simt.access import Memory
from kernels.simt.interval import KINDS, Interval, IntervalObserver, Sites
from kernels.simt.places import Places


class Collect(IntervalObserver):
    def __init__(self) -> None:
        super().__init__()
        self.got: list[Interval] = []
        self.names: list[str] = []

    def interval(self, interval: Interval) -> None:
        self.got.append(interval)
        self.names = [memory.name for memory in self.memories]

    def rows(self, number: int, *columns: str) -> list[tuple[int, ...]]:
        found = self.got[number]
        return list(zip(*(getattr(found, column).tolist() for column in columns), strict=True))


def collected(kernel: Any, *args: Any, block: int = 1, grid: Any = 1, schedule: str = "in-order") -> Collect:
    watch = Collect()
    launch(kernel, grid, block, args, observers=[watch], schedule=schedule)
    return watch


def test_a_barrier_and_a_new_block_each_end_an_interval():
    def kernel(out):
        out[0] = 1
        cuda.syncthreads()
        cuda.syncthreads()  # an interval without accesses is none
        out[1] = 2

    watch = collected(kernel, np.zeros(2), grid=(1, 2))
    assert [(i.block, i.epoch, len(i)) for i in watch.got] == [
        ((0, 0, 0), 0, 1), ((0, 0, 0), 2, 1), ((0, 1, 0), 0, 1), ((0, 1, 0), 2, 1),
    ]  # fmt: skip
    assert [watch.rows(n, "index") for n in range(2)] == [[(0,)], [(1,)]]
    assert KINDS[watch.got[0].kind[0]] == "write"


def test_clocks_count_the_warps_operations_and_start_again_at_a_barrier():
    def kernel(out):
        i = cuda.threadIdx.x
        out[i] = 0
        cuda.syncwarp()
        out[i] = 1
        if i < 32:
            cuda.syncwarp()
        out[i] = 2
        cuda.syncthreads()
        out[i] = 3

    watch = collected(kernel, np.zeros(34), block=34)
    clocks = watch.rows(0, "thread", "clock")
    assert [clock for thread, clock in clocks if thread == 5] == [0, 1, 2]
    assert [clock for thread, clock in clocks if thread == 33] == [0, 1, 1]
    assert {clock for _, clock in watch.rows(1, "thread", "clock")} == {0}


def test_what_came_before_an_operation_of_some_lanes_is_kept_lane_by_lane():
    def kernel(out):
        i = cuda.threadIdx.x
        cuda.syncwarp()  # 1
        if i < 2:
            cuda.syncwarp(0b0011)  # 2
        if 1 <= i < 3:
            cuda.syncwarp(0b0110)  # 3
        out[i] = 1

    (interval,) = collected(kernel, np.zeros(4), block=4).got
    # All lanes are known up to 1; lane 0 up to 2 by way of lane 1; lane 2 up to 3 and lane 3 no further.
    assert interval.ordered == {0: {2: [2, 2, 1, 1], 3: [2, 3, 3, 1]}}
    assert dict(zip(interval.thread.tolist(), interval.clock.tolist(), strict=True)) == {0: 2, 1: 3, 2: 3, 3: 1}


def test_turns_of_a_loop_make_requests_and_steps_count_a_threads_own_accesses():
    def kernel(out):
        for _ in range(2):
            out[cuda.threadIdx.x] = out[0]

    watch = collected(kernel, np.zeros(3), block=3)
    (interval,) = watch.got
    assert watch.rows(0, "thread", "occurrence", "step") == [
        (thread, step // 2, step) for thread in range(3) for step in range(4)
    ]
    by_lane = interval.request.reshape(3, 4)
    assert (by_lane == by_lane[0]).all()
    assert len(set(by_lane[0])) == 4


@pytest.mark.parametrize("schedule", ["in-order", "reversed", "random:4"])
def test_requests_do_not_depend_on_the_order_of_warps(schedule):
    def kernel(out):
        i = cuda.threadIdx.x
        for turn in range(3):
            out[i] = turn
            cuda.syncwarp()

    (interval,) = collected(kernel, np.zeros(70), block=70, schedule=schedule).got
    groups: dict[int, list[int]] = {}
    for request, thread in zip(interval.request.tolist(), interval.thread.tolist(), strict=True):
        groups.setdefault(request, []).append(thread)
    warps = [list(range(32)), list(range(32, 64)), list(range(64, 70))]
    assert sorted(sorted(group) for group in groups.values()) == sorted(warps * 3)


def test_a_long_interval_is_put_together_from_its_parts(monkeypatch):
    def kernel(out):
        for turn in range(40):
            out[0] = turn

    whole = collected(kernel, np.zeros(1))
    monkeypatch.setattr(module, "_CHUNK", 50)
    (parts,) = collected(kernel, np.zeros(1)).got
    assert [float(value) for value in parts.values] == list(range(40)) == [float(v) for v in whole.got[0].values]
    assert parts.occurrence.tolist() == list(range(40))


def test_a_site_is_an_instruction_also_where_python_shows_its_cache():
    def kernel(row):
        row[0] = row[1]

    sites, code = Sites(), kernel.__code__
    import dis

    load = next(i.offset for i in dis.get_instructions(code) if i.opname == "BINARY_SUBSCR")
    store = next(i.offset for i in dis.get_instructions(code) if i.opname == "STORE_SUBSCR")
    numbers = sites.number([code] * 3, [load, store, load + 2])
    assert numbers[0] == numbers[2] != numbers[1]
    assert sites.line(int(numbers[0])) == (__file__, code.co_firstlineno + 1)
    assert sites.number([code], [store]).tolist() == [numbers[1]]


def memory(name: str, size: int, dtype: Any, home: object = "global", offset: int = 0) -> Memory:
    return Memory("global" if home == "global" else "shared", name, (size,), np.dtype(dtype), home, offset)


def keys(memories: list[Memory], accesses: list[tuple[int, int, int]]) -> list[list[int]]:
    """For each access (memory, index, count) the numbers of its places."""
    columns = [np.array(column, np.int64) for column in zip(*accesses, strict=True)]
    rows, places = Places().keys(memories, columns[0], columns[1], columns[2])
    return [places[rows == number].tolist() for number in range(len(accesses))]


def test_elements_of_one_width_have_one_place_each_whatever_the_name():
    one, other = memory("a", 8, np.float32, offset=4096), memory("b", 4, np.float32, offset=4112)
    ((a,), (b,), (c,)) = keys([one, other], [(0, 5, 1), (1, 1, 1), (1, 2, 1)])
    assert a == b != c


def test_elements_of_two_widths_are_compared_by_bytes():
    words, halves = memory("a", 4, np.float32, "dynamic"), memory("b", 8, np.float16, "dynamic")
    word, low, high, far = keys([words, halves], [(0, 1, 1), (1, 2, 1), (1, 3, 1), (1, 4, 1)])
    assert len(word) == 4
    assert set(low) | set(high) == set(word)
    assert not set(far) & set(word)


def test_homes_never_meet_and_vectors_have_all_their_places():
    memories = [memory("a", 8, np.float32, "one"), memory("b", 8, np.float32, "two")]
    vector, same, elsewhere = keys(memories, [(0, 4, 4), (0, 6, 1), (1, 6, 1)])
    assert len(vector) == 4
    assert set(same) < set(vector)
    assert not set(elsewhere) & set(vector)
