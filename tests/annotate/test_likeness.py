"""Likeness against a brute-force count, projections that must find what was planted, diffs that must rebuild."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from annotate.likeness import Alignment, alike, changes, count, words

tokens = st.lists(st.sampled_from(["a", "b", "c", "(", ")", ";", "sum", "i"]), max_size=30)


def brute(one: list[str], other: list[str]) -> float:
    """The Dice coefficient of token triples, counted by crossing them out one by one."""
    left = [(["", *one, ""])[i : i + 3] for i in range(len(one))]
    right = [(["", *other, ""])[i : i + 3] for i in range(len(other))]
    total = len(left) + len(right)
    common = 0
    for triple in left:
        if triple in right:
            right.remove(triple)
            common += 1
    return 2 * common / total if total else 1.0


@given(tokens, tokens)
def test_likeness_is_the_share_of_common_triples(one: list[str], other: list[str]) -> None:
    assert alike(one, other) == brute(one, other) == alike(other, one)
    assert 0 <= alike(one, other) <= 1


@given(tokens)
def test_everything_is_like_itself(one: list[str]) -> None:
    assert alike(one, one) == 1


def test_names_alone_do_not_make_code_alike() -> None:
    loop = list("for(i=0;i<n;i++)sum+=x[i];")
    assert alike(loop, sorted(loop)) < 0.3
    assert alike(loop, list("for(i=0;i<n;i++)acc+=x[i];")) > 0.7


@given(tokens, tokens)
def test_a_diff_rebuilds_the_new_from_the_old(old: list[str], new: list[str]) -> None:
    hunks = changes(old, new)
    came, went = count(hunks)
    assert len(old) - went + came == len(new)
    assert (hunks == []) == (old == new)
    # Each hunk, taken in order, stands somewhere after the one before; what is between is common to both.
    at = there = 0
    for hunk in hunks:
        while (
            tuple(old[at : at + len(hunk.old)]) != hunk.old or tuple(new[there : there + len(hunk.new)]) != hunk.new
        ) and at < len(old):
            assert old[at] == new[there]
            at, there = at + 1, there + 1
        at, there = at + len(hunk.old), there + len(hunk.new)
    assert old[at:] == new[there:]


def test_a_whole_text_as_one_token_is_told_word_by_word() -> None:
    assert words(["#define", "LAUNCH", "run<T, 64", "a b"]) == [
        "#define",
        "LAUNCH",
        "run",
        "<",
        "T",
        ",",
        "64",
        "a",
        "b",
    ]
    (hunk,) = changes(["run<T, 32>(out);"], ["run<T, 64>(out);"])
    assert (hunk.old, hunk.new) == (("32",), ("64",))


def body(lines: list[str]) -> list[tuple[int, str]]:
    return [(number, token) for number, line in enumerate(lines, start=1) for token in line.split()]


LINES = [
    "int row = block * size ;",
    "float most = first ( row ) ;",
    "most = larger ( most , other ) ;",
    "keep ( most ) ;",
]


def test_a_part_is_found_where_it_went() -> None:
    moved = ["setup ( ) ;", *["pad ( x ) ;"] * 3, *LINES[1:3], "end ( ) ;", LINES[0]]
    found = Alignment(body(LINES), body(moved)).project(2, 3)
    assert found is not None
    assert (found.first, found.last, found.share) == (5, 6, 1.0)


def test_a_part_that_was_edited_is_found_with_less_than_all_of_it() -> None:
    edited = [LINES[0], "float most = first ( row , 1 ) ;", "most = larger ( most , other ) ;", LINES[3]]
    found = Alignment(body(LINES), body(edited)).project(2, 2)
    assert found is not None
    assert (found.first, found.last) == (2, 2)
    assert 0.6 < found.share < 1


def test_a_part_that_is_not_there_is_not_found() -> None:
    assert Alignment(body(LINES), body(["other ( thing ) ;", "x = y ;"])).project(3, 3) is None
    assert Alignment(body(LINES), []).project(1, 4) is None


@given(st.lists(st.sampled_from(LINES), min_size=1, max_size=6), st.data())
def test_in_the_same_text_a_part_is_where_it_was(lines: list[str], data: st.DataObject) -> None:
    first = data.draw(st.integers(1, len(lines)))
    last = data.draw(st.integers(first, len(lines)))
    found = Alignment(body(lines), body(lines)).project(first, last)
    assert found is not None
    assert (found.first, found.last, found.share) == (first, last, 1.0)
