"""What `lab serve` sends: sizes that fit, hits by the prompts alone, a line for one request, marks as they are seen."""

from __future__ import annotations

import math

import pytest

from walkthroughs.lab.phases import (
    BLOCK_SIZE,
    HITS,
    MAX_LEN,
    MOST,
    NOT_SENT,
    NUM_BLOCKS,
    Mark,
    Outcome,
    Phase,
    Sample,
    common_prefix,
    found_again,
    longest,
    marks,
    phases,
)
from walkthroughs.lab.scenarios import Ask

ONE = Phase("one", "", (Ask("a", tuple(range(3, 33)), 70),))
TWO = Phase("two", "", (Ask("b", (3, 4, 5), 6), Ask("c", tuple(range(100, 140)), 4)))


def held(prompt: int, generate: int, generated: int) -> int:
    return math.ceil((prompt + generated - 1) / BLOCK_SIZE) if 0 < generated < generate else 0


@pytest.mark.parametrize("phase", phases(), ids=lambda phase: phase.id)
def test_every_phase_fits_the_server_and_asks_something(phase: Phase) -> None:
    assert all(len(ask.prompt) + ask.generate <= MAX_LEN for ask in phase.asks)
    assert phase.most < NUM_BLOCKS - 1  # nobody waits for a block, or the bounds would not hold
    assert phase.moments
    names = {ask.name: ask.generate for ask in phase.asks}
    for moment in phase.moments:
        assert moment in (HITS, MOST) or 0 < moment[1] <= names[moment[0]]  # type: ignore[operator,index]


def test_one_request_has_a_line_and_several_have_none() -> None:
    assert ONE.line() == tuple(held(30, 70, n) for n in range(71))
    assert max(ONE.line() or ()) == ONE.most == longest(ONE.asks[0]) == 4
    assert TWO.line() is None
    assert TWO.most == 1 + 2


@pytest.mark.parametrize("generate", [33, 34, 35, 36, 64, 65, 66, 67])
def test_the_most_of_a_request_is_the_top_of_its_line(generate: int) -> None:
    phase = Phase("p", "", (Ask("a", tuple(range(3, 33)), generate),))
    assert phase.most == max(phase.line() or ()) == max(held(30, generate, n) for n in range(generate + 1))


def test_several_have_bounds_from_how_far_each_is() -> None:
    assert TWO.expected(0, (NOT_SENT, NOT_SENT)) == (0, 0)
    assert TWO.expected(0, (0, NOT_SENT)) == (0, 1)
    assert TWO.expected(3, (2, 1)) == (3, 3)
    assert TWO.expected(9, (6, 3)) == (2, 2)


def test_hits_are_whole_blocks_and_never_the_last_token() -> None:
    prompt = tuple(range(3, 103))
    one, other = Ask("e", (*prompt, 900), 2), Ask("f", (*prompt, 901), 2)
    assert common_prefix(one, other) == 100
    assert found_again(one, other) == 96
    assert found_again(one, Ask("f", prompt[:64], 2)) == 32
    assert found_again(one, Ask("f", prompt[:65], 2)) == 64
    assert found_again(one, Ask("f", (900, *prompt), 2)) == 0


def test_no_prompt_is_found_again_but_where_it_says_so() -> None:
    known: list[Ask] = []
    for phase in phases():
        hits = sum(max((found_again(other, ask) for other in known), default=0) for ask in phase.asks)
        assert hits == phase.hits, phase.id
        known += phase.asks
    assert phases()[-1].hits > 0


def test_marks_of_one_request_come_as_predicted_and_with_the_readings() -> None:
    seen = [Sample(0.1, 0, 0, 0, 0, (0,)), Sample(0.2, 5, 2, 2, 2, (4,))]
    assert marks(ONE, seen[:1], over=False) == ()
    assert marks(ONE, seen, over=False) == (Mark(1, "admitted", "a"), Mark(4, "edge", "a"))
    edges = [mark.generated for mark in marks(ONE, seen, over=True) if mark.kind == "edge"]
    assert edges == [n for n in range(2, 71) if held(30, 70, n) > held(30, 70, n - 1)] == [4, 36, 68]
    assert marks(ONE, seen, over=True)[-1] == Mark(70, "freed", "a")


def test_marks_of_several_stand_where_they_were_seen() -> None:
    rows = ((1, (0, NOT_SENT)), (3, (2, 1)), (9, (6, 3)))
    seen = [Sample(0.1, generated, 1, 0, 9, received) for generated, received in rows]
    first = (Mark(3, "admitted", "b"), Mark(3, "admitted", "c"), Mark(9, "freed", "b"))
    assert marks(TWO, seen, over=False) == first
    assert marks(TWO, seen, over=True) == (*first, Mark(10, "freed", "c"))


def test_a_found_prefix_is_marked() -> None:
    phase = Phase("again", "", ONE.asks, hits=32)
    assert Mark(1, "hit", "a") in marks(phase, [Sample(0.1, 2, 1, 1, 1, (1,))], over=False)


def test_problems_are_told_in_words() -> None:
    phase = Phase("p", "", ONE.asks, hits=96)
    outcome = Outcome(phase, [Sample(1.0, 5, 3, 2, 2), Sample(1.0, 5, 3, 1, 2), Sample(1.0, 5, 3, 3, 3)], 64, 1)
    assert outcome.problems == [
        "after 1.00 s and 5 tokens: 3 blocks, expected 2",
        "after 1.00 s and 5 tokens: 3 blocks, expected 1 to 2",
        "64 tokens found in the prefix cache, expected 96",
        "1 blocks in use after the end, expected 0",
    ]
    assert outcome.status == "failed"
    assert Outcome(phase, [Sample(1.0, 5, 3, 3, 3)], 128, 0).problems == [
        "128 tokens found in the prefix cache, expected 96"
    ]
    assert Outcome(phase, [Sample(1.0, 5, 3, 3, 3)], 96, 0).status == "passed"
    assert "not read while a request ran" in Outcome(phase, [], 96, 0).problems[0]
