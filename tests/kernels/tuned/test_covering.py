"""Covering tables: every two values that may meet do, nothing that may not, and few rows."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.tuned.covering import covering, met_by, pairs

AXES = {"size": (32, 64, 80, 96, 120), "heads": ((2, 2), (4, 2), (8, 1)), "kind": ("auto", "fp8"), "far": (True, False)}


def allowed(row: dict[str, Any]) -> bool:
    return not (row.get("size") == 120 and row.get("kind") == "fp8")


def meeting(rows: list[dict[str, Any]]) -> set[tuple[tuple[str, Any], tuple[str, Any]]]:
    return {two for row in rows for two in itertools.combinations(row.items(), 2)}


def test_every_two_values_meet() -> None:
    rows = covering(AXES)
    want = {
        ((one, a), (two, b))
        for one, two in itertools.combinations(AXES, 2)
        for a, b in itertools.product(AXES[one], AXES[two])
    }
    assert meeting(rows) == want
    assert 15 <= len(rows) <= 18, "sizes by heads are fifteen"
    assert rows == covering(AXES), "the same each time"
    assert all(list(row) == list(AXES) for row in rows)


def test_what_is_not_allowed_never_meets_and_the_rest_does() -> None:
    rows = covering(AXES, allowed)
    assert all(allowed(row) for row in rows)
    free, bound = meeting(covering(AXES)), meeting(rows)
    assert free - bound == {(("size", 120), ("kind", "fp8"))}


def test_axes_apart_still_show_every_value() -> None:
    every = [set(two) for two in itertools.combinations(AXES, 2)]
    rows = covering(AXES, allowed, every)
    assert len(rows) == 5
    for name, values in AXES.items():
        assert {row[name] for row in rows} == set(values)
    some = covering(AXES, allowed, [two for two in every if two != {"size", "kind"}])
    assert len(some) == 9
    # Among equals the rarest is taken: the heads take turns.
    assert {row["heads"] for row in rows[:3]} == set(AXES["heads"])


def test_one_axis_and_none() -> None:
    assert covering({"size": (1, 2)}) == [{"size": 1}, {"size": 2}]
    assert covering({}) == []


def test_a_rule_of_three_axes_is_refused_with_words() -> None:
    def never_all_three(row: dict[str, Any]) -> bool:
        return len(row) < 3

    with pytest.raises(ValueError, match="no value of kind is allowed beside these"):
        covering({"size": (1, 2), "heads": (1, 2), "kind": (1, 2)}, never_all_three)


def test_a_row_meets_its_pairs_and_its_values() -> None:
    assert met_by({"a": 1, "b": 2}) == {
        frozenset({("a", 1), ("b", 2)}), frozenset({("a", 1)}), frozenset({("b", 2)}),
    }  # fmt: skip


@settings(max_examples=40)
@given(st.lists(st.integers(1, 5), min_size=2, max_size=5), st.data())
def test_any_axes(sizes: list[int], data: st.DataObject) -> None:
    axes = {f"axis{number}": tuple(range(size)) for number, size in enumerate(sizes)}
    first, second = data.draw(st.permutations(list(axes)))[:2]
    # One value of one axis never beside one of another: the others stay free.
    forbidden = {first: 0, second: 0} if len(axes[first]) > 1 and len(axes[second]) > 1 else {}

    def fine(row: dict[str, Any]) -> bool:
        return not forbidden or any(row.get(name, 1) != value for name, value in forbidden.items())

    rows = covering(axes, fine)
    met = set().union(*map(met_by, rows))
    assert set(pairs(axes, fine)) <= met
    assert all(fine(row) for row in rows)
    assert len(rows) <= len(pairs(axes, fine))
