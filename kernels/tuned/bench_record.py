"""What a benchmark leaves behind: sets of cells, each with a row for every rung and every peer, and its JSON.

A row that could not be measured is a row with its reason, never a missing one. Nothing here needs a GPU or torch.
"""

from __future__ import annotations

import json
import math
import os
import re
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

SCHEMA = 1
MEASURED, REFUSED, FAILED, WRONG, LEFT = "measured", "refused", "failed", "wrong", "not measured"
STATES = (MEASURED, REFUSED, FAILED, WRONG, LEFT)
"""Of a row: refused, by a kernel that does not take the case; failed, with an error; wrong, past its error's bound;
not measured, since the time was up."""
RUNG, PEER, LIMIT = "rung", "peer", "limit"


class RecordError(ValueError):
    """A file that is no benchmark record; says why."""


@dataclass(frozen=True)
class Row:
    """One kernel on one cell. Times in microseconds a call; `error`: relative, against float64; None: not known.

    `tbs`: bytes of the cell over the median, TB/s; `share`: of the cell's limit. `how`: graph, events, host or sim.
    `plan`: splits, warps and depth where they were chosen; `tries`: all plans that were timed, this row's among them.
    `sets`: of inputs, where they were fewer than the cell's.
    """

    who: str
    title: str
    kind: str
    state: str = MEASURED
    reason: str = ""
    us: float | None = None
    least: float | None = None
    most: float | None = None
    how: str = ""
    tbs: float | None = None
    share: float | None = None
    error: float | None = None
    registers: int | None = None
    local_bytes: int | None = None
    plan: dict[str, Any] | None = None
    tries: tuple[dict[str, Any], ...] = ()
    sets: int | None = None

    def __post_init__(self) -> None:
        if self.state not in STATES:
            raise RecordError(f"state = {self.state!r}: must be one of {', '.join(STATES)}")
        if (self.state == MEASURED) != (self.us is not None):
            raise RecordError(f"{self.who}: a measured row has a time, another has none")
        if self.state != MEASURED and not self.reason:
            raise RecordError(f"{self.who}: {self.state}, and no reason")


@dataclass(frozen=True)
class Cell:
    """One shape. `moved`: bytes that must be moved; `sets`: of inputs, in turn; `limit`: reading or copying as much.

    `shape`: the fields of `shapes.Shape` or `WriteShape`, lengths counted (`[[length, sequences], ...]`).
    """

    id: str
    name: str
    shape: dict[str, Any]
    moved: int
    sets: int
    limit: Row | None
    rows: tuple[Row, ...]

    def row(self, who: str) -> Row | None:
        """The row of one kernel that was measured, or None."""
        return next((row for row in self.rows if row.who == who and row.state == MEASURED), None)

    def ratio(self, fast: str, slow: str) -> float | None:
        """How many times as fast the first is as the second; None where either was not measured."""
        one, other = self.row(fast), self.row(slow)
        return other.us / one.us if one and other and one.us and other.us else None


@dataclass(frozen=True)
class Set:
    """One run over a list of cells on one machine.

    `copy`: a device copy, read plus written; `floor`: a launch that does nothing; `words`: what peers are.
    """

    id: str
    backend: str
    device: str
    driver: str
    date: str
    digest: str
    versions: dict[str, str]
    seconds: float
    copy: Row | None
    cells: tuple[Cell, ...]
    words: dict[str, str] = field(default_factory=dict)
    floor: Row | None = None


@dataclass(frozen=True)
class Record:
    """All sets that were measured, by name, each the newest of its name."""

    sets: dict[str, Set] = field(default_factory=dict)

    def put(self, made: Set) -> Record:
        """With this set in the place of the one of its name."""
        return Record({**self.sets, made.id: made})

    def cells(self) -> dict[str, Cell]:
        """Every cell by id. Of two with the same id, the one of the set with fewer cells counts: it has more rows."""
        found: dict[str, Cell] = {}
        for made in sorted(self.sets.values(), key=lambda each: -len(each.cells)):
            found.update({cell.id: cell for cell in made.cells})
        return found

    def to_json(self) -> dict[str, Any]:
        """A JSON-ready dictionary; fields that say nothing are left out."""
        return {"schema": SCHEMA, "sets": [_lean(asdict(made)) for made in self.sets.values()]}


def from_json(data: Any) -> Record:
    """The inverse of `Record.to_json`; raises RecordError."""
    try:
        if data["schema"] != SCHEMA:
            raise RecordError(f"schema = {data['schema']!r}: must be {SCHEMA}; measure again")
        return Record({made["id"]: _set(made) for made in data["sets"]})
    except (KeyError, TypeError, AttributeError) as error:
        raise RecordError(f"no benchmark record: {type(error).__name__} {error}") from error


def _set(data: Mapping[str, Any]) -> Set:
    cells = tuple(
        Cell(**{**cell, "limit": _row(cell.get("limit")), "rows": tuple(_real(row) for row in cell["rows"])})
        for cell in data["cells"]
    )
    return Set(**{**data, "copy": _row(data.get("copy")), "floor": _row(data.get("floor")), "cells": cells})


def _row(data: Mapping[str, Any] | None) -> Row | None:
    return _real(data) if data else None


def _real(data: Mapping[str, Any]) -> Row:
    return Row(**{**data, "tries": tuple(data.get("tries", ()))})


_DEFAULTS = {item.name: item.default for item in fields(Row)}


def _lean(data: Any, inside: str = "") -> Any:
    """Without the fields of a row that are as they are by default; numbers to six digits, a NaN as None."""
    if isinstance(data, dict):
        row = "who" in data
        return {
            key: _lean(value, key)
            for key, value in data.items()
            if not (row and key in _DEFAULTS and value == _DEFAULTS[key])
        }
    if isinstance(data, list | tuple):
        return [_lean(item, inside) for item in data]
    if isinstance(data, float):
        return float(f"{data:.6g}") if math.isfinite(data) else None
    return data


def read(path: Path) -> Record:
    """The record of a file; an empty one where there is no file. Raises RecordError."""
    if not path.exists():
        return Record()
    try:
        return from_json(json.loads(path.read_text("utf-8")))
    except ValueError as error:
        raise RecordError(f"{path.name}: {error}") from error


def write(path: Path, record: Record) -> None:
    """Write JSON, a row a line, to a temporary file that takes the old one's place."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.name, suffix=".part")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(dump(record))
        Path(temporary).chmod(0o644)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


MARK = "\x01row "
"""What stands for a row until the text is whole; no text of a record begins like that."""


def dump(record: Record) -> str:
    """The record as JSON text, one line for each row: thousands of numbers stay readable in a comparison."""
    rows: list[str] = []

    def shorten(data: Any) -> Any:
        if isinstance(data, dict):
            if "who" in data:
                rows.append(json.dumps(data, ensure_ascii=False, allow_nan=False))
                return f"{MARK}{len(rows) - 1}"
            return {key: shorten(value) for key, value in data.items()}
        return [shorten(item) for item in data] if isinstance(data, list) else data

    text = json.dumps(shorten(record.to_json()), indent=1, ensure_ascii=False, allow_nan=False)
    # JSON writes the mark as six characters.
    return re.sub(rf'"{re.escape(json.dumps(MARK)[1:-1])}(\d+)"', lambda found: rows[int(found[1])], text) + "\n"
