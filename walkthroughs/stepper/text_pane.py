"""A pane of text that scrolls; its text is made for the size that the pane has."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from textual.containers import VerticalScroll
from textual.widgets import Static

if TYPE_CHECKING:
    from rich.console import RenderableType
    from textual import events
    from textual.app import ComposeResult


class Panel(VerticalScroll, can_focus=False):
    """Shows what a function makes of a width and a height."""

    def __init__(self, name: str) -> None:
        super().__init__(id=name, classes="pane")
        self.border_title = name.capitalize()
        self.text = Static(markup=False)
        self._make: Callable[[int, int], RenderableType] = lambda width, height: ""

    def compose(self) -> ComposeResult:
        """One text."""
        yield self.text

    def show(self, make: Callable[[int, int], RenderableType]) -> None:
        """Show what `make` makes for a width and a height in cells."""
        self._make = make
        size = self.scrollable_content_region.size
        if size.width:
            self.text.update(make(size.width, size.height))

    def on_resize(self, event: events.Resize) -> None:
        """Make it anew."""
        self.show(self._make)
