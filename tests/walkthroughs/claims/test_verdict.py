"""The rule from facts to a verdict, against the same rule over every way that the unknown facts could turn out."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from walkthroughs.claims.model import Fact, Finding, Role, Verdict
from walkthroughs.claims.verdict import all_of, any_of, decide

LISTED = st.lists(st.tuples(st.sampled_from(list(Role)), st.sampled_from([True, False, None])), max_size=6)


def run(listed: Sequence[tuple[Role, bool | None]]) -> Verdict | None:
    facts = [Fact(role, "a fact", "has", {}) for role, _ in listed]
    return decide(facts, [Finding(value, "") for _, value in listed])


def plainly(listed: Sequence[tuple[Role, bool]]) -> Verdict:
    """The rule's five lines with every fact known."""
    true = {role for role, value in listed if value}
    false = {role for role, value in listed if not value}
    if Role.REFUTES in true or Role.SUPPORTS in false:
        return Verdict.WRONG
    if Role.MISSING in true:
        return Verdict.OPEN
    if Role.LIMITS in true:
        return Verdict.HOLDS_IF
    return Verdict.HOLDS if Role.SUPPORTS in true else Verdict.OPEN


@given(LISTED)
def test_an_unknown_fact_counts_only_where_it_cannot_change_the_verdict(
    listed: list[tuple[Role, bool | None]],
) -> None:
    unknown = [index for index, (_, value) in enumerate(listed) if value is None]
    outcomes = set()
    for values in itertools.product([True, False], repeat=len(unknown)):
        known = dict(zip(unknown, values, strict=True))
        outcomes.add(plainly([(role, known.get(i, bool(v))) for i, (role, v) in enumerate(listed)]))
    verdict = run(listed)
    if verdict is not None:
        assert outcomes == {verdict}
    elif all(role is not Role.ALSO for role, value in listed if value is None):
        # Three-valued logic may give up early, but never where nothing is unknown.
        assert unknown


@given(LISTED)
def test_without_unknown_facts_there_is_always_a_verdict(listed: list[tuple[Role, bool | None]]) -> None:
    known = [(role, bool(value)) for role, value in listed]
    assert run(known) is plainly(known)


@pytest.mark.parametrize(
    ("listed", "verdict"),
    [
        ([(Role.SUPPORTS, True)], Verdict.HOLDS),
        ([(Role.SUPPORTS, True), (Role.SUPPORTS, False)], Verdict.WRONG),
        ([(Role.SUPPORTS, True), (Role.LIMITS, True)], Verdict.HOLDS_IF),
        ([(Role.SUPPORTS, True), (Role.LIMITS, False)], Verdict.HOLDS),
        ([(Role.REFUTES, True), (Role.SUPPORTS, None)], Verdict.WRONG),
        ([(Role.MISSING, True)], Verdict.OPEN),
        ([(Role.REFUTES, False)], Verdict.OPEN),
        ([(Role.SUPPORTS, None)], None),
        ([(Role.SUPPORTS, True), (Role.LIMITS, None)], None),
        ([(Role.SUPPORTS, True), (Role.ALSO, None)], Verdict.HOLDS),
        ([(Role.SUPPORTS, True), (Role.ALSO, False)], Verdict.HOLDS),
    ],
)
def test_examples(listed: list[tuple[Role, bool | None]], verdict: Verdict | None) -> None:
    assert run(listed) is verdict


def test_the_two_quantifiers_of_nothing() -> None:
    assert (any_of([]), all_of([])) == (False, True)
    assert (any_of([None, True]), all_of([None, False])) == (True, False)
    assert (any_of([None, False]), all_of([None, True])) == (None, None)
