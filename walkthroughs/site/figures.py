"""Draws the figures that show computed numbers, as SVG into docs/assets/svg; colours come from the style sheet.

Run `python -m walkthroughs.site.figures` after a change: a test compares what it draws with the committed files.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from annotate.files import write_text
from kernels.fragmentation import MAX_LEN, Room, chat_lengths, ways

from .drawings import SVG_DIR

REQUESTS = 200
SEED = 0
WIDTH = 344
LEFT = 8


def percent(share: float) -> str:
    """A share as the figure prints it: one decimal."""
    return f"{100 * share:.1f} %"


def fragmentation_svg(bars: Sequence[tuple[str, Room]], requests: int = REQUESTS) -> str:
    """One bar a way of reserving: what is used of it in the first colour, what is not, empty."""
    said = "; ".join(f"{name}: {percent(room.share_used)} used" for name, room in bars)
    rows: list[str] = []
    for number, (name, room) in enumerate(bars):
        top = 62 + 54 * number
        used = round(WIDTH * room.share_used, 1)
        rows += [
            f'  <text x="{LEFT}" y="{top}">{name}</text>',
            f'  <rect class="empty" x="{LEFT}" y="{top + 8}" width="{WIDTH}" height="20"/>',
            f'  <rect class="first" x="{LEFT}" y="{top + 8}" width="{used}" height="20"/>',
            f'  <text class="mono bold" x="{LEFT + 270}" y="{top}">{percent(room.share_used)}</text>',
        ]
    height = 62 + 54 * len(bars) + 10
    return "\n".join(
        [
            f'<svg class="pw-svg" xmlns="http://www.w3.org/2000/svg" viewBox="0 0 360 {height}" role="img" '
            'aria-labelledby="title desc">',
            '  <title id="title">How much of the reserved cache is used</title>',
            f'  <desc id="desc">{requests} requests, their lengths drawn from a model of chat traffic. {said}.</desc>',
            f'  <text class="bold" x="{LEFT}" y="18">Reserved room, and what is used of it</text>',
            f'  <text class="small soft" x="{LEFT}" y="36">{requests} requests of 1 to {MAX_LEN} tokens, '
            "most short</text>",
            *rows,
            f'  <text class="small soft" x="{LEFT}" y="{height - 8}">filled: used; dotted: reserved for nothing</text>',
            "</svg>",
            "",
        ]
    )


def figures() -> dict[str, str]:
    """Every drawn figure's text, by its name."""
    return {"fragmentation": fragmentation_svg(ways(chat_lengths(REQUESTS, SEED)))}


def write_all(folder: Path = SVG_DIR) -> list[Path]:
    """Write every figure that is missing or differs; answers the paths written."""
    written = []
    for name, text in figures().items():
        path = folder / f"{name}.svg"
        if not path.is_file() or path.read_text("utf-8") != text:
            write_text(path, text)
            written.append(path)
    return written


if __name__ == "__main__":
    write_all()
