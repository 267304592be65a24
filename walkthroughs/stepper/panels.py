"""What stands in the panes beside the code, made of plain views: values, lanes, memory, and a step's story.

Everything here is rich text of a given width, without a screen: the app shows it, tests read it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import ceil
from typing import TYPE_CHECKING

from rich.cells import cell_len
from rich.text import Text

from walkthroughs.stepper.palette import Palette
from walkthroughs.stepper.picture import FREE, LANE, MINE, NOW, SEEN

if TYPE_CHECKING:
    from walkthroughs.stepper.opening import Proof
    from walkthroughs.stepper.picture import PoolPicture, Table
    from walkthroughs.stepper.view import Lanes, Variable, View

SIGNS = {NOW: "█", LANE: "▓", SEEN: "▒", MINE: "░", FREE: "·"}
"""A slot of the pool: read now, read now by another lane, read before, of the sequence, other."""
GAP = 2


def apart(left: str, right: str, width: int) -> Text:
    """A line with something at both ends; the left end gives way."""
    line = Text(left)
    line.truncate(max(width - len(right) - GAP, 10), overflow="ellipsis", pad=True)
    line.append(f"{' ' * GAP}{right}")
    return line


def tabs(labels: Mapping[str, bool], caption: str, width: int, palette: Palette) -> Text:
    """A row of tabs, the active ones in reverse, and a caption behind them."""
    line = Text()
    for label, active in labels.items():
        line.append(f" {label} ", f"reverse {palette.title}" if active else palette.quiet)
        line.append(" ")
    line.append(f" {caption}", palette.quiet)
    line.truncate(width, overflow="ellipsis")
    return line


def values(view: View, width: int, palette: Palette) -> Text:
    """Where the thread stands, what runs along, what is watched, and the function's variables, the newest first."""
    out = Text()
    for call in reversed(view.stack):
        out.append("" if call is view.stack[-1] else " › ", palette.quiet)
        out.append(call.function, palette.title if call is view.stack[0] else palette.quiet)
    waits = "waits at a barrier, " if view.waits else ""
    out.append(f"  {waits}interval {view.interval}\n" if view.stack else "no function runs\n", palette.quiet)
    for label, rows in (("runs along", view.running), ("watched", view.watched)):
        if rows:
            out.append(f"{label}\n", palette.quiet)
            _columns(out, rows, width, palette)
    if view.stack:
        out.append("variables, the newest first\n" if view.variables else "no variables yet\n", palette.quiet)
        _columns(out, view.variables[::-1], width, palette)
    out.rstrip()
    return out


def _columns(out: Text, rows: Sequence[Variable], width: int, palette: Palette) -> None:
    """Short values in columns, long ones on lines of their own below."""
    cells = [_variable(row, palette) for row in rows]
    short = [cell for cell in cells if cell.cell_len <= (width - GAP) // 2]
    widest = max((cell.cell_len for cell in short), default=1)
    per_line = max(1, (width + GAP) // (widest + GAP))
    lines = ceil(len(short) / per_line)
    for line in range(lines):
        for cell in short[line::lines]:
            out.append_text(cell)
            out.append(" " * (widest + GAP - cell.cell_len))
        out.rstrip()
        out.append("\n")
    for cell in cells:
        if not any(cell is other for other in short):
            cell.truncate(width, overflow="ellipsis")
            out.append_text(cell)
            out.append("\n")


def _variable(row: Variable, palette: Palette) -> Text:
    cell = Text()
    cell.append("● " if row.changed else "  ", palette.mark)
    cell.append(row.name, palette.changed if row.changed else "")
    cell.append(" = ", palette.quiet)
    cell.append(row.text, palette.changed if row.changed else "")
    if row.was:
        cell.append(f"  was {row.was}", palette.quiet)
    return cell


def lanes(found: Lanes, thread: int, width: int, palette: Palette) -> Text:
    """The warp as a grid: a cell a lane, masked lanes as a dash, the focused one marked."""
    out = Text()
    out.append(found.title, palette.title)
    out.append(f"  warp {found.warp}, {found.active} of {len(found.cells)} in step\n", palette.quiet)
    widest = max((cell_len(cell.text) for cell in found.cells), default=1)
    label = 3
    per_line = next((n for n in (16, 8, 4, 2) if label + n * (widest + 1) <= width), 1)
    for start in range(0, len(found.cells), per_line):
        out.append(f"{start:2} ", palette.gutter)
        for cell in found.cells[start : start + per_line]:
            focused = cell.thread == thread
            text = f"{cell.text:>{widest}}"
            style = palette.now if focused else palette.quiet if not cell.active else ""
            out.append("▸" if focused else " ", palette.mark)
            out.append(text, style)
        out.append("\n")
    out.rstrip()
    return out


def memory(
    table: Table | None, pools: Sequence[PoolPicture], width: int, palette: Palette, height: int | None = None
) -> Text:
    """The block table or slot mapping, and the pools; only the one touched last where `height` lines are too few."""
    out = Text()
    if table is not None:
        _table(out, table, width, palette)
    if pools:
        whole = out.copy()
        _pools(whole, pools, width, palette)
        if height is not None and whole.plain.count("\n") > height and len(pools) > 1:
            _pools(out, [pool for pool in pools if pool.latest] or pools[:1], width, palette)
        else:
            out = whole
        out.append_text(legend(width, palette))
    if not out.plain:
        out.append("This kernel has no block table and no pool.", palette.quiet)
    out.rstrip()
    return out


def _table(out: Text, table: Table, width: int, palette: Palette) -> None:
    words = ("logical", "physical") if table.kind == "blocks" else ("token", "slot")
    widest = max((max(len(entry.text), len(str(entry.at))) for entry in table.entries), default=1)
    label = max(map(len, words)) + 1
    name = f"{table.name}  "
    if len(name) + label + len(table.entries) * (widest + 3) > width:
        name = ""
    per_line = max(1, (width - label - len(name)) // (widest + 3))
    for start in range(0, len(table.entries), per_line):
        row = table.entries[start : start + per_line]
        out.append(name if not start else " " * len(name), palette.title)
        out.append(f"{words[0]:<{label}}", palette.quiet)
        for entry in row:
            out.append(f" {entry.at:>{widest}}  ", palette.gutter)
        out.rstrip()
        out.append("\n" + " " * len(name))
        out.append(f"{words[1]:<{label}}", palette.quiet)
        for entry in row:
            left, right = ("[", "]") if entry.now else (" ", " ")
            style = palette.now if entry.now else palette.seen if entry.seen else "" if entry.used else palette.gutter
            out.append(f"{left}{entry.text:>{widest}}{right}", style)
            out.append(" ")
        out.rstrip()
        out.append("\n")


def _pools(out: Text, pools: Sequence[PoolPicture], width: int, palette: Palette) -> None:
    """Pools beside each other where there is room, else one below the other."""
    cells = [_blocks(pool, palette) for pool in pools]
    size = max(cell.cell_len for found in cells for cell in found)
    columns = max(1, (width + GAP) // (size + GAP))
    headings = [_heading(pool, palette) for pool in pools]
    room = columns // len(pools) * (size + GAP) - GAP
    together = len(pools) <= columns and all(heading.cell_len <= room for heading in headings)
    for some in [range(len(pools))] if together else [[at] for at in range(len(pools))]:
        each = columns // len(some)
        for at in some:
            out.append_text(headings[at])
            out.append(" " * max(1, each * (size + GAP) - headings[at].cell_len))
        out.rstrip()
        out.append("\n")
        _flow(out, [cells[at] for at in some], each, size)


def _heading(pool: PoolPicture, palette: Palette) -> Text:
    text = Text()
    text.append(pool.array, palette.changed if pool.now else palette.title)
    text.append(f"  {len(pool.blocks)} blocks", palette.quiet)
    return text


def _flow(out: Text, groups: Sequence[Sequence[Text]], each: int, size: int) -> None:
    """Groups beside each other, each of `each` columns, filled downwards."""
    lines = max(ceil(len(group) / each) for group in groups)
    for line in range(lines):
        for group in groups:
            row = list(group[line::lines])
            for cell in row + [Text()] * (each - len(row)):
                out.append_text(cell)
                out.append(" " * (size + GAP - cell.cell_len))
        out.rstrip()
        out.append("\n")


def _blocks(pool: PoolPicture, palette: Palette) -> list[Text]:
    wide = len(str(len(pool.blocks) - 1))
    styles = {NOW: palette.mark, LANE: palette.seen, SEEN: palette.seen, MINE: palette.mine, FREE: palette.gutter}
    found = []
    for block in pool.blocks:
        logical = f"{block.logical}→" if block.logical is not None else ""
        busy = NOW in block.slots
        cell = Text()
        held = palette.mine if block.logical is not None else palette.gutter
        cell.append(f"{logical:>{wide + 1}}{block.number:>{wide}} ", palette.mark if busy else held)
        for mark, run in _runs(block.slots):
            cell.append(SIGNS[mark] * run, styles[mark])
        found.append(cell)
    return found


def _runs(marks: str) -> Iterable[tuple[str, int]]:
    start = 0
    for at in range(1, len(marks) + 1):
        if at == len(marks) or marks[at] != marks[start]:
            yield marks[start], at - start
            start = at


def legend(width: int, palette: Palette) -> Text:
    """What the signs of the pool mean: who touches a slot, or touched it; else whether the sequence uses it."""
    words = {NOW: "thread", LANE: "warp", SEEN: "before", MINE: "used", FREE: "free"}
    found = [f"{SIGNS[mark]} {word}" for mark, word in words.items()]
    roomy = "  ".join(found)
    return Text(roomy if len(roomy) <= width else " ".join(found), palette.quiet)


def proof(found: Proof, palette: Palette) -> Text:
    """The record of a step: its state, and each check with what was observed and expected."""
    out = Text()
    record, fine = found.record, found.status == "passed"
    out.append("Checked  " if fine else f"{found.status.capitalize()}  ", palette.title)
    out.append(f"{found.said}\n", palette.good if fine else palette.bad)
    for check in record.checks if record is not None else ():
        out.append("✓ " if check.passed else "✗ ", palette.good if check.passed else palette.bad)
        out.append(f"{check.name}: ")
        out.append(check.observed)
        if check.observed != check.expected:
            out.append(f"  expected {check.expected}", palette.quiet)
        out.append(f"  {check.note}\n" if check.note else "\n", palette.quiet)
    for measured in record.measured if record is not None else ():
        out.append(f"· {measured.name}: {measured.text}\n", palette.quiet)
    out.rstrip()
    return out
