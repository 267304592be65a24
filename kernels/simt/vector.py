"""Vector loads on the machine: one access of several elements, at an address that suits its width."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from operator import index as as_int
from sys import _getframe
from typing import Any

from kernels.simt.access import READ
from kernels.simt.facade import cuda
from kernels.simt.memory import Array
from kernels.simt.report import Misaligned, OutOfBounds, place
from kernels.simt.seen_arrays import SeenCells, SeenGlobal
from kernels.simt.tensor import MODELS


@cache
def vector_load(count: int | str) -> Callable[..., Any]:
    """A function `(array, index)` that reads `count` elements of a flat array as one access.

    A name in place of a count is that of an instruction of `kernels.ptx`: its model.

    It raises OutOfBounds, and Misaligned where the address is no multiple of the width. Addresses count from the
    start of the array argument, or of the shared array.
    """

    if isinstance(count, str):
        return MODELS[count]

    def load(array: Array, index: Any) -> tuple[Any, ...]:
        first = as_int(index)
        shown = slice(first, first + count)
        if len(array.shape) != 1 or not 0 <= first <= array.shape[0] - count:
            raise OutOfBounds(array.name, shown, array.shape, place(cuda))
        width = count * array.itemsize
        plain: Array
        if isinstance(array, SeenGlobal | SeenCells):
            spot, plain = array.flat(first), array.plain()
        else:
            spot, plain = first, array
        if spot * array.itemsize % width:
            raise Misaligned(array.name, shown, spot * array.itemsize, width, place(cuda))
        values = tuple(plain[number] for number in range(first, first + count))
        if isinstance(array, SeenGlobal | SeenCells):
            frame = _getframe(1)
            array.tell(READ, array.memory, spot, count, values, cuda.threadIdx, frame.f_code, frame.f_lasti)
        return values

    return load
