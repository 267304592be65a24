"""A code pane: a whole file with its line numbers, the line that is about to run, and the lines linked to it.

Only what is on the screen is drawn, so that a long file costs no more than a short one.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from rich.segment import Segment
from rich.style import Style
from rich.text import Text
from textual.geometry import Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip

from annotate.terminal import HANG, WIDE, clean, folds
from walkthroughs.stepper.palette import DARK, LIGHT, Palette, code_style

if TYPE_CHECKING:
    from textual import events

    from walkthroughs.stepper.session import Pane
    from walkthroughs.stepper.shelf import Page

HERE, LINKED, STEP = "▶", "┃", "│"
ABOVE = 3
LEAST = 10


class CodePane(ScrollView, can_focus=False):
    """Shows a `Pane`."""

    class LineClicked(Message):
        """A line was clicked: of which pane, file and number."""

        def __init__(self, pane: str, path: str, line: int) -> None:
            super().__init__()
            self.pane, self.path, self.line = pane, path, line

    def __init__(self, name: str) -> None:
        super().__init__(id=name)
        self._pane: Pane | None = None
        self._rows: list[tuple[int, Text]] = []
        self._first: dict[int, int] = {}
        self._cut: tuple[Page | None, str, int, bool] = (None, "", 0, True)
        self._where: tuple[str, int] = ("", 0)

    @property
    def palette(self) -> Palette:
        """The colours of the theme."""
        return DARK if self.app.current_theme.dark else LIGHT

    def show(self, pane: Pane, *, jump: bool = False) -> None:
        """Show a pane; it scrolls only if what is to be seen is outside, or to `jump`."""
        self._pane = pane
        self._cut_up()
        self._follow(jump)
        self.refresh()

    def on_resize(self, event: events.Resize) -> None:
        """Cut the lines anew for another width."""
        self._cut_up()
        self.call_after_refresh(self._follow, True)

    def on_click(self, event: events.Click) -> None:
        """Say which line it was."""
        offset = event.get_content_offset(self)
        row = offset.y + self.scroll_offset.y if offset is not None else len(self._rows)
        if row < len(self._rows) and self._rows[row][0] and self._pane is not None:
            self.post_message(self.LineClicked(self.id or "", self._pane.path, self._rows[row][0]))

    def _cut_up(self) -> None:
        page = self._pane.page if self._pane is not None else None
        width = self.scrollable_content_region.width
        missing = page.absence(self._pane.linked or self._pane.step) if self._pane and page and page.missing else ""
        cut = (page, missing, width, self.app.current_theme.dark)
        if self._cut == cut or width < LEAST:
            return
        self._cut = cut
        self._rows, self._first = [], {}
        if page is not None:
            wide = self._gutter
            for number in page.lines or range(0):
                self._first[number] = len(self._rows)
                for part in self._folded(page, number, width - wide):
                    self._rows.append((number, part))
            for line in missing.split("\n") if missing else ():
                self._rows += [(0, Text(" ") + part) for part in _wrapped(line, width - 2)]
        self.virtual_size = Size(width, len(self._rows))

    @property
    def _gutter(self) -> int:
        return 7

    def _folded(self, page: Page, number: int, width: int) -> list[Text]:
        styles = tuple(self.palette.code.items())
        code = Text()
        for css, text in page.lines[number]:
            code.append(clean(text), code_style(styles, css))
        if code.cell_len <= width:
            return [code]
        indent = len(code.plain) - len(code.plain.lstrip(" "))
        first = min(indent, width // 2)
        deeper = min(indent + (HANG if width >= WIDE else HANG // 2), width // 2)
        body = code[indent:]
        parts = body.divide(folds(body.plain, width - first, width - deeper))
        return [Text(" " * (deeper if at else first)) + part for at, part in enumerate(parts)]

    def _follow(self, jump: bool) -> None:
        """Bring what is to be seen into the pane."""
        pane = self._pane
        if pane is None or pane.page is None or not self._rows:
            return
        lines = [pane.line] if pane.line else [first for first, _ in pane.linked or pane.step]
        wanted = [self._first[line] for line in self._nearest(lines)]
        if not wanted:
            return
        target, height = wanted[0], self.scrollable_content_region.height
        moved = self._where != (pane.page.path, target)
        self._where = pane.page.path, target
        top = self.scroll_offset.y
        if jump or (moved and not top + 1 <= target < top + max(height - 2, 1)):
            self.scroll_to(y=max(0, target - min(ABOVE, height // 3)), animate=False, immediate=True)

    def _nearest(self, lines: list[int]) -> list[int]:
        return [line for line in lines if line in self._first]

    def render_line(self, y: int) -> Strip:
        """Draw one row."""
        row = y + self.scroll_offset.y
        width = self.scrollable_content_region.width
        if row >= len(self._rows) or self._pane is None:
            return Strip.blank(width, self.rich_style)
        number, code = self._rows[row]
        if not number:
            return self._strip(code, Style.null(), width)
        palette, pane = self.palette, self._pane
        here = pane.line <= number <= max(pane.until, pane.line) if pane.line else False
        linked = any(first <= number <= last for first, last in pane.linked)
        step = any(first <= number <= last for first, last in pane.step)
        begins = self._first[number] == row
        mark = (
            (HERE if begins and number == pane.line else " ") if here else LINKED if linked else STEP if step else " "
        )
        line = Text()
        line.append(f"{number:>4} " if begins else "     ", palette.mark if here else palette.gutter)
        line.append(f"{mark} ", palette.mark if here or linked else palette.gutter)
        line.append_text(code)
        return self._strip(line, Style.parse(palette.here if here else palette.linked if linked else ""), width)

    def _strip(self, line: Text, over: Style, width: int) -> Strip:
        base = self.rich_style + over
        segments = [Segment(s.text, base + (s.style or Style.null())) for s in line.render(self.app.console)]
        return Strip(segments).adjust_cell_length(width, base)


def _wrapped(line: str, width: int) -> list[Text]:
    """A line of a remark, folded between words where it can be."""
    text = clean(line)
    return [Text(part) for part in _parts(text, width)] or [Text("")]


def _parts(text: str, width: int) -> list[str]:
    cuts = [0, *folds(text, width, width), len(text)]
    return [text[a:b] for a, b in itertools.pairwise(cuts)]
