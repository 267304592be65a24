"""Order that is no barrier: a fence and an atomic between thread blocks, a copy's barrier within a warp.

Each rule is shown by a kernel that keeps it, and by the same kernel with one thing left out, which races.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numba import float32, int32, int64

from kernels.kernel import Backend, kernel
from kernels.ptx import bulk_load, mbarrier_expect, mbarrier_fence, mbarrier_init, mbarrier_passed
from kernels.simt import cuda, launch
from kernels.simt.race import BETWEEN_BLOCKS, WITHIN_WARP, Race
from kernels.simt.sanitize import Sanitizer

THREADS = 40


def races(
    kernel_code: Callable[..., None], blocks: int, *args: Any, threads: int = THREADS, schedule: str = "in-order"
) -> list[Race]:
    watch = Sanitizer()
    with watch:
        launch(kernel_code, blocks, threads, args, observers=(watch,), schedule=schedule)
    assert not watch.faults, watch.faults
    return watch.races


def last_block(
    fence: str = "all", hear: str = "all", barrier: bool = True, heard: bool = True, place: int = 0, late: bool = False
) -> Callable[..., None]:
    """Each block leaves a row; the last one adds them up. `fence`, `hear`: which threads fence before and after."""

    def merge(rows, total, turn):
        me, block, size = cuda.threadIdx.x, cuda.blockIdx.x, cuda.blockDim.x
        last = cuda.shared.array(1, int32)
        if fence == "early":
            cuda.threadfence()
        rows[block * size + me] = block + 1
        if fence == "all":
            cuda.threadfence()
        if barrier:
            cuda.syncthreads()
        if me == 0:
            if fence == "one":
                cuda.threadfence()
            last[0] = cuda.atomic.add(turn, place * block, 1)
            if hear == "one":
                cuda.threadfence()
        cuda.syncthreads()
        if last[0] == cuda.gridDim.x - 1 or not heard:
            if hear == "all":
                cuda.threadfence()
            for other in range(cuda.gridDim.x):
                total[me] += rows[other * size + me]
            if hear == "late":
                cuda.threadfence()
        if late:
            rows[block * size + me] = 0

    return merge


def arrays(blocks: int) -> tuple[Any, Any, Any]:
    return np.zeros(THREADS * blocks), np.zeros(THREADS), np.zeros(blocks, np.int32)


@pytest.mark.parametrize(
    "way",
    [{}, {"fence": "one"}, {"hear": "one"}, {"fence": "one", "hear": "one"}],
    ids=str,
)
@pytest.mark.parametrize("schedule", ["in-order", "reversed", "random:3"])
def test_a_last_block_may_merge(way: dict[str, Any], schedule: str) -> None:
    given = arrays(3)
    assert races(last_block(**way), 3, *given, schedule=schedule) == []
    np.testing.assert_array_equal(given[1], 6)


@pytest.mark.parametrize(
    "way",
    [
        {"fence": "none"}, {"fence": "early"}, {"hear": "none"}, {"hear": "late"}, {"barrier": False, "fence": "one"},
        {"place": 1, "heard": False}, {"late": True},
    ],
    ids=str,
)  # fmt: skip
@pytest.mark.parametrize("schedule", ["in-order", "reversed"])
def test_without_one_of_its_parts_it_races(way: dict[str, Any], schedule: str) -> None:
    found = races(last_block(**way), 3, *arrays(3), schedule=schedule)
    assert {race.scope for race in found} == {BETWEEN_BLOCKS}
    assert {race.array for race in found} <= {"rows", "total"}
    assert "rows" in {race.array for race in found}


def test_who_reads_before_the_others_are_done_races() -> None:
    # Every block reads, not only the last: the first ones' reads come before the others' writes.
    found = races(last_block(heard=False), 3, *arrays(3))
    assert "rows" in {race.array for race in found}


def test_one_thread_needs_no_barrier() -> None:
    def pass_on(fenced):
        def run(data, turn):
            data[0] = data[0] + 1
            if fenced:
                cuda.threadfence()
            cuda.atomic.add(turn, 0, 1)
            if fenced:
                cuda.threadfence()
            data[1] = data[0]

        return run

    # The second block's first access comes before it hears of anything.
    assert races(pass_on(True), 2, np.zeros(2), np.zeros(1, np.int32), threads=1)

    def hand_over(data, turn):
        if cuda.blockIdx.x == 0:
            data[0] = 5
            cuda.threadfence()
        if cuda.atomic.add(turn, 0, 1) == 1:
            cuda.threadfence()
            data[0] += 1

    assert races(hand_over, 2, np.zeros(1), np.zeros(1, np.int32), threads=1) == []


def test_atomics_alone_are_no_order() -> None:
    def count(data, turn):
        data[0] = cuda.blockIdx.x
        cuda.atomic.add(turn, 0, 1)

    assert {race.array for race in races(count, 2, np.zeros(1), np.zeros(1, np.int32))} == {"data"}


# Copies


@kernel()
def ring(out, source, rounds, wait, step):
    target = cuda.shared.array(16, float32)
    bars = cuda.shared.array(3, int64)  # one a round
    lane = cuda.laneid
    if lane == 0:
        for turn in range(rounds):
            mbarrier_init(bars, turn, 1)
        mbarrier_fence()
    cuda.syncwarp()
    for turn in range(rounds):
        if lane == 0:
            mbarrier_expect(bars, turn, 64)
            bulk_load(target, 0, source, 16 * turn, 64, bars, turn)
        if wait or lane == 0:
            while mbarrier_passed(bars, turn, int32(0)) == 0:
                pass
        if lane < 16:
            out[16 * turn + lane] = target[lane]
        if step:
            cuda.syncwarp()


def watched(rounds: int, wait: bool, step: bool) -> Sanitizer:
    watch = Sanitizer()
    source = np.arange(16 * rounds, dtype=np.float32)
    with watch:
        ring.on(Backend("sim", observers=(watch,)))[1, 32](np.zeros_like(source), source, rounds, wait, step)
    return watch


def test_who_waits_for_a_copy_does_not_race_with_it() -> None:
    assert watched(3, wait=True, step=True).clean


def test_who_does_not_wait_races_with_the_copy() -> None:
    (race,) = [found for found in watched(1, wait=False, step=True).races if found.array == "target"]
    assert race.scope == WITHIN_WARP
    assert {race.first.kind, race.second.kind} == {"read", "write"}


def test_a_copy_over_what_others_still_read_races() -> None:
    # Without the step the next copy may come before another lane has read this one.
    watch = watched(3, wait=True, step=False)
    assert {race.scope for race in watch.races if race.array == "target"} == {WITHIN_WARP}
    assert not watch.faults
