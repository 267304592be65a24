"""What the last rung was to reach, and what the record says of each: reached, missed, or not measured.

Ratios are of two rows of one cell, so of one run. A goal over several cells names each of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from kernels.tuned import shapes
from kernels.tuned.bench_record import WRONG, Cell, Record
from kernels.tuned.shapes import Shape

OURS = "ring"
FLASHINFER, VLLM_V1, VLLM_V2 = "flashinfer-tc", "vllm-v1", "vllm-v2"
V1, V2 = "classic-v1", "classic-v2"
DENSE = ("flash-attn", "cudnn")
"""Ids of peers that may be brought: FlashAttention's and cuDNN's paged decode."""
REACHED, MISSED, OPEN = "reached", "missed", "not measured"
SLOW_TBS = 3.7
TIMES, SHARE, MICROSECONDS = "times as fast", "of the limit", "µs"


@dataclass(frozen=True)
class Item:
    """One cell of a goal: what it showed (None: not measured) and what it had to. `below`: less is better."""

    cell: str
    name: str
    value: float | None
    need: float
    below: bool = False

    @property
    def reached(self) -> bool | None:
        """None where nothing was measured."""
        if self.value is None:
            return None
        return self.value <= self.need if self.below else self.value >= self.need


@dataclass(frozen=True)
class Goal:
    """`asked`: in words; `unit` of the values; `enough`: the part of the measured cells that must reach theirs."""

    id: str
    asked: str
    unit: str
    items: tuple[Item, ...]
    enough: float = 1.0

    @property
    def known(self) -> tuple[Item, ...]:
        """The cells that were measured."""
        return tuple(item for item in self.items if item.value is not None)

    @property
    def won(self) -> int:
        """How many of them reached what they had to."""
        return sum(bool(item.reached) for item in self.known)

    @property
    def state(self) -> str:
        """Not measured as long as a cell is open, unless enough cannot be reached any more."""
        if not self.known:
            return OPEN
        if self.enough == 1.0 and self.won == len(self.known) < len(self.items):
            return OPEN
        return REACHED if self.won >= self.enough * len(self.known) else MISSED

    @property
    def measured(self) -> str:
        """The values in words: the span, and how many cells reached theirs."""
        values = sorted(item.value for item in self.known if item.value is not None)
        if not values:
            return OPEN
        low, high = figure(values[0]), figure(values[-1])
        span = low if low == high else f"{low} to {high}"
        count = f"; {self.won} of {len(self.known)}" if len(self.items) > 1 else ""
        left = len(self.items) - len(self.known)
        return f"{span} {self.unit}{count}{f'; {left} not measured' if left else ''}"


def figure(value: float) -> str:
    """Three digits where they matter: a value just below one must not read as one."""
    if 0.995 <= value < 1.005 and value != 1:
        return f"{value:.3f}"
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def goals(record: Record) -> tuple[Goal, ...]:
    """Every goal, by what the record holds."""
    known = record.cells()
    facts = [_cell(known, shape) for shape in shapes.FACTS]
    mixed = [_cell(known, shape) for shape in shapes.mixed()]
    matrix = list(record.sets["matrix"].cells) if "matrix" in record.sets else []
    four = [_cell(known, shape) for shape in shapes.FOUR]
    return (
        Goal("facts", "FlashInfer with tensor cores: at least as fast on each of the eight shapes", TIMES,
             _ratios(facts, FLASHINFER, 1.0)),
        Goal("matrix", "the same on at least 90 % of the matrix", TIMES, _ratios(matrix, FLASHINFER, 1.0), 0.9),
        Goal("slow", f"at least 1.08 times where FlashInfer stays under {SLOW_TBS} TB/s", TIMES,
             _ratios([cell for cell in (*facts, *mixed) if _slow(cell)], FLASHINFER, 1.08)),
        Goal("vllm-v2", "vLLM's compiled v2: at least 5, 3.5, 3 and 3.5 times as fast on the four shapes", TIMES,
             tuple(_ratio(cell, VLLM_V2, need) for cell, need in zip(four, (5.0, 3.5, 3.0, 3.5), strict=True))),
        Goal("dense", "FlashAttention's and cuDNN's paged decode, where they can be brought: at least as fast", TIMES,
             tuple(_ratio(cell, who, 1.0) for who in DENSE for cell in facts if cell.row(who))),
        Goal("share-64", "batch 64 with 4 Ki tokens: at least 0.93 of reading alone", SHARE,
             _shares([_cell(known, shape) for shape in shapes.FOUR[:3]], 0.93)),
        Goal("share-one", "one sequence of 32 Ki tokens: at least 0.70 of reading alone", SHARE,
             _shares([_cell(known, shapes.ONE_LONG)], 0.70)),
        Goal("share-mixed", "mixed lengths: at least 0.88 of reading alone", SHARE, _shares(mixed, 0.88)),
        Goal("fp8", "fp8 cache at batch 64: at least 1.7 times as fast as bf16", TIMES, (_fp8(record),)),
        Goal("wide", "head size 256 and a group of 1: at least 0.90 of reading alone", SHARE,
             _shares([_cell(known, shapes.WIDE), _cell(known, shapes.GROUP_1)], 0.90)),
        Goal("group-16", "groups of 16: taken, and right", SHARE, _shares([_cell(known, shapes.GROUP_16)], 0.0)),
        Goal("queries", "query lengths 2 to 4: taken, and right", SHARE,
             _shares([_cell(known, shape) for shape in shapes.QUERIES], 0.0)),
        Goal("ports", "the ports of v1 and v2: within 1.5 times the time of vLLM's compiled kernels",
             "times their time", tuple(item for ours, theirs in ((V1, VLLM_V1), (V2, VLLM_V2))
                                       for item in _slower(four, ours, theirs, 1.5))),
        Goal("writer", "the writer, 8 Ki tokens: at least 0.85 of a copy of as many bytes", SHARE,
             (_share(known.get(shapes.WRITES[0].id) or _blank(shapes.WRITES[0]), 0.85, "writer"),)),
        Goal("index-put", "the writer: ahead of torch's index_put", TIMES,
             tuple(_ratio(known.get(shape.id) or _blank(shape), "torch-index-put", 1.0, "writer")
                   for shape in shapes.WRITES)),
        Goal("host", "the host's time for a call: under 10 µs", MICROSECONDS, (_host(record),)),
    )  # fmt: skip


def _cell(known: dict[str, Cell], shape: Shape) -> Cell:
    return known.get(shape.id) or _blank(shape)


def _blank(shape: Shape | shapes.WriteShape) -> Cell:
    return Cell(shape.id, shape.name, {}, 0, 0, None, ())


def _ratio(cell: Cell, slow: str, need: float, fast: str = OURS) -> Item:
    return Item(cell.id, cell.name, cell.ratio(fast, slow), need)


def _ratios(cells: Iterable[Cell], slow: str, need: float) -> tuple[Item, ...]:
    return tuple(_ratio(cell, slow, need) for cell in cells)


def _slower(cells: Iterable[Cell], ours: str, theirs: str, need: float) -> list[Item]:
    return [Item(cell.id, f"{ours}, {cell.name}", cell.ratio(theirs, ours), need, below=True) for cell in cells]


def _share(cell: Cell, need: float, who: str = OURS) -> Item:
    row = cell.row(who)
    return Item(cell.id, cell.name, row.share if row else None, need)


def _shares(cells: Iterable[Cell], need: float) -> tuple[Item, ...]:
    return tuple(_share(cell, need) for cell in cells)


def _slow(cell: Cell) -> bool:
    row = cell.row(FLASHINFER)
    return bool(row and row.tbs is not None and row.tbs < SLOW_TBS)


def _fp8(record: Record) -> Item:
    """Both from one run: the set of the goals holds the bf16 cell too."""
    made = record.sets.get("goals")
    found = {cell.id: cell.row(OURS) for cell in made.cells} if made else {}
    narrow, wide = found.get(shapes.FP8.id), found.get(shapes.LLAMA_8B.id)
    value = wide.us / narrow.us if narrow and wide and narrow.us and wide.us else None
    return Item(shapes.FP8.id, shapes.FP8.name, value, 1.7)


def _host(record: Record) -> Item:
    made = record.sets.get("host")
    row = made.cells[0].row("bound") if made and made.cells else None
    return Item("host", "a bound launch", row.us if row else None, 10.0, below=True)


def wrong(record: Record) -> list[tuple[str, str, str]]:
    """Rows whose output was wrong, as (cell, kernel, reason): there should be none of ours."""
    return [
        (cell.id, row.who, row.reason)
        for made in record.sets.values() for cell in made.cells for row in cell.rows if row.state == WRONG
    ]  # fmt: skip


def lines(record: Record) -> list[str]:
    """The goals for a terminal, one a line; the cells that missed theirs below."""
    out = []
    for goal in goals(record):
        out.append(f"{goal.state:12} {goal.asked}: {goal.measured}")
        out += [
            f"{'':14}{item.name or item.cell}: {figure(item.value)}, asked {figure(item.need)}"
            for item in goal.known if not item.reached and item.value is not None and len(goal.items) > 1
        ][:12]  # fmt: skip
    return out
