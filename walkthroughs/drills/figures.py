"""How things stand, kind by kind: counts and how the last 30 days went. Days in a row only where asked for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from itertools import groupby
from typing import Any

from walkthroughs.drills.item import Item
from walkthroughs.drills.log import NOTHING, Entry, Event, standing
from walkthroughs.drills.schedule import AGAIN, from_ms, to_ms, tomorrow

WINDOW = timedelta(days=30)


@dataclass(frozen=True)
class Figures:
    """The figures of a kind, or of all. `recent`, `right`: reviews of the last 30 days, and those not rated Again."""

    kind: str
    items: int
    new: int
    learning: int
    learnt: int
    due: int
    asleep: int
    reviews: int
    recent: int
    right: int

    def as_json(self) -> dict[str, Any]:
        """Without the kind, which is the row's id."""
        return {name: value for name, value in asdict(self).items() if name != "kind"}

    def cells(self) -> tuple[str, ...]:
        """As a row of a table."""
        share = f"{100 * self.right / self.recent:.0f} % of {self.recent}" if self.recent else "none yet"
        counts = (self.items, self.new, self.learning, self.learnt, self.due, self.asleep, self.reviews)
        return (self.kind, *map(str, counts), share)


def figures(
    items: Mapping[str, Item], entries: Mapping[str, Entry], events: Iterable[Event], now: datetime
) -> list[Figures]:
    """One row a kind of the bank, then one of all; what was undone or reset does not count."""
    reviews = counted(events)
    kinds = list(dict.fromkeys(item.kind for item in items.values()))
    rows = []
    for kind in [*kinds, "all"]:
        names = [item.id for item in items.values() if kind in ("all", item.kind)]
        of_kind = [entries.get(name, NOTHING) for name in names]
        state = [entry.card.state for entry in of_kind]
        done = [event for name in names for event in reviews.get(name, ())]
        recent = [event for event in done if event.when > to_ms(now - WINDOW)]
        rows.append(
            Figures(
                kind=kind,
                items=len(names),
                new=state.count("new"),
                learning=state.count("learning") + state.count("relearning"),
                learnt=state.count("review"),
                due=sum(entry.due(now) for entry in of_kind),
                asleep=sum(entry.asleep(now) for entry in of_kind),
                reviews=len(done),
                recent=len(recent),
                right=sum(event.rating != AGAIN for event in recent),
            )
        )
    return rows


def counted(events: Iterable[Event]) -> dict[str, list[Event]]:
    """The reviews that count, by item: those that stand, after the last reset."""
    found: dict[str, list[Event]] = {}
    for item, own in groupby(sorted(events, key=lambda event: event.item), key=lambda event: event.item):
        for event in standing(own):
            if event.what == "reset":
                found[item] = []
            elif event.what == "review":
                found.setdefault(item, []).append(event)
    return found


def days_in_a_row(events: Iterable[Event], now: datetime) -> int:
    """Days with a review up to today, or up to yesterday where today has none yet; days begin as `tomorrow` says."""
    days = {
        tomorrow(from_ms(event.when).astimezone(now.tzinfo)).date()
        for own in counted(events).values()
        for event in own
    }  # fmt: skip
    day = tomorrow(now).date()
    if day not in days:
        day -= timedelta(days=1)
    found = 0
    while day in days:
        day -= timedelta(days=1)
        found += 1
    return found
