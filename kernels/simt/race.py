"""Data races: two accesses to one place, at least one a write, that nothing puts in order.

The verdict follows from the order that a kernel's own text promises, never from the order in which the machine
happened to run: a racy kernel whose output is right is reported, under every schedule. What counts as order:

* between threads of one block: a block-wide barrier. Accesses in different barrier intervals are ordered.
* between lanes of one warp: also any warp operation (`syncwarp`, a shuffle, a vote) that both lanes take part in, and
  the barrier of a bulk copy for a lane that waited for it.
  CUDA promises *memory* order for `syncwarp` only; a shuffle or vote is taken as enough here, since both lanes are
  there at the same time.
* between blocks of one launch: an atomic operation of each on one place, with fences (see `signals`).

Two atomic operations never race. Lanes that run one instruction together do not race by reading, nor by writing equal
values; writing different values is a race, since any of them may stay. Everything else between lanes of one warp with
no warp operation between is a race too, also where today's hardware would run the lanes in step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import combinations_with_replacement
from typing import Any

import numpy as np

from kernels.simt.access import ATOMIC, READ, WRITE, Memory
from kernels.simt.interval import KINDS, Interval, Ints, Sites
from kernels.simt.places import Places
from kernels.simt.report import Triple, show_line, show_ranges
from kernels.simt.signals import Signals
from kernels.simt.warp import WARP_SIZE

BETWEEN_WARPS, BETWEEN_BLOCKS, WITHIN_WARP, ONE_INSTRUCTION = (
    "between warps",
    "between blocks",
    "within a warp",
    "in one instruction",
)
_READ, _WRITE, _ATOMIC = map(KINDS.index, (READ, WRITE, ATOMIC))


@dataclass(frozen=True)
class Access:
    """One side of a race: what a line does, and one thread that did it. `interval`: barriers gone by before it."""

    kind: str
    file: str
    line: int
    thread: int
    block: Triple
    interval: int

    @property
    def where(self) -> str:
        """`path:line`."""
        return show_line(self.file, self.line)

    def __str__(self) -> str:
        return f"{self.where} {self.kind}s (thread {self.thread}, block {self.block}, interval {self.interval})"


@dataclass
class Race:
    """Two lines that race on one array, with one example of it and how often it was found.

    `scope`: between warps, between blocks, within a warp, or in one instruction. `hazard`: read-after-write,
    write-after-read, write/write, or read/write where the program does not say which comes first. `pairs`: pairs of
    accesses; `elements`: places in the array; `threads`: those on the side of `first` and of `second`.
    """

    scope: str
    hazard: str
    space: str
    array: str
    element: str
    first: Access
    second: Access
    pairs: int = 0
    elements: set[int] = field(default_factory=set)
    threads: tuple[set[int], set[int]] = field(default_factory=lambda: (set(), set()))

    @property
    def lines(self) -> tuple[str, str]:
        """Both places, the lower one first."""
        one, other = sorted(((self.first.file, self.first.line), (self.second.file, self.second.line)))
        return show_line(*one), show_line(*other)

    def __str__(self) -> str:
        sides = [
            f"  {access}, {len(who)} thread{'s' * (len(who) > 1)}: {show_ranges(sorted(who))}"
            for access, who in zip((self.first, self.second), self.threads, strict=True)
        ]
        head = f"{self.hazard} race {self.scope}: {self.space} {self.element}, {self.pairs} pairs of accesses"
        return "\n".join([head, *sides])


@dataclass(frozen=True, eq=False)
class _Rows:
    """Accesses to one place each, with all that a report needs."""

    place: Ints
    kind: Ints
    memory: Ints
    site: Ints
    thread: Ints
    block: Ints
    epoch: Ints
    count: Ints
    row: Ints
    last: Ints

    def take(self, rows: Any) -> _Rows:
        return _Rows(*(getattr(self, name)[rows] for name in self.__dataclass_fields__))


class RaceFinder:
    """Looks at interval after interval of one launch; `races` after `finish`."""

    def __init__(self, sites: Sites) -> None:
        self.sites = sites
        self._found: dict[tuple[Any, ...], Race] = {}
        self._places = Places()
        self._globals: list[_Rows] = []
        self._blocks: dict[int, Triple] = {}
        self._signals = Signals()
        self._many_blocks = False

    @property
    def races(self) -> list[Race]:
        """What was found, one race a pair of lines, in the order of the lines."""
        return sorted(self._found.values(), key=lambda race: (race.lines, race.scope))

    def start(self, many_blocks: bool) -> None:
        """A launch begins."""
        self._many_blocks = many_blocks
        self._places = Places()
        self._globals.clear()
        self._blocks.clear()
        self._signals = Signals()

    def interval(self, interval: Interval, memories: Sequence[Memory], block: int) -> set[int]:
        """Find the races of one interval, and keep what other blocks may race with. Returns the places that race."""
        self._blocks[block] = interval.block
        rows, place = self._places.keys(memories, interval.memory, interval.index, interval.count)
        shared = np.asarray([m.space == "shared" for m in memories])
        if self._many_blocks:
            self._keep(interval, rows, place, ~shared[interval.memory[rows]], block)
        suspects = _suspects(place, interval.kind[rows], interval.thread[rows])
        racing = set()
        for chosen in suspects:
            if self._compare(interval, memories, [int(row) for row in rows[chosen]], int(place[chosen[0]])):
                racing.add(int(place[chosen[0]]))
        return racing

    def place_of(self, memory: Memory, index: int) -> int:
        """The place of an element."""
        return self._places.base(memory) + index * memory.itemsize

    def finish(self, memories: Sequence[Memory]) -> None:
        """The launch is over: find the races between its blocks."""
        if not self._globals:
            return
        parts, self._globals = self._globals, []
        names = list(_Rows.__dataclass_fields__)
        rows = _Rows(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))
        for chosen in _suspects(rows.place, rows.kind, rows.block):
            mine = rows.take(chosen)
            self._across(mine.take(self._signals.unordered(mine)) if self._signals else mine, memories)

    def _keep(self, interval: Interval, rows: Ints, place: Ints, wanted: Any, block: int) -> None:
        rows, place = rows[wanted], place[wanted]
        kind, site = interval.kind[rows], interval.site[rows]
        self._signals.note(interval, rows[kind == _ATOMIC], place[kind == _ATOMIC], block)
        if not len(rows):
            return
        # One row for each place, instruction and block: a launch may read millions of elements.
        order = np.lexsort((site, place))
        new = np.ones(len(order), np.bool_)
        new[1:] = (place[order][1:] != place[order][:-1]) | (site[order][1:] != site[order][:-1])
        first = order[new]
        count = np.diff(np.append(np.flatnonzero(new), len(order)))
        same = np.ones(len(first), np.int64)
        self._globals.append(
            _Rows(
                place[first],
                kind[first],
                interval.memory[rows][first],
                site[first],
                interval.thread[rows][first],
                same * block,
                same * interval.epoch,
                count,
                rows[first],
                rows[order[np.append(np.flatnonzero(new)[1:], len(order)) - 1]],
            )
        )

    def _compare(self, interval: Interval, memories: Sequence[Memory], rows: list[int], place: int) -> bool:
        """Find the races at one place in one interval."""
        kinds, sites, warps = interval.kind, interval.site, interval.warp
        groups: dict[tuple[int, int], dict[int, list[int]]] = {}
        for row in rows:
            groups.setdefault((int(sites[row]), int(kinds[row])), {}).setdefault(int(warps[row]), []).append(row)
        found = False
        for (one, ours), (other, theirs) in combinations_with_replacement(list(groups.items()), 2):
            if not _conflict(one[1], other[1]):
                continue
            same = one == other
            pairs = _apart(ours, theirs, same)
            if pairs:
                a, b = _two(ours, theirs)
                self._add(BETWEEN_WARPS, interval, memories, (a, b), pairs, place, _sides(ours, theirs))
                found = True
            for warp in ours.keys() & theirs.keys():
                for scope, marked in _in_warp(interval, memories, ours[warp], theirs[warp], same):
                    first, second = (
                        np.asarray(side)[marked.any(axis)] for side, axis in ((ours[warp], 1), (theirs[warp], 0))
                    )
                    row, column = (int(found) for found in np.argwhere(marked)[0])
                    example = ours[warp][row], theirs[warp][column]
                    sides = first.tolist(), second.tolist()
                    self._add(scope, interval, memories, example, int(marked.sum()), place, sides)
                    found = True
        return found

    def _add(
        self,
        scope: str,
        interval: Interval,
        memories: Sequence[Memory],
        pair: tuple[int, int],
        pairs: int,
        place: int,
        sides: tuple[list[int], list[int]],
    ) -> None:
        accesses = [
            Access(
                KINDS[interval.kind[row]],
                *self.sites.line(int(interval.site[row])),
                int(interval.thread[row]),
                interval.block,
                interval.epoch,
            )
            for row in pair
        ]
        steps = [int(interval.step[row]) for row in pair]
        threads = [[int(interval.thread[row]) for row in side] for side in sides]
        self._note(scope, memories[interval.memory[pair[0]]], accesses, steps, threads, pairs, place)

    def _across(self, rows: _Rows, memories: Sequence[Memory]) -> None:
        """Find the races between blocks at one place."""
        groups: dict[tuple[int, int], dict[int, list[int]]] = {}
        for row in range(len(rows.place)):
            key = int(rows.site[row]), int(rows.kind[row])
            groups.setdefault(key, {}).setdefault(int(rows.block[row]), []).append(row)
        for (one, ours), (other, theirs) in combinations_with_replacement(list(groups.items()), 2):
            if not _conflict(one[1], other[1]):
                continue
            counts = [{b: int(rows.count[found].sum()) for b, found in side.items()} for side in (ours, theirs)]
            pairs = _apart_counts(counts[0], counts[1], one == other)
            if not pairs:
                continue
            accesses = [
                Access(
                    KINDS[rows.kind[row]], *self.sites.line(int(rows.site[row])), int(rows.thread[row]),
                    self._blocks[int(rows.block[row])], int(rows.epoch[row]),
                )
                for row in _two(ours, theirs)
            ]  # fmt: skip
            threads = [[int(rows.thread[row]) for row in side] for side in _sides(ours, theirs)]
            memory = memories[rows.memory[0]]
            self._note(BETWEEN_BLOCKS, memory, accesses, [0, 0], threads, pairs, int(rows.place[0]))

    def _note(
        self,
        scope: str,
        memory: Memory,
        accesses: list[Access],
        steps: list[int],
        threads: list[list[int]],
        pairs: int,
        place: int,
    ) -> None:
        hazard, swap = _hazard(accesses, steps)
        if swap:
            accesses, threads = accesses[::-1], threads[::-1]
        one, other = accesses
        key = (scope, memory.space, memory.name, *sorted(((one.file, one.line), (other.file, other.line))))
        race = self._found.get(key)
        if race is None:
            element = memory.element((place - self._places.base(memory)) // memory.itemsize)
            race = self._found[key] = Race(scope, hazard, memory.space, memory.name, element, one, other)
        swapped = (one.kind, one.line) != (race.first.kind, race.first.line)
        race.pairs += pairs
        race.elements.add(place)
        for side, found in zip(race.threads, threads[::-1] if swapped else threads, strict=True):
            side.update(found)


def _suspects(place: Ints, kind: Ints, who: Ints) -> list[Ints]:
    """Rows of each place that several have touched and not all in the same harmless way."""
    if not len(place) or (kind == _READ).all():
        return []
    order = np.argsort(place, kind="stable")
    sorted_place = place[order]
    starts = np.flatnonzero(np.append(True, sorted_place[1:] != sorted_place[:-1]))
    who, kind = who[order], kind[order]
    several = np.minimum.reduceat(who, starts) != np.maximum.reduceat(who, starts)
    written = np.logical_or.reduceat(kind == _WRITE, starts)
    changed = np.logical_or.reduceat(kind == _ATOMIC, starts) & np.logical_or.reduceat(kind == _READ, starts)
    ends = np.append(starts[1:], len(order))
    return [order[starts[n] : ends[n]] for n in np.flatnonzero(several & (written | changed))]


def _conflict(one: int, other: int) -> bool:
    return {one, other} not in ({_READ}, {_ATOMIC})


def _hazard(accesses: list[Access], steps: list[int]) -> tuple[str, bool]:
    """What to call a race, and whether to swap its sides so that the earlier stands first.

    Earlier is the access that its thread reaches with fewer accesses since the barrier: a matter of the program,
    not of the schedule.
    """
    kinds = [access.kind for access in accesses]
    late = steps[0] > steps[1]
    if READ not in kinds:
        name = "write/write" if ATOMIC not in kinds else "atomic/write"
        return name, late
    change = "write" if WRITE in kinds else "atomic"
    if steps[0] == steps[1]:
        return f"read/{change}", kinds[1] == READ
    return (f"{change}-after-read" if (kinds[0] == READ) != late else f"read-after-{change}"), late


def _apart(ours: dict[int, list[int]], theirs: dict[int, list[int]], same: bool) -> int:
    counts = [{key: len(rows) for key, rows in side.items()} for side in (ours, theirs)]
    return _apart_counts(counts[0], counts[1], same)


def _apart_counts(ours: dict[int, int], theirs: dict[int, int], same: bool) -> int:
    """Pairs, one of each side, that differ in warp (or block); each counted once where both sides are the same."""
    everything = sum(ours.values()) * sum(theirs.values())
    together = sum(count * theirs.get(key, 0) for key, count in ours.items())
    return (everything - together) // (2 if same else 1)


def _two(ours: dict[int, list[int]], theirs: dict[int, list[int]]) -> tuple[int, int]:
    """An example: one row of each side, of different warps (or blocks)."""
    return next((a[0], b[0]) for key, a in ours.items() for other, b in theirs.items() if key != other)


def _sides(ours: dict[int, list[int]], theirs: dict[int, list[int]]) -> tuple[list[int], list[int]]:
    """The rows on each side that have a partner in another warp (or block)."""
    sides = [
        [row for key, rows in side.items() if other.keys() - {key} for row in rows]
        for side, other in ((ours, theirs), (theirs, ours))
    ]
    return sides[0], sides[1]


def _in_warp(
    interval: Interval, memories: Sequence[Memory], ours: list[int], theirs: list[int], same: bool
) -> list[tuple[str, Any]]:
    """The races of two sides within one warp: each scope that occurs, and which pairs, as a table of truth values."""
    rows = np.asarray(ours)[:, None], np.asarray(theirs)[None, :]
    thread, clock, request = (
        tuple(column[side] for side in rows) for column in (interval.thread, interval.clock, interval.request)
    )
    apart = thread[0] != thread[1]
    if same:
        apart = np.triu(apart, 1)  # each pair once
    unordered = apart & (clock[0] == clock[1])
    ordered = interval.ordered.get(int(thread[0][0, 0]) // WARP_SIZE)
    if ordered:
        for row, column in np.argwhere(apart & (clock[0] != clock[1])).tolist():
            unordered[row, column] = not _known(interval, ordered, ours[row], theirs[column])
    together = unordered & (request[0] == request[1])
    different = together
    if together.any():
        stored = [_stored(interval, memories, side) for side in (ours, theirs)]
        different = together & (np.asarray(stored[0])[:, None] != np.asarray(stored[1])[None, :])
    found = ((WITHIN_WARP, unordered & ~together), (ONE_INSTRUCTION, different))
    return [(scope, marked) for scope, marked in found if marked.any()]


def _known(interval: Interval, ordered: dict[int, list[int]], a: int, b: int) -> bool:
    """Whether the earlier of two accesses is over, for the lane of the later, by way of waits of some lanes only."""
    if interval.clock[a] > interval.clock[b]:
        a, b = b, a
    known = ordered.get(int(interval.clock[b]))
    return known is None or known[int(interval.thread[a]) % WARP_SIZE] > int(interval.clock[a])


def _stored(interval: Interval, memories: Sequence[Memory], rows: list[int]) -> list[str]:
    """The bytes that each write leaves in memory, so that equal values compare equal."""
    return [
        np.asarray(interval.values[row]).astype(memories[interval.memory[row]].dtype).tobytes().hex() for row in rows
    ]
