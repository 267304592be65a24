"""Arrays that report every access to an observer: what a kernel gets in a launch that is watched.

Each class stands beside its plain one in `memory` or `cells`, does the same, and tells the observer which element
and which instruction of the kernel it was.
"""

from __future__ import annotations

from sys import _getframe
from types import FrameType
from typing import Any

import numpy as np

from kernels.simt.access import READ, WRITE, Memory, Observer
from kernels.simt.cells import CellArray, CellCube, CellMatrix, CellVector
from kernels.simt.memory import GlobalArray, GlobalVector, global_array
from kernels.simt.report import HERE


def kernel_frame() -> FrameType:
    """The frame of the kernel's own code: the first one outside this folder."""
    frame: FrameType | None = _getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(HERE):
        frame = frame.f_back
    assert frame is not None
    return frame


class SeenGlobal(GlobalArray):
    """A global array that reports, of any number of axes. `start` and `steps` count elements of its memory."""

    __slots__ = ("memory", "observer", "start", "steps", "tell")

    def __init__(self, plain: GlobalArray, memory: Memory, observer: Observer) -> None:
        super().__init__(plain.data, plain.name, plain.at)
        self.memory = memory
        self.observer = observer
        self.tell = observer.access
        width = memory.itemsize
        self.start = (address_of(plain.data) - memory.offset) // width if plain.data.size else 0
        self.steps = tuple(step // width for step in plain.data.strides)

    def reshape(self, *shape: Any) -> GlobalArray:
        """The same memory in another shape."""
        return seen_global(super().reshape(*shape), self.memory, self.observer)

    def __getitem__(self, index: Any) -> Any:
        value = GlobalArray.__getitem__(self, index)
        if isinstance(value, GlobalArray):
            return value
        frame = _getframe(1)
        if frame.f_code.co_filename.startswith(HERE):
            frame = kernel_frame()
        spot = self.flat(index)
        self.tell(READ, self.memory, spot, 1, value, self.at.threadIdx, frame.f_code, frame.f_lasti)
        return value

    def __setitem__(self, index: Any, value: Any) -> None:
        if _has_slice(index, len(self.shape)):
            self._set(index, value)  # stores element by element through a view, which reports
            return
        GlobalArray.__setitem__(self, index, value)
        frame = _getframe(1)
        if frame.f_code.co_filename.startswith(HERE):
            frame = kernel_frame()
        spot = self.flat(index)
        self.tell(WRITE, self.memory, spot, 1, value, self.at.threadIdx, frame.f_code, frame.f_lasti)

    def _get(self, index: Any) -> Any:
        value = super()._get(index)
        return seen_global(value, self.memory, self.observer) if isinstance(value, GlobalArray) else value

    def flat(self, index: Any) -> int:
        """The flat element of its memory that a full index names."""
        parts = index if isinstance(index, tuple) else (index,)
        spot = self.start
        for part, step in zip(parts, self.steps, strict=True):
            spot += int(part) * step
        return spot

    def plain(self) -> GlobalArray:
        """The same array without reports."""
        return global_array(self.data, self.name, self.at)


class SeenGlobalVector(SeenGlobal, GlobalVector):
    """One axis: the short path."""

    __slots__ = ("step",)

    def __init__(self, plain: GlobalArray, memory: Memory, observer: Observer) -> None:
        super().__init__(plain, memory, observer)
        (self.step,) = self.steps

    def __getitem__(self, index: Any) -> Any:
        try:
            if index >= 0:
                value = self.data[index]
                frame = _getframe(1)
                spot = self.start + index * self.step
                self.tell(READ, self.memory, spot, 1, value, self.at.threadIdx, frame.f_code, frame.f_lasti)
                return value
        except (IndexError, TypeError, ValueError):
            pass
        value = self._get(index)
        if not isinstance(value, GlobalArray):
            frame, spot = kernel_frame(), self.flat(index)
            self.tell(READ, self.memory, spot, 1, value, self.at.threadIdx, frame.f_code, frame.f_lasti)
        return value

    def __setitem__(self, index: Any, value: Any) -> None:
        if _has_slice(index, 1):
            self._set(index, value)
            return
        GlobalVector.__setitem__(self, index, value)
        frame = _getframe(1)
        if frame.f_code.co_filename.startswith(HERE):
            frame = kernel_frame()
        spot = self.flat(index) if index.__class__ is tuple else self.start + index * self.step
        self.tell(WRITE, self.memory, spot, 1, value, self.at.threadIdx, frame.f_code, frame.f_lasti)


class SeenCells(CellArray):
    """A shared or local array that reports, of any number of axes."""

    __slots__ = ("memory", "observer", "tell")

    def __init__(self, plain: CellArray, memory: Memory, observer: Observer) -> None:
        super().__init__(
            plain.cells, plain.dtype, plain.convert, plain.name, plain.at, plain.shape, plain.start, plain.steps
        )
        self.memory = memory
        self.observer = observer
        self.tell = observer.access

    def __getitem__(self, index: Any) -> Any:
        spot = self._spot(index)
        if isinstance(spot, CellArray):
            return spot
        value = self.cells[spot]
        frame, lane = kernel_frame(), self.at.threadIdx
        if value is None:
            value = self.observer.uninitialised(self.memory, spot, index, lane, frame.f_code, frame.f_lasti)
        self.tell(READ, self.memory, spot, 1, value, lane, frame.f_code, frame.f_lasti)
        return value

    def __setitem__(self, index: Any, value: Any) -> None:
        spot = self._spot(index)
        if isinstance(spot, CellArray):
            self._fill(spot, value)
            return
        stored = self.cells[spot] = self.convert(value)
        frame = kernel_frame()
        self.tell(WRITE, self.memory, spot, 1, stored, self.at.threadIdx, frame.f_code, frame.f_lasti)

    def _spot(self, index: Any) -> int | CellArray:
        spot = super()._spot(index)
        return seen_cells(spot, self.memory, self.observer) if isinstance(spot, CellArray) else spot

    def flat(self, index: Any) -> int:
        """The flat element of its memory that a full index names."""
        spot = self._spot(index)
        assert isinstance(spot, int | np.integer), f"{self.name}[{index!r}]: must name one element"
        return int(spot)

    def plain(self) -> CellArray:
        """The same array without reports."""
        kind = {1: CellVector, 2: CellMatrix, 3: CellCube}.get(len(self.shape), CellArray)
        return kind(self.cells, self.dtype, self.convert, self.name, self.at, self.shape, self.start, self.steps)


class SeenCellVector(SeenCells):
    """One axis: the short path."""

    __slots__ = ()

    def __getitem__(self, index: Any) -> Any:
        size, step = self.dims
        try:
            if 0 <= index < size:
                spot = self.start + index * step
                value = self.cells[spot]
                if value is not None:
                    frame = _getframe(1)
                    self.tell(READ, self.memory, spot, 1, value, self.at.threadIdx, frame.f_code, frame.f_lasti)
                    return value
        except TypeError:
            pass
        return SeenCells.__getitem__(self, index)

    def __setitem__(self, index: Any, value: Any) -> None:
        size, step = self.dims
        frame = _getframe(1)
        try:
            if 0 <= index < size and not frame.f_code.co_filename.startswith(HERE):
                spot = self.start + index * step
                stored = self.cells[spot] = value if value.__class__ is self.type else self.convert(value)
                self.tell(WRITE, self.memory, spot, 1, stored, self.at.threadIdx, frame.f_code, frame.f_lasti)
                return
        except TypeError:
            pass
        SeenCells.__setitem__(self, index, value)


class SeenCellMatrix(SeenCells):
    """Two axes: the short path."""

    __slots__ = ()

    def __getitem__(self, index: Any) -> Any:
        try:
            i, j = index
            m, n, s, t = self.dims
            if 0 <= i < m and 0 <= j < n:
                spot = self.start + i * s + j * t
                value = self.cells[spot]
                if value is not None:
                    frame = _getframe(1)
                    self.tell(READ, self.memory, spot, 1, value, self.at.threadIdx, frame.f_code, frame.f_lasti)
                    return value
        except (TypeError, ValueError):
            pass
        return SeenCells.__getitem__(self, index)


class SeenCellCube(SeenCells):
    """Three axes: the short path."""

    __slots__ = ()

    def __getitem__(self, index: Any) -> Any:
        try:
            i, j, k = index
            m, n, o, s, t, u = self.dims
            if 0 <= i < m and 0 <= j < n and 0 <= k < o:
                spot = self.start + i * s + j * t + k * u
                value = self.cells[spot]
                if value is not None:
                    frame = _getframe(1)
                    self.tell(READ, self.memory, spot, 1, value, self.at.threadIdx, frame.f_code, frame.f_lasti)
                    return value
        except (TypeError, ValueError):
            pass
        return SeenCells.__getitem__(self, index)


_CELLS: dict[int, type[SeenCells]] = {1: SeenCellVector, 2: SeenCellMatrix, 3: SeenCellCube}


def seen_cells(plain: CellArray, memory: Memory, observer: Observer) -> SeenCells:
    """The reporting form of a shared or local array."""
    if isinstance(plain, SeenCells):
        return plain
    return _CELLS.get(len(plain.shape), SeenCells)(plain, memory, observer)


def seen_global(plain: GlobalArray, memory: Memory, observer: Observer) -> SeenGlobal:
    """The reporting form of a global array."""
    if isinstance(plain, SeenGlobal):
        return plain
    return (SeenGlobalVector if len(plain.shape) == 1 else SeenGlobal)(plain, memory, observer)


def address_of(data: np.ndarray[Any, Any]) -> int:
    """Where the array's first byte lies on the host."""
    return int(data.__array_interface__["data"][0])


def _has_slice(index: Any, axes: int) -> bool:
    if index.__class__ is int:
        return axes != 1
    parts = index if isinstance(index, tuple) else (index,)
    return len(parts) < axes or any(isinstance(part, slice) for part in parts)
