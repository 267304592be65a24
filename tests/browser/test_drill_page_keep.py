"""What the drills keep in the browser: to the terminal and back, two tabs, a browser that keeps nothing, reset."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, expect

from walkthroughs.drills import log
from walkthroughs.drills.store import NAME, Store

pytestmark = pytest.mark.browser
OpenPage = Callable[..., Page]
INDEX = "drills/"
LOG, SESSION = "pagewalk-drills", "pagewalk-drill-session"
DAY = 24 * 3600 * 1000


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


def export_of(rows: list[dict[str, Any]]) -> bytes:
    return json.dumps({"schema": 1, "kind": LOG, "log": rows}).encode()


def review(name: str, item: str, when: int, rating: int = 3) -> dict[str, Any]:
    return {"id": name, "what": "review", "item": item, "when": when, "rating": rating, "form": "self"}


def bring(element: Locator, content: bytes) -> Locator:
    """Import a file as a reader does; answers what was said."""
    file = {"name": "mine.json", "mimeType": "application/json", "buffer": content}
    element.locator("input[type=file]").set_input_files([file])  # type: ignore[list-item]
    return element.locator(".pw-drill-say")


# ---- the terminal's file ----


def terminal(folder: Path, *words: str) -> str:
    """`pagewalk drill` with its answers in a folder; answers what it printed."""
    command = [sys.executable, "-m", "walkthroughs.cli", "drill", *words]
    environment = {**os.environ, "PAGEWALK_STATE": str(folder)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_answers_go_to_the_terminal_and_back(open_page: OpenPage, tmp_path: Path) -> None:
    page = open_page(INDEX)
    element = begin(page, "compute", "recall")
    page.keyboard.press("Space")
    page.keyboard.press("4")
    expect(element.locator(".pw-drill-meta")).to_contain_text("to go")
    page.keyboard.press("Escape")
    page.keyboard.press("b")
    expect(element.locator(".pw-drill-say")).to_contain_text("buried")
    page.keyboard.press("Escape")
    page.keyboard.press("u")
    expect(element.locator(".pw-drill-say")).to_contain_text("Undone")
    here = events(page)
    assert [event["what"] for event in here] == ["review", "bury", "undo"]
    with page.expect_download() as downloading:
        unfold(element).locator("[data-act=export]").first.click()
    file = tmp_path / downloading.value.suggested_filename
    downloading.value.save_as(file)
    assert file.name == "pagewalk-drills.json"

    terminal(tmp_path, "import", str(file))
    terminal(tmp_path, "suspend", "find/tail-of-v")
    terminal(tmp_path, "export", "json", str(tmp_path / "back.json"))
    with Store(tmp_path / NAME) as store:
        there = store.events()
        assert log.to_json(there)["log"][: len(here)] == here
        due = store.entry(here[0]["item"]).card.due
        assert due is not None

    said = bring(element, (tmp_path / "back.json").read_bytes())
    expect(said).to_have_text("1 event taken over from mine.json.")
    assert events(page) == log.to_json(there)["log"]
    expect(element.locator(".pw-drill-asleep li")).to_have_count(1)
    mine = page.evaluate("item => PagewalkDrill.keep.entry(item).card.due", here[0]["item"])
    assert mine == round(due.timestamp() * 1000), "both say when it comes back"
    terminal(tmp_path, "import", str(tmp_path / "back.json"))
    with Store(tmp_path / NAME) as store:
        assert store.events() == there, "what goes round comes back once"


def test_an_import_adds_and_overwrites_nothing(open_page: OpenPage) -> None:
    page = open_page(INDEX)
    element = begin(page, "compute")
    answer(element)
    own = events(page)
    unfold(element)
    other = review("b" * 32, "recall/why-blocks", int(time.time() * 1000) - 9 * DAY, rating=1)
    expect(bring(element, export_of([other]))).to_have_text("1 event taken over from mine.json.")
    assert events(page) == [other, *own]
    expect(bring(element, export_of([other]))).to_have_text("mine.json holds nothing new.")
    expect(element.locator("table tr", has_text="Recall").locator("td")).to_have_text(["3", "2", "1", "0"])


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"not json", "it is not JSON"),
        (b'{"schema": 1, "kind": "other", "log": []}', "this is no export of drills"),
        (b'{"schema": 2, "kind": "pagewalk-drills", "log": []}', "it has schema 2"),
        (export_of([review("x", "recall/why-blocks", 5, rating=9)]), "rating 9 does not fit"),
    ],
)
def test_what_is_no_export_is_refused_with_the_reason(open_page: OpenPage, content: bytes, why: str) -> None:
    page = open_page(INDEX)
    element = element_of(page)
    unfold(element)
    said = bring(element, content)
    expect(said).to_contain_text("Nothing was imported.")
    expect(said).to_contain_text(why)
    assert events(page) == []


def test_an_event_that_is_known_otherwise_is_refused(open_page: OpenPage) -> None:
    page = open_page(INDEX)
    element = element_of(page)
    unfold(element)
    one = review("a" * 32, "recall/why-blocks", 1000)
    expect(bring(element, export_of([one]))).to_contain_text("1 event")
    expect(bring(element, export_of([{**one, "rating": 1}]))).to_contain_text("is known with other content")
    assert events(page) == [one]


# ---- reset ----


def test_reset_names_what_is_lost_and_asks_first(open_page: OpenPage) -> None:
    page = open_page(INDEX)
    element = element_of(page)
    fold = unfold(element)
    expect(fold.locator("[data-act=reset]")).to_be_disabled()
    rows = [
        review(f"{n:032x}", f"recall/{name}", 1764547200000 + n) for n, name in enumerate(["why-blocks"] * 2 + ["x"])
    ]
    expect(bring(element, export_of(rows))).to_contain_text("3 events")
    fold.locator("[data-act=reset]").click()
    asked = page.get_by_role("alertdialog")
    expect(asked).to_contain_text("3 answers to 2 questions, given since 1 December 2025")
    expect(asked.locator("[data-act=keep]")).to_be_focused()
    page.keyboard.press("Escape")
    expect(asked).to_have_count(0)
    assert len(events(page)) == 3
    fold.locator("[data-act=reset]").click()
    asked.locator("[data-act=forget]").click()
    expect(element.locator(".pw-drill-say")).to_contain_text("Forgotten")
    assert page.evaluate("Object.keys(window.localStorage).filter(key => key.startsWith('pagewalk-drill'))") == []
    page.reload()
    expect(element.locator(".pw-drill-progress summary")).to_have_text("Your answers: 0 due; nothing is kept yet")


# ---- two at once ----


def test_two_elements_share_a_sitting_and_lose_nothing(open_page: OpenPage) -> None:
    page = open_page(INDEX)
    page.evaluate(
        """() => { const one = document.createElement("pagewalk-drill");
             document.querySelector(".pw-drill-place").after(one); }"""
    )
    first, second = page.locator("pagewalk-drill").nth(0), page.locator("pagewalk-drill").nth(1)
    expect(second).to_have_attribute("data-state", "ready")
    begin(page, "compute", "predict")
    second.locator("[data-act=resume]").click()
    for _ in range(2):
        expect(second).to_have_attribute("data-phase", "ask")
        second.locator("[data-act=unknown]").click()
        second.locator("[data-act=next]").click()
    expect(first).to_have_attribute("data-phase", "shown")
    first.locator("[data-act=next]").click()
    expect(first).to_have_attribute("data-phase", "ask")
    expect(first.locator(".pw-drill-now").first).to_have_text(second.locator(".pw-drill-now").first.inner_text())
    first.locator("[data-act=unknown]").click()
    first.locator("[data-act=next]").click()
    expect(first).to_have_attribute("data-phase", "done")
    expect(first.locator(".pw-drill-now")).to_have_text("Done: 3 answers")
    assert len({event["item"] for event in events(page)}) == len(events(page)) == 3
    ids = page.evaluate("[...document.querySelectorAll('pagewalk-drill [id]')].map(node => node.id)")
    assert len(ids) == len(set(ids))


# ---- tabs ----


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
    assert len(events(first)) == 2


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


# ---- browsers that keep nothing ----

# Our keys alone: the theme looks into the storage, too, and does not expect this.
BLOCKED = """for (const name of ["getItem", "setItem", "removeItem"]) {
  const real = Storage.prototype[name];
  Storage.prototype[name] = function (key, ...rest) {
    if (key.startsWith("pagewalk-drill")) throw new DOMException("no", "SecurityError");
    return real.call(this, key, ...rest);
  };
}"""
FULL = """const real = Storage.prototype.setItem;
Storage.prototype.setItem = function (key, value) {
  if (key.startsWith("pagewalk-drill")) throw new DOMException("full", "QuotaExceededError");
  real.call(this, key, value);
};"""


@pytest.mark.parametrize(("script", "why"), [(BLOCKED, "lets the page keep nothing"), (FULL, "has no room left")])
def test_where_nothing_is_kept_all_works_and_it_is_said(
    open_page: OpenPage, address: str, script: str, why: str
) -> None:
    page = open_page(INDEX)
    page.add_init_script(script)
    page.reload()
    element = element_of(page)
    expect(element.locator(".pw-drill-warning")).to_contain_text(why)
    begin(page, "compute")
    answer(element)
    expect(element.locator(".pw-drill-meta")).to_contain_text("1 to go")
    page.keyboard.press("Escape")
    page.keyboard.press("u")
    expect(element.locator(".pw-drill-meta")).to_contain_text("2 to go")
    expect(element.locator(".pw-drill-warning")).to_contain_text("Export takes them along")
    with page.expect_download() as downloading:
        unfold(element).locator("[data-act=export]").first.click()
    assert [row["what"] for row in json.loads(downloading.value.path().read_text("utf-8"))["log"]] == ["review", "undo"]


def test_a_log_that_cannot_be_read_is_put_aside_and_said(open_page: OpenPage) -> None:
    page = open_page(INDEX)
    page.evaluate("key => window.localStorage.setItem(key, '{broken')", LOG)
    page.reload()
    element = element_of(page)
    expect(element.locator(".pw-drill-warning")).to_contain_text("could not be read")
    answer(begin(page, "compute"))
    assert len(events(page)) == 1
    assert page.evaluate("key => window.localStorage.getItem(key)", f"{LOG}-unread") == "{broken"


def test_a_kept_sitting_that_is_none_begins_anew(open_page: OpenPage) -> None:
    page = open_page(INDEX)
    for text in ("{", '"x"', '{"seed": 1}', "null"):
        page.evaluate("([key, text]) => window.localStorage.setItem(key, text)", [SESSION, text])
        page.reload()
        expect(element_of(page)).to_have_attribute("data-phase", "start")
        expect(page.locator("[data-act=resume]")).to_have_count(0)


def test_yesterdays_sitting_is_over(open_page: OpenPage) -> None:
    page = open_page(INDEX)
    begin(page, "compute")
    page.evaluate(
        """([key, day]) => { const kept = JSON.parse(localStorage[key]);
             kept.started -= day;
             localStorage[key] = JSON.stringify(kept); }""",
        [SESSION, DAY],
    )
    page.reload()
    expect(element_of(page)).to_have_attribute("data-phase", "start")
    expect(page.locator("[data-act=resume]")).to_have_count(0)


def test_missing_data_is_said_and_the_page_stays(open_page: OpenPage) -> None:
    page = open_page(INDEX)
    page.route(re.compile("/assets/drills/bank.js"), lambda route: route.fulfill(body=""))
    page.reload()
    element = page.locator("pagewalk-drill")
    expect(element).to_have_attribute("data-state", "missing")
    expect(element.locator(".pw-drill-say")).to_contain_text("The drills do not start")
    expect(element.locator(".pw-drill-static")).to_be_visible()
