"""When an item comes back: FSRS, by py-fsrs, over drills of every kind.

Pure: the clock is a parameter, nothing is random, and the same reviews give the same card on every machine.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta
from functools import cache
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from fsrs import Scheduler

State = Literal["new", "learning", "review", "relearning"]
AGAIN, HARD, GOOD, EASY = 1, 2, 3, 4
RATINGS: Mapping[int, str] = {AGAIN: "Again", HARD: "Hard", GOOD: "Good", EASY: "Easy"}
RULES = "fsrs-6.3.2"
"""Names what makes a card of reviews. Where it changes, every card is made anew from the log."""
DAY_STARTS = time(4)
"""When tomorrow begins: who drills past midnight is still in today."""
_STATES: tuple[State, ...] = ("new", "learning", "review", "relearning")  # their places are py-fsrs's numbers


@dataclass(frozen=True)
class Card:
    """What FSRS remembers of an item. Times: UTC, whole milliseconds. Stability: days. Difficulty: 1 to 10."""

    state: State = "new"
    step: int | None = None
    stability: float | None = None
    difficulty: float | None = None
    due: datetime | None = None
    last: datetime | None = None


NEW = Card()


def review(card: Card, rating: int, now: datetime) -> Card:
    """The card after a review. Raises ValueError for a rating other than 1 to 4, or a clock without a time zone."""
    import fsrs

    if rating not in RATINGS:
        raise ValueError(f"rating {rating!r}: 1 Again, 2 Hard, 3 Good or 4 Easy")
    now = whole(now)
    before = fsrs.Card(
        card_id=0,
        state=fsrs.State(max(1, _STATES.index(card.state))),
        step=card.step,
        stability=card.stability,
        difficulty=card.difficulty,
        due=card.due or now,
        last_review=card.last,
    )
    after, _ = _scheduler().review_card(before, fsrs.Rating(rating), now)
    return Card(_STATES[after.state], after.step, after.stability, after.difficulty, whole(after.due), now)


def intervals(card: Card, now: datetime) -> dict[int, timedelta]:
    """How long until the item comes back, for each of the four ratings."""
    found = {rating: review(card, rating, now).due for rating in RATINGS}
    return {rating: due - whole(now) for rating, due in found.items() if due is not None}


def labels(card: Card, now: datetime) -> dict[int, str]:
    """The same in words, such as `10 min` or `8 d`."""
    return {rating: label(interval) for rating, interval in intervals(card, now).items()}


def label(interval: timedelta) -> str:
    """An interval in its largest fitting unit: min, h, d, mo or y; never less than a minute."""
    minutes = max(1, round(interval / timedelta(minutes=1)))
    if minutes < 60:
        return f"{minutes} min"
    if minutes < 24 * 60:
        return f"{round(minutes / 60)} h"
    days = round(interval / timedelta(days=1))
    if days < 31:
        return f"{days} d"
    return f"{days / 30.44:.1f} mo" if days < 365 else f"{days / 365.25:.1f} y"


def tomorrow(now: datetime) -> datetime:
    """When the reader's next day begins: four in the morning, in the time zone of `now`."""
    start = now.replace(hour=DAY_STARTS.hour, minute=0, second=0, microsecond=0)
    return start if now < start else start + timedelta(days=1)


def whole(now: datetime) -> datetime:
    """The moment in UTC, cut to whole milliseconds: what the log keeps. Raises ValueError without a time zone."""
    if now.tzinfo is None:
        raise ValueError(f"{now!r} has no time zone")
    utc = now.astimezone(UTC)
    return utc.replace(microsecond=utc.microsecond // 1000 * 1000)


def to_ms(moment: datetime) -> int:
    """Milliseconds since 1970, in UTC."""
    return (whole(moment) - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)


def from_ms(ms: int) -> datetime:
    """The moment of so many milliseconds since 1970."""
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=ms)


@cache
def _scheduler() -> Scheduler:
    import fsrs

    # Fuzzing would make two machines that replay the same log disagree.
    return fsrs.Scheduler(enable_fuzzing=False)
