"""A tensor as a kernel sees it: an address and a step for each axis.

PyTorch passes a view to a kernel as a pointer and strides. NumPy's views are turned into the same two things here, so
that one kernel reads a cache in any memory order.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from kernels.errors import ArgumentError


def strides(array: Any) -> tuple[int, ...]:
    """Elements from one place to the next along each axis; raises ArgumentError where that is no whole number."""
    for axis, step in enumerate(array.strides):
        if step % array.itemsize:
            raise ArgumentError(f"strides[{axis}]", step, f"must be a multiple of the element, {array.itemsize} bytes")
    return tuple(int(step) // array.itemsize for step in array.strides)


def flat(array: Any) -> Any:
    """The memory from a view's first element to its last, as one row; raises ArgumentError for backward strides.

    Of a contiguous array it is the array itself. Of another view it holds places of others as well, between ours, and
    cannot be written to: what a kernel writes must be contiguous.
    """
    if array.flags.c_contiguous:
        return array.reshape(-1)
    steps = strides(array)
    if min(steps) < 0:
        raise ArgumentError("strides", array.strides, "must not be negative: a kernel counts from the lowest address")
    extent = 1 + sum((size - 1) * step for size, step in zip(array.shape, steps, strict=True)) if array.size else 0
    return np.lib.stride_tricks.as_strided(array, (extent,), (array.itemsize,), writeable=False)
