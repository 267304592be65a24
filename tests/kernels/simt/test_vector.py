"""Vector loads on the machine: what they read, what they refuse, and that they are one access."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernels.simt import Misaligned, OutOfBounds, cuda, launch, vector_load
from kernels.simt.access import Observer


class Log(Observer):
    def __init__(self):
        self.heard = []

    def access(self, kind, memory, index, count, value, lane, code, lasti):
        self.heard.append((kind, memory.name, index, count, value))


def load_at(index, count, dtype=np.float32, size=16, observers=()):
    load, found = vector_load(count), []

    def kernel(memory):
        found.append(load(memory, index))

    launch(kernel, 1, 1, (np.arange(size).astype(dtype),), observers=observers)
    return found[0]


@given(st.integers(-4, 20), st.sampled_from((2, 4, 8)), st.sampled_from((np.float16, np.float32)))
def test_it_reads_neighbours_or_says_what_is_wrong(index, count, dtype):
    for observers in ((), (Log(),)):
        if not 0 <= index <= 16 - count:
            with pytest.raises(OutOfBounds, match="outside shape"):
                load_at(index, count, dtype, observers=observers)
        elif index % count:
            with pytest.raises(Misaligned, match=f"no multiple of the {count * np.dtype(dtype).itemsize} bytes"):
                load_at(index, count, dtype, observers=observers)
        else:
            got = load_at(index, count, dtype, observers=observers)
            assert [float(value) for value in got] == list(range(index, index + count))
            assert all(isinstance(value, dtype) for value in got)


def test_it_is_one_access():
    log = Log()
    load_at(np.int64(8), 4, observers=[log])
    assert log.heard == [("read", "memory", 8, 4, (8.0, 9.0, 10.0, 11.0))]


def test_shared_memory_too_and_from_the_start_of_the_array():
    load = vector_load(2)

    def kernel(out, shift):
        row = cuda.shared.array(8, np.float32)
        row[:] = 3
        out[0], out[1] = load(row[2:], shift)

    out, log = np.zeros(2), Log()
    launch(kernel, 1, 1, (out, 2), observers=[log])
    assert out.tolist() == [3, 3]
    assert ("read", "row", 4, 2, (3.0, 3.0)) in log.heard
    with pytest.raises(Misaligned, match="starts at byte 4"):
        launch(kernel, 1, 1, (out, 1))


def test_only_flat_arrays():
    load = vector_load(2)

    def kernel(square):
        load(square, 0)

    with pytest.raises(OutOfBounds):
        launch(kernel, 1, 1, (np.zeros((2, 2), np.float32),))


def test_the_same_load_is_made_once():
    assert vector_load(4) is vector_load(4)
