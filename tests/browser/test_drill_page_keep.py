"""What the drills keep in the browser: to the terminal and back, a browser that keeps nothing, reset."""

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
    # All that is left is the mark by which sleeping tabs know of it.
    kept = page.evaluate("Object.keys(window.localStorage).filter(key => key.startsWith('pagewalk-drill'))")
    assert kept == [f"{LOG}-epoch"]
    page.reload()
    expect(element.locator(".pw-drill-progress summary")).to_have_text("Your answers: 0 due; nothing is kept yet")


def test_a_very_long_log_can_be_reset(open_page: OpenPage) -> None:
    page = open_page(INDEX)
    fold = unfold(element_of(page))
    # More than a function takes arguments, and more than the storage holds.
    page.evaluate(
        """() => {
          const one = {what: "review", item: "recall/why-blocks", rating: 3};
          const many = Array.from({length: 150000}, (_, n) => ({...one, id: "n" + n, when: 1764547200000 + n}));
          PagewalkDrill.keep.events = () => many;
          document.querySelector("pagewalk-drill").progress.draw();
        }"""
    )
    fold.locator("[data-act=reset]").click()
    asked = page.get_by_role("alertdialog")
    expect(asked).to_contain_text("150000 answers to 1 question, given since 1 December 2025")


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


def test_a_second_log_that_cannot_be_read_leaves_the_first_copy(open_page: OpenPage) -> None:
    page = open_page(INDEX)
    for text in ("{first", "{first", "{second", "{third", "{second"):
        page.evaluate("([key, text]) => window.localStorage.setItem(key, text)", [LOG, text])
        page.reload()
        element_of(page)
    aside = page.evaluate("Object.entries(localStorage).filter(([key]) => key.includes('-unread')).sort()")
    wanted = {f"{LOG}-unread": "{first", f"{LOG}-unread-2": "{second", f"{LOG}-unread-3": "{third"}
    assert dict(aside) == wanted


NO_COPY = """window.full = true;
const real = Storage.prototype.setItem;
Storage.prototype.setItem = function (key, value) {
  if (window.full && key.includes("-unread")) throw new DOMException("full", "QuotaExceededError");
  real.call(this, key, value);
};"""


def test_a_log_that_can_be_neither_read_nor_put_aside_is_not_written_over(open_page: OpenPage) -> None:
    page = open_page(INDEX)
    page.evaluate("key => window.localStorage.setItem(key, '{broken')", LOG)
    page.add_init_script(NO_COPY)
    page.reload()
    element = element_of(page)
    stored = "key => window.localStorage.getItem(key)"
    answer(begin(page, "compute"))
    assert page.evaluate(stored, LOG) == "{broken"
    assert page.evaluate("PagewalkDrill.keep.events().length") == 1
    warning = element.locator(".pw-drill-warning")
    expect(warning).to_contain_text("can be neither read nor put aside")
    expect(warning).to_contain_text("your answers last until it is closed")
    # Once there is room, all is kept.
    page.evaluate("window.full = false")
    answer(element)
    assert page.evaluate(stored, f"{LOG}-unread") == "{broken"
    assert len(events(page)) == 2
    expect(warning).to_contain_text("It is put aside")


ROOM_FOR_NO_SITTING = """window.full = false;
const real = Storage.prototype.setItem;
Storage.prototype.setItem = function (key, value) {
  if (window.full && key === "pagewalk-drill-session") throw new DOMException("full", "QuotaExceededError");
  real.call(this, key, value);
};"""


def test_a_sitting_that_finds_no_room_is_not_set_back_to_the_kept_one(open_page: OpenPage) -> None:
    page = open_page(INDEX)
    page.add_init_script(ROOM_FOR_NO_SITTING)
    page.reload()
    element = begin(page, "compute")
    first = page.evaluate("PagewalkDrill.keep.opened()")["item"]
    page.evaluate("window.full = true")
    answer(element)
    expect(element).to_have_attribute("data-phase", "ask")
    assert page.evaluate("key => JSON.parse(localStorage[key])", SESSION)["item"] == first
    assert page.evaluate("PagewalkDrill.keep.opened()")["item"] not in ("", None, first)


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
