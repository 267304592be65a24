"""What a reader is asked: the answers against counting by hand, the sums behind them, and where they are read."""

from __future__ import annotations

import re

import pytest

from walkthroughs.lab.phases import Outcome, Phase, Sample, phases
from walkthroughs.lab.questions import Question, questions
from walkthroughs.lab.scenarios import Ask

BY_ID = {phase.id: phase for phase in phases()}
SEVERAL = Phase(
    "s", "", (Ask("b", (3,) * 40, 30), Ask("c", (4,) * 10, 60)), moments=("most", ("c", 55), ("c", 1), ("c", 60))
)


def one(phase: Phase, number: int) -> Question:
    return questions(phase)[number]


def tokens_by_hand(prompt: int, generated: int) -> int:
    """Blocks by putting token after token into blocks of 32; the newest token is not written."""
    blocks, room = 0, 0
    for _ in range(prompt + generated - 1):
        if not room:
            blocks, room = blocks + 1, 32
        room -= 1
    return blocks


@pytest.mark.parametrize("phase", phases(), ids=lambda phase: phase.id)
def test_each_answer_counted_by_hand(phase: Phase) -> None:
    asks = {ask.name: ask for ask in phase.asks}
    for moment, question in zip(phase.moments, questions(phase), strict=True):
        if isinstance(moment, tuple):
            ask, count = asks[moment[0]], moment[1]
            done = count == ask.generate
            assert question.answer == (0 if done else tokens_by_hand(len(ask.prompt), count))
            assert ("the last token" if done else str(count)) in question.text
        elif moment == "most":
            assert question.answer == sum(tokens_by_hand(len(a.prompt), a.generate - 1) for a in phase.asks)


def test_an_edge_is_asked_about_from_both_sides() -> None:
    assert [question.answer for question in questions(BY_ID["single"])] == [1, 2, 0]
    assert [question.answer for question in questions(BY_ID["again"])] == [96, 4, 5]
    assert "30 + 3 - 1 = 32 tokens are written; 32 / 32" in one(BY_ID["single"], 0).why


def test_the_sum_says_where_a_prefix_is_from() -> None:
    assert one(BY_ID["again"], 0).why == "100 tokens as in e, which fill 3 whole blocks of 32"
    assert one(BY_ID["first"], 0).why == "nobody sent this prefix before"


def test_words_follow_the_number() -> None:
    texts = [question.text for question in questions(SEVERAL)]
    assert texts == [
        "Blocks in use together: no more than?",
        "Blocks in use after 55 tokens of c, with b done?",
        "Blocks in use after 1 token of c, with b done?",
        "Blocks in use after the last token of c, with b done?",
    ]
    assert ", with b and c done?" in one(BY_ID["several"], 1).text


def test_the_nearest_reading_where_nothing_else_can_be() -> None:
    rows = ((20, 2, 2, 2), (78, 2, 2, 3), (80, 2, 2, 2), (82, 7, 2, 2), (90, 0, 0, 0))
    outcome = Outcome(SEVERAL, [Sample(0.1, *row) for row in rows], 0, 0)
    question = one(SEVERAL, 1)
    assert question.answer == 2
    assert question.read(outcome) == "read 7 at 82 tokens in all"  # 30 of b and 55 of c; what was read, not what fits
    far = Outcome(SEVERAL, [Sample(0.1, 20, 2, 2, 2)], 0, 0)
    assert question.read(far) == "no reading fell there"
    assert one(SEVERAL, 0).read(outcome) == "read 7 at most"
    assert one(SEVERAL, 3).read(Outcome(SEVERAL, [], 0, 4)) == "read 4 after the end"


def test_hits_are_read_from_the_servers_own_count() -> None:
    assert one(BY_ID["again"], 0).read(Outcome(BY_ID["again"], [], 64, 0)) == "the server counted 64"


def test_questions_of_a_phase_differ() -> None:
    for phase in phases():
        texts = [question.text for question in questions(phase)]
        assert len(set(texts)) == len(texts)
        assert all(re.fullmatch(r"[A-Z].{,53}\?", text) for text in texts)  # a narrow terminal has 60 columns
