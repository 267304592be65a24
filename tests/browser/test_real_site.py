"""The real site in the browser: every walkthrough opens cleanly, and every step's lines light up on both sides."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page

from annotate import sources
from walkthroughs import step as catalog

pytestmark = [pytest.mark.browser, pytest.mark.source]
ROOT = Path(__file__).resolve().parents[2]
OpenPage = Callable[..., Page]

# For every pair: the first line whose innermost link has lines on the other side, and how many lines have that link.
PAIRS = """
() => [...document.querySelectorAll(".pw-pair")].map(pair => {
  const lines = [...pair.querySelectorAll(".pw-line[data-links]")];
  const links = line => line.dataset.links.split(" ");
  const side = line => line.closest(".pw-side");
  const has = (line, link) => links(line).includes(link);
  for (const line of lines) {
    const link = links(line)[0];
    const others = lines.filter(other => has(other, link));
    if (others.some(other => side(other) !== side(line)))
      return [pair.id, line.id, others.map(other => other.id)];
  }
  return [pair.id, null, []];
})
"""


@pytest.fixture(scope="module")
def real_address(
    chromium: str,
    serving: Callable[[Path], AbstractContextManager[str]],
    real_site: Path,
    put_site: Callable[[Path, Path, str], None],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[str]:
    from walkthroughs.site import drill_files
    from walkthroughs.stepper import film_files

    site = tmp_path_factory.mktemp("real-browser")
    with serving(site) as url:
        # Instant navigation believes the site map, which holds the address that the site was built for.
        put_site(real_site, site, url)
        # The command writes them before it builds; here nothing may be written into the checkout.
        film_files.write_all(site / "assets" / "films")
        drill_files.write_all(site / "assets" / "drills")
        yield url


@pytest.fixture
def open_real(
    browser: Browser, real_address: str, watching: Callable[[Browser, str], AbstractContextManager[OpenPage]]
) -> Iterator[OpenPage]:
    with watching(browser, real_address) as opener:
        yield opener


@pytest.mark.parametrize("walkthrough", list(catalog.registry()))
def test_every_step_lights_up_on_both_sides(open_real: OpenPage, walkthrough: str) -> None:
    page = open_real(f"walkthroughs/{walkthrough}/", reduced_motion="reduce")
    found = page.evaluate(PAIRS)
    assert len(found) == len(catalog.registry()[walkthrough].steps)
    # An optional source that could not be fetched has no lines here: its pane says so.
    missing = {
        str(name) for name in page.locator(".pw-missing").evaluate_all("nodes => nodes.map(n => n.dataset.source)")
    }
    assert all(sources.pins()[name].optional for name in missing)
    shown = [
        step for step in catalog.registry()[walkthrough].steps if "@" in step.source and step.source not in missing
    ]
    upstream = {f"pair-{step.slug}" for step in shown}
    for pair, line, expected in found:
        if line is None:
            assert pair not in upstream, f"{pair}: no line has a partner"
            continue
        page.locator(f"#{line}").focus()
        lit = page.locator(".pw-line.pw-on").evaluate_all("nodes => nodes.map(n => n.id)")
        assert lit == expected


@pytest.mark.parametrize("width", [390, 1440])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_hand_written_page_opens_cleanly(open_real: OpenPage, real_address: str, width: int, scheme: str) -> None:
    page = open_real("", viewport={"width": width, "height": 844}, color_scheme=scheme)
    paths = [path.stem for path in (ROOT / "docs").glob("*.md") if path.stem != "index"]
    paths += [
        "concepts",
        "walkthroughs",
        "concepts/block-table-walk",
        "compare",
        "compare/normalise",
        *(f"walkthroughs/{w}" for w in catalog.registry()),
    ]
    for path in paths:
        page.goto(f"{real_address}{path}/")
        assert page.locator(".md-content h1").count() == 1, path
        assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0, path


def test_the_landing_page_says_what_this_is_and_starts_the_reader(open_real: OpenPage) -> None:
    page = open_real("")
    start = page.locator("a.pw-start").first
    box = start.bounding_box()
    assert box
    assert box["y"] + box["height"] < 900, "the start must be on the first screen"
    start.click()
    page.wait_for_selector("h2[id^=step-]")
    assert page.locator("h2[id^=step-]").count() >= 6


@pytest.mark.parametrize("word", ["qk_max", "thread group", "slot mapping"])
def test_search_finds_what_a_reader_of_the_kernel_would_type(open_real: OpenPage, word: str) -> None:
    page = open_real("")
    page.locator(".md-search__input").click()
    page.keyboard.type(word)
    page.wait_for_selector(".md-search-result__link")
    assert page.locator(".md-search-result__link").count() >= 2


@pytest.mark.parametrize(("width", "columns"), [(390, 1), (820, 2), (1440, 3)])
def test_a_compare_page_fits_and_lights_up_across_its_kernels(open_real: OpenPage, width: int, columns: int) -> None:
    page = open_real("compare/block-table-walk/", viewport={"width": width, "height": 900}, reduced_motion="reduce")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    heads = page.locator(".pw-kernel-head").evaluate_all("nodes => nodes.map(n => n.getBoundingClientRect().left)")
    assert (len(heads), len(set(heads))) == (6, columns)
    page.locator("[id^='src-smallest-p-L']").first.focus()
    lit = page.locator(".pw-side:has(.pw-on)").evaluate_all("nodes => nodes.map(n => n.getAttribute('aria-label'))")
    assert {str(name).partition(":")[0] for name in lit} >= {
        "Classic kernel (body of v1 and v2)",
        "2d kernel (runs today)",
        "Unified kernel",
        "AMD kernel (gfx9)",
        "Our smallest kernel",
    }


def test_a_concept_page_leads_to_its_lane_and_to_its_compare_page(open_real: OpenPage) -> None:
    page = open_real("concepts/block-table-walk/")
    page.locator("a", has_text="Its lane in the history").click()
    page.wait_for_url("**/history/#lane-block-table-walk-1")
    box = page.locator("#lane-block-table-walk-1").bounding_box()
    assert box is not None
    assert 0 < box["y"] < 900
    page.go_back()
    page.locator("a", has_text="All of them side by side").click()
    page.wait_for_url(re.compile(r"/compare/block-table-walk/(#.*)?$"))


@pytest.mark.parametrize("width", [360, 1300])
def test_the_history_page_fits_and_its_cells_are_reached_by_keyboard(open_real: OpenPage, width: int) -> None:
    page = open_real("history/", viewport={"width": width, "height": 800}, reduced_motion="reduce")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    cell = page.locator("td a.pw-cell").first
    cell.focus()
    assert page.evaluate("document.activeElement.className").startswith("pw-cell")
    box = cell.bounding_box()
    assert box is not None
    assert box["width"] >= 24
    assert box["height"] >= 24
    spoken = cell.locator(".pw-spoken").bounding_box()
    assert spoken is not None
    assert spoken["width"] <= 2
