"""A tensor as a kernel sees it: an address and a step for each axis.

PyTorch passes a view to a kernel as a pointer and strides. NumPy's views, and arrays on the GPU, are turned into the
same two things here, so that one kernel reads a cache in any memory order.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from kernels.errors import ArgumentError


def strides(array: Any) -> tuple[int, ...]:
    """Elements from one place to the next along each axis; raises ArgumentError where that is no whole number."""
    itemsize = array.dtype.itemsize
    for axis, step in enumerate(array.strides):
        if step % itemsize:
            raise ArgumentError(f"strides[{axis}]", step, f"must be a multiple of the element, {itemsize} bytes")
    return tuple(int(step) // itemsize for step in array.strides)


def flat(array: Any, *, writeable: bool = False) -> Any:
    """The memory from a view's first element to its last, as one row; raises ArgumentError for backward strides.

    Of a contiguous array it is the array itself. Of another view it holds places of others as well, between ours:
    it can be written to only if asked for.
    """
    if on_gpu(array):
        return _row(array, _extent(array))
    if array.flags.c_contiguous:
        return array.reshape(-1)
    return np.lib.stride_tricks.as_strided(array, (_extent(array),), (array.itemsize,), writeable=writeable)


def on_gpu(array: Any) -> bool:
    """True for an array in a GPU's memory."""
    return hasattr(array, "__cuda_array_interface__")


def address(array: Any) -> int:
    """Where an array starts, in bytes of its memory."""
    kind = "__cuda_array_interface__" if on_gpu(array) else "__array_interface__"
    return int(getattr(array, kind)["data"][0])


def gpu_array(pointer: int, shape: tuple[int, ...], steps: tuple[int, ...], dtype: Any, owner: Any) -> Any:
    """An array of `dtype` over GPU memory at `pointer`, its steps in elements; keeps `owner` alive, copies nothing."""
    from numba import cuda

    kind = np.dtype(dtype)
    what = {
        "shape": shape, "strides": tuple(step * kind.itemsize for step in steps), "typestr": kind.str,
        "data": (pointer, False), "version": 3,
    }  # fmt: skip
    return cuda.from_cuda_array_interface(what, owner=owner, sync=False)


def _row(array: Any, extent: int) -> Any:
    return gpu_array(address(array), (extent,), (1,), array.dtype, array)


def _extent(array: Any) -> int:
    steps = strides(array)
    if min(steps, default=0) < 0:
        raise ArgumentError("strides", array.strides, "must not be negative: a kernel counts from the lowest address")
    return 1 + sum((size - 1) * step for size, step in zip(array.shape, steps, strict=True)) if array.size else 0
