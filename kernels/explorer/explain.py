"""From (token, head, channel) to all that can be said of it: slot, places in every layout, lanes of one kernel."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kernels import layout as formulas
from kernels.errors import ArgumentError
from kernels.explorer.geometry import Geometry, check_point, check_table
from kernels.explorer.lanes import KERNELS, notes
from kernels.explorer.places import LAYOUTS, Place, place
from kernels.explorer.work import Load, Point, Step


@dataclass(frozen=True)
class Explained:
    """One element, explained. `head` is a KV head; `first_query_head` to `last_query_head` read it.

    `steps` lead from the token to its slot; `places` has one entry for each layout and kind, `loads` one for each
    array that the kernel touches.
    """

    kernel: str
    token: int
    head: int
    channel: int
    first_query_head: int
    last_query_head: int
    logical: int
    block: int
    offset: int
    slot: int
    steps: tuple[Step, ...]
    places: tuple[Place, ...]
    loads: tuple[Load, ...]
    notes: tuple[str, ...]

    def place(self, layout: str, kind: str = "") -> Place:
        """The place in a layout; of one that holds both, that of K unless `kind` says V. Raises ArgumentError."""
        for found in self.places:
            if found.layout == layout and kind in ("", found.kind):
                return found
        raise ArgumentError(
            "layout", f"{layout} {kind}".strip(), f"must be {', '.join(LAYOUTS)}, and K or V as it holds"
        )


def explain(
    kernel: str, geometry: Geometry, block_table: Sequence[int], token: int, head: int, channel: int
) -> Explained:
    """Where K and V of a token's channel lie in every layout, and which thread of `kernel` moves them.

    block_table: the sequence's physical blocks in order. head: a KV head. Raises ArgumentError for a kernel, table or
    element that is not there, and for sizes that the kernel cannot work with.
    """
    if kernel not in KERNELS:
        raise ArgumentError("kernel", kernel, f"must be {', '.join(KERNELS)}")
    table = check_table(block_table, geometry)
    token, head, channel = check_point(geometry, table, token, head, channel)
    point = Point(geometry, table, token, head, channel)
    size, logical = geometry.block_size, point.logical
    block, offset = table[logical], point.offset
    slot = formulas.slot(block, offset, size)
    steps = (
        Step("logical block", f"{token} // {size}", logical),
        Step("offset in the block", f"{token} % {size}", offset),
        Step("physical block", f"block_table[{logical}]", block),
        Step("slot", f"{block} * {size} + {offset}", slot),
    )
    places = tuple(
        place(made, geometry, table, token, head, channel, kind) for made in LAYOUTS.values() for kind in made.kinds
    )
    loads = KERNELS[kernel].loads(point)
    first = head * geometry.group
    return Explained(
        kernel, token, head, channel, first, first + geometry.group - 1, logical, block, offset, slot, steps, places,
        loads, notes(KERNELS[kernel], point),
    )  # fmt: skip
