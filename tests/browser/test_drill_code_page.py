"""Who is shown an editor on a fix-the-kernel page and who is not, and why; and how it looks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Locator, Page, expect

from walkthroughs.drills import fix

pytestmark = pytest.mark.browser
OpenPage = Callable[..., Page]
Watching = Callable[[Browser, str], AbstractContextManager[OpenPage]]
ROOT = Path(__file__).resolve().parents[2]
Served = Any  # its address, its key, and the site's folder
PAGE, OTHER = "drills/fix/kv-head/", "drills/fix/gather-rescale/"
SLOW = 60_000
# A run that tells of a first wrong value, with all that a card can show.
FAILS = """
check("sum of the first row", 3, 4)
failure = dict(what="check", name="sum of the first row", message="", where="a held-out case", observed="3",
               expected="4", note="read in lane 0", line=128, last=131, upstream=[
                   dict(path="csrc/a.cuh", first=1, last=2, link="https://example.invalid/a.cuh#L1-L2")])
tell("verdict", status="failed", checks=1, held=0, seconds=0.1, message="", failure=failure)
answers.close()
import os
os._exit(0)
"""
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


def note_of(page: Page) -> Locator:
    return page.locator(".pw-fix-note")


# -- who sees an editor


def test_a_static_copy_has_none_and_says_how_to_get_one(
    browser: Browser, fix_real: Served, serving: Callable[[Path], AbstractContextManager[str]], watching: Watching
) -> None:
    asked: list[str] = []
    with serving(fix_real.site) as url, watching(browser, url) as opener:
        page = opener(f"{PAGE}#code=guessed")
        page.on("request", lambda request: asked.append(request.url))
        page.reload()
        page.wait_for_load_state("networkidle")
        note = page.locator(".pw-fix-note")
        expect(note).to_contain_text("This copy of the site runs no code")
        expect(note).to_contain_text("pagewalk site serve --allow-code")
        assert page.locator("textarea, .pw-ed").count() == 0
        assert page.locator(".pw-side-port figure").is_visible()
        assert page.get_by_text("pagewalk drill check fix/kv-head").is_visible()
    assert asked
    assert not any("/-/" in address for address in asked)


def test_a_server_that_allows_no_code_says_so(
    browser: Browser, fix_real: Served, mending: ModuleType, watching: Watching
) -> None:
    with mending.serving(fix_real.site) as closed, watching(browser, closed.url) as opener:
        page = opener(PAGE)
        expect(page.locator(".pw-fix-note")).to_have_text(
            "This server runs no code that is typed into a page. Stop it and start it again with: "
            "pagewalk site serve --allow-code."
        )
        assert page.locator("textarea, .pw-ed, .pw-fix-key").count() == 0
        assert page.locator(".pw-side-port figure").is_visible()


def test_without_the_key_there_is_no_editor_until_it_is_given(open_quick: OpenPage, fix_quick: Served) -> None:
    page = open_quick(PAGE)
    note = page.locator(".pw-fix-note")
    expect(note).to_contain_text("only for the one who started it")
    assert area(page).count() == 0
    field = page.get_by_label("The key, or the whole address that the terminal shows")
    field.fill("guessed")
    field.press("Enter")
    expect(note).to_contain_text("That is not this server’s key.")
    assert area(page).count() == 0
    field.fill(f"  {fix_quick.url}{PAGE}#code={fix_quick.key} ")
    page.get_by_role("button", name="Use it").click()
    expect(area(page)).to_be_visible()
    assert page.locator(".pw-fix-key").count() == 0
    assert not page.locator(".pw-side-port figure").is_visible()
    # It is kept: the next page asks for nothing, and a link with another key does not take its place.
    page.goto(fix_quick.url + OTHER)
    expect(area(page)).to_be_visible()
    page.goto(fix_quick.url + "#code=of-somebody-else")
    expect(page).to_have_url(fix_quick.url)
    page.wait_for_load_state("networkidle")
    page.goto(fix_quick.url + PAGE)
    expect(area(page)).to_be_visible()


def test_the_key_leaves_the_address_at_once(open_quick: OpenPage, fix_quick: Served) -> None:
    page = open_quick(f"#code={fix_quick.key}")
    expect(page).to_have_url(fix_quick.url)
    page.wait_for_load_state("networkidle")  # the server is asked whether it knows the key
    page.goto(fix_quick.url + at_key(fix_quick).replace(fix_quick.key, "of-another"))
    expect(area(page)).to_be_visible()
    expect(page).to_have_url(fix_quick.url + PAGE)
    # In a tab that is open already.
    page = open_quick(PAGE)
    expect(page.locator(".pw-fix-key")).to_be_visible()
    page.evaluate("key => { location.hash = 'code=' + key; }", fix_quick.key)
    expect(area(page)).to_be_visible()
    assert fix_quick.key not in page.url


def test_the_key_of_another_server_is_said_in_words(browser: Browser, fix_quick: Served) -> None:
    """Started again, a server has a new key and a new token: an open page says that it must be loaded again."""
    context = browser.new_context()
    page = context.new_page()
    page.goto(fix_quick.url + at_key(fix_quick))
    expect(area(page)).to_be_visible()
    page.evaluate("localStorage.setItem('pagewalk-code-key', 'of-another')")
    press(page)
    expect(said(page)).to_contain_text("Not run: This server runs code only for the one who started it")
    page.evaluate("document.querySelector('meta[name=pagewalk-live]').content = 'of another'")
    press(page)
    expect(said(page)).to_contain_text("reload the page")
    context.close()


def test_without_scripts_the_page_says_what_it_can(browser: Browser, fix_quick: Served, watching: Watching) -> None:
    with watching(browser, fix_quick.url) as opener:
        page = opener(PAGE, java_script_enabled=False)
        assert page.locator(".pw-fix-note").is_visible()
        assert page.locator(".pw-side-port figure").is_visible()
        hint = page.locator("details.pw-fix-hint").first
        hint.locator("summary").click()
        assert hint.locator("p").first.is_visible()


# -- looks


@pytest.mark.parametrize(("width", "scheme"), [(390, "light"), (820, "dark"), (1440, "light")])
def test_nothing_keeps_people_out(
    open_quick: OpenPage, fix_quick: Served, tmp_path: Path, scheme: str, width: int
) -> None:
    page = open_quick(at_key(fix_quick), color_scheme=scheme, viewport={"width": width, "height": 900})
    page.screenshot(path=tmp_path / f"opened-{width}-{scheme}.png", full_page=True)
    start = area(page).input_value()
    write(page, FAILS)
    press(page)
    expect(page.locator(".pw-fix-card")).to_be_visible(timeout=SLOW)
    write(page, start.replace(FAULT, SOUND))
    page.locator(".pw-fix-checks summary").click()
    page.mouse.move(0, 0)
    page.screenshot(path=tmp_path / f"mended-{width}-{scheme}.png", full_page=True)
    found = Axe().run(page, context=".md-content").response["violations"]
    assert [(entry["id"], entry["impact"]) for entry in found if entry["impact"] in ("serious", "critical")] == []
    assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
    across = page.locator(".pw-side").evaluate_all(
        "sides => new Set(sides.map(s => s.getBoundingClientRect().left)).size"
    )
    assert across == (2 if width == 1440 else 1)


def test_on_paper_the_lines_stand_and_the_editor_does_not(open_quick: OpenPage, fix_quick: Served) -> None:
    page = open_quick(at_key(fix_quick))
    expect(area(page)).to_be_visible()
    page.emulate_media(media="print")
    assert not area(page).is_visible()
    assert page.locator(".pw-side-port figure").is_visible()


def test_what_happens_is_told_politely(open_quick: OpenPage, fix_quick: Served) -> None:
    page = open_quick(at_key(fix_quick))
    assert (said(page).get_attribute("role"), said(page).get_attribute("aria-live")) == ("status", "polite")
    name = "The kernel’s file, to be mended: kernels/vllm/attention_kernels.py"
    assert page.get_by_role("textbox", name=name).count() == 1
    hint = area(page).get_attribute("aria-describedby")
    for words in ("Ctrl+Enter runs it", "Tab indents", "press Escape, then Tab"):
        expect(page.locator(f"#{hint}")).to_contain_text(words)


def test_the_policy_is_kept_to(browser: Browser, fix_quick: Served) -> None:
    """All of it happens under the same policy; what it forbids stays forbidden on these pages."""
    context = browser.new_context()
    page = context.new_page()
    refused: list[str] = []
    page.on("console", lambda message: refused.append(message.text))
    page.goto(fix_quick.url + at_key(fix_quick))
    expect(area(page)).to_be_visible()
    assert refused == []
    page.evaluate(
        "document.body.append(Object.assign(document.createElement('script'), {textContent: 'window.bad = 1'}))"
    )
    assert page.evaluate("window.bad") is None
    assert any("Content Security Policy" in text for text in refused)
    context.close()


def test_another_site_cannot_run_anything(
    browser: Browser, fix_quick: Served, serving: Callable[[Path], AbstractContextManager[str]], tmp_path: Path
) -> None:
    """A page of another origin on this very machine that even knows the key."""
    (tmp_path / "evil.html").write_text("<!doctype html><title>evil</title><p>Hello", "utf-8")
    with serving(tmp_path) as evil:
        context = browser.new_context()
        page = context.new_page()
        page.goto(evil + "evil.html")
        tries: list[Any] = page.evaluate(
            """async ([live, key]) => {
              const outcome = async options => {
                try { return (await fetch(live + "-/live/code", options)).type; } catch (error) { return "blocked"; }
              };
              const body = JSON.stringify({drill: "fix/kv-head", text: "open('/tmp/pagewalk-hacked', 'w')"});
              const headers = {"Content-Type": "application/json", "X-Pagewalk-Key": key};
              const post = {method: "POST", body};
              return [await outcome({...post, headers}), await outcome({...post, mode: "no-cors"}), await outcome({})];
            }""",
            [fix_quick.url, fix_quick.key],
        )
        context.close()
    assert tries in (["blocked", "opaque", "blocked"], ["blocked"] * 3)
    assert not Path("/tmp/pagewalk-hacked").exists()


# -- what is kept


def test_what_was_written_is_kept_a_text_a_drill_until_it_is_reset(open_quick: OpenPage, fix_quick: Served) -> None:
    page = open_quick(at_key(fix_quick))
    start = area(page).input_value()
    write(page, start.replace(FAULT, SOUND))
    page.goto(fix_quick.url + OTHER)
    expect(area(page)).to_have_value(fix.unsolved(fix.tasks()["fix/gather-rescale"]))
    page.goto(fix_quick.url + PAGE)
    expect(area(page)).to_have_value(start.replace(FAULT, SOUND))
    expect(page.locator(".pw-ed-note")).to_have_text("Changed. Line 131 differs.")
    press(page, "Start again")
    expect(area(page)).to_have_value(start)
    expect(said(page)).to_have_text("As it was at the start. Undo brings your text back.")
    assert page.evaluate("Object.keys(localStorage).filter(name => name.startsWith('pagewalk-fix:'))") == []
    page.keyboard.press("Control+z")
    expect(area(page)).to_have_value(start.replace(FAULT, SOUND))
    page.reload()
    expect(area(page)).to_have_value(start.replace(FAULT, SOUND))


def test_what_is_none_of_ours_is_left_aside(open_quick: OpenPage, fix_quick: Served) -> None:
    page = open_quick(at_key(fix_quick))
    start = area(page).input_value()
    for kept in ("no json", "7", '{"text": 3}'):
        page.evaluate("kept => localStorage.setItem('pagewalk-fix:fix/kv-head', kept)", kept)
        page.reload()
        expect(area(page)).to_have_value(start)


def test_a_text_of_a_port_that_has_changed_since_is_kept_and_said(open_quick: OpenPage, fix_quick: Served) -> None:
    page = open_quick(at_key(fix_quick))
    expect(area(page)).to_be_visible()
    page.evaluate(
        "localStorage.setItem('pagewalk-fix:fix/kv-head', JSON.stringify({of: 'another port', text: 'my work'}))"
    )
    page.reload()
    expect(area(page)).to_have_value("my work")
    expect(said(page)).to_have_text("The port has changed since you wrote this. Start again takes the new one.")


def test_where_the_browser_keeps_nothing_it_works_all_the_same(browser: Browser, fix_quick: Served) -> None:
    context = browser.new_context()
    context.add_init_script("Object.defineProperty(window, 'localStorage', {get() { throw new Error('refused'); }});")
    page = context.new_page()
    page.goto(fix_quick.url + at_key(fix_quick))
    write(page, "check('sum', 3, 3)")
    expect(note_of(page)).to_contain_text("What you write is not kept")
    press(page)
    expect(said(page)).to_contain_text("✔ Passed", timeout=SLOW)
    context.close()


FULL = """window.full = false;
const real = Storage.prototype.setItem;
Storage.prototype.setItem = function (key, value) {
  if (window.full && key.startsWith("pagewalk-fix")) throw new DOMException("full", "QuotaExceededError");
  real.call(this, key, value);
};"""


def test_where_there_is_no_more_room_the_newer_text_stays_and_it_is_said(open_real: OpenPage, fix_real: Served) -> None:
    page = open_real(at_key(fix_real))
    page.add_init_script(FULL)
    page.reload()
    write(page, "older")
    expect(note_of(page)).to_contain_text("What you write is kept in this browser")
    page.wait_for_load_state("networkidle")  # from here on, links are followed in one document
    page.evaluate("window.full = true")
    write(page, "newer")
    expect(note_of(page)).to_contain_text("What you write is not kept")
    for name in ("gather-rescale", "kv-head"):  # to another kernel and back
        page.get_by_role("link", name="All kernels to fix").click()
        page.get_by_role("link", name=name).first.click()
        expect(area(page)).to_have_attribute("id", f"pw-ed-fix-{name}")
    assert page.evaluate("window.full")
    expect(area(page)).to_have_value("newer")
    expect(note_of(page)).to_contain_text("What you write is not kept")
    page.evaluate("window.full = false")
    write(page, "newest")
    expect(note_of(page)).to_contain_text("What you write is kept in this browser")
    page.reload()
    expect(area(page)).to_have_value("newest")


# -- two tabs


def beside(one: Page, served: Served, text: str) -> Page:
    """A second tab that begins with what was written in the first: it is told of that a little later."""
    write(one, text)
    two = one.context.new_page()
    two.goto(served.url)
    two.wait_for_function("text => (localStorage['pagewalk-fix:fix/kv-head'] || '').includes(text)", arg=text)
    two.goto(served.url + PAGE)
    expect(area(two)).to_have_value(text)
    return two


@pytest.mark.parametrize("key", ["x", "Enter", "Tab", "Control+z"])
def test_the_first_key_in_a_stale_tab_brings_what_another_wrote(
    open_quick: OpenPage, fix_quick: Served, key: str
) -> None:
    one = open_quick(at_key(fix_quick))
    two = beside(one, fix_quick, "mine")
    write(two, "mine, and theirs")
    expect(note_of(one)).to_contain_text("Another tab has changed this text.")
    expect(area(one)).to_have_value("mine")  # nothing changes under a reader's eyes
    expect(note_of(two)).to_contain_text("What you write is kept in this browser")
    one.bring_to_front()
    area(one).press(key)
    expect(area(one)).to_have_value("mine, and theirs")
    expect(said(one)).to_contain_text("This is the text of the other tab")
    expect(note_of(one)).to_contain_text("What you write is kept in this browser")
    one.keyboard.press("Control+z")
    expect(area(one)).to_have_value("mine")
    one.keyboard.press("Control+Shift+z")
    one.keyboard.press("End")
    one.keyboard.type("!")
    expect(area(one)).to_have_value("mine, and theirs!")
    expect(note_of(two)).to_contain_text("Another tab has changed this text.")


def test_a_start_again_in_another_tab_is_taken_over_too(open_quick: OpenPage, fix_quick: Served) -> None:
    one = open_quick(at_key(fix_quick))
    start = area(one).input_value()
    two = beside(one, fix_quick, "mine")
    press(two, "Start again")
    expect(note_of(one)).to_contain_text("Another tab has changed this text.")
    one.bring_to_front()
    area(one).press("x")
    expect(area(one)).to_have_value(start)
    assert two.evaluate("localStorage.getItem('pagewalk-fix:fix/kv-head')") is None
