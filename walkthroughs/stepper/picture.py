"""The picture of a film at a moment: the block table, and the pool with the slots that the warp reads.

A slot is marked by who touches it: the focused thread now, another lane in lockstep, the warp at some earlier moment.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from walkthroughs.stepper.narrate import number

if TYPE_CHECKING:
    from kernels.simt.trace import Event
    from walkthroughs.stepper.history import History
    from walkthroughs.stepper.scenes import Pool
    from walkthroughs.stepper.shots import Shot

NOW, LANE, SEEN, MINE, FREE = "NLSm."
"""A slot: touched now, touched now by another lane, touched before, held by the sequence, or none of these."""
ACCESSES = ("read", "vector", "write", "atomic")
LENGTH = "seq_len"
Slot = tuple[int, int]
"""A physical block and a place in it."""


@dataclass(frozen=True)
class Entry:
    """An entry of the block table or the slot mapping. `at`: its place in its row.

    `used`: any traced thread reads it at some moment. `seen`: the focused one has read it. `now`: it reads it now.
    """

    index: int
    at: int
    text: str
    used: bool
    seen: bool
    now: bool


@dataclass(frozen=True)
class Table:
    """One row of the block table, or the whole slot mapping (`kind`: blocks or slots)."""

    name: str
    kind: str
    entries: tuple[Entry, ...]


@dataclass(frozen=True)
class Block:
    """A physical block: `logical` is its place in the traced sequence or None; `slots` has one mark for each token."""

    number: int
    logical: int | None
    slots: str


@dataclass(frozen=True)
class PoolPicture:
    """A pool. `now`: whether the last event touched it. `latest`: no other was touched since it was."""

    array: str
    blocks: tuple[Block, ...]
    now: bool
    latest: bool = False


class Stage:
    """The scene of a shot, ready to be drawn at any moment."""

    def __init__(self, shot: Shot) -> None:
        self.shot = shot
        self.scene = shot.film.scene
        names = {array.name: at for at, array in enumerate(shot.trace.arrays) if array.space == "global"}
        self._table = names.get(self.scene.table, -1)
        self._pools = {names[pool.array]: pool for pool in self.scene.pools if pool.array in names}

    def table(self, moment: int) -> Table | None:
        """The table with its entry that is read; None where the film has none."""
        if self._table < 0:
            return None
        data = self.shot.trace.arrays[self._table].data or ()
        event = self.shot.history.event(moment)
        now = event.index if event is not None and event.kind in ACCESSES and event.array == self._table else -1
        seen = self.shot.history.cells(moment, self._table)
        first, count = self.row
        entries = [
            Entry(index, index - first, number_of(data, index), index in self._read, index in seen, index == now)
            for index in range(first, min(first + count, len(data)))
        ]
        return Table(self.scene.table, self.scene.kind, tuple(entries))

    @cached_property
    def row(self) -> tuple[int, int]:
        """The first entry of the traced block's row and how many it has: that which its threads read."""
        first, count = self.scene.row
        if self._read and count and not first <= min(self._read) < first + count:
            first = min(self._read) - (min(self._read) - first) % count
        return first, count

    @cached_property
    def _read(self) -> frozenset[int]:
        found: set[int] = set()
        for history in self.shot.histories:
            found |= history.cells(len(history), self._table).keys()
        return frozenset(found)

    @cached_property
    def logical(self) -> Mapping[int, int]:
        """The traced sequence's physical blocks, each with its logical number."""
        if self._table < 0 or self.scene.kind != "blocks":
            return {}
        data = self.shot.trace.arrays[self._table].data or ()
        return {int(data[index]): index - self.row[0] for index in sorted(self._read) if index < len(data)}

    @cached_property
    def mine(self) -> frozenset[Slot]:
        """The slots that hold tokens of the traced sequence, or that the slot mapping names."""
        size = self.scene.block_size
        if self._table >= 0 and self.scene.kind == "slots":
            data = self.shot.trace.arrays[self._table].data or ()
            return frozenset(divmod(int(slot), size) for slot in data if slot >= 0)
        length = self.shot.history.ever(LENGTH)
        tokens = int(length.data) if length is not None and isinstance(length.data, int) else None
        return frozenset(
            (block, place)
            for block, logical in self.logical.items()
            for place in range(size)
            if tokens is None or logical * size + place < tokens
        )

    def pools(self, moment: int, lanes: Sequence[tuple[History, int | None]]) -> tuple[PoolPicture, ...]:
        """Every pool; `lanes` are the warp's threads, each with its moment in lockstep (None: masked off)."""
        event = self.shot.history.event(moment)
        kind = event.kind if event is not None and event.kind in ACCESSES else ""
        latest = self._latest(moment)
        found = []
        for array, pool in self._pools.items():
            touches = bool(kind) and event is not None and event.array == array
            now = set(slots_of(pool, event)) if touches and event is not None else set()
            others: set[Slot] = set()
            seen: set[Slot] = set()
            for history, at in lanes:
                if at is None:
                    continue
                other = history.event(at)
                if touches and other is not None and other.kind == kind and other.array == array:
                    others |= set(slots_of(pool, other))
                seen |= {slot for slot, first in self._first(history, array).items() if first <= at}
            marks = {**dict.fromkeys(self.mine, MINE), **dict.fromkeys(seen, SEEN), **dict.fromkeys(others, LANE)}
            blocks = self._blocks(pool, {**marks, **dict.fromkeys(now, NOW)})
            found.append(PoolPicture(pool.array, blocks, touches, array == latest))
        return tuple(found)

    def _latest(self, moment: int) -> int:
        """The pool that the focused thread touched last; the first one where it has touched none."""
        for back in range(moment, 0, -1):
            event = self.shot.history.event(back)
            if event is not None and event.kind in ACCESSES and event.array in self._pools:
                return event.array
        return next(iter(self._pools), -1)

    def _blocks(self, pool: Pool, marks: Mapping[Slot, str]) -> tuple[Block, ...]:
        size = next((size for name, size, _ in pool.axes if name == "token"), 0)
        return tuple(
            Block(block, self.logical.get(block), "".join(marks.get((block, place), FREE) for place in range(size)))
            for block in range(pool.blocks)
        )

    def _first(self, history: History, array: int) -> Mapping[Slot, int]:
        """The slots that a thread touches, each with the first moment of that."""
        known = self._firsts.setdefault(history.thread, {})
        if array not in known:
            known[array] = {}
            for moment in range(1, len(history) + 1):
                event = history.event(moment)
                if event is not None and event.kind in ACCESSES and event.array == array:
                    for slot in slots_of(self._pools[array], event):
                        known[array].setdefault(slot, moment)
        return known[array]

    @cached_property
    def _firsts(self) -> dict[int, dict[int, dict[Slot, int]]]:
        return {}


def slots_of(pool: Pool, event: Event | None) -> Iterable[Slot]:
    """The slots that an access touches."""
    if event is None:
        return
    for offset in range(len(event.values) if event.kind == "vector" else 1):
        where = pool.where(event.index + offset)
        yield where["block"], where.get("token", 0)


def number_of(data: Sequence[float], index: int) -> str:
    """An element of a table as text."""
    from kernels.simt.trace import Value

    return number(Value("", data[index]))
