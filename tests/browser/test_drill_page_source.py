"""Finding lines in the page: by mouse, keyboard, touch and typing; the verdict; a source that is not here."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, expect

from annotate.spans import spans
from walkthroughs import packing

pytestmark = pytest.mark.browser
OpenPage = Callable[..., Page]
PAGE = "drills/find/"
TAIL, AWAY = "The harmless tail", "Constants of the cache"
(PLACE,) = spans("vllm@0.24.0")["tail-zeroing"]


def ask(page: Page, title: str = TAIL) -> Locator:
    page.get_by_role("button", name=f"Ask me this: {title}").click()
    element = page.locator("pagewalk-drill")
    expect(element).to_have_attribute("data-phase", "ask")
    return element


def opened(page: Page) -> Locator:
    element = ask(page)
    expect(element.locator("li[value='1']")).to_be_visible()
    return element


def line(element: Locator, number: int) -> Locator:
    return element.locator(f".pw-drill-lines li[value='{number}']")


def typed(element: Locator) -> Locator:
    return element.locator("input[name=answer]")


def taken(element: Locator) -> list[int]:
    found: list[int] = element.locator(".pw-drill-taken").evaluate_all("nodes => nodes.map(n => n.value)")
    return found


def test_a_click_takes_a_line_and_a_shift_click_a_range_either_way(open_page: OpenPage) -> None:
    element = opened(open_page(PAGE))
    line(element, 12).click()
    expect(typed(element)).to_have_value("12")
    line(element, 15).click(modifiers=["Shift"])
    expect(typed(element)).to_have_value("12-15")
    assert taken(element) == [12, 13, 14, 15]
    line(element, 9).click(modifiers=["Shift"])
    expect(typed(element)).to_have_value("9-12")
    line(element, 9).click()
    assert taken(element) == [9]


def test_a_drag_takes_the_lines_that_it_passes(open_page: OpenPage) -> None:
    page = open_page(PAGE)
    element = opened(page)
    line(element, 4).hover()
    page.mouse.down()
    for number in (6, 8):
        line(element, number).hover()
    page.mouse.up()
    line(element, 11).hover()
    expect(typed(element)).to_have_value("4-8")
    assert page.evaluate("String(window.getSelection())") == ""


def test_the_keyboard_takes_lines_and_they_come_into_view(open_page: OpenPage) -> None:
    page = open_page(PAGE)
    element = opened(page)
    element.locator("[role=listbox]").focus()
    for _ in range(3):
        page.keyboard.press("ArrowDown")
    expect(typed(element)).to_have_value("3")
    page.keyboard.press("Shift+ArrowDown")
    page.keyboard.press("Shift+PageDown")
    expect(typed(element)).to_have_value("3-24")
    active = element.locator("[role=listbox]").get_attribute("aria-activedescendant")
    expect(page.locator(f"#{active}")).to_have_attribute("value", "24")
    page.keyboard.press("End")
    count = element.locator("[role=option]").count()
    expect(typed(element)).to_have_value(str(count))
    expect(line(element, count)).to_be_in_viewport()
    page.keyboard.press("Home")
    expect(line(element, 1)).to_be_in_viewport()
    assert taken(element) == [1]


def test_a_finger_takes_a_range_by_the_button(open_page: OpenPage) -> None:
    page = open_page(PAGE, has_touch=True, viewport={"width": 390, "height": 844})
    element = opened(page)
    line(element, 5).tap()
    extend = element.locator("[data-act=extend]")
    extend.tap()
    expect(extend).to_have_attribute("aria-pressed", "true")
    line(element, 7).tap()
    expect(typed(element)).to_have_value("5-7")
    expect(extend).to_have_attribute("aria-pressed", "false")


def test_what_is_typed_is_marked_and_what_is_no_line_is_not(open_page: OpenPage) -> None:
    element = opened(open_page(PAGE))
    typed(element).fill("attention_kernels.cuh:400-402")
    assert taken(element) == [400, 401, 402]
    expect(line(element, 400)).to_be_in_viewport()
    typed(element).fill("400-999999")
    assert taken(element) == [400, 401, 402]


def test_the_right_lines_are_right_and_are_lit(open_page: OpenPage) -> None:
    page = open_page(PAGE)
    element = opened(page)
    typed(element).fill(f"{PLACE.first}-{PLACE.last}")
    page.keyboard.press("Enter")
    expect(element.locator(".pw-drill-verdict")).to_have_text("✔ Right.")
    lit = element.locator(".pw-on").evaluate_all("nodes => nodes.map(n => n.value)")
    assert lit == list(range(PLACE.first, PLACE.last + 1))
    line(element, PLACE.first).click()
    assert taken(element) == lit, "what was answered is not changed any more"
    link = element.locator(".pw-drill-result a[href^='https://']")
    expect(link).to_have_attribute(
        "href", f"https://github.com/vllm-project/vllm/blob/v0.24.0/{PLACE.path}#L{PLACE.first}-L{PLACE.last}"
    )
    page.keyboard.press("3")
    expect(element.locator(".pw-drill-say")).to_have_text("Good: again in 10 min.")
    (event,) = json.loads(page.evaluate("window.localStorage['pagewalk-drills']"))["log"]
    assert (event["item"], event["form"]) == ("find/tail-of-v", "lines")


def test_a_near_miss_is_said_to_be_near_and_the_place_comes_into_view(open_page: OpenPage) -> None:
    element = opened(open_page(PAGE))
    typed(element).fill(str(PLACE.first - 4))
    element.locator("[data-act=answer]").click()
    expect(element.locator(".pw-drill-verdict")).to_have_text("✘ Close: 4 lines further down.")
    expect(line(element, PLACE.first)).to_be_in_viewport()
    expect(element.locator(".pw-drill-ranges")).to_have_count(0)


def test_another_file_is_said_to_be_another(open_page: OpenPage) -> None:
    element = opened(open_page(PAGE))
    typed(element).fill("other.cu:12")
    element.locator("[data-act=answer]").click()
    expect(element.locator(".pw-drill-verdict")).to_contain_text("other.cu is another file")


def test_where_the_source_is_not_here_lines_are_typed_and_the_page_says_why(open_page: OpenPage) -> None:
    page = open_page(PAGE)
    element = ask(page, AWAY)
    expect(element.locator(".pw-drill-missing")).to_contain_text(
        "tiny-vllm@e25bf19 is not on the machine that built this page"
    )
    hrefs = element.locator(".pw-drill-missing a").evaluate_all("nodes => nodes.map(n => n.href)")
    assert len(hrefs) == 2
    assert all(href.startswith("https://") and "#" not in href for href in hrefs), "the lines would tell"
    typed(element).fill("kernels.cu:16-19")
    page.keyboard.press("Enter")
    expect(element.locator(".pw-drill-verdict")).to_have_text("✔ Right.")


def test_a_file_that_does_not_load_is_said_and_lines_can_be_typed(open_page: OpenPage) -> None:
    page = open_page(PAGE)
    page.route("**/assets/drills/source-*", lambda route: route.fulfill(body=""))
    element = ask(page)
    expect(element.locator(".pw-drill-missing")).to_contain_text("The file does not load")
    typed(element).fill(str(PLACE.first))
    page.keyboard.press("Enter")
    expect(element.locator(".pw-drill-verdict")).to_have_text("✔ Right.")


def test_two_files_are_chosen_between(open_page: OpenPage) -> None:
    page = open_page(PAGE)
    made: dict[str, Any] = {
        "source": "s",
        "revision": "1",
        "licence": "MIT",
        "href": "https://example.invalid/x",
        "own": True,
    }
    for name, count in (("one", 30), ("two", 60)):
        content = {**made, "path": f"src/{name}.cu", "lines": [f"line {n}" for n in range(1, count + 1)]}
        page.evaluate(packing.script("pagewalkDrills", name, content))
    page.evaluate(
        """async () => { const bank = await PagewalkDrill.data("bank"), entry = bank.find["find/tiny-constants"];
             entry.files = [{ path: "src/one.cu", name: "one" }, { path: "src/two.cu", name: "two" }];
             entry.places = [{ path: "src/two.cu", first: 40, last: 41, href: "https://example.invalid/x#L40" }];
             entry.around = { "src/two.cu": [] }; }"""
    )
    element = ask(page, AWAY)
    tabs = element.locator("[data-act=file]")
    expect(tabs).to_have_text(["one.cu", "two.cu"])
    line(element, 3).click()
    expect(typed(element)).to_have_value("src/one.cu:3")
    expect(element.locator("figcaption")).to_contain_text("a copy of your own")
    tabs.last.click()
    expect(tabs.last).to_have_attribute("aria-pressed", "true")
    expect(line(element, 60)).to_be_attached()
    tabs.first.click()
    expect(line(element, 60)).to_have_count(0)
    typed(element).fill("two.cu:40")
    page.keyboard.press("Enter")
    expect(element.locator(".pw-drill-verdict")).to_have_text("✔ Right.")
    expect(element.locator(".pw-on")).to_have_count(2)
    expect(line(element, 40)).to_be_in_viewport()


def test_a_sitting_goes_on_with_the_lines_that_were_taken(open_page: OpenPage) -> None:
    page = open_page("drills/")
    for name in ("recall", "compute", "predict"):
        page.locator(f"fieldset input[name={name}]").uncheck()
    page.locator("[data-act=begin]").click()
    element = page.locator("pagewalk-drill")
    line(element, 30).click()
    line(element, 33).click(modifiers=["Shift"])
    page.reload()
    expect(typed(element)).to_have_value("30-33")
    expect(line(element, 33)).to_have_attribute("aria-selected", "true")
    assert taken(element) == [30, 31, 32, 33]
