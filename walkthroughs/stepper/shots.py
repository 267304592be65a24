"""A film as one thread sees it: the film's own recording, or a new one for another thread block or another warp."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from typing import TYPE_CHECKING

from walkthroughs.stepper.films import WARP, Film, record, record_threads
from walkthroughs.stepper.history import History

if TYPE_CHECKING:
    from kernels.simt.report import Triple
    from kernels.simt.trace import Trace


class NoSuchPlace(ValueError):
    """A thread block or a thread that the film's launch does not have; the message says which there are."""


@dataclass(frozen=True, eq=False)
class Shot:
    """A trace of one block of a film's launch, and the thread in it that time runs along.

    `block` and `focus` are linear numbers: of the thread block in the grid, of the thread in the block.
    """

    film: Film
    trace: Trace = field(repr=False)
    block: int
    focus: int

    @cached_property
    def thread(self) -> int:
        """The focused thread's number in `trace.threads`."""
        return next(at for at, thread in enumerate(self.trace.threads) if thread.number == self.focus)

    @cached_property
    def histories(self) -> tuple[History, ...]:
        """Every traced thread's history, in the trace's order."""
        return tuple(History(self.trace, thread) for thread in range(len(self.trace.threads)))

    @property
    def history(self) -> History:
        """The focused thread's."""
        return self.histories[self.thread]

    @property
    def warp(self) -> int:
        """The focused thread's warp."""
        return self.focus // WARP

    @property
    def lanes(self) -> tuple[int, ...]:
        """The traced threads of that warp, as numbers in `trace.threads`, in the order of their lanes."""
        return tuple(at for at, thread in enumerate(self.trace.threads) if thread.number // WARP == self.warp)

    def moment_of(self, event: int) -> int:
        """The focused thread's first moment at which an event (a number in the trace) has happened."""
        return min(bisect_left(self.history.numbers, event) + 1, len(self.history))


def shoot(film: Film, block: int | None = None, focus: int | None = None) -> Shot:
    """Record a film for a block and a thread (linear numbers; by default the film's own).

    A memory of earlier recordings answers at once. Raises NoSuchPlace for one that the launch does not have.
    """
    block = film.block if block is None else block
    focus = film.focus if focus is None else focus
    if not 0 <= focus < film.num_threads:
        raise NoSuchPlace(f"thread {focus}: a thread block has {film.num_threads}, 0 to {film.num_threads - 1}")
    if block != film.block:
        grid = record(film).grid
        count = grid[0] * grid[1] * grid[2]
        if not 0 <= block < count:
            raise NoSuchPlace(f"block {block}: the launch has {count}, 0 to {count - 1}")
    if focus in film.threads:
        trace = record(film if block == film.block else replace(film, block=block))
    else:
        trace = _of_warp(film, block, focus // WARP)
    return Shot(film, trace, block, focus)


def place_of(block: int, grid: Triple) -> Triple:
    """A linear block as (x, y, z)."""
    x, y, _ = grid
    return block % x, block // x % y, block // (x * y)


@cache
def _of_warp(film: Film, block: int, warp: int) -> Trace:
    """As the film, but with the 32 lanes of another warp, and the first lane of the rest."""
    lanes = range(warp * WARP, min((warp + 1) * WARP, film.num_threads))
    threads = sorted({*lanes, *range(0, film.num_threads, WARP)})
    return record_threads(replace(film, block=block), threads)
