"""Screenshots of the main kinds of page, at three widths, light and dark: kept in `.artefacts/screenshots` to look at.

What a test can say of a picture is said here too: that it has the width asked for, and that it is not one flat colour.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Page

pytestmark = pytest.mark.browser
OpenPage = Callable[..., Page]
FOLDER = Path(__file__).resolve().parents[2] / ".artefacts" / "screenshots"
PAGES = {
    "start": "",
    "mental-model": "mental-model/",
    "walkthrough": "walkthroughs/alpha/",
    "player-in-a-step": "walkthroughs/gamma/#step-block-table&t=71",
    "player-of-a-film": "play/classic-v1/#classic-v1&t=271",
    "player-of-a-writer": "play/reshape-and-cache/#reshape-and-cache&t=30",
    "films": "play/",
    "concept": "concepts/toy-loop/",
    "compare": "compare/toy-write/",
    "claims": "claims/",
    "drills": "drills/",
    "drills-of-a-kind": "drills/compute/",
}


def decoded(picture: bytes) -> tuple[int, int, int]:
    """The width and height of a PNG, and how many different bytes its pixels have."""
    assert picture.startswith(b"\x89PNG")
    width, height = struct.unpack(">II", picture[16:24])
    data, place = b"", 8
    while place < len(picture):
        (length,) = struct.unpack(">I", picture[place : place + 4])
        if picture[place + 4 : place + 8] == b"IDAT":
            data += picture[place + 8 : place + 8 + length]
        place += 12 + length
    return width, height, len(set(zlib.decompress(data)))


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 820, 1440])
def test_the_main_pages_are_pictured(open_page: OpenPage, address: str, width: int, scheme: str) -> None:
    page = open_page(
        "",
        viewport={"width": width, "height": 900},
        color_scheme=scheme,
        reduced_motion="reduce",
        device_scale_factor=1,
    )
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, path in PAGES.items():
        page.goto(address + path)
        if "&t=" in path:
            page.wait_for_selector("pagewalk-player[data-state=ready]")
        page.wait_for_load_state("networkidle")
        assert page.locator("body").get_attribute("data-md-color-scheme") == (
            "slate" if scheme == "dark" else "default"
        )
        picture = page.screenshot(path=FOLDER / f"{name}-{width}-{scheme}.png")
        wide, high, colours = decoded(picture)
        assert (wide, high) == (width, 900)
        assert colours > 60, name


def test_the_pictures_are_not_committed() -> None:
    assert "/.artefacts/" in (FOLDER.parents[1] / ".gitignore").read_text("utf-8").split()
