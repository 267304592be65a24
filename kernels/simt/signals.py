"""Order between the thread blocks of a launch: one signals by an atomic operation behind a fence, another hears it.

This is how a last block comes to merge what the others left. Each writes, fences and counts up; the one that finds
itself last fences, and reads. Between the threads of one block a barrier hands the order on, as fences allow.

An access is ordered before an access of another block if its block, after it and a `threadfence`, does an atomic
operation on a place where the other block does one later, which then has a `threadfence` and the other access. Between
an access and an atomic of different threads of a block stands a barrier, and the fence is of either.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from kernels.simt.access import WRITE
from kernels.simt.interval import KINDS, Interval, Ints

Moment = tuple[int, int]
"""Barriers gone by in the block, and the accesses that its threads had made since: when something was."""


@dataclass(frozen=True)
class Deed:
    """An access or atomic of one thread; `first` and `last`: the moments of the first and last of several alike."""

    block: int
    thread: int
    first: Moment
    last: Moment


class Signals:
    """Fences and atomics of one launch, as its intervals tell of them."""

    def __init__(self) -> None:
        self._fences: dict[tuple[int, int], list[Moment]] = {}
        self._sent: dict[int, list[Deed]] = {}

    def __bool__(self) -> bool:
        """Whether blocks could have signalled at all."""
        return bool(self._fences) and any(len(found) > 1 for found in self._sent.values())

    def note(self, interval: Interval, atomics: Ints, place: Ints, block: int) -> None:
        """Take the fences of an interval, and its atomics on global memory: rows, and the place of each."""
        for thread, mark in interval.fences:
            self._fences.setdefault((block, thread), []).append((interval.epoch, mark))
        for row, where in zip(atomics.tolist(), place.tolist(), strict=True):
            when = interval.epoch, row
            self._sent.setdefault(where, []).append(Deed(block, int(interval.thread[row]), when, when))

    def unordered(self, rows: Any) -> np.ndarray[Any, Any]:
        """Which of the rows (`race`'s, all of one place) race with one of another block."""
        columns = (rows.block, rows.thread, rows.epoch, rows.row, rows.last)
        deeds = [Deed(b, t, (e, row), (e, last)) for b, t, e, row, last in zip(*map(_numbers, columns), strict=True)]
        kinds, blocks = rows.kind, rows.block
        harmless = (kinds[:, None] == kinds[None, :]) & (kinds[:, None] != KINDS.index(WRITE))
        found = np.zeros(len(deeds), np.bool_)
        for one, other in np.argwhere(np.triu(~harmless & (blocks[:, None] != blocks[None, :]))).tolist():
            a, b = deeds[one], deeds[other]
            if not (self._before(a, b) or self._before(b, a)):
                found[one] = found[other] = True
        return found

    def _before(self, a: Deed, b: Deed) -> bool:
        for sent in self._sent.values():
            mine = [at for at, deed in enumerate(sent) if deed.block == a.block and self._released(a, deed)]
            if mine and any(deed.block == b.block and self._acquired(deed, b) for deed in sent[mine[0] + 1 :]):
                return True
        return False

    def _released(self, a: Deed, signal: Deed) -> bool:
        if a.thread == signal.thread:
            return self._fenced(a.block, a.thread, a.last, signal.first)
        return a.last[0] < signal.first[0] and (
            self._fenced(a.block, a.thread, a.last, (signal.first[0], 0))
            or self._fenced(a.block, signal.thread, (a.last[0] + 1, -1), signal.first)
        )

    def _acquired(self, signal: Deed, b: Deed) -> bool:
        if b.thread == signal.thread:
            return self._fenced(b.block, b.thread, signal.last, b.first)
        return signal.last[0] < b.first[0] and (
            self._fenced(b.block, b.thread, (signal.last[0] + 1, -1), b.first)
            or self._fenced(b.block, signal.thread, signal.last, (b.first[0], 0))
        )

    def _fenced(self, block: int, thread: int, after: Moment, before: Moment) -> bool:
        """Whether a thread fenced after one access and before another. A mark counts the accesses before the fence."""
        return any(after < mark <= before for mark in self._fences.get((block, thread), ()))


def _numbers(column: Ints) -> list[int]:
    found: list[int] = column.tolist()
    return found
