"""Live runs on the made-up site, from a real server: Run, Cancel, changed cases, two readers, and a static copy."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Locator, Page, expect

pytestmark = pytest.mark.browser
OpenPage = Callable[..., Page]
ROOT = Path(__file__).resolve().parents[2]
SERVING = ROOT / "tests" / "walkthroughs" / "server" / "serving.py"
PAGE = "walkthroughs/alpha/"
SLOW = 30_000


@pytest.fixture(scope="module")
def live(
    chromium: str,
    sample_site: Path,
    put_site: Callable[[Path, Path, str], None],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[str]:
    """The address of the made-up site, served by the real server with steps of the tests' own."""
    site = tmp_path_factory.mktemp("live")
    process = subprocess.Popen([sys.executable, str(SERVING), str(site)], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        url: str = json.loads(process.stdout.readline())["url"]
        # Instant navigation believes the site map, which holds the address that the site was built for.
        put_site(sample_site, site, url)
        yield url
    finally:
        process.terminate()
        process.wait(timeout=30)
        if process.stdout is not None:
            process.stdout.close()


@pytest.fixture
def open_live(
    browser: Browser, live: str, watching: Callable[[Browser, str], AbstractContextManager[OpenPage]]
) -> Iterator[OpenPage]:
    """Pages that fail on errors in the console, and so on whatever the policy forbids."""
    with watching(browser, live) as opener:
        yield opener


def box(page: Page, step: str) -> Locator:
    return page.locator(f'.pw-live[data-step="{step}"]')


def press(page: Page, step: str, name: str = "Run") -> None:
    box(page, step).get_by_role("button", name=f"{name} the", exact=False).click()


def said(page: Page, step: str) -> Locator:
    return box(page, step).locator(".pw-live-said")


def rows(page: Page, step: str) -> Locator:
    return box(page, step).locator("tbody tr")


def idle(page: Page, step: str) -> None:
    expect(box(page, step).locator(".pw-live-cancel")).to_be_hidden(timeout=SLOW)


def test_run_fills_the_table_and_gives_a_verdict(open_live: OpenPage) -> None:
    page = open_live(PAGE)
    expect(page.locator(".pw-live")).to_have_count(2)
    expect(box(page, "alpha/loop").locator(".pw-live-where")).to_have_text("on this machine: SIMT machine")
    press(page, "alpha/loop")
    expect(said(page, "alpha/loop")).to_contain_text("✔ Passed: 2 of 2 checks hold", timeout=SLOW)
    expect(said(page, "alpha/loop")).to_contain_text("SIMT machine")
    assert rows(page, "alpha/loop").count() == 3
    first = rows(page, "alpha/loop").first
    expect(first.locator("th")).to_have_text("outputsix digits")
    expect(first.locator("td").nth(0)).to_have_text("[0.363083, 0.449897, 0.392487, 0.386499]")
    expect(first.locator("td").nth(2)).to_have_text("1.6e-07")
    expect(first.locator("td").nth(3)).to_have_text("5e-07")
    expect(first.locator("td").last).to_have_text("✔ passed")
    # What a run says is text, never markup.
    expect(rows(page, "alpha/loop").nth(1).locator("th")).to_have_text("a <b>word</b>")
    expect(rows(page, "alpha/loop").nth(2)).to_contain_text("12.5 us")
    expect(box(page, "alpha/loop").locator("caption")).to_have_text("Observed just now on SIMT machine")
    expect(rows(page, "alpha/write")).to_have_count(0)


def test_the_box_stands_under_the_recorded_values_of_its_step(open_live: OpenPage) -> None:
    page = open_live(PAGE)
    before = box(page, "alpha/write").evaluate(
        "box => [box.previousElementSibling.className, box.nextElementSibling.tagName]"
    )
    assert before == ["pw-table", "DETAILS"]
    assert page.locator(".pw-live-note").is_hidden()


def test_values_come_while_it_runs_and_cancel_ends_it(open_live: OpenPage) -> None:
    page = open_live(PAGE)
    press(page, "alpha/write")
    expect(rows(page, "alpha/write").nth(4)).to_be_visible(timeout=SLOW)
    expect(said(page, "alpha/write")).to_have_text("Running on SIMT machine.")
    press(page, "alpha/write", "Run")
    expect(said(page, "alpha/write")).to_have_text("This step is being run already.")
    box(page, "alpha/write").locator(".pw-live-cancel").click()
    expect(said(page, "alpha/write")).to_have_text("The run was cancelled.", timeout=SLOW)
    idle(page, "alpha/write")
    # The button that was pressed is gone: the focus is not lost.
    assert page.evaluate("document.activeElement.classList.contains('pw-live-run')")
    press(page, "alpha/write")
    expect(rows(page, "alpha/write").nth(1)).to_be_visible(timeout=SLOW)
    assert rows(page, "alpha/write").first.inner_text().startswith("round 0")
    box(page, "alpha/write").locator(".pw-live-cancel").click()
    idle(page, "alpha/write")


def test_a_second_reader_waits_and_is_told_its_place(open_live: OpenPage) -> None:
    one, two = open_live(PAGE), open_live(PAGE)
    press(one, "alpha/write")
    expect(rows(one, "alpha/write").first).to_be_visible(timeout=SLOW)
    press(two, "alpha/loop")
    expect(said(two, "alpha/loop")).to_have_text("Waiting: place 1 of 1.", timeout=SLOW)
    press(two, "alpha/loop")
    expect(said(two, "alpha/loop")).to_have_text("Already asked for. Waiting: place 1 of 1.")
    press(two, "alpha/write")
    expect(said(two, "alpha/write")).to_have_text("Waiting: place 2 of 2.")
    box(two, "alpha/write").locator(".pw-live-cancel").click()
    expect(said(two, "alpha/write")).to_have_text("The run was cancelled before it began.")
    expect(said(one, "alpha/loop")).to_have_text("")
    box(one, "alpha/write").locator(".pw-live-cancel").click()
    expect(said(two, "alpha/loop")).to_contain_text("✔ Passed", timeout=SLOW)
    idle(one, "alpha/write")


def test_a_reader_who_closes_the_page_gives_up_the_run(open_live: OpenPage) -> None:
    one, two = open_live(PAGE), open_live(PAGE)
    press(one, "alpha/write")
    expect(rows(one, "alpha/write").first).to_be_visible(timeout=SLOW)
    one.close()
    press(two, "alpha/loop")
    expect(said(two, "alpha/loop")).to_contain_text("✔ Passed", timeout=SLOW)


def test_a_changed_case(open_live: OpenPage) -> None:
    page = open_live(PAGE)
    form = box(page, "alpha/loop")
    form.get_by_text("Change the case").click()
    form.get_by_label("Sequence length").fill("30")
    form.get_by_label("Block size").select_option("8")
    form.get_by_label("Head size").select_option("16")
    form.get_by_label("Seed").fill("5")
    form.get_by_label("Order of the blocks").select_option("reversed")
    form.get_by_label("Sequence length").press("Enter")
    expect(said(page, "alpha/loop")).to_contain_text("✔ Passed: 4 of 4 checks hold", timeout=SLOW)
    expect(rows(page, "alpha/loop").first.locator("td").first).to_have_text("[6, 5, 4, 3]")
    expect(form.locator("caption")).to_have_text("A changed case, observed just now on SIMT machine")
    # A new plain run takes the place of these values.
    press(page, "alpha/loop")
    expect(said(page, "alpha/loop")).to_contain_text("2 of 2 checks hold", timeout=SLOW)
    assert rows(page, "alpha/loop").count() == 3


@pytest.fixture
def open_refused(browser: Browser, live: str) -> Iterator[OpenPage]:
    """Pages on which a request is refused on purpose: the browser logs that, and nothing else may be logged."""
    contexts, troubles = [], []

    def open_page(path: str = "", **options: Any) -> Page:
        context = browser.new_context(**options)
        contexts.append(context)
        page = context.new_page()
        page.on("pageerror", lambda error: troubles.append(str(error)))
        page.on("console", lambda m: None if "the server responded with" in m.text else troubles.append(m.text))
        page.goto(live + path)
        page.wait_for_selector(".pw-live")
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert troubles == []


@pytest.mark.parametrize(
    ("label", "value", "words"),
    [
        ("Sequence length", "999", "Sequence length = 999: must be a whole number from 1 to 256."),
        ("Sequence length", "2.5", "Sequence length = 2.5: must be a whole number from 1 to 256."),
        ("Sequence length", "", "Sequence length = '': must be a whole number from 1 to 256."),
        ("Seed", "-1", "Seed = -1: must be a whole number from 0 to 2147483647."),
    ],
)
def test_a_refusal_is_said_in_words_at_the_field(open_refused: OpenPage, label: str, value: str, words: str) -> None:
    page = open_refused(PAGE)
    form = box(page, "alpha/loop")
    form.get_by_text("Change the case").click()
    form.get_by_label(label).fill(value)
    form.get_by_role("button", name="Run this case").click()
    expect(said(page, "alpha/loop")).to_have_text(f"Not run: {words}")
    expect(form.get_by_label(label)).to_have_attribute("aria-invalid", "true")
    form.get_by_label(label).fill("7")
    form.get_by_role("button", name="Run this case").click()
    expect(said(page, "alpha/loop")).to_contain_text("✔ Passed", timeout=SLOW)
    assert form.get_by_label(label).get_attribute("aria-invalid") is None


def test_a_crash_is_said_in_words_and_the_next_run_works(open_live: OpenPage, live: str) -> None:
    page = open_live("walkthroughs/beta/")
    press(page, "beta/again")
    expect(said(page, "beta/again")).to_have_text(
        "The run's process was ended by SIGABRT. The server goes on.", timeout=SLOW
    )
    expect(said(page, "beta/again")).to_have_attribute("data-state", "error")
    expect(rows(page, "beta/again")).to_have_count(1)
    page.goto(live + PAGE)
    press(page, "alpha/loop")
    expect(said(page, "alpha/loop")).to_contain_text("✔ Passed", timeout=SLOW)


def test_a_token_of_another_server_is_said_in_words(open_refused: OpenPage) -> None:
    page = open_refused(PAGE)
    page.evaluate("document.querySelector('meta[name=pagewalk-live]').content = 'of another server'")
    press(page, "alpha/loop")
    expect(said(page, "alpha/loop")).to_contain_text("reload the page")


def test_runs_outlive_a_walk_to_another_page(open_live: OpenPage) -> None:
    """Instant navigation: A, B, A. The run goes on meanwhile, one handler answers, and what it told is there."""
    page = open_live(PAGE)
    page.evaluate("window.sameDocument = true")
    press(page, "alpha/write")
    expect(rows(page, "alpha/write").first).to_be_visible(timeout=SLOW)
    page.locator(".md-nav--primary").get_by_role("link", name="Beta").click()
    expect(box(page, "beta/again")).to_be_visible()
    expect(box(page, "alpha/write")).to_have_count(0)
    page.locator(".md-nav--primary").get_by_role("link", name="Alpha").click()
    expect(rows(page, "alpha/write").nth(3)).to_be_visible(timeout=SLOW)
    assert page.evaluate("window.sameDocument")
    assert rows(page, "alpha/write").first.inner_text().startswith("round 0")
    names = [row.split("\t")[0].split("\n")[0] for row in rows(page, "alpha/write").all_inner_texts()]
    assert names == [f"round {number}" for number in range(len(names))]
    box(page, "alpha/write").locator(".pw-live-cancel").click()
    expect(said(page, "alpha/write")).to_have_text("The run was cancelled.", timeout=SLOW)
    asked = []
    page.on("request", lambda request: asked.append(request.url) if request.url.endswith("/runs") else None)
    press(page, "alpha/loop")
    expect(said(page, "alpha/loop")).to_contain_text("✔ Passed", timeout=SLOW)
    assert len(asked) == 1


def test_the_keyboard_is_enough(open_live: OpenPage) -> None:
    page = open_live(PAGE)
    box(page, "alpha/loop").locator(".pw-live-run").focus()
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Change the case"
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.name") == "seq_len"
    page.keyboard.press("ArrowUp")
    for _ in range(5):
        page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Run this case"
    page.keyboard.press("Space")
    expect(said(page, "alpha/loop")).to_contain_text("✔ Passed: 4 of 4", timeout=SLOW)
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.getAttribute('aria-label')").startswith("Values of this run")


def test_what_happens_is_told_politely_to_a_screen_reader(open_live: OpenPage) -> None:
    page = open_live(PAGE)
    status = said(page, "alpha/loop")
    assert (status.get_attribute("role"), status.get_attribute("aria-live")) == ("status", "polite")
    names = page.get_by_role("button", name="Run the step").all()
    assert [name.text_content() for name in names] == ["Run the step: Walk the pieces", "Run the step: Write out"]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1440])
def test_nothing_keeps_people_out(open_live: OpenPage, tmp_path: Path, scheme: str, width: int) -> None:
    page = open_live(PAGE, color_scheme=scheme, viewport={"width": width, "height": 900})
    box(page, "alpha/loop").get_by_text("Change the case").click()
    press(page, "alpha/loop")
    expect(said(page, "alpha/loop")).to_contain_text("✔ Passed", timeout=SLOW)
    page.mouse.move(0, 0)
    page.screenshot(path=tmp_path / f"live-{width}-{scheme}.png", full_page=True)
    found = Axe().run(page, context=".pw-live").response["violations"]
    assert [(entry["id"], entry["impact"]) for entry in found if entry["impact"] in ("serious", "critical")] == []
    assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0


def test_on_paper_the_values_stay(open_live: OpenPage) -> None:
    page = open_live(PAGE)
    press(page, "alpha/loop")
    expect(said(page, "alpha/loop")).to_contain_text("✔ Passed", timeout=SLOW)
    page.emulate_media(media="print")
    assert not box(page, "alpha/loop").locator(".pw-live-bar").is_visible()
    assert box(page, "alpha/loop").locator("table").is_visible()


def test_pages_without_steps_have_nothing_to_run(open_live: OpenPage) -> None:
    page = open_live("concepts/toy-loop/")
    page.wait_for_load_state("networkidle")
    assert page.locator(".pw-live").count() == 0


# -- the policy


def test_the_policy_stops_a_script_that_no_page_has(browser: Browser, live: str) -> None:
    """And only that: every page of the site works under it, which `open_live` holds all along."""
    context = browser.new_context()
    page = context.new_page()
    refused: list[str] = []
    page.on(
        "console", lambda message: refused.append(message.text) if "Content Security Policy" in message.text else None
    )
    page.goto(live + PAGE)
    page.wait_for_selector(".pw-live")
    assert refused == []
    page.evaluate(
        "document.body.append(Object.assign(document.createElement('script'), {textContent: 'window.hacked = 1'}))"
    )
    assert page.evaluate("window.hacked") is None
    page.evaluate(
        "document.body.insertAdjacentHTML('beforeend', '<img src=\"nowhere:\" onerror=\"window.hacked = 2\">')"
    )
    page.wait_for_timeout(300)
    assert page.evaluate("window.hacked") is None
    assert refused
    context.close()


@pytest.mark.parametrize(
    "path",
    ["", "mental-model/", "concepts/toy-loop/", "compare/toy-loop/", "history/", "claims/", "play/", "no/such/page"],
)
def test_the_site_works_under_its_policy(browser: Browser, live: str, path: str) -> None:
    context = browser.new_context()
    page = context.new_page()
    said_by_browser: list[str] = []
    page.on("console", lambda message: said_by_browser.append(message.text))
    page.on("pageerror", lambda error: said_by_browser.append(str(error)))
    page.goto(live + path)
    page.wait_for_load_state("networkidle")
    assert [text for text in said_by_browser if "404" not in text] == []
    context.close()


def test_search_works_under_the_policy(open_live: OpenPage) -> None:
    """The theme's search runs in a worker."""
    page = open_live("")
    page.keyboard.press("/")
    page.keyboard.type("zebrafinch")
    expect(page.locator(".md-search-result__item").first).to_be_visible(timeout=SLOW)


def test_another_site_cannot_read_or_run_anything(
    browser: Browser, live: str, serving: Callable[[Path], AbstractContextManager[str]], tmp_path: Path
) -> None:
    """A page of another origin on this very machine: it may send, but is refused, and learns nothing."""
    (tmp_path / "evil.html").write_text("<!doctype html><title>evil</title><p>Hello", "utf-8")
    with serving(tmp_path) as evil:
        context = browser.new_context()
        page = context.new_page()
        page.goto(evil + "evil.html")
        tries = page.evaluate(
            """async live => {
              const outcome = async (path, options) => {
                try { const answer = await fetch(live + path, options); return answer.type + " " + answer.status; }
                catch (error) { return "blocked"; }
              };
              const json = {"Content-Type": "application/json"};
              const framed = await new Promise(resolve => {
                const frame = document.createElement("iframe");
                frame.onload = () => {
                  try { resolve(String(frame.contentDocument)); } catch (error) { resolve("blocked"); }
                };
                frame.src = live;
                document.body.append(frame);
              });
              return [
                await outcome("", {}),
                await outcome("-/live/steps", {headers: {"X-Pagewalk-Token": "guess"}}),
                await outcome("-/live/runs", {method: "POST", mode: "no-cors", body: '{"step": "alpha/loop"}'}),
                await outcome("-/live/runs", {method: "POST", body: "{}", headers: json}),
                framed,
              ];
            }""",
            live,
        )
        context.close()
    assert tries[:2] == ["blocked", "blocked"]
    assert tries[2] in ("blocked", "opaque 0")
    assert tries[3] == "blocked"
    assert tries[4] in ("blocked", "null")


# -- a copy of the site on any other server


def test_a_static_copy_says_that_its_values_are_recorded_and_how_to_run(open_page: OpenPage) -> None:
    page = open_page(PAGE)
    page.wait_for_load_state("networkidle")
    note = page.locator(".pw-live-note")
    expect(note).to_have_count(1)
    expect(note.locator("summary")).to_have_text("The values here are recorded; run the steps yourself")
    note.locator("summary").click()
    expect(note).to_contain_text("pagewalk site serve")
    assert page.locator(".pw-live").count() == 0
    assert page.get_by_role("button", name="Run", exact=False).count() == 0


def test_a_static_copy_asks_nothing_of_its_server(browser: Browser, address: str) -> None:
    context = browser.new_context()
    page = context.new_page()
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto(address + PAGE)
    page.wait_for_load_state("networkidle")
    assert asked
    assert not any("/-/" in url for url in asked)
    context.close()


def test_without_scripts_the_note_is_there_even_on_the_live_server(open_live: OpenPage) -> None:
    page = open_live(PAGE, java_script_enabled=False)
    expect(page.locator(".pw-live-note summary")).to_be_visible()
    assert page.locator(".pw-live").count() == 0
