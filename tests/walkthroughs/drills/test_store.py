"""The store against a plain model, and what a kill, a second writer, an old file or a damaged one does to it."""

from __future__ import annotations

import importlib.metadata
import itertools
import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from walkthroughs.digest import ROOT
from walkthroughs.drills import migrations
from walkthroughs.drills.errors import StoreError
from walkthroughs.drills.log import NOTHING, Entry, Event, to_json
from walkthroughs.drills.schedule import RULES, from_ms, review, to_ms
from walkthroughs.drills.store import Store, store_file

NOW = datetime(2026, 3, 1, tzinfo=UTC)
ITEMS = st.sampled_from(["recall/a", "recall/b", "compute/c"])


class AgainstAModel(RuleBasedStateMachine):
    """Every operation, beside a list of snapshots: undoing goes back to how the item stood before."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.path = Path(self.folder.name, "deep", "drills.db")
        self.store = Store(self.path)
        self.now = NOW
        self.done: list[tuple[str, str, Any]] = []  # item, what, rating or until or time
        self.times: list[datetime] = []
        self.session: dict[str, Any] | None = None

    def teardown(self) -> None:
        self.store.close()
        self.folder.cleanup()

    def entry(self, item: str) -> Entry:
        """Play what stands, as a reader would say it."""
        found = NOTHING
        for (name, what, value), when in zip(self.done, self.times, strict=True):
            if name != item:
                continue
            if what == "review":
                lapse = found.card.state == "review" and value == 1
                card = review(found.card, value, when)
                found = replace(found, card=card, reviews=found.reviews + 1, lapses=found.lapses + lapse)
            elif what == "bury":
                found = replace(found, buried=value)
            elif what == "reset":
                found = NOTHING
            else:
                found = replace(found, suspended=what == "suspend")
        return found

    def did(self, item: str, what: str, value: Any = None) -> None:
        self.done.append((item, what, value))
        self.times.append(self.now)

    @rule(seconds=st.integers(1, 40 * 86_400))
    def time_passes(self, seconds: int) -> None:
        self.now += timedelta(seconds=seconds)

    @rule(item=ITEMS, rating=st.integers(1, 4))
    def answers(self, item: str, rating: int) -> None:
        self.now += timedelta(milliseconds=1)
        event = self.store.review(item, rating, self.now, form="number", seed=5, took=900)
        assert (event.when, event.rating, event.seed, event.took) == (to_ms(self.now), rating, 5, 900)
        self.did(item, "review", rating)

    @rule(item=ITEMS, what=st.sampled_from(["suspend", "unsuspend", "reset"]))
    def puts_aside(self, item: str, what: str) -> None:
        self.now += timedelta(milliseconds=1)
        getattr(self.store, what)(item, self.now)
        self.did(item, what)

    @rule(item=ITEMS, hours=st.integers(0, 48))
    def buries(self, item: str, hours: int) -> None:
        self.now += timedelta(milliseconds=1)
        until = self.now + timedelta(hours=hours)
        self.store.bury(item, self.now, until)
        self.did(item, "bury", to_ms(until))

    @rule()
    def undoes(self) -> None:
        self.now += timedelta(milliseconds=1)
        event = self.store.undo(self.now)
        if not self.done:
            assert event is None
            return
        assert event is not None
        item, what, _ = self.done.pop()
        assert (event.item, event.what, from_ms(event.when)) == (item, what, self.times.pop())

    @rule()
    def undoes_nothing_of_before(self) -> None:
        assert self.store.undo(self.now, since=self.now + timedelta(milliseconds=1)) is None

    @rule(session=st.none() | st.dictionaries(st.text(max_size=3), st.integers(), max_size=2))
    def keeps_a_session(self, session: dict[str, Any] | None) -> None:
        self.store.keep(session)
        self.session = session

    @rule()
    def opens_it_again(self) -> None:
        self.store.close()
        self.store = Store(self.path)

    @rule()
    def makes_all_anew(self) -> None:
        before = self.store.entries()
        self.store.recompute()
        assert self.store.entries() == before

    @rule()
    def sends_it_to_another_machine(self) -> None:
        with Store(Path(self.folder.name, "other.db")) as other:
            other.merge(self.store.events())
            assert other.entries() == self.store.entries()
            assert other.events() == self.store.events()
            other.close()
        for file in Path(self.folder.name).glob("other.db*"):
            file.unlink()

    @invariant()
    def it_stands_as_the_model(self) -> None:
        names = ["recall/a", "recall/b", "compute/c"]
        expected = {name: self.entry(name) for name in names}
        assert {name: self.store.entry(name) for name in names} == expected
        due = [n for n in names if expected[n].due(self.now)]
        assert self.store.due(self.now) == sorted(due, key=lambda n: (expected[n].card.due, n))
        assert self.store.session() == self.session
        found = self.store.entries()
        assert {name: found.get(name, NOTHING) for name in names} == expected
        assert self.store.empty() == (not self.store.events())


AgainstAModel.TestCase.settings = settings(max_examples=25, stateful_step_count=25)
TestAgainstAModel = AgainstAModel.TestCase


def test_where_it_is_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PAGEWALK_STATE", str(tmp_path))
    assert store_file() == tmp_path / "drills.db"
    monkeypatch.delenv("PAGEWALK_STATE")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    assert store_file().name == "drills.db"
    assert "pagewalk" in store_file().parts


def test_at_one_time_the_order_is_kept(tmp_path: Path) -> None:
    ids = itertools.count(100, -1)
    with Store(tmp_path / "drills.db", new_id=lambda: f"{next(ids):03}") as store:
        store.review("a/x", 3, NOW)
        store.reset("a/x", NOW)
        assert store.entry("a/x") == NOTHING
        store.suspend("b/y", NOW)
        store.review("a/x", 4, NOW)
        assert store.entry("a/x").card == review(NOTHING.card, 4, NOW + timedelta(milliseconds=3))
        last = store.undo(NOW)
        assert last is not None
        assert last.rating == 4


@pytest.mark.parametrize("rating", [0, 5, None])
def test_no_other_rating(store: Store, rating: Any) -> None:
    with pytest.raises(ValueError, match="1 Again"):
        store.review("a/x", rating, NOW)
    assert store.empty()


def test_a_transaction_is_kept_whole_or_not_at_all(store: Store) -> None:

    def killed_by_an_error() -> None:
        with store.transaction():
            store.review("a/x", 3, NOW)
            store.keep({"asked": 1})
            raise RuntimeError

    with pytest.raises(RuntimeError):
        killed_by_an_error()
    assert store.empty()
    assert store.session() is None
    assert store.entries() == {}
    with store.transaction():
        store.review("a/x", 3, NOW)
        with store.transaction():
            store.keep({"asked": 1})
    assert store.session() == {"asked": 1}


def test_the_log_is_append_only(store: Store) -> None:
    store.review("a/x", 3, NOW)
    with sqlite3.connect(store.path) as db:
        for statement in ("UPDATE log SET rating = 4", "DELETE FROM log"):
            with pytest.raises(sqlite3.IntegrityError, match="append-only"):
                db.execute(statement)
    db.close()
    assert [event.rating for event in store.events()] == [3]


def test_a_session_that_cannot_be_read_is_none(store: Store) -> None:
    with sqlite3.connect(store.path) as db:
        db.execute("INSERT INTO session VALUES (1, '{')")
    db.close()
    assert store.session() is None
    store.keep({"asked": 2})
    assert store.session() == {"asked": 2}


# Files of other times


def file_of_version_1(path: Path, events: list[Event]) -> None:
    """As the first version made it; its statements stand here, so that nobody edits them there unseen."""
    db = sqlite3.connect(path)
    db.executescript(
        "CREATE TABLE log (id TEXT NOT NULL PRIMARY KEY, what TEXT NOT NULL, item TEXT NOT NULL,"
        " \"when\" INTEGER NOT NULL, rating INTEGER, form TEXT NOT NULL DEFAULT '', seed INTEGER, took INTEGER,"
        " until INTEGER, undoes TEXT NOT NULL DEFAULT '');"
        'CREATE INDEX log_item ON log (item, "when");'
        "CREATE TABLE cards (item TEXT NOT NULL PRIMARY KEY, state TEXT NOT NULL, step INTEGER, stability REAL,"
        " difficulty REAL, due INTEGER, last INTEGER, reviews INTEGER NOT NULL, lapses INTEGER NOT NULL,"
        " suspended INTEGER NOT NULL, buried INTEGER NOT NULL) WITHOUT ROWID; PRAGMA user_version = 1;"
    )
    for event in events:
        db.execute(f"INSERT INTO log VALUES ({', '.join('?' * 10)})", tuple(vars(event).values()))
    db.execute("INSERT INTO cards VALUES ('a/x', 'learning', 1, 2.5, 3.5, ?, ?, 1, 0, 0, 0)", (to_ms(NOW), to_ms(NOW)))
    db.commit()
    db.close()


def test_a_file_of_version_1_is_brought_here(tmp_path: Path) -> None:
    path = tmp_path / "drills.db"
    event = Event("1", "review", "a/x", to_ms(NOW), 3, "number", 7, 1000)
    file_of_version_1(path, [event])
    with Store(path) as store:
        assert store.events() == [event]
        assert store.entry("a/x").card == review(NOTHING.card, 3, NOW)  # made anew: nobody says by which rules it was
        assert store.due(NOW + timedelta(days=1)) == ["a/x"]
        assert store.session() is None
        assert store.interview() is None
        store.keep({"asked": 1})
    db = sqlite3.connect(path)
    assert migrations.version(db) == migrations.VERSION == 3
    assert db.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    migrated = set(db.execute("SELECT type, name FROM sqlite_schema"))
    db.close()
    with Store(tmp_path / "fresh.db"):
        db = sqlite3.connect(tmp_path / "fresh.db")
        assert set(db.execute("SELECT type, name FROM sqlite_schema")) == migrated
        db.close()


def test_cards_made_by_other_rules_are_made_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "drills.db"

    def changed() -> tuple[float | None, str]:
        """Falsify the card behind the store's back, open it, and say what stands there, and by which rules."""
        db = sqlite3.connect(path)
        db.execute("UPDATE cards SET stability = 9.5")
        db.commit()
        with Store(path) as store:
            found = store.entry("a/x").card.stability
        (name,) = db.execute("SELECT name FROM rules").fetchone()
        db.close()
        return found, name

    with Store(path) as store:
        store.review("a/x", 3, NOW)
        right = store.entry("a/x").card.stability
    assert changed() == (9.5, RULES)  # the same rules: what is there is taken as it is
    monkeypatch.setattr("walkthroughs.drills.store.RULES", "fsrs-7")
    assert changed() == (right, "fsrs-7")
    assert changed() == (9.5, "fsrs-7")


def test_the_rules_have_the_name_of_the_library() -> None:
    assert f"fsrs-{importlib.metadata.version('fsrs')}" == RULES


def test_an_interview_is_kept_beside_the_session(store: Store) -> None:
    store.keep({"asked": 1})
    store.keep_interview({"turns": []})
    assert (store.session(), store.interview()) == ({"asked": 1}, {"turns": []})
    store.keep_interview({"turns": [1]})
    store.keep(None)
    assert (store.session(), store.interview()) == (None, {"turns": [1]})
    assert store.interview_text() == '{"turns": [1]}'
    store.keep_interview(None)
    assert store.interview() is None
    assert store.interview_text() == ""


def test_a_migration_that_fails_leaves_the_file_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "drills.db"
    file_of_version_1(path, [])
    broken = (*migrations.MIGRATIONS, ("CREATE TABLE extra (x)", "NONSENSE"))
    monkeypatch.setattr(migrations, "MIGRATIONS", broken)
    monkeypatch.setattr(migrations, "VERSION", 4)
    with pytest.raises(StoreError, match="NONSENSE"):
        Store(path)
    db = sqlite3.connect(path)
    assert migrations.version(db) == 1
    assert {name for (name,) in db.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")} == {"log", "cards"}
    db.close()


def test_a_file_of_a_newer_pagewalk_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "drills.db"
    Store(path).close()
    db = sqlite3.connect(path)
    db.execute("PRAGMA user_version = 9")
    db.close()
    with pytest.raises(StoreError, match=r"drills\.db: it has version 9, this Pagewalk knows 3"):
        Store(path)


def test_a_file_that_is_something_else(tmp_path: Path) -> None:
    path = tmp_path / "drills.db"
    path.write_bytes(b"this is no database, but long enough to look at" * 30)
    with pytest.raises(StoreError, match=r"drills\.db: file is not a database"):
        Store(path)
    (tmp_path / "file").write_text("x")
    with pytest.raises(StoreError, match="PAGEWALK_STATE"):
        Store(tmp_path / "file" / "deeper" / "drills.db")


# Other processes

WRITER = """
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from walkthroughs.drills.store import Store

name, count = sys.argv[2], int(sys.argv[3])
start = datetime(2026, 3, 1, tzinfo=UTC)
with Store(Path(sys.argv[1])) as store:
    for number in range(count):
        with store.transaction():
            done = (store.session() or {}).get(name, 0)
            store.review(f"recall/{number % 5}", 1 + number % 4, start + timedelta(minutes=number), form=name)
            store.keep({**(store.session() or {}), name: done + 1})
        print(number, flush=True)
"""


def writer(path: Path, name: str, count: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", WRITER, str(path), name, str(count)]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_two_writers_at_once_lose_nothing(tmp_path: Path) -> None:
    path = tmp_path / "new" / "drills.db"  # not there yet: both make it
    both = [writer(path, name, 60) for name in ("one", "two")]
    for process in both:
        _, said = process.communicate(timeout=120)
        assert process.returncode == 0, said
    with Store(path) as store:
        events = store.events()
        assert sorted(event.form for event in events) == ["one"] * 60 + ["two"] * 60
        assert len({event.id for event in events}) == len({event.when for event in events}) == 120
        assert store.session() == {"one": 60, "two": 60}
        kept = store.entries()
        store.recompute()
        assert store.entries() == kept
    db = sqlite3.connect(path)
    assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    db.close()


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="there is no kill -9 here")
def test_kill_9_anywhere_loses_at_most_what_was_being_written(tmp_path: Path) -> None:
    chance = random.Random(5)
    for turn in range(8):
        path = tmp_path / f"{turn}.db"
        process = writer(path, "one", 100_000)
        assert process.stdout is not None
        assert process.stderr is not None
        said = [process.stdout.readline() for _ in range(chance.randrange(1, 25))]
        time.sleep(chance.random() * 0.01)
        process.send_signal(signal.SIGKILL)
        process.wait(timeout=60)
        said += process.stdout.readlines()
        process.stdout.close()
        process.stderr.close()
        whole = sum(line.endswith("\n") for line in said)
        with Store(path) as store:
            events = store.events()
            assert whole <= len(events) <= whole + 1
            assert store.session() == {"one": len(events)}  # one transaction: the answer and the place in the session
            kept = store.entries()
            store.recompute()
            assert store.entries() == kept
            db = sqlite3.connect(path)
            assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
            db.close()


def test_a_lock_that_is_never_let_go_is_said(
    store: Store, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("walkthroughs.drills.store.PATIENCE", 0.01)
    with Store(store.path) as other, store.transaction():
        with pytest.raises(StoreError, match=r"locked.*Nothing of this step was kept"):
            other.review("a/x", 3, NOW)
        store.review("a/x", 2, NOW)
    assert [event.rating for event in store.events()] == [2]
    assert capfd.readouterr() == ("", "")


def test_the_export_is_what_is_kept(store: Store, tmp_path: Path) -> None:
    store.review("a/x", 3, NOW, form="number", seed=7, took=10)
    store.bury("a/x", NOW, NOW + timedelta(days=1))
    data = json.loads(json.dumps(to_json(store.events())))
    assert [row["what"] for row in data["log"]] == ["review", "bury"]
    assert data["log"][0] == {
        "id": store.events()[0].id, "what": "review", "item": "a/x", "when": to_ms(NOW),
        "rating": 3, "form": "number", "seed": 7, "took": 10,
    }  # fmt: skip
    assert os.listdir(tmp_path)  # noqa: PTH208
