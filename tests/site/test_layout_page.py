"""The layout explorer's page before any script runs: the worked example, its numbers, the links and the prose."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from bs4 import BeautifulSoup

from kernels.explorer import KERNELS, LAYOUTS, Geometry, explain
from walkthroughs.site import layout_page
from walkthroughs.site.directives import Directive
from walkthroughs.site.extension import HANDLERS

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "layout.md").read_text("utf-8")


@pytest.fixture(scope="module")
def example() -> BeautifulSoup:
    kept: list[str] = []

    def stash(html: str) -> str:
        kept.append(html)
        return "stashed"

    assert layout_page.lines(stash) == ["", "stashed", ""]
    return BeautifulSoup(kept[0], "html.parser")


def rows(page: BeautifulSoup, caption: str) -> list[list[str]]:
    table = next(t for t in page.select("table") if t.caption and t.caption.get_text() == caption)
    return [[cell.get_text() for cell in row.select("td")] for row in table.select("tbody tr")]


def test_the_example_is_what_python_says(example: BeautifulSoup) -> None:
    found = explain("classic-v1", Geometry(), [7, 2, 5], 20, 3, 10)
    assert rows(example, "From token to slot")[-1] == ["slot", "2 * 16 + 4", str(found.slot)]
    address = rows(example, "The address of K: Classic K, with x")
    assert address[0] == ["block", "block_table[1]", "2 × 16384", "kv_block_stride", "32768"]
    assert address[-1][-1] == str(found.place("classic-k").element)
    everywhere = rows(example, "In every layout")
    assert len(everywhere) == len(found.places) == 12
    assert everywhere[0] == [
        "Classic K, with x",
        "K",
        "39074",
        "78148 to 78149",
        "2442",
        "16 pieces of 16 bytes, 256 apart",
    ]
    assert everywhere[-1][-1] == "one run"
    text = example.get_text()
    assert "Thread 40 does it: warp 1, lane 8. It takes 4 elements at once, 8 bytes." in text
    assert "asks for 512 bytes in 16 sectors" in text
    assert rows(example, "The way to the lane for V")[-2:] == [["thread_idx", "1 * 32 + 20", "52"],
                                                              ["element of the vector", "4 % 8", "4"]]  # fmt: skip


def test_the_example_stands_in_the_element_and_in_a_block(example: BeautifulSoup) -> None:
    """Without a block around it Markdown would make a paragraph of it, and a browser would tear that apart."""
    outer = example.contents[0]
    assert outer.name == "div"
    assert outer.contents[0].name == "pagewalk-layout"
    assert example.select_one("pagewalk-layout > .pw-lx-static[data-search-exclude]") is not None
    for region in example.select("[role=region]"):
        assert region["tabindex"] == "0"
        assert region["aria-label"]


def test_the_page_of_the_made_up_site_has_it(sample_site: Path) -> None:
    page = BeautifulSoup((sample_site / "layout" / "index.html").read_text("utf-8"), "html.parser")
    assert page.select_one("article pagewalk-layout table.pw-lx-table") is not None
    assert page.select_one("p pagewalk-layout") is None
    scripts = [tag["src"].rsplit("/", 1)[1] for tag in page.select("script[src]")]
    ours = [name for name in scripts if name.startswith("layout")]
    assert ours == ["layout-math.js", "layout-lanes.js", "layout-views.js", "layout.js"]
    assert any(tag["href"].endswith("css/layout.css") for tag in page.select("link[rel=stylesheet]"))


def test_the_directive_takes_part() -> None:
    assert "layout" in HANDLERS
    directive = Directive("::: layout", "layout", "", {})
    assert HANDLERS["layout"](directive, None, lambda html: "here") == ["", "here", ""]  # type: ignore[arg-type]


def asked(link: str) -> tuple[str, Geometry, list[int], tuple[int, int, int], str]:
    """A link's question, in the command line's names."""
    query = {name: values[0] for name, values in parse_qs(urlsplit(link).query).items()}
    sizes = {"block-size": "block_size", "head-size": "head_size", "heads": "num_heads", "kv-heads": "num_kv_heads"}
    geometry = Geometry(
        **{to: int(query.pop(name)) for name, to in sizes.items() if name in query},
        dtype=query.pop("dtype", "float16"),
    )
    table = [int(part) for part in query.pop("table", "7,2,5").split(",")]
    kernel = query.pop("kernel", "classic-v1")
    point = (int(query.pop("token", 20)), int(query.pop("head", 3)), int(query.pop("channel", 10)))
    layout = query.pop("layout", KERNELS[kernel].layouts[0])
    assert query.pop("kind", "K") in LAYOUTS[layout].kinds
    assert query == {}
    return kernel, geometry, table, point, layout


def test_every_link_asks_something_that_can_be_answered_and_the_prose_is_true() -> None:
    links = [link.replace("&amp;", "&") for link in re.findall(r'<a data-lx href="([^"]+)"', PAGE)]
    assert len(links) == 5
    answers = []
    for link in links:
        kernel, geometry, table, point, layout = asked(link)
        answers.append(explain(kernel, geometry, table, *point))
        assert answers[-1].place(layout)
    key, value, scattered, writer, tiny = answers
    lanes = [lane for lane in key.loads[0].lanes if lane]
    assert [lane.first for lane in lanes] == list(range(lanes[0].first, lanes[0].first + 256, 8)), (
        "one run of 256 bytes"
    )
    assert key.loads[0].sectors == 8
    assert value.loads[1].vector == 8, "eight tokens of one channel"
    assert sum(lane.size for lane in scattered.loads[1].lanes if lane) == 64
    assert scattered.loads[1].sectors == 32
    assert all(load.missing for load in writer.loads)
    assert explain("reshape-and-cache", Geometry(num_heads=40, num_kv_heads=40), [0], 0, 31, 127).loads[0].thread == 511
    assert "2^31" in tiny.notes[0]
    assert tiny.place("tiny").terms[0].product * 2 == 2_147_483_648
    assert tiny.place("tiny").terms[0].stride * 2 == 32_768


def test_the_table_of_layouts_names_them_all() -> None:
    listed = re.findall(r"^\| (.+?) \| (.+?) \|", PAGE.split("## The layouts")[1], re.M)[2:]
    assert [row[0] for row in listed] == [
        "Classic K, with x", "Classic V", "NHD, K apart", "HND, K apart", "NHD, side by side", "HND, side by side",
        "tiny-vllm",
    ]  # fmt: skip
    names = {"kv": "K or V", "group": "channel group"}
    axes = [row[1] for row in listed]
    ids = ("classic-k", "classic-v", "nhd-k", "hnd-k", "side-nhd", "side-hnd", "tiny")
    assert axes == [", ".join(names.get(axis, axis) for axis in LAYOUTS[name].axes) for name in ids]


def test_sentences_are_short() -> None:
    prose = re.sub(r"```.*?```|^\|.*$|^---.*?^---|^#.*$|^:::.*$|<[^>]+>", "", PAGE, flags=re.S | re.M)
    for sentence in re.split(r"(?<=[.:?])\s", prose):
        assert len(sentence.split()) <= 30, sentence


def test_the_page_is_in_the_menu_once() -> None:
    menu = (ROOT / "mkdocs.yml").read_text("utf-8").split("\nnav:")[1]
    assert menu.count("layout.md") == 1
