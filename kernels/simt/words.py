"""Models of the wide loads and stores of `kernels.ptx`: 8 or 16 bytes of global memory as words, in one access.

Observers hear of one access of so many elements; its address must be a multiple of its width, counted from the start
of the array argument.
"""

from __future__ import annotations

from operator import index as as_int
from sys import _getframe
from typing import Any

import numpy as np

from kernels.simt.access import READ, WRITE
from kernels.simt.facade import cuda
from kernels.simt.memory import GlobalVector
from kernels.simt.report import BadOperand, Misaligned, OutOfBounds, place
from kernels.simt.seen_arrays import SeenGlobal


def load_words_x2(array: GlobalVector, index: Any) -> tuple[Any, ...]:
    """See `kernels.ptx`."""
    return _load(array, as_int(index), 8)


def load_words_x4(array: GlobalVector, index: Any) -> tuple[Any, ...]:
    """See `kernels.ptx`."""
    return _load(array, as_int(index), 16)


def read_words_x4(array: GlobalVector, index: Any) -> tuple[Any, ...]:
    """See `kernels.ptx`."""
    return _load(array, as_int(index), 16)


def store_words_x2(array: GlobalVector, index: Any, *words: Any) -> None:
    """See `kernels.ptx`."""
    _store(array, as_int(index), words)


def store_words_x4(array: GlobalVector, index: Any, *words: Any) -> None:
    """See `kernels.ptx`."""
    _store(array, as_int(index), words)


def _load(array: GlobalVector, first: int, width: int) -> tuple[Any, ...]:
    part = _part(array, first, width)
    if isinstance(array, SeenGlobal):
        _tell(READ, array, first, part)
    return tuple(part.view(np.int32))


def _store(array: GlobalVector, first: int, words: tuple[Any, ...]) -> None:
    part = _part(array, first, 4 * len(words))
    part[:] = np.array([as_int(word) & 0xFFFFFFFF for word in words], np.uint32).view(part.dtype)
    if isinstance(array, SeenGlobal):
        _tell(WRITE, array, first, part)


def _part(array: GlobalVector, first: int, width: int) -> np.ndarray[Any, Any]:
    """The elements of an access; raises OutOfBounds, Misaligned, and BadOperand for memory that is not global."""
    count = width // array.itemsize
    shown = slice(first, first + count)
    if not isinstance(array, GlobalVector):
        raise BadOperand("array", array.name, "must be a flat array in global memory", place(cuda))
    if not 0 <= first <= array.shape[0] - count:
        raise OutOfBounds(array.name, shown, array.shape, place(cuda))
    spot = array.flat(first) if isinstance(array, SeenGlobal) else first
    if spot * array.itemsize % width:
        raise Misaligned(array.name, shown, spot * array.itemsize, width, place(cuda))
    return array.data[shown]


def _tell(kind: str, array: SeenGlobal, first: int, part: np.ndarray[Any, Any]) -> None:
    frame = _getframe(3)  # the kernel's: above `_load` or `_store` and the instruction
    spot = array.flat(first)
    array.tell(kind, array.memory, spot, len(part), tuple(part), cuda.threadIdx, frame.f_code, frame.f_lasti)
