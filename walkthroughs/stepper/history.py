"""One thread of a film at every one of its moments: its variables, the elements that it saw, what it stands in.

A trace's state moves all threads along one time. The warp in lockstep needs each thread at a time of its own, so the
values are kept here by thread and looked up by moment.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kernels.simt.trace import Event, Trace, Value

Spot = tuple[str, int, int]
"""Where a visit begins: the event's kind (line or call), its function and its line."""
VISITS = ("line", "call")


class History:
    """A thread's own time. Moment m lies after the thread's first m events; 0 is before all of them."""

    def __init__(self, trace: Trace, thread: int) -> None:
        self.trace = trace
        self.thread = thread
        self.numbers = trace.events_of(thread)
        self._frames: list[int] = [-1]
        self._parent: list[int] = []
        self._function: list[int] = []
        self._told: list[dict[str, list[tuple[int, Value | None]]]] = []
        self._lines: list[list[tuple[int, int]]] = []
        self._begun: list[int] = [0]
        self._visits: dict[Spot, list[int]] = {}
        self._cells: dict[int, dict[int, list[tuple[int, Value]]]] = {}
        self._made: dict[int, list[int]] = {}
        for moment, number in enumerate(self.numbers, start=1):
            self._add(moment, trace.events[number])

    def __len__(self) -> int:
        """The last moment."""
        return len(self.numbers)

    def _add(self, moment: int, event: Event) -> None:
        frame = self._frames[-1]
        if event.kind == "call":
            self._parent.append(frame)
            self._function.append(event.function)
            self._told.append({})
            frame = len(self._told) - 1
            self._lines.append([(moment, event.line)])
        for name, value in event.changed:
            self._told[frame].setdefault(name, []).append((moment, value))
        if event.kind == "line":
            self._lines[frame].append((moment, event.line))
        if event.kind == "alloc" and event.what == "local":
            self._made.setdefault(event.array, []).append(moment)
        self._see(moment, event)
        if event.kind in VISITS:
            self._visits.setdefault((event.kind, event.function, event.line), []).append(moment)
        if event.kind == "return":
            frame = self._parent[frame]
        self._frames.append(frame)
        self._begun.append(moment if event.kind in VISITS else self._begun[-1])

    def _see(self, moment: int, event: Event) -> None:
        if event.kind == "vector":
            found = [(event.index + offset, value) for offset, value in enumerate(event.values)]
        elif event.kind in ("read", "write", "atomic"):
            value = event.result if event.kind == "atomic" else event.value
            found = [(event.index, value)] if value is not None else []
        else:
            return
        cells = self._cells.setdefault(event.array, {})
        for index, value in found:
            cells.setdefault(index, []).append((moment, value))

    def event(self, moment: int) -> Event | None:
        """The event that happened last, or None at the start."""
        return self.trace.events[self.numbers[moment - 1]] if moment else None

    def stack(self, moment: int) -> tuple[int, ...]:
        """The frames that run, the innermost first, each by a number of its own."""
        found = []
        frame = self._frames[moment]
        while frame >= 0:
            found.append(frame)
            frame = self._parent[frame]
        return tuple(found)

    def function(self, frame: int) -> int:
        """The function of a frame: a number in the trace's table."""
        return self._function[frame]

    def line(self, moment: int) -> int:
        """The line that the innermost function stands at, or 0."""
        frame = self._frames[moment]
        return self.line_of(frame, moment) if frame >= 0 else 0

    def line_of(self, frame: int, moment: int) -> int:
        """The line that a frame stands at."""
        told = self._lines[frame]
        return told[bisect_right(told, moment, key=lambda pair: pair[0]) - 1][1]

    def told(self, frame: int, moment: int) -> list[str]:
        """A frame's variables, the one that changed last at the end."""
        found = []
        for place, (name, told) in enumerate(self._told[frame].items()):
            at = bisect_right(told, moment, key=lambda pair: pair[0])
            if at:
                found.append((told[at - 1][0], -place, name))
        return [name for _, _, name in sorted(found)]

    def variables(self, moment: int, frame: int | None = None) -> dict[str, Value]:
        """The variables of a frame (by default the innermost) in the order in which it first had them."""
        frame = self._frames[moment] if frame is None else frame
        if frame < 0:
            return {}
        found = {}
        for name, told in self._told[frame].items():
            value = _latest(told, moment)
            if value is not None:
                found[name] = value
        return found

    def variable(self, moment: int, name: str) -> Value | None:
        """A variable of the innermost frame that has it, or None."""
        for frame in self.stack(moment):
            value = _latest(self._told[frame].get(name, []), moment)
            if value is not None:
                return value
        return None

    def ever(self, name: str) -> Value | None:
        """The first value that a variable has in any function, or None."""
        told = (pair for frame in self._told for pair in frame.get(name, []))
        return next((value for _, value in told if value is not None), None)

    def cells(self, moment: int, array: int) -> dict[int, tuple[int, Value]]:
        """An array's elements as this thread last saw them, each with the event (a number in the trace) of that.

        What was never seen is missing, and so is what a local array held before it was made anew.
        """
        made = self._made.get(array, [])
        anew = bisect_right(made, moment)
        since = made[anew - 1] if anew else 0
        found = {}
        for index, told in self._cells.get(array, {}).items():
            at = bisect_right(told, moment, key=lambda pair: pair[0])
            if at and told[at - 1][0] >= since:
                found[index] = self.numbers[told[at - 1][0] - 1], told[at - 1][1]
        return found

    def changed(self, moment: int) -> tuple[str, ...]:
        """The innermost frame's variables that its last line changed."""
        event = self.event(self._begun[moment])
        if event is None or self._frames[self._begun[moment]] != self._frames[moment]:
            return ()
        return tuple(name for name, value in event.changed if value is not None)

    def begun(self, moment: int) -> int:
        """The moment of the last line or call, at or before this one; 0 before the first."""
        return self._begun[moment]

    def spot(self, moment: int) -> Spot | None:
        """Which visit the moment belongs to, or None before the first."""
        event = self.event(self._begun[moment])
        return None if event is None else (event.kind, event.function, event.line)

    def nth(self, moment: int) -> int:
        """How many visits of the same spot the thread has begun, this one included."""
        spot = self.spot(moment)
        return 0 if spot is None else bisect_right(self._visits[spot], moment)

    def visit(self, spot: Spot, nth: int) -> int | None:
        """The moment at which the `nth` visit (from 1) of a spot begins, or None."""
        found = self._visits.get(spot, [])
        return found[nth - 1] if nth <= len(found) else None

    def visits(self, spot: Spot) -> int:
        """How often the thread comes to a spot in all."""
        return len(self._visits.get(spot, []))


def _latest(told: list[tuple[int, Value | None]], moment: int) -> Value | None:
    at = bisect_right(told, moment, key=lambda pair: pair[0])
    return told[at - 1][1] if at else None


def in_lockstep(focus: History, moment: int, other: History) -> int | None:
    """The moment of another thread that belongs to one of the focused thread's: the same visit of the same line.

    As many events behind its line as the focused thread is, but not into its next line. None where it never comes.
    """
    spot = focus.spot(moment)
    if spot is None:
        return 0
    start = other.visit(spot, focus.nth(moment))
    if start is None:
        return None
    here = start
    for _ in range(moment - focus.begun(moment)):
        if here == len(other) or other.begun(here + 1) != start:
            break
        here += 1
    return here
