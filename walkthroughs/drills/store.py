"""Where answers are kept: one SQLite file in the user's data folder, with an append-only log and the cards made of it.

Each answer is one transaction: a killed process loses at most the answer being typed. Several processes may write at
once; they wait for each other.
"""

from __future__ import annotations

import json
import os
import sqlite3
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, Self

from walkthroughs.drills.errors import StoreError
from walkthroughs.drills.log import NOTHING, Entry, Event, derive, in_order
from walkthroughs.drills.migrations import migrate
from walkthroughs.drills.schedule import RATINGS, RULES, Card, from_ms, to_ms

NAME = "drills.db"
PATIENCE = 20.0
"""How many seconds a process waits for another one's transaction."""
FIELDS = tuple(Event.__dataclass_fields__)
_COLUMNS = ", ".join(f'"{name}"' for name in FIELDS)
_MARKS = ", ".join("?" for _ in FIELDS)
_CARD = "item, state, step, stability, difficulty, due, last, reviews, lapses, suspended, buried"
_STANDING = (
    "what != 'undo' AND NOT EXISTS (SELECT 1 FROM log AS undo"
    " WHERE undo.item = log.item AND undo.what = 'undo' AND undo.undoes = log.id)"
)


def store_file() -> Path:
    """Where answers are kept: in the folder that PAGEWALK_STATE names, else in the user's data folder."""
    from platformdirs import user_data_path

    folder = os.environ.get("PAGEWALK_STATE")
    return (Path(folder) if folder else user_data_path("pagewalk", appauthor=False)) / NAME


class Store:
    """The open file. Raises StoreError where it cannot be opened, read or written; `with` closes it."""

    def __init__(self, path: Path, *, new_id: Callable[[], str] = lambda: uuid.uuid4().hex) -> None:
        self.path = path
        self._new_id = new_id
        self._inside = False
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StoreError(f"{path}: {error.strerror}. PAGEWALK_STATE can name another folder") from error
        with self._words():
            self._db = sqlite3.connect(path, timeout=PATIENCE, isolation_level=None)
        try:
            with self._words():
                _to_wal(self._db)
                self._db.execute("PRAGMA synchronous = FULL")
                migrate(self._db)
            if self._rules() != RULES:
                self.recompute()
        except BaseException as error:
            self._db.close()
            if isinstance(error, StoreError) and str(path) not in str(error):
                raise StoreError(f"{path}: {error}") from error
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *args: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    # What is done to an item: an event, and the item's card made anew.

    def review(
        self, item: str, rating: int, now: datetime, *, form: str = "", seed: int | None = None, took: int | None = None
    ) -> Event:
        """Keep an answer: rating 1 to 4, the form of the question, its seed, how long it took (milliseconds)."""
        if rating not in RATINGS:
            raise ValueError(f"rating {rating!r}: 1 Again, 2 Hard, 3 Good or 4 Easy")
        event = Event("", "review", item, to_ms(now), rating=rating, form=form, seed=seed, took=took)
        return self._append(event)

    def suspend(self, item: str, now: datetime) -> Event:
        """Ask it no more, until `unsuspend`."""
        return self._append(Event("", "suspend", item, to_ms(now)))

    def unsuspend(self, item: str, now: datetime) -> Event:
        """Ask it again."""
        return self._append(Event("", "unsuspend", item, to_ms(now)))

    def bury(self, item: str, now: datetime, until: datetime) -> Event:
        """Leave it alone until a moment, such as `schedule.tomorrow(now)`."""
        return self._append(Event("", "bury", item, to_ms(now), until=to_ms(until)))

    def reset(self, item: str, now: datetime) -> Event:
        """Make it new; its reviews stay in the log and no longer count."""
        return self._append(Event("", "reset", item, to_ms(now)))

    def undo(self, now: datetime, since: datetime | None = None) -> Event | None:
        """Undo the last thing done (since a moment), a review or any other; answers what it was, or None."""
        with self.transaction():
            after = to_ms(since) if since else 0
            query = f'SELECT {_COLUMNS} FROM log WHERE "when" >= ? AND {_STANDING} ORDER BY "when" DESC, rowid DESC'
            row = self._db.execute(f"{query} LIMIT 1", (after,)).fetchone()
            if row is None:
                return None
            last = Event(*row)
            self._append(Event("", "undo", last.item, to_ms(now), undoes=last.id))
            return last

    # How things stand.

    def entry(self, item: str) -> Entry:
        """How one item stands; that of an unknown one is the standing of a new one."""
        with self._words():
            row = self._db.execute(f"SELECT {_CARD} FROM cards WHERE item = ?", (item,)).fetchone()
        return _entry(row) if row else NOTHING

    def entries(self) -> dict[str, Entry]:
        """Every item that anything was done to, and how it stands."""
        with self._words():
            return {row[0]: _entry(row) for row in self._db.execute(f"SELECT {_CARD} FROM cards ORDER BY item")}

    def due(self, now: datetime) -> list[str]:
        """The items to be asked now, the longest overdue first; new ones are not among them."""
        ms = to_ms(now)
        query = "SELECT item FROM cards WHERE due <= ? AND NOT suspended AND buried <= ? ORDER BY due, item"
        with self._words():
            return [item for (item,) in self._db.execute(query, (ms, ms))]

    def events(self, item: str | None = None) -> list[Event]:
        """The log, of all or of one item, in order."""
        where, values = ("WHERE item = ?", (item,)) if item is not None else ("", ())
        with self._words():
            return in_order(Event(*row) for row in self._db.execute(f"SELECT {_COLUMNS} FROM log {where}", values))

    def empty(self) -> bool:
        """Whether nothing was ever done."""
        with self._words():
            return self._db.execute("SELECT 1 FROM log LIMIT 1").fetchone() is None

    # Two machines.

    def merge(self, events: Iterable[Event]) -> int:
        """Add another history to this one; answers how many events were new.

        In any order and any number of times the outcome is the same. Raises StoreError, and changes nothing, where an
        event is known with other content.
        """
        touched = set()
        added = 0
        with self.transaction():
            for event in events:
                row = self._db.execute(f"SELECT {_COLUMNS} FROM log WHERE id = ?", (event.id,)).fetchone()
                if row is None:
                    self._insert(event)
                    touched.add(event.item)
                    added += 1
                elif Event(*row) != event:
                    raise StoreError(f"event {event.id} is known with other content: {Event(*row)} is not {event}")
            for item in sorted(touched):
                self._derive(item)
        return added

    def recompute(self) -> int:
        """Make every card anew from the log; answers how many items there are.

        Done when a file is opened whose cards were made by other rules than this Pagewalk's.
        """
        with self.transaction():
            self._db.execute("DELETE FROM cards")
            items = [item for (item,) in self._db.execute("SELECT DISTINCT item FROM log ORDER BY item")]
            for item in items:
                self._derive(item)
            self._db.execute("INSERT OR REPLACE INTO rules VALUES (1, ?)", (RULES,))
        return len(items)

    def _rules(self) -> str:
        with self._words():
            row = self._db.execute("SELECT name FROM rules").fetchone()
        return row[0] if row else ""

    # What is open, so that an interrupted session or interview goes on.

    def session(self) -> dict[str, Any] | None:
        """What was kept of an open session, or None; one that cannot be read is none."""
        return self._open("session")

    def keep(self, session: dict[str, Any] | None) -> None:
        """Keep the open session, or drop it."""
        self._keep("session", session)

    def interview(self) -> dict[str, Any] | None:
        """What was kept of an open interview, or None; one that cannot be read is none."""
        return self._open("interview")

    def interview_text(self) -> str:
        """What was kept of an open interview as it stands in the file, read or not; "" for none."""
        return self._text("interview")

    def keep_interview(self, interview: dict[str, Any] | None) -> None:
        """Keep the open interview, or drop it."""
        self._keep("interview", interview)

    def _open(self, table: str) -> dict[str, Any] | None:
        try:
            data = json.loads(self._text(table))
        except ValueError:
            return None
        return data if isinstance(data, dict) else None

    def _text(self, table: str) -> str:
        with self._words():
            row = self._db.execute(f"SELECT data FROM {table}").fetchone()
        return str(row[0]) if row else ""

    def _keep(self, table: str, data: dict[str, Any] | None) -> None:
        with self.transaction():
            if data is None:
                self._db.execute(f"DELETE FROM {table}")
            else:
                self._db.execute(f"INSERT OR REPLACE INTO {table} VALUES (1, ?)", (json.dumps(data),))

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All that is done inside is kept, or nothing of it. One inside another belongs to the outer one."""
        if self._inside:
            yield
            return
        with self._words():
            self._db.execute("BEGIN IMMEDIATE")
            self._inside = True
            try:
                yield
                self._db.execute("COMMIT")
            except BaseException:
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
                raise
            finally:
                self._inside = False

    def _append(self, event: Event) -> Event:
        with self.transaction():
            when = event.when
            # Two events at one time would be replayed in the order of their ids.
            while self._db.execute('SELECT 1 FROM log WHERE "when" = ?', (when,)).fetchone():
                when += 1
            made = Event(**{**vars(event), "id": self._new_id(), "when": when})
            self._insert(made)
            self._derive(event.item)
        return made

    def _insert(self, event: Event) -> None:
        values = [getattr(event, name) for name in FIELDS]
        self._db.execute(f"INSERT INTO log ({_COLUMNS}) VALUES ({_MARKS})", values)

    def _derive(self, item: str) -> None:
        rows = self._db.execute(f"SELECT {_COLUMNS} FROM log WHERE item = ?", (item,))
        values = _row(item, derive(Event(*row) for row in rows))
        self._db.execute(f"INSERT OR REPLACE INTO cards ({_CARD}) VALUES ({', '.join('?' * len(values))})", values)

    @contextmanager
    def _words(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.OperationalError as error:
            raise StoreError(f"{self.path}: {error}. Nothing of this step was kept") from error
        except sqlite3.DatabaseError as error:
            raise StoreError(f"{self.path}: {error}. Move the file away to start anew, or import an export") from error


def _to_wal(connection: sqlite3.Connection) -> None:
    """Turn on the write-ahead log. Only here SQLite does not wait by itself for another process that does the same."""
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > deadline:
                raise
            time.sleep(0.01)


def _row(item: str, entry: Entry) -> tuple[object, ...]:
    card = entry.card
    due, last = (to_ms(moment) if moment else None for moment in (card.due, card.last))
    memory = (card.state, card.step, card.stability, card.difficulty, due, last)
    return (item, *memory, entry.reviews, entry.lapses, int(entry.suspended), entry.buried)


def _entry(row: Any) -> Entry:
    _, state, step, stability, difficulty, due, last, reviews, lapses, suspended, buried = row
    moments = (from_ms(ms) if ms is not None else None for ms in (due, last))
    return Entry(Card(state, step, stability, difficulty, *moments), reviews, lapses, bool(suspended), buried)
