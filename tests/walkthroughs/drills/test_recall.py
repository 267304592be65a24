"""The recall bank: every link leads somewhere, follow-ups lead deeper, and nothing of the lessons is left out."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from annotate.concepts import concepts
from walkthroughs import step
from walkthroughs.claims.ledger import claims
from walkthroughs.claims.model import Verdict
from walkthroughs.drills import find, predict, predict_bank, recall
from walkthroughs.drills.recall import LESSONS, BankError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from annotate.sources import SourceTree
    from walkthroughs.drills.item import Item

LONG = 30
IDS = re.compile(r"[a-z]+/[a-z0-9]+(-[a-z0-9]+)*")


def every_item() -> list[Item]:
    return [*recall.items(), *find.items(), *predict.items()]


def test_there_are_enough_questions() -> None:
    assert len(recall.items()) >= 80
    assert len(find.items()) >= 25
    assert len(predict.items()) >= 10


def test_ids_are_kind_and_name_and_no_id_is_used_twice() -> None:
    ids = [item.id for item in every_item()]
    assert [id for id in ids if not IDS.fullmatch(id)] == []
    assert len(ids) == len(set(ids))
    assert {item.kind for item in every_item()} == {"recall", "find", "predict"}


def test_every_link_leads_somewhere() -> None:
    known = {"steps": step.steps(), "concepts": concepts(), "claims": claims()}
    for item in every_item():
        for kind, there in known.items():
            assert set(getattr(item, kind)) <= there.keys(), item.id
        assert item.steps or item.concepts or item.claims, item.id


@pytest.mark.parametrize("entry", recall.entries().values(), ids=lambda entry: entry.item.id)
def test_an_entry_is_what_a_reader_needs(entry: recall.Entry) -> None:
    assert entry.item.level in (1, 2, 3)
    assert entry.question.rstrip().endswith(("?", ".")), "a question or a task"
    assert "?" in entry.question or entry.question.startswith(("Name", "Follow", "Describe"))
    assert 2 <= len(re.findall(r"[.?!](?:\s|$)", entry.answer)) <= 5, "two to five sentences"
    assert 2 <= len(entry.points) <= 5
    for point in entry.points:
        assert point.steps or point.concepts or point.claims, point.text
        assert point.text.endswith("."), point.text
    linked = [id for point in entry.points for id in (*point.steps, *point.concepts, *point.claims)]
    assert set(linked) == {*entry.item.steps, *entry.item.concepts, *entry.item.claims}


def test_follow_ups_follow_something_and_their_level_does_not_fall() -> None:
    bank = {item.id: item for item in recall.items()}
    for item in bank.values():
        seen = [item.id]
        here = item
        while here.after:
            assert here.after in bank, f"{here.id} follows nothing"
            assert here.after not in seen, f"{seen} is a circle"
            assert bank[here.after].level <= here.level, here.id
            here = bank[here.after]
            seen.append(here.id)


def test_a_follow_up_stands_behind_what_it_follows() -> None:
    order = [item.id for item in recall.items()]
    for item in recall.items():
        assert not item.after or order.index(item.after) < order.index(item.id)


def test_chains_are_many_and_deep() -> None:
    chains = recall.chains()
    assert len({chain[0].id for chain in chains if len(chain) >= 3}) >= 12
    # Nothing is lost on the way: each question is in a chain, and each chain is a way through `after`.
    assert {item.id for chain in chains for item in chain} == {item.id for item in recall.items()}
    for chain in chains:
        assert chain[0].after == ""
        assert [item.after for item in chain[1:]] == [item.id for item in chain[:-1]]
        assert recall.follow_ups(chain[-1].id) == ()


def test_every_doubtful_claim_has_a_question() -> None:
    asked = {id for item in recall.items() for id in item.claims}
    doubtful = {claim.id for claim in claims().values() if claim.expected in (Verdict.WRONG, Verdict.HOLDS_IF)}
    assert len(doubtful) > 50
    assert doubtful - asked == set()


def test_all_that_the_lessons_ask_and_warn_of_is_covered() -> None:
    covered = {name for entry in recall.entries().values() for name in entry.lessons}
    assert covered == LESSONS.keys()


def test_what_would_you_change_is_asked() -> None:
    texts = [entry.question.lower() for entry in recall.entries().values()]
    assert sum("what would you change" in text or "what would change" in text for text in texts) >= 4
    assert any("256" in text for text in texts)
    assert any("fp8" in text for text in texts)


def test_the_reader_is_the_judge() -> None:
    question = recall.ask(recall.items()[0], seed=1)
    entry = recall.entries()[question.item.id]
    assert (question.form, question.text) == ("self", entry.question)
    graded = recall.grade(question, "anything")
    assert graded.right is None
    assert f"{len(entry.points)} points" in graded.said
    solution = recall.solve(question)
    assert (solution.answer, solution.points) == (entry.answer, entry.points)


@given(st.integers())
def test_a_seed_changes_nothing(seed: int) -> None:
    item = recall.items()[seed % len(recall.items())]
    assert recall.ask(item, seed).text == recall.ask(item, 0).text


GOOD = '[a]\ntitle = "T"\nlevel = 1\nquestion = "Q?"\nanswer = "A."\npoints = [{ text = "P.", claims = ["L1-01"] }]\n'


def test_a_theme_is_read() -> None:
    (entry,) = recall.read_theme(GOOD + 'after = "b"\nlessons = ["open-index"]\n')
    assert (entry.item.id, entry.item.after, entry.item.claims) == ("recall/a", "recall/b", ("L1-01",))
    assert entry.lessons == ("open-index",)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[a]\ntitle = "T"\n', "are needed"),
        (GOOD + 'hint = "no"\n', "no such key as hint"),
        (GOOD + 'lessons = ["pitfall"]\n', "no lesson has pitfall"),
        (GOOD.replace(', claims = ["L1-01"]', ""), "leads nowhere"),
        (GOOD.replace("claims", "claim"), "a point is"),
    ],
)
def test_what_cannot_be_read_is_named(text: str, said: str) -> None:
    with pytest.raises(BankError, match=said) as caught:
        recall.read_theme(text)
    assert "'a'" in str(caught.value)


def texts() -> Iterator[str]:
    """All that the three banks say."""
    for entry in recall.entries().values():
        yield from (entry.item.title, entry.question, entry.answer, *(point.text for point in entry.points))
    for found in find.entries().values():
        yield from (found.item.title, found.question)
    for spec in predict_bank.SPECS:
        yield from (spec.title, spec.asks, spec.why, spec.begins)


def copied(upstream: str) -> list[str]:
    """Lines of 30 characters and more that stand in our texts too."""
    said = "\n".join(texts())
    begins = {said[at : at + LONG] for at in range(len(said))}
    lines = {" ".join(line.split()) for line in upstream.splitlines()}
    return sorted(line for line in lines if len(line) >= LONG and line[:LONG] in begins and line in said)


def test_a_copied_line_would_be_found() -> None:
    assert copied("  " + recall.items()[0].title + "\n    " + recall.entries()["recall/why-blocks"].answer) != []


@pytest.mark.source
def test_no_upstream_line_is_in_the_texts(vllm_024: SourceTree, vllm_026: SourceTree) -> None:
    for tree in (vllm_024, vllm_026):
        paths = list(tree.paths())
        assert len(paths) > 10
        for path in paths:
            assert copied(tree.read(path).decode("utf-8", "replace")) == [], path


@pytest.mark.source
def test_no_line_of_tiny_vllm_is_in_the_texts() -> None:
    from annotate.errors import SourceUnavailable
    from annotate.sources import open_tree

    try:
        tree = open_tree("tiny-vllm@e25bf19")
    except SourceUnavailable as error:
        pytest.skip(str(error))
    for path in tree.paths():
        assert copied(tree.read(path).decode("utf-8", "replace")) == [], path
