"""The memory view: what each kernel line asks of memory, a warp instruction at a time.

The lanes of a warp that run one load or store together make one request. Global memory answers it in sectors of 32
bytes, found by tag in lines of 128; shared memory serves 32 banks of 4 bytes, and lanes that want different words of
one bank wait for each other. Those counts are arithmetic on addresses: nothing here depends on a device.

Each array argument is taken to start on a 256-byte boundary, as memory from the driver does, and each shared array at
bank 0. Caches are not modelled: a sector that two requests touch counts twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from kernels.simt.access import Memory
from kernels.simt.interval import KINDS, Interval, Ints, Sites
from kernels.simt.report import show_line

SECTOR, LINE, WORD, BANKS = 32, 128, 4, 32
ENOUGH = 20_000


@dataclass
class Traffic:
    """What one line does to one array by reads, writes or atomics, summed over a launch.

    `requests`: warp instructions; `lanes`: accesses; `sizes`: bytes a lane, each size that occurred; `bytes`: distinct
    bytes of each request; for global memory `sectors` and `lines`, for shared memory `wavefronts` (a request without
    bank conflicts takes one) and `degree`, the most of any request.
    """

    space: str
    array: str
    kind: str
    file: str
    line: int
    requests: int = 0
    lanes: int = 0
    sizes: set[int] = field(default_factory=set)
    bytes: int = 0
    sectors: int = 0
    lines: int = 0
    wavefronts: int = 0
    degree: int = 0

    @property
    def where(self) -> str:
        """`path:line`."""
        return show_line(self.file, self.line)

    @property
    def sectors_per_request(self) -> float:
        """What ncu calls so; 1 for a broadcast, 4 for 32 neighbouring float32, 32 at worst (scalars)."""
        return self.sectors / self.requests if self.requests else 0.0

    @property
    def lines_per_request(self) -> float:
        """128-byte lines of a request."""
        return self.lines / self.requests if self.requests else 0.0

    @property
    def efficiency(self) -> float:
        """Of the bytes in the sectors that were moved, the part that some lane asked for: coalescing."""
        return self.bytes / (self.sectors * SECTOR) if self.sectors else 0.0


class MemoryView:
    """Adds up intervals; `rows` gives the table."""

    def __init__(self, sites: Sites) -> None:
        self.sites = sites
        self._traffic: dict[tuple[object, ...], Traffic] = {}
        self._waiting: list[tuple[Ints, ...]] = []
        self._requests = self._rows = 0  # in what waits

    @property
    def rows(self) -> list[Traffic]:
        """One row a line, array and kind of access, in the order of the lines."""
        return sorted(self._traffic.values(), key=lambda t: (t.space, t.file, t.line, t.array, t.kind))

    def total(self, space: str, *kinds: str) -> tuple[int, int]:
        """Requests and sectors of all rows of some kinds."""
        rows = [row for row in self._traffic.values() if row.space == space and row.kind in kinds]
        return sum(row.requests for row in rows), sum(row.sectors for row in rows)

    def interval(self, interval: Interval, memories: Sequence[Memory]) -> None:
        """Add one interval; small ones wait until they are worth the trouble, or for `flush`."""
        request = interval.request
        self._waiting.append(
            (request + self._requests, interval.memory, interval.kind, interval.site, interval.index, interval.count)
        )
        self._requests += int(request.max()) + 1
        self._rows += len(request)
        if self._rows > ENOUGH:
            self.flush(memories)

    def flush(self, memories: Sequence[Memory]) -> None:
        """Count what waits. The memories are those that the intervals since the last flush refer to."""
        if not self._waiting:
            return
        request, memory, kind, site, index, elements = (
            np.concatenate(part) for part in zip(*self._waiting, strict=True)
        )
        count, self._waiting, self._requests, self._rows = self._requests, [], 0, 0
        sizes = np.asarray([m.itemsize for m in memories], np.int64)[memory]
        first, wide = index * sizes, elements * sizes
        shared = np.asarray([m.space == "shared" for m in memories])[memory]
        outside, inside = np.flatnonzero(~shared), np.flatnonzero(shared)
        columns = (
            np.ones(count, np.int64),
            np.bincount(request, minlength=count),
            _distinct(request, first, wide, 1, count),
            _distinct(request[outside], first[outside], wide[outside], SECTOR, count),
            _distinct(request[outside], first[outside], wide[outside], LINE, count),
            _degrees(request[inside], first[inside], wide[inside], count),
        )
        # Every row of a request has the same site, memory and kind; any of them may stand for it.
        key = (site * len(memories) + memory) * len(KINDS) + kind
        sample = np.zeros(count, np.int64)
        sample[request] = key
        unique, group = np.unique(sample, return_inverse=True)
        sums = [np.bincount(group, column, len(unique)).astype(np.int64).tolist() for column in columns]
        worst = np.zeros(len(unique), np.int64)
        np.maximum.at(worst, group, columns[-1])
        seen: dict[int, set[int]] = {}
        for pair in np.unique(key * 256 + wide).tolist():
            seen.setdefault(pair // 256, set()).add(pair % 256)
        for number, packed in enumerate(unique.tolist()):
            rest, what = divmod(packed, len(KINDS))
            traffic = self._row(rest // len(memories), memories[rest % len(memories)], KINDS[what])
            requests, lanes, asked, sectors, lines, wavefronts = (column[number] for column in sums)
            traffic.requests += requests
            traffic.lanes += lanes
            traffic.bytes += asked
            traffic.sectors += sectors
            traffic.lines += lines
            traffic.wavefronts += wavefronts
            traffic.degree = max(traffic.degree, int(worst[number]))
            traffic.sizes |= seen[packed]

    def _row(self, site: int, memory: Memory, kind: str) -> Traffic:
        file, line = self.sites.line(site)
        key = (file, line, memory.space, memory.name, kind)
        if key not in self._traffic:
            self._traffic[key] = Traffic(memory.space, memory.name, kind, file, line)
        return self._traffic[key]


def _units(request: Ints, first: Ints, wide: Ints, unit: int) -> tuple[Ints, Ints]:
    """Each unit that each access touches: its request and its number."""
    low, high = first // unit, (first + wide - 1) // unit
    number = high - low + 1
    if (number == 1).all():
        return request, low
    rows = np.repeat(np.arange(len(low)), number)
    nth = np.arange(len(rows)) - np.repeat(np.cumsum(number) - number, number)
    return request[rows], low[rows] + nth


def _unique(request: Ints, unit: Ints) -> tuple[Ints, Ints]:
    """Each pair of request and unit once, sorted by both."""
    order = np.lexsort((unit, request))
    request, unit = request[order], unit[order]
    new = np.ones(len(order), np.bool_)
    new[1:] = (request[1:] != request[:-1]) | (unit[1:] != unit[:-1])
    return request[new], unit[new]


def _distinct(request: Ints, first: Ints, wide: Ints, unit: int, count: int) -> Ints:
    """How many different units of so many bytes each request touches."""
    return np.bincount(_unique(*_units(request, first, wide, unit))[0], minlength=count)


def _degrees(request: Ints, first: Ints, wide: Ints, count: int) -> Ints:
    """For each request the most different words that it wants of one bank; 0 where it touches none."""
    request, word = _unique(*_units(request, first, wide, WORD))
    found = np.zeros(count, np.int64)
    if len(request):
        bank, words = np.unique(request * BANKS + word % BANKS, return_counts=True)
        np.maximum.at(found, bank // BANKS, words)
    return found
