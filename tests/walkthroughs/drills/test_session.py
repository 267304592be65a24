"""A sitting: what comes next, over made-up banks and standings, and how it is taken up again."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from walkthroughs.drills.item import Item
from walkthroughs.drills.log import NOTHING, Entry
from walkthroughs.drills.schedule import NEW, review, to_ms
from walkthroughs.drills.session import (
    AHEAD,
    APART,
    Session,
    advance,
    answered,
    fresh_ones,
    from_json,
    is_soon,
    queue,
    reopened,
    seed_of,
    skip,
    to_json,
)

NOW = datetime(2026, 3, 1, tzinfo=UTC)
FIRST = Session(seed=1, started=to_ms(NOW))
NAMES = [f"{kind}/{n}" for kind in ("recall", "compute", "find") for n in range(4)]
ENTRIES = st.builds(
    lambda rating, late, suspended, buried: Entry(
        review(NEW, rating, NOW - timedelta(minutes=late)) if rating else NEW,
        suspended=suspended,
        buried=to_ms(NOW) + buried,
    ),
    st.sampled_from([0, 1, 2, 3, 4]),
    st.integers(0, 12) | st.integers(0, 40 * 1440),
    st.sampled_from([False, False, False, True]),
    st.sampled_from([-1, 0, 0, 0, 1]),
)


@st.composite
def banks(draw: st.DrawFn) -> dict[str, Item]:
    """Items in any order, some following up one that comes earlier in the list."""
    names = draw(st.permutations(NAMES))[: draw(st.integers(0, len(NAMES)))]
    found: dict[str, Item] = {}
    for name in names:
        after = draw(st.sampled_from(["", "", *found])) if found else ""
        found[name] = Item(name, name, draw(st.integers(1, 3)), concepts=("x",), after=after)
    return found


STANDINGS = st.dictionaries(st.sampled_from([*NAMES, "gone/item"]), ENTRIES)
SESSIONS = st.builds(
    Session,
    seed=st.integers(0, 2**31),
    started=st.just(to_ms(NOW)),
    limit=st.integers(0, 5),
    kinds=st.sampled_from([(), ("recall",), ("compute", "find")]),
    item=st.sampled_from(["", *NAMES]),
    question=st.integers(0, 2**31),
    asked=st.integers(0, 9),
    fresh=st.integers(0, 5),
    follows=st.lists(st.sampled_from(NAMES), unique=True, max_size=3).map(tuple),
    skipped=st.lists(st.sampled_from(NAMES), unique=True, max_size=2).map(tuple),
    ratings=st.tuples(*[st.integers(0, 9)] * 4),
)


def asked(session: Session, items: dict[str, Item], name: str) -> bool:
    """Whether a session may ask an item at all."""
    return name in items and name not in session.skipped and (not session.kinds or items[name].kind in session.kinds)


@given(SESSIONS, banks(), STANDINGS)
def test_the_queue(session: Session, items: dict[str, Item], entries: dict[str, Entry]) -> None:
    names = queue(session, items, entries, NOW)
    assert len(set(names)) == len(names)
    for name in names:
        assert name in items
        assert name not in session.skipped
        assert not session.kinds or items[name].kind in session.kinds
        assert not entries.get(name, NOTHING).asleep(NOW)
    due = {n for n in items if entries.get(n, NOTHING).due(NOW) and n not in session.skipped}
    due = {n for n in due if not session.kinds or items[n].kind in session.kinds}
    new = [n for n in names if entries.get(n, NOTHING).card.due is None]
    soon = [n for n in names if n not in due and n not in new]
    assert set(names) - set(new) - set(soon) == due  # all that is due, whatever the limit
    assert len(new) <= max(0, session.limit - session.fresh)
    assert all(is_soon(entries[n], NOW) for n in soon)
    assert {n for n in entries if is_soon(entries[n], NOW) and asked(session, items, n)} == set(soon)
    # Follow-ups, then what is due by its date, then what is new, then what is due soon.
    ranks = [3 if n in soon else 0 if n in session.follows else 1 if n in due else 2 for n in names]
    assert ranks == sorted(ranks)
    dates = [entries[n].card.due for n in names if n in due and n not in session.follows]
    assert all(a is not None and b is not None and a <= b for a, b in pairwise(dates))


@given(banks(), STANDINGS)
def test_new_ones_come_by_level_and_behind_their_parents(items: dict[str, Item], entries: dict[str, Entry]) -> None:
    names = fresh_ones(items, entries)
    assert [items[n].level for n in names] == sorted(items[n].level for n in names)
    for name, item in items.items():
        new = entries.get(name, NOTHING).card.due is None
        parent = entries.get(item.after, NOTHING).card.due is None
        assert (name in names) == (new and not (item.after and parent))


def test_the_kinds_take_turns() -> None:
    items = {
        name: Item(name, name, 1) for name in ("recall/a", "recall/b", "recall/c", "compute/a", "find/a", "find/b")
    }
    assert fresh_ones(items, {}) == ["recall/a", "compute/a", "find/a", "recall/b", "find/b", "recall/c"]
    met = Entry(review(NEW, 3, NOW))
    assert fresh_ones(items, {"recall/a": met}) == ["compute/a", "find/a", "recall/b", "find/b", "recall/c"]
    assert fresh_ones(items, {"recall/a": met, "compute/a": met})[0] == "find/a"


def test_the_turns_go_on_from_answer_to_answer() -> None:
    items = {f"{kind}/{n}": Item(f"{kind}/{n}", "", 1) for kind in ("recall", "compute", "find") for n in range(4)}
    assert [name.split("/")[0] for name in played(FIRST, items, {})] == ["recall", "compute", "find"] * 3 + ["recall"]


@given(SESSIONS, banks(), STANDINGS)
def test_the_open_question_stays_until_it_is_answered(
    session: Session, items: dict[str, Item], entries: dict[str, Entry]
) -> None:
    opened = advance(session, items, entries, NOW)
    assert advance(opened, items, entries, NOW) == opened
    if not opened.item:
        assert queue(session, items, entries, NOW) == []
        return
    entry = entries.get(opened.item, NOTHING)
    assert opened.item in items
    assert entry.due(NOW) or is_soon(entry, NOW) or (entry.card == NEW and not entry.asleep(NOW))
    if opened.item != session.item:
        assert opened.item == queue(session, items, entries, NOW)[0]
        assert opened.question == seed_of(session, opened.item)
    else:
        assert opened == session
        assert skip(opened).skipped[-1] == opened.item
        assert advance(skip(opened), items, entries, NOW).item != opened.item


@given(SESSIONS, banks(), STANDINGS, st.integers(1, 4))
def test_an_answer_and_its_undoing(
    session: Session, items: dict[str, Item], entries: dict[str, Entry], rating: int
) -> None:
    opened = advance(session, items, entries, NOW)
    if not opened.item:
        return
    entry = entries.get(opened.item, NOTHING)
    after = answered(opened, items, entry, rating)
    children = [name for name, item in items.items() if item.after == opened.item]
    assert after.asked == opened.asked + 1
    assert after.fresh == opened.fresh + (entry.card == NEW)
    assert sum(after.ratings) == sum(opened.ratings) + 1
    assert list(after.follows[: len(children)]) == children or rating < 3
    assert not after.item
    back = reopened(after, items, opened.item, opened.question, rating, entry)
    assert opened.item not in after.follows
    follows = tuple(n for n in opened.follows if n not in (*children, opened.item))
    assert back == replace(opened, follows=follows)


def played(session: Session, items: dict[str, Item], ratings: dict[str, int]) -> list[str]:
    """The order of a whole sitting in which each item gets its rating, all in one moment."""
    entries: dict[str, Entry] = {}
    order = []
    while (session := advance(session, items, entries, NOW)).item:
        order.append(session.item)
        entry = entries.get(session.item, NOTHING)
        rating = ratings.get(session.item, 3)
        entries[session.item] = replace(entry, card=review(entry.card, rating, NOW))
        session = answered(session, items, entry, rating)
    return order


CHAIN = {
    item.id: item
    for item in (
        Item("recall/a", "", 1), Item("recall/b", "", 1), Item("recall/a2", "", 2, after="recall/a"),
        Item("recall/a3", "", 3, after="recall/a2"),
    )
}  # fmt: skip


@pytest.mark.parametrize(
    ("limit", "ratings", "order"),
    [
        (10, {}, ["recall/a", "recall/a2", "recall/a3", "recall/b"]),
        (10, {"recall/a": 2}, ["recall/a", "recall/b", "recall/a2", "recall/a3"]),
        (10, {"recall/a2": 1}, ["recall/a", "recall/a2", "recall/b", "recall/a3"]),
        (2, {}, ["recall/a", "recall/a2"]),
        (0, {}, []),
    ],
)
def test_follow_ups_come_right_behind_a_good_answer(limit: int, ratings: dict[str, int], order: list[str]) -> None:
    assert played(replace(FIRST, limit=limit), CHAIN, ratings) == order


def learnt(rating: int, before: timedelta, again: int = 0) -> Entry:
    """An item's standing that long after its first answer (and another, a second before NOW)."""
    card = review(NEW, rating, NOW - before)
    return Entry(review(card, again, NOW - timedelta(seconds=1)) if again else card)


@pytest.mark.parametrize(
    ("entry", "soon"),
    [
        (learnt(3, timedelta(minutes=2)), True),  # Good: due in ten minutes
        (learnt(2, APART), True),
        (learnt(3, APART - timedelta(milliseconds=1)), False),  # answered just now
        (learnt(3, timedelta(minutes=2), again=1), False),
        (learnt(3, timedelta(minutes=10)), False),  # due, not soon
        (learnt(4, timedelta(minutes=2)), False),  # Easy: learnt, in eight days
        (replace(learnt(3, timedelta(minutes=2)), suspended=True), False),
        (replace(learnt(3, timedelta(minutes=2)), buried=to_ms(NOW) + 1), False),
        (NOTHING, False),
        (Entry(replace(NEW, state="relearning", due=NOW + AHEAD, last=NOW - APART)), True),
        (Entry(replace(NEW, state="relearning", due=NOW + AHEAD + timedelta(seconds=1), last=NOW - APART)), False),
        (Entry(replace(NEW, state="review", due=NOW + APART, last=NOW - APART)), False),
    ],
)
def test_what_is_soon(entry: Entry, soon: bool) -> None:
    assert is_soon(entry, NOW) is soon


def test_a_sitting_ends_with_what_is_half_learnt() -> None:
    """Two items, each answered Good after 40 seconds: each comes a second time, and then the sitting is over."""
    items = {name: Item(name, name, 1) for name in ("recall/a", "recall/b")}
    entries: dict[str, Entry] = {}
    session, now, order = FIRST, NOW, []
    while (session := advance(session, items, entries, now)).item:
        now += timedelta(seconds=40)
        order.append(session.item)
        entry = entries.get(session.item, NOTHING)
        entries[session.item] = replace(entry, card=review(entry.card, 3, now))
        session = answered(session, items, entry, 3)
        now += timedelta(seconds=30)
    assert order == ["recall/a", "recall/b", "recall/a", "recall/b"]
    assert {entry.card.state for entry in entries.values()} == {"review"}
    assert (session.asked, session.fresh) == (4, 2)


def test_undoing_a_suspension_asks_it_again() -> None:
    session = replace(FIRST, item="recall/b", question=4, asked=3, ratings=(1, 0, 2, 0))
    back = reopened(session, CHAIN, "recall/a", 9, None, NOTHING)
    assert (back.item, back.question, back.asked, back.ratings) == ("recall/a", 9, 3, (1, 0, 2, 0))
    assert back.follows == ("recall/b",)


@given(st.integers(0, 2**31 - 1), st.integers(0, 50), st.sampled_from(NAMES))
def test_seeds_are_fresh_and_the_same_everywhere(seed: int, asked: int, name: str) -> None:
    session = replace(FIRST, seed=seed, asked=asked)
    assert seed_of(session, name) == seed_of(replace(session, fresh=3, item="x"), name)
    assert 0 <= seed_of(session, name) < 2**31
    assert seed_of(session, name) != seed_of(replace(session, asked=asked + 1), name)


@given(SESSIONS)
def test_there_and_back(session: Session) -> None:
    assert from_json(json.loads(json.dumps(to_json(session)))) == session


@pytest.mark.parametrize(
    "change", [{"seed": "x"}, {"ratings": [1]}, {"ratings": 3}, {"follows": 3}, {"asked": None}, {"kinds": None}]
)
def test_what_is_no_session(change: dict[str, Any]) -> None:
    assert from_json(to_json(FIRST)) == FIRST
    assert from_json(to_json(FIRST) | change) is None
    for name in to_json(FIRST):
        assert from_json({key: value for key, value in to_json(FIRST).items() if key != name}) is None
    assert from_json(None) is None
