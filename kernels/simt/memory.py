"""Memory as a kernel sees it: what all arrays share, and global arrays. Every access is checked.

Each kind of array has a short path for an access by plain integers that is in order, and one slow path that
sorts out the rest: slices, partial indices, and what exactly was wrong. Values come out as NumPy scalars of
the array's dtype and go in converted to it, as a store instruction does.
"""

from __future__ import annotations

import itertools
import math
import sys
from collections.abc import Callable, Iterator
from operator import index as as_int
from typing import Any

import numpy as np

from kernels.simt.position import Position
from kernels.simt.report import OutOfBounds, place

_FLOATS = (float, np.floating)


def dtype_of(spec: Any) -> np.dtype[Any]:
    """A NumPy dtype from a NumPy dtype or type, or from anything with a NumPy name, as Numba's types have."""
    return spec if isinstance(spec, np.dtype) else np.dtype(getattr(spec, "name", spec))


def truncated(value: Any, width: int, signed: bool) -> int:
    """A float as an integer the way the GPU converts: towards zero, clamped to the type.

    A NaN gives 0 in 32 bits of a float32, else only the top bit; types below 32 bits take the low bits of the 32.
    """
    wide = max(width, 32)
    low, high = (-(1 << wide - 1), (1 << wide - 1) - 1) if signed else (0, (1 << wide) - 1)
    if value != value:
        narrow = wide == 32 and isinstance(value, (np.float32, np.float16))
        return 0 if narrow else low if signed else 1 << wide - 1
    number = float(value)  # exact, and Python compares it with integers exactly
    return high if number >= high else low if number <= low else int(number)


def converter(dtype: np.dtype[Any]) -> Callable[[Any], Any]:
    """Conversion of one value to `dtype` as a store does it: floats round to nearest even, integers wrap."""
    # Through a one-element array: half the time of calling the scalar type, and C's cast rules.
    box = np.empty(1, dtype)
    bits = 8 * dtype.itemsize
    signed = dtype.kind == "i"

    def convert(value: Any) -> Any:
        try:
            box[0] = value
        except OverflowError:  # a Python int that does not fit
            wrapped = int(value) & ((1 << bits) - 1)
            box[0] = wrapped - (1 << bits) if signed and wrapped >> (bits - 1) else wrapped
        return box[0]

    if dtype.kind not in "iu":
        return convert
    # The low bits of 64: nearly every integer fits there, and an error for one that does not costs ten conversions.
    wide = np.empty(1, np.int64)
    low = wide.view(dtype)[:1] if sys.byteorder == "little" else wide.view(dtype)[-1:]

    def convert_whole(value: Any) -> Any:
        if isinstance(value, _FLOATS):
            # C leaves open what a float outside the type becomes; NumPy does as this processor, not as a GPU.
            value = truncated(value, bits, signed)
        try:
            wide[0] = value
        except OverflowError:
            return convert(value)
        return low[0]

    return convert_whole


def shape_of(shape: Any) -> tuple[int, ...]:
    """An int or a tuple of ints as a shape."""
    return tuple(as_int(size) for size in shape) if isinstance(shape, tuple | list) else (as_int(shape),)


def wrap_argument(arg: Any, name: str, at: Position) -> Any:
    """An array argument as a checked global array; anything else as it is."""
    return global_array(arg, name, at) if isinstance(arg, np.ndarray) else arg


class Array:
    """What all arrays share: the slow path. Subclasses hold elements and a short path for plain indices."""

    __slots__ = ("at", "dtype", "name", "shape")

    at: Position
    dtype: np.dtype[Any]
    name: str
    shape: tuple[int, ...]

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def itemsize(self) -> int:
        """Bytes of one element."""
        return int(self.dtype.itemsize)

    def __len__(self) -> int:
        return self.shape[0]

    def __iter__(self) -> Iterator[Any]:
        return (self[i] for i in range(self.shape[0]))

    def __getitem__(self, index: Any) -> Any:
        raise NotImplementedError

    def __setitem__(self, index: Any, value: Any) -> None:
        raise NotImplementedError

    def __repr__(self) -> str:
        return f"<{self.name}: {self.dtype.name}{list(self.shape)}>"

    def _normal(self, index: Any) -> tuple[Any, ...]:
        """The index as a tuple of in-range ints and of slices, one for each axis; raises OutOfBounds."""
        parts = index if isinstance(index, tuple) else (index,)
        if len(parts) > len(self.shape):
            raise IndexError(f"{self.name} has {len(self.shape)} axes, {len(parts)} indices were given")
        found: list[Any] = []
        for part, size in zip(parts + (slice(None),) * (len(self.shape) - len(parts)), self.shape, strict=True):
            if isinstance(part, slice):
                found.append(part)
                continue
            try:
                number = as_int(part)
            except TypeError:
                raise TypeError(f"{self.name}[{part!r}]: an index must be an integer or a slice") from None
            if not 0 <= number < size:
                raise OutOfBounds(self.name, index, self.shape, place(self.at))
            found.append(number)
        return tuple(found)

    def _fill(self, view: Array, value: Any) -> None:
        """Store into every element of a view: one value, or the elements of an array of the same shape."""
        many = isinstance(value, Array | np.ndarray) and value.shape != ()
        if many and tuple(value.shape) != view.shape:
            raise ValueError(f"{self.name}: shape {tuple(value.shape)} does not fit {view.shape}")
        for index in itertools.product(*map(range, view.shape)):
            view[index] = value[index] if many else value


class GlobalArray(Array):
    """A NumPy array of the caller behind bounds checks, with more than one axis or none."""

    __slots__ = ("data",)

    def __init__(self, data: np.ndarray[Any, Any], name: str, at: Position) -> None:
        self.data = data
        self.name = name
        self.at = at
        self.shape = data.shape
        self.dtype = data.dtype

    @property
    def strides(self) -> tuple[int, ...]:
        """Bytes from one element to the next along each axis."""
        return self.data.strides

    def reshape(self, *shape: Any) -> GlobalArray:
        """The same memory in another shape; raises ValueError where that would need a copy."""
        new = shape_of(shape[0]) if len(shape) == 1 else shape_of(shape)
        return global_array(self.data.reshape(new, copy=False), self.name, self.at)

    def __getitem__(self, index: Any) -> Any:
        if index.__class__ is tuple and len(index) == len(self.shape):
            try:
                for number in index:
                    if number < 0:
                        break
                else:
                    value = self.data[index]
                    if value.__class__ is not np.ndarray:
                        return value
            except (IndexError, TypeError, ValueError):
                pass
        return self._get(index)

    def __setitem__(self, index: Any, value: Any) -> None:
        if index.__class__ is tuple and len(index) == len(self.shape):
            try:
                for number in index:
                    if number < 0:
                        break
                else:
                    self.data[index] = value
                    return
            except (IndexError, TypeError, ValueError, OverflowError):
                pass
        self._set(index, value)

    def _get(self, index: Any) -> Any:
        where = self._normal(index)
        value = self.data[where]
        return global_array(value, self.name, self.at) if isinstance(value, np.ndarray) else value

    def _set(self, index: Any, value: Any) -> None:
        where = self._normal(index)
        if any(isinstance(part, slice) for part in where):
            self._fill(self._get(index), value)
        else:
            self.data[where] = converter(self.dtype)(value)


class GlobalVector(GlobalArray):
    """A global array with one axis: what a flat pointer of C++ becomes."""

    __slots__ = ()

    def __getitem__(self, index: Any) -> Any:
        try:
            if index >= 0:
                return self.data[index]
        except (IndexError, TypeError, ValueError):
            pass
        return self._get(index)

    def __setitem__(self, index: Any, value: Any) -> None:
        try:
            if index >= 0:
                self.data[index] = value
                return
        except (IndexError, TypeError, ValueError, OverflowError):
            pass
        self._set(index, value)


def global_array(data: np.ndarray[Any, Any], name: str, at: Position) -> GlobalArray:
    """The checked form of a NumPy array (also of one axis of another)."""
    return (GlobalVector if data.ndim == 1 else GlobalArray)(data, name, at)
