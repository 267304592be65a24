"""Records chosen threads of a launch line by line, by tracing their Python code and nothing else.

A chosen thread switches Python's trace function on when it runs and off before it hands over, so all other threads run
as fast as ever, and a launch without a recorder runs no line of this file. Accesses, shuffles and barriers are seen as
the calls that they are.
"""

from __future__ import annotations

import hashlib
import inspect
import math
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from types import FunctionType
from typing import TYPE_CHECKING, Any

import numpy as np

from kernels.simt.cells import CellArray
from kernels.simt.memory import Array, GlobalArray
from kernels.simt.record_thread import TracedLane, TracedRun, linear
from kernels.simt.report import HERE, ROOT, Triple
from kernels.simt.trace import ArrayInfo, Event, File, Function, Thread, Trace, TraceError, Truncated, Value

if TYPE_CHECKING:
    from kernels.simt.machine import Machine
    from kernels.simt.warp import Lane

LIMIT = 50_000
CONTENTS = 256
TEXT = 80


class Recorder:
    """Records one launch; hand it to `simt.launch(tracer=...)` or `Backend("sim", tracer=...)`, then ask `trace()`.

    `threads`: linear numbers in the block or (x, y, z); `blocks`: linear numbers in the grid or (x, y, z). `limit`:
    events to keep; those behind are counted, and the trace says so. `contents`: global arrays of at most so many
    elements are kept as they are at launch. Of a run of several launches the `nth` is recorded, the others counted.
    """

    def __init__(
        self,
        threads: Iterable[int | Sequence[int]] = (0,),
        blocks: Iterable[int | Sequence[int]] = (0,),
        *,
        limit: int = LIMIT,
        contents: int = CONTENTS,
        nth: int = 1,
    ) -> None:
        if limit < 1:
            raise TraceError(f"limit = {limit}: at least one event must fit")
        if nth < 1:
            raise TraceError(f"nth = {nth}: launches count from 1")
        self.asked = tuple(threads), tuple(blocks)
        if not all(self.asked):
            raise TraceError("threads and blocks: name at least one of each")
        self.limit = limit
        self.contents = contents
        self.nth = nth
        self.outer: Any = None  # the trace function of a debugger or of coverage, if there is one
        self.launches = 0
        self.total = 0
        self.events: list[Event] = []
        self._machine: Machine | None = None

    # What the machine calls.

    def attach(self, machine: Machine) -> None:
        """A launch begins; raises TraceError for a thread or block outside it."""
        self.launches += 1
        if self.launches != self.nth:
            return
        self.chosen = _linear("thread", self.asked[0], machine.block), _linear("block", self.asked[1], machine.grid)
        self.outer = sys.gettrace()
        self._machine = machine
        machine.tracer = self
        self.kernel, self.grid, self.block = machine.name, machine.grid, machine.block
        self.schedule, self.shared_bytes = str(machine.schedule), machine.shared.used_bytes
        self._functions = _reachable(machine.fn)
        # By id: hashing a code object costs more than the rest of a call.
        self.codes = {id(fn.__code__): number for number, fn in enumerate(self._functions)}
        self._threads: list[Thread] = []
        self._arrays: list[_Array] = []
        self._globals: list[tuple[GlobalArray, int]] = []
        self._cells: dict[int, tuple[Any, int]] = {}  # kept alive, as they are known by their id
        self._sites: dict[tuple[Any, ...], tuple[int, int]] = {}

    def entry(self, lane: Lane, fn: Callable[..., None]) -> Callable[..., None]:
        """What a thread runs in place of the kernel."""
        if lane.number not in self.chosen[0] or lane.warp.machine is not self._machine:
            return fn
        lane.__class__ = TracedLane

        def traced(*args: Any) -> None:
            machine = lane.warp.machine
            if linear(machine.block_triple, machine.grid) not in self.chosen[1]:
                return fn(*args)
            return TracedRun(self, lane, machine).run(fn, args)

        return traced

    # What is recorded.

    def emit(self, kind: str, thread: int, **facts: Any) -> None:
        """Keep an event, or only count it."""
        self.total += 1
        if len(self.events) < self.limit:
            self.events.append(Event(kind, thread, **facts))

    @property
    def full(self) -> bool:
        """Whether events are only counted."""
        return len(self.events) >= self.limit

    def trace(self, case: str = "") -> Trace:
        """What was recorded; raises TraceError where nothing was launched."""
        if self._machine is None:
            if self.launches:
                raise TraceError(f"nth = {self.nth}: the run made {self.launches} launch{'es' * (self.launches > 1)}")
            raise TraceError("nothing was recorded: no launch on the SIMT machine had this recorder")
        files: dict[str, int] = {}
        functions = []
        for fn in self._functions:
            code = fn.__code__
            at = files.setdefault(code.co_filename, len(files))
            functions.append(Function(code.co_name, at, code.co_firstlineno))
        cut = Truncated("events", self.limit, len(self.events), self.total) if self.total > len(self.events) else None
        return Trace(
            self.kernel,
            self.schedule,
            self.grid,
            self.block,
            self.shared_bytes,
            tuple(_file(name) for name in files),
            tuple(functions),
            tuple(self._threads),
            tuple(array.info() for array in self._arrays),
            tuple(self.events),
            cut,
            case,
            self.launches,
        )

    # Tables.

    def add_thread(self, thread: Thread) -> int:
        """A thread begins a block."""
        self._threads.append(thread)
        return len(self._threads) - 1

    def add_arguments(self, args: Sequence[Any]) -> None:
        """The kernel's array arguments, once a launch."""
        if self._globals:
            return
        for arg in args:
            if isinstance(arg, GlobalArray):
                self._add_global(arg, "global")

    def constant(self, array: GlobalArray) -> None:
        """Constant memory, the same for everyone who asks for it."""
        if self._base(array) is None:
            self._add_global(array, "const")

    def _add_global(self, array: GlobalArray, space: str) -> int:
        known = _Array(array, space, -1)
        if array.size <= self.contents:
            known.data = tuple(value_of(item).data for item in array.data.reshape(-1))
        self._globals.append((array, self._add(known)))
        return self._globals[-1][1]

    def _base(self, array: GlobalArray) -> tuple[int, int] | None:
        """The known array that this one is, or is a view of, and the element where it starts."""
        for base, number in self._globals:
            if base.data is array.data:
                return number, 0
        at = _address(array.data)
        for base, number in self._globals:
            if _address(base.data) <= at < _address(base.data) + max(base.data.nbytes, 1):
                return number, (at - _address(base.data)) // array.itemsize
        return None

    def declare(self, array: CellArray, space: str, owner: int, site: tuple[Any, ...]) -> int:
        """A shared or local array; the same number for the same call, and block or thread."""
        key = (space, owner, *site)
        if key in self._sites:
            number, cells = self._sites[key]
            self._cells.pop(cells, None)
        else:
            number = self._add(_Array(array, space, owner))
        self._sites[key] = number, id(array.cells)
        self._cells[id(array.cells)] = array.cells, number
        return number

    def _add(self, array: _Array) -> int:
        self._arrays.append(array)
        return len(self._arrays) - 1

    def find(self, array: Array) -> tuple[int, int, tuple[int, ...]]:
        """An array's number, the element where this view of it starts, and elements from one to the next."""
        if isinstance(array, CellArray):
            known = self._cells.get(id(array.cells))
            number = known[1] if known is not None else self.declare(array, "unknown", -1, (id(array.cells),))
            return number, array.start, array.steps
        assert isinstance(array, GlobalArray)
        number, start = self._base(array) or (self._add_global(array, "global"), 0)
        return number, start, tuple(step // array.itemsize for step in array.data.strides)

    def value(self, item: Any) -> Value:
        """A kernel's value as the trace keeps it."""
        if isinstance(item, Array):
            number, start, _ = self.find(item)
            return Value("array", (number, start, *item.shape))
        return value_of(item)

    def name(self, value: Value, name: str) -> None:
        """A shared or local array is called by the first variable that holds it."""
        if isinstance(value.data, tuple):
            array = self._arrays[value.data[0]]
            array.variable = array.variable or name


class _Array:
    """What becomes an ArrayInfo."""

    def __init__(self, array: Array, space: str, owner: int) -> None:
        self.declared = array.name
        self.variable = array.name if space == "global" else ""
        self.space = space
        self.dtype = array.dtype.name
        self.shape = array.shape
        self.owner = owner
        self.data: Any = None

    def info(self) -> ArrayInfo:
        name = self.variable or self.declared
        return ArrayInfo(name, self.space, self.dtype, self.shape, self.owner, self.data)


def value_of(item: Any) -> Value:
    """A Python or NumPy value as the trace keeps it; what is no number becomes a short text."""
    kind = item.__class__
    if kind is bool:
        return Value("bool", item)
    if isinstance(item, int):
        return Value("int", int(item))
    if kind is float:
        return Value("float", item if item == item else math.nan)
    if isinstance(item, np.bool_):
        return Value("bool", bool(item))
    if isinstance(item, np.generic) or hasattr(item, "dtype"):
        name = np.dtype(item.dtype).name
        if isinstance(item, np.integer):
            return Value(name, int(item))
        try:
            number = float(item)
        except (TypeError, ValueError):
            return Value("text", name)
        return Value(name, number if number == number else math.nan)
    if item is None:
        return Value("none", None)
    text = repr(item)
    return Value("text", f"<{kind.__name__}>" if " at 0x" in text else text[:TEXT])


def _linear(what: str, asked: Sequence[Any], sizes: Triple) -> frozenset[int]:
    """Linear numbers of threads or blocks; raises TraceError for one outside the sizes."""
    x, y, z = sizes
    found = set()
    for one in asked:
        parts = (one,) if isinstance(one, int) else tuple(one)
        if len(parts) == 1:
            number, fits = int(parts[0]), 0 <= parts[0] < x * y * z
        else:
            a, b, c = (*parts, 0, 0)[:3]
            fits = len(parts) <= 3 and 0 <= a < x and 0 <= b < y and 0 <= c < z
            number = linear((a, b, c), sizes)
        if not fits:
            shown = ",".join(map(str, parts))
            raise TraceError(f"{what} {shown}: there are {x * y * z}, 0 to {x * y * z - 1}; as x,y,z below {x},{y},{z}")
        found.add(number)
    return frozenset(found)


def _reachable(fn: Callable[..., Any]) -> list[FunctionType]:
    """The kernel and every function that it can call by a name of its module, the machine's own excepted."""
    assert isinstance(fn, FunctionType)
    found = [fn]
    for current in found:  # grows on the way
        scope = {**current.__globals__, **inspect.getclosurevars(current).nonlocals}
        for other in (scope.get(name) for name in current.__code__.co_names + current.__code__.co_freevars):
            if not isinstance(other, FunctionType) or other.__code__.co_filename.startswith(HERE):
                continue
            if all(other.__code__ is not known.__code__ for known in found):
                found.append(other)
    return found


def _file(name: str) -> File:
    path = Path(name)
    shown = path.relative_to(ROOT).as_posix() if path.is_relative_to(ROOT) else path.name
    try:
        return File(shown, hashlib.sha256(path.read_bytes()).hexdigest())
    except OSError:
        return File(shown, None)


def _address(data: np.ndarray[Any, Any]) -> int:
    return int(data.__array_interface__["data"][0])
