"""Both panes in a terminal, at any width, with and without colour."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from annotate.render import Excerpt, excerpt, to_terminal

LEFT = "int a = 1; // one\n/* two */\nfor (;;) {}\nx;\n"
RIGHT = "a = 1\nb = 2\n"


def pane(text: str, side: str, language: str, **spans: tuple[int, int]) -> Excerpt:
    named = {name.replace("_", "-"): [place] for name, place in spans.items()}
    return excerpt(
        text, named, side=side, source="toy@1.0" if side == "upstream" else "pagewalk", path=f"{side}/file",
        language=language, licence="Apache-2.0" if side == "upstream" else None,
        permalink="https://e.org/x" if side == "upstream" else None,
    )  # fmt: skip


@pytest.fixture
def left() -> Excerpt:
    return pane(LEFT, "upstream", "cuda", key_loop=(3, 3))


@pytest.fixture
def right() -> Excerpt:
    return pane(RIGHT, "port", "python", key_loop=(2, 2))


def test_side_by_side_where_there_is_room(left: Excerpt, right: Excerpt) -> None:
    text = to_terminal(left, right, 120, False)
    first = text.split("\n")[0]
    assert "upstream/file" in first
    assert "port/file" in first
    assert "https://e.org/x" in text
    assert "Apache-2.0" in text


def test_stacked_where_there_is_not(left: Excerpt, right: Excerpt) -> None:
    text = to_terminal(left, right, 99, False)
    assert text.index("upstream/file") < text.index("for (;;) {}") < text.index("port/file") < text.index("b = 2")


def test_linked_lines_carry_a_bar_and_their_concept(left: Excerpt) -> None:
    rows = to_terminal(left, None, 80, False).split("\n")
    marked = [row for row in rows if "┃" in row]
    assert len(marked) == 1
    assert marked[0].split("┃")[1].strip() == "for (;;) {}"
    assert marked[0].split("┃")[0].strip() == "3"
    assert any("┏ key-loop" in row for row in rows)


def test_no_colour_means_no_escapes_and_colour_the_same_text(left: Excerpt, right: Excerpt) -> None:
    plain = to_terminal(left, right, 120, False)
    coloured = to_terminal(left, right, 120, True)
    assert "\x1b" not in plain
    assert "\x1b[" in coloured
    bare = re.sub(r"\x1b\[[0-9;]*m", "", coloured)
    assert [line.split() for line in bare.split("\n")] == [line.split() for line in plain.split("\n")]


def test_either_side_may_be_missing(left: Excerpt, right: Excerpt) -> None:
    assert "port/file" not in to_terminal(left, None, 120, False)
    assert "upstream/file" not in to_terminal(None, right, 120, False)
    assert to_terminal(None, None, 120, False) == ""


def test_upstream_text_cannot_steer_the_terminal() -> None:
    shown = pane("a\x1b]0;owned\x07\x9b31m\u202eb\tc\n", "upstream", "other", key_loop=(1, 1))
    for colour in (False, True):
        text = re.sub(r"\x1b\[[0-9;]*m", "", to_terminal(shown, None, 80, colour))
        assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]", text)
        assert "owned" in text


@given(st.text(alphabet="ab (){};/*\"'中\t", max_size=200), st.integers(20, 160))
def test_no_line_is_wider_than_asked_and_no_text_is_lost(text: str, width: int) -> None:
    shown = pane(f"{text}\nend", "upstream", "cuda", key_loop=(1, 1))
    out = to_terminal(shown, shown, width, False)
    assert all(cell_len(line) <= width for line in out.split("\n"))
    alone = to_terminal(shown, None, width, False)
    body = "".join(re.sub(r"^\s*\d*\s*[┃┏]?", "", line) for line in alone.split("\n"))
    for sign in "a中;":
        assert body.count(sign) >= text.count(sign)
