"""Two excerpts in a terminal: side by side where there is room, one above the other where there is not.

Linked lines carry a bar and, at the start of each run, the name of their innermost concept. A line that is too
long goes on under its own indentation. Without colour everything stays readable; control characters in upstream
text are never sent to the terminal. `columns.py` shows one idea in several kernels with the same panes.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from annotate.render import Excerpt

SIDE_BY_SIDE = 100
HANG = 4
"""By how many columns the rest of a folded line is indented more than its beginning; half of it in a narrow column."""
WIDE = 48
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


def clean(text: str) -> str:
    """Return text that cannot steer a terminal: control and direction characters become a visible mark."""
    return _CONTROL.sub("\ufffd", text.replace("\t", "    "))


def to_terminal(left: Excerpt | None, right: Excerpt | None, width: int, color: bool) -> str:
    """Return both panes as text of at most `width` columns, stacked under 100; either may be missing."""
    panes = [_pane(shown) for shown in (left, right) if shown is not None]
    if not panes:
        return ""
    if len(panes) == 2 and width >= SIDE_BY_SIDE:
        table = Table.grid(expand=True, padding=(0, 1))
        table.add_column(ratio=1, overflow="fold")
        table.add_column(ratio=1, overflow="fold")
        table.add_row(*panes)
        return printed([table], width, color)
    return printed(panes, width, color)


def printed(parts: Iterable[RenderableType], width: int, color: bool) -> str:
    """Return what rich makes of `parts`, a blank line between them, in lines of at most `width` columns."""
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
    for index, part in enumerate(parts):
        if index:
            console.print()
        console.print(part)
    return "\n".join(line.rstrip() for line in out.getvalue().split("\n"))


def _pane(shown: Excerpt) -> RenderableType:
    heading = Text(clean(shown.path), style="bold", overflow="fold")
    for part in (shown.revision, shown.licence, shown.note):
        if part:
            heading.append(f"  {clean(part)}", style="dim not bold")
    if shown.permalink:
        heading.append(f"\n{clean(shown.permalink)}", style="dim not bold")
    return Group(heading, code_table(shown))


def code_table(shown: Excerpt, *, dedent: bool = False) -> Table:
    """Return an excerpt's lines with their numbers and bars; `dedent` takes off what all of them are indented by."""
    texts = [line for line in shown.lines.values() if line.strip()]
    common = min((len(line) - len(line.lstrip(" ")) for line in texts), default=0) if dedent else 0
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
            table.add_row(str(number), "┃" if links else "", CodeLine(_code(shown, number)[common:]))
            before = links
    return table


def _code(shown: Excerpt, number: int) -> Text:
    code = Text()
    for css, text in shown.pieces[number]:
        code.append(clean(text), style=_style(css))
    return code


class CodeLine:
    """A line of code that, where it does not fit, goes on a little deeper than it began."""

    def __init__(self, code: Text) -> None:
        self.code = code if code.plain else Text(" ")

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        return Measurement.get(console, options, self.code)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width = options.max_width
        if self.code.cell_len <= width:
            yield self.code
            return
        indent = len(self.code.plain) - len(self.code.plain.lstrip(" "))
        # In a narrow column deep code keeps half of the width.
        hang = HANG if width >= WIDE else HANG // 2
        first, deeper = min(indent, width // 2), min(indent + hang, width // 2)
        body = self.code[indent:]
        for index, part in enumerate(body.divide(folds(body.plain, width - first, width - deeper))):
            yield Text(" " * (deeper if index else first)) + part


def folds(code: str, first: int, rest: int) -> list[int]:
    """Return where to cut a line of code so that its first part is at most `first` columns wide, the others `rest`.

    After a space if the next word then fits, else after a bracket, comma, point or the like, else inside a name after
    an underscore, else wherever the width ends.
    """
    cuts: list[int] = []
    start, width, rest = 0, max(first, 1), max(rest, 1)
    while cell_len(code[start:]) > width:
        end = start + 1
        while cell_len(code[start : end + 1]) <= width:
            end += 1
        fit = code[start:end]
        places = [max(fit.rfind(char) for char in signs) + 1 for signs in (" ", "([{,.;:/", "_-")]
        word = code[start + places[0] :].partition(" ")[0]
        if not (places[0] and cell_len(word) <= rest):
            places[0] = next((place for place in places if place > len(fit) // 2), len(fit))
        start += places[0]
        cuts.append(start)
        width = rest
    return cuts
