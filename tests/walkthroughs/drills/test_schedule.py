"""Scheduling against py-fsrs's own objects, and the words for intervals."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import fsrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from walkthroughs.drills.schedule import (
    NEW,
    RATINGS,
    Card,
    from_ms,
    intervals,
    label,
    labels,
    review,
    to_ms,
    tomorrow,
    whole,
)

NOW = datetime(2026, 3, 1, 12, 0, 0, 123000, tzinfo=UTC)
HISTORIES = st.lists(st.tuples(st.sampled_from([1, 2, 3, 4]), st.integers(0, 400 * 86_400_000)), max_size=12)
ZONES = st.integers(-12 * 60, 14 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes)))
MOMENTS = st.datetimes(datetime(2000, 1, 1), datetime(2100, 1, 1), timezones=ZONES)


def played(history: list[tuple[int, int]]) -> tuple[Card, datetime]:
    card, now = NEW, NOW
    for rating, wait in history:
        now += timedelta(milliseconds=wait)
        card = review(card, rating, now)
    return card, now


@given(HISTORIES)
def test_a_history_ends_as_in_py_fsrs(history: list[tuple[int, int]]) -> None:
    scheduler = fsrs.Scheduler(enable_fuzzing=False)
    theirs, now = fsrs.Card(card_id=1, due=NOW), NOW
    for rating, wait in history:
        now += timedelta(milliseconds=wait)
        theirs, _ = scheduler.review_card(theirs, fsrs.Rating(rating), now)
    ours, _ = played(history)
    if not history:
        assert ours == NEW
        return
    assert ours.state == theirs.state.name.lower()
    assert (ours.step, ours.stability, ours.difficulty) == (theirs.step, theirs.stability, theirs.difficulty)
    assert (ours.due, ours.last) == (theirs.due, now)


@given(HISTORIES)
def test_it_is_deterministic_and_a_better_rating_never_comes_back_sooner(history: list[tuple[int, int]]) -> None:
    card, now = played(history)
    assert (card, now) == played(history)
    found = intervals(card, now)
    assert list(found) == [1, 2, 3, 4]
    assert found[1] <= found[2] <= found[3] <= found[4]
    assert found[1] > timedelta(0)


@given(HISTORIES, st.integers(0, 10**9))
def test_labels_say_what_the_ratings_do(history: list[tuple[int, int]], wait: int) -> None:
    card, now = played(history)
    now += timedelta(milliseconds=wait)
    for rating, said in labels(card, now).items():
        due = review(card, rating, now).due
        assert due is not None
        assert said == label(due - now)


def test_a_new_item_in_words() -> None:
    assert labels(NEW, NOW) == {1: "1 min", 2: "6 min", 3: "10 min", 4: "8 d"}
    assert list(RATINGS.values()) == ["Again", "Hard", "Good", "Easy"]


@pytest.mark.parametrize(
    ("interval", "said"),
    [
        (timedelta(0), "1 min"), (timedelta(seconds=89), "1 min"), (timedelta(minutes=59), "59 min"),
        (timedelta(minutes=60), "1 h"), (timedelta(hours=23), "23 h"), (timedelta(days=1), "1 d"),
        (timedelta(days=30), "30 d"), (timedelta(days=61), "2.0 mo"), (timedelta(days=364), "12.0 mo"),
        (timedelta(days=365), "1.0 y"), (timedelta(days=3653), "10.0 y"),
    ],
)  # fmt: skip
def test_intervals_in_words(interval: timedelta, said: str) -> None:
    assert label(interval) == said


@pytest.mark.parametrize("rating", [0, 5, -1])
def test_no_other_rating(rating: int) -> None:
    with pytest.raises(ValueError, match="1 Again"):
        review(NEW, rating, NOW)


def test_a_clock_has_a_time_zone() -> None:
    with pytest.raises(ValueError, match="time zone"):
        review(NEW, 3, datetime(2026, 1, 1))


@given(MOMENTS)
def test_moments_to_milliseconds_and_back(moment: datetime) -> None:
    assert from_ms(to_ms(moment)) == whole(moment)
    assert timedelta(0) <= moment - whole(moment) < timedelta(milliseconds=1)
    assert whole(moment).tzinfo == UTC


@given(MOMENTS)
def test_the_clock_of_any_zone_is_the_same_clock(moment: datetime) -> None:
    assert review(NEW, 3, moment) == review(NEW, 3, moment.astimezone(UTC))


@given(MOMENTS)
def test_tomorrow_is_the_next_four_in_the_morning(moment: datetime) -> None:
    found = tomorrow(moment)
    assert (found.hour, found.minute, found.second, found.microsecond) == (4, 0, 0, 0)
    assert found.tzinfo == moment.tzinfo
    assert timedelta(0) < found - moment <= timedelta(days=1)


@given(st.lists(st.sampled_from([1, 2, 3, 4]), min_size=1, max_size=6), st.integers(1, 10**6))
def test_a_clock_that_was_set_back_does_no_harm(ratings: list[int], back: int) -> None:
    card, now = NEW, NOW
    for rating in ratings:
        card = review(card, rating, now)
        now -= timedelta(seconds=back)
        assert card.due is not None
        assert card.due > now
