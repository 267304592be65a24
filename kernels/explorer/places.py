"""The cache layouts as axes, slowest first: an element's address is a sum of index times stride, and back by division.

Classic strides come from `kernels.layout`; those of the other layouts are products of the axes behind. Offsets count
elements from the start of that layout's own array, which is taken to lie on a 128-byte line.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kernels import layout as formulas
from kernels.errors import ArgumentError
from kernels.explorer.geometry import Geometry, check_table, within

SECTOR = 32
"""Bytes that global memory answers with at least."""
LINE = 128


@dataclass(frozen=True)
class Layout:
    """One cache array: `axes` slowest first, `kinds` what it holds (K, V or both)."""

    id: str
    title: str
    kinds: tuple[str, ...]
    axes: tuple[str, ...]


_NHD = ("block", "token", "head", "channel")
_HND = ("block", "head", "token", "channel")
LAYOUTS = {
    made.id: made
    for made in (
        Layout("classic-k", "Classic K, with x", ("K",), ("block", "head", "group", "token", "x")),
        Layout("classic-v", "Classic V", ("V",), ("block", "head", "channel", "token")),
        Layout("nhd-k", "NHD, K apart", ("K",), _NHD),
        Layout("nhd-v", "NHD, V apart", ("V",), _NHD),
        Layout("hnd-k", "HND, K apart", ("K",), _HND),
        Layout("hnd-v", "HND, V apart", ("V",), _HND),
        Layout("side-nhd", "NHD, K and V side by side", ("K", "V"), ("block", "token", "head", "kv", "channel")),
        Layout("side-hnd", "HND, K and V side by side", ("K", "V"), ("block", "head", "token", "kv", "channel")),
        Layout("tiny", "tiny-vllm", ("K", "V"), ("block", "kv", "token", "head", "channel")),
    )
}
SIZE_NAMES = {
    "head": "num_kv_heads",
    "token": "block_size",
    "group": "head_size / x",
    "x": "x",
    "channel": "head_size",
    "kv": "2",
}


@dataclass(frozen=True)
class Term:
    """One term of an address: `how` the index is got, times the stride that `factor` names."""

    axis: str
    how: str
    index: int
    factor: str
    stride: int
    product: int


@dataclass(frozen=True)
class Run:
    """How the channels of one token and head lie: so many pieces of so many bytes, that many bytes from start to start.

    `apart` is 0 where there is one piece.
    """

    pieces: int
    size: int
    apart: int


@dataclass(frozen=True)
class Place:
    """Where K or V of one element lies in a layout: element offset, its bytes, its 32-byte sector and 128-byte line."""

    layout: str
    kind: str
    terms: tuple[Term, ...]
    element: int
    first: int
    last: int
    sector: int
    in_sector: int
    line: int
    run: Run


@dataclass(frozen=True)
class Division:
    """One step back: `rest` elements divided by the stride give the axis's index."""

    axis: str
    rest: int
    stride: int
    index: int


@dataclass(frozen=True)
class Located:
    """What a byte belongs to. `token` and `logical` are None where the block is none of the sequence's."""

    layout: str
    kind: str
    token: int | None
    logical: int | None
    block: int
    offset: int
    slot: int
    head: int
    channel: int
    element: int
    inside: int
    divisions: tuple[Division, ...]


def layout_of(name: str) -> Layout:
    """The layout of that id; raises ArgumentError."""
    if name not in LAYOUTS:
        raise ArgumentError("layout", name, f"must be {', '.join(LAYOUTS)}")
    return LAYOUTS[name]


def sizes(geometry: Geometry) -> dict[str, int]:
    """How many places each axis has, blocks left out: their number is the pool's."""
    return {
        "head": geometry.num_kv_heads,
        "token": geometry.block_size,
        "group": geometry.head_size // geometry.x,
        "x": geometry.x,
        "channel": geometry.head_size,
        "kv": 2,
    }


def strides(made: Layout, geometry: Geometry) -> dict[str, int]:
    """Elements from one place to the next along each axis."""
    found, step, many = {}, 1, sizes(geometry)
    for axis in reversed(made.axes):
        found[axis] = step
        step *= many.get(axis, 1)
    if made.id.startswith("classic"):
        found["block"] = formulas.kv_block_stride(geometry.num_kv_heads, geometry.head_size, geometry.block_size)
        found["head"] = formulas.kv_head_stride(geometry.head_size, geometry.block_size)
    return found


def stride_name(made: Layout, axis: str) -> str:
    """A stride as the kernels call it, or as the sizes that it is the product of."""
    if made.id.startswith("classic") and axis in ("block", "head"):
        return f"kv_{axis}_stride"
    return " * ".join(SIZE_NAMES[later] for later in made.axes[made.axes.index(axis) + 1 :]) or "1"


def byte_of(
    made: Layout, geometry: Geometry, block: int, head: int, offset: int, channel: int, kind: str
) -> tuple[int, int]:
    """(element offset, first byte) of a channel in its physical block; nothing is checked."""
    group, inside = divmod(channel, geometry.x)
    at = {"block": block, "head": head, "token": offset, "channel": channel, "group": group, "x": inside}
    at["kv"] = int(kind == "V")
    element = sum(at[axis] * stride for axis, stride in strides(made, geometry).items())
    return element, element * geometry.itemsize


def place(
    made: Layout, geometry: Geometry, table: Sequence[int], token: int, head: int, channel: int, kind: str
) -> Place:
    """Where one element lies, with every term of its address; nothing is checked."""
    logical, offset = divmod(token, geometry.block_size)
    indices = {
        "block": (f"block_table[{logical}]", table[logical]),
        "head": (f"KV head {head}", head),
        "token": (f"{token} % {geometry.block_size}", offset),
        "group": (f"{channel} // {geometry.x}", channel // geometry.x),
        "x": (f"{channel} % {geometry.x}", channel % geometry.x),
        "channel": (f"channel {channel}", channel),
        "kv": ("K first" if kind == "K" else "V second", int(kind == "V")),
    }
    step = strides(made, geometry)
    terms = tuple(
        Term(axis, *indices[axis], stride_name(made, axis), step[axis], indices[axis][1] * step[axis])
        for axis in made.axes
    )
    element = sum(term.product for term in terms)
    first = element * geometry.itemsize
    last = first + geometry.itemsize - 1
    run = run_of(made, geometry)
    return Place(made.id, kind, terms, element, first, last, first // SECTOR, first % SECTOR, first // LINE, run)


def run_of(made: Layout, geometry: Geometry) -> Run:
    """How one token's channels of one head lie in memory."""
    whole = geometry.head_size * geometry.itemsize
    many, step = ("x", "group") if "x" in made.axes else ("channel", "channel")
    length = geometry.x if many == "x" else 1
    apart = strides(made, geometry)[step]
    if apart == length or length == geometry.head_size:
        return Run(1, whole, 0)
    return Run(geometry.head_size // length, length * geometry.itemsize, apart * geometry.itemsize)


def cache_bytes(name: str, geometry: Geometry, block_table: Sequence[int]) -> int:
    """Bytes of a layout's array that reaches to the largest block of the table. Raises ArgumentError."""
    made = layout_of(name)
    return (max(check_table(block_table, geometry)) + 1) * strides(made, geometry)["block"] * geometry.itemsize


def locate(name: str, geometry: Geometry, block_table: Sequence[int], byte: int) -> Located:
    """What byte number `byte` of a layout's array belongs to. Raises ArgumentError for a byte outside it."""
    made = layout_of(name)
    table = check_table(block_table, geometry)
    end = cache_bytes(name, geometry, table)
    byte = within("byte", byte, 0, end - 1, f": {max(table) + 1} blocks of {end // (max(table) + 1)} bytes")
    element, inside = divmod(byte, geometry.itemsize)
    at, rest, steps, divisions = {"kv": 0}, element, strides(made, geometry), []
    for axis in made.axes:
        at[axis], left = divmod(rest, steps[axis])
        divisions.append(Division(axis, rest, steps[axis], at[axis]))
        rest = left
    channel = at["channel"] if "channel" in at else at["group"] * geometry.x + at["x"]
    logical = table.index(at["block"]) if at["block"] in table else None
    token = None if logical is None else logical * geometry.block_size + at["token"]
    kind = made.kinds[at["kv"]]
    slot = formulas.slot(at["block"], at["token"], geometry.block_size)
    return Located(
        name, kind, token, logical, at["block"], at["token"], slot, at["head"], channel, element, inside,
        tuple(divisions),
    )  # fmt: skip
