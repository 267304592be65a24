"""One idea in several kernels, in a terminal: how many stand side by side, what each column says, and that it fits."""

from __future__ import annotations

import itertools
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from annotate.columns import Column, columns_at, lines_of, to_columns
from annotate.render import Excerpt, excerpt
from annotate.terminal import folds

NAMES = ("alpha", "beta", "gamma", "delta", "epsilon")


def pane(text: str, name: str, side: str = "upstream", spans: tuple[tuple[int, int], ...] = ((1, 1),)) -> Excerpt:
    return excerpt(
        text, {f"{name}-idea": spans}, side=side, source="toy@1.0", path=f"deep/{name}.cu", language="cuda", context=0
    )


def column(name: str, *, missing: tuple[str, ...] = (), text: str = "") -> Column:
    upstream = () if missing else (pane(text or f"{name}_upstream = 1;\n", name),)
    return Column(f"Kernel {name}", f"toy-{name}@1.0", upstream, (pane(f"{name}_port = 1\n", name, "port"),), missing)


FIVE = [column(name) for name in NAMES]


def row_of(lines: list[str], word: str) -> int:
    (found,) = [number for number, line in enumerate(lines) if word in line]
    return found


@pytest.mark.parametrize(("width", "abreast"), [(20, 1), (99, 1), (100, 2), (159, 2), (160, 4), (400, 4)])
def test_four_stand_side_by_side_two_or_one(width: int, abreast: int) -> None:
    assert columns_at(width) == abreast
    lines = to_columns(FIVE, width, False).split("\n")
    rows = [row_of(lines, f"Kernel {name}") for name in NAMES]
    assert [rows.index(row) for row in rows] == [index - index % abreast for index in range(5)]
    assert rows == sorted(rows)


def test_fewer_kernels_than_columns_share_the_width() -> None:
    lines = to_columns(FIVE[:3], 160, False).split("\n")
    first = lines[row_of(lines, "Kernel alpha")]
    assert [first.index(f"Kernel {name}") // 40 for name in NAMES[:3]] == [0, 1, 2]
    assert first.index("Kernel gamma") > 160 * 2 // 3 - 5


@pytest.mark.parametrize("width", [80, 120, 200])
def test_a_column_says_what_where_from_and_which_lines(width: int) -> None:
    text = to_columns(FIVE[:4], width, False)
    for name in NAMES[:4]:
        for said in (f"Kernel {name}", f"toy-{name}@1.0", f"{name}_upstream = 1;", f"{name}_port = 1", f"{name}-idea"):
            assert said in text
        assert f"deep/{name}.cu:1" in text, "ours by its path"
        assert re.search(rf"(^|\s){name}\.cu:1", text, re.MULTILINE), "upstream by its name"


def test_a_port_follows_its_upstream_lines_in_the_same_column() -> None:
    lines = to_columns(FIVE[:4], 200, False).split("\n")
    for name in NAMES[:4]:
        above, below = (row_of(lines, f"{name}_{side}") for side in ("upstream", "port"))
        assert above < below
        assert abs(lines[above].index(f"{name}_upstream") - lines[below].index(f"{name}_port")) <= 1
    assert sum("port, runs here" in line for line in lines) == 1


def test_what_is_missing_is_said_in_its_place() -> None:
    text = to_columns([column("alpha", missing=("src/a.cu:3", "Not here: fetch it"))], 80, False)
    lines = text.split("\n")
    assert row_of(lines, "toy-alpha@1.0") < row_of(lines, "Not here") < row_of(lines, "alpha_port = 1")
    assert "alpha_upstream" not in text


def test_a_kernel_without_a_port_says_so() -> None:
    text = to_columns([Column("K", "w", (pane("a;\n", "alpha"),), ())], 80, False)
    assert "no port" in text
    assert "runs here" not in text


def test_common_indentation_is_taken_off_and_the_rest_kept() -> None:
    text = "        if (a) {\n            b;\n        }\n"
    shown = Column("K", "w", (pane(text, "alpha", spans=((1, 3),)),), ())
    code = [line.partition("┃ ")[2] for line in to_columns([shown], 80, False).split("\n") if "┃" in line]
    assert code == ["if (a) {", "    b;", "}"]


def test_no_colour_means_no_escapes_and_colour_the_same_text() -> None:
    plain, coloured = (to_columns(FIVE, 200, color) for color in (False, True))
    assert "\x1b" not in plain
    assert re.sub(r"\x1b\[[0-9;]*m", "", coloured).split() == plain.split()


def test_nothing_to_show_is_nothing() -> None:
    assert to_columns([], 80, False).strip() == ""


def test_text_from_elsewhere_cannot_steer_the_terminal() -> None:
    hostile = "a\x1b]0;owned\x07\x9b31m\u202eb\tc"
    shown = Column(hostile, hostile, (pane(f"{hostile}\n", "alpha"),), (), (hostile,))
    for colour in (False, True):
        text = re.sub(r"\x1b\[[0-9;]*m", "", to_columns([shown] * 4, 160, colour))
        assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]", text)
        assert "owned" in text


@given(
    st.text(alphabet='ab_ ().,;/*"中\t', max_size=200),
    st.integers(20, 220),
    st.integers(1, 5),
    st.text("xy z", max_size=60),
)
def test_no_line_is_wider_than_asked_and_no_sign_is_lost(text: str, width: int, kernels: int, title: str) -> None:
    made = Column(f"K{title}", "w", (pane(f"{text}q\nend", "alpha", spans=((1, 2),)),), ())
    out = to_columns([made] * kernels, width, False)
    assert all(cell_len(line) <= width for line in out.split("\n"))
    alone = to_columns([made], width, False)
    body = "".join(line for line in alone.split("\n") if "alpha" not in line)
    for sign in "中;q":
        assert body.count(sign) == text.count(sign) + (sign == "q")


def test_lines_are_named_as_short_as_can_be() -> None:
    shown = pane("a\n" * 20, "alpha", spans=((1, 3), (7, 7), (15, 16)))
    assert lines_of(shown) == "1-3, 7, 15-16"


def parts(code: str, cuts: list[int]) -> list[str]:
    ends = [0, *cuts, len(code)]
    return [code[start:end] for start, end in itertools.pairwise(ends)]


@given(st.text(alphabet="ab_ ([{,.;:/-中", max_size=120), st.integers(2, 50), st.integers(2, 50))
def test_a_folded_line_fits_and_is_whole(code: str, first: int, rest: int) -> None:
    found = parts(code, folds(code, first, rest))
    assert "".join(found) == code
    assert all(found) or not code
    for index, part in enumerate(found):
        assert cell_len(part) <= (rest if index else first) or len(part) == 1


@pytest.mark.parametrize(
    ("code", "width", "found"),
    [
        ("short", 10, ["short"]),
        ("alpha beta gamma", 11, ["alpha beta ", "gamma"]),
        ("f(alpha_beta_gamma)", 12, ["f(alpha_", "beta_gamma)"]),
        ("long_call(some_argument)", 14, ["long_call(", "some_argument)"]),
        ("x = some_long_name[index]", 14, ["x = some_long_", "name[index]"]),
        ("unbreakable", 4, ["unbr", "eaka", "ble"]),
    ],
)
def test_a_line_breaks_where_it_reads_best(code: str, width: int, found: list[str]) -> None:
    assert parts(code, folds(code, width, width)) == found
