"""The log: what an item's standing is made of, and JSON that is read with suspicion."""

from __future__ import annotations

import copy
import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from walkthroughs.drills.errors import StoreError
from walkthroughs.drills.log import NOTHING, Entry, Event, derive, from_json, in_order, standing, to_json
from walkthroughs.drills.schedule import from_ms, review, to_ms

NOW = datetime(2026, 3, 1, tzinfo=UTC)
WHATS = st.sampled_from(["review", "review", "review", "suspend", "unsuspend", "bury", "reset", "undo"])


@st.composite
def histories(draw: st.DrawFn, items: tuple[str, ...] = ("a/x", "b/y")) -> list[Event]:
    """Histories with undone events, ties in time, and undoings of things that are not there."""
    found: list[Event] = []
    for number in range(draw(st.integers(0, 12))):
        what, item = draw(WHATS), draw(st.sampled_from(items))
        extra: dict[str, Any] = {}
        if what == "review":
            extra = {"rating": draw(st.integers(1, 4)), "form": draw(st.sampled_from(["", "number"]))}
            extra |= {"seed": draw(st.none() | st.integers(0, 9)), "took": draw(st.none() | st.integers(0, 9))}
        elif what == "bury":
            extra = {"until": draw(st.integers(0, 10**13))}
        elif what == "undo":
            extra = {"undoes": draw(st.sampled_from([*(e.id for e in found if e.item == item), "nobody"]))}
        when = draw(st.integers(0, 3)) * 86_400_000 + to_ms(NOW)
        found.append(Event(f"{draw(st.integers(0, 2**16)):05x}{number:03x}", what, item, when, **extra))
    return found


def one_by_one(events: list[Event]) -> Entry:
    """The same in the plainest way: throw out what is undone, then play the rest in a loop."""
    events = sorted(events, key=lambda e: (e.when, e.id))
    undone = [e.undoes for e in events if e.what == "undo"]
    card, reviews, lapses, suspended, buried = NOTHING.card, 0, 0, False, 0
    for event in events:
        if event.what == "undo" or event.id in undone:
            continue
        if event.what == "reset":
            card, reviews, lapses, suspended, buried = NOTHING.card, 0, 0, False, 0
        elif event.what == "review":
            assert event.rating is not None
            lapses += card.state == "review" and event.rating == 1
            card, reviews = review(card, event.rating, from_ms(event.when)), reviews + 1
        elif event.what == "bury":
            assert event.until is not None
            buried = event.until
        else:
            suspended = event.what == "suspend"
    return Entry(card, reviews, lapses, suspended, buried)


@given(histories(("a/x",)), st.randoms(use_true_random=False))
def test_standing_does_not_depend_on_the_order_of_arrival(events: list[Event], chance: Any) -> None:
    shuffled = copy.copy(events)
    chance.shuffle(shuffled)
    assert derive(shuffled) == derive(events) == one_by_one(events)
    assert in_order(shuffled) == in_order(events)
    assert {e.id for e in standing(events)} <= {e.id for e in events if e.what != "undo"}


@given(histories())
def test_json_there_and_back(events: list[Event]) -> None:
    text = json.dumps(to_json(events))
    assert from_json(json.loads(text)) == in_order(events)
    assert "null" not in text


def test_asleep_and_due() -> None:
    card = review(NOTHING.card, 1, NOW)
    soon = NOW + timedelta(minutes=1)
    assert not Entry(card).due(NOW)
    assert Entry(card).due(soon)
    assert not Entry(card, suspended=True).due(soon)
    assert not Entry(card, buried=to_ms(soon) + 1).due(soon)
    assert Entry(card, buried=to_ms(soon)).due(soon)
    assert not NOTHING.due(soon)


GOOD = {"id": "1", "what": "review", "item": "a/x", "when": 5, "rating": 3}


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (None, "no export of drills"),
        ([], "no export of drills"),
        ({"schema": 1, "log": []}, "no export of drills"),
        ({"schema": 1, "kind": "pagewalk-drills", "log": {}}, "no export of drills"),
        ({"schema": 2, "kind": "pagewalk-drills", "log": []}, "schema 2"),
    ],
)
def test_what_is_no_export(data: Any, said: str) -> None:
    with pytest.raises(StoreError, match=said):
        from_json(data)


@pytest.mark.parametrize(
    "change",
    [
        {"id": ""}, {"id": 7}, {"id": "\ud800"}, {"what": "dance"}, {"what": ["review"]}, {"item": None}, {"when": -1},
        {"when": 10**15}, {"when": 1.5}, {"when": True}, {"rating": 0}, {"rating": 5}, {"rating": True},
        {"rating": [3]}, {"rating": None}, {"form": 3}, {"form": "\x00"}, {"seed": -1}, {"seed": 2**53},
        {"took": "long"}, {"until": 5}, {"undoes": "1"}, {"colour": "red"}, {"what": "bury"}, {"what": "undo"},
        {"what": "bury", "rating": None}, {"what": "undo", "rating": None},
    ],
)  # fmt: skip
def test_one_wrong_event_refuses_all(change: dict[str, Any]) -> None:
    rows = [GOOD, GOOD | {"id": "2"} | change]
    with pytest.raises(StoreError, match=r"log\[1\]"):
        from_json({"schema": 1, "kind": "pagewalk-drills", "log": rows})
    assert len(from_json({"schema": 1, "kind": "pagewalk-drills", "log": rows[:1]})) == 1


@pytest.mark.parametrize("row", [None, 3, "review", [], {}, {"id": "1"}])
def test_what_is_no_event(row: Any) -> None:
    with pytest.raises(StoreError, match=r"log\[0\] is no event"):
        from_json({"schema": 1, "kind": "pagewalk-drills", "log": [row]})
