"""The drawn figures: the committed files are what the code draws, and show the numbers that the code computes."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import markdown
import pytest
from bs4 import BeautifulSoup

from kernels.fragmentation import Room, chat_lengths, ways
from walkthroughs.site import figures
from walkthroughs.site.drawings import SVG_DIR
from walkthroughs.site.errors import BadDirective
from walkthroughs.site.extension import makeExtension
from walkthroughs.site.model import WalkthroughView
from walkthroughs.step import get

SVG = "{http://www.w3.org/2000/svg}"


def test_the_committed_figures_are_current() -> None:
    stale = [name for name, text in figures.figures().items() if (SVG_DIR / f"{name}.svg").read_text("utf-8") != text]
    assert stale == [], "run python -m walkthroughs.site.figures"


def test_a_figure_is_written_once(tmp_path: Path) -> None:
    assert figures.write_all(tmp_path) == [tmp_path / "fragmentation.svg"]
    assert figures.write_all(tmp_path) == []


def test_bars_are_as_long_as_their_numbers_say() -> None:
    root = ET.fromstring(figures.fragmentation_svg([("a", Room(1, 4)), ("b", Room(9, 10))], 3))
    filled = [float(rect.get("width", "nan")) for rect in root.iter(f"{SVG}rect") if rect.get("class") == "first"]
    assert filled == [round(figures.WIDTH / 4, 1), round(figures.WIDTH * 0.9, 1)]
    texts = [text.text for text in root.iter(f"{SVG}text")]
    assert "25.0 %" in texts
    assert "90.0 %" in texts
    assert any("3 requests" in (text or "") for text in texts)


def test_the_committed_figure_shows_the_computed_shares() -> None:
    text = (SVG_DIR / "fragmentation.svg").read_text("utf-8")
    shown = re.findall(r">([\d.]+) %<", text)
    room = [room for _, room in ways(chat_lengths(figures.REQUESTS, figures.SEED))]
    assert shown == [f"{100 * r.used / r.reserved:.1f}" for r in room]


# -- a drawing in a step's prose


def page_with(sample: ModuleType, prose: str) -> BeautifulSoup:
    """The sample's first walkthrough with another prose in its first step."""

    class Changed(sample.SampleData):  # type: ignore[misc,name-defined]
        def walkthrough(self, name: str) -> WalkthroughView:
            view: WalkthroughView = super().walkthrough(name)
            return replace(view, steps=(replace(view.steps[0], prose=prose), *view.steps[1:]))

    md = markdown.Markdown(extensions=["attr_list", "toc", "md_in_html", makeExtension(data=Changed())])
    return BeautifulSoup(md.convert("::: walkthrough alpha root=.."), "html.parser")


def test_a_steps_prose_may_show_a_drawing(sample: ModuleType) -> None:
    page = page_with(sample, "Before.\n\n::: svg fragmentation What it shows\n\nAfter.")
    drawing = page.select_one("figure.pw-drawing")
    assert drawing is not None
    assert drawing.figcaption is not None
    assert drawing.figcaption.get_text() == "What it shows"
    assert "Before." in drawing.find_previous("p").get_text()  # type: ignore[union-attr]
    assert ":::" not in page.get_text()


def test_nothing_else_may_stand_there(sample: ModuleType) -> None:
    with pytest.raises(BadDirective, match="only svg"):
        page_with(sample, "::: walkthrough alpha")


def test_the_step_shows_the_figure() -> None:
    assert "\n::: svg fragmentation " in get("block-lifetime/fragmentation").prose
