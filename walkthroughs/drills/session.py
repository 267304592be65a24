"""One sitting: which item is asked next, and with which seed.

Pure: what is due, then what is new up to a limit, and a follow-up right behind its parent where that was answered well.
At the end come those that are being learnt and are due soon: a sitting does not leave them half learnt.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta
from itertools import chain, zip_longest
from typing import Any

from walkthroughs.drills.item import Item
from walkthroughs.drills.log import NOTHING, Entry
from walkthroughs.drills.schedule import GOOD, to_ms

NEW_ITEMS = 10
"""New items in one sitting, where nothing else is asked for."""
AHEAD = timedelta(minutes=20)
"""What is being learnt and due within this time is asked when nothing else is left."""
APART = timedelta(minutes=1)
"""So long an item rests before it is asked ahead of its time."""


@dataclass(frozen=True)
class Session:
    """Where a sitting stands. `started`: milliseconds since 1970. `kinds`: only these, or () for all.

    `item` and `question`: what is being asked, and its seed. `follows`: follow-ups that wait. `skipped`: what cannot be
    asked on this machine. `ratings`: how many answers were Again, Hard, Good and Easy.
    """

    seed: int
    started: int
    limit: int = NEW_ITEMS
    kinds: tuple[str, ...] = ()
    item: str = ""
    question: int = 0
    asked: int = 0
    fresh: int = 0
    follows: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()
    ratings: tuple[int, ...] = (0, 0, 0, 0)


def queue(session: Session, items: Mapping[str, Item], entries: Mapping[str, Entry], now: datetime) -> list[str]:
    """The ids to be asked from now on, in order, were each answered once and none well enough for its follow-ups."""
    awake = {
        name: item
        for name, item in items.items()
        if name not in session.skipped
        and (not session.kinds or item.kind in session.kinds)
        and not entries.get(name, NOTHING).asleep(now)
    }
    due = {name for name in awake if entries.get(name, NOTHING).due(now)}
    room = session.limit - session.fresh
    first: list[str] = []
    for name in session.follows:
        new = name in awake and _is_new(name, entries)
        if name in due or (new and room > 0):
            first.append(name)
            room -= new
    later = sorted(due.difference(first), key=lambda name: (to_ms(entries[name].card.due or now), name))
    rest = [name for name in fresh_ones(awake, entries) if name not in first]
    soon = [name for name in awake if is_soon(entries.get(name, NOTHING), now) and name not in first]
    soon.sort(key=lambda name: (to_ms(entries[name].card.due or now), name))
    return [*first, *later, *rest[: max(0, room)], *soon]


def is_soon(entry: Entry, now: datetime) -> bool:
    """Whether an item may be asked ahead of its time: being learnt, due within `AHEAD`, not answered just now."""
    card = entry.card
    if card.due is None or card.last is None or card.state not in ("learning", "relearning"):
        return False
    return now < card.due <= now + AHEAD and now - card.last >= APART and not entry.asleep(now)


def fresh_ones(items: Mapping[str, Item], entries: Mapping[str, Entry]) -> list[str]:
    """The new items in the order in which they are met: by level, the kinds in turn; a follow-up after its parent.

    The kind of which fewest were met has the first turn.
    """
    met = Counter(item.kind for item in items.values() if not _is_new(item.id, entries))
    new = [item for item in items.values() if _is_new(item.id, entries)]
    new = [item for item in new if not item.after or not _is_new(item.after, entries) or item.after not in items]
    found: list[str] = []
    for level in sorted({item.level for item in new}):
        of_level = [item for item in new if item.level == level]
        kinds = sorted(dict.fromkeys(item.kind for item in of_level), key=lambda kind: met[kind])
        columns = [[item.id for item in of_level if item.kind == kind] for kind in kinds]
        found += [name for name in chain.from_iterable(zip_longest(*columns)) if name]
    return found


def advance(session: Session, items: Mapping[str, Item], entries: Mapping[str, Entry], now: datetime) -> Session:
    """The session with an open question: the one that is open if it still can be asked, else the next; or none."""
    if session.item in items and session.item not in session.skipped:
        entry = entries.get(session.item, NOTHING)
        if not entry.asleep(now) and (entry.due(now) or _is_new(session.item, entries) or is_soon(entry, now)):
            return session
    names = queue(session, items, entries, now)
    if not names:
        return replace(session, item="", question=0)
    follows = tuple(name for name in session.follows if name != names[0])
    return replace(session, item=names[0], question=seed_of(session, names[0]), follows=follows)


def answered(session: Session, items: Mapping[str, Item], entry: Entry, rating: int) -> Session:
    """The session after its open question was rated; `entry` is the item's standing before."""
    behind = [name for name, item in items.items() if item.after == session.item] if rating >= GOOD else []
    ratings = tuple(count + (number == rating) for number, count in enumerate(session.ratings, 1))
    return replace(
        session,
        item="",
        question=0,
        asked=session.asked + 1,
        fresh=session.fresh + (entry.card.due is None),
        follows=(*behind, *(name for name in session.follows if name not in (*behind, session.item))),
        ratings=ratings,
    )


def reopened(
    session: Session, items: Mapping[str, Item], item: str, question: int, rating: int | None, entry: Entry
) -> Session:
    """The session after something was undone: that item is asked again, with the same seed.

    `rating`: that of the review undone, or None where it was none; `entry`: the item's standing after the undoing.
    """
    children = {name for name, child in items.items() if child.after == item}
    waiting = (session.item, *session.follows) if session.item else session.follows
    waiting = tuple(name for name in dict.fromkeys(waiting) if name != item and name not in children)
    session = replace(session, item=item, question=question, follows=waiting)
    if rating is None:
        return session
    ratings = tuple(max(0, count - (number == rating)) for number, count in enumerate(session.ratings, 1))
    fresh = max(0, session.fresh - (entry.card.due is None))
    return replace(session, ratings=ratings, fresh=fresh, asked=max(0, session.asked - 1))


def skip(session: Session) -> Session:
    """The session without its open question, which cannot be asked here."""
    return replace(session, item="", question=0, skipped=(*session.skipped, session.item))


def seed_of(session: Session, item: str) -> int:
    """The seed of the question that is asked next: fresh at each review, the same on every machine."""
    digest = hashlib.sha256(f"{session.seed}/{session.asked}/{item}".encode()).digest()
    return int.from_bytes(digest[:4], "big") >> 1


def to_json(session: Session) -> dict[str, Any]:
    """The session as JSON."""
    return asdict(session)


def from_json(data: Any) -> Session | None:
    """A session that was kept, or None for what is none."""
    try:
        ratings = tuple(int(count) for count in data["ratings"])
        if len(ratings) != 4:
            return None
        seed, started, limit, question, asked, fresh = (
            int(data[name]) for name in ("seed", "started", "limit", "question", "asked", "fresh")
        )
        kinds, follows, skipped = (tuple(map(str, data[name])) for name in ("kinds", "follows", "skipped"))
        item = str(data["item"])
        return Session(seed, started, limit, kinds, item, question, asked, fresh, follows, skipped, ratings)
    except (KeyError, TypeError, ValueError):
        return None


def _is_new(name: str, entries: Mapping[str, Entry]) -> bool:
    return entries.get(name, NOTHING).card.due is None
