"""The whole matrix as tables: batch down, context across; each cell says who was ahead and by how much."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

from kernels.tuned.bench_record import MEASURED, Cell, Row, Set
from kernels.tuned.bench_text import shape
from kernels.tuned.goals import figure

from .bench_svg import OURS, RIVAL
from .bench_tables import table
from .inline import plain
from .render import Stash

WON, LOST, EMPTY = "▲", "▽", "–"
HINT = (
    "How many times as fast the ring is as FlashInfer with tensor cores, and in small its TB/s. Columns: tokens of "
    "each sequence. ▲: the ring is ahead; ▽: it is behind; –: not part of the matrix, or too large for one card."
)


def lines(made: Set, stash: Stash) -> list[str]:
    """The tables, the count above them, the mixed lengths below."""
    ratios = [ratio for cell in made.cells if (ratio := cell.ratio(OURS, RIVAL)) is not None]
    won = sum(ratio >= 1 for ratio in ratios)
    out = [
        f"**Ahead on {won} of {len(ratios)} cells that both were measured on**, of {len(made.cells)} in all.",
        "",
        HINT,
        "",
    ]
    forms: dict[str, list[Cell]] = {}
    for cell in made.cells:
        forms.setdefault("" if len(cell.shape["context"]) > 1 else form(cell.shape), []).append(cell)
    for words, cells in forms.items():
        out += [f"**{words}**", "", stash(_grid(cells)), ""] if words else []
    return [*out, *_mixed(forms.get("", []), stash), *_open(made.cells)]


def form(data: dict[str, Any]) -> str:
    """What the cells of a table have in common, in words."""
    kind = {"auto": data["dtype"], "fp8_e4m3": "fp8 cache"}.get(data["kv_cache_dtype"], data["kv_cache_dtype"])
    heads = f"{data['heads']} query heads and {data['kv_heads']} KV heads of {data['head_size']}"
    return f"{heads}, blocks of {data['block_size']}, {kind}"


def _grid(cells: Sequence[Cell]) -> str:
    places = {(_batch(cell), cell.shape["context"][0][0]): cell for cell in cells}
    batches, contexts = (sorted({place[axis] for place in places}) for axis in (0, 1))
    rows = []
    for batch in batches:
        found = [places.get((batch, context)) for context in contexts]
        rows.append([f"batch {batch}", *(_said(cell) if cell else EMPTY for cell in found)])
    return table(["", *(f"{context:,}" for context in contexts)], rows, "pw-grid")


def _batch(cell: Cell) -> int:
    return sum(int(count) for _, count in cell.shape["context"])


def _said(cell: Cell) -> str:
    ours, ratio = cell.row(OURS), cell.ratio(OURS, RIVAL)
    if ours is None or ours.tbs is None:
        return escape(_state(cell, OURS))
    if ratio is None:
        return f"{ours.tbs:.2f} TB/s"
    return f"{WON if ratio >= 1 else LOST} <b>{figure(ratio)}</b><small>{ours.tbs:.2f}</small>"


def _mixed(cells: Sequence[Cell], stash: Stash) -> list[str]:
    if not cells:
        return []
    head = ["", "the ring against FlashInfer", "of the limit"]
    names = (f"{escape(cell.name)}<small>{escape(shape(cell))}</small>" for cell in cells)
    rows = [[name, _said(cell), _share(cell.row(OURS))] for name, cell in zip(names, cells, strict=True)]
    return ["**Mixed lengths**", "", stash(table(head, rows)), ""]


def _share(row: Row | None) -> str:
    return EMPTY if row is None or row.share is None else f"{100 * row.share:.0f} %"


def _state(cell: Cell, who: str) -> str:
    return next((row.state for row in cell.rows if row.who == who), "not measured")


def _open(cells: Sequence[Cell]) -> list[str]:
    """Why a cell has no ratio: each reason once, with its number of cells."""
    reasons: dict[str, int] = {}
    for cell in cells:
        for row in cell.rows:
            if row.who in (OURS, RIVAL) and row.state != MEASURED:
                said = f"{row.title}, {row.state}: {row.reason}"
                reasons[said] = reasons.get(said, 0) + 1
    return [f"* {count} cell{'' if count == 1 else 's'}: {plain(said)}" for said, count in reasons.items()]
