"""The editor alone, on a bare page: typing, indenting, leaving, undoing, and which lines are marked as changed."""

from __future__ import annotations

import difflib
import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from playwright.sync_api import Browser, Page, expect

pytestmark = pytest.mark.browser
ASSETS = Path(__file__).resolve().parents[2] / "docs" / "assets"
START = "def f(x):\n    y = x\n    return y\n\n\nlast = 1\n"
HTML = """<!doctype html><html lang="en"><head><title>An editor</title><link rel="icon" href="data:,">
<link rel="stylesheet" href="pagewalk.css"><link rel="stylesheet" href="editor.css"></head>
<body><main class="md-typeset"><h1>An editor</h1><button id="before">before</button><div id="here"></div>
<button id="after">after</button></main><script src="drill-editor.js"></script></body></html>"""
MAKE = """([start, text, first]) => {
  window.told = {texts: [], runs: 0};
  const made = window.pagewalkEditor.make({
    id: "one", label: "kernels/toy.py", start, text, first, last: first,
    onInput: text => window.told.texts.push(text), onRun: () => { window.told.runs += 1; },
  });
  document.getElementById("here").replaceChildren(made.element);
  window.pagewalkEditor.ready(made.area);
  window.area = made.area;
}"""


@pytest.fixture(scope="module")
def bare(
    browser: Browser,
    serving: Callable[[Path], AbstractContextManager[str]],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Page]:
    """One page for all of these tests: each puts its own editor there."""
    folder = tmp_path_factory.mktemp("editor")
    (folder / "index.html").write_text(HTML, "utf-8")
    for path in ("css/pagewalk.css", "css/editor.css", "js/drill-editor.js"):
        shutil.copy(ASSETS / path, folder)
    troubles: list[str] = []
    with serving(folder) as url:
        context = browser.new_context(viewport={"width": 900, "height": 700})
        page = context.new_page()
        page.on("console", lambda message: troubles.append(message.text))
        page.on("pageerror", lambda error: troubles.append(str(error)))
        page.goto(url)
        yield page
        context.close()
    assert troubles == []


def editor(page: Page, text: str = START, start: str = START, first: int = 1) -> None:
    page.evaluate(MAKE, [start, text, first])
    page.locator("#one").focus()


def select(page: Page, first: int, last: int | None = None) -> None:
    page.evaluate("([first, last]) => area.setSelectionRange(first, last)", [first, first if last is None else last])


def after(page: Page, piece: str) -> None:
    """Put the caret behind a piece of the text."""
    select(page, page.locator("#one").input_value().index(piece) + len(piece))


def text(page: Page) -> str:
    return page.locator("#one").input_value()


def selected(page: Page) -> str:
    found: str = page.evaluate("area.value.slice(area.selectionStart, area.selectionEnd)")
    return found


def focused(page: Page) -> str:
    found: str = page.evaluate("document.activeElement.id")
    return found


# -- typing


def test_tab_goes_to_the_next_stop(bare: Page) -> None:
    for before, spaces in (("", 4), ("a", 3), ("ab", 2), ("abc", 1), ("abcd", 4), ("    ", 4)):
        editor(bare, before)
        select(bare, len(before))
        bare.keyboard.press("Tab")
        assert text(bare) == before + " " * spaces, before
        assert focused(bare) == "one"


def test_tab_and_shift_tab_move_the_lines_that_are_selected_and_they_stay_selected(bare: Page) -> None:
    editor(bare)
    select(bare, 12, 25)  # from the middle of the second line to the middle of the third
    bare.keyboard.press("Tab")
    assert text(bare) == "def f(x):\n        y = x\n        return y\n\n\nlast = 1\n"
    assert selected(bare) == "        y = x\n        return y"
    bare.keyboard.press("Shift+Tab")
    bare.keyboard.press("Shift+Tab")
    assert text(bare) == "def f(x):\ny = x\nreturn y\n\n\nlast = 1\n"
    bare.keyboard.press("Shift+Tab")
    assert text(bare) == "def f(x):\ny = x\nreturn y\n\n\nlast = 1\n", "there is no indent left to take"
    assert focused(bare) == "one"


def test_an_empty_line_gets_no_spaces_and_a_line_after_the_selection_stays(bare: Page) -> None:
    editor(bare, "a\n\nb\nc\n")
    select(bare, 0, 5)  # up to the start of the line with the c
    bare.keyboard.press("Tab")
    assert text(bare) == "    a\n\n    b\nc\n"


def test_shift_tab_without_a_selection_takes_the_indent_of_the_line(bare: Page) -> None:
    for line, caret, left, at in (("      x", 7, "  x", 3), ("  x", 3, "x", 1), ("    x", 2, "x", 0), ("x", 1, "x", 1)):
        editor(bare, f"a\n{line}\nb")
        select(bare, 2 + caret)
        bare.keyboard.press("Shift+Tab")
        assert text(bare) == f"a\n{left}\nb"
        assert bare.evaluate("area.selectionStart - 2") == at


def test_enter_keeps_the_indent_and_adds_one_behind_a_colon(bare: Page) -> None:
    editor(bare)
    after(bare, "y = x")
    bare.keyboard.press("Enter")
    bare.keyboard.type("z = y")
    assert text(bare).startswith("def f(x):\n    y = x\n    z = y\n    return y")
    after(bare, "def f(x):")
    bare.keyboard.press("Enter")
    bare.keyboard.type("pass")
    assert text(bare).startswith("def f(x):\n    pass\n    y = x\n")
    after(bare, "last = 1")
    bare.keyboard.press("Enter")
    bare.keyboard.type("x")
    assert text(bare).endswith("\nlast = 1\nx\n")


def test_escape_then_tab_leaves_either_way_and_is_said(bare: Page) -> None:
    editor(bare)
    status = bare.locator(".pw-ed [role=status]")
    for key, goal in (("Tab", "after"), ("Shift+Tab", "before")):
        bare.locator("#one").focus()
        bare.keyboard.press("Escape")
        expect(status).to_have_text("Tab leaves the editor now.")
        bare.keyboard.press(key)
        assert focused(bare) == goal
        assert text(bare) == START
    # Escape counts for the very next key only, and not for the next visit.
    bare.locator("#one").focus()
    bare.keyboard.press("Escape")
    bare.keyboard.press("ArrowRight")
    expect(status).to_have_text("")
    bare.keyboard.press("Tab")
    assert focused(bare) == "one"
    bare.keyboard.press("Escape")
    bare.locator("#before").focus()
    bare.locator("#one").focus()
    bare.keyboard.press("Tab")
    assert focused(bare) == "one"


def test_the_keys_are_said_to_who_cannot_see(bare: Page) -> None:
    editor(bare)
    hint = bare.locator("#one").get_attribute("aria-describedby")
    expect(bare.locator(f"#{hint}")).to_have_text(
        "Ctrl+Enter runs it. Tab indents, Shift+Tab takes the indent back; "
        "to leave with the keyboard press Escape, then Tab."
    )
    assert bare.locator(".pw-ed-back").get_attribute("aria-hidden") == "true"


def test_undo_takes_back_each_of_these_and_redo_brings_it(bare: Page) -> None:
    editor(bare)
    seen = [text(bare)]

    def did(*keys: str) -> None:
        for key in keys:
            bare.keyboard.press(key)
        seen.append(text(bare))

    after(bare, "y = x")
    did("Tab")
    after(bare, "return y")  # what is typed in one go is taken back in one
    did("Enter")
    select(bare, 0, 20)
    did("Tab")
    did("Shift+Tab")
    bare.evaluate("start => window.pagewalkEditor.replaceAll(area, start)", START)
    seen.append(text(bare))
    assert len(set(seen)) == 4, "the start and what was indented are there twice"
    for wanted in reversed(seen[:-1]):
        bare.keyboard.press("Control+z")
        assert text(bare) == wanted
    for wanted in seen[1:]:
        bare.keyboard.press("Control+Shift+z")
        assert text(bare) == wanted
    assert bare.evaluate("told.texts.at(-1)") == START


@pytest.mark.parametrize("key", ["Control+Enter", "Meta+Enter"])
def test_the_key_that_runs_types_nothing(bare: Page, key: str) -> None:
    editor(bare)
    bare.keyboard.press(key)
    assert bare.evaluate("told.runs") == 1
    assert text(bare) == START
    bare.locator("#before").focus()
    bare.keyboard.press(key)
    assert bare.evaluate("told.runs") == 1, "only in the editor"


def test_every_change_is_told(bare: Page) -> None:
    editor(bare)
    select(bare, 0)
    bare.keyboard.type("ab")
    bare.keyboard.press("Tab")
    assert bare.evaluate("told.texts") == [f"a{START}", f"ab{START}", f"ab  {START}"]


# -- the picture


def test_numbers_and_marks_stand_at_their_lines(bare: Page) -> None:
    """To the pixel, at the end of a long file, too, and wherever it was scrolled to."""
    lines = [f"line {number}" for number in range(1, 401)]
    start = "\n".join(lines)
    lines[349] = "changed"
    editor(bare, "\n".join(lines), start, first=345)
    assert bare.locator(".pw-ed-lines > div").count() == 400
    assert bare.locator(".pw-ed-new").count() == 1
    # The caret's line, as the browser scrolls it into view, against the row with that number.
    found = bare.evaluate(
        """() => {
          const style = getComputedStyle(area);
          const at = n => area.getBoundingClientRect().top + parseFloat(style.paddingTop) - area.scrollTop
            + (n - 1) * parseFloat(style.lineHeight);
          const rows = document.querySelectorAll(".pw-ed-lines > div");
          const off = () => [1, 350, 400].map(n => Math.abs(rows[n - 1].getBoundingClientRect().top - at(n)));
          const seen = [off()];
          for (const top of [0, 1234, 1e6]) {
            area.scrollTop = top;
            area.dispatchEvent(new Event("scroll"));
            seen.push(off());
          }
          return [seen, area.scrollHeight, rows[0].offsetHeight * 400, parseFloat(style.paddingTop)];
        }"""
    )
    assert all(distance < 0.6 for row in found[0] for distance in row), found
    assert abs(found[1] - found[2] - 2 * found[3]) <= 20, "as tall as its lines: a scroll bar apart"


def test_it_opens_at_the_lines_in_question_and_goes_to_a_line(bare: Page) -> None:
    long = "\n".join(f"    line {number}" for number in range(1, 401))
    editor(bare, long, long, first=200)
    seen = "[area.scrollTop / 20, area.clientHeight / 20]"
    top, height = bare.evaluate(seen)
    assert top < 199 < top + height
    bare.evaluate("window.pagewalkEditor.goTo(area, 390, true)")
    top, height = bare.evaluate(seen)
    assert top < 389 < top + height
    assert selected(bare) == "line 390"
    for far, word in ((9999, "line 400"), (-5, "line 1")):
        bare.evaluate("line => window.pagewalkEditor.goTo(area, line, true)", far)
        assert selected(bare) == word


def test_the_marks_are_said_in_words(bare: Page) -> None:
    note = bare.locator(".pw-ed-note")
    lines = START.split("\n")

    def shown(*changed: str) -> str:
        editor(bare, "\n".join(changed))
        return str(note.text_content())

    assert shown(*lines) == "As it was at the start."
    assert shown(lines[0], "    y = 2", *lines[2:]) == "Changed. Line 2 differs."
    assert shown(lines[0], "    y = 2", "    return 3", *lines[3:]) == "Changed. Lines 2 to 3 differ."
    assert shown(lines[0], *lines[2:]) == "Changed. Lines are missing before 2."
    assert shown(*lines[:5], "last = 2", "more = 3", "") == "Changed. Lines 6 to 7 differ."


# -- which lines differ

LINES = st.lists(st.sampled_from(["", "a", "b", "    c", "return d"]), max_size=9)
DIFFER = "([start, now]) => window.pagewalkEditor.differences(start, now)"


def longest(one: list[str], two: list[str]) -> int:
    """How many lines both have in common, in order: the textbook's table."""
    row = [0] * (len(two) + 1)
    for line in one:
        before = row[:]
        for at, other in enumerate(two, start=1):
            row[at] = before[at - 1] + 1 if line == other else max(before[at], row[at - 1])
    return row[-1]


@settings(max_examples=150)
@given(one=LINES, two=LINES)
def test_as_few_lines_as_can_be_are_marked(bare: Page, one: list[str], two: list[str]) -> None:
    start, now = "\n".join(one).split("\n"), "\n".join(two).split("\n")
    found: dict[str, Any] = bare.evaluate(DIFFER, ["\n".join(one), "\n".join(two)])
    changed, gone = found["changed"], found["gone"]
    assert changed == sorted(set(changed))
    assert all(1 <= number <= len(now) for number in changed)
    kept = [line for number, line in enumerate(now, start=1) if number not in changed]
    # What is not marked was there before, in this order; and no more could have been left unmarked.
    rest = iter(start)
    assert all(line in rest for line in kept)
    assert len(kept) == longest(start, now)
    assert (changed == [] and gone == []) == (start == now)
    assert all(1 <= number <= len(now) + 1 for number in gone)
    assert not set(gone) & set(changed)


@settings(max_examples=60)
@given(before=LINES, out=LINES, put=LINES, rest=LINES)
def test_one_change_in_one_place(
    bare: Page, before: list[str], out: list[str], put: list[str], rest: list[str]
) -> None:
    """What a reader does most: some lines give way to others that were nowhere before."""
    put = [f"new {number} {line}" for number, line in enumerate(put)]
    start, now = [*before, *out, *rest, "end"], [*before, *put, *rest, "end"]
    found: dict[str, Any] = bare.evaluate(DIFFER, ["\n".join(start), "\n".join(now)])
    assert found["changed"] == list(range(len(before) + 1, len(before) + len(put) + 1))
    assert bool(found["gone"]) == bool(out and not put)


def test_a_file_that_was_written_anew_is_marked_and_does_not_hang(bare: Page) -> None:
    start, now = (f"{word} {number}" for word in ("old", "new") for number in (0,))
    old = "\n".join(f"{start} {number}" for number in range(3000))
    new = "\n".join(f"{now} {number}" for number in range(3000))
    found: dict[str, Any] = bare.evaluate(DIFFER, [f"same\n{old}\nend", f"same\n{new}\nend"])
    assert found["changed"] == list(range(2, 3002))
    matcher = difflib.SequenceMatcher(a=["same", "x", "end"], b=["same", "y", "end"], autojunk=False)
    assert matcher.get_opcodes()[1][0] == "replace"
