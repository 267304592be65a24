"""Schedules: parsing, the orders that they give, and that equal schedules give equal runs."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernels.simt import BadLaunch, Schedule, cuda, launch


@pytest.mark.parametrize("text", ["in-order", "reversed", "random:0", "random:123"])
def test_text_round_trip(text):
    assert str(Schedule.parse(text)) == text
    assert Schedule.parse(Schedule.parse(text)) == Schedule.parse(text)


@pytest.mark.parametrize("text", ["", "random", "random:", "random:x", "random:-1", "in-order:3", "backwards"])
def test_other_text_is_refused(text):
    with pytest.raises(BadLaunch, match=r"must be in-order, reversed or random:SEED"):
        Schedule.parse(text)
    with pytest.raises(BadLaunch, match="schedule"):
        launch(lambda: None, 1, 1, (), schedule=text)


def events(log):
    """Two intervals, each with two warp operations: who runs when, by block, warp and step."""

    def note(step):
        if cuda.laneid == 0:
            log.append((cuda.blockIdx.x, cuda.threadIdx.x // 32, step))

    for interval in range(2):
        note((interval, "a"))
        cuda.syncwarp()
        note((interval, "b"))
        cuda.syncwarp()
        note((interval, "c"))
        cuda.syncthreads()


def trace(schedule, blocks=2, warps=3):
    log: list[tuple[int, int, tuple[int, str]]] = []
    launch(events, blocks, 32 * warps, (log,), schedule=schedule)
    return log


def full(blocks, warps):
    return [(b, w, (i, s)) for b in blocks for i in range(2) for w in warps for s in "abc"]


def test_in_order_runs_each_warp_to_its_barrier():
    assert trace("in-order") == full([0, 1], [0, 1, 2])


def test_reversed_takes_the_last_block_and_the_last_warp_first():
    assert trace("reversed") == full([1, 0], [2, 1, 0])


@given(st.integers(0, 10_000))
def test_the_same_seed_gives_the_same_trace(seed):
    first = trace(f"random:{seed}")
    assert trace(f"random:{seed}") == first
    assert trace(Schedule("random", seed)) == first
    # It is a legal order: the same events, each warp's own in program order, and no one past a barrier early.
    assert sorted(first) == sorted(full([0, 1], [0, 1, 2]))
    for block in range(2):
        mine = [event for event in first if event[0] == block]
        intervals = [step[0] for _, _, step in mine]
        assert intervals == sorted(intervals)
        for warp in range(3):
            own = [step for _, w, step in mine if w == warp]
            assert own == sorted(own)


def test_seeds_differ_and_interleave_warps_within_an_interval():
    traces = [trace(f"random:{seed}") for seed in range(20)]
    assert len({tuple(t) for t in traces}) > 10

    def interleaved(t):
        warps = [w for b, w, (i, _) in t if (b, i) == (0, 0)]
        return sum(a != b for a, b in itertools.pairwise(warps)) > 2

    assert {interleaved(t) for t in traces} == {True, False}


def test_lanes_take_turns_in_ascending_order():
    def kernel(log):
        for step in range(2):
            log.append((step, cuda.laneid))
            cuda.syncwarp()

    for schedule in ("in-order", "reversed", "random:3"):
        log: list[tuple[int, int]] = []
        launch(kernel, 1, 32, (log,), schedule=schedule)
        assert log == [(step, lane) for step in range(2) for lane in range(32)]


def stencil(x, out):
    s = cuda.shared.array(96, np.float32)
    i = cuda.threadIdx.x
    s[i] = x[cuda.grid(1)]
    cuda.syncthreads()
    for _ in range(3):
        v = s[i] * np.float32(0.5) + s[(i + 1) % 96] * np.float32(0.25) + s[(i + 95) % 96] * np.float32(0.25)
        cuda.syncthreads()
        s[i] = v
        cuda.syncthreads()
    out[cuda.grid(1)] = s[i] + cuda.shfl_xor_sync(0xFFFFFFFF, s[i], 4)


def test_a_kernel_without_races_gives_the_same_bits_under_every_schedule():
    x = np.random.default_rng(1).standard_normal(192).astype(np.float32)
    results = set()
    for schedule in ("in-order", "reversed", *(f"random:{seed}" for seed in range(8))):
        out = np.zeros(192, np.float32)
        launch(stencil, 2, 96, (x, out), schedule=schedule)
        results.add(out.tobytes())
    assert len(results) == 1
    assert np.isfinite(np.frombuffer(results.pop(), np.float32)).all()


def test_blocks_that_race_show_it():
    def kernel(out):
        out[0] = cuda.blockIdx.x

    got = {}
    for schedule in ("in-order", "reversed"):
        out = np.zeros(1, np.int32)
        launch(kernel, 4, 1, (out,), schedule=schedule)
        got[schedule] = out[0]
    assert got == {"in-order": 3, "reversed": 0}
