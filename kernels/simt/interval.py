"""The accesses of one barrier interval of one thread block, as columns of numbers.

A launch makes millions of accesses. Each is noted in a flat list, and only when a barrier opens, or the block
ends, are they turned into NumPy columns and looked at together: that keeps watching within a few times the
price of running.
"""

from __future__ import annotations

import bisect
import dis
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from types import CodeType
from typing import Any

import numpy as np
import numpy.typing as npt

from kernels.simt.access import ATOMIC, READ, WRITE, Memory, Observer
from kernels.simt.report import Triple, line_of
from kernels.simt.seen import SeenMachine
from kernels.simt.warp import WARP_SIZE, Lane, Warp

KINDS = (READ, WRITE, ATOMIC)
_KIND = {kind: number for number, kind in enumerate(KINDS)}
_FIELDS = 9
_CHUNK = _FIELDS * 100_000

Ints = npt.NDArray[np.int64]


_offsets: weakref.WeakKeyDictionary[CodeType, list[int]] = weakref.WeakKeyDictionary()


def _starts_of(code: CodeType) -> list[int]:
    """Where the instructions of a code object begin."""
    if code not in _offsets:
        _offsets[code] = [instruction.offset for instruction in dis.get_instructions(code)]
    return _offsets[code]


class Sites:
    """Numbers for the instructions of a launch, and their lines."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[int, int], int] = {}
        self._raw: dict[tuple[int, int], int] = {}
        self._known: list[tuple[CodeType, int]] = []

    def number(self, codes: list[CodeType], lastis: list[int]) -> Ints:
        """The number of each instruction."""
        packed = np.fromiter(map(id, codes), np.int64, len(codes)) << 14
        packed += np.asarray(lastis, np.int64)
        _, first, places = np.unique(packed, return_index=True, return_inverse=True)
        numbers = np.asarray([self._number(codes[row], lastis[row]) for row in first.tolist()], np.int64)
        found: Ints = numbers[places.reshape(-1)]
        return found

    def line(self, number: int) -> tuple[str, int]:
        """File and line of an instruction."""
        code, lasti = self._known[number]
        return code.co_filename, line_of(code, lasti)

    def _number(self, code: CodeType, lasti: int) -> int:
        raw = (id(code), lasti)
        if raw not in self._raw:
            self._raw[raw] = self._find(code, lasti)
        return self._raw[raw]

    def _find(self, code: CodeType, lasti: int) -> int:
        starts = _starts_of(code)
        # Once CPython has specialised an instruction, a call from it may show an offset inside its inline cache.
        lasti = starts[bisect.bisect_right(starts, lasti) - 1]
        key = (id(code), lasti)
        if key not in self._numbers:
            self._numbers[key] = len(self._known)
            self._known.append((code, lasti))  # the code is kept alive, so its id stays its own
        return self._numbers[key]


@dataclass(frozen=True, eq=False)
class Interval:
    """All accesses between two barriers, in the order in which the machine ran them; a row each.

    `kind` indexes KINDS, `memory` indexes the launch's `memories`; `index` and `count`: elements; `thread`: linear in
    the block; `clock`: how many warp operations of its warp had gone by; `site`: an instruction.
    """

    block: Triple
    epoch: int
    ordered: dict[int, dict[int, list[int]]]
    """For each warp, each warp operation that left some lanes out: what came before it, lane by lane."""
    fences: list[tuple[int, int]]
    """Every `threadfence`: its thread, and how many rows came before it."""
    kind: Ints
    memory: Ints
    index: Ints
    count: Ints
    thread: Ints
    clock: Ints
    site: Ints
    values: list[Any]

    def __len__(self) -> int:
        return len(self.values)

    @cached_property
    def warp(self) -> Ints:
        """The warp of each row."""
        return self.thread // WARP_SIZE

    @cached_property
    def occurrence(self) -> Ints:
        """How often this thread had been at this instruction since its warp's last operation.

        Lanes at the same instruction for the same time count as one warp instruction. A lane that skips a turn of
        a loop counts one turn less than its neighbours from there on.
        """
        return _nth(np.lexsort((self.thread, self.site, self.clock)), self.thread, self.site, self.clock)

    @cached_property
    def step(self) -> Ints:
        """How many accesses this thread had made since the barrier."""
        return _nth(np.argsort(self.thread, kind="stable"), self.thread)

    @cached_property
    def request(self) -> Ints:
        """A number for each warp instruction; the rows of its lanes share it."""
        keys = (self.warp, self.clock, self.site, self.occurrence)
        order = np.lexsort(keys)
        numbers = np.empty(len(order), np.int64)
        numbers[order] = np.cumsum(_starts(order, *keys)) - 1
        return numbers


def _joined(parts: Sequence[Any]) -> Any:
    if len(parts) == 1:
        return parts[0]
    return np.concatenate(parts) if isinstance(parts[0], np.ndarray) else [value for part in parts for value in part]


def _starts(order: Ints, *keys: Ints) -> npt.NDArray[np.bool_]:
    """Where, in this order, a row differs from the one before it in some key."""
    new = np.zeros(len(order), np.bool_)
    new[:1] = True
    for key in keys:
        column = key[order]
        new[1:] |= column[1:] != column[:-1]
    return new


def _nth(order: Ints, *keys: Ints) -> Ints:
    """For each row, how many rows with the same keys stand before it in this order."""
    new = _starts(order, *keys)
    places = np.arange(len(order), dtype=np.int64)
    found = np.empty(len(order), np.int64)
    found[order] = places - np.maximum.accumulate(np.where(new, places, 0))
    return found


class IntervalObserver(Observer):
    """Collects a launch's accesses and hands on each interval; subclasses take it in `interval`."""

    def __init__(self) -> None:
        self.sites = Sites()
        self.memories: list[Memory] = []
        self._numbers: dict[Memory, int] = {}
        self._log: list[Any] = []
        self._chunks: list[tuple[Any, ...]] = []
        self._clocks: list[int] = []
        self._knows: list[list[int] | None] = []
        self._ordered: dict[int, dict[int, list[int]]] = {}
        self._fences: list[tuple[int, int]] = []
        self._rows = 0
        self._given: dict[object, dict[int, list[int]]] = {}
        self._taken: dict[tuple[object, ...], int] = {}
        self._machine: SeenMachine | None = None
        self._block: Triple = (0, 0, 0)
        self._epoch = 0

    def interval(self, interval: Interval) -> None:
        """One interval is complete."""
        raise NotImplementedError

    def launch_start(self, machine: SeenMachine) -> None:
        """A launch begins."""
        self._machine = machine
        self._epoch = 0
        self._log, self._chunks = [], []
        self.memories.clear()
        self._numbers.clear()

    def block_start(self, number: int) -> None:
        """The block before is complete."""
        self.flush()
        assert self._machine is not None
        gx, gy, _ = self._machine.grid
        self._block = (number % gx, number // gx % gy, number // (gx * gy))
        self._epoch = 0

    def access(
        self, kind: str, memory: Memory, index: int, count: int, value: Any, lane: Lane, code: CodeType, lasti: int
    ) -> None:
        """Note it."""
        number = lane.number
        self._log += (kind, memory, index, count, value, number, self._clocks[number], code, lasti)
        if len(self._log) > _CHUNK:
            self._compact()

    def collective(self, warp: Warp, what: str, lanes: int) -> None:
        """From here on these lanes' accesses come after all that they did before."""
        first = warp.lanes[0].number
        clock = warp.clock = warp.clock + 1  # type: ignore[attr-defined]
        if lanes == warp.everyone:
            count = len(warp.lanes)
            self._clocks[first : first + count] = [clock] * count
            self._knows[first : first + count] = [None] * count
            return
        members = [lane for lane in range(len(warp.lanes)) if lanes >> lane & 1]
        # What each lane knows to be over: everything of another lane below this clock.
        known = [0] * len(warp.lanes)
        for lane in members:
            knows = self._knows[first + lane]
            floor = knows if knows is not None else [self._clocks[first + lane]] * len(known)
            known = [max(pair) for pair in zip(known, floor, strict=True)]
        for lane in members:
            known[lane] = clock
        for lane in members:
            self._clocks[first + lane] = clock
            self._knows[first + lane] = known
        self._ordered.setdefault(first // WARP_SIZE, {})[clock] = known

    def fence(self, lane: Lane) -> None:
        """Note it, and how many accesses came before."""
        self._fences.append((lane.number, self._rows + len(self._log) // _FIELDS))

    def give(self, key: object, lane: Lane) -> None:
        """Note what the lane knows to be over, itself included; what it does from here on is not."""
        known = self._floor(lane)
        known[lane.lid] = self._clocks[lane.number] + 1
        self._given.setdefault(key, {})[lane.number] = known
        self._advance(lane, known)

    def take(self, key: object, lane: Lane) -> None:
        """From here on the lane's accesses come after what was over for those of its warp who gave.

        Lanes that take the same and knew the same before stay together: they are one instruction.
        """
        warp = lane.number // WARP_SIZE
        known = self._floor(lane)
        for giver, theirs in self._given.get(key, {}).items():
            if giver // WARP_SIZE == warp:
                known = [max(pair) for pair in zip(known, theirs, strict=True)]
        same = (key, warp, *known)
        self._taken[same] = self._advance(lane, known, self._taken.get(same))

    def _floor(self, lane: Lane) -> list[int]:
        """For each lane of the warp: everything of it below this clock is over for `lane`."""
        knows = self._knows[lane.number]
        return list(knows) if knows is not None else [self._clocks[lane.number]] * len(lane.warp.lanes)

    def _advance(self, lane: Lane, known: list[int], clock: int | None = None) -> int:
        warp: Any = lane.warp
        if clock is None:
            clock = warp.clock = warp.clock + 1
        self._clocks[lane.number], self._knows[lane.number] = clock, known
        self._ordered.setdefault(lane.number // WARP_SIZE, {})[clock] = known
        return clock

    def barrier(self, epoch: int) -> None:
        """An interval is complete."""
        self.flush()
        self._epoch = epoch

    def launch_end(self, error: BaseException | None) -> None:
        """The last interval is complete, or was cut short."""
        self.flush()
        self._machine = None

    def flush(self) -> None:
        """Hand on what was noted, and start the next interval."""
        if self._log:
            self._compact()
        if self._chunks:
            columns: list[Any] = [_joined(parts) for parts in zip(*self._chunks, strict=True)]
            self._chunks = []
            self.interval(Interval(self._block, self._epoch, self._ordered, self._fences, *columns))
        self._ordered, self._fences, self._rows = {}, [], 0
        self._given.clear()
        self._taken.clear()
        machine = self._machine
        if machine is not None:
            threads = machine.block[0] * machine.block[1] * machine.block[2]
            self._clocks = [0] * threads
            self._knows = [None] * threads
            for warp in machine.warps:
                warp.clock = 0  # type: ignore[attr-defined]

    def _compact(self) -> None:
        log, self._log = self._log, []
        kinds, memories, index, count, values, thread, clock, codes, lastis = (log[k::_FIELDS] for k in range(_FIELDS))
        for memory in dict.fromkeys(memories):
            if memory not in self._numbers:
                self._numbers[memory] = len(self.memories)
                self.memories.append(memory)
        rows = len(kinds)
        self._rows += rows
        self._chunks.append(
            (
                np.fromiter(map(_KIND.__getitem__, kinds), np.int64, rows),
                np.fromiter(map(self._numbers.__getitem__, memories), np.int64, rows),
                np.fromiter(index, np.int64, rows),
                np.fromiter(count, np.int64, rows),
                np.fromiter(thread, np.int64, rows),
                np.fromiter(clock, np.int64, rows),
                self.sites.number(codes, lastis),
                values,
            )
        )
