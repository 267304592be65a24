"""Mending a kernel on its page: a real run that fails and then passes, and who is shown no editor and why."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from walkthroughs.drills import fix, log

pytestmark = pytest.mark.browser
OpenPage = Callable[..., Page]
Watching = Callable[[Browser, str], AbstractContextManager[OpenPage]]
ROOT = Path(__file__).resolve().parents[2]
Served = Any  # its address, its key, and the site's folder
PAGE, OTHER = "drills/fix/kv-head/", "drills/fix/gather-rescale/"
SLOW = 60_000
FAULT, SOUND = "kv_head_idx = head_idx % num_kv_heads", "kv_head_idx = head_idx // num_queries_per_kv"


@pytest.fixture
def open_real(browser: Browser, fix_real: Served, watching: Watching) -> Iterator[OpenPage]:
    with watching(browser, fix_real.url) as opener:
        yield opener


@pytest.fixture
def open_quick(browser: Browser, fix_quick: Served, watching: Watching) -> Iterator[OpenPage]:
    with watching(browser, fix_quick.url) as opener:
        yield opener


def at_key(served: Served) -> str:
    return f"{PAGE}#code={served.key}"


def area(page: Page) -> Locator:
    return page.locator("textarea.pw-ed-text")


def said(page: Page) -> Locator:
    return page.locator(".pw-ed .pw-live-said")


def press(page: Page, name: str = "Run") -> None:
    page.locator(".pw-ed-bar").get_by_role("button", name=name, exact=True).click()


def write(page: Page, text: str) -> None:
    area(page).fill(text)


def mend(page: Page, old: str = FAULT, new: str = SOUND) -> None:
    """Select the fault with the keyboard's own means, and type over it."""
    area(page).evaluate(
        """(area, old) => {
          const at = area.value.indexOf(old);
          area.focus();
          area.setSelectionRange(at, at + old.length);
        }""",
        old,
    )
    page.keyboard.type(new)


def marked(page: Page) -> list[int]:
    """The numbers of the lines that are marked as new."""
    rows = page.locator(".pw-ed-lines > div")
    found: list[int] = rows.evaluate_all(
        "rows => rows.flatMap((row, at) => row.classList.contains('pw-ed-new') ? [at + 1] : [])"
    )
    return found


# -- for real


def test_a_run_fails_is_mended_on_the_page_and_passes(open_real: OpenPage, fix_real: Served) -> None:
    before = changed_when()
    page = open_real(at_key(fix_real))
    assert area(page).input_value() == fix.unsolved(fix.tasks()["fix/kv-head"])
    press(page)
    expect(said(page)).to_contain_text("✘ Not yet: 0 of 1 check holds", timeout=SLOW)
    card = page.locator(".pw-fix-card")
    expect(card.locator(".pw-fix-head")).to_contain_text("KV head of 4 query heads")
    expect(card).to_contain_text("[0, 1, 0, 1]")
    expect(card).to_contain_text("[0, 0, 1, 1]")
    link = card.locator("a")
    expect(link).to_have_text("attention_kernels.cuh, lines 142 to 147")
    assert str(link.get_attribute("href")).startswith("https://github.com/")
    # The lines that the failure names are lit where they stand on the page.
    lit = page.locator(".pw-side-upstream .pw-fix-hit").evaluate_all("lines => lines.map(line => line.value)")
    if page.locator(".pw-missing").count() == 0:
        assert lit == list(range(142, 148))
    card.get_by_role("button", name="lines 128 to 131").click()
    assert page.evaluate("document.activeElement.classList.contains('pw-ed-text')")
    selected = area(page).evaluate("area => area.value.slice(0, area.selectionStart).split('\\n').length")
    assert selected == 128
    mend(page)
    assert marked(page) == [131]
    expect(page.locator(".pw-ed-note")).to_have_text("Changed. Line 131 differs.")
    page.keyboard.press("Control+Enter")
    expect(said(page)).to_contain_text("✔ Passed", timeout=SLOW)
    expect(said(page)).to_contain_text("on SIMT machine")
    assert card.count() == 0
    assert page.locator(".pw-fix-hit").count() == 0
    page.locator(".pw-fix-checks summary").click()
    rows = page.locator(".pw-fix-checks tbody tr")
    assert rows.count() > 10
    assert page.locator(".pw-fix-checks .pw-verdict-failed").count() == 0
    expect(page.locator(".pw-fix-checks")).to_contain_text("held-out case")
    # What was typed was run, and written nowhere into the project.
    assert changed_when() == before
    # And it may be noted, in the drills' own log.
    page.locator(".pw-fix-rating", has_text="Good").click()
    expect(said(page)).to_contain_text("Noted in your drills as Good: it comes back in ")
    assert page.locator(".pw-fix-rating").count() == 0
    assert page.evaluate("document.activeElement.classList.contains('pw-ed-run')")
    (event,) = log.from_json(json.loads(page.evaluate("localStorage.getItem('pagewalk-drills')")))
    assert (event.what, event.item, event.rating, event.form) == ("review", "fix/kv-head", 3, "file")


def changed_when() -> dict[Path, int]:
    """When each file of the ports was changed, and those at the top of the project."""
    folders = [(ROOT / fix.tasks()["fix/kv-head"].file).parent, ROOT]
    return {path: path.stat().st_mtime_ns for folder in folders for path in folder.iterdir() if path.is_file()}


def test_a_blank_and_what_is_no_python_are_said_with_their_line(open_real: OpenPage, fix_real: Served) -> None:
    page = open_real(f"drills/fix/max-subtract/#code={fix_real.key}")
    press(page)
    card = page.locator(".pw-fix-card")
    expect(card).to_contain_text("the blank ____ is still there", timeout=SLOW)
    assert card.locator("a").count() >= 1
    write(page, "def kernel(:\n")
    press(page)
    expect(said(page)).to_contain_text("✘ It does not run", timeout=SLOW)
    expect(card).to_contain_text("line 1")
    card.get_by_role("button", name="line 1").click()
    assert area(page).evaluate("area => area.selectionStart") == 0


# -- runs


def test_it_can_be_cancelled_and_runs_once_at_a_time(open_quick: OpenPage, fix_quick: Served) -> None:
    page = open_quick(at_key(fix_quick))
    write(page, "check('begun', 1, 1)\nimport time\ntime.sleep(600)")
    press(page)
    expect(page.locator(".pw-fix-checks tbody tr")).to_have_count(1, timeout=SLOW)
    press(page)
    expect(said(page)).to_have_text("It is being run already.")
    press(page, "Cancel")
    expect(said(page)).to_have_text("The run was cancelled.", timeout=SLOW)
    assert page.evaluate("document.activeElement.classList.contains('pw-ed-run')")
    expect(page.locator(".pw-ed-cancel")).to_be_hidden()
    write(page, "check('sum', 3, 3)")
    press(page)
    expect(said(page)).to_contain_text("✔ Passed", timeout=SLOW)


def test_a_second_reader_waits_and_a_crash_is_said(open_quick: OpenPage, fix_quick: Served) -> None:
    one, two = open_quick(at_key(fix_quick)), open_quick(at_key(fix_quick))
    write(one, "check('begun', 1, 1)\nimport time\ntime.sleep(600)")
    press(one)
    expect(one.locator(".pw-fix-checks tbody tr")).to_have_count(1, timeout=SLOW)
    write(two, "import os\nos.abort()")
    press(two)
    expect(said(two)).to_have_text("Waiting: place 1 of 1.", timeout=SLOW)
    one.close()
    expect(said(two)).to_have_text("The run's process was ended by SIGABRT. The server goes on.", timeout=SLOW)
    expect(said(two)).to_have_attribute("data-state", "error")


HOSTILE = """
check("a <b>name</b>", "<img src=nowhere: onerror='window.hacked = 1'>", "x")
failure = dict(what="check", name="<i>it</i>", message="", where="<u>there</u>", observed="<b>", expected="&lt;",
               note="", line=2, last=2,
               upstream=[dict(path="a/b.cuh", first=1, last=1, link="javascript:window.hacked = 2")])
tell("verdict", status="failed", checks=1, held=0, seconds=0.1, message="", failure=failure)
answers.close()
import os
os._exit(0)
"""


def test_what_a_run_says_is_text_and_leads_nowhere(open_quick: OpenPage, fix_quick: Served) -> None:
    page = open_quick(at_key(fix_quick))
    write(page, HOSTILE)
    press(page)
    card = page.locator(".pw-fix-card")
    expect(card.locator(".pw-fix-head")).to_have_text("First wrong: <i>it</i>", timeout=SLOW)
    expect(card).to_contain_text("<u>there</u>")
    assert card.locator("a, i, u, b, img").count() == 0
    expect(card).to_contain_text("b.cuh, line 1")
    assert page.locator(".pw-fix-checks tbody img, .pw-fix-checks tbody b").count() == 0
    assert page.evaluate("window.hacked") is None


def test_too_long_a_text_is_refused_in_words(browser: Browser, fix_quick: Served) -> None:
    context = browser.new_context()
    page = context.new_page()
    page.goto(fix_quick.url + at_key(fix_quick))
    write(page, "#" * 70_000)
    press(page)
    expect(said(page)).to_have_text("Not run: the text has 70,000 bytes, and at most 65,536 are taken.")
    context.close()


def test_a_run_is_there_after_a_walk_to_another_kernel_and_back(open_real: OpenPage, fix_real: Served) -> None:
    page = open_real(at_key(fix_real))
    page.evaluate("window.sameDocument = true")
    press(page)
    expect(said(page)).to_contain_text("✘ Not yet", timeout=SLOW)
    page.get_by_role("link", name="All kernels to fix").click()
    page.get_by_role("link", name="gather-rescale").first.click()
    expect(area(page)).to_have_attribute("id", "pw-ed-fix-gather-rescale")
    expect(said(page)).to_have_text("")
    page.get_by_role("link", name="All kernels to fix").click()
    page.get_by_role("link", name="kv-head").first.click()
    expect(area(page)).to_have_attribute("id", "pw-ed-fix-kv-head")
    expect(said(page)).to_contain_text("✘ Not yet")
    expect(page.locator(".pw-fix-card")).to_contain_text("[0, 1, 0, 1]")
    assert page.evaluate("window.sameDocument")
    asked = []
    page.on("request", lambda request: asked.append(request.method) if request.url.endswith("/code") else None)
    press(page)
    expect(said(page)).to_contain_text("✘ Not yet", timeout=SLOW)
    assert asked == ["POST"]
