"""A place in a recorded trace, and the moves of a debugger: step, step back, to a line's nth time, to a barrier.

A move goes through keyframes where it is long, so a jump costs about as much as a few steps.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable

from kernels.simt.trace import KEYFRAMES, Event, State, Trace, TraceError


class Cursor:
    """A place in a trace, with the state there. Moves answer whether there was such a place; if not, nothing moves.

    `thread` (a number in `Trace.threads`): only its events are stops; None: every event is one.
    """

    def __init__(self, trace: Trace, thread: int | None = None) -> None:
        if thread is not None and not 0 <= thread < len(trace.threads):
            raise TraceError(f"thread = {thread}: the trace has {len(trace.threads)} threads")
        self.trace = trace
        self.thread = thread
        self._stops = range(len(trace)) if thread is None else trace.events_of(thread)
        self._state = trace.state(0)

    @property
    def at(self) -> int:
        """How many events have happened."""
        return self._state.at

    @property
    def event(self) -> Event | None:
        """The event that happened last, or None at the very start."""
        return self.trace.events[self.at - 1] if self.at else None

    @property
    def state(self) -> State:
        """The state here. It changes with the next move: copy what must stay."""
        return self._state

    def to(self, at: int) -> None:
        """Go to where `at` events have happened; raises TraceError outside 0 to len(trace)."""
        # Short ways forward need no keyframe.
        if self.at <= at <= min(self.at + KEYFRAMES, len(self.trace)):
            while self._state.at < at:
                self.trace.step(self._state)
        else:
            self._state = self.trace.state(at)

    def forward(self) -> bool:
        """To the next stop."""
        return self._to_stop(bisect_left(self._stops, self.at))

    def backward(self) -> bool:
        """To the stop before this one, or to the very start."""
        if self.at == 0:
            return False
        if not self._to_stop(self._before()):
            self.to(0)
        return True

    def next_line(self, over: bool = False) -> bool:
        """To the next line; `over`: not into functions that this line calls."""
        depth = self._depth()
        return self._seek(lambda e: e.kind == "line" and (not over or e.depth <= depth))

    def previous_line(self, over: bool = False) -> bool:
        """To the line before; `over`: not into functions that it called."""
        depth = self._depth()
        return self._seek(lambda e: e.kind == "line" and (not over or e.depth <= depth), back=True)

    def next_barrier(self) -> bool:
        """To where a thread next waits at a barrier."""
        return self._seek(lambda e: e.kind == "barrier")

    def to_line(self, line: int, nth: int = 1, file: str | None = None) -> bool:
        """To the `nth` time (from 1, from the start) that a line of the kernel's file, or of `file`, is about to run.

        Without a thread, of whichever thread runs it. Raises TraceError for nth below 1.
        """
        if nth < 1:
            raise TraceError(f"nth = {nth}: times count from 1")
        threads = range(len(self.trace.threads)) if self.thread is None else [self.thread]
        visits = sorted(n for thread in threads for n in self.trace.visits(thread, line, file))
        if nth > len(visits):
            return False
        self.to(visits[nth - 1] + 1)
        return True

    def next_time(self, back: bool = False) -> bool:
        """To the next (or last) time that the line here is about to run, in the same thread and function."""
        here = self.event
        if here is None or here.line == 0:
            return False
        spot = (here.thread, here.function, here.line)
        return self._seek(lambda e: e.kind == "line" and (e.thread, e.function, e.line) == spot, back=back)

    def to_barrier(self, interval: int) -> bool:
        """To where a thread waits at the barrier that ends an interval, counted from 0 in each block."""
        for number in self._stops:
            event = self.trace.events[number]
            if event.kind == "barrier" and event.interval == interval:
                self.to(number + 1)
                return True
        return False

    def _depth(self) -> int:
        if self.event is None:
            return 0
        # Stepping over from inside a call of this line counts from the call's own depth.
        return max(self.event.depth, 0)

    def _before(self) -> int:
        """Which stop lies before this place, or -1."""
        here = bisect_left(self._stops, self.at) - 1
        return here - 1 if here >= 0 and self._stops[here] == self.at - 1 else here

    def _seek(self, wanted: Callable[[Event], bool], back: bool = False) -> bool:
        places = range(self._before(), -1, -1) if back else range(bisect_left(self._stops, self.at), len(self._stops))
        for place in places:
            if wanted(self.trace.events[self._stops[place]]):
                return self._to_stop(place)
        return False

    def _to_stop(self, place: int) -> bool:
        if not 0 <= place < len(self._stops):
            return False
        self.to(self._stops[place] + 1)
        return True
