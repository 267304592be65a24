"""What the machine tells its user: the report of a launch, and errors that name thread, block and kernel
line.

Errors carry their facts as attributes and build the message from them; the line is the first frame outside
this folder.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FrameType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kernels.simt.position import Position

HERE = str(Path(__file__).resolve().parent)
ROOT = Path(__file__).resolve().parent.parent.parent

Triple = tuple[int, int, int]


@dataclass(frozen=True)
class LaunchReport:
    """What a launch did: blocks, threads, switches between threads, barriers, shared bytes of a block."""

    name: str
    schedule: str
    blocks: int
    threads: int
    switches: int
    barriers: int
    shared_bytes: int


@dataclass(frozen=True)
class Place:
    """A line of kernel code, and the thread and block that ran it."""

    kernel: str
    file: str
    line: int
    thread: Triple
    block: Triple

    @property
    def where(self) -> str:
        """`path:line`; the path is relative to the checkout where the file lies inside it."""
        return show_line(self.file, self.line)

    def __str__(self) -> str:
        return f"{self.where}, thread {self.thread}, block {self.block} of {self.kernel}"


@dataclass(frozen=True)
class Group:
    """Threads (linear numbers) in one state: what they wait in, with file and line, or `exited`."""

    what: str
    threads: tuple[int, ...]
    file: str = ""
    line: int = 0

    def __str__(self) -> str:
        who = "thread" if len(self.threads) == 1 else "threads"
        if not self.file:
            return f"{who} {show_ranges(self.threads)} {self.what}"
        verb = "waits" if len(self.threads) == 1 else "wait"
        return f"{who} {show_ranges(self.threads)} {verb} in {self.what} at {show_line(self.file, self.line)}"


class SimtError(Exception):
    """Base of everything that the machine finds wrong with a kernel or a launch."""


class OutsideLaunch(SimtError, RuntimeError):
    """`cuda` was used by ordinary Python code: it only means something inside a kernel that `launch` runs."""

    def __init__(self) -> None:
        super().__init__("cuda.* was used outside a launch: call the kernel through kernels.simt.launch(...)")


class BadLaunch(SimtError, ValueError):
    """A grid, block, shared size or schedule that no launch can use."""

    def __init__(self, argument: str, value: object, must: str) -> None:
        self.argument = argument
        self.value = value
        super().__init__(f"{argument} = {value!r}: {must}")


class BadOperand(SimtError, ValueError):
    """An operand that the hardware gives no meaning, as a shuffle width that is no power of two."""

    def __init__(self, what: str, value: object, must: str, place: Place) -> None:
        self.what = what
        self.value = value
        self.place = place
        super().__init__(f"{what} = {value!r}: {must} ({place})")


class NotModelled(SimtError, NotImplementedError):
    """The kernel uses something of CUDA that the machine does not have."""

    def __init__(self, what: str, place: Place) -> None:
        self.what = what
        self.place = place
        super().__init__(f"{what} is not modelled by the SIMT machine ({place})")


class OutOfBounds(SimtError, IndexError):
    """An index below zero or past the end of an array (on a GPU: silent corruption, or a fault)."""

    def __init__(self, array: str, index: object, shape: Sequence[int], place: Place) -> None:
        self.array = array
        self.index = index
        self.shape = tuple(shape)
        self.place = place
        super().__init__(f"{array}[{_show_index(index)}] is outside shape {self.shape} ({place})")


class Misaligned(SimtError):
    """A vector access whose address is no multiple of its width (on a GPU: the launch fails)."""

    def __init__(self, array: str, index: object, address: int, width: int, place: Place) -> None:
        self.array = array
        self.index = index
        self.place = place
        where = f"{array}[{_show_index(index)}] starts at byte {address}"
        super().__init__(f"{where}, no multiple of the {width} bytes that it loads at once ({place})")


class UninitialisedRead(SimtError):
    """A read of a shared or local element that nothing has written (on a GPU: whatever was there before)."""

    def __init__(self, array: str, index: object, place: Place) -> None:
        self.array = array
        self.index = index
        self.place = place
        super().__init__(f"{array}[{_show_index(index)}] is read before anything was written to it ({place})")


class _Divergence(SimtError):
    def __init__(self, problem: str, groups: Sequence[Group], block: Triple, kernel: str) -> None:
        self.groups = tuple(groups)
        self.block = block
        self.kernel = kernel
        states = "; ".join(str(group) for group in groups)
        super().__init__(f"{problem}, block {block} of {kernel}: {states}")


class BarrierDivergence(_Divergence):
    """A barrier that not all threads of the block reach; `groups`: which threads wait where, which exited."""


class ShuffleError(_Divergence):
    """A warp operation whose mask names lanes that are not there; `groups`: the warp's threads and states."""


class Deadlock(_Divergence):
    """Threads that only sleep: nothing that they could wait for will happen any more."""


def place(at: Position) -> Place:
    """The kernel line that is running now: the first frame outside this folder."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(HERE):
        frame = frame.f_back
    return _place(at, *((frame.f_code.co_filename, frame.f_lineno) if frame is not None else ("?", 0)))


def place_of(error: BaseException, at: Position) -> Place:
    """The kernel line that raised an error: the innermost frame of its traceback outside this folder."""
    file, line = "?", 0
    step = error.__traceback__
    while step is not None:
        if not step.tb_frame.f_code.co_filename.startswith(HERE):
            file, line = step.tb_frame.f_code.co_filename, step.tb_lineno
        step = step.tb_next
    return _place(at, file, line)


def _place(at: Position, file: str, line: int) -> Place:
    t, b = at.threadIdx, at.blockIdx
    return Place(at.machine.name, file, line, (t.x, t.y, t.z), (b.x, b.y, b.z))


def line_of(code: CodeType, lasti: int) -> int:
    """The source line of a bytecode offset."""
    for start, end, line in code.co_lines():
        if start <= lasti < end and line is not None:
            return line
    return code.co_firstlineno


def show_line(file: str, line: int) -> str:
    """`path:line`, the path relative to the checkout where it lies inside."""
    path = Path(file)
    return f"{path.relative_to(ROOT) if path.is_relative_to(ROOT) else path}:{line}"


def show_ranges(numbers: Sequence[int]) -> str:
    """Numbers as short text: `0-31, 40`."""
    spans: list[list[int]] = []
    for number in sorted(numbers):
        if spans and number == spans[-1][1] + 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in spans)


def _show_index(index: object) -> str:
    if isinstance(index, tuple):
        return ", ".join(_show_index(part) for part in index)
    if isinstance(index, slice):
        ends = [index.start, index.stop] + ([index.step] if index.step is not None else [])
        return ":".join("" if end is None else str(end) for end in ends)
    return str(index)
