"""What the drills keep in the browser, with two tabs open: answers of both, a reset in one, a tab that sleeps."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, expect

pytestmark = pytest.mark.browser
OpenPage = Callable[..., Page]
INDEX = "drills/"
LOG = "pagewalk-drills"


def element_of(page: Page) -> Locator:
    element = page.locator("pagewalk-drill").first
    expect(element).to_have_attribute("data-state", "ready")
    return element


def begin(page: Page, *kinds: str) -> Locator:
    element = element_of(page)
    for box in element.locator("fieldset input").all():
        box.set_checked(not kinds or box.get_attribute("name") in kinds)
    element.locator("[data-act=begin]").click()
    expect(element).to_have_attribute("data-phase", "ask")
    return element


def answer(element: Locator) -> None:
    """Say that the open question's answer is not known, and go on."""
    expect(element).to_have_attribute("data-phase", "ask")
    element.locator("[data-act=unknown]").click()
    element.locator("[data-act=next]").click()


def unfold(element: Locator) -> Locator:
    fold = element.locator(".pw-drill-progress")
    fold.locator("summary").click()
    return fold


def events(page: Page) -> list[dict[str, Any]]:
    text = page.evaluate("key => window.localStorage.getItem(key)", LOG)
    return list(json.loads(text)["log"]) if text else []


def seen_by(page: Page, rows: list[dict[str, Any]]) -> None:
    """Wait until a tab can read what another has written: each has its own process, and is told a little later."""
    page.wait_for_function(
        "([key, ids]) => ids === JSON.stringify(JSON.parse(localStorage[key]).log.map((event) => event.id))",
        arg=[LOG, json.dumps([row["id"] for row in rows], separators=(",", ":"))],
        polling=20,
    )


def export_of(rows: list[dict[str, Any]]) -> bytes:
    return json.dumps({"schema": 1, "kind": LOG, "log": rows}).encode()


def review(name: str, item: str, when: int, rating: int = 3) -> dict[str, Any]:
    return {"id": name, "what": "review", "item": item, "when": when, "rating": rating, "form": "self"}


def test_two_tabs_lose_nothing(open_page: OpenPage, address: str) -> None:
    first = open_page(INDEX)
    begin(first, "compute")
    second = first.context.new_page()
    second.goto(address + "drills/compute/")
    second.locator(".pw-drill-ask").last.click()
    element = second.locator("pagewalk-drill")
    element.locator("[data-act=unknown]").click()
    first.bring_to_front()
    answer(element_of(first))
    first.wait_for_function("PagewalkDrill.keep.events().length === 2", polling=100)
    second.wait_for_function("PagewalkDrill.keep.events().length === 2", polling=100)
    first.wait_for_function("JSON.parse(localStorage['pagewalk-drills']).log.length === 2", polling=100)


def test_what_another_tab_has_written_over_is_put_back(open_page: OpenPage, address: str) -> None:
    first = open_page(INDEX)
    answer(begin(first, "compute"))
    (mine,) = events(first)
    other = first.context.new_page()
    other.goto(address + INDEX)
    # As a tab does that had read the log before the answer came.
    theirs = review("c" * 32, "recall/why-blocks", 1000)
    other.evaluate("([key, text]) => window.localStorage.setItem(key, text)", [LOG, export_of([theirs]).decode()])
    first.wait_for_function("JSON.parse(localStorage['pagewalk-drills']).log.length === 2", polling=100)
    assert events(first) == [theirs, mine]


def test_a_reset_in_another_tab_is_not_undone(open_page: OpenPage, address: str) -> None:
    first = open_page(INDEX)
    answer(begin(first, "compute"))
    other = first.context.new_page()
    other.goto(address + INDEX)
    fold = unfold(element_of(other))
    fold.locator("[data-act=reset]").click()
    fold.locator("[data-act=forget]").click()
    first.bring_to_front()
    first.wait_for_function("PagewalkDrill.keep.events().length === 0", polling=100)
    expect(element_of(first)).to_have_attribute("data-phase", "start")
    answer(begin(first, "compute"))
    assert len(events(first)) == 1


# Holds what other tabs tell of the storage, as a tab does that sleeps; `wake` tells it late.
ASLEEP = """const held = [];
window.asleep = false;
window.addEventListener("storage", (event) => {
  if (!window.asleep) return;
  event.stopImmediatePropagation();
  held.push({key: event.key, oldValue: event.oldValue, newValue: event.newValue});
});
window.wake = () => {
  window.asleep = false;
  held.forEach((init) => window.dispatchEvent(new StorageEvent("storage", init)));
};"""
BACK = "window.dispatchEvent(new PageTransitionEvent('pageshow', {persisted: true}))"


@pytest.mark.parametrize("wakes", ["wake()", BACK, ""], ids=["told late", "out of the cache", "told nothing"])
def test_a_sleeping_tab_does_not_undo_a_reset(open_page: OpenPage, address: str, wakes: str) -> None:
    first = open_page(INDEX)
    first.add_init_script(ASLEEP)
    first.reload()
    answer(begin(first, "compute"))
    (gone,) = events(first)
    other = first.context.new_page()
    other.goto(address + INDEX)
    fold = unfold(element_of(other))
    first.evaluate("window.asleep = true")
    fold.locator("[data-act=reset]").click()
    fold.locator("[data-act=forget]").click()
    # A first answer, and what is brought in anew, are of after the reset: they stay.
    answer(begin(other, "compute"))
    theirs = review("b" * 32, "recall/why-blocks", 1000)
    other.evaluate("text => PagewalkDrill.keep.bring(text)", export_of([theirs]).decode())
    kept = events(other)
    assert len(kept) == 2
    seen_by(first, kept)
    if wakes:
        first.evaluate(wakes)
        # What the tab is told comes a little after it can read it.
        first.wait_for_function("PagewalkDrill.keep.events().length === 2", polling=20)
    first.evaluate(
        """() => PagewalkDrill.keep.append({what: "suspend", item: "recall/why-blocks", when: Date.now()})"""
    )
    assert [event["what"] for event in events(first)] == ["review", "review", "suspend"]
    assert gone["id"] not in {event["id"] for event in events(first)}
    assert events(first)[:2] == kept


def test_a_sleeping_tab_keeps_its_answers_where_nothing_was_reset(open_page: OpenPage, address: str) -> None:
    first = open_page(INDEX)
    first.add_init_script(ASLEEP)
    first.reload()
    first.evaluate("window.asleep = true")
    answer(begin(first, "compute"))
    (mine,) = events(first)
    other = first.context.new_page()
    other.goto(address + INDEX)
    theirs = review("b" * 32, "recall/why-blocks", 1000)
    # As a tab does that had read the log before the answer came.
    other.evaluate("([key, text]) => window.localStorage.setItem(key, text)", [LOG, export_of([theirs]).decode()])
    seen_by(first, [theirs])
    first.evaluate(BACK)
    assert events(first) == [theirs, mine]
