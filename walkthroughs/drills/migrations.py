"""The shape of the file that keeps the answers, version by version.

A version that was out is never edited; a change is one more entry. SQLite's `user_version` says which a file has.
"""

from __future__ import annotations

import sqlite3

from walkthroughs.drills.errors import StoreError

# Each brings a file from the version before; the first makes it.
MIGRATIONS: tuple[tuple[str, ...], ...] = (
    (
        """CREATE TABLE log (
            id TEXT NOT NULL PRIMARY KEY, what TEXT NOT NULL, item TEXT NOT NULL, "when" INTEGER NOT NULL,
            rating INTEGER, form TEXT NOT NULL DEFAULT '', seed INTEGER, took INTEGER, until INTEGER,
            undoes TEXT NOT NULL DEFAULT '')""",
        """CREATE INDEX log_item ON log (item, "when")""",
        """CREATE TABLE cards (
            item TEXT NOT NULL PRIMARY KEY, state TEXT NOT NULL, step INTEGER, stability REAL, difficulty REAL,
            due INTEGER, last INTEGER, reviews INTEGER NOT NULL, lapses INTEGER NOT NULL,
            suspended INTEGER NOT NULL, buried INTEGER NOT NULL) WITHOUT ROWID""",
    ),
    (
        "CREATE TABLE session (id INTEGER PRIMARY KEY CHECK (id = 1), data TEXT NOT NULL)",
        "CREATE INDEX cards_due ON cards (due)",
        """CREATE INDEX log_when ON log ("when")""",
        # The log is append-only: whoever tries otherwise is stopped by the file itself.
        "CREATE TRIGGER log_stays BEFORE UPDATE ON log BEGIN SELECT RAISE(ABORT, 'the log is append-only'); END",
        "CREATE TRIGGER log_is_kept BEFORE DELETE ON log BEGIN SELECT RAISE(ABORT, 'the log is append-only'); END",
    ),
    (
        "CREATE TABLE interview (id INTEGER PRIMARY KEY CHECK (id = 1), data TEXT NOT NULL)",
        # By which rules the cards were made of the log; a file from before says none.
        "CREATE TABLE rules (id INTEGER PRIMARY KEY CHECK (id = 1), name TEXT NOT NULL)",
    ),
)
VERSION = len(MIGRATIONS)


def version(connection: sqlite3.Connection) -> int:
    """The version of a file; 0 is an empty one."""
    found: int = connection.execute("PRAGMA user_version").fetchone()[0]
    return found


def migrate(connection: sqlite3.Connection) -> None:
    """Bring a file to this version, all in one transaction. Raises StoreError for a file of a newer Pagewalk."""
    if version(connection) == VERSION:
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        found = version(connection)  # again, now that no one else can write: another process may have been first
        if found > VERSION:
            raise StoreError(f"it has version {found}, this Pagewalk knows {VERSION}: it was written by a newer one")
        for statements in MIGRATIONS[found:]:
            for statement in statements:
                connection.execute(statement)
        connection.execute(f"PRAGMA user_version = {VERSION}")
        connection.execute("COMMIT")
    except BaseException:
        connection.execute("ROLLBACK")
        raise
