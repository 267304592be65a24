"""Warp operations: what each lane gets, under divergence too, and what a wrong mask is told."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernels.simt import BarrierDivergence, ShuffleError, cuda, launch

FULL = 0xFFFFFFFF
SCHEDULES = ("in-order", "reversed", "random:1", "random:2")

lanes_of_ints = st.lists(st.integers(-1000, 1000), min_size=32, max_size=32)


def run_warp(kernel, *args, lanes=32, dtype=np.int64, schedule="in-order"):
    out = np.full(lanes, -777, dtype)
    launch(kernel, 1, lanes, (*args, out), schedule=schedule)
    return out


def reduce_down(x, out):
    v = x[cuda.laneid]
    delta = 16
    while delta > 0:
        v += cuda.shfl_down_sync(FULL, v, delta)
        delta //= 2
    out[cuda.threadIdx.x] = v


def reduce_xor(x, out):
    v = x[cuda.laneid]
    mask = 16
    while mask > 0:
        v += cuda.shfl_xor_sync(FULL, v, mask)
        mask //= 2
    out[cuda.threadIdx.x] = v


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_after_shfl_down_only_lane_0_holds_the_sum(schedule):
    out = run_warp(reduce_down, np.arange(32), schedule=schedule)
    assert (out[0], out[1], out[31]) == (496, 512, 992)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_after_shfl_xor_every_lane_holds_the_sum(schedule):
    assert run_warp(reduce_xor, np.arange(32), schedule=schedule).tolist() == [496] * 32


@given(lanes_of_ints)
def test_reductions_equal_a_sequential_sum(values):
    x = np.array(values)
    assert run_warp(reduce_down, x)[0] == sum(values)
    assert run_warp(reduce_xor, x).tolist() == [sum(values)] * 32


def test_float32_butterfly_adds_in_the_hardware_order():
    x = np.random.default_rng(0).standard_normal(32).astype(np.float32)
    lanes = x.copy()
    for mask in (16, 8, 4, 2, 1):
        lanes = lanes + lanes[np.arange(32) ^ mask]
    out = run_warp(reduce_xor, x, dtype=np.float32)
    assert out.dtype == np.float32
    assert out.tobytes() == lanes.tobytes()


def shuffle_up(x, delta, out):
    out[cuda.laneid] = cuda.shfl_up_sync(FULL, x[cuda.laneid], delta)


def shuffle_down(x, delta, out):
    out[cuda.laneid] = cuda.shfl_down_sync(FULL, x[cuda.laneid], delta)


def shuffle_index(x, source, out):
    out[cuda.laneid] = cuda.shfl_sync(FULL, x[cuda.laneid], source)


def shuffle_xor(x, mask, out):
    out[cuda.laneid] = cuda.shfl_xor_sync(FULL, x[cuda.laneid], mask)


# 33 and 64 are there because the hardware reads only five bits of the operand.
@given(lanes_of_ints, st.sampled_from([0, 1, 2, 15, 16, 31, 32, 33, 64]))
def test_each_shuffle_reads_the_lane_it_names(values, n):
    x = np.array(values)
    five = n % 32
    assert run_warp(shuffle_up, x, n).tolist() == [values[i - five] if i >= five else values[i] for i in range(32)]
    down = [values[i + five] if i + five < 32 else values[i] for i in range(32)]
    assert run_warp(shuffle_down, x, n).tolist() == down
    assert run_warp(shuffle_index, x, n).tolist() == [values[five]] * 32
    assert run_warp(shuffle_xor, x, n).tolist() == [values[i ^ five] for i in range(32)]


def scan(x, out):
    v = x[cuda.laneid]
    delta = 1
    while delta < 32:
        below = cuda.shfl_up_sync(FULL, v, delta)
        if cuda.laneid >= delta:
            v += below
        delta *= 2
    out[cuda.laneid] = v


@given(lanes_of_ints)
def test_scan_equals_cumsum(values):
    assert run_warp(scan, np.array(values)).tolist() == np.cumsum(values).tolist()


def source_lane_differs(x, out):
    out[cuda.laneid] = cuda.shfl_sync(FULL, x[cuda.laneid], (cuda.laneid * 7 + 3) % 32)


def test_every_lane_may_name_another_source():
    got = run_warp(source_lane_differs, np.arange(32) * 10)
    assert got.tolist() == [(i * 7 + 3) % 32 * 10 for i in range(32)]


def test_a_full_mask_may_be_minus_one():
    def kernel(out):
        out[cuda.laneid] = cuda.shfl_sync(-1, cuda.laneid, 5)

    assert run_warp(kernel).tolist() == [5] * 32


def test_numpy_masks_work():
    def kernel(out):
        out[cuda.laneid] = cuda.shfl_xor_sync(np.uint32(FULL), cuda.laneid, 1)

    assert run_warp(kernel).tolist() == [i ^ 1 for i in range(32)]


# Votes.


@given(st.lists(st.booleans(), min_size=32, max_size=32))
def test_votes_equal_python(predicates):
    def kernel(p, out):
        i = cuda.laneid
        out[0, i] = cuda.ballot_sync(FULL, p[i])
        out[1, i] = cuda.all_sync(FULL, p[i])
        out[2, i] = cuda.any_sync(FULL, p[i])

    out = np.zeros((3, 32), np.int64)
    launch(kernel, 1, 32, (np.array(predicates), out))
    bits = sum(1 << i for i, p in enumerate(predicates) if p)
    signed = int(np.uint32(bits).astype(np.int32))
    assert set(out[0].tolist()) == {signed}
    assert set(out[1].tolist()) == {int(all(predicates))}
    assert set(out[2].tolist()) == {int(any(predicates))}


def test_votes_count_only_their_mask():
    def kernel(out):
        i = cuda.laneid
        if i < 8:
            out[i] = cuda.ballot_sync(0xFF, i != 3)
        else:
            out[i] = cuda.all_sync(0xFFFFFF00, i >= 8)

    assert run_warp(kernel).tolist() == [0xF7] * 8 + [1] * 24


def test_each_vote_counts_anew():
    def kernel(out):
        i = cuda.laneid
        out[i] = cuda.ballot_sync(FULL, i == 0) * 100 + cuda.ballot_sync(FULL, i == 2) * 10
        for n in range(3):
            out[i] += cuda.ballot_sync(FULL, i == n)

    assert run_warp(kernel).tolist() == [100 + 40 + 7] * 32


def test_laneid_and_warpsize():
    def kernel(out):
        out[cuda.threadIdx.x] = cuda.laneid * 100 + cuda.warpsize

    assert run_warp(kernel, lanes=70).tolist() == [i % 32 * 100 + 32 for i in range(70)]


# Divergence.


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_divergent_halves_shuffle_among_themselves_and_meet_again(schedule):
    def kernel(out):
        i = cuda.laneid
        v = i
        if i < 16:
            for delta in (8, 4, 2, 1):
                v += cuda.shfl_xor_sync(0x0000FFFF, v, delta)
        else:
            v = cuda.shfl_sync(0xFFFF0000, v, 20)
        out[i] = v + 1000 * cuda.shfl_sync(FULL, v, 31 - i)

    low, high = sum(range(16)), 20
    expected = [low + 1000 * high] * 16 + [high + 1000 * low] * 16
    assert run_warp(kernel, schedule=schedule).tolist() == expected


def test_lanes_that_leave_a_loop_early_wait_for_the_others():
    def kernel(out):
        i = cuda.laneid
        v = 0
        for _ in range(i):
            v += 1
            cuda.nanosleep(1)
        out[i] = cuda.shfl_xor_sync(FULL, v, 1)

    assert run_warp(kernel).tolist() == [i ^ 1 for i in range(32)]


def test_a_pair_exchanges_while_the_others_are_done():
    def kernel(out):
        i = cuda.laneid
        if i >= 2:
            return
        out[i] = cuda.shfl_xor_sync(0b11, i + 5, 1)

    assert run_warp(kernel).tolist() == [6, 5] + [-777] * 30


def test_activemask_is_who_is_there():
    def kernel(out):
        i = cuda.laneid
        if i % 2 == 0:
            out[i] = cuda.activemask()
        else:
            out[i] = cuda.activemask()

    assert run_warp(kernel).tolist() == [0x55555555, 0xAAAAAAAA] * 16


def test_activemask_of_a_partial_warp():
    def kernel(out):
        out[cuda.threadIdx.x] = cuda.activemask()

    assert run_warp(kernel, lanes=35).tolist() == [FULL] * 32 + [0b111] * 3


def test_syncwarp_orders_a_divergent_exchange():
    def kernel(out):
        s = cuda.shared.array(32, np.int64)
        i = cuda.laneid
        s[i] = i
        cuda.syncwarp()
        out[i] = s[31 - i]

    assert run_warp(kernel).tolist() == list(range(31, -1, -1))


def test_syncwarp_does_not_wait_for_lanes_that_returned_or_never_were():
    def kernel(out):
        if cuda.threadIdx.x % 32 == 1:
            return
        cuda.syncwarp()
        out[cuda.threadIdx.x] = 1

    assert run_warp(kernel, lanes=34).tolist() == [1, -777] + [1] * 31 + [-777]


def test_reading_a_lane_outside_the_mask_gives_a_value_that_shows():
    def kernel(floats, out):
        i = cuda.laneid
        if i < 4:
            floats[i] = cuda.shfl_down_sync(0xF, np.float32(i), 2)
            out[i] = cuda.shfl_down_sync(0xF, np.int64(i), 2)

    floats = np.zeros(4, np.float32)
    out = run_warp(kernel, floats)
    assert floats[:2].tolist() == [2, 3]
    assert np.isnan(floats[2:]).all()
    assert out[:4].tolist() == [2, 3, np.iinfo(np.int64).min, np.iinfo(np.int64).min]


# Errors.


def waits(error):
    return {(group.what, group.threads) for group in error.groups}


def test_a_full_mask_after_a_lane_returned():
    def kernel(out):
        if cuda.laneid == 8:
            return
        cuda.shfl_sync(FULL, 1, 0)

    with pytest.raises(ShuffleError, match=r"shfl_sync with mask 0xffffffff names lanes that returned .*\(8\)") as e:
        run_warp(kernel)
    others = tuple(i for i in range(32) if i != 8)
    assert waits(e.value) == {("shfl_sync", others), ("exited", (8,))}
    line = kernel.__code__.co_firstlineno + 3
    assert f"threads 0-7, 9-31 wait in shfl_sync at tests/kernels/simt/test_warp.py:{line}" in str(e.value)


def test_a_lane_that_returns_while_others_already_wait():
    def kernel(out):
        if cuda.laneid == 31:
            cuda.syncwarp(1 << 31)
            return
        cuda.shfl_sync(FULL, 1, 0)

    with pytest.raises(ShuffleError, match=r"\(31\)"):
        run_warp(kernel)


def test_a_full_mask_in_a_partial_warp():
    with pytest.raises(ShuffleError, match=r"never existed \(16-31\)"):
        run_warp(reduce_xor, np.arange(32), lanes=16)


def test_a_mask_without_the_caller():
    def kernel(out):
        cuda.shfl_sync(0xFFFF, 1, 0)

    with pytest.raises(ShuffleError, match="lane 16, outside its own mask 0x0000ffff"):
        run_warp(kernel)


def test_lanes_at_different_shuffles():
    def kernel(out):
        if cuda.laneid < 10:
            cuda.shfl_sync(FULL, 1, 0)
        else:
            cuda.shfl_sync(FULL, 1, 0)

    with pytest.raises(ShuffleError, match="wait for each other in different warp operations") as e:
        run_warp(kernel)
    first = kernel.__code__.co_firstlineno
    assert {(g.threads, g.line - first) for g in e.value.groups} == {
        (tuple(range(10)), 2),
        (tuple(range(10, 32)), 4),
    }


def test_lanes_with_different_masks_at_one_shuffle():
    def kernel(out):
        cuda.shfl_sync(FULL if cuda.laneid < 31 else 1 << 31, 1, 0)
        cuda.syncwarp()

    with pytest.raises(ShuffleError, match="different warp operations"):
        run_warp(kernel)


def test_a_barrier_against_a_shuffle():
    def kernel(out):
        if cuda.laneid == 0:
            cuda.syncthreads()
        else:
            cuda.shfl_sync(FULL, 1, 0)

    with pytest.raises(BarrierDivergence, match="others in a warp operation") as e:
        run_warp(kernel)
    assert waits(e.value) == {("syncthreads", (0,)), ("shfl_sync", tuple(range(1, 32)))}


def test_two_shuffles_on_one_line_are_two():
    def kernel(out):
        cuda.shfl_sync(FULL, 1, 0) if cuda.laneid else cuda.shfl_sync(FULL, 2, 0)

    with pytest.raises(ShuffleError) as e:
        run_warp(kernel)
    assert len(e.value.groups) == 2
