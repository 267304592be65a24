"""The stepper's colours, for a dark and a light screen. Nothing is told by colour alone: each mark has its sign."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from rich.style import Style


@dataclass(frozen=True)
class Palette:
    """Rich styles by what they mean. `code`: Pygments class prefix -> style; the longest prefix wins."""

    code: Mapping[str, str]
    gutter: str
    here: str
    linked: str
    mark: str
    changed: str
    quiet: str
    title: str
    now: str
    lane: str
    seen: str
    mine: str
    good: str
    bad: str

    @property
    def key(self) -> str:
        """The style of a key's name."""
        return self.title


DARK = Palette(
    code={
        "c": "italic #7f9f7f", "cp": "#c586c0", "k": "#82aaff", "kt": "#56c8d8", "s": "#e6c07b", "m": "#d19a66",
        "nf": "bold #dcdcaa", "nc": "bold #dcdcaa", "nd": "#c586c0", "nb": "#56c8d8", "o": "#a9b1c6", "p": "#a9b1c6",
    },
    gutter="#6b7489",
    here="on #3d4a20",
    linked="on #1a2538",
    mark="bold #ffcb6b",
    changed="bold #ffcb6b",
    quiet="#8791a5",
    title="bold #82aaff",
    now="bold #10141c on #ffcb6b",
    lane="#10141c on #82aaff",
    seen="#82aaff",
    mine="#a9b1c6",
    good="#9ece6a",
    bad="bold #ff6b6b",
)  # fmt: skip
LIGHT = Palette(
    code={
        "c": "italic #4f7a4f", "cp": "#8a2f8a", "k": "#1d4fb8", "kt": "#006d80", "s": "#8a5a00", "m": "#a04800",
        "nf": "bold #5f4b00", "nc": "bold #5f4b00", "nd": "#8a2f8a", "nb": "#006d80", "o": "#444c5c", "p": "#444c5c",
    },
    gutter="#6b7489",
    here="on #f3e9a8",
    linked="on #d6e4fb",
    mark="bold #a05a00",
    changed="bold #a05a00",
    quiet="#5b6475",
    title="bold #1d4fb8",
    now="bold #ffffff on #a05a00",
    lane="#ffffff on #1d4fb8",
    seen="#1d4fb8",
    mine="#444c5c",
    good="#2f6f1f",
    bad="bold #b00020",
)  # fmt: skip


@cache
def code_style(palette_code: tuple[tuple[str, str], ...], css: str) -> Style:
    """The style of a Pygments class."""
    table = dict(palette_code)
    while css:
        if css in table:
            return Style.parse(table[css])
        css = css[:-1]
    return Style.null()
