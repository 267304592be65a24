"""The sanitizers, all at once: races, faults, bank conflicts and the memory view of whatever a launch does.

    watch = Sanitizer()
    with watch:
        classic_v1.paged_attention_v1(..., backend=Backend("sim", observers=(watch,)))
    print(*watch.races, *watch.faults)

A fault (an index out of bounds, an uninitialised read, a misaligned vector, a barrier or a warp operation that not
all reach) ends the launch; what was found until then stays. An uninitialised read of shared memory ends it at the next
barrier only: what looks like one is most often a race, and the other side of it must get its turn to be seen.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from types import CodeType, TracebackType
from typing import Any

from kernels.simt.access import READ, WRITE, Memory
from kernels.simt.interval import Interval, IntervalObserver
from kernels.simt.memview import MemoryView, Traffic
from kernels.simt.race import Race, RaceFinder
from kernels.simt.report import BadLaunch, NotModelled, OutsideLaunch, Place, SimtError, UninitialisedRead, line_of
from kernels.simt.seen import SeenMachine
from kernels.simt.warp import Lane


@dataclass(frozen=True)
class Fault:
    """What ended a launch. `kind`: out of bounds, uninitialised read, misaligned, barrier divergence, ..."""

    kind: str
    message: str
    place: Place | None
    """The line, thread and block; None where several threads have part in it: the message has them."""

    @staticmethod
    def of(error: SimtError) -> Fault:
        """The fault that an error of the machine tells of."""
        kind = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", type(error).__name__).lower()
        return Fault(kind, str(error), getattr(error, "place", None))


class Sanitizer(IntervalObserver):
    """An observer of one launch or several, and a context that turns the machine's errors into faults."""

    def __init__(self) -> None:
        super().__init__()
        self.faults: list[Fault] = []
        self.memory = MemoryView(self.sites)
        self._finder = RaceFinder(self.sites)
        self._unwritten: list[tuple[Memory, int, UninitialisedRead]] = []
        self._number = 0

    @property
    def races(self) -> list[Race]:
        """Every race, one a pair of lines."""
        return self._finder.races

    @property
    def clean(self) -> bool:
        """Whether neither a race nor a fault was found."""
        return not self.races and not self.faults

    @property
    def verdict(self) -> tuple[str, ...]:
        """The kinds of what was found, sorted: `race` and kinds of faults."""
        return tuple(sorted({fault.kind for fault in self.faults} | ({"race"} if self.races else set())))

    @property
    def bank_conflicts(self) -> list[Traffic]:
        """Shared accesses whose lanes wait for each other, the worst first: slow, and not wrong."""
        rows = [row for row in self.memory.rows if row.degree > 1]
        return sorted(rows, key=lambda row: -row.degree)

    def __enter__(self) -> Sanitizer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if isinstance(error, SimtError) and not isinstance(error, BadLaunch | NotModelled | OutsideLaunch):
            self.faults.append(Fault.of(error))
            return True
        return False

    def launch_start(self, machine: SeenMachine) -> None:
        """A launch begins."""
        super().launch_start(machine)
        self._finder.start(machine.grid != (1, 1, 1))
        for memory in machine.memories:
            self._numbers[memory] = len(self.memories)
            self.memories.append(memory)

    def block_start(self, number: int) -> None:
        """The block before is complete."""
        super().block_start(number)
        self._number = number

    def interval(self, interval: Interval) -> None:
        """Look at one interval."""
        racing = self._finder.interval(interval, self.memories, self._number)
        self.memory.interval(interval, self.memories)
        # Where another thread was about to write, the race says it better.
        unwritten = [e for m, index, e in self._unwritten if self._finder.place_of(m, index) not in racing]
        self._unwritten = []
        if unwritten:
            raise unwritten[0]

    def uninitialised(self, memory: Memory, index: int, shown: Any, lane: Lane, code: CodeType, lasti: int) -> Any:
        """Go on with zero until the next barrier, unless it is the thread's own memory."""
        assert self._machine is not None
        where = Place(
            self._machine.name,
            code.co_filename,
            line_of(code, lasti),
            (lane.x, lane.y, lane.z),
            self._block,
        )
        error = UninitialisedRead(memory.name, shown, where)
        if memory.space == "local":
            raise error
        self._unwritten.append((memory, index, error))
        return memory.dtype.type(0)

    def launch_end(self, error: BaseException | None) -> None:
        """Look at what is left, and at what lies between blocks."""
        try:
            super().launch_end(error)
        except UninitialisedRead as late:
            self.faults.append(Fault.of(late))
        self.memory.flush(self.memories)
        self._finder.finish(self.memories)


def coalescing(rows: Sequence[Traffic]) -> list[Traffic]:
    """Global reads and writes only, the least efficient first."""
    chosen = [row for row in rows if row.space == "global" and row.kind in (READ, WRITE)]
    return sorted(chosen, key=lambda row: row.efficiency)
