"""A sitting of drills in the page: what is asked, each kind's answer, keys, focus, and going on."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, Route, expect

from walkthroughs.drills import bank

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


# ---- the start ----


def test_a_sitting_says_how_many_are_due_and_new(open_page: OpenPage, sample: ModuleType) -> None:
    page = open_page(INDEX)
    boxes = page.locator(".pw-drill-start fieldset label")
    counts = [f"0 due, {len(items)} new" for items in sample.DRILLS.values()]
    expect(boxes.locator(".pw-drill-hint")).to_have_text(counts)
    expect(page.locator(".pw-drill-static")).to_be_hidden()
    assert page.evaluate("document.activeElement === document.body"), "nobody asked for the focus"


def test_only_the_kinds_chosen_are_asked_and_no_more_new_ones_than_said(open_page: OpenPage) -> None:
    page = open_page(INDEX)
    element = begin(page, "compute", "predict", limit=2)
    asked = []
    for _ in range(2):
        phase(element, "ask")
        asked.append(element.locator(".pw-drill-meta b").inner_text())
        page.keyboard.press("Enter")
        element.locator("[data-act=next]").click()
    phase(element, "done")
    assert sorted(asked) == ["Compute", "Predict"]
    expect(element.locator(".pw-drill-now")).to_have_text("Done: 2 answers")
    expect(element.locator(".pw-drill-stage")).to_contain_text("2 Again.")
    expect(element.locator(".pw-drill-stage")).to_contain_text("7 new questions wait.")


def test_a_sitting_needs_a_kind_and_a_whole_number(open_page: OpenPage) -> None:
    page = open_page(INDEX)
    for box in page.locator("fieldset input").all():
        box.uncheck()
    page.locator("[data-act=begin]").click()
    expect(says(page.locator("pagewalk-drill"))).to_have_text("Choose at least one kind.")
    page.locator("fieldset input").first.check()
    page.locator("input[name=limit]").fill("1.5")
    page.locator("[data-act=begin]").click()
    expect(says(page.locator("pagewalk-drill"))).to_contain_text("a whole number")
    assert kept(page, SESSION) is None


# ---- each kind ----


def test_recall_is_answered_revealed_and_rated_by_keys(open_page: OpenPage) -> None:
    page = open_page(INDEX)
    element = begin(page, "recall", limit=2)
    heading = element.locator(".pw-drill-now")
    expect(heading).to_be_focused()
    expect(heading).to_have_text(bank.item("recall/why-blocks").title)
    expect(element.locator(".pw-drill-points")).to_have_count(0)
    element.locator("textarea").fill("It wastes less: 1 block.")
    page.keyboard.press("3")
    phase(element, "ask")
    page.keyboard.press("Escape")
    expect(heading).to_be_focused()
    page.keyboard.press("Space")
    phase(element, "shown")
    expect(element.locator(".pw-drill-own")).to_contain_text("It wastes less: 1 block.3")
    expect(element.locator(".pw-drill-points li")).to_have_count(4)
    link = element.locator(".pw-drill-points a").first
    assert (link.get_attribute("href") or "").endswith("/concepts/fragmentation/")
    assert link.get_attribute("target") == "_blank", "the sitting stays"
    labels = [re.sub(r"\s+", " ", text) for text in element.locator(".pw-drill-rating").all_inner_texts()]
    assert labels == ["1 Again 1 min", "2 Hard 6 min", "3 Good 10 min", "4 Easy 8 d"]
    assert log(page) == [], "nothing is kept before it is rated"
    page.keyboard.press("4")
    expect(says(element)).to_have_text("Easy: again in 8 d.")
    (event,) = log(page)
    assert (event["what"], event["item"], event["rating"], event["form"]) == ("review", "recall/why-blocks", 4, "self")
    expect(heading).to_have_text(bank.item("recall/kinds-of-waste").title), "its follow-up is next"
    expect(element.locator(".pw-drill-meta")).to_contain_text("follows “Why cut the cache into blocks?”")
    expect(heading).to_be_focused()


@pytest.mark.parametrize("kind", ["compute", "predict"])
def test_a_right_number_is_said_to_be_right_and_rated(open_page: OpenPage, kind: str) -> None:
    page = open_page(INDEX)
    element = begin(page, kind, limit=1)
    field = element.locator("input[name=answer]")
    expect(field).to_be_focused()
    field.fill(str(drawn(page)["answer"]))
    page.keyboard.press("Enter")
    expect(element.locator(".pw-drill-verdict")).to_have_class(re.compile("pw-drill-right"))
    expect(says(element)).to_contain_text("Right")
    expect(element.locator(".pw-drill-solved")).to_be_focused()
    seed = drawn(page)["seed"]
    page.keyboard.press("2")
    phase(element, "done")
    (event,) = log(page)
    assert (event["rating"], event["form"], event["seed"]) == (2, "number", seed)


def test_a_typical_mistake_is_named_and_the_way_to_the_answer_shown(open_page: OpenPage) -> None:
    page = open_page(INDEX)
    element = begin(page, "compute", limit=1)
    draw = drawn(page)
    value, mistake = draw["slips"][0]
    element.locator("input[name=answer]").fill(str(value))
    element.locator("[data-act=answer]").click()
    expect(element.locator(".pw-drill-verdict")).to_have_text(f"✘ No: it looks as if you {mistake}.")
    expect(element.locator(".pw-drill-result")).to_contain_text(draw["shown"])
    assert element.locator(".pw-drill-result li code").count() >= 2
    (event,) = log(page)
    assert event["rating"] == 1, "a wrong answer is kept at once"
    expect(element.locator(".pw-drill-rating")).to_have_count(0)
    page.keyboard.press("Enter")
    phase(element, "done")


def test_enter_alone_is_i_do_not_know(open_page: OpenPage) -> None:
    page = open_page(INDEX)
    element = begin(page, "predict", limit=1)
    page.keyboard.press("Enter")
    expect(element.locator(".pw-drill-verdict")).to_have_text("✘ Here it is.")
    expect(element.locator(".pw-drill-result a", has_text="This moment in the player")).to_have_count(1)
    assert [event["rating"] for event in log(page)] == [1]


def test_what_cannot_be_read_is_asked_again(open_page: OpenPage) -> None:
    page = open_page(INDEX)
    element = begin(page, "compute", limit=1)
    field = element.locator("input[name=answer]")
    field.fill("about a dozen")
    page.keyboard.press("Enter")
    expect(says(element)).to_contain_text("Try again.")
    expect(field).to_be_focused()
    expect(field).to_have_attribute("aria-invalid", "true")
    assert log(page) == []
    field.fill("1")
    assert field.get_attribute("aria-invalid") is None


def test_every_review_has_other_numbers(open_page: OpenPage, sample: ModuleType) -> None:
    page = open_page(INDEX)
    begin(page, "compute", limit=1)
    page.keyboard.press("Enter")
    (event,) = log(page)
    chosen = page.evaluate(
        """async seed => { const { sitting, open } = document.querySelector("pagewalk-drill");
             sitting.page = { item: open.item.id, seed, typed: "" };
             return (await sitting.draw(open.item)).seed; }""",
        # A seed that means the draw of the last time.
        1000 * sample.DRAWS + event["seed"],
    )
    assert chosen != event["seed"]


# ---- keys ----


def test_undo_takes_the_last_answer_back_and_asks_it_again_with_its_numbers(open_page: OpenPage) -> None:
    page = open_page(INDEX)
    element = begin(page, "compute", limit=2)
    text = element.locator(".pw-drill-question").inner_text()
    page.keyboard.press("Enter")
    page.keyboard.press("u")
    phase(element, "ask")
    expect(element.locator(".pw-drill-question")).to_have_text(text, use_inner_text=True)
    expect(says(element)).to_contain_text("Undone: review of compute/slot.")
    assert [event["what"] for event in log(page)] == ["review", "undo"]
    expect(element.locator(".pw-drill-meta")).to_contain_text("2 to go")


def test_suspend_and_bury_leave_a_question(open_page: OpenPage) -> None:
    page = open_page(INDEX)
    element = begin(page, "recall")
    page.keyboard.press("s")
    expect(says(element)).to_contain_text("is suspended")
    expect(element.locator(".pw-drill-now")).to_be_focused()
    page.keyboard.press("b")
    expect(says(element)).to_contain_text("is buried until tomorrow")
    assert [event["what"] for event in log(page)] == ["suspend", "bury"]
    element.locator(".pw-drill-progress summary").click()
    expect(element.locator(".pw-drill-asleep li")).to_have_count(1)
    element.locator("[data-act=wake]").click()
    expect(element.locator(".pw-drill-asleep")).to_have_count(0)
    expect(element.locator("table tr", has_text="Recall").locator("td")).to_have_text(["3", "3", "0", "0"])


def test_keys_do_nothing_outside_and_leave_fields_alone(open_page: OpenPage) -> None:
    page = open_page(INDEX)
    element = begin(page, "recall")
    page.evaluate("document.activeElement.blur()")
    for key in ("Space", "u", "b", "1"):
        page.keyboard.press(key)
    phase(element, "ask")
    element.locator("textarea").click()
    page.keyboard.type("subs? 1 2")
    expect(element.locator("textarea")).to_have_value("subs? 1 2")
    assert log(page) == []
    page.keyboard.press("Control+Enter")
    phase(element, "shown")


def test_a_key_that_is_held_acts_once(open_page: OpenPage) -> None:
    page = open_page(INDEX)
    element = begin(page, "recall")
    page.keyboard.down("b")
    expect(says(element)).to_contain_text("is buried")
    page.keyboard.down("b")
    page.keyboard.down("b")
    page.keyboard.up("b")
    page.keyboard.press("?")
    expect(element.locator(".pw-drill-keys")).to_be_visible()
    assert [event["what"] for event in log(page)] == ["bury"]


def test_a_rating_counts_once_while_the_next_question_loads(open_page: OpenPage) -> None:
    page = open_page(INDEX)
    held: list[Route] = []
    page.route("**/assets/drills/compute.js", lambda route: held.append(route))
    element = begin(page, "recall", "compute")
    page.keyboard.press("Space")
    page.keyboard.press("1")
    page.keyboard.press("1")
    assert len(log(page)) == 1
    held[0].continue_()
    expect(element.locator(".pw-drill-meta b")).to_have_text("Compute")


def test_the_question_mark_shows_the_keys(open_page: OpenPage) -> None:
    page = open_page(INDEX)
    element = begin(page, "recall")
    expect(element.locator(".pw-drill-keys")).to_be_hidden()
    page.keyboard.press("?")
    expect(element.locator(".pw-drill-keys")).to_be_visible()
    expect(element.locator("[data-act=keys]")).to_have_attribute("aria-expanded", "true")
    page.keyboard.press("?")
    expect(element.locator(".pw-drill-keys")).to_be_hidden()


@pytest.mark.parametrize("key", ["f", "/"])
def test_the_themes_search_keys_work_inside(open_page: OpenPage, key: str) -> None:
    page = open_page(INDEX)
    begin(page, "recall")
    page.keyboard.press(key)
    expect(page.locator(".md-search__input")).to_be_focused()


def test_the_themes_own_s_works_outside(open_page: OpenPage) -> None:
    page = open_page(INDEX)
    begin(page, "recall")
    page.evaluate("document.activeElement.blur()")
    page.keyboard.press("s")
    expect(page.locator(".md-search__input")).to_be_focused()
    assert log(page) == []


# ---- going on ----


def test_a_reload_goes_on_with_what_was_typed(open_page: OpenPage) -> None:
    page = open_page(INDEX)
    element = begin(page, "compute")
    text = element.locator(".pw-drill-question").inner_text()
    element.locator("input[name=answer]").fill("47")
    page.reload()
    phase(element, "ask")
    expect(element.locator(".pw-drill-question")).to_have_text(text, use_inner_text=True)
    expect(element.locator("input[name=answer]")).to_have_value("47")
    assert page.evaluate("document.activeElement === document.body"), "a reload moves nobody's focus"


def test_a_reload_keeps_an_answer_that_is_being_read(open_page: OpenPage) -> None:
    page = open_page(INDEX)
    element = begin(page, "compute", limit=2)
    page.keyboard.press("Enter")
    said = element.locator(".pw-drill-result").inner_text()
    page.reload()
    phase(element, "shown")
    expect(element.locator(".pw-drill-result")).to_have_text(said, use_inner_text=True)
    element.locator("[data-act=next]").click()
    phase(element, "ask")
    assert len(log(page)) == 1, "it counts once"


def test_who_leaves_finds_the_sitting_again_when_they_want_it(open_page: OpenPage) -> None:
    page = open_page(INDEX)
    element = begin(page, "recall")
    title = element.locator(".pw-drill-now").inner_text()
    element.locator("[data-act=leave]").click()
    expect(element.locator("[data-act=resume]")).to_be_focused()
    page.reload()
    phase(element, "start")
    element.locator("[data-act=resume]").click()
    expect(element.locator(".pw-drill-now")).to_have_text(title)


def test_instant_navigation_there_and_back_goes_on_and_every_key_acts_once(open_page: OpenPage) -> None:
    page = open_page(INDEX)
    element = begin(page, "recall")
    title = element.locator(".pw-drill-now").inner_text()
    page.evaluate("window.here = true")
    for place, there in (
        (".md-content a[href$='/recall/'], .md-content a[href='recall/']", "recall/"),
        (".md-nav a[href$='/drills/'], .md-nav a[href='../']", "drills/"),
    ):
        page.locator(place).first.click()
        page.wait_for_url(re.compile(rf"/{there}(#.*)?$"))
    assert page.evaluate("window.here"), "the theme changed pages without loading one"
    expect(element.locator(".pw-drill-now")).to_have_text(title)
    element.locator(".pw-drill-now").focus()
    page.keyboard.press("Space")
    page.keyboard.press("3")
    expect(says(element)).to_contain_text("Good")
    assert len(log(page)) == 1


def test_what_is_due_is_asked_before_what_is_new(open_page: OpenPage) -> None:
    page = open_page(INDEX)
    element = begin(page, "find", limit=1)
    element.locator("[data-act=unknown]").click()
    element.locator("[data-act=next]").click()
    phase(element, "done")
    page.evaluate(
        """() => { const data = JSON.parse(localStorage["pagewalk-drills"]);
             data.log.forEach(event => { event.when -= 3 * 86400000; });
             localStorage["pagewalk-drills"] = JSON.stringify(data); }"""
    )
    page.reload()
    expect(element.locator("fieldset label").last).to_contain_text("1 due, 2 new")
    expect(element.locator(".pw-drill-progress summary")).to_contain_text("1 due")
    begin(page)
    expect(element.locator(".pw-drill-meta b")).to_have_text("Find the line")
