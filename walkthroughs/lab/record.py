"""The lab's record: what one machine's engine did, committed so that a reader without the environment sees it.

It is no GPU record and says so: device CPU, with the versions. It is stale when the prediction, the scenarios or the
script that watches the engine have changed since.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from walkthroughs import digest
from walkthroughs.evidence import write_json
from walkthroughs.lab.record_head import SCHEMA, Head, fields_of
from walkthroughs.lab.watch import About, Result

RECORD = Path(__file__).with_name("record.json")
FILES = (
    "walkthroughs/lab/scenarios.py",
    "walkthroughs/lab/predict.py",
    "walkthroughs/lab/engine.py",
    "walkthroughs/lab/watch.py",
    "kernels/block_pool.py",
    "kernels/layout.py",
)


@dataclass(frozen=True)
class Kept:
    """One scenario of a record. `used` and `blocks` have a number a step; `tables` the ids, at their longest."""

    id: str
    status: str
    steps: int
    mismatches: tuple[str, ...]
    used: tuple[int, ...]
    blocks: dict[str, tuple[int, ...]]
    tables: dict[str, tuple[int, ...]]


@dataclass(frozen=True)
class Record(Head):
    """A whole run: what ran, when, and every scenario."""

    scenarios: tuple[Kept, ...]


def keep(result: Result) -> Kept:
    """A result as it is recorded."""
    names = [ask.name for ask in result.scenario.requests]
    held = {name: [seen.requests[name].blocks if name in seen.requests else () for seen in result.seen]
            for name in names}  # fmt: skip
    return Kept(
        id=result.scenario.id,
        status=result.status,
        steps=len(result.seen),
        mismatches=tuple(map(str, result.mismatches)),
        used=tuple(seen.used for seen in result.seen),
        blocks={name: tuple(map(len, tables)) for name, tables in held.items()},
        tables={name: max(tables, key=len, default=()) for name, tables in held.items()},
    )


def made(results: Sequence[Result], about: About, date: str, seconds: float) -> Record:
    """A record of a run."""
    return Record(about.device, about.versions, date, present(), round(seconds, 1), tuple(map(keep, results)))


def present() -> str:
    """The digest that a record made now would carry."""
    return digest.of_files(FILES)


def fresh(record: Record) -> bool:
    """True while the record describes the present prediction and scenarios."""
    return record.digest == present()


def write(record: Record, path: Path = RECORD) -> None:
    """Write a record by temporary file and rename."""
    write_json(path, {"schema": SCHEMA, **asdict(record)})


def load(path: Path = RECORD) -> Record | None:
    """The committed record, or None where there is none; raises ValueError for a file that is not one."""
    fields = fields_of(path, "pagewalk lab run --record")
    if fields is None:
        return None
    try:
        scenarios = tuple(_kept(row) for row in fields.pop("scenarios"))
        return Record(**fields, scenarios=scenarios)
    except (KeyError, TypeError) as error:
        raise ValueError(f"{path.name}: not a record: {error}") from error


def _kept(row: dict[str, Any]) -> Kept:
    per_name = {field: {name: tuple(values) for name, values in row[field].items()} for field in ("blocks", "tables")}
    return Kept(**{**row, "mismatches": tuple(row["mismatches"]), "used": tuple(row["used"]), **per_name})
