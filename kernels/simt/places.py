"""Numbers for the places in memory that a launch touches, so that accesses can be compared whatever array they name."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kernels.simt.access import Memory
from kernels.simt.interval import Ints


class Places:
    """Gives every byte that a launch can touch a number, so that two names of one place get the same."""

    def __init__(self) -> None:
        self._homes: dict[object, int] = {"global": 0}
        self._seen: tuple[Memory, ...] = ()
        self._mixed: set[Memory] = set()

    def base(self, memory: Memory) -> int:
        """The number of its first byte."""
        home = self._homes.setdefault(memory.home, len(self._homes))
        return home * (1 << 48) + memory.offset

    def keys(self, memories: Sequence[Memory], memory: Ints, index: Ints, count: Ints) -> tuple[Ints, Ints]:
        """For each access the places that it touches: row numbers, and the place of each."""
        if tuple(memories) != self._seen:
            self._seen = tuple(memories)
            self._mixed = _mixed(memories)
        size = np.asarray([m.itemsize for m in memories], np.int64)[memory]
        start = np.asarray([self.base(m) for m in memories], np.int64)[memory] + index * size
        by_byte = np.asarray([m in self._mixed for m in memories])[memory]
        number = np.where(by_byte, count * size, count)
        if (number == 1).all():
            return np.arange(len(start)), start
        rows = np.repeat(np.arange(len(start)), number)
        nth = np.arange(len(rows)) - np.repeat(np.cumsum(number) - number, number)
        return rows, start[rows] + nth * np.where(by_byte, 1, size)[rows]


def _mixed(memories: Sequence[Memory]) -> set[Memory]:
    """Memories that overlap another one with elements that do not line up: those must be compared by bytes."""
    found = set()
    for one in memories:
        for other in memories:
            apart = other.offset - one.offset
            sizes = one.itemsize, other.itemsize
            if one.home == other.home and (sizes[0] != sizes[1] or apart % sizes[0]):
                ends = [m.offset + m.itemsize * int(np.prod(m.shape)) for m in (one, other)]
                if max(one.offset, other.offset) < min(ends):
                    found |= {one, other}
    return found
