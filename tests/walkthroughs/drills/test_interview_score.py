"""Scores against a plain count, where to read on, and the topics and roles of the real bank."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from fractions import Fraction
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from annotate.concepts import concepts
from annotate.errors import UnknownName
from walkthroughs import step
from walkthroughs.claims.ledger import claims
from walkthroughs.digest import ROOT
from walkthroughs.drills import bank, recall
from walkthroughs.drills.interview import Interview, Turn
from walkthroughs.drills.interview_plan import PACE
from walkthroughs.drills.interview_roles import OTHER, ROLES, role, topic_of, topics
from walkthroughs.drills.interview_score import (
    GRADED_POINT,
    Answered,
    Reading,
    points_of,
    readings,
    recalled,
    score,
)
from walkthroughs.drills.item import Item, Point, Question, Solution

PLACES = st.lists(st.sampled_from(["a/one", "a/two", "b/one"]), max_size=2, unique=True).map(tuple)


@st.composite
def answers(draw: st.DrawFn) -> list[Answered]:
    """Answered questions of several kinds, levels and topics."""
    found = []
    for number in range(1, draw(st.integers(0, 8)) + 1):
        kind = draw(st.sampled_from(["recall", "compute", "find"]))
        concept_id = draw(st.sampled_from(["block-table-walk", "online-softmax", "nobody-knows-it"]))
        item = Item(f"{kind}/{number}", "", draw(st.integers(1, 3)), concepts=(concept_id,))
        of = draw(st.integers(1, 4)) if kind == "recall" else 1
        points = tuple(
            Point(f"point {n}", steps=draw(PLACES), concepts=draw(PLACES), claims=draw(PLACES)) for n in range(of)
        )
        had = tuple(sorted(draw(st.sets(st.integers(1, of)))))
        turn = Turn(item.id, 1, "opens", "", "", had, of, 0)
        question = Question(item, 1, "", "self" if kind == "recall" else "number")
        found.append(Answered(number, turn, item, question, Solution("", points), points))
    return found


@given(answers())
def test_a_score(found: list[Answered]) -> None:
    result = score(found)
    parts = {
        "kinds": lambda one: one.item.kind,
        "topics": lambda one: topic_of(one.item),
        "levels": lambda one: str(one.item.level),
    }
    for name, key in parts.items():
        rows = getattr(result, name)
        assert Counter(key(one) for one in found) == {row.id: row.questions for row in rows}
        for row in rows:
            own = [one for one in found if key(one) == row.id]
            assert row.had == sum(len(one.turn.had) for one in own)
            assert row.of == sum(len(one.points) for one in own)
            share = sum(Fraction(len(one.turn.had), one.turn.of) for one in own) / len(own)
            assert row.share == pytest.approx(float(share))
            assert row.percent == f"{100 * row.share:.0f} %"
            assert row.as_json() | {"title": row.title} == vars(row)
    assert result.all.questions == len(found)
    assert result.all.had == sum(row.had for row in result.kinds) == sum(row.had for row in result.topics)
    assert 0 <= result.all.share <= 1


@given(answers(), st.integers(1, 9))
def test_where_to_read_on(found: list[Answered], most: int) -> None:
    wanted = readings(found, most)
    missed = [(one.number, point) for one in found for point in one.missed()]
    assert sum(len(one.missed()) for one in found) == sum(one.turn.of - len(one.turn.had) for one in found)
    leads: dict[tuple[str, str], set[int]] = {}
    for number, point in missed:
        for what, names in (("walk", point.steps), ("read", point.concepts), ("claims", point.claims)):
            for name in names:
                leads.setdefault((what, name), set()).add(number)
    assert len(wanted) == min(most, len(leads))
    for one in wanted:
        assert set(one.questions) == leads[one.what, one.name]
        assert list(one.questions) == sorted(one.questions)
    # The first place of a missed point comes before any that is only ever a second one.
    first = {
        next((what, name) for what, names in zip(("walk", "read", "claims"), lists, strict=True) for name in names)
        for lists in ((p.steps, p.concepts, p.claims) for _, p in missed)
        if any(lists)
    }
    ranks = [(one.what, one.name) not in first for one in wanted]
    assert ranks == sorted(ranks)


@pytest.mark.parametrize(
    ("reading", "command", "page"),
    [
        (Reading("walk", "a/b", (1,)), "pagewalk walk a/b", "walkthroughs/a/#step-b"),
        (Reading("read", "x-view", (1,)), "pagewalk read x-view", "concepts/x-view/"),
        (Reading("claims", "L1-05", (1,)), "pagewalk claims --id L1-05", "claims/#L1-05"),
    ],
)
def test_a_reading_in_words(reading: Reading, command: str, page: str) -> None:
    assert (reading.command, reading.page) == (command, page)


def test_turns_are_recalled_from_the_bank(sample: ModuleType) -> None:
    turns = (
        Turn("recall/table", 5, "opens", "", "It maps.", (2,), 2, 900),
        Turn("find/absent", 6, "source", "recall/table", "", (), 1, 100),
        Turn("gone/item", 7, "opens", "", "", (), 1, 100),
        Turn("compute/slot", 8, "opens", "", "12", (), 1, 100, "No."),
    )
    first, last = recalled(Interview(1, 0, turns=turns), sample.Sample())
    assert (first.number, last.number) == (1, 4)  # the numbers that the reader saw
    assert [point.text for point in first.missed()] == ["logical to physical"]
    assert last.question == sample.Sample().ask(last.item, 8)
    assert last.points == (Point(GRADED_POINT, concepts=("slot-formula",)),)
    assert last.missed() == list(last.points)


def test_the_rubric_of_the_real_bank() -> None:
    for item in bank.items().values():
        if item.kind == "recall":
            question = bank.ask(item, 1)
            assert points_of(question, bank.solve(question)) == recall.entries()[item.id].points
        elif item.kind in ("compute", "find"):
            question = bank.ask(item, 1)
            (point,) = points_of(question, bank.solve(question))
            assert (point.steps, point.concepts, point.claims) == (item.steps, item.concepts, item.claims)
            assert any((point.steps, point.concepts, point.claims))


# Topics and roles


def test_every_item_that_is_asked_has_a_topic() -> None:
    asked = [item for item in bank.items().values() if item.kind in PACE]
    assert [item.id for item in asked if topic_of(item) == OTHER] == []
    counts = Counter(topic_of(item) for item in asked)
    assert list(topics()) == [*dict.fromkeys(recall.themes().values()), OTHER]
    assert all(counts[name] >= 8 for name in topics() if name != OTHER), counts


def test_the_topics_name_what_exists() -> None:
    every = [name for topic in topics().values() for name in topic.concepts]
    assert len(set(every)) == len(every)
    assert set(every) <= set(concepts())
    alone = [name for topic in topics().values() for name in topic.items]
    assert len(set(alone)) == len(alone)
    assert set(alone) <= set(bank.items())
    for name in alone:  # one that its concept already puts there need not be named
        item = bank.items()[name]
        assert topic_of(item) != topic_of(replace(item, id="compute/another"))


def test_a_recall_questions_topic_is_its_theme() -> None:
    themes = recall.themes()
    assert set(themes) == {item.id for item in recall.items()}
    assert {name: topic_of(bank.items()[name]) for name in themes} == themes
    assert topic_of(Item("compute/new", "", 1, concepts=("nobody-knows-it", "tiny-pool"))) == "tiny-memory"
    assert topic_of(Item("compute/new", "", 1)) == OTHER


@pytest.mark.parametrize("name", ROLES)
def test_a_role_weights_what_exists(name: str) -> None:
    wanted = role(name)
    assert wanted.id == name
    assert set(wanted.kinds) == set(PACE)
    assert sum(wanted.kinds.values()) == pytest.approx(1)
    assert min(wanted.kinds.values()) >= 0.1
    assert set(wanted.topics) <= set(topics())
    assert all(weight > 0 for weight in (*wanted.topics.values(), *wanted.levels))


def test_an_unknown_role_answers_with_the_nearest() -> None:
    with pytest.raises(UnknownName, match="serving"):
        role("servin")
    with pytest.raises(UnknownName, match="general"):
        role("zzz")


def test_every_place_to_read_exists() -> None:
    """Whatever is missed in the real bank leads to a step, a concept or a claim that there is."""
    known = {"walk": step.steps(), "read": concepts(), "claims": claims()}
    found = []
    for number, item in enumerate(bank.items().values(), 1):
        if item.kind in ("recall", "compute", "find"):
            question = bank.ask(item, 1)
            points = points_of(question, bank.solve(question))
            turn = Turn(item.id, 1, "opens", "", "", (), len(points), 0)
            found.append(Answered(number, turn, item, question, bank.solve(question), points))
    every = readings(found, 10_000)
    assert len(every) > 200
    assert [one for one in every if one.name not in known[one.what]] == []
    pages = {one.page.partition("#")[0].rstrip("/") for one in every}
    assert [page for page in pages if not (ROOT / "docs" / f"{page}.md").is_file()] == []
