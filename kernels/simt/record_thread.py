"""One recorded thread: the trace functions that turn its lines and its calls into the machine into events.

Python calls them for this thread's own frames only: `TracedLane` switches them off whenever another thread runs.
"""

from __future__ import annotations

import ast
import itertools
import sys
from collections.abc import Callable, Sequence
from functools import cache
from opcode import opmap
from operator import index as as_int
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

import greenlet  # type: ignore[import-untyped]

from kernels.simt.cells import CellArray
from kernels.simt.facade import Atomic, Const, Cuda, Local, Shared
from kernels.simt.memory import Array
from kernels.simt.report import HERE, Triple
from kernels.simt.trace import Change, Thread, Value
from kernels.simt.warp import WARP_SIZE, Lane

if TYPE_CHECKING:
    from kernels.simt.machine import Machine
    from kernels.simt.record import Recorder

WARP_OPS = ("shfl_", "ballot_", "all_", "any_", "match_", "activemask", "syncwarp", "nanosleep")
RETURNS = {opmap[name] for name in ("RETURN_VALUE", "RETURN_CONST") if name in opmap}
_MISSING = object()
_SLOT = Lane.__dict__["go"]


class TracedLane(Lane):
    """A lane whose thread is recorded: tracing is off whenever another thread runs."""

    __slots__ = ()

    @property
    def go(self) -> Callable[[], object]:
        """Hands over to the next lane, with tracing off until this one goes on."""
        return self._go

    @go.setter
    def go(self, value: Callable[[], object]) -> None:
        _SLOT.__set__(self, value)

    @go.deleter
    def go(self) -> None:
        _SLOT.__delete__(self)

    def _go(self) -> object:
        # No `finally`: a thread that is ended while it waits has nothing more to record.
        ours = sys.gettrace()
        tracer: Any = self.warp.machine.tracer
        if ours is None or ours == tracer.outer:
            return _SLOT.__get__(self)()
        sys.settrace(tracer.outer)
        answer = _SLOT.__get__(self)()
        sys.settrace(ours)
        return answer


class TracedRun:
    """One chosen thread in one thread block."""

    def __init__(self, recorder: Recorder, lane: Lane, machine: Machine) -> None:
        self.recorder = recorder
        self.lane = lane
        self.machine = machine
        self.first_barrier = machine.barriers
        self.thread = recorder.add_thread(Thread(machine.block_triple, (lane.x, lane.y, lane.z), lane.number))
        self.frames: list[_Frame] = []

    def run(self, fn: Callable[..., None], args: Sequence[Any]) -> None:
        """The kernel, recorded; leaves the trace function as it was."""
        self.recorder.add_arguments(args)
        how, text = "returned", ""
        sys.settrace(self.on_call)
        try:
            fn(*args)
        except greenlet.GreenletExit:
            how = "stopped"
            raise
        except BaseException as error:
            how, text = "error", f"{type(error).__name__}: {error}"
            raise
        finally:
            sys.settrace(self.recorder.outer)
            self.emit("end", what=how, value=Value("text", text) if text else None)

    def emit(self, kind: str, **facts: Any) -> None:
        """Something happened at the line where this thread stands."""
        frame = self.frames[-1] if self.frames else None
        where = (frame.function, len(self.frames) - 1, frame.line) if frame is not None else (-1, -1, 0)
        spot = dict(zip(("function", "depth", "line"), where, strict=True))
        self.recorder.emit(kind, self.thread, **spot, **facts)

    # Trace functions.

    def on_call(self, frame: FrameType, event: str, arg: Any) -> Any:
        """A Python function is called: one of the kernel's, one of the machine's, or another."""
        number = self.recorder.codes.get(id(frame.f_code))
        if number is not None:
            known = _Frame(number, frame.f_lineno, statements(frame.f_code.co_filename))
            self.frames.append(known)
            self.emit("call", changed=self.changes(frame, known))
            return self.on_line
        above = frame.f_back
        if not self.frames or above is None or not frame.f_code.co_filename.startswith(HERE):
            return None
        if id(above.f_code) in self.recorder.codes or above.f_code.co_qualname.startswith("Array.__iter__"):
            return self.on_machine(frame)
        return None

    def on_line(self, frame: FrameType, event: str, arg: Any) -> Any:
        """A line of the kernel, or a function's end."""
        known = self.frames[-1]
        if event == "line":
            line, one = known.statements.get(frame.f_lineno, (frame.f_lineno, True))
            if one or line != known.line:  # else still inside a statement of several lines
                changed = self.changes(frame, known)
                known.line = line
                self.emit("line", changed=changed)
        elif event == "exception":
            known.failing = True
        elif event == "return" and not (known.failing and _unwinds(frame)):
            self.emit("return", value=self.recorder.value(arg), changed=self.changes(frame, known))
            self.frames.pop()
        return self.on_line

    def changes(self, frame: FrameType, known: _Frame) -> tuple[Change, ...]:
        """The variables that changed since the last event of this function."""
        if self.recorder.full:
            return ()
        found: list[Change] = []
        local = frame.f_locals
        for name, item in local.items():
            old = known.seen.get(name, _MISSING)
            if old is item:
                continue
            known.seen[name] = item
            value = self.recorder.value(item)
            if known.values.get(name) != value:
                known.values[name] = value
                self.recorder.name(value, name)
                found.append((name, value))
        if len(known.values) != len(local):
            for name in [name for name in known.values if name not in local]:
                del known.values[name], known.seen[name]
                found.append((name, None))
        return tuple(found)

    def on_machine(self, frame: FrameType) -> Any:
        """The kernel calls the machine: answer with what waits for the result, or None."""
        code = frame.f_code
        given = frame.f_locals
        args = [given[name] for name in code.co_varnames[: code.co_argcount]]
        what = code.co_name
        host = args[0] if args else None
        if isinstance(host, Array) and what in ("__getitem__", "__setitem__"):
            report = self.read if what == "__getitem__" else self.write
            return _after(frame, lambda result: report(host, args[1], result))
        if isinstance(host, Atomic):
            return _after(frame, lambda result: self.atomic(what, args[1], args[2], result))
        if what == "load" and isinstance(host, Array):  # one of kernels.simt.vector
            return _after(frame, lambda result: self.vector(host, args[1], result))
        if what == "tell" and isinstance(host, Array):  # an atomic of a launch that is observed as well
            op = given["change"].__name__
            return _after(frame, lambda result: self.atomic(op, host, args[1], result))
        if isinstance(host, Const):
            return _after(frame, self.recorder.constant)
        if isinstance(host, Shared | Local):
            above = frame.f_back
            assert above is not None
            site = (id(above.f_code), above.f_lasti)
            return _after(frame, lambda result: self.declared(result, site, isinstance(host, Shared)))
        if isinstance(host, Cuda):
            if what.startswith("syncthreads"):
                value = self.recorder.value(args[1]) if len(args) > 1 else None
                self.emit("barrier", what=what, interval=self.machine.barriers - self.first_barrier, value=value)
                return _after(frame, lambda result: self.warp(what, args, given, result)) if value else None
            if what.startswith(WARP_OPS):
                return _after(frame, lambda result: self.warp(what, args, given, result))
        return None

    # What the machine did.

    def read(self, array: Array, index: Any, result: Any) -> None:
        """A load of one element; a slice or a row is a view, and no access."""
        if not isinstance(result, Array):
            number, spot = self.spot(array, index)
            self.emit("read", array=number, index=spot, value=self.recorder.value(result))

    def write(self, array: Array, index: Any, result: Any) -> None:
        """A store of one element, or of a slice: then one event an element."""
        number, start, steps = self.recorder.find(array)
        parts = index if isinstance(index, tuple) else (index,)
        parts += (slice(None),) * (len(array.shape) - len(parts))
        axes = [
            range(*part.indices(size)) if isinstance(part, slice) else (as_int(part),)
            for part, size in zip(parts, array.shape, strict=True)
        ]
        for each in itertools.product(*axes):
            spot = start + sum(part * step for part, step in zip(each, steps, strict=True))
            self.emit("write", array=number, index=spot, value=self.recorder.value(_raw(array, each, spot)))

    def vector(self, array: Array, index: Any, result: tuple[Any, ...]) -> None:
        """One load of several elements."""
        number, spot = self.spot(array, index)
        self.emit("vector", array=number, index=spot, values=tuple(self.recorder.value(item) for item in result))

    def atomic(self, what: str, array: Array, index: Any, old: Any) -> None:
        """An atomic operation: `old` is what it returned."""
        number, spot = self.spot(array, index)
        new = _raw(array, index, spot)
        values = self.recorder.value(old), self.recorder.value(new)
        self.emit("atomic", what=what, array=number, index=spot, value=values[0], result=values[1])

    def declared(self, array: Any, site: tuple[Any, ...], shared: bool) -> None:
        """A shared array of the block, or a new local one."""
        owner = linear(self.machine.block_triple, self.machine.grid) if shared else self.thread
        space = "shared" if shared else "local"
        self.emit("alloc", what=space, array=self.recorder.declare(array, space, owner, site))

    def warp(self, what: str, args: Sequence[Any], given: dict[str, Any], result: Any) -> None:
        """A warp operation is complete."""
        source = -1
        shuffle = what.startswith("shfl_")
        if shuffle:
            source = source_lane(what, self.lane.lid, int(args[3]), int(given.get("width", WARP_SIZE)))
        takes = shuffle or what.startswith(("ballot", "all_", "any_", "match_"))
        given_value = args[2] if takes else args[1] if what.startswith("syncthreads") else None
        value, out = (None if item is None else self.recorder.value(item) for item in (given_value, result))
        self.emit("warp", what=what, source=source, value=value, result=out)

    def spot(self, array: Array, index: Any) -> tuple[int, int]:
        """An array's number, and the element that an index of it names."""
        number, start, steps = self.recorder.find(array)
        parts = index if isinstance(index, tuple) else (index,)
        return number, start + sum(as_int(part) * step for part, step in zip(parts, steps, strict=True))


class _Frame:
    """A function of the kernel that runs, with its variables as they were last told."""

    __slots__ = ("failing", "function", "line", "seen", "statements", "values")

    def __init__(self, function: int, line: int, statements: dict[int, tuple[int, bool]]) -> None:
        self.function = function
        self.line = line
        self.statements = statements
        self.failing = False  # an exception was raised in it
        self.seen: dict[str, Any] = {}
        self.values: dict[str, Value] = {}


def _after(frame: FrameType, report: Callable[[Any], None]) -> Callable[..., Any]:
    """A trace function that waits for a function's result only."""
    frame.f_trace_lines = False

    raised = False

    def wait(frame: FrameType, event: str, arg: Any) -> Any:
        nonlocal raised
        if event == "exception":
            raised = True
        elif event == "return" and not (raised and _unwinds(frame)):
            report(arg)
        return wait

    return wait


def _unwinds(frame: FrameType) -> bool:
    """Whether a frame ends by an exception that passes through it: Python says so by no event of its own."""
    return frame.f_code.co_code[frame.f_lasti] not in RETURNS


def _raw(array: Array, index: Any, spot: int) -> Any:
    """An element without the array's own access, which an observer would count."""
    return array.cells[spot] if isinstance(array, CellArray) else array.data[index]  # type: ignore[attr-defined]


def linear(place: Triple, sizes: Triple) -> int:
    """The linear number of a place in a grid or block."""
    return place[0] + sizes[0] * (place[1] + sizes[1] * place[2])


def source_lane(what: str, lane: int, number: int, width: int = WARP_SIZE) -> int:
    """The lane that a shuffle reads: `number` is its lane, mask or distance; out of its segment, the lane itself."""
    number &= WARP_SIZE - 1
    first = lane // width * width
    if what == "shfl_sync":
        return first + number % width
    if what == "shfl_xor_sync":
        source = lane ^ number
        return source if source < first + width else lane  # an earlier segment can be read
    source = lane - number if what == "shfl_up_sync" else lane + number
    return source if first <= source < first + width else lane


@cache
def statements(file: str) -> dict[int, tuple[int, bool]]:
    """For each line of a source file: the first line of its statement, and whether the statement has one line.

    Python reports the lines of one long call in turn; a reader wants one step. Empty where there is no such file.
    """
    try:
        tree = ast.parse(Path(file).read_text("utf-8"))
    except (OSError, SyntaxError):
        return {}
    found: dict[int, tuple[int, bool]] = {}
    for node in ast.walk(tree):  # outer statements come before the inner ones
        if isinstance(node, ast.stmt):
            body = getattr(node, "body", None)
            last = body[0].lineno - 1 if body else node.end_lineno or node.lineno
            found.update(dict.fromkeys(range(node.lineno, last + 1), (node.lineno, last <= node.lineno)))
    return found
