"""Moving through a shot: a moment forward or back, to a line, to its next time, to a barrier.

The moves are those of the trace's own cursor, along the focused thread. A move answers with a remark for the reader
where it could not do what was asked, or did it another way; else with an empty text.
"""

from __future__ import annotations

from bisect import bisect_left
from pathlib import Path
from typing import TYPE_CHECKING

from kernels.simt.cursor import Cursor
from kernels.simt.record_thread import statements
from walkthroughs.digest import ROOT

if TYPE_CHECKING:
    from kernels.simt.trace import State
    from walkthroughs.stepper.shots import Shot


class Player:
    """A place in a shot. `moment` counts the focused thread's events that have happened."""

    def __init__(self, shot: Shot, moment: int = 0) -> None:
        self.shot = shot
        self.cursor = Cursor(shot.trace, shot.thread)
        self.go(moment)

    @property
    def moment(self) -> int:
        """0 is before the thread's first event."""
        return bisect_left(self.shot.history.numbers, self.cursor.at)

    @property
    def last(self) -> int:
        """The last moment."""
        return len(self.shot.history)

    @property
    def state(self) -> State:
        """Every traced thread at the trace's own time; it changes with the next move."""
        return self.cursor.state

    def go(self, moment: int) -> str:
        """To a moment, or the nearest that there is."""
        moment = min(max(moment, 0), self.last)
        self.cursor.to(self.shot.history.numbers[moment - 1] + 1 if moment else 0)
        return ""

    def forward(self) -> str:
        """One moment on."""
        return "" if self.cursor.forward() else "This is the end of the run. Home goes back to its start."

    def backward(self) -> str:
        """One moment back."""
        return "" if self.cursor.backward() else "This is the start of the run."

    def next_line(self) -> str:
        """To the next line, over the functions that this one calls."""
        return "" if self.cursor.next_line(over=True) else "No line comes after this one."

    def previous_line(self) -> str:
        """To the line before, over the functions that it called."""
        return "" if self.cursor.previous_line(over=True) else "No line comes before this one."

    def next_iteration(self, back: bool = False) -> str:
        """To the next (or last) time that the line here is about to run."""
        spot = self.shot.history.spot(self.moment)
        if spot is None:
            return "The kernel has not begun: step into it first."
        if self.cursor.next_time(back=back):
            return ""
        _, _, line = spot
        return f"Line {line} does not run {'before' if back else 'again after'} this moment."

    def next_barrier(self) -> str:
        """To where the thread next waits at a barrier."""
        return "" if self.cursor.next_barrier() else "No barrier comes after this moment."

    def run_to(self, line: int, file: str) -> str:
        """To the next time that a line is about to run; to its first time where there is no later one.

        A line inside a statement means the statement. A line that never runs means the next one that does.
        """
        history = self.shot.history
        wanted = self._runnable(line, file)
        if wanted is None:
            return f"No line from {line} on runs in this thread ({Path(file).name})."
        moments = sorted(self._moments(wanted, file))
        later = [moment for moment in moments if moment > self.moment]
        self.go(later[0] if later else moments[0])
        moved = "" if wanted in (line, self._statement(line, file)) else f"Line {line} does not run; {wanted} does. "
        back = "" if later else f"Line {wanted} does not run again: back to its first time. "
        assert history.line(self.moment) == wanted
        return (moved + back).strip()

    def _statement(self, line: int, file: str) -> int:
        return statements(str(ROOT / file)).get(line, (line, True))[0]

    def _runnable(self, line: int, file: str) -> int | None:
        first = self._statement(line, file)
        lines = self._visited(file)
        return first if first in lines else next((other for other in sorted(lines) if other >= line), None)

    def _visited(self, file: str) -> set[int]:
        trace, history = self.shot.trace, self.shot.history
        events = [trace.events[number] for number in history.numbers]
        return {e.line for e in events if e.kind == "line" and _file(self.shot, e.function) == file}

    def _moments(self, line: int, file: str) -> list[int]:
        numbers = self.shot.trace.visits(self.shot.thread, line, file)
        return [bisect_left(self.shot.history.numbers, number) + 1 for number in numbers]


def _file(shot: Shot, function: int) -> str:
    return shot.trace.files[shot.trace.functions[function].file].path
