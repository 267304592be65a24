"""The pages of questions, and how drills look: asked there and then, without scripts, on paper, widths, axe."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Locator, Page, expect

pytestmark = pytest.mark.browser
OpenPage = Callable[..., Page]
INDEX = "drills/"
SESSION = "pagewalk-drill-session"


def begin(page: Page, *kinds: str, limit: int = 10) -> Locator:
    """Start a sitting of some kinds, or of all; answers the place of the question."""
    element = page.locator("pagewalk-drill").first
    expect(element).to_have_attribute("data-state", "ready")
    for box in element.locator("fieldset input").all():
        box.set_checked(not kinds or box.get_attribute("name") in kinds)
    element.locator("input[name=limit]").fill(str(limit))
    element.locator("[data-act=begin]").click()
    expect(element).to_have_attribute("data-phase", re.compile("ask|done"))
    return element


def phase(element: Locator, wanted: str) -> None:
    expect(element).to_have_attribute("data-phase", wanted)


def kept(page: Page, key: str = "pagewalk-drills") -> Any:
    text = page.evaluate("key => window.localStorage.getItem(key)", key)
    return json.loads(text) if text else None


def log(page: Page) -> list[dict[str, Any]]:
    found = kept(page)
    return list(found["log"]) if found else []


def drawn(page: Page) -> dict[str, Any]:
    """The recorded draw that is being asked, as the page has it."""
    found: dict[str, Any] = page.evaluate("document.querySelector('pagewalk-drill').open.draw")
    return found


def says(element: Locator) -> Locator:
    return element.locator(".pw-drill-say")


# ---- a kind's page ----


def test_every_question_has_an_address_an_answer_and_a_button(open_page: OpenPage, sample: ModuleType) -> None:
    for kind in ("recall", "find"):
        items = sample.DRILLS[kind]
        page = open_page(f"drills/{kind}/#{items[-1]}")
        assert page.locator("h3[data-drill]").evaluate_all("nodes => nodes.map(n => n.id)") == list(items)
        expect(page.locator(f"[id='{items[-1]}']")).to_be_in_viewport()
        expect(page.locator(".pw-drill-ask")).to_have_count(len(items))
        expect(page.locator("details.pw-drill-answer")).to_have_count(len(items))
        page.close()


def test_ask_me_this_asks_one_question_there_and_keeps_the_answer(open_page: OpenPage) -> None:
    page = open_page("drills/compute/")
    asker = page.get_by_role("button", name="Ask me this: The slot of a token")
    asker.click()
    element = page.locator("pagewalk-drill")
    expect(element.locator("input[name=answer]")).to_be_focused()
    expect(asker).to_have_attribute("aria-expanded", "true")
    element.locator("input[name=answer]").fill(str(drawn(page)["answer"]))
    page.keyboard.press("Enter")
    page.keyboard.press("3")
    expect(says(element)).to_have_text("Good: again in 10 min.")
    assert [event["item"] for event in log(page)] == ["compute/slot"]
    assert kept(page, SESSION) is None, "it is no sitting"
    page.keyboard.press("u")
    phase(element, "ask")
    assert [event["what"] for event in log(page)] == ["review", "undo"]
    element.locator("[data-act=leave]").click()
    expect(element).to_have_count(0)
    expect(asker).to_be_focused()


def test_without_scripts_every_answer_unfolds(open_page: OpenPage, sample: ModuleType) -> None:
    page = open_page(INDEX, java_script_enabled=False)
    expect(page.locator(".pw-drill-static")).to_be_visible()
    expect(page.locator(".pw-drill")).to_have_count(0)
    page = open_page("drills/find/", java_script_enabled=False)
    expect(page.locator(".pw-drill-ask")).to_have_count(0)
    fold = page.locator("details.pw-drill-answer").first
    expect(fold.locator("a[href^='https://']")).to_be_hidden()
    fold.locator("summary").click()
    expect(fold.locator("a[href^='https://']")).to_be_visible()


def test_paper_has_the_answers_and_no_buttons(open_page: OpenPage) -> None:
    page = open_page("drills/recall/")
    page.locator(".pw-drill-ask").first.click()
    expect(page.locator("textarea")).to_be_visible()
    page.emulate_media(media="print")
    expect(page.locator(".pw-drill")).to_be_hidden()
    expect(page.locator(".pw-drill-ask").first).to_be_hidden()
    expect(page.locator("details.pw-drill-answer li").first).to_be_visible()


def test_the_search_finds_a_question_by_the_words_of_its_answer(open_page: OpenPage) -> None:
    page = open_page(INDEX)
    page.locator(".md-search__input").click()
    page.keyboard.type("table for twelve")
    found = page.locator(".md-search-result__link[href*='drills/recall/']")
    found.first.wait_for()
    assert "#recall/why-blocks" in (found.last.get_attribute("href") or "")


# ---- widths, colours, a screen reader ----


def serious(page: Page, *rules: str) -> list[str]:
    options = {"runOnly": {"type": "rule", "values": list(rules)}} if rules else {}
    answer = Axe().run(page, context=".pw-drill", options=options).response
    faults = [fault for fault in answer["violations"] if fault["impact"] in ("serious", "critical")]
    return [f"{fault['id']}: {fault['nodes'][0]['html'][:90]}" for fault in faults]


@pytest.mark.parametrize(("scheme", "rules"), [("light", ()), ("dark", ("color-contrast",))])
def test_axe_finds_nothing_serious_in_a_sitting(open_page: OpenPage, scheme: str, rules: tuple[str, ...]) -> None:
    page = open_page(INDEX, color_scheme=scheme, reduced_motion="reduce")
    element = page.locator("pagewalk-drill")
    begin(page, "compute", limit=1)
    page.keyboard.press("Enter")
    page.keyboard.press("?")
    element.locator(".pw-drill-progress summary").click()
    element.locator("[data-act=reset]").click()
    assert serious(page, *rules) == []
    element.locator("[data-act=leave]").click()
    assert serious(page, *rules) == []


@pytest.mark.parametrize(("scheme", "rules"), [("light", ()), ("dark", ("color-contrast",))])
def test_axe_finds_nothing_serious_in_a_file(open_page: OpenPage, scheme: str, rules: tuple[str, ...]) -> None:
    page = open_page("drills/find/", color_scheme=scheme, reduced_motion="reduce")
    page.get_by_role("button", name="Ask me this: x, in Python").click()
    element = page.locator("pagewalk-drill")
    element.locator("li[value='20']").click()
    element.locator("li[value='23']").click(modifiers=["Shift"])
    assert serious(page, *rules) == []
    element.locator("[data-act=answer]").click()
    phase(element, "shown")
    expect(element.locator(".pw-on")).to_have_count(1)
    assert serious(page, *rules) == []


def too_wide(page: Page) -> list[int]:
    """The widths of three screens at which the page scrolls sideways; the last one stays."""
    found = []
    for width in (1440, 820, 390):
        page.set_viewport_size({"width": width, "height": 900})
        if page.evaluate("document.documentElement.scrollWidth - innerWidth") > 0:
            found.append(width)
    return found


def test_nothing_is_wider_than_the_page(open_page: OpenPage) -> None:
    page = open_page(INDEX, reduced_motion="reduce")
    element = page.locator("pagewalk-drill")
    element.locator(".pw-drill-progress summary").click()
    begin(page, limit=8)
    for _ in range(8):
        assert too_wide(page) == []
        expect(element.locator(".pw-drill-now").first).to_be_in_viewport()
        if element.locator("[data-act=reveal]").count():
            element.locator("[data-act=reveal]").click()
            element.locator("[data-rating='1']").click()
        else:
            element.locator("[data-act=unknown]").click()
            assert too_wide(page) == []
            element.locator("[data-act=next]").click()
    phase(element, "done")


def test_a_field_is_described_by_its_question(open_page: OpenPage) -> None:
    page = open_page(INDEX)
    element = begin(page, "compute", limit=1)
    described = page.evaluate(
        """() => document.querySelector("pagewalk-drill input[name=answer]").getAttribute("aria-describedby").split(" ")
             .map(id => document.getElementById(id).textContent).join(" ")"""
    )
    assert "The slot of a token" in described
    assert "block table" in described
    assert says(element).get_attribute("aria-live") == "polite"


def test_no_other_page_loads_the_drills(open_page: OpenPage) -> None:
    page = open_page("walkthroughs/alpha/")
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.reload()
    page.wait_for_load_state("networkidle")
    assert [url for url in asked if url.endswith("/drill-load.js")]
    late = ("/drill-element.js", "/drill-grade.js", "/drill-keep.js")
    assert [url for url in asked if "/assets/drills/" in url or url.endswith(late)] == []
