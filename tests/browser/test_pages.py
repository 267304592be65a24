"""How pages look and behave: widths, light and dark, paper, search, without scripts."""

from __future__ import annotations

import json
import re
from collections.abc import Callable

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, expect

pytestmark = pytest.mark.browser
OpenPage = Callable[..., Page]
PAGE = "walkthroughs/alpha/"
ALL_PAGES = [
    "",
    "mental-model/",
    "how-we-know/",
    "walkthroughs/",
    PAGE,
    "walkthroughs/beta/",
    "concepts/",
    "concepts/toy-loop/",
    "compare/",
    "compare/toy-loop/",
    "compare/toy-write/",
    "drills/",
    "drills/recall/",
    "drills/compute/",
    "layout/",
    "history/",
    "claims/",
]

# The contrast of every piece of text under a selector, against what is really painted behind it.
CONTRAST = """
selector => {
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const rgba = text => {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = "#000";
    canvas.fillStyle = text;
    canvas.fillRect(0, 0, 1, 1);
    const [r, g, b, a] = canvas.getImageData(0, 0, 1, 1).data;
    return [r, g, b, a / 255];
  };
  const over = (top, under) => [0, 1, 2].map(i => top[i] * top[3] + under[i] * (1 - top[3])).concat(1);
  const behind = node => {
    const layers = [];
    for (let n = node; n; n = n.parentElement) layers.unshift(rgba(getComputedStyle(n).backgroundColor));
    return layers.reduce((under, top) => over(top, under), [255, 255, 255, 1]);
  };
  const luminance = c => {
    const [r, g, b] = c.slice(0, 3).map(v => v / 255).map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const seen = [];
  for (const root of document.querySelectorAll(selector)) {
    for (const node of [root, ...root.querySelectorAll("*")]) {
      const own = [...node.childNodes].some(child => child.nodeType === 3 && child.textContent.trim());
      if (!own || !node.getClientRects().length) continue;
      const ground = behind(node);
      const text = over(rgba(getComputedStyle(node).color), ground);
      const [high, low] = [luminance(text), luminance(ground)].sort((a, b) => b - a);
      seen.push([(high + 0.05) / (low + 0.05), node.className + ": " + node.textContent.slice(0, 30)]);
    }
  }
  return seen;
}
"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize(
    "selector",
    [
        "#pair-loop",
        ".pw-badge",
        ".pw-chip",
        ".pw-evidence",
        ".pw-status",
        "figure.pw-drawing",
        ".pw-record summary",
        ".pw-start",
        ".pw-claim",
        ".pw-claim-note",
        ".pw-filters",
    ],
)
def test_text_is_readable_in_light_and_dark(
    open_page: OpenPage, settled: Callable[[Page], None], scheme: str, selector: str
) -> None:
    elsewhere = {
        "figure.pw-drawing": "mental-model/",
        ".pw-start": "",
        ".pw-claim": "claims/",
        ".pw-filters": "claims/",
    }
    page = open_page(elsewhere.get(selector, PAGE), color_scheme=scheme)
    expected = "slate" if scheme == "dark" else "default"
    assert page.locator("body").get_attribute("data-md-color-scheme") == expected
    if selector in ("#pair-loop", ".pw-status"):
        # Lit lines are the hard case: text on a tint.
        page.locator("#src-loop-u-L4").hover(position={"x": 90, "y": 6})
        expect(page.locator("#src-loop-u-L4")).to_have_class(re.compile(r"\bpw-on\b"))
        settled(page)
    if "drawing" in selector:
        fills = page.locator("figure.pw-drawing text").evaluate_all(
            "nodes => nodes.map(n => { n.style.color = getComputedStyle(n).fill; return n.textContent; })"
        )
        assert len(fills) > 30
    found = page.evaluate(CONTRAST, selector)
    assert found
    assert [entry for entry in found if entry[0] < 4.5] == []


def test_the_palette_can_be_switched_by_hand(open_page: OpenPage) -> None:
    page = open_page("mental-model/", color_scheme="light")
    text = page.locator("figure.pw-drawing text").first
    before = text.evaluate("n => getComputedStyle(n).fill")
    page.locator("label[title='Switch to dark']").click()
    expect(page.locator("body")).to_have_attribute("data-md-color-scheme", "slate")
    assert text.evaluate("n => getComputedStyle(n).fill") != before


@pytest.mark.parametrize("path", ALL_PAGES)
def test_a_page_asks_no_other_host_for_anything(open_page: OpenPage, path: str) -> None:
    """The fixture fails on any foreign request; here the page gets the time to make one."""
    page = open_page(path)
    page.wait_for_load_state("networkidle")
    assert page.evaluate("performance.getEntriesByType('resource').length") > 3


@pytest.mark.parametrize("width", [320, 390, 820, 1440])
def test_no_page_scrolls_sideways(open_page: OpenPage, address: str, width: int) -> None:
    page = open_page("", viewport={"width": width, "height": 844})
    for path in ALL_PAGES:
        page.goto(address + path)
        assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0, path


def sides(page: Page) -> tuple[dict[str, float], dict[str, float]]:
    left = page.locator("#pair-loop .pw-upstream").bounding_box()
    right = page.locator("#pair-loop .pw-port").bounding_box()
    assert left
    assert right
    return dict(left), dict(right)


@pytest.mark.parametrize("width", [1280, 1440, 1920])
def test_panes_stand_side_by_side_on_a_wide_screen(open_page: OpenPage, width: int) -> None:
    left, right = sides(open_page(PAGE, viewport={"width": width, "height": 900}))
    assert right["x"] >= left["x"] + left["width"]
    assert right["y"] == left["y"]
    assert abs(right["width"] - left["width"]) < 2


@pytest.mark.parametrize("width", [390, 820, 960])
def test_panes_stand_one_above_the_other_on_a_narrow_one(open_page: OpenPage, width: int) -> None:
    left, right = sides(open_page(PAGE, viewport={"width": width, "height": 844}))
    assert right["y"] >= left["y"] + left["height"]
    assert right["x"] == left["x"]
    assert right["x"] + right["width"] <= width


def test_long_lines_scroll_inside_their_pane_and_the_caption_stays(open_page: OpenPage) -> None:
    page = open_page(PAGE)
    pane = page.locator("#pair-loop .pw-upstream")
    caption = pane.locator("figcaption")
    start = caption.bounding_box()
    pane.evaluate("n => { n.scrollLeft = 400; n.scrollTop = 120; }")
    assert pane.evaluate("n => [n.scrollLeft > 100, n.scrollTop > 100]") == [True, True]
    assert caption.bounding_box() == start


def test_a_table_on_a_phone_is_a_list_of_labelled_values(open_page: OpenPage) -> None:
    page = open_page(PAGE, viewport={"width": 390, "height": 844})
    cell = page.locator("td[data-label='Observed']").first
    assert cell.evaluate("n => getComputedStyle(n).display") == "block"
    assert "Observed" in cell.evaluate("n => getComputedStyle(n, '::before').content")


def test_paper_shows_everything(open_page: OpenPage) -> None:
    page = open_page(PAGE)
    page.locator("#src-loop-u-L4").hover(position={"x": 90, "y": 6})
    page.emulate_media(media="print")
    page.wait_for_timeout(200)
    for side in ("upstream", "port"):
        pane = page.locator(f"#pair-loop .pw-{side}")
        assert pane.evaluate("n => getComputedStyle(n).overflow") == "visible"
        assert pane.evaluate("n => n.scrollHeight - n.clientHeight") <= 1
        assert pane.evaluate("n => n.scrollWidth - n.clientWidth") <= 1
    left, right = sides(page)
    assert right["y"] >= left["y"] + left["height"]
    assert not page.locator(".pw-status").first.is_visible()
    background = page.locator("#src-loop-u-L4").evaluate("n => getComputedStyle(n).backgroundColor")
    assert background == "rgba(0, 0, 0, 0)"
    assert len(page.pdf()) > 10_000


def test_reduced_motion_is_respected(open_page: OpenPage) -> None:
    still = open_page(PAGE, reduced_motion="reduce").locator("#src-loop-u-L4")
    assert still.evaluate("n => getComputedStyle(n).transitionDuration") == "0s"
    moving = open_page(PAGE).locator("#src-loop-u-L4")
    assert moving.evaluate("n => getComputedStyle(n).transitionDuration") != "0s"


def test_search_finds_a_concept(open_page: OpenPage) -> None:
    page = open_page("")
    page.locator(".md-search__input").click()
    page.keyboard.type("zebrafinch")
    result = page.locator(".md-search-result__link").first
    expect(result).to_be_visible()
    result.click()
    page.wait_for_url("**/concepts/toy-*/**")
    expect(page.locator(".md-content h1")).to_be_visible()


def test_without_scripts_everything_can_be_read(open_page: OpenPage) -> None:
    page = open_page(PAGE, java_script_enabled=False)
    assert page.locator("#src-loop-u-L5").is_visible()
    assert page.locator("#src-loop-p-L6").is_visible()
    assert page.locator(".pw-verdict", has_text="passed").first.is_visible()
    page.locator("a.pw-chip").first.click()
    assert page.url.endswith("/concepts/toy-loop/")


def test_a_link_to_a_line_marks_it(open_page: OpenPage) -> None:
    page = open_page(PAGE + "#src-write-p-L36")
    target = page.locator("#src-write-p-L36")
    # Both come with the jump, which may be a moment after the page.
    expect(target).not_to_have_css("background-color", "rgba(0, 0, 0, 0)")
    expect(target).to_be_in_viewport()


def test_the_record_unfolds(open_page: OpenPage) -> None:
    page = open_page(PAGE)
    record = page.locator("details.pw-record").first
    record.locator("summary").click()
    expect(record.locator("dd").first).to_be_visible()


def test_drawings_have_a_name_for_screen_readers(open_page: OpenPage) -> None:
    page = open_page("mental-model/")
    session = page.context.new_cdp_session(page)
    tree = json.dumps(session.send("Accessibility.getFullAXTree"))
    for name in ("One sequence, its block table, and the pool", "The gather loop, block by block"):
        assert name in tree


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("path", [*ALL_PAGES, "play/", "play/copy-blocks/"])
def test_axe_finds_nothing_serious_on_a_whole_page(open_page: OpenPage, path: str, scheme: str) -> None:
    """The theme's own parts too: a reader with a screen reader meets them first."""
    page = open_page(path, color_scheme=scheme)
    found = Axe().run(page, options={"preload": False}).response["violations"]
    assert {rule["id"]: rule["nodes"][0]["target"] for rule in found if rule["impact"] in ("serious", "critical")} == {}
