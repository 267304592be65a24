"""Generated kernels, of shuffles, votes, barriers, atomics and divergent branches, against an array oracle."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from kernels.simt import cuda, launch

FULL = 0xFFFFFFFF
SCHEDULES = ("in-order", "reversed", "random:1", "random:2")
WIDTH = 64

steps = st.one_of(
    st.tuples(st.just("xor"), st.integers(0, 31)),
    st.tuples(st.just("up"), st.integers(0, 31)),
    st.tuples(st.just("down"), st.integers(0, 31)),
    st.tuples(st.just("pick"), st.integers(0, 31)),
    st.tuples(st.just("add"), st.integers(-9, 9)),
    st.tuples(st.just("rotate"), st.integers(0, WIDTH - 1)),
    st.tuples(st.just("odd"), st.integers(-9, 9)),
    st.tuples(st.just("split"), st.integers(1, 31)),
    st.tuples(st.just("count"), st.integers(-9, 9)),
    st.tuples(st.just("atomic"), st.integers(0, 3)),
)


def interpret(program, out):
    slots = cuda.shared.array(WIDTH, np.int64)
    total = cuda.shared.array(1, np.int64)
    i = cuda.threadIdx.x
    lane = cuda.laneid
    v = i
    for op, n in program:
        if op == "xor":
            v = v + cuda.shfl_xor_sync(FULL, v, n)
        elif op == "up":
            v = v - cuda.shfl_up_sync(FULL, v, n)
        elif op == "down":
            v = v - cuda.shfl_down_sync(FULL, v, n)
        elif op == "pick":
            v = v + cuda.shfl_sync(FULL, v, n)
        elif op == "add":
            v = v + n
        elif op == "rotate":
            slots[i] = v
            cuda.syncthreads()
            v = slots[(i + n) % WIDTH]
            cuda.syncthreads()
        elif op == "odd":
            if i % 2:
                v = v * n
        elif op == "split":
            low = (1 << n) - 1
            v = v + cuda.shfl_sync(low, v, 0) if lane < n else v - cuda.shfl_sync(FULL - low, v, 31)
        elif op == "count":
            v = v + cuda.syncthreads_count(v > n)
        elif op == "atomic":
            if i == 0:
                total[0] = n
            cuda.syncthreads()
            cuda.atomic.add(total, 0, v)
            cuda.syncthreads()
            v = v ^ int(total[0])
            cuda.syncthreads()
        v = int(v) % 1_000_003
    out[i] = v


def oracle(program):
    i = np.arange(WIDTH)
    lane, base = i % 32, i - i % 32
    v = i.copy()
    for op, n in program:
        if op == "xor":
            v = v + v[base + (lane ^ n)]
        elif op == "up":
            v = v - np.where(lane >= n, v[np.maximum(i - n, 0)], v)
        elif op == "down":
            v = v - np.where(lane + n < 32, v[np.minimum(i + n, WIDTH - 1)], v)
        elif op == "pick":
            v = v + v[base + n]
        elif op == "add":
            v = v + n
        elif op == "rotate":
            v = np.roll(v, -n)
        elif op == "odd":
            v = np.where(i % 2 == 1, v * n, v)
        elif op == "split":
            v = np.where(lane < n, v + v[base], v - v[base + 31])
        elif op == "count":
            v = v + (v > n).sum()
        elif op == "atomic":
            v = v ^ (v.sum() + n)
        v = v % 1_000_003
    return v


@given(st.lists(steps, max_size=6), st.sampled_from(SCHEDULES))
def test_generated_programs_equal_the_oracle(program, schedule):
    out = np.zeros(WIDTH, np.int64)
    launch(interpret, 1, WIDTH, (tuple(program), out), schedule=schedule)
    assert out.tolist() == oracle(program).tolist()
