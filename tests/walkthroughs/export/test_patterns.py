"""A line's pattern matches on that line and nowhere else, whatever stands around it."""

from __future__ import annotations

import re
from itertools import chain

import pytest
from hypothesis import given
from hypothesis import strategies as st

from walkthroughs.export.patterns import MOST, lines_matched, pattern_for

WORDS = ("a", "b", "{", "}", "f(x);", "a+b", "$", r"\d", "c[0]", "x|y", "^", "?", "//", ".*")
LINES = st.lists(st.lists(st.sampled_from(WORDS), max_size=3), min_size=1, max_size=14)
SPACES = st.sampled_from(("", " ", "\t", "    "))


def nonblank_from(lines: list[list[str]], start: int) -> list[list[str]]:
    return [words for words in lines[start:] if words]


def starts_like(lines: list[list[str]], start: int, wanted: list[str]) -> bool:
    """Whether the words from a line on are those wanted, ending where a line ends: by looking at every end."""
    following = nonblank_from(lines, start)
    ends = [list(chain.from_iterable(following[:n])) for n in range(1, len(following) + 1)]
    return bool(lines[start]) and wanted in ends


def brute_force(lines: list[list[str]], line: int) -> bool:
    """Whether some number of following lines tells this one from every other."""
    following = nonblank_from(lines, line)[:MOST] if lines[line] else []
    wanted = [list(chain.from_iterable(following[:n])) for n in range(1, len(following) + 1)]
    return any([j for j in range(len(lines)) if starts_like(lines, j, words)] == [line] for words in wanted)


@given(LINES, SPACES, st.sampled_from((" ", "  ", "\t")), st.sampled_from(("\n", "\r\n")), st.data())
def test_a_pattern_is_found_exactly_where_one_exists(
    lines: list[list[str]], indent: str, between: str, end: str, data: st.DataObject
) -> None:
    text = end.join(indent + between.join(words) for words in lines)
    line = data.draw(st.integers(0, len(lines) - 1))
    pattern = pattern_for(text, line + 1)
    assert (pattern is not None) == brute_force(lines, line)
    if pattern is not None:
        assert lines_matched(pattern, text) == [line + 1]


@given(LINES, st.data())
def test_a_pattern_still_matches_when_lines_move_and_are_indented_anew(
    lines: list[list[str]], data: st.DataObject
) -> None:
    line = data.draw(st.integers(0, len(lines) - 1))
    pattern = pattern_for("\n".join(" ".join(words) for words in lines), line + 1)
    moved = ["new first line", "", *("\t\t" + "   ".join(words) for words in lines)]
    if pattern is not None:
        assert lines_matched(pattern, "\n".join(moved)) == [line + 3]


def test_a_line_alone_is_enough_where_it_is_unique() -> None:
    assert pattern_for("one;\n  two(a, b);\nthree;", 2) == r"^[ \t]*two\(a,\s+b\);[ \t\r]*$"


def test_lines_that_follow_tell_twins_apart() -> None:
    text = "x\n}\n\ny\n}\nend"
    assert pattern_for(text, 5) == r"^[ \t]*\}\s+end[ \t\r]*$"
    assert pattern_for(text, 2) == r"^[ \t]*\}\s+y[ \t\r]*$"


@pytest.mark.parametrize(("text", "line"), [("a\n\nb", 2), ("a\nb", 3), ("a\na", 2), ("", 1)])
def test_no_pattern_where_nothing_tells(text: str, line: int) -> None:
    assert pattern_for(text, line) is None


def test_beyond_the_limit_twins_stay_twins() -> None:
    same = ["{", *["same"] * MOST]
    assert pattern_for("\n".join([*same, "one", *same, "two"]), 1) is None
    assert pattern_for("\n".join([*same[:-1], "one", *same[:-1], "two"]), 1) is None
    short = same[: MOST - 1]
    assert pattern_for("\n".join([*short, "one", *short, "two"]), 1) is not None


@pytest.mark.parametrize("symbol", list("\\^$.*+?()[]{}|/-#&~\"'<>=!,;:%@`"))
def test_no_symbol_means_anything(symbol: str) -> None:
    text = f"a{symbol}b\naab\nab\na b"
    pattern = pattern_for(text, 1)
    assert pattern is not None
    assert re.search(pattern, text, re.MULTILINE)
    assert lines_matched(pattern, text) == [1]
