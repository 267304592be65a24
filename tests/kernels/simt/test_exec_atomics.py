"""Atomics on global and shared memory against a sequential oracle, and constant arrays."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernels.kernel import kernel
from kernels.simt import OutOfBounds, cuda, launch

SCHEDULES = ("in-order", "reversed", "random:1", "replay:lanes=down;*=1*2,0")
OPS = {
    "add": lambda old, v: old + v,
    "sub": lambda old, v: old - v,
    "and_": lambda old, v: old & v,
    "or_": lambda old, v: old | v,
    "xor": lambda old, v: old ^ v,
    "max": max,
    "min": min,
    "nanmax": max,
    "nanmin": min,
    "exch": lambda old, v: v,
    "inc": lambda old, v: 0 if old >= v else old + 1,
    "dec": lambda old, v: v if old == 0 or old > v else old - 1,
}


def on_global(name, a, x, old):
    i = cuda.threadIdx.x
    old[i] = getattr(cuda.atomic, name)(a, (0, 1), x[i])


def on_shared(name, a, x, old):
    s = cuda.shared.array(2, a.dtype)
    i = cuda.threadIdx.x
    if i == 0:
        s[1] = a[0, 1]
    cuda.syncthreads()
    old[i] = getattr(cuda.atomic, name)(s, 1, x[i])
    cuda.syncthreads()
    if i == 0:
        a[0, 1] = s[1]


def wrapped(value, dtype):
    return int(np.array([value & (1 << 8 * dtype.itemsize) - 1], np.uint64).astype(dtype)[0])


@pytest.mark.parametrize("kernel", [on_global, on_shared])
@pytest.mark.parametrize("name", OPS)
@given(st.data())
def test_each_in_turn_sees_what_the_last_one_left(kernel, name, data):
    kind = np.uint32 if name in ("inc", "dec") else data.draw(st.sampled_from([np.int32, np.uint32, np.int64]))
    dtype = np.dtype(kind)
    limits = np.iinfo(dtype)
    number = st.integers(limits.min, limits.max) | st.integers(0, 5)
    start, values = data.draw(number), data.draw(st.lists(number, min_size=1, max_size=40))
    a = np.array([[7, start]], dtype)
    old = np.zeros(len(values), dtype)
    launch(kernel, 1, len(values), (name, a, np.array(values, dtype), old))
    now, seen = start, []
    for value in values:
        seen.append(now)
        now = wrapped(OPS[name](now, value), dtype)
    assert (a[0].tolist(), old.tolist()) == ([7, now], seen)


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("name", ["add", "sub", "and_", "or_", "xor", "max", "min", "inc"])
def test_order_does_not_matter_to_the_end(name, schedule):
    values = np.arange(1, 65, dtype=np.uint32) * (1 if name != "inc" else 0) + (40 if name == "inc" else 0)
    a = np.array([[0, 1000]], np.uint32)
    if name == "inc":
        a[0, 1] = 3
    expected = int(a[0, 1])
    for value in values.tolist():
        expected = wrapped(OPS[name](expected, value), a.dtype)
    launch(on_shared, 1, 64, (name, a, values, np.zeros(64, np.uint32)), schedule=schedule)
    assert a[0, 1] == expected


def test_floats_are_added_in_the_type_of_the_array():
    def kernel(a, out):
        out[0] = cuda.atomic.add(a, 0, 1.0)
        out[1] = cuda.atomic.add(a, 0, np.float64(2.0**-30))

    a, out = np.array([2.0**24], np.float32), np.zeros(2)
    launch(kernel, 1, 1, (a, out))
    assert (a[0], out.tolist()) == (2.0**24, [2.0**24, 2.0**24])


def test_nan_changes_nothing_or_gives_way():
    def kernel(a):
        for spot, (name, value) in enumerate(
            (("max", 1), ("min", 1), ("max", np.nan), ("nanmax", 1), ("nanmin", 1), ("nanmax", np.nan))
        ):
            getattr(cuda.atomic, name)(a, spot, value)

    a = np.array([np.nan, np.nan, 5, np.nan, np.nan, 5], np.float32)
    launch(kernel, 1, 1, (a,))
    assert np.array_equal(a, np.array([np.nan, np.nan, 5, 1, 1, 5], np.float32), equal_nan=True)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_lock_of_compare_and_swap(schedule):
    def kernel(total, lock):
        while cuda.atomic.cas(lock, 0, 0, 1) != 0:
            cuda.nanosleep(10)
        total[0] += cuda.threadIdx.x
        cuda.atomic.exch(lock, 0, 0)

    total, lock = np.zeros(1, np.int64), np.zeros(1, np.int32)
    launch(kernel, 1, 64, (total, lock), schedule=schedule)
    assert (total[0], lock[0]) == (sum(range(64)), 0)


def test_atomics_are_checked_as_any_access():
    def kernel(a):
        cuda.atomic.add(a, 4, 1)

    with pytest.raises(OutOfBounds) as e:
        launch(kernel, 1, 1, (np.zeros(4, np.int32),))
    assert e.value.place.line == kernel.__code__.co_firstlineno + 1


TABLE = np.array([[1, 2, 3], [4, 5, 6]], np.int16)


def test_constant_arrays():
    def kernel(out):
        table = cuda.const.array_like(TABLE)
        i = cuda.threadIdx.x
        assert table.shape == (2, 3)
        assert table.dtype == np.int16
        out[i] = table[i // 3, i % 3]

    out = np.zeros(6, np.int64)
    launch(kernel, 1, 6, (out,))
    assert out.tolist() == [1, 2, 3, 4, 5, 6]


def test_constant_arrays_are_checked_and_are_not_written():
    def past():
        cuda.const.array_like(TABLE)[0, 3]

    def write():
        cuda.const.array_like(TABLE)[0, 0] = 9

    with pytest.raises(OutOfBounds, match=r"const array\[0, 3\]"):
        launch(past, 1, 1, ())
    with pytest.raises(ValueError, match="read-only") as e:
        launch(write, 1, 1, ())
    assert "thread (0, 0, 0)" in e.value.__notes__[0]
    assert TABLE[0, 0] == 1
    assert TABLE.flags.writeable


@kernel()
def looks_up(out, at):
    out[0] = TABLE[at, 1]


def test_a_numpy_array_of_the_module_is_constant_memory():
    out = np.zeros(1, np.int64)
    looks_up.on("sim")[1, 1](out, 1)
    assert out[0] == 5
    with pytest.raises(OutOfBounds, match=r"const array\[-1, 1\] is outside shape \(2, 3\)"):
        looks_up.on("sim")[1, 1](out, -1)
