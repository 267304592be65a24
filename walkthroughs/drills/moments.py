"""A moment of a film: one thread about to run one line for the nth time, and what the trace says of it.

Everything that a prediction asks is read off here: the variables before and after, what the line reads and writes, what
a shuffle brings, and the same for the other lanes.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from functools import cached_property

from kernels.simt.cursor import Cursor
from kernels.simt.trace import Event, ThreadState, Trace, Value
from walkthroughs.digest import ROOT
from walkthroughs.drills.errors import DrillError
from walkthroughs.stepper.films import Film, join, record

Number = int | float


@dataclass(frozen=True)
class Line:
    """A line of a film's port: its file, its number from 1, and its text without indentation."""

    path: str
    number: int
    text: str


@dataclass(frozen=True)
class Access:
    """What a line read or wrote: the array's name, the element (counted from its start), and the value."""

    array: str
    index: int
    value: Number


def find_line(film: Film, concept: str, begins: str) -> Line:
    """The first line of a concept's regions in a film's files that begins so. Raises DrillError where there is none."""
    for path, first, last in join(film).port_lines(concept):
        lines = (ROOT / path).read_text(encoding="utf-8").splitlines()
        for number in range(first, last + 1):
            text = lines[number - 1].strip()
            if text.startswith(begins):
                return Line(path, number, text)
    raise DrillError(f"film {film.id}: no line of {concept} begins with {begins!r}")


def number(value: Value | None) -> Number:
    """A value as a number. Raises DrillError for what is none."""
    if value is None or not isinstance(value.data, int | float):
        raise DrillError(f"{value} is no number")
    return value.data


class Moment:
    """The place where a thread (a number in `Trace.threads`) is about to run a line for the nth time, from 1."""

    def __init__(self, film: Film, thread: int, line: Line, nth: int) -> None:
        self.film, self.thread, self.line, self.nth = film, thread, line, nth
        self.trace: Trace = record(film)
        cursor = Cursor(self.trace, thread)
        if not cursor.to_line(line.number, nth, line.path):
            raise DrillError(f"film {film.id}: thread {thread} is not {nth} times at line {line.number}")
        self.event = cursor.at - 1
        self._state: ThreadState = cursor.state.threads[thread].copy()

    @property
    def lane(self) -> int:
        """The thread's linear number in its block."""
        return self.trace.threads[self.thread].number

    @property
    def interval(self) -> int:
        """How many barriers the thread has passed."""
        return self._state.interval

    def shown(self, name: str) -> str:
        """A variable as it is printed."""
        return str(self._state.variables[name])

    def before(self, name: str) -> Number:
        """A variable before the line."""
        return number(self._state.variables.get(name))

    def after(self, name: str) -> Number:
        """A variable after the line."""
        changed = dict(self.trace.effects(self.event))
        return number(changed[name]) if name in changed else self.before(name)

    def cell(self, name: str, index: int) -> Number:
        """An element of an array, as this thread last saw it."""
        held = self._state.variables[name].data
        assert isinstance(held, tuple)
        return number(self._state.seen[held[0]][held[1] + index][0])

    def data(self, name: str) -> tuple[Number, ...]:
        """A small global array, as it was at launch."""
        found = next((array for array in self.trace.arrays if array.name == name), None)
        if found is None or found.data is None:
            raise DrillError(f"film {self.film.id}: {name} was not kept")
        return found.data

    @cached_property
    def reads(self) -> tuple[Access, ...]:
        """What the line reads, in order."""
        return self._accesses("read")

    @cached_property
    def writes(self) -> tuple[Access, ...]:
        """What the line writes, in order."""
        return self._accesses("write")

    @property
    def received(self) -> Number:
        """What the line's shuffle brings."""
        return number(next(event for event in self._during if event.kind == "warp").result)

    def of(self, lane: int) -> Moment | None:
        """The same moment of another traced thread, or None where it never makes this visit."""
        block = self.trace.threads[self.thread].block
        try:
            return Moment(self.film, self.trace.thread(lane, block), self.line, self.nth)
        except (DrillError, ValueError):
            return None

    @cached_property
    def lanes(self) -> tuple[int, ...]:
        """The lanes of warp 0 that make this visit."""
        block = self.trace.threads[self.thread].block
        return tuple(
            thread.number
            for at, thread in enumerate(self.trace.threads)
            if thread.block == block and thread.number < 32 and self.nth <= visits(self.film, at, self.line)
        )

    @cached_property
    def _during(self) -> tuple[Event, ...]:
        """The thread's events of this line, those of the functions that it calls included."""
        own = self.trace.events_of(self.thread)
        depth = self.trace.events[self.event].depth
        found = []
        for later in own[bisect_right(own, self.event) :]:
            event = self.trace.events[later]
            if event.kind in ("line", "return", "end") and event.depth <= depth:
                break
            found.append(event)
        return tuple(found)

    def _accesses(self, kind: str) -> tuple[Access, ...]:
        arrays = self.trace.arrays
        return tuple(
            Access(arrays[event.array].name, event.index, number(event.value))
            for event in self._during
            if event.kind == kind
        )


def visits(film: Film, thread: int, line: Line) -> int:
    """How often a thread runs a line."""
    return len(record(film).visits(thread, line.number, line.path))
