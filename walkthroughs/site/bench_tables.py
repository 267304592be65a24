"""The benchmark's tables as HTML: all cells of a set side by side, and each cell whole, folded away."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from kernels.tuned.bench_record import LIMIT, MEASURED, PEER, Cell, Row
from kernels.tuned.bench_text import shape, size
from kernels.tuned.goals import figure

from .bench_svg import OURS

NONE = "–"
HEAD = ("", "µs", "least to most", "TB/s", "of the limit", "the ring is", "error", "registers", "local bytes")


def table(head: Sequence[str], rows: Iterable[Sequence[str]], kind: str = "") -> str:
    """A table of HTML cells; the first of a row is its heading. `kind`: a class of the box around it."""
    top = "".join(f'<th scope="col">{cell}</th>' if cell else "<td></td>" for cell in head)
    body = "".join(
        f'<tr><th scope="row">{row[0]}</th>{"".join(f"<td>{cell}</td>" for cell in row[1:])}</tr>' for row in rows
    )
    return (
        f'<div class="pw-bench {kind}" data-search-exclude><table><thead><tr>{top}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
    )


def overview(cells: Sequence[Cell]) -> str:
    """Microseconds and TB/s: a row a kernel and a column a cell, or the other way where the cells are more."""
    kernels: dict[str, Row] = {}
    for cell in cells:
        for row in (cell.limit, *cell.rows):
            if row:
                kernels.setdefault(row.who, row)
    grid = {(cell.id, row.who): said(row) for cell in cells for row in (cell.limit, *cell.rows) if row}
    names = {who: title(row) for who, row in kernels.items()}
    heads = {cell.id: f"{escape(cell.name or shape(cell))}<small>{escape(shape(cell))}</small>" for cell in cells}
    if len(cells) > len(kernels):
        rows = [[heads[cell.id], *(grid.get((cell.id, who), NONE) for who in kernels)] for cell in cells]
        return table(["", *names.values()], rows)
    rows = [[names[who], *(grid.get((cell.id, who), NONE) for cell in cells)] for who in kernels]
    return table(["", *heads.values()], rows)


def title(row: Row) -> str:
    """A kernel's name: the last rung bold, the limit in italics."""
    words = escape(row.title)
    return f"<b>{words}</b>" if row.who == OURS else f"<i>{words}</i>" if row.kind == LIMIT else words


def said(row: Row) -> str:
    """A row in short: the time and the speed, or why there is none."""
    if row.state != MEASURED or row.us is None:
        return f'<span title="{escape(row.reason)}">{escape(row.state)}</span>'
    speed = f"<small>{row.tbs:.2f}</small>" if row.tbs is not None else ""
    return f"<b>{number(row.us)}</b>{speed}" if row.who == OURS else f"{number(row.us)}{speed}"


def whole(cell: Cell) -> str:
    """One cell, folded: the limit, then every rung and every peer, and what is behind each number."""
    moved = f", {size(cell.moved)}, {cell.sets} sets of inputs in turn" if cell.moved else ""
    words = ": ".join(part for part in (cell.name, shape(cell)) if part)
    rows = [_row(cell, row) for row in (cell.limit, *cell.rows) if row]
    head = f"<summary>{escape(words + moved)}</summary>"
    return f'<details class="pw-bench-cell">{head}{table(HEAD, rows)}{_tries(cell)}</details>'


def _row(cell: Cell, row: Row) -> list[str]:
    if row.state != MEASURED or row.us is None:
        return [title(row), escape(row.state), escape(row.reason), *[""] * (len(HEAD) - 3)]
    ratio = cell.ratio(OURS, row.who) if row.kind == PEER else None
    return [
        title(row), number(row.us), f"{number(row.least or row.us)} to {number(row.most or row.us)}",
        NONE if row.tbs is None else f"{row.tbs:.2f}",
        NONE if row.share is None else f"{100 * row.share:.1f} %",
        NONE if ratio is None else f"{figure(ratio)} times as fast",
        NONE if row.error is None else f"{row.error:.1e}",
        NONE if row.registers is None else str(row.registers),
        NONE if row.local_bytes is None else str(row.local_bytes),
    ]  # fmt: skip


def _tries(cell: Cell) -> str:
    """The plans that were tried, where the best of several counts; and where fewer sets took turns."""
    out = ""
    for row in cell.rows:
        if row.sets:
            out += f"<p>{escape(row.title)}: only {row.sets} sets of inputs took turns, it keeps much for each.</p>"
        if len(row.tries) > 1:
            each = (
                f"{_plan(plan)}: {number(plan['us']) if plan['us'] else escape(str(plan.get('reason', NONE)))}"
                f"{' (the best)' if plan['best'] else ''}"
                for plan in row.tries
            )
            out += f"<p>{escape(row.title)}, µs by its plan: {'; '.join(each)}.</p>"
    return out


def _plan(plan: dict[str, object]) -> str:
    parts = [f"{plan['splits']} splits", f"{plan['warps']} warps", f"depth {plan['depth']}"]
    return ", ".join([*parts, *(["balanced"] if plan.get("balance") else [])])


def number(us: float) -> str:
    """Microseconds to three digits or more."""
    return f"{us:,.0f}" if us >= 1000 else f"{us:.0f}" if us >= 100 else f"{us:.1f}" if us >= 10 else f"{us:.2f}"
