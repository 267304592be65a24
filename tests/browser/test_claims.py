"""The claims page in a browser: the filters, the address, links to a claim, and the page without scripts."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

pytestmark = pytest.mark.browser
OpenPage = Callable[..., Page]
ALL = ["T-1", "T-2", "T-3", "T-4", "T-5"]


def shown(page: Page) -> list[str]:
    found: list[str] = page.locator(".pw-claim:visible").evaluate_all("nodes => nodes.map(n => n.id)")
    return found


def test_without_scripts_everything_is_listed_and_nothing_filters(open_page: OpenPage) -> None:
    page = open_page("claims/", java_script_enabled=False)
    assert page.locator(".pw-claim:visible").count() == len(ALL)
    expect(page.locator("form.pw-filters")).to_be_hidden()


@pytest.mark.parametrize(
    ("field", "value", "expected"),
    [
        ("group", "lesson 1", ["T-1", "T-2"]),
        ("verdict", "wrong", ["T-2"]),
        ("concept", "toy-loop", ["T-1", "T-2", "T-5"]),
    ],
)
def test_a_filter_leaves_what_fits(open_page: OpenPage, field: str, value: str, expected: list[str]) -> None:
    page = open_page("claims/")
    assert shown(page) == ALL
    page.locator(f"select[name={field}]").select_option(value)
    assert shown(page) == expected
    expect(page.locator(".pw-filter-count")).to_have_text(f"{len(expected)} of {len(ALL)} shown")


def test_filters_are_combined_and_empty_groups_lose_their_heading(open_page: OpenPage) -> None:
    page = open_page("claims/")
    page.locator("select[name=concept]").select_option("toy-loop")
    page.locator("select[name=group]").select_option("lesson 2")
    assert shown(page) == ["T-5"]
    expect(page.locator("#lesson-1")).to_be_hidden()
    expect(page.locator("#lesson-2")).to_be_visible()
    page.locator(".pw-filter-reset").click()
    expect(page.locator("#lesson-1")).to_be_visible()
    assert shown(page) == ALL


def test_the_choice_stands_in_the_address(open_page: OpenPage) -> None:
    page = open_page("claims/")
    page.locator("select[name=verdict]").select_option("wrong")
    assert page.url.endswith("?verdict=wrong")
    page.reload()
    expect(page.locator("select[name=verdict]")).to_have_value("wrong")
    assert shown(page) == ["T-2"]
    page.locator(".pw-filter-reset").click()
    page.wait_for_function("!location.search")


def test_a_linked_claim_is_shown_whatever_the_filter(open_page: OpenPage) -> None:
    page = open_page("claims/?verdict=wrong#T-1")
    assert shown(page) == ["T-1", "T-2"]
    expect(page.locator("#T-1")).to_be_in_viewport()


def test_a_nonsense_filter_shows_everything(open_page: OpenPage) -> None:
    assert shown(open_page("claims/?verdict=%3Cb%3E&concept=none")) == ALL


def test_a_note_leads_to_its_claim(open_page: OpenPage) -> None:
    page = open_page("walkthroughs/alpha/")
    note = page.locator(".pw-claim-note.pw-claim-wrong").first
    assert "Often said, and wrong" in note.inner_text()
    note.locator("a", has_text="T-2").click()
    page.wait_for_url("**/claims/#T-2")
    expect(page.locator("#T-2")).to_be_in_viewport()
    # The script has set the page up after instant navigation too.
    expect(page.locator("form.pw-filters")).to_be_visible()


@pytest.mark.parametrize("width", [1220, 1440, 1920])
@pytest.mark.parametrize("path", ["walkthroughs/alpha/", "concepts/toy-loop/"])
def test_notes_stand_in_the_margin_of_a_wide_page(open_page: OpenPage, path: str, width: int) -> None:
    page = open_page(path, viewport={"width": width, "height": 900})
    prose, margin = (page.locator(f".pw-{name}").first.bounding_box() for name in ("prose", "margin"))
    assert prose
    assert margin
    assert margin["x"] >= prose["x"] + prose["width"]
    assert abs(margin["y"] - prose["y"]) < 1
    assert prose["width"] >= 600
    assert margin["width"] >= 240
    assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0


@pytest.mark.parametrize("width", [390, 820])
def test_notes_follow_the_prose_of_a_narrow_page(open_page: OpenPage, width: int) -> None:
    page = open_page("walkthroughs/alpha/", viewport={"width": width, "height": 900})
    prose, margin = (page.locator(f".pw-{name}").first.bounding_box() for name in ("prose", "margin"))
    assert prose
    assert margin
    assert margin["x"] == prose["x"]
    assert margin["y"] >= prose["y"] + prose["height"]
    assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0


def test_filters_work_with_the_keyboard_and_at_a_phones_width(open_page: OpenPage) -> None:
    page = open_page("claims/", viewport={"width": 390, "height": 844})
    field = page.locator("select[name=verdict]")
    field.focus()
    page.keyboard.type("wrong")
    expect(field).to_have_value("wrong")
    assert shown(page) == ["T-2"]
    page.locator("#T-2 summary").click()
    assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
    box = page.locator("#T-2").bounding_box()
    assert box
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= 390
