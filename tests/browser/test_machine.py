"""Machine-code pages in a browser: three columns that light up together, the switch, the keyboard, and no script."""

from __future__ import annotations

import functools
import importlib.util
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Locator, Page, expect

from annotate import concepts, spans
from walkthroughs import machine_record
from walkthroughs.site import code, machine_page

pytestmark = pytest.mark.browser
OpenPage = Callable[..., Page]
ROOT = Path(__file__).resolve().parents[2]
SOURCE = "vllm@0.24.0"
PAGE = "machine/k-load/"
ON = "li.pw-on"


@pytest.fixture(scope="module")
def made() -> ModuleType:
    """The made-up records of the page tests; the tests are no package, so they are loaded by their path."""
    name = "pagewalk_machine_sample"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, ROOT / "tests" / "walkthroughs" / "machine_sample.py")
        assert spec is not None
        assert spec.loader is not None
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]


@pytest.fixture(scope="module")
def site(
    made: ModuleType,
    sample: ModuleType,
    serving: Callable[[Path], AbstractContextManager[str]],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[str]:
    """Pages from made-up records, over upstream files of invented lines; a pair of the sample's panes beside."""
    folder = tmp_path_factory.mktemp("machine")
    docs, built, records = folder / "docs", folder / "site", folder / "records"
    records.mkdir()
    (records / "k-load.json").write_text(machine_record.dump(made.record()), "utf-8")
    two = [made.code(name="first"), made.code(name="second", registers=77)]
    (records / "v-load.json").write_text(machine_record.dump(made.record(*two, kernel="v-load", digest="old")), "utf-8")
    files = {span.path for found in spans.spans(SOURCE).values() for span in found}
    invented = "\n".join(f"int invented_{number} = {number};" for number in range(1, 1200)).encode()
    tree = SimpleNamespace(read=lambda path: invented, marked_copy=False, paths=lambda: files)
    with pytest.MonkeyPatch.context() as patch, serving(built) as url:
        built.mkdir()
        patch.setattr(machine_page, "_record", functools.cache(lambda name: machine_record.load(name, records)))
        patch.setattr(code, "tree_of", lambda source: tree if source == SOURCE else None)
        _build(sample, docs, built, url)
        yield url


def _build(sample: ModuleType, docs: Path, built: Path, url: str) -> None:
    from mkdocs.commands.build import build

    docs.mkdir()
    shutil.copytree(ROOT / "docs" / "assets", docs / "assets")
    (docs / "index.md").write_text("# A toy site\n\n[To the kernels](machine/index.md)\n\n::: pair toy-lookup toy@1\n")
    stubs = {name: text for name, text in machine_page.stubs().items() if not name.startswith("machine/tiny")}
    for name, text in stubs.items():
        (docs / name).parent.mkdir(exist_ok=True)
        (docs / name).write_text(text, "utf-8")
    # What the pages link to and this small site does not have.
    tiny = [name for name in machine_page.machine_subjects.names() if name.startswith("tiny")]
    elsewhere = [f"concepts/{name}.md" for name in (*concepts.concepts(), *sample.TITLES)]
    for name in [*elsewhere, *(f"machine/{name}.md" for name in tiny)]:
        (docs / name).parent.mkdir(exist_ok=True)
        (docs / name).write_text("# Elsewhere\n", "utf-8")
    settings = sample.config(docs, built, site_url=url)
    settings.nav = ["index.md", "machine/index.md"]
    build(settings)


@pytest.fixture
def open_page(browser: Browser, site: str, watching: Callable[..., AbstractContextManager[OpenPage]]) -> Iterator[Any]:
    with watching(browser, site) as opener:
        yield opener


def run(page: Page, line: int, side: str = "ptx", nth: int = 0) -> Locator:
    return page.locator(f'.pw-listing-{side} li[value="{line}"]').nth(nth)


def ours(page: Page, line: int) -> Locator:
    return page.locator(f'.pw-side-port li.pw-line[value="{line}"]')


def lit(page: Page, side: str) -> list[int]:
    """The numbers of the lit lines of one column; of runs, the numbers of their lines."""
    return [int(n) for n in page.locator(f".pw-side-{side} {ON}").evaluate_all("all => all.map(one => one.value)")]


def upstream_of(line: int, path: str = "kernels/loads.py") -> list[int]:
    """Upstream's lines of the innermost concept of our line that has any there, by brute force."""
    known = spans.spans(SOURCE)
    around = sorted(
        (last - first, name)
        for name, ranges in code.port_ranges(path).items()
        for first, last in ranges
        if first <= line <= last and name in known
    )
    return [n for span in known[around[0][1]] for n in range(span.first, span.last + 1)] if around else []


def hover(target: Locator) -> None:
    target.hover(position={"x": 90, "y": 6})


@pytest.mark.parametrize("side", ["ptx", "sass"])
def test_hovering_instructions_lights_our_line_and_upstreams(open_page: OpenPage, made: ModuleType, side: str) -> None:
    page = open_page(PAGE)
    page.locator(f'.pw-machine-bar input[value="{side}"]').check()
    hover(run(page, made.LOAD, side))
    assert lit(page, "port") == [made.LOAD]
    assert set(lit(page, "machine")) == {made.LOAD}
    for name in ("ptx", "sass"):
        expected = page.locator(f'.pw-listing-{name} li[value="{made.LOAD}"]').count()
        assert page.locator(f".pw-listing-{name} {ON}").count() == expected > 1
    assert lit(page, "upstream") == upstream_of(made.LOAD)
    assert lit(page, "upstream")


def test_hovering_our_line_lights_its_instructions_and_upstreams_lines(open_page: OpenPage, made: ModuleType) -> None:
    page = open_page(PAGE)
    hover(ours(page, made.LOOKUP))
    assert lit(page, "port") == [made.LOOKUP]
    assert set(lit(page, "machine")) == {made.LOOKUP}
    assert lit(page, "upstream") == upstream_of(made.LOOKUP) != upstream_of(made.LOAD)
    rows = {name: sum(line == made.LOOKUP for _, line in made.ROWS[name]) for name in ("ptx", "sass")}
    said = f"our line {made.LOOKUP}, {rows['ptx']} PTX, {rows['sass']} SASS, {len(lit(page, 'upstream'))} upstream line"
    expect(page.locator(".pw-machine .pw-status")).to_contain_text(said)


def test_hovering_upstreams_line_lights_all_that_its_concept_became(open_page: OpenPage, made: ModuleType) -> None:
    page = open_page(PAGE)
    first = upstream_of(made.LOAD)[0]
    target = page.locator(f'.pw-side-upstream li.pw-line[value="{first}"]').first
    hover(target)
    links = target.get_attribute("data-links") or ""
    concept = next(name for name in links.split() if name in code.port_ranges(made.PORT))
    region = [n for a, b in code.port_ranges(made.PORT)[concept] for n in range(a, b + 1)]
    assert set(lit(page, "port")) <= set(region)
    assert made.LOAD in lit(page, "port")
    assert set(lit(page, "machine")) == {made.LOAD, made.LOOKUP, made.STORE} & set(region)


def test_leaving_puts_the_light_out_and_nothing_else_is_lit(open_page: OpenPage, made: ModuleType) -> None:
    page = open_page(PAGE)
    hover(run(page, made.LOAD))
    page.locator("h1").hover()
    assert page.locator(".pw-on").count() == 0
    expect(page.locator(".pw-machine .pw-status")).to_have_text("")


def test_what_is_lit_elsewhere_comes_into_view(open_page: OpenPage, made: ModuleType) -> None:
    page = open_page(PAGE, viewport={"width": 1440, "height": 500})
    hover(run(page, made.LOAD))
    for side in ("port", "upstream"):
        first = page.locator(f".pw-side-{side} {ON}").first
        page.wait_for_function(
            "one => { const box = one.getBoundingClientRect(), frame = one.closest('.pw-side').getBoundingClientRect();"
            " return box.top >= frame.top && box.top < frame.bottom; }",
            arg=first.element_handle(),
        )


def test_a_click_keeps_it_lit_until_escape(open_page: OpenPage, made: ModuleType) -> None:
    page = open_page(PAGE)
    run(page, made.LOAD).click(position={"x": 90, "y": 6})
    hover(ours(page, made.LOOKUP))
    page.locator("h1").hover()
    assert lit(page, "port") == [made.LOAD]
    expect(page.locator(".pw-machine .pw-status")).to_contain_text("Escape lets go")
    page.keyboard.press("Escape")
    assert page.locator(".pw-on").count() == 0
    hover(ours(page, made.LOOKUP))
    assert lit(page, "port") == [made.LOOKUP]


def test_the_keyboard_goes_through_a_listing_and_on(open_page: OpenPage, made: ModuleType) -> None:
    page = open_page(PAGE)
    first = page.locator(".pw-listing-ptx li[data-l]").first
    first.focus()
    assert set(lit(page, "machine")) == {made.LOOKUP}
    page.keyboard.press("ArrowDown")
    assert set(lit(page, "machine")) == {made.LOAD}
    expect(page.locator(".pw-listing-ptx li:focus")).to_have_attribute("value", str(made.LOAD))
    page.keyboard.press("Enter")
    page.keyboard.press("ArrowUp")
    assert set(lit(page, "machine")) == {made.LOAD}, "kept"
    page.keyboard.press("Escape")
    assert page.locator(".pw-listing-ptx [tabindex='0']").count() == 1
    page.keyboard.press("Tab")
    assert page.locator(".pw-listing :focus").count() == 0, "one stop a listing"


def test_the_keys_of_the_ports_column_move_line_by_line(open_page: OpenPage, made: ModuleType) -> None:
    page = open_page(PAGE)
    start = page.locator(".pw-side-port li[tabindex='0']").first
    start.focus()
    before = int(start.get_attribute("value") or 0)
    page.keyboard.press("ArrowDown")
    after = int(page.locator(".pw-side-port li:focus").get_attribute("value") or 0)
    assert after > before


def test_the_switch_shows_one_listing_at_a_time(open_page: OpenPage) -> None:
    page = open_page(PAGE)
    ptx, sass = page.locator(".pw-listing-ptx"), page.locator(".pw-listing-sass")
    expect(ptx).to_be_visible()
    expect(sass).to_be_hidden()
    page.get_by_role("radio", name="SASS").check()
    expect(sass).to_be_visible()
    expect(ptx).to_be_hidden()
    page.keyboard.press("ArrowLeft")
    expect(ptx).to_be_visible()


def test_two_kernels_switch_together_and_the_page_says_that_it_is_stale(open_page: OpenPage) -> None:
    page = open_page("machine/v-load/")
    assert page.locator(".pw-listing-ptx:visible").count() == 2
    page.get_by_role("radio", name="SASS").check()
    assert page.locator(".pw-listing-sass:visible").count() == 2
    assert page.locator(".pw-listing-ptx:visible").count() == 0
    expect(page.get_by_text("Stale:")).to_be_visible()


def test_three_columns_stand_beside_each_other_and_none_is_wider_than_the_page(open_page: OpenPage) -> None:
    page = open_page(PAGE)
    boxes = [page.locator(f".pw-side-{side}").bounding_box() for side in ("upstream", "port", "machine")]
    assert all(boxes)
    lefts, tops = [box["x"] for box in boxes if box], {round(box["y"]) for box in boxes if box}
    assert lefts == sorted(lefts)
    assert len(set(lefts)) == 3
    assert len(tops) == 1
    assert page.evaluate("document.documentElement.scrollWidth") == 1440


@pytest.mark.parametrize("width", [390, 820])
def test_on_narrow_screens_they_stand_below_each_other(open_page: OpenPage, made: ModuleType, width: int) -> None:
    page = open_page(PAGE, viewport={"width": width, "height": 844}, has_touch=True)
    tops = [box["y"] for side in ("upstream", "port", "machine")
            if (box := page.locator(f".pw-side-{side}").bounding_box())]  # fmt: skip
    assert tops == sorted(set(tops))
    assert len(tops) == 3
    assert page.evaluate("document.documentElement.scrollWidth") == width
    run(page, made.LOAD).tap()
    assert lit(page, "port") == [made.LOAD]


def test_the_colours_are_the_same_on_both_sides_and_never_alone(open_page: OpenPage, made: ModuleType) -> None:
    page = open_page(PAGE)
    colour = "one => getComputedStyle(one).backgroundColor"
    line, other = ours(page, made.LOAD), ours(page, made.LOOKUP)
    assert line.evaluate(colour) == run(page, made.LOAD).evaluate(colour) != other.evaluate(colour)
    number = "one => getComputedStyle(one, '::before').content"
    assert str(made.LOAD) in run(page, made.LOAD).evaluate(number)
    hover(line)
    assert "inset" in run(page, made.LOAD).evaluate("one => getComputedStyle(one).boxShadow")


def test_without_javascript_both_listings_are_there(open_page: OpenPage, made: ModuleType) -> None:
    page = open_page(PAGE, java_script_enabled=False)
    for side in ("ptx", "sass"):
        expect(page.locator(f".pw-listing-{side}")).to_be_visible()
        text = page.locator(f".pw-listing-{side} .pw-rows").inner_text()
        assert all(row in text for row, _ in made.ROWS[side])
    assert page.locator(".pw-machine-bar").count() == 0


def test_it_lives_on_after_instant_navigation_and_pairs_elsewhere_still_light(
    open_page: OpenPage, made: ModuleType
) -> None:
    page = open_page("")
    page.evaluate("window.marked = true")
    for _ in range(2):
        page.get_by_role("link", name="To the kernels").click()
        page.locator("article").get_by_role("link", name="k-load").first.click()
        page.wait_for_url(re.compile(r"/machine/k-load/(#.*)?$"))
        expect(page.locator(".pw-machine-bar")).to_have_count(1)
        hover(run(page, made.LOAD))
        assert lit(page, "port") == [made.LOAD]
        page.locator("a.md-logo").first.click()
        page.wait_for_function("document.querySelector('.pw-pair .pw-status')")
    assert page.evaluate("window.marked") is True, "the page was not loaded again"
    hover(page.locator(".pw-pair .pw-side-upstream li[data-links]").first)
    assert page.locator(".pw-pair .pw-side-port .pw-on").count() > 0


def test_the_pairs_keys_leave_the_columns_alone(open_page: OpenPage, made: ModuleType) -> None:
    """Both scripts listen to the whole page: Enter and a click here must not reach the other's pairs."""
    page = open_page(PAGE)
    ours(page, made.LOAD).click(position={"x": 90, "y": 6})
    target = page.locator(".pw-side-upstream li[tabindex='0']").first
    target.focus()
    page.keyboard.press("Enter")
    assert page.locator(".pw-machine.pw-pinned").count() == 1


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1440])
def test_no_serious_trouble_for_those_who_do_not_see_or_use_a_mouse(
    open_page: OpenPage, made: ModuleType, scheme: str, width: int
) -> None:
    page = open_page(PAGE, color_scheme=scheme, viewport={"width": width, "height": 900})
    ours(page, made.LOAD).click(position={"x": 90, "y": 6})
    found = Axe().run(page, context="article", options={"preload": False})
    bad = [f"{v['id']}: {v['nodes'][0]['html'][:120]} {v['nodes'][0]['failureSummary'][:200]}"
           for v in found.response["violations"] if v["impact"] in ("serious", "critical")]  # fmt: skip
    assert bad == []


def test_on_paper_both_listings_are_printed(open_page: OpenPage) -> None:
    page = open_page(PAGE)
    page.emulate_media(media="print")
    for side in ("ptx", "sass"):
        expect(page.locator(f".pw-listing-{side}")).to_be_visible()
    expect(page.locator(".pw-machine-bar")).to_be_hidden()


def test_a_kernel_without_a_record_says_so_and_the_index_lists_all(open_page: OpenPage) -> None:
    page = open_page("machine/gather/")
    expect(page.get_by_text("Not yet recorded.")).to_be_visible()
    page = open_page("machine/")
    rows = page.locator("article tbody tr")
    assert rows.count() == len(machine_page.machine_subjects.names()) + 1
    expect(rows.filter(has_text="k-load")).to_contain_text("K: ld.global.v4.u32")


def test_the_page_weighs_little(site: str, browser: Browser) -> None:
    """Everything that the page asks for, the theme included."""
    page = browser.new_page()
    sizes: list[int] = []
    page.on("response", lambda response: sizes.append(len(response.body())) if response.ok else None)
    page.goto(site + PAGE, wait_until="networkidle")
    page.close()
    assert sizes
    assert sum(sizes) < 1_500_000
