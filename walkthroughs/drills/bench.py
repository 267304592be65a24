"""Measures what a large history costs: `python -m walkthroughs.drills.bench`.

10,000 items: their reviews are to schedule in under a second, the list of what is due is to open in under 100 ms.
"""

from __future__ import annotations

import sys
import tempfile
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

from walkthroughs.drills.item import Item
from walkthroughs.drills.log import Event
from walkthroughs.drills.schedule import NEW, review, to_ms
from walkthroughs.drills.session import Session, queue
from walkthroughs.drills.store import Store

ITEMS = 10_000
START = datetime(2026, 1, 1, tzinfo=UTC)


def events(count: int, reviews: int = 2) -> list[Event]:
    """A history: each item reviewed so often, a day apart, in a fixed pattern."""
    found = []
    for number in range(count):
        for turn in range(reviews):
            when = START + timedelta(days=turn, milliseconds=number)
            name, rating = f"compute/item-{number}", 1 + (number + turn) % 4
            found.append(Event(f"{number:08x}{turn:08x}", "review", name, to_ms(when), rating, "number", 7, 1000))
    return found


def measure(count: int = ITEMS) -> dict[str, float]:
    """Seconds: to schedule a review of each item, to merge a history of two each, to open the file and list the due."""
    now = START + timedelta(days=40)
    review(NEW, 3, START)  # the library is loaded once
    found = {}
    begun = time.perf_counter()
    cards = [review(NEW, 1 + number % 4, START) for number in range(count)]
    found[f"first reviews of {count:,} items scheduled"] = time.perf_counter() - begun
    begun = time.perf_counter()
    for number, card in enumerate(cards):
        review(card, 1 + number % 4, now)
    found[f"second reviews of {count:,} items scheduled"] = time.perf_counter() - begun
    with tempfile.TemporaryDirectory(prefix="pagewalk-") as folder:
        path = Path(folder, "drills.db")
        history = events(count)
        begun = time.perf_counter()
        with Store(path) as store:
            store.merge(history)
        found[f"a history of {len(history):,} reviews merged"] = time.perf_counter() - begun
        begun = time.perf_counter()
        with Store(path) as store:
            due = store.due(now)
        found[f"file opened, {len(due):,} of {count:,} due listed"] = time.perf_counter() - begun
        items = {name: Item(name, name, 1) for name in (f"compute/item-{number}" for number in range(count))}
        begun = time.perf_counter()
        with Store(path) as store:
            queue(Session(1, to_ms(now)), items, store.entries(), now)
        found[f"file opened, the queue of a session over {count:,} items"] = time.perf_counter() - begun
        begun = time.perf_counter()
        with Store(path) as store:
            for number in range(100):
                store.review(f"compute/item-{number}", 3, now + timedelta(seconds=number))
        found["100 answers, each its own transaction"] = time.perf_counter() - begun
    return found


def main() -> int:
    """Print the measurements; 1 if one of the two bounds is broken."""
    found = measure()
    for what, seconds in found.items():
        print(f"{seconds * 1000:9.1f} ms  {what}")
    scheduled = max(seconds for what, seconds in found.items() if what.endswith("scheduled"))
    listed = next(seconds for what, seconds in found.items() if what.endswith("due listed"))
    kept = scheduled < 1 and listed < 0.1
    print("under a second and under 100 ms" if kept else "NOT under a second and under 100 ms")
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
