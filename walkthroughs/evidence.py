"""What a run leaves behind: a typed record, its JSON, and the question whether it is still true.

Committed records live in docs/evidence/, one file a walkthrough, written on a machine with a GPU and
never by hand. A record whose digests no longer match the code is stale and is shown as stale.
"""

from __future__ import annotations

import json
import math
import tomllib
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from annotate.files import write_text
from walkthroughs import digest
from walkthroughs.step import Step, steps

EVIDENCE = digest.ROOT / "docs" / "evidence"
SCHEMA = 1


class EvidenceError(ValueError):
    """A record file that cannot be read as one; names the file and what is wrong with it."""


@dataclass(frozen=True)
class Check:
    """One comparison: what the kernel did against what the oracle says.

    `observed` and `expected` are shortened for display; `max_error` is over every value compared.
    """

    name: str
    passed: bool
    observed: str
    expected: str
    max_error: float
    tolerance: float
    note: str = ""

    def to_json(self) -> dict[str, Any]:
        """A JSON-ready dictionary. JSON has no infinity: a `max_error` of null means not comparable at all."""
        return {**asdict(self), "max_error": self.max_error if math.isfinite(self.max_error) else None}

    @staticmethod
    def from_json(data: dict[str, Any]) -> Check:
        """The inverse of `to_json`; raises TypeError for missing or unknown fields."""
        check = Check(**data)
        return replace(check, max_error=math.inf) if check.max_error is None else check


@dataclass(frozen=True)
class Measurement:
    """A value that one machine showed, and that nothing is held against: no step passes or fails by it.

    `value`: None where that cannot be measured. `low` and `high`: the 10th and 90th percentile of many samples, of
    which `value` is then the median.
    """

    name: str
    value: float | None
    unit: str
    low: float | None = None
    high: float | None = None
    note: str = ""

    @property
    def text(self) -> str:
        """The value with its unit and its spread, for a table cell or a line."""
        if self.value is None:
            return "not measured"
        shown = f"{_digits(self.value)} {self.unit}"
        if self.low is None or self.high is None:
            return shown
        return f"{shown} (10th to 90th percentile: {_digits(self.low)} to {_digits(self.high)})"


def _digits(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


@dataclass(frozen=True)
class Evidence:
    """One run of one step. `status`: passed, failed (a check did not hold) or error (it did not run to its end).

    `measured` holds what has no expectation, such as times; the status does not depend on it.
    """

    step: str
    status: str
    backend: str
    device: str
    driver: str
    versions: dict[str, str]
    date: str
    seed: int
    digests: dict[str, str]
    checks: tuple[Check, ...]
    seconds: float
    message: str = ""
    measured: tuple[Measurement, ...] = ()

    @property
    def max_error(self) -> float:
        """The largest error of any check, in the unit of the values compared."""
        return max((check.max_error for check in self.checks), default=0.0)

    def to_json(self) -> dict[str, Any]:
        """A JSON-ready dictionary."""
        fields = {"schema": SCHEMA, **asdict(self), "checks": [check.to_json() for check in self.checks]}
        # Left out where there is none: most records have none, and older ones do not know the field.
        measured = fields.pop("measured")
        return {**fields, "measured": list(measured)} if measured else fields

    @staticmethod
    def from_json(data: Any) -> Evidence:
        """The inverse of `to_json`; raises EvidenceError for another schema or missing fields."""
        if not isinstance(data, dict):
            raise EvidenceError(f"not a record: {data!r}")
        fields = dict(data)
        if fields.pop("schema", None) != SCHEMA:
            raise EvidenceError(f"schema = {data.get('schema')!r}: must be {SCHEMA}; record it again")
        try:
            fields["checks"] = tuple(Check.from_json(check) for check in fields["checks"])
            fields["measured"] = tuple(Measurement(**row) for row in fields.get("measured", ()))
            return Evidence(**fields)
        except (KeyError, TypeError) as error:
            raise EvidenceError(f"not a record: {error}") from error


def fresh(record: Evidence, step: Step) -> bool:
    """True while the record describes the present port, step and upstream lines."""
    return record.digests == digest.of_step(step)


def load_committed(folder: Path = EVIDENCE) -> dict[str, Evidence]:
    """Every committed GPU record, by step id. Raises EvidenceError for a file that is not one."""
    found = {}
    for walkthrough in sorted({step.walkthrough for step in steps().values()}):
        path = folder / f"{walkthrough}.json"
        if path.exists():
            found.update({record.step: record for record in read(path)})
    return found


def read(path: Path) -> list[Evidence]:
    """The records of one file."""
    try:
        data = json.loads(path.read_text("utf-8"))
        return [Evidence.from_json(record) for record in data["records"]]
    except (ValueError, KeyError, TypeError) as error:
        raise EvidenceError(f"{path.name}: {error}") from error


def write(path: Path, records: Iterable[Evidence]) -> None:
    """Write records to one file: a temporary file first, then a rename."""
    write_json(path, {"schema": SCHEMA, "records": [record.to_json() for record in records]})


def write_json(path: Path, data: Any) -> None:
    """Write JSON so that no reader ever sees half of it."""
    write_text(path, json.dumps(data, indent=1, ensure_ascii=False, allow_nan=False) + "\n")


def pending(folder: Path = EVIDENCE) -> dict[str, dict[str, str]]:
    """Steps without a GPU record, each with `reason` and `date`, as docs/evidence/pending.toml lists them."""
    path = folder / "pending.toml"
    if not path.exists():
        return {}
    return {name: dict(entry) for name, entry in tomllib.loads(path.read_text("utf-8")).get("pending", {}).items()}
