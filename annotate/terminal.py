"""Two excerpts in a terminal: side by side where there is room, one above the other where there is not.

Linked lines carry a bar and, at the start of each run, the name of their innermost concept. Without colour
everything stays readable; control characters in upstream text are never sent to the terminal.
"""

from __future__ import annotations

import io
import re
from typing import TYPE_CHECKING

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from annotate.render import Excerpt

SIDE_BY_SIDE = 100
# Pygments class prefix -> style; the longest prefix wins. Plain ANSI names follow the reader's own palette.
_STYLES = {
    "c": "italic green",
    "cp": "magenta",
    "k": "blue",
    "kt": "cyan",
    "s": "yellow",
    "m": "cyan",
    "nf": "bold",
    "nc": "bold",
    "nd": "magenta",
    "gh": "bold",
    "gu": "bold",
}
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def _style(css: str) -> str:
    while css:
        if css in _STYLES:
            return _STYLES[css]
        css = css[:-1]
    return ""


def _clean(text: str) -> str:
    """Return text that cannot steer a terminal: control and direction characters become a visible mark."""
    return _CONTROL.sub("\ufffd", text.replace("\t", "    "))


def to_terminal(left: Excerpt | None, right: Excerpt | None, width: int, color: bool) -> str:
    """Return both panes as text of at most `width` columns, stacked under 100; either may be missing."""
    panes = [_pane(shown) for shown in (left, right) if shown is not None]
    if not panes:
        return ""
    out = io.StringIO()
    console = Console(
        file=out,
        width=max(width, 20),
        force_terminal=color,
        color_system="standard" if color else None,
        no_color=not color,
        highlight=False,
        markup=False,
        emoji=False,
        legacy_windows=False,
    )
    if len(panes) == 2 and width >= SIDE_BY_SIDE:
        table = Table.grid(expand=True, padding=(0, 1))
        table.add_column(ratio=1, overflow="fold")
        table.add_column(ratio=1, overflow="fold")
        table.add_row(*panes)
        console.print(table)
    else:
        for index, pane in enumerate(panes):
            if index:
                console.print()
            console.print(pane)
    return "\n".join(line.rstrip() for line in out.getvalue().split("\n"))


def _pane(shown: Excerpt) -> RenderableType:
    heading = Text(_clean(shown.path), style="bold", overflow="fold")
    for part in (shown.revision, shown.licence, shown.note):
        if part:
            heading.append(f"  {_clean(part)}", style="dim not bold")
    if shown.permalink:
        heading.append(f"\n{_clean(shown.permalink)}", style="dim not bold")
    table = Table.grid(padding=(0, 1, 0, 0))
    table.add_column(justify="right", style="dim", no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    before: tuple[str, ...] = ()
    for index, (first, last) in enumerate(shown.hunks):
        if index:
            table.add_row("", "", Text("⋯", style="dim"))
            before = ()
        for number in filter(shown.lines.__contains__, range(first, last + 1)):
            links = shown.links[number]
            if links and links != before:
                table.add_row("", "┏", Text(links[0], style="bold magenta"))
            table.add_row(str(number), "┃" if links else "", _code(shown, number))
            before = links
    return Group(heading, table)


def _code(shown: Excerpt, number: int) -> Text:
    code = Text()
    for css, text in shown.pieces[number]:
        code.append(_clean(text), style=_style(css))
    return code if code.plain else Text(" ")
