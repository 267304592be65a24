"""The figures of a small history that was counted by hand."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from types import ModuleType

from walkthroughs.drills.figures import Figures, counted, days_in_a_row, figures
from walkthroughs.drills.store import Store

NOW = datetime(2026, 3, 1, tzinfo=UTC)


def test_figures(store: Store, sample: ModuleType) -> None:
    items = sample.Sample().items()
    long_ago = NOW - timedelta(days=40)
    store.review("recall/table", 1, long_ago)
    store.review("recall/table", 4, long_ago + timedelta(minutes=1))
    store.review("recall/table", 1, NOW - timedelta(hours=1))
    store.review("recall/why-paged", 4, NOW - timedelta(hours=1))
    store.review("compute/slot", 3, NOW - timedelta(hours=1))
    store.reset("compute/slot", NOW - timedelta(minutes=50))
    store.review("compute/slot", 3, NOW - timedelta(minutes=5))
    store.suspend("find/walk", NOW)
    store.review("gone/item", 3, NOW)
    store.review("compute/sum", 3, NOW)
    store.undo(NOW)
    found = {row.kind: row for row in figures(items, store.entries(), store.events(), NOW)}
    assert list(found) == ["recall", "compute", "find", "all"]
    assert found["recall"] == Figures("recall", 4, 2, 1, 1, 1, 0, 4, 2, 1)
    assert found["compute"] == Figures("compute", 2, 1, 1, 0, 0, 0, 1, 1, 1)
    assert found["find"] == Figures("find", 2, 2, 0, 0, 0, 1, 0, 0, 0)
    assert found["all"] == Figures("all", 8, 5, 2, 1, 1, 1, 5, 3, 2)
    assert found["all"].cells()[-1] == "67 % of 3"
    assert found["find"].cells()[-1] == "none yet"
    assert "kind" not in found["all"].as_json()
    assert {item: len(events) for item, events in counted(store.events()).items()} == {
        "recall/table": 3, "recall/why-paged": 1, "compute/slot": 1, "gone/item": 1,
    }  # fmt: skip


def test_days_in_a_row(store: Store) -> None:
    assert days_in_a_row(store.events(), NOW) == 0
    # A day lasts until four in the morning: the first two are one day.
    for moment in (datetime(2026, 2, 26, 22, tzinfo=UTC), datetime(2026, 2, 27, 3, tzinfo=UTC)):
        store.review("recall/table", 3, moment)
    evening = datetime(2026, 2, 27, 20, tzinfo=UTC)
    assert days_in_a_row(store.events(), evening) == 1, "today may still come"
    store.review("recall/table", 1, evening)
    assert days_in_a_row(store.events(), evening) == 2
    assert days_in_a_row(store.events(), evening + timedelta(days=1)) == 2
    assert days_in_a_row(store.events(), evening + timedelta(days=2)) == 0, "a day was left out"
    store.review("recall/table", 3, evening + timedelta(days=1))
    store.undo(evening + timedelta(days=1, minutes=1))
    assert days_in_a_row(store.events(), evening + timedelta(days=1)) == 2, "what was undone is no review"
