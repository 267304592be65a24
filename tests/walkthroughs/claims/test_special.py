"""The special functions: the example of lesson 1 with two ways of adding."""

from __future__ import annotations

import math
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from walkthroughs.claims import special
from walkthroughs.claims.context import Context

FLOATS = st.lists(st.floats(-1e9, 1e9), max_size=20)


@given(FLOATS)
def test_pythons_own_sum_is_one_of_the_two(values: list[float]) -> None:
    ours = special.compensated_sum if sys.version_info >= (3, 12) else special.plain_sum
    assert ours(values) == sum(values, 0.0)


@given(FLOATS)
def test_the_correction_never_makes_it_worse_by_much(values: list[float]) -> None:
    exact = math.fsum(values)
    scale = max(map(abs, values), default=0.0) * 2**-50
    assert abs(special.compensated_sum(values) - exact) <= scale


@pytest.mark.parametrize("add", [special.plain_sum, special.compensated_sum])
def test_both_forms_give_the_lessons_output(add: special.Add) -> None:
    expected = [0.363083, 0.449897, 0.392487, 0.386499]
    assert special.dense(add) == pytest.approx(expected, abs=1e-6)
    assert special.gathered(add) == pytest.approx(expected, abs=1e-6)


def test_the_differences_are_those_that_were_seen_on_two_pythons() -> None:
    found = special.sum_decides(Context(run=False))
    assert found.value is True
    assert found.seen == "added plainly: 5.55e-17, added with correction: 1.11e-16"
