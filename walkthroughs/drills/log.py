"""The log of what a reader did, and the one function that makes an item's standing of it.

Everything is an event, undoing included, so that nothing is ever changed or removed: two machines' histories are merged
by putting their events together.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Literal, get_args

from walkthroughs.drills.errors import StoreError
from walkthroughs.drills.schedule import AGAIN, NEW, RATINGS, Card, from_ms, review, to_ms

What = Literal["review", "suspend", "unsuspend", "bury", "reset", "undo"]
SCHEMA = 1
KIND = "pagewalk-drills"
LATEST = 10**14
"""No event is later than this many milliseconds: in the year 5138 the arithmetic of dates still holds."""
LARGEST = 2**53 - 1
"""No seed is larger: this is what JavaScript keeps exactly."""


@dataclass(frozen=True)
class Event:
    """Something that was done to an item. `id`: a UUID in hex; `when`, `until`: milliseconds since 1970.

    A review has `rating`, `form` (how it was answered), `seed` (of its question) and `took` (milliseconds); burying has
    `until`; undoing has `undoes`, the id of an event of the same item.
    """

    id: str
    what: What
    item: str
    when: int
    rating: int | None = None
    form: str = ""
    seed: int | None = None
    took: int | None = None
    until: int | None = None
    undoes: str = ""


@dataclass(frozen=True)
class Entry:
    """How an item stands. `lapses`: how often it was forgotten after it had been learnt."""

    card: Card = NEW
    reviews: int = 0
    lapses: int = 0
    suspended: bool = False
    buried: int = 0

    def asleep(self, now: datetime) -> bool:
        """Whether it is suspended, or buried still."""
        return self.suspended or self.buried > to_ms(now)

    def due(self, now: datetime) -> bool:
        """Whether it was learnt once and is to be asked again."""
        return self.card.due is not None and self.card.due <= now and not self.asleep(now)


NOTHING = Entry()


def in_order(events: Iterable[Event]) -> list[Event]:
    """By time; at the same time by id, so that every machine agrees."""
    return sorted(events, key=lambda event: (event.when, event.id))


def standing(events: Iterable[Event]) -> list[Event]:
    """The events of one item that count, in order: neither undone nor undoing."""
    known = list(events)
    undone = {event.undoes for event in known if event.what == "undo"}
    return [event for event in in_order(known) if event.what != "undo" and event.id not in undone]


def derive(events: Iterable[Event]) -> Entry:
    """The standing of one item, by replaying its events."""
    entry = NOTHING
    for event in standing(events):
        entry = _after(entry, event)
    return entry


def _after(entry: Entry, event: Event) -> Entry:
    match event.what:
        case "review":
            rating = event.rating or AGAIN
            lapse = rating == AGAIN and entry.card.state == "review"
            card = review(entry.card, rating, from_ms(event.when))
            return replace(entry, card=card, reviews=entry.reviews + 1, lapses=entry.lapses + lapse)
        case "suspend":
            return replace(entry, suspended=True)
        case "unsuspend":
            return replace(entry, suspended=False)
        case "bury":
            return replace(entry, buried=event.until or 0)
        case _:
            return NOTHING


def to_json(events: Iterable[Event]) -> dict[str, Any]:
    """The log as JSON, in order; what an event does not have is left out."""
    return {"schema": SCHEMA, "kind": KIND, "log": [_row(event) for event in in_order(events)]}


def from_json(data: Any) -> list[Event]:
    """The events of such JSON. Raises StoreError with the first thing in it that is wrong."""
    if not isinstance(data, dict) or data.get("kind") != KIND or not isinstance(data.get("log"), list):
        raise StoreError(f'this is no export of drills: it should say "kind": "{KIND}" and hold a "log"')
    if data.get("schema") != SCHEMA:
        raise StoreError(f"it has schema {data.get('schema')!r}; this Pagewalk reads {SCHEMA}")
    return [_event(number, row) for number, row in enumerate(data["log"])]


def _row(event: Event) -> dict[str, Any]:
    return {name: value for name, value in vars(event).items() if value not in (None, "")}


def _event(number: int, row: Any) -> Event:
    if not isinstance(row, dict) or not {"id", "what", "item", "when"} <= set(row) <= set(Event.__dataclass_fields__):
        raise StoreError(f"log[{number}] is no event: {row!r}")
    event = Event(**row)
    for name, right in (
        ("id", _is_text(event.id)),
        ("what", event.what in get_args(What)),
        ("item", _is_text(event.item)),
        ("when", _is_number(event.when, LATEST)),
        ("rating", _is_rating(event.rating) if event.what == "review" else event.rating is None),
        ("form", event.form == "" or _is_text(event.form)),
        ("seed", event.seed is None or _is_number(event.seed, LARGEST)),
        ("took", event.took is None or _is_number(event.took, LATEST)),
        ("until", _is_number(event.until, LATEST) if event.what == "bury" else event.until is None),
        ("undoes", _is_text(event.undoes) if event.what == "undo" else event.undoes == ""),
    ):
        if not right:
            raise StoreError(f"log[{number}]: {name} {getattr(event, name)!r} does not fit an event {event.what!r}")
    return event


def _is_text(value: Any) -> bool:
    # A lone surrogate is a str that no file can hold.
    return isinstance(value, str) and 0 < len(value) <= 200 and value.isprintable()


def _is_number(value: Any, most: int) -> bool:
    return type(value) is int and 0 <= value <= most


def _is_rating(value: Any) -> bool:
    return type(value) is int and value in RATINGS
