"""The hand-made drawings in `docs/assets/svg`, put into a page as inline SVG so that they follow light and dark.

Their ids get the drawing's name as a prefix, because a page may show more than one.
"""

import re
from html import escape
from pathlib import Path

from .errors import UnknownPageItem

SVG_DIR = Path(__file__).resolve().parents[2] / "docs" / "assets" / "svg"
_ID = re.compile(r'\bid="([^"]+)"')
_LABELLED = re.compile(r'aria-labelledby="([^"]*)"')


def names(folder: Path = SVG_DIR) -> list[str]:
    """The drawings that exist, by name."""
    return sorted(path.stem for path in folder.glob("*.svg"))


def drawing_html(name: str, caption: str = "", folder: Path = SVG_DIR) -> str:
    """One drawing as a figure; raises `UnknownPageItem`."""
    path = folder / f"{name}.svg"
    if name not in names(folder):
        raise UnknownPageItem("drawing", name, names(folder))
    svg = path.read_text(encoding="utf-8").strip()
    prefix = f"svg-{name}-"
    svg = _ID.sub(rf'id="{prefix}\1"', svg).replace("url(#", f"url(#{prefix}")
    svg = _LABELLED.sub(lambda m: f'aria-labelledby="{" ".join(prefix + part for part in m[1].split())}"', svg)
    # The words of a drawing say little without it.
    svg = svg.replace("<svg ", "<svg data-search-exclude ", 1)
    note = f"<figcaption>{escape(caption)}</figcaption>" if caption else ""
    return f'<figure class="pw-drawing">{svg}{note}</figure>'
