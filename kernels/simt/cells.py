"""Shared and local arrays: lists of cells that know whether anything was written to them.

A cell holds a NumPy scalar, or None while it is uninitialised. Views share the list, and so share that
knowledge. Arrays of one to three axes have a class each, for their short path: these accesses are the
machine's inner loop.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from operator import index as as_int
from types import CodeType
from typing import Any

import numpy as np

from kernels.simt.memory import Array, converter, dtype_of
from kernels.simt.position import Position
from kernels.simt.report import BadLaunch, UninitialisedRead, line_of, place, show_line

Store = Callable[[Any], Any]


class CellArray(Array):
    """An array over cells. `start` and `steps` count elements; `dims` serves the short path of a subclass."""

    __slots__ = ("cells", "convert", "dims", "start", "steps", "type")

    def __init__(
        self,
        cells: Any,
        dtype: np.dtype[Any],
        convert: Store,
        name: str,
        at: Position,
        shape: tuple[int, ...],
        start: int,
        steps: tuple[int, ...],
    ) -> None:
        self.cells = cells
        self.dtype = dtype
        self.type = dtype.type
        self.convert = convert
        self.name = name
        self.at = at
        self.shape = shape
        self.start = start
        self.steps = steps
        self.dims = (*shape, *steps)

    def __getitem__(self, index: Any) -> Any:
        spot = self._spot(index)
        if isinstance(spot, Array):
            return spot
        value = self.cells[spot]
        if value is None:
            raise UninitialisedRead(self.name, index, place(self.at))
        return value

    def __setitem__(self, index: Any, value: Any) -> None:
        spot = self._spot(index)
        if isinstance(spot, Array):
            self._fill(spot, value)
        else:
            self.cells[spot] = self.convert(value)

    def _spot(self, index: Any) -> int | CellArray:
        """The cell that the index names, or a view where it leaves an axis open; raises OutOfBounds."""
        start = self.start
        shape: list[int] = []
        steps: list[int] = []
        for part, size, step in zip(self._normal(index), self.shape, self.steps, strict=True):
            if isinstance(part, slice):
                first, stop, stride = part.indices(size)
                start += first * step
                shape.append(len(range(first, stop, stride)))
                steps.append(stride * step)
            else:
                start += part * step
        if not shape:
            return start
        kind = _KINDS.get(len(shape), CellArray)
        return kind(self.cells, self.dtype, self.convert, self.name, self.at, tuple(shape), start, tuple(steps))


class CellVector(CellArray):
    """One axis."""

    __slots__ = ()

    def __getitem__(self, index: Any) -> Any:
        size, step = self.dims
        try:
            if 0 <= index < size:
                value = self.cells[self.start + index * step]
                if value is not None:
                    return value
        except TypeError:
            pass
        return CellArray.__getitem__(self, index)

    def __setitem__(self, index: Any, value: Any) -> None:
        size, step = self.dims
        try:
            if 0 <= index < size:
                spot = self.start + index * step
                self.cells[spot] = value if value.__class__ is self.type else self.convert(value)
                return
        except TypeError:
            pass
        CellArray.__setitem__(self, index, value)


class CellMatrix(CellArray):
    """Two axes."""

    __slots__ = ()

    def __getitem__(self, index: Any) -> Any:
        try:
            i, j = index
            m, n, s, t = self.dims
            if 0 <= i < m and 0 <= j < n:
                value = self.cells[self.start + i * s + j * t]
                if value is not None:
                    return value
        except (TypeError, ValueError):
            pass
        return CellArray.__getitem__(self, index)

    def __setitem__(self, index: Any, value: Any) -> None:
        try:
            i, j = index
            m, n, s, t = self.dims
            if 0 <= i < m and 0 <= j < n:
                spot = self.start + i * s + j * t
                self.cells[spot] = value if value.__class__ is self.type else self.convert(value)
                return
        except (TypeError, ValueError):
            pass
        CellArray.__setitem__(self, index, value)


class CellCube(CellArray):
    """Three axes."""

    __slots__ = ()

    def __getitem__(self, index: Any) -> Any:
        try:
            i, j, k = index
            m, n, o, s, t, u = self.dims
            if 0 <= i < m and 0 <= j < n and 0 <= k < o:
                value = self.cells[self.start + i * s + j * t + k * u]
                if value is not None:
                    return value
        except (TypeError, ValueError):
            pass
        return CellArray.__getitem__(self, index)

    def __setitem__(self, index: Any, value: Any) -> None:
        try:
            i, j, k = index
            m, n, o, s, t, u = self.dims
            if 0 <= i < m and 0 <= j < n and 0 <= k < o:
                spot = self.start + i * s + j * t + k * u
                self.cells[spot] = value if value.__class__ is self.type else self.convert(value)
                return
        except (TypeError, ValueError):
            pass
        CellArray.__setitem__(self, index, value)


_KINDS: dict[int, type[CellArray]] = {1: CellVector, 2: CellMatrix, 3: CellCube}


class Declaration:
    """What all arrays of one `array(shape, dtype)` call have in common, worked out once."""

    __slots__ = ("asked", "code", "convert", "dtype", "kind", "name", "shape", "size", "steps")

    def __init__(self, word: str, code: CodeType, lasti: int, shape: Any, spec: Any) -> None:
        self.code = code  # kept alive, as the pools know it by its id
        self.asked = (shape, spec)
        self.shape = tuple(as_int(n) for n in shape) if isinstance(shape, tuple | list) else (as_int(shape),)
        self.size = math.prod(self.shape)
        self.dtype = dtype_of(spec)
        self.convert = converter(self.dtype)
        self.name = f"{word} array ({show_line(code.co_filename, line_of(code, lasti))})"
        dynamic = word == "shared" and self.shape == (0,)
        if not dynamic and (not self.shape or min(self.shape) <= 0):
            also = ", or the one size 0 for dynamic memory" if word == "shared" else ""
            raise BadLaunch(f"{word}.array shape", shape, f"sizes must be positive{also}")
        self.steps = tuple(math.prod(self.shape[k + 1 :]) for k in range(len(self.shape)))
        self.kind = _KINDS.get(len(self.shape), CellArray)

    def make(self, at: Position, cells: Any = None, shape: tuple[int, ...] | None = None) -> CellArray:
        """A new array, uninitialised, or one over given cells."""
        cells = [None] * self.size if cells is None else cells
        return self.kind(cells, self.dtype, self.convert, self.name, at, shape or self.shape, 0, self.steps)


class LocalPool:
    """Local arrays of one launch; keeps the declarations so that a declaration in a loop is cheap."""

    __slots__ = ("_known", "at")

    def __init__(self, at: Position) -> None:
        self.at = at
        self._known: dict[tuple[int, int], Declaration] = {}

    def array(self, code: CodeType, lasti: int, shape: Any, spec: Any) -> CellArray:
        """A thread's own array with nothing initialised."""
        # By id: hashing a code object, or a Numba type, costs more than the rest of this call.
        key = (id(code), lasti)
        known = self._known.get(key)
        if known is None or known.asked[1] is not spec or known.asked[0] != shape:
            known = self._known[key] = Declaration("local", code, lasti, shape, spec)
        return known.make(self.at)


class SharedPool:
    """Shared memory of the running block: static arrays by the call that declares them, and dynamic bytes."""

    __slots__ = ("_arrays", "_known", "_live", "_raw", "at", "most_bytes", "used_bytes")

    def __init__(self, at: Position, dynamic_bytes: int) -> None:
        self.at = at
        self._arrays: dict[tuple[int, int], CellArray] = {}
        self._known: dict[tuple[int, int], Declaration] = {}
        self._raw = np.zeros(dynamic_bytes, np.uint8)
        self._live = bytearray(dynamic_bytes)
        self.used_bytes = self.most_bytes = dynamic_bytes

    def clear(self) -> None:
        """A new block: nothing is declared and nothing is initialised."""
        self._arrays.clear()
        self._live = bytearray(len(self._live))
        self.used_bytes = len(self._live)

    def array(self, code: CodeType, lasti: int, shape: Any, spec: Any) -> CellArray:
        """The array declared at this call: made by the first thread there, the same one for every other
        thread.

        Shape 0 is dynamic memory: all such arrays begin at its first byte.
        """
        found = self._arrays.get((id(code), lasti))
        if found is None:
            found = self._arrays[id(code), lasti] = self._make(code, lasti, shape, spec)
        return found

    def _make(self, code: CodeType, lasti: int, shape: Any, spec: Any) -> CellArray:
        declared = self._known.get((id(code), lasti))
        if declared is None or declared.asked[1] is not spec or declared.asked[0] != shape:
            declared = self._known[id(code), lasti] = Declaration("shared", code, lasti, shape, spec)
        if declared.size == 0:
            cells = ByteCells(self._raw, self._live, declared.dtype)
            return declared.make(self.at, cells, (len(cells.data),))
        self.used_bytes += declared.size * declared.dtype.itemsize
        self.most_bytes = max(self.most_bytes, self.used_bytes)
        return declared.make(self.at)


class ByteCells:
    """Cells over raw bytes: dynamic shared memory, which arrays of several dtypes may look at."""

    __slots__ = ("data", "live", "width", "written")

    def __init__(self, raw: np.ndarray[Any, Any], live: bytearray, dtype: np.dtype[Any]) -> None:
        self.width = dtype.itemsize
        self.written = b"\1" * self.width
        self.data = raw[: raw.size // self.width * self.width].view(dtype)
        self.live = live

    def __getitem__(self, spot: int) -> Any:
        width = self.width
        # Every byte must have been written, through whichever type.
        if self.live.find(0, spot * width, spot * width + width) >= 0:
            return None
        return self.data[spot]

    def __setitem__(self, spot: int, value: Any) -> None:
        width = self.width
        self.data[spot] = value
        self.live[spot * width : spot * width + width] = self.written
