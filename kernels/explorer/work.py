"""What is said of one access: which thread makes it, what its whole warp asks memory for, and how that is found."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kernels.explorer.geometry import Geometry
from kernels.explorer.places import LAYOUTS, SECTOR, Layout, byte_of

WARP = 32


@dataclass(frozen=True)
class Point:
    """One element, looked at by one kernel: the sequence's table, the element, and its block."""

    geometry: Geometry
    table: Sequence[int]
    token: int
    head: int
    channel: int

    @property
    def logical(self) -> int:
        """The token's entry of the block table."""
        return self.token // self.geometry.block_size

    @property
    def offset(self) -> int:
        """The token's place in its block."""
        return self.token % self.geometry.block_size

    def byte(self, made: Layout, kind: str, head: int, offset: int, channel: int, logical: int = -1) -> int:
        """First byte of another element, of this block unless another entry of the table is named."""
        block = self.table[self.logical if logical < 0 else logical]
        return byte_of(made, self.geometry, block, head, offset, channel, kind)[1]


@dataclass(frozen=True)
class Step:
    """One line of the way to a lane: a name as the kernel has it, how it is got, its value."""

    name: str
    how: str
    value: int


@dataclass(frozen=True)
class Lane:
    """What one lane asks for in the access: its first byte and how many."""

    first: int
    size: int


@dataclass(frozen=True)
class Load:
    """The access that moves one element: who makes it, and what all lanes of that warp ask for at the same time.

    `does`: loads or stores. `blocks`: the thread blocks that make it. `element`: the element's place in the vector of
    `vector` elements that the thread moves at once. `lanes`: 32 of them, None where a lane has nothing to do.
    `sectors`: how many 32-byte sectors the warp's access touches. Where no thread makes the access, `missing` says why
    and `thread` is -1.
    """

    layout: str
    kind: str
    does: str
    blocks: str
    thread: int
    warp: int
    lane: int
    vector: int
    element: int
    first: int
    size: int
    lanes: tuple[Lane | None, ...]
    sectors: int
    steps: tuple[Step, ...]
    missing: str = ""


Found = tuple[int, int] | None
"""First byte and number of bytes that a lane asks for."""


def finished(
    layout: str,
    kind: str,
    does: str,
    blocks: str,
    thread: int,
    vector: int,
    element: int,
    steps: Sequence[Step],
    of_lane: Callable[[int], Found],
) -> Load:
    """The Load of a thread, with what `of_lane` answers for each lane of its warp."""
    found = [of_lane(lane) for lane in range(WARP)]
    lanes = tuple(None if one is None else Lane(*one) for one in found)
    touched = {
        sector
        for lane in lanes
        if lane is not None
        for sector in range(lane.first // SECTOR, (lane.first + lane.size - 1) // SECTOR + 1)
    }
    own = lanes[thread % WARP]
    assert own is not None
    return Load(
        layout, kind, does, blocks, thread, thread // WARP, thread % WARP, vector, element, own.first, own.size, lanes,
        len(touched), tuple(steps),
    )  # fmt: skip


def nobody(layout: str, kind: str, does: str, steps: Sequence[Step], why: str) -> Load:
    """The Load that no thread makes."""
    return Load(layout, kind, does, "", -1, -1, -1, 0, 0, -1, 0, (), 0, tuple(steps), why)


def homes(*names: str) -> tuple[tuple[Layout, str], ...]:
    """Layout and kind of every array of these layouts."""
    return tuple((LAYOUTS[name], kind) for name in names for kind in LAYOUTS[name].kinds)
