"""An interview as it is kept: what opens, answers and closes a question, points ticked, there and back as JSON."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from walkthroughs.drills.errors import DrillError
from walkthroughs.drills.interview import (
    MINUTE,
    MOVES,
    Interview,
    Move,
    Turn,
    answered,
    from_json,
    opened,
    passes,
    seed_of,
    skip,
    ticked,
    to_json,
    typed,
)
from walkthroughs.drills.item import Item

TABLE = Item("recall/table", "What is a block table?", 1, concepts=("block-table-walk",))
BEGUN = Interview(seed=7, started=1_700_000_000_000)
OPEN = opened(BEGUN, TABLE, "opens", "")
NAMES = st.sampled_from(["recall/table", "compute/slot", "find/walk"])
POINTS = st.integers(1, 5).flatmap(
    lambda of: st.tuples(st.sets(st.integers(1, of)).map(lambda had: tuple(sorted(had))), st.just(of))
)
MOVE = st.sampled_from(get_args(Move))
TURNS = st.builds(
    lambda item, seed, move, parent, answer, points, took, said: Turn(
        item, seed, move, parent, answer, *points, took, said
    ),
    NAMES, st.integers(0, 2**31 - 1), MOVE, st.just("") | NAMES, st.text(max_size=20), POINTS, st.integers(0, 10**7),
    st.text(max_size=10),
)  # fmt: skip
INTERVIEWS = st.builds(
    Interview,
    seed=st.integers(0, 2**31 - 1),
    started=st.integers(0, 10**13),
    minutes=st.integers(1, 240),
    role=st.sampled_from(["general", "kernel"]),
    spent=st.integers(0, 10**8),
    turns=st.lists(TURNS, max_size=4).map(tuple),
    item=st.just("") | NAMES,
    question=st.integers(0, 2**31 - 1),
    move=MOVE,
    parent=st.just("") | NAMES,
    answer=st.none() | st.text(max_size=20),
    took=st.integers(0, 10**7),
    skipped=st.lists(NAMES, max_size=2).map(tuple),
    output=st.sampled_from(["", "/tmp/report.md"]),
)


@given(INTERVIEWS)
def test_there_and_back(interview: Interview) -> None:
    assert from_json(json.loads(json.dumps(to_json(interview)))) == interview


@pytest.mark.parametrize(
    "change",
    [
        {"seed": "x"}, {"turns": 3}, {"turns": [{}]}, {"turns": None}, {"move": "sideways"}, {"answer": 3},
        {"spent": None}, {"skipped": 4},
    ],
)  # fmt: skip
def test_what_is_no_interview(change: dict[str, Any]) -> None:
    whole = to_json(answered(OPEN, "It maps.", (1,), 2, 900))
    assert from_json(whole) is not None
    assert from_json(whole | change) is None
    assert from_json(None) is None
    assert from_json([]) is None
    for name in whole:
        assert from_json({key: value for key, value in whole.items() if key != name}) is None
    (row,) = whole["turns"]
    for name in row:
        assert from_json(whole | {"turns": [{key: row[key] for key in row if key != name}]}) is None
    assert from_json(whole | {"turns": [row | {"move": "sideways"}]}) is None


def test_a_question_is_opened_answered_and_closed() -> None:
    assert (OPEN.item, OPEN.move, OPEN.parent, OPEN.answer) == ("recall/table", "opens", "", None)
    assert OPEN.question == seed_of(BEGUN, "recall/table")
    said = typed(OPEN, "It maps.", 900)
    assert (said.item, said.answer, said.took) == ("recall/table", "It maps.", 900)
    after = answered(said, "It maps.", (1, 3), 4, 900, "You are the judge.")
    assert after.turns == (
        Turn("recall/table", OPEN.question, "opens", "", "It maps.", (1, 3), 4, 900, "You are the judge."),
    )
    assert replace(after, turns=()) == BEGUN  # nothing of the open question is left
    assert after.asked == {"recall/table"}
    assert BEGUN.asked == frozenset()


def test_one_that_cannot_be_asked_is_left_out() -> None:
    assert skip(OPEN) == replace(BEGUN, skipped=("recall/table",))


@pytest.mark.parametrize(
    ("had", "of", "score", "rating"),
    [
        ((), 1, 0.0, 1), ((1,), 1, 1.0, 3), ((1,), 3, 1 / 3, 1), ((2,), 2, 0.5, 2), ((1, 2), 3, 2 / 3, 2),
        ((1, 2, 3), 3, 1.0, 3), ((1, 2, 3, 4), 5, 0.8, 2),
    ],
)  # fmt: skip
def test_scores_and_ratings(had: tuple[int, ...], of: int, score: float, rating: int) -> None:
    (turn,) = answered(OPEN, "", had, of, 0).turns
    assert (turn.score, turn.rating, turn.kind) == (score, rating, "recall")


@pytest.mark.parametrize(("had", "of"), [((0,), 2), ((3,), 2), ((2, 1), 2), ((1, 1), 2), ((), 0)])
def test_points_that_are_none(had: tuple[int, ...], of: int) -> None:
    with pytest.raises(ValueError, match="points"):
        answered(OPEN, "", had, of, 0)


def test_without_a_question_there_is_no_answer() -> None:
    with pytest.raises(ValueError, match="no question"):
        answered(BEGUN, "", (1,), 1, 0)


@given(st.lists(st.integers(-(10**6), 10**7), max_size=6), st.integers(1, 60))
def test_time_only_goes_on(steps: list[int], minutes: int) -> None:
    interview = replace(BEGUN, minutes=minutes)
    for step in steps:
        interview = passes(interview, step)
    assert interview.spent == sum(step for step in steps if step > 0)
    assert interview.left == max(0, minutes * MINUTE - interview.spent)


@given(POINTS, st.sampled_from([" ", ",", ", ", "  "]), st.randoms())
def test_ticks(points: tuple[tuple[int, ...], int], between: str, chance: Any) -> None:
    had, of = points
    words = [str(number) for number in had] * chance.choice([1, 2]) or ["0"]
    chance.shuffle(words)
    assert ticked(f" {between.join(words)} ", of) == had


@pytest.mark.parametrize(("text", "had"), [(" 0 ", ()), ("a", (1, 2, 3)), ("ALL", (1, 2, 3)), ("3,1", (1, 3))])
def test_ticks_in_short(text: str, had: tuple[int, ...]) -> None:
    assert ticked(text, 3) == had


@pytest.mark.parametrize("text", ["4", "0 1", "0 0", "1 4", "-1", "x", "13", "1.5", "a 1", "²", "१"])
def test_what_is_no_tick(text: str) -> None:
    with pytest.raises(DrillError, match="is no point: 1 to 3, a for all, 0 for none"):
        ticked(text, 3)


@pytest.mark.parametrize("text", ["", "  ", ","])
def test_nothing_typed_is_not_none(text: str) -> None:
    with pytest.raises(DrillError, match=r"^Type which points you had: 1 to 3, a for all, 0 for none$"):
        ticked(text, 3)


@given(st.integers(0, 2**31 - 1), NAMES)
def test_seeds_are_fresh_and_the_same_everywhere(seed: int, name: str) -> None:
    interview = replace(BEGUN, seed=seed)
    assert seed_of(interview, name) == seed_of(replace(interview, spent=9, role="kernel"), name)
    assert 0 <= seed_of(interview, name) < 2**31
    assert seed_of(interview, name) != seed_of(answered(replace(OPEN, seed=seed), "", (), 1, 0), name)


def test_every_move_has_words() -> None:
    assert set(MOVES) == set(get_args(Move))
