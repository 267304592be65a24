"""Block-wide barriers: reductions that need them, the race that a missing one leaves, and divergence."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernels.simt import BarrierDivergence, cuda, launch

SCHEDULES = ("in-order", "reversed", *(f"random:{seed}" for seed in range(6)))
SEEDS = tuple(f"random:{seed}" for seed in range(20))


def tree(x, out):
    s = cuda.shared.array(0, np.float32)
    i = cuda.threadIdx.x
    s[i] = x[cuda.grid(1)]
    cuda.syncthreads()
    half = cuda.blockDim.x // 2
    while half > 0:
        if i < half:
            s[i] += s[i + half]
        cuda.syncthreads()
        half //= 2
    if i == 0:
        out[cuda.blockIdx.x] = s[0]


def tree_oracle(values):
    level = list(values)
    while len(level) > 1:
        half = len(level) // 2
        level = [level[i] + level[i + half] for i in range(half)]
    return level[0]


@given(
    st.integers(0, 7).flatmap(lambda k: st.lists(st.floats(-1e6, 1e6, width=32), min_size=2**k, max_size=2**k)),
    st.sampled_from(SCHEDULES),
)
def test_tree_reduction_adds_in_the_same_order_as_the_oracle(values, schedule):
    x = np.array(values, np.float32)
    out = np.zeros(1, np.float32)
    launch(tree, 1, len(x), (x, out), shared_bytes=4 * len(x), schedule=schedule)
    assert out[0] == tree_oracle(x)


def test_tree_reduction_of_many_blocks():
    x = np.arange(5 * 64, dtype=np.float32)
    out = np.zeros(5, np.float32)
    report = launch(tree, 5, 64, (x, out), shared_bytes=256)
    assert out.tolist() == x.reshape(5, 64).sum(axis=1).tolist()
    assert (report.blocks, report.threads, report.barriers, report.shared_bytes) == (5, 320, 5 * 7, 256)


def two_level(x, out):
    s = cuda.shared.array(4, np.int64)
    v = x[cuda.threadIdx.x]
    for mask in (16, 8, 4, 2, 1):
        v += cuda.shfl_xor_sync(0xFFFFFFFF, v, mask)
    if cuda.laneid == 0:
        s[cuda.threadIdx.x // 32] = v
    cuda.syncthreads()
    v = s[cuda.laneid] if cuda.laneid < 4 else 0
    for mask in (2, 1):
        v += cuda.shfl_xor_sync(0xFFFFFFFF, v, mask)
    out[cuda.threadIdx.x] = cuda.shfl_sync(0xFFFFFFFF, v, 0)


@given(st.lists(st.integers(-99, 99), min_size=128, max_size=128), st.sampled_from(SCHEDULES))
def test_warp_then_block_reduction(values, schedule):
    out = np.zeros(128, np.int64)
    launch(two_level, 1, 128, (np.array(values), out), schedule=schedule)
    assert out.tolist() == [sum(values)] * 128


# K16: every thread reads a shared sum after the barrier; the next turn writes it again with no barrier between.
# The shuffles at the start of a turn keep the lanes of one warp together, so only the other warp can be late.


def warp_sum(v):
    for mask in (16, 8, 4, 2, 1):
        v += cuda.shfl_xor_sync(0xFFFFFFFF, v, mask)
    return v


def pair_sum(k, out, last_barrier):
    pair = cuda.shared.array(2, np.float64)
    i = cuda.threadIdx.x
    for token in range(k.shape[0]):
        v = warp_sum(k[token, i // 32] / 32)
        if cuda.laneid == 0:
            pair[i // 32] = v
        cuda.syncthreads()
        if i == 0:
            pair[0] = (pair[0] + pair[1]) / 8
        cuda.syncthreads()
        out[token, i] = pair[0]
        if last_barrier:
            cuda.syncthreads()


def pair_sum_by_parity(k, out, last_barrier):
    pair = cuda.shared.array((2, 2), np.float64)
    i = cuda.threadIdx.x
    for token in range(k.shape[0]):
        v = warp_sum(k[token, i // 32] / 32)
        half = token % 2
        if cuda.laneid == 0:
            pair[half, i // 32] = v
        cuda.syncthreads()
        if i == 0:
            pair[half, 0] = (pair[half, 0] + pair[half, 1]) / 8
        cuda.syncthreads()
        out[token, i] = pair[half, 0]


def run_pair_sum(kernel, last_barrier, schedule, tokens=10):
    k = np.arange(2.0 * tokens).reshape(tokens, 2) * 8
    out = np.zeros((tokens, 64))
    launch(kernel, 1, 64, (k, out, last_barrier), schedule=schedule)
    return out, np.repeat(k.sum(axis=1, keepdims=True) / 8, 64, axis=1)


def test_missing_barrier_is_wrong_where_warp_0_runs_ahead():
    out, right = run_pair_sum(pair_sum, False, "in-order")
    assert np.array_equal(out[:, :32], right[:, :32])
    # Warp 1 reads late: what it finds is warp 0's part of the next token, 16 for the first one.
    assert out[0, 32:].tolist() == [16] * 32
    assert right[0, 32] == 1


def test_missing_barrier_is_right_where_warp_1_runs_ahead():
    assert np.array_equal(*run_pair_sum(pair_sum, False, "reversed"))


def test_missing_barrier_shows_under_some_seeds_and_hides_under_others():
    verdicts = {seed: np.array_equal(*run_pair_sum(pair_sum, False, seed, tokens=2)) for seed in SEEDS}
    assert set(verdicts.values()) == {True, False}


@pytest.mark.parametrize("schedule", ["in-order", "reversed", *SEEDS])
def test_one_more_barrier_is_right_under_every_schedule(schedule):
    assert np.array_equal(*run_pair_sum(pair_sum, True, schedule))


@pytest.mark.parametrize("schedule", ["in-order", "reversed", *SEEDS])
def test_double_buffering_by_token_parity_is_right_under_every_schedule(schedule):
    assert np.array_equal(*run_pair_sum(pair_sum_by_parity, False, schedule))


# Barriers that count.


@given(st.lists(st.booleans(), min_size=1, max_size=70), st.sampled_from(SCHEDULES))
def test_counting_barriers_equal_python(predicates, schedule):
    def kernel(p, out):
        i = cuda.threadIdx.x
        out[0, i] = cuda.syncthreads_count(p[i])
        out[1, i] = cuda.syncthreads_and(p[i])
        out[2, i] = cuda.syncthreads_or(p[i])

    out = np.zeros((3, len(predicates)), np.int64)
    launch(kernel, 1, len(predicates), (np.array(predicates), out), schedule=schedule)
    expected = (sum(predicates), int(all(predicates)), int(any(predicates)))
    assert [set(row) for row in out.tolist()] == [{value} for value in expected]


# Divergence.


def failing(kernel, block, schedule="in-order", grid=1):
    with pytest.raises(BarrierDivergence) as e:
        launch(kernel, grid, block, (), schedule=schedule)
    first = kernel.__code__.co_firstlineno
    return e.value, {(g.what, g.threads, g.line - first if g.line else 0) for g in e.value.groups}


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_some_threads_of_a_warp_return_before_the_barrier(schedule):
    def kernel():
        if cuda.threadIdx.x >= 60:
            return
        cuda.syncthreads()

    error, groups = failing(kernel, 64, schedule)
    assert groups == {("syncthreads", tuple(range(60)), 3), ("exited", (60, 61, 62, 63), 0)}
    assert "threads 60-63 exited" in str(error)
    line = kernel.__code__.co_firstlineno + 3
    assert f"threads 0-59 wait in syncthreads at tests/kernels/simt/test_barriers.py:{line}" in str(error)
    assert "block (0, 0, 0) of kernel" in str(error)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_whole_warp_returns_before_the_barrier_of_another(schedule):
    def kernel():
        if cuda.threadIdx.x < 32:
            return
        cuda.syncthreads()

    _, groups = failing(kernel, 64, schedule)
    assert groups == {("exited", tuple(range(32)), 0), ("syncthreads", tuple(range(32, 64)), 3)}


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_branches_with_a_barrier_each(schedule):
    def kernel():
        if cuda.threadIdx.x < 40:
            cuda.syncthreads()
        else:
            cuda.syncthreads()

    error, groups = failing(kernel, 64, schedule)
    assert groups == {("syncthreads", tuple(range(40)), 2), ("syncthreads", tuple(range(40, 64)), 4)}
    assert "different barriers" in str(error)


def test_warps_at_different_barriers():
    def kernel():
        if cuda.threadIdx.x < 32:
            cuda.syncthreads()
        cuda.syncthreads()

    _, groups = failing(kernel, 64)
    assert groups == {("syncthreads", tuple(range(32)), 2), ("syncthreads", tuple(range(32, 64)), 3)}


def test_the_block_that_diverges_is_named():
    def kernel():
        if cuda.blockIdx.x == 2 and cuda.threadIdx.x == 0:
            return
        cuda.syncthreads()

    error, _ = failing(kernel, 8, grid=4)
    assert error.block == (2, 0, 0)


def test_an_early_return_of_a_whole_block_is_fine():
    def kernel(out):
        if cuda.blockIdx.x % 2:
            return
        cuda.syncthreads()
        out[cuda.blockIdx.x] = 1

    out = np.zeros(5, np.int32)
    assert launch(kernel, 5, 64, (out,)).barriers == 3
    assert out.tolist() == [1, 0, 1, 0, 1]


def test_returns_after_the_last_barrier_are_fine():
    def kernel(out):
        cuda.syncthreads()
        if cuda.threadIdx.x % 3:
            return
        out[cuda.threadIdx.x] = 1

    out = np.zeros(64, np.int32)
    launch(kernel, 1, 64, (out,))
    assert out.tolist() == [int(i % 3 == 0) for i in range(64)]


def test_a_warp_may_return_where_nobody_waits_later():
    def kernel(out):
        if cuda.threadIdx.x < 32:
            return
        out[cuda.threadIdx.x] = cuda.shfl_sync(0xFFFFFFFF, cuda.laneid, 3)

    out = np.zeros(64, np.int32)
    launch(kernel, 1, 64, (out,))
    assert out.tolist() == [0] * 32 + [3] * 32


def test_divergent_work_between_barriers():
    def kernel(out):
        s = cuda.shared.array(64, np.int64)
        i = cuda.threadIdx.x
        for turn in range(3):
            if (i + turn) % 3 == 0:
                for _ in range(i % 5):
                    cuda.nanosleep(1)
            s[i] = i * turn
            cuda.syncthreads()
            out[turn, i] = s[63 - i]
            cuda.syncthreads()

    out = np.zeros((3, 64), np.int64)
    launch(kernel, 1, 64, (out,))
    assert out.tolist() == [[(63 - i) * turn for i in range(64)] for turn in range(3)]


def helper(s, i):
    cuda.syncthreads()
    return s[63 - i]


def test_a_barrier_in_a_device_function_is_one_barrier_wherever_it_is_called_from():
    def kernel(out):
        s = cuda.shared.array(64, np.int64)
        i = cuda.threadIdx.x
        s[i] = i
        if i < 32:
            out[i] = helper(s, i)
        else:
            out[i] = helper(s, i)

    out = np.zeros(64, np.int64)
    assert launch(kernel, 1, 64, (out,)).barriers == 1
    assert out.tolist() == list(range(63, -1, -1))
