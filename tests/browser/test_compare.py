"""Compare pages: how many kernels stand beside each other, rows that line up, and lines lit across the columns."""

from __future__ import annotations

import itertools
import re
import runpy
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

pytestmark = pytest.mark.browser
OpenPage = Callable[..., Page]
PAGES = {"toy-lookup": 2, "toy-product": 3, "toy-loop": 4, "toy-write": 6}
PAGE = "compare/toy-loop/"
PARTS = (".pw-kernel-head", ".pw-cell-upstream", ".pw-cell-port", ".pw-kernel-foot")
CONTRAST = runpy.run_path(str(Path(__file__).with_name("test_pages.py")))["CONTRAST"]


def tops(page: Page, part: str) -> list[tuple[int, int]]:
    """The place (top, left) of this part of every kernel, in whole pixels."""
    found = page.locator(f".pw-kernel > {part}").evaluate_all(
        "nodes => nodes.map(n => n.getBoundingClientRect()).map(b => [Math.round(b.top + scrollY), Math.round(b.left)])"
    )
    return [(top, left) for top, left in found]


@pytest.mark.parametrize(
    ("width", "columns"),
    [(390, (1, 1, 1, 1)), (820, (2, 2, 2, 2)), (1440, (2, 3, 4, 3)), (1920, (2, 3, 4, 3))],
)
def test_kernels_stand_beside_each_other_as_far_as_there_is_room(
    open_page: OpenPage, address: str, width: int, columns: tuple[int, ...]
) -> None:
    page = open_page("", viewport={"width": width, "height": 900})
    for (name, kernels), expected in zip(PAGES.items(), columns, strict=True):
        page.goto(f"{address}compare/{name}/")
        heads = tops(page, ".pw-kernel-head")
        assert len(heads) == kernels
        assert len({left for _, left in heads}) == expected
        assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0, name
        assert page.locator(".pw-compare").evaluate("n => n.scrollWidth - n.clientWidth") <= 0, name


@pytest.mark.parametrize(
    ("width", "name"), [(820, "toy-loop"), (1440, "toy-loop"), (1440, "toy-write"), (820, "toy-write")]
)
def test_rows_line_up_across_the_kernels_beside_each_other(open_page: OpenPage, width: int, name: str) -> None:
    page = open_page(f"compare/{name}/", viewport={"width": width, "height": 900})
    places = [tops(page, part) for part in PARTS]
    columns = len({left for _, left in places[0]})
    assert columns > 1
    for band in range(0, len(places[0]), columns):
        rows = [[top for top, _ in place[band : band + columns]] for place in places]
        assert all(len(set(row)) == 1 for row in rows), "each part of every kernel starts at the same height"
        order = [row[0] for row in rows]
        assert order == sorted(order)
        lefts = [[left for _, left in place[band : band + columns]] for place in places]
        assert all(left == lefts[0] for left in lefts), "a kernel's port stands under its own upstream lines"


def test_code_lines_begin_at_the_same_height_in_every_pane_of_a_row(open_page: OpenPage) -> None:
    page = open_page(PAGE)
    for side in ("upstream", "port"):
        lines = page.locator(f".pw-cell-{side} .pw-pane .pw-line:first-child")
        heights = lines.evaluate_all("nodes => nodes.map(n => Math.round(n.getBoundingClientRect().top))")
        assert len(heights) == 3
        assert len(set(heights)) == 1


def lit(page: Page) -> dict[str, list[int]]:
    """The numbers of the lit lines by cell."""
    found = page.locator(".pw-line.pw-on").evaluate_all("nodes => nodes.map(n => n.id)")
    cells: dict[str, list[int]] = {}
    for name in found:
        cell, _, number = name.removeprefix("src-").rpartition("-L")
        cells.setdefault(cell, []).append(int(number))
    return cells


def test_a_line_lights_what_does_the_same_in_every_kernel(open_page: OpenPage) -> None:
    page = open_page(PAGE, reduced_motion="reduce")
    page.locator("#src-k1-u-L5").hover(position={"x": 90, "y": 6})
    assert lit(page) == {"k1-u": [5], "k2-u": [5], "k4-u": [5], "k1-p": [6], "k3-p": [6], "k4-p": [6]}
    expect(page.locator(".pw-status")).to_have_text("6 lines linked: Looking a piece up")
    page.locator("h1").hover()
    assert lit(page) == {}
    page.locator("#src-k4-p-L36").hover(position={"x": 90, "y": 6})
    assert set(lit(page)) == {"k1-u", "k2-u", "k4-u", "k1-p", "k3-p", "k4-p"}


def test_every_pane_brings_its_lines_into_view(open_page: OpenPage) -> None:
    page = open_page(PAGE, reduced_motion="reduce")
    page.locator("#src-k1-u-L5").focus()
    page.keyboard.press("Enter")
    page.locator(".pw-cell-port .pw-pane").evaluate_all(
        "nodes => nodes.forEach(n => { n.scrollTop = n.scrollHeight; })"
    )
    page.keyboard.press("Enter")
    page.keyboard.press("Enter")
    page.wait_for_function("[...document.querySelectorAll('.pw-cell-port .pw-pane')].every(n => n.scrollTop < 60)")


def test_keyboard_only(open_page: OpenPage) -> None:
    page = open_page(PAGE)
    stops = page.locator(".pw-compare .pw-pane").evaluate_all(
        "nodes => nodes.map(n => n.querySelectorAll('.pw-line[tabindex=\"0\"]').length)"
    )
    assert min(stops) > 0, "every pane can be entered, and so scrolled, by keyboard"
    reached: list[str] = []
    for _ in range(90):
        page.keyboard.press("Tab")
        name = str(page.evaluate("document.activeElement.id"))
        if name.startswith("src-"):
            reached.append(name.rpartition("-L")[0])
    assert list(dict.fromkeys(reached)) == ["src-k1-u", "src-k1-p", "src-k2-u", "src-k3-p", "src-k4-u", "src-k4-p"]
    page.locator("#src-k3-p-L6").focus()
    page.keyboard.press("Enter")
    expect(page.locator(".pw-compare")).to_have_class("pw-pair pw-compare pw-pinned")
    assert len(lit(page)) == 6
    page.keyboard.press("Escape")
    assert lit(page) == {}


def test_a_chip_lights_its_lines_and_leads_to_the_page_of_its_idea(open_page: OpenPage) -> None:
    page = open_page(PAGE)
    chip = page.locator("a.pw-chip[data-concept='toy-lookup']")
    chip.hover()
    assert len(lit(page)) == 6
    chip.click()
    page.wait_for_url(re.compile(r"/compare/toy-lookup/(#.*)?$"))
    page.wait_for_selector("#pair-toy-lookup .pw-status", state="attached")


@pytest.mark.parametrize(("width", "shown"), [(390, True), (820, True), (1440, False)])
def test_the_list_of_kernels_is_there_where_they_do_not_fit(open_page: OpenPage, width: int, shown: bool) -> None:
    page = open_page(PAGE, viewport={"width": width, "height": 844})
    assert page.locator(".pw-kernel-list").is_visible() == shown
    if shown:
        page.locator(".pw-kernel-list a").nth(3).click()
        expect(page.locator("#kernel-k4")).to_be_in_viewport()


def test_what_is_lit_is_said_at_the_foot_of_the_window(open_page: OpenPage) -> None:
    page = open_page("compare/toy-write/", viewport={"width": 1440, "height": 600})
    page.locator("#src-k1-u-L5").hover(position={"x": 90, "y": 6})
    expect(page.locator(".pw-status")).to_be_in_viewport()


def test_without_scripts_every_kernel_can_be_read(open_page: OpenPage) -> None:
    page = open_page(PAGE, java_script_enabled=False)
    for name in ("#src-k1-u-L5", "#src-k1-p-L6", "#src-k4-p-L6"):
        assert page.locator(name).is_visible()
    assert page.locator(".pw-none", has_text="No file of ours").is_visible()
    assert page.locator(".pw-status").count() == 0
    page.locator(".pw-way a").first.click()
    assert page.url.endswith("/compare/")


def test_headings_regions_and_links_have_names(open_page: OpenPage) -> None:
    """The basics that an accessibility checker asks for."""
    page = open_page(PAGE)
    levels = page.locator(".md-content :is(h1, h2, h3)").evaluate_all("nodes => nodes.map(n => Number(n.tagName[1]))")
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after - before <= 1 for before, after in itertools.pairwise(levels)), "no level is left out"
    named = page.locator(".pw-compare section, nav.pw-kernel-list").evaluate_all(
        "nodes => nodes.map(n => n.getAttribute('aria-label'))"
    )
    assert len(set(named)) == len(named) == 9
    assert page.locator(".md-content a").evaluate_all("nodes => nodes.every(n => n.textContent.trim() || n.title)")
    ids = page.locator("[id]").evaluate_all("nodes => nodes.map(n => n.id)")
    assert len(ids) == len(set(ids))


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("selector", [".pw-compare", ".pw-way", ".pw-kernel-list"])
def test_text_is_readable_in_light_and_dark(
    open_page: OpenPage, settled: Callable[[Page], None], scheme: str, selector: str
) -> None:
    page = open_page(PAGE, color_scheme=scheme, viewport={"width": 820, "height": 900})
    page.locator("#src-k1-u-L5").hover(position={"x": 90, "y": 6})
    expect(page.locator("#src-k1-u-L5")).to_have_class(re.compile(r"\bpw-on\b"))
    settled(page)
    found = page.evaluate(CONTRAST, selector)
    assert found
    # The mark beside a heading is not there before it is pointed at.
    assert [entry for entry in found if entry[0] < 4.5 and not entry[1].startswith("headerlink")] == []


def test_paper_shows_everything(open_page: OpenPage) -> None:
    page = open_page(PAGE)
    page.emulate_media(media="print")
    for pane in page.locator(".pw-compare .pw-pane").all():
        assert pane.evaluate("n => n.scrollHeight - n.clientHeight") <= 1
    assert len({left for _, left in tops(page, ".pw-cell-port")}) == 1
