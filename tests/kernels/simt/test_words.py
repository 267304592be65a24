"""Wide loads and stores as words: the same bytes, checked and reported as one access of their width."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numba import cuda, uint16

from kernels.kernel import Backend, kernel
from kernels.ptx import load_words_x2, load_words_x4, read_words_x4, store_words_x2, store_words_x4
from kernels.simt import BadOperand, Misaligned, OutOfBounds
from kernels.simt.sanitize import Sanitizer

BACKENDS = ["sim", pytest.param("cuda", marks=pytest.mark.gpu)]
# Template parameters of the kernels below.
load, store = load_words_x4, store_words_x4


@kernel()
def copy4(target: Any, source: Any, first: Any, to: Any) -> None:
    """A thread copies 16 bytes."""
    step = cuda.threadIdx.x * (16 // source.itemsize)
    a, b, c, d = load(source, first + step)
    store(target, to + step, d, c, b, a)


@kernel()
def copy2(target: Any, source: Any, first: Any, to: Any) -> None:
    """A thread copies 8 bytes."""
    step = cuda.threadIdx.x * (8 // source.itemsize)
    a, b = load_words_x2(source, first + step)
    store_words_x2(target, to + step, b, a)


@kernel()
def shared(target: Any, source: Any, first: Any, to: Any) -> None:
    """Shared memory is no place for them."""
    there = cuda.shared.array(8, uint16)
    there[0] = source[0]
    load(there, 0)


def copied(
    size: int, width: int, first: int = 0, to: int = 0, backend: Any = "sim", dtype: Any = np.uint16, read: Any = None
) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    source = np.random.default_rng(1).integers(0, 200, size).astype(dtype)
    target = np.zeros(size, dtype)
    made = copy4.specialise(load=read or load_words_x4) if width == 16 else copy2
    made.on(backend)[1, (size - max(first, to)) * source.itemsize // width](target, source, first, to)
    return source, target


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.float32])
@pytest.mark.parametrize(("width", "read"), [(16, load_words_x4), (16, read_words_x4), (8, load_words_x2)])
def test_the_words_are_the_bytes_in_order(width: int, read: Any, dtype: Any, backend: str) -> None:
    source, target = copied(64, width, dtype=dtype, backend=backend, read=read)
    swapped = source.view(np.int32).reshape(-1, width // 4)[:, ::-1]
    np.testing.assert_array_equal(target.view(np.int32), swapped.ravel())


def test_all_32_bits_are_stored() -> None:
    target = np.zeros(4, np.uint16)

    @kernel()
    def fill(target: Any) -> None:
        """Words that an int32 has a sign for, and one that has too many bits."""
        store_words_x2(target, 0, 0xFFFF0001, (1 << 32) + 0x80007FFF)

    fill.on("sim")[1, 1](target)
    assert target.tolist() == [1, 0xFFFF, 0x7FFF, 0x8000]


@pytest.mark.parametrize("width", [8, 16])
def test_an_address_is_a_multiple_of_the_width(width: int) -> None:
    half = width // 4
    for first, to in ((half, 0), (0, half)):
        with pytest.raises(Misaligned, match=f"{width // 2}"):
            copied(64, width, first, to)


@pytest.mark.parametrize("width", [8, 16])
def test_the_last_element_counts(width: int) -> None:
    whole = width // 2
    source = np.zeros(4 * whole, np.uint16)
    made = copy4 if width == 16 else copy2
    for first, to in ((3 * whole, 0), (0, 3 * whole)):
        made.on("sim")[1, 1](source.copy(), source, first, to)
    for first, to in ((4 * whole, 0), (0, 4 * whole), (-whole, 0)):
        with pytest.raises(OutOfBounds):
            made.on("sim")[1, 1](source.copy(), source, first, to)
    with pytest.raises(OutOfBounds):
        made.on("sim")[1, 1](source.copy(), source[: 4 * whole - 1], 3 * whole, 0)


def test_memory_must_be_global() -> None:
    row = np.zeros(8, np.uint16)
    with pytest.raises(BadOperand, match="global memory"):
        shared.on("sim")[1, 1](row, row, 0, 0)


@pytest.mark.parametrize("width", [8, 16])
def test_an_observer_hears_of_one_access(width: int) -> None:
    watch = Sanitizer()
    with watch:
        copied(64, width, backend=Backend("sim", observers=(watch,)))
    assert watch.clean
    rows = {(row.array, row.kind): row for row in watch.memory.rows}
    assert rows.keys() == {("source", "read"), ("target", "write")}
    for row in rows.values():
        assert (row.sizes, row.requests, row.bytes, row.sectors) == ({width}, 1, 128, 4)
        assert row.file == __file__


def test_what_two_threads_store_at_one_place_is_a_race() -> None:
    @kernel()
    def same(target: Any) -> None:
        """Two threads, overlapping by 8 bytes."""
        if cuda.threadIdx.x == 0:
            store_words_x4(target, 0, 1, 2, 3, 4)
        else:
            store_words_x2(target, 4, 3, 4)

    watch = Sanitizer()
    with watch:
        same.on(Backend("sim", observers=(watch,)))[1, 2](np.zeros(8, np.uint16))
    assert watch.verdict == ("race",)
