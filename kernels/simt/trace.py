"""A recorded run of chosen threads, event by event, and how to walk it: forward, backward, to a line or a barrier.

`record.Recorder` makes a `Trace`, `trace_json` reads and writes it. An event holds only what changed; the state at any
point is the nearest keyframe before it plus the events in between.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from kernels.simt.report import SimtError, Triple

KINDS = {
    "C": "call",  # a function begins; `changed` are its arguments
    "L": "line",  # a line is about to run; `changed` since this frame's last event
    "A": "alloc",  # a shared or local array is declared
    "R": "read",
    "V": "vector",  # one load of several elements, `values`, from `index` on
    "W": "write",
    "X": "atomic",  # `value` is the old one, `result` the new one
    "S": "warp",  # a shuffle, vote or syncwarp is complete: `value` went in, `result` came out
    "B": "barrier",  # the thread waits at a barrier, which ends the interval `interval`
    "E": "return",  # a function ends
    "Z": "end",  # the thread has left the kernel
}
"""Every kind of event, by the letter that the file format uses."""
ENDS = ("returned", "error", "stopped")
"""How a thread ends: by itself, by its own error, or because another thread's error ended the launch."""
KEYFRAMES = 64
WAITS = "waits in "


class TraceError(SimtError, ValueError):
    """A trace that cannot be made, read or walked as asked."""


@dataclass(frozen=True, slots=True, eq=False)
class Value:
    """A value with its type: int, bool, float, none, text, a NumPy type's name, or array.

    `data` of a float is exact; of an array it is (its number in `Trace.arrays`, first element, *shape).
    """

    type: str
    data: int | float | bool | str | tuple[int, ...] | None

    def __eq__(self, other: object) -> bool:
        # As tuples, which ask for identity first: every NaN of a trace is `math.nan`, and has not changed.
        return isinstance(other, Value) and (self.type, self.data) == (other.type, other.data)

    def __hash__(self) -> int:
        return hash((self.type, self.data))

    def __str__(self) -> str:
        if self.type in ("float32", "float16") and isinstance(self.data, float):
            import numpy as np

            return str(np.dtype(self.type).type(self.data))
        return str(self.data)


Change = tuple[str, Value | None]
"""A variable's name and its new value; None where the name was deleted."""


@dataclass(frozen=True, slots=True)
class File:
    """A source file: path (relative to the checkout, else its name alone), SHA-256 of its bytes, or None unknown."""

    path: str
    sha256: str | None


@dataclass(frozen=True, slots=True)
class Function:
    """A kernel or device function: its name, its file (number in `Trace.files`), and the line where it begins."""

    name: str
    file: int
    line: int


@dataclass(frozen=True, slots=True)
class Thread:
    """A traced thread in one thread block, both as (x, y, z), and its linear number in the block."""

    block: Triple
    thread: Triple
    number: int


@dataclass(frozen=True, slots=True)
class ArrayInfo:
    """An array that the kernel had: `space` is global, shared (of one block), or local (of one thread).

    `owner`: the thread (number in `Trace.threads`) for local, the linear block for shared, else -1. `data`: what a
    small global array held at launch, flat, else None.
    """

    name: str
    space: str
    dtype: str
    shape: tuple[int, ...]
    owner: int = -1
    data: tuple[int | float, ...] | None = None


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that a traced thread did. Which fields mean something depends on `kind`: see `KINDS`.

    `thread`, `function` and `array` are numbers in the trace's tables. `depth` is 0 in the kernel itself. `index`
    counts elements from the array's start. `source`: the lane that a shuffle reads, or -1.
    """

    kind: str
    thread: int
    function: int = -1
    depth: int = -1
    line: int = 0
    changed: tuple[Change, ...] = ()
    what: str = ""
    array: int = -1
    index: int = -1
    value: Value | None = None
    result: Value | None = None
    source: int = -1
    interval: int = -1
    values: tuple[Value, ...] = ()


@dataclass(frozen=True, slots=True)
class Truncated:
    """The notice of a cut: which limit (`events` or `bytes`), how many events are kept, how many there were."""

    by: str
    limit: int
    kept: int
    total: int

    def __str__(self) -> str:
        return f"cut at {self.limit} {self.by}: {self.kept} of {self.total} events are kept, the last ones are missing"


@dataclass(slots=True)
class Frame:
    """A function that runs: the line it stands at, and its variables."""

    function: int
    line: int
    variables: dict[str, Value]


@dataclass(slots=True)
class ThreadState:
    """One thread at one point. `seen`: array -> element -> (value, event), as this thread last read or wrote it."""

    frames: list[Frame] = field(default_factory=list)
    seen: dict[int, dict[int, tuple[Value, int]]] = field(default_factory=dict)
    interval: int = 0
    last_access: int = -1
    doing: str = "not started"

    @property
    def waits(self) -> bool:
        """Whether it waits at a barrier."""
        return self.doing.startswith(WAITS)

    @property
    def variables(self) -> dict[str, Value]:
        """Those of the innermost function, or none."""
        return self.frames[-1].variables if self.frames else {}

    @property
    def line(self) -> int:
        """The line that the innermost function stands at, or 0."""
        return self.frames[-1].line if self.frames else 0

    def copy(self) -> ThreadState:
        """One that may change on its own."""
        frames = [Frame(f.function, f.line, dict(f.variables)) for f in self.frames]
        return replace(self, frames=frames, seen={array: dict(cells) for array, cells in self.seen.items()})


@dataclass(slots=True)
class State:
    """Every traced thread after the first `at` events."""

    at: int
    threads: list[ThreadState]

    def copy(self) -> State:
        """One that may change on its own."""
        return State(self.at, [thread.copy() for thread in self.threads])

    def cells(self, array: int) -> dict[int, Value]:
        """Elements of an array as any traced thread last saw them; what nobody traced has touched is missing."""
        found: dict[int, tuple[Value, int]] = {}
        for thread in self.threads:
            for index, seen in thread.seen.get(array, {}).items():
                if index not in found or seen[1] > found[index][1]:
                    found[index] = seen
        return {index: value for index, (value, _) in sorted(found.items())}


@dataclass(frozen=True)
class Trace:
    """One launch as its chosen threads went through it; `events` in the order in which they happened."""

    kernel: str
    schedule: str
    grid: Triple
    block: Triple
    shared_bytes: int
    files: tuple[File, ...]
    functions: tuple[Function, ...]
    threads: tuple[Thread, ...]
    arrays: tuple[ArrayInfo, ...]
    events: tuple[Event, ...]
    truncated: Truncated | None = None
    case: str = ""
    launches: int = 1
    """Launches that the run made; one of them is recorded, by default the first."""

    def __len__(self) -> int:
        return len(self.events)

    def thread(self, number: int, block: Triple = (0, 0, 0)) -> int:
        """The number in `threads` of a thread (linear) of a block; raises TraceError where it was not traced."""
        for at, thread in enumerate(self.threads):
            if thread.number == number and thread.block == block:
                return at
        known = ", ".join(f"{t.number} of block {t.block}" for t in self.threads)
        raise TraceError(f"thread {number} of block {block} was not traced; traced are {known}")

    def state(self, at: int) -> State:
        """The state after the first `at` events, 0 to len(trace); raises TraceError outside that range."""
        if not 0 <= at <= len(self.events):
            raise TraceError(f"at = {at}: the trace has {len(self.events)} events")
        keys = self._keyframes
        state = keys[min(at // self._spacing, len(keys) - 1)].copy()
        while state.at < at:
            self.step(state)
        return state

    def step(self, state: State) -> None:
        """Let the next event happen to a state."""
        number = state.at
        event = self.events[number]
        thread = state.threads[event.thread]
        state.at += 1
        if thread.waits and event.kind != "end":  # it went on: the barrier has opened
            thread.interval += 1
        if event.kind == "call":
            thread.frames.append(Frame(event.function, event.line, {}))
        thread.doing = "running"
        if event.changed:
            variables = thread.frames[-1].variables
            for name, value in event.changed:
                if value is None:
                    variables.pop(name, None)
                else:
                    variables[name] = value
        _STEPS[event.kind](thread, event, number)

    @cached_property
    def _spacing(self) -> int:
        return max(KEYFRAMES, -(-len(self.events) // KEYFRAMES))

    @cached_property
    def _keyframes(self) -> list[State]:
        """The states at every multiple of the spacing: at most `KEYFRAMES` + 1 of them."""
        state = State(0, [ThreadState() for _ in self.threads])
        found = [state.copy()]
        while state.at < len(self.events):
            self.step(state)
            if state.at % self._spacing == 0:
                found.append(state.copy())
        return found

    @cached_property
    def _of_thread(self) -> list[list[int]]:
        found: list[list[int]] = [[] for _ in self.threads]
        for number, event in enumerate(self.events):
            found[event.thread].append(number)
        return found

    def events_of(self, thread: int) -> Sequence[int]:
        """The numbers of one thread's events."""
        return self._of_thread[thread]

    def visits(self, thread: int, line: int, file: str | None = None) -> list[int]:
        """The `line` events at which a thread is about to run a line of a file (by default: of the kernel's)."""
        return [n for n in self.events_of(thread) if self.events[n].kind == "line" and self._is_at(n, line, file)]

    def _is_at(self, number: int, line: int, file: str | None) -> bool:
        event = self.events[number]
        path = self.files[self.functions[event.function].file].path
        return event.line == line and path == (file or self.files[self.functions[0].file].path)

    def effects(self, number: int) -> tuple[Change, ...]:
        """What a `line` event's line changed: the changes that its frame's next event reports."""
        event = self.events[number]
        own = self.events_of(event.thread)
        for later in own[bisect_right(own, number) :]:
            other = self.events[later]
            if other.kind in ("line", "return") and other.depth == event.depth:
                return other.changed
        return ()

    def to_json(self, max_bytes: int | None = None) -> str:
        """As the documented format; see `trace_json.dump`."""
        from kernels.simt.trace_json import dump

        return dump(self, max_bytes)

    @classmethod
    def from_json(cls, text: str | bytes) -> Trace:
        """From the documented format; see `trace_json.load`."""
        from kernels.simt.trace_json import load

        return load(text)


def _plain(thread: ThreadState, event: Event, number: int) -> None:
    pass


def _line(thread: ThreadState, event: Event, number: int) -> None:
    thread.frames[-1].line = event.line


def _alloc(thread: ThreadState, event: Event, number: int) -> None:
    if event.what == "local":  # a new one each time; a shared one is the block's
        thread.seen[event.array] = {}


def _access(thread: ThreadState, event: Event, number: int) -> None:
    value = event.result if event.kind == "atomic" else event.value
    assert value is not None
    thread.seen.setdefault(event.array, {})[event.index] = (value, number)
    thread.last_access = number


def _vector(thread: ThreadState, event: Event, number: int) -> None:
    cells = thread.seen.setdefault(event.array, {})
    cells.update((event.index + offset, (value, number)) for offset, value in enumerate(event.values))
    thread.last_access = number


def _barrier(thread: ThreadState, event: Event, number: int) -> None:
    thread.doing = WAITS + event.what


def _return(thread: ThreadState, event: Event, number: int) -> None:
    thread.frames.pop()


def _end(thread: ThreadState, event: Event, number: int) -> None:
    thread.doing = event.what


_STEPS: dict[str, Any] = {
    "call": _plain,
    "line": _line,
    "alloc": _alloc,
    "read": _access,
    "vector": _vector,
    "write": _access,
    "atomic": _access,
    "warp": _plain,
    "barrier": _barrier,
    "return": _return,
    "end": _end,
}
