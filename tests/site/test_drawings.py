from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from bs4 import BeautifulSoup

from walkthroughs.site.drawings import SVG_DIR, drawing_html, names
from walkthroughs.site.errors import UnknownPageItem

SVG = "{http://www.w3.org/2000/svg}"
CSS = (SVG_DIR.parent / "css" / "pagewalk.css").read_text("utf-8")


def test_the_drawings_of_the_mental_model_are_there() -> None:
    assert {"block-table", "gather-loop", "two-passes"} <= set(names())


@pytest.mark.parametrize("name", names())
def test_a_drawing_says_in_words_what_it_shows(name: str) -> None:
    page = BeautifulSoup(drawing_html(name, "A caption & more"), "html.parser")
    svg = page.svg
    assert svg is not None
    assert svg["role"] == "img"
    for part in str(svg["aria-labelledby"]).split():
        assert len(page.find_all(id=part)) == 1
        assert len(page.find(id=part).get_text()) > 10  # type: ignore[union-attr]
    assert page.figcaption is not None
    assert page.figcaption.get_text() == "A caption & more"


@pytest.mark.parametrize("name", names())
def test_a_drawing_takes_its_colours_from_the_style_sheet(name: str) -> None:
    root = ET.fromstring((SVG_DIR / f"{name}.svg").read_text("utf-8"))
    assert root.get("class") == "pw-svg"
    for node in root.iter():
        assert not {"fill", "stroke", "style", "color"} & set(node.attrib), node.attrib
        for style in node.get("class", "").split():
            assert style == "pw-svg" or f".pw-svg .{style} " in CSS, style


@pytest.mark.parametrize("name", names())
def test_text_stays_inside_the_drawing(name: str) -> None:
    root = ET.fromstring((SVG_DIR / f"{name}.svg").read_text("utf-8"))
    _, _, width, height = (float(part) for part in root.get("viewBox", "").split())
    assert width <= 360, "at phone width the text must keep its size"
    for text in root.iter(f"{SVG}text"):
        if text.get("transform"):
            continue
        x, y = float(text.get("x", "nan")), float(text.get("y", "nan"))
        styles = text.get("class", "").split()
        size = 6.9 if "mono" in styles else 6.0
        length = len(text.text or "") * size
        left = x - length / 2 if "mid" in styles else x
        assert left >= 0, text.text
        assert left + length <= width, text.text
        assert 0 < y <= height, text.text


def test_ids_of_two_drawings_do_not_meet() -> None:
    page = "".join(drawing_html(name) for name in names())
    ids = re.findall(r'\bid="([^"]+)"', page)
    assert len(ids) == len(set(ids))
    for target in re.findall(r"url\(#([^)]+)\)", page):
        assert target in ids


def test_the_block_table_drawing_is_the_mapping_it_claims() -> None:
    """Table [3, 1], block 4, 6 tokens: the label under each token is its slot."""
    root = ET.fromstring((SVG_DIR / "block-table.svg").read_text("utf-8"))
    texts = [(t.text or "", float(t.get("x", "0")), float(t.get("y", "0"))) for t in root.iter(f"{SVG}text")]
    bottom = max(y for text, _, y in texts if re.fullmatch(r"t\d", text))
    pool = {text: x for text, x, y in texts if re.fullmatch(r"t\d", text) and y == bottom}
    slots = {x: int(text) for text, x, y in texts if text.isdigit() and y > bottom}
    assert {text: slots[x] for text, x in pool.items()} == {
        f"t{token}": [3, 1][token // 4] * 4 + token % 4 for token in range(6)
    }
    assert sorted(slots.values()) == list(range(16))


def test_an_unknown_drawing_answers_with_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(UnknownPageItem, match="block-table"):
        drawing_html("block-tabel")
    with pytest.raises(UnknownPageItem):
        drawing_html("../favicon")
