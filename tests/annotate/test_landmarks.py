"""The landmark grammar: what it reads, what it refuses, and that it prints what it read."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from annotate.errors import LandmarkSyntax
from annotate.landmarks import KINDS, Landmark, Step, Term, read_landmark


def test_the_parts_of_a_landmark() -> None:
    assert read_landmark("for(i)#2") == Landmark(Term((Step("for", "i", (), 2),)))
    assert read_landmark("^decl(x) .. call(f)#-1") == Landmark(
        Term((Step("decl", "x"),), comments=True), Term((Step("call", "f", (), -1),))
    )
    assert read_landmark("for(j) > if(a.b)[decl(c)][return]") == Landmark(
        Term((Step("for", "j"), Step("if", "a.b", (Step("decl", "c"), Step("return")))))
    )


def test_a_raw_query_with_predicates_and_an_ordinal() -> None:
    query = '((call_expression function: (identifier) @n) @here (#eq? @n "f)"))'
    assert read_landmark(f"^{query}#2..return") == Landmark(
        Term((), comments=True, query=query, ordinal=2), Term((Step("return"),))
    )
    flat = "(if_statement) @here"
    assert read_landmark(flat) == Landmark(Term((), query=flat))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "missing"),
        ("loop(i)", "no such kind as 'loop'"),
        ("for", "needs a name"),
        ("for()", "needs a name"),
        ("return(x)", "takes no name"),
        ("for(i)#0", "cannot read '#0'"),
        ("for(i)#", "cannot read"),
        ("for(i)..", "missing"),
        ("for(i)..^decl(x)", "first term"),
        ("for(i) >", "missing"),
        ("for(i)[decl(x)", "not closed"),
        ("for(i) decl(x)", "cannot read"),
        ("a..b..c", "no such kind"),
        ("def..def..def", "cannot read"),
        ("(call_expression", "do not match"),
        ("12", "cannot read"),
    ],
)
def test_what_cannot_be_read_says_why(text: str, words: str) -> None:
    with pytest.raises(LandmarkSyntax) as caught:
        read_landmark(text)
    assert words in str(caught.value)


NAMES = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,6}(\.[a-z]{1,4})?", fullmatch=True)
ORDINALS = st.none() | st.integers(-9, 9).filter(bool)
UNNAMED = ["signature", "def", "body", "return"]


def steps(inner: st.SearchStrategy[Step] | None = None) -> st.SearchStrategy[Step]:
    inside = st.just(()) if inner is None else st.lists(inner, max_size=2).map(tuple)
    plain = st.builds(Step, st.sampled_from(UNNAMED), st.none(), inside, ORDINALS)
    named = st.builds(Step, st.sampled_from(sorted(KINDS - set(UNNAMED))), NAMES, inside, ORDINALS)
    return plain | named


def terms(comments: bool) -> st.SearchStrategy[Term]:
    path = st.lists(steps(steps()), min_size=1, max_size=3).map(tuple)
    return st.builds(Term, path, st.booleans() if comments else st.just(False))


@given(terms(True), st.none() | terms(False))
def test_whatever_is_printed_is_read_back(start: Term, end: Term | None) -> None:
    text = str(start) if end is None else f"{start}..{end}"
    assert read_landmark(text) == Landmark(start, end)
