"""One idea in several kernels, in a terminal: a column a kernel, and in it upstream's lines over those of its port.

Four columns where there is room, two where there is less, one kernel below the other in a narrow terminal. A port
follows its upstream lines at once, so that the two are read together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.box import MINIMAL
from rich.console import Group, RenderableType
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from annotate.render import Excerpt
from annotate.terminal import SIDE_BY_SIDE, CodeLine, clean, code_table, printed

FOUR_COLUMNS = 160
GAP = 1
"""Columns of white space on either side of a kernel."""


@dataclass(frozen=True)
class Column:
    """One kernel: `title`, `where` it is from (source, revision, licence), and its panes.

    `missing` is said in place of upstream lines that are not here, or that do not exist.
    """

    title: str
    where: str
    upstream: tuple[Excerpt, ...]
    port: tuple[Excerpt, ...]
    missing: tuple[str, ...] = ()


def columns_at(width: int) -> int:
    """How many kernels stand side by side in a terminal of `width` columns: four, two or one."""
    if width >= FOUR_COLUMNS:
        return 4
    return 2 if width >= SIDE_BY_SIDE else 1


def to_columns(columns: Sequence[Column], width: int, color: bool) -> str:
    """Return the kernels as text of at most `width` columns: rows of four, of two, or one kernel below the other."""
    abreast = min(columns_at(width), max(len(columns), 1))
    if abreast == 1:
        return printed([_cell(column) for column in columns], width, color)
    rows = [columns[start : start + abreast] for start in range(0, len(columns), abreast)]
    return printed([_row(row, abreast) for row in rows], width, color)


def _row(row: Sequence[Column], abreast: int) -> Table:
    table = Table(box=MINIMAL, show_header=False, show_edge=False, expand=True, padding=(0, GAP), pad_edge=False)
    for _ in range(abreast):
        table.add_column(ratio=1, overflow="fold")
    table.add_row(*map(_cell, row))
    return table


def _cell(column: Column) -> RenderableType:
    heading = Text(clean(column.title), style="bold", overflow="fold")
    heading.append(f"\n{clean(column.where)}", style="dim not bold")
    said = (CodeLine(Text(clean(text), style="yellow")) for text in column.missing)
    upstream = (part for shown in column.upstream for part in _pane(shown, shown.path.rpartition("/")[2]))
    port = [part for shown in column.port for part in _pane(shown, shown.path)]
    rule = Rule("port, runs here" if port else "no port", align="left", style="green" if port else "dim")
    return Group(Rule(style="bold"), heading, *said, *upstream, rule, *port)


def _pane(shown: Excerpt, name: str) -> tuple[RenderableType, RenderableType]:
    where = CodeLine(Text(f"{clean(name)}:{lines_of(shown)}", style="cyan"))
    return where, code_table(shown, dedent=True)


def lines_of(shown: Excerpt) -> str:
    """The line numbers of an excerpt as short as can be: `219-250`, `386`, `131-133, 140`."""
    runs = ((first, last) for first, last in shown.hunks)
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)
