"""Launching: grids and blocks, what kernels see of them, refused launches, errors that leave nothing behind."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernels.simt import (
    BadLaunch,
    Deadlock,
    LaunchReport,
    OutsideLaunch,
    cuda,
    launch,
    libdevice,
)

SCHEDULES = ("in-order", "reversed", "random:7")
dims = st.tuples(st.integers(1, 4), st.integers(1, 3), st.integers(1, 3))


@given(dims, dims, st.sampled_from(SCHEDULES))
def test_every_thread_of_a_3d_grid_runs_once_and_knows_where_it_is(grid, block, schedule):
    def kernel(seen):
        b, t = cuda.blockIdx, cuda.threadIdx
        seen[b.z, b.y, b.x, t.z, t.y, t.x] += 1
        assert (cuda.gridDim.x, cuda.gridDim.y, cuda.gridDim.z) == grid
        assert (cuda.blockDim.x, cuda.blockDim.y, cuda.blockDim.z) == block

    seen = np.zeros((*grid[::-1], *block[::-1]), np.int32)
    report = launch(kernel, grid, block, (seen,), schedule=schedule)
    assert (seen == 1).all()
    assert report.blocks == np.prod(grid)
    assert report.threads == seen.size


@given(dims, dims)
def test_grid_and_gridsize_equal_numpy(grid, block):
    def kernel(one, two, three):
        x, y, z = cuda.grid(3)
        assert cuda.grid(2) == (x, y)
        three[z, y, x] += 1
        if y == 0 and z == 0:
            one[cuda.grid(1)] += 1
        if z == 0:
            two[y, x] += 1
        assert cuda.gridsize(1) == three.shape[2]
        assert cuda.gridsize(2) == (three.shape[2], three.shape[1])
        assert cuda.gridsize(3) == tuple(three.shape[::-1])

    sizes = [g * b for g, b in zip(grid, block, strict=True)]
    arrays = [np.zeros(sizes[n::-1], np.int32) for n in range(3)]
    launch(kernel, grid, block, arrays)
    assert all((array == 1).all() for array in arrays)


def test_lanes_are_numbered_x_first():
    def kernel(out):
        t = cuda.threadIdx
        out[t.z, t.y, t.x] = cuda.laneid

    out = np.zeros((3, 5, 4), np.int32)
    launch(kernel, 1, (4, 5, 3), (out,))
    assert out.reshape(-1).tolist() == [i % 32 for i in range(60)]


def test_thread_indices_survive_switches():
    def kernel(out):
        before = cuda.threadIdx
        x = cuda.threadIdx.x
        for _ in range(3):
            cuda.syncthreads()
            cuda.shfl_sync(0xFFFFFFFF, 0, 0)
            assert cuda.threadIdx.x == x == before.x
        out[x] = cuda.grid(1)

    out = np.zeros(64, np.int32)
    launch(kernel, 1, 64, (out,), schedule="random:4")
    assert out.tolist() == list(range(64))


def test_indices_are_plain_ints():
    def kernel():
        for dim in (cuda.threadIdx, cuda.blockIdx, cuda.blockDim, cuda.gridDim):
            assert [type(size) for size in (dim.x, dim.y, dim.z)] == [int] * 3

    launch(kernel, np.int64(2), np.int32(2), ())


def test_scalars_and_other_objects_are_handed_on_as_they_are():
    def kernel(a, b, c):
        assert type(a) is int
        assert type(b) is np.float32
        c.append(cuda.threadIdx.x)

    seen: list[int] = []
    launch(kernel, 1, 4, (3, np.float32(2.5), seen))
    assert seen == [0, 1, 2, 3]


def test_the_report():
    def kernel():
        cuda.syncthreads()

    report = launch(kernel, (2, 3), 40, (), name="mine", schedule="random:5")
    # A pass for the barrier and one for the end, each a switch a thread.
    assert report == LaunchReport("mine", "random:5", 6, 240, 2 * 240, 6, 0)
    assert launch(kernel, 1, 1, ()).name == "kernel"


def test_atomics_lose_nothing_under_any_schedule():
    def kernel(total, top, low, slot, claimed):
        s = cuda.shared.array(1, np.int32)
        i = cuda.grid(1)
        if cuda.threadIdx.x == 0:
            s[0] = 0
        cuda.syncthreads()
        cuda.atomic.add(s, 0, i)
        cuda.atomic.max(top, 0, i * 7 % 50)
        cuda.atomic.min(low, (0, 0), i * 7 % 50 - 10)
        mine = cuda.atomic.add(slot, 0, 1)
        claimed[mine] = i
        cuda.syncthreads()
        if cuda.threadIdx.x == 0:
            cuda.atomic.add(total, 0, s[0])

    for schedule in SCHEDULES:
        total, top, slot = np.zeros(1, np.int64), np.zeros(1, np.int32), np.zeros(1, np.int32)
        low, claimed = np.zeros((1, 1), np.float32), np.full(200, -1)
        launch(kernel, 4, 50, (total, top, low, slot, claimed), schedule=schedule)
        assert (total[0], top[0], low[0, 0], slot[0]) == (sum(range(200)), 49, -10, 200)
        assert sorted(claimed) == list(range(200))


def test_atomics_return_the_old_value():
    def kernel(a, out):
        out[0] = cuda.atomic.add(a, 0, 5)
        out[1] = cuda.atomic.exch(a, 0, 20)
        out[2] = cuda.atomic.cas(a, 0, 19, 1)
        out[3] = cuda.atomic.cas(a, 0, 20, 2)
        out[4] = cuda.atomic.max(a, 0, 9)
        out[5] = cuda.atomic.min(a, 0, 4)
        out[6] = a[0]

    out = np.zeros(7, np.int32)
    launch(kernel, 1, 1, (np.array([1], np.int32), out))
    assert out.tolist() == [1, 6, 20, 20, 2, 9, 4]


def test_atomic_add_wraps_like_the_hardware():
    def kernel(a):
        cuda.atomic.add(a, 0, 1)

    a = np.array([2**31 - 1], np.int32)
    launch(kernel, 1, 1, (a,))
    assert a[0] == -(2**31)


def test_a_spin_lock_works_when_it_sleeps():
    def kernel(lock, total):
        while cuda.atomic.cas(lock, 0, 0, 1) != 0:
            cuda.nanosleep(10)
        old = total[0]
        cuda.nanosleep(10)
        total[0] = old + 1
        cuda.atomic.exch(lock, 0, 0)

    for schedule in SCHEDULES:
        total = np.zeros(1, np.int32)
        launch(kernel, 1, 40, (np.zeros(1, np.int32), total), schedule=schedule)
        assert total[0] == 40


def test_a_warp_that_sleeps_lets_another_go_first():
    def kernel(out):
        flag = cuda.shared.array(1, np.int32)
        if cuda.threadIdx.x == 0:
            flag[0] = 0
            while flag[0] == 0:
                cuda.nanosleep(100)
            out[0] = flag[0]
        elif cuda.threadIdx.x == 63:
            for _ in range(5):
                cuda.nanosleep(100)
            flag[0] = 9

    out = np.zeros(1, np.int32)
    launch(kernel, 1, 64, (out,))
    assert out[0] == 9


def test_sleeping_for_ever_is_a_deadlock():
    def kernel():
        if cuda.threadIdx.x >= 2:
            while True:
                cuda.nanosleep(1)
        cuda.syncthreads()

    with pytest.raises(Deadlock) as e:
        launch(kernel, 1, 3, ())
    assert {(g.what, g.threads) for g in e.value.groups} == {("syncthreads", (0, 1)), ("nanosleep", (2,))}


def test_fma_and_libdevice_are_reachable_from_kernels():
    def kernel(out):
        out[0] = cuda.fma(np.float32(2), np.float32(3), np.float32(4))
        out[1] = libdevice.fmaxf(out[0], np.float32(11))

    out = np.zeros(2, np.float32)
    launch(kernel, 1, 1, (out,))
    assert out.tolist() == [10, 11]


def test_a_gpu_raises_no_floating_point_exceptions():
    def kernel(out):
        cuda.syncthreads()
        big = np.float32(3e38)
        out[cuda.threadIdx.x, 0] = big * big
        out[cuda.threadIdx.x, 1] = np.float32(0) / np.float32(0)
        out[cuda.threadIdx.x, 2] = np.int32(2**31 - 1) + np.int32(1)
        out[cuda.threadIdx.x, 3] = np.float16(big)

    out = np.zeros((40, 4), np.float64)
    launch(kernel, 1, 40, (out,))
    assert np.isinf(out[:, 0]).all()
    assert np.isnan(out[:, 1]).all()
    assert (out[:, 2] == -(2**31)).all()
    assert np.isinf(out[:, 3]).all()
    with pytest.raises(RuntimeWarning):  # and it is switched off for the launch only
        np.float32(3e38) * np.float32(3e38)


# Refused launches.


@pytest.mark.parametrize(
    ("grid", "block", "text"),
    [
        (0, 1, r"grid = 0: x must be from 1"),
        ((1, 70000), 1, r"grid = \(1, 70000\): y must be from 1 to 65535"),
        ((1, 1, 1, 1), 1, "one to three sizes"),
        (1, -1, "block = -1"),
        (1, (32, 32, 2), "2048 threads"),
        (1, (1, 1, 65), "z must be from 1 to 64"),
        (1, 1025, "x must be from 1 to 1024"),
    ],
)
def test_sizes_that_no_gpu_takes(grid, block, text):
    with pytest.raises(BadLaunch, match=text):
        launch(lambda: None, grid, block, ())


def test_negative_shared_bytes():
    with pytest.raises(BadLaunch, match="shared_bytes = -4"):
        launch(lambda: None, 1, 1, (), shared_bytes=-4)


def test_a_kernel_cannot_launch():
    def kernel():
        launch(lambda: None, 1, 1, ())

    with pytest.raises(BadLaunch, match="cannot launch"):
        launch(kernel, 1, 1, ())
    launch(lambda: None, 1, 1, ())


# Outside a launch.


@pytest.mark.parametrize(
    "use",
    [
        lambda: cuda.threadIdx.x,
        lambda: cuda.blockDim.y,
        lambda: cuda.grid(1),
        lambda: cuda.laneid,
        lambda: cuda.syncthreads(),
        lambda: cuda.syncthreads_count(True),
        lambda: cuda.syncwarp(),
        lambda: cuda.shfl_sync(-1, 1, 0),
        lambda: cuda.ballot_sync(-1, True),
        lambda: cuda.activemask(),
        lambda: cuda.nanosleep(1),
        lambda: cuda.shared.array(4, np.float32),
        lambda: cuda.local.array(4, np.float32),
    ],
)
def test_outside_a_launch_the_facade_refuses(use):
    launch(lambda: None, 1, 1, ())  # also after a launch
    with pytest.raises(OutsideLaunch, match="outside a launch"):
        use()


def test_launches_of_two_os_threads_take_turns():
    outs = [np.zeros(64, np.int64) for _ in range(4)]

    def kernel(out):
        v = cuda.threadIdx.x
        for _ in range(20):
            v += cuda.shfl_xor_sync(0xFFFFFFFF, v, 1)
            cuda.syncthreads()
        out[cuda.threadIdx.x] = v

    threads = [threading.Thread(target=launch, args=(kernel, 1, 64, (out,))) for out in outs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    pairs = [(i // 2 * 4 + 1) * 2**19 for i in range(64)]
    assert [out.tolist() for out in outs] == [pairs] * 4


def test_a_thousand_threads():
    def kernel(out):
        i = cuda.threadIdx.x
        s = cuda.shared.array(1024, np.int32)
        s[i] = i
        cuda.syncthreads()
        out[i] = s[1023 - i]

    out = np.zeros(1024, np.int32)
    launch(kernel, 2, 1024, (out,))
    assert out.tolist() == list(range(1023, -1, -1))
