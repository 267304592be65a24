"""Two machines' histories: put together in any order and any number of times, they are one."""

from __future__ import annotations

import importlib.util
import json
import tempfile
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from walkthroughs.drills.errors import StoreError
from walkthroughs.drills.log import Entry, Event, derive, from_json, in_order, to_json
from walkthroughs.drills.store import Store

# The histories of the log's own test.
_spec = importlib.util.spec_from_file_location("drills_test_log", Path(__file__).with_name("test_log.py"))
assert _spec is not None
assert _spec.loader is not None
_log = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_log)


@st.composite
def machines(draw: st.DrawFn) -> list[list[Event]]:
    """Three machines that share a part of one history, which each has in another order."""
    every = {event.id: event for event in draw(_log.histories())}
    return [
        draw(st.permutations([event for event in every.values() if draw(st.booleans())]))
        for _ in range(3)
    ]  # fmt: skip


def merged(*histories: Iterable[Event]) -> tuple[list[Event], dict[str, Entry]]:
    with tempfile.TemporaryDirectory() as folder, Store(Path(folder, "drills.db")) as store:
        for history in histories:
            store.merge(history)
        return store.events(), store.entries()


@given(machines())
@settings(max_examples=40)
def test_commutative_associative_idempotent(three: list[list[Event]]) -> None:
    a, b, c = three
    assert merged(a, b) == merged(b, a)
    both, _ = merged(a, b)
    others, _ = merged(b, c)
    assert merged(both, c) == merged(a, others) == merged(a, b, c)
    assert merged(a, a) == merged(a)
    assert merged(both, a) == merged(both)


@given(machines())
@settings(max_examples=30)
def test_it_is_the_union_replayed(three: list[list[Event]]) -> None:
    union = {event.id: event for history in three for event in history}
    events, entries = merged(*three)
    assert events == in_order(union.values())
    for item in {event.item for event in union.values()}:
        assert entries[item] == derive(event for event in union.values() if event.item == item)
    assert set(entries) == {event.item for event in union.values()}


@given(_log.histories())
@settings(max_examples=30)
def test_by_way_of_json_nothing_is_lost(events: list[Event]) -> None:
    unique = list({event.id: event for event in events}.values())
    text = json.dumps(to_json(unique))
    assert merged(from_json(json.loads(text))) == merged(unique)


def test_it_says_how_many_were_new(store: Store) -> None:
    events = [Event(str(n), "review", "a/x", n, 3) for n in range(4)]
    assert store.merge(events[:3]) == 3
    assert store.merge(events) == 1
    assert store.merge(events) == 0
    assert store.entry("a/x").reviews == 4


def test_an_event_with_other_content_changes_nothing(store: Store) -> None:
    first = Event("1", "review", "a/x", 5, 3)
    store.merge([first])
    before = store.entries()
    with pytest.raises(StoreError, match="other content"):
        store.merge([Event("2", "review", "b/y", 6, 3), replace(first, rating=1)])
    assert store.events() == [first]
    assert store.entries() == before


def test_undone_there_is_undone_here(store: Store) -> None:
    answer = Event("1", "review", "a/x", 5, 3)
    undo = Event("2", "undo", "a/x", 6, undoes="1")
    store.merge([undo])  # before what it undoes
    store.merge([answer])
    assert store.entry("a/x").reviews == 0
    assert store.due(_log.NOW) == []
    assert len(store.events()) == 2
