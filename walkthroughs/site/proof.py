"""What proves a step, for its page: the badges, the table's rows, and the facts of the record.

A GPU record that matches the code counts first, then a run on this machine, then a record that has gone stale; a step
with none of them, or with a failed one, stops the build.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from walkthroughs.evidence import Evidence

from .errors import StepNotProven
from .model import Badge, Row

RUN_IT = "Run it: pagewalk run {step}"
NONE = "–"


@dataclass(frozen=True, slots=True)
class Proof:
    """What the page shows of a step's evidence."""

    badges: tuple[Badge, ...]
    rows: tuple[Row, ...]
    rows_from: str
    record: tuple[tuple[str, str], ...]


def number(value: float) -> str:
    """An error or a tolerance as a reader wants it: 0, 2.9e-03, 0.25."""
    return "0" if value == 0 else f"{value:.2g}"


def prove(
    step: str,
    committed: Evidence | None,
    fresh: bool,
    local: Evidence | None,
    pending: Mapping[str, str] | None,
) -> Proof:
    """Choose the evidence and the badges; raises `StepNotProven`.

    `committed` is the GPU record kept with the pages and `fresh` whether it still matches the code; `local` a passing
    and matching run on this machine; `pending` the reason and date why there is no GPU record.
    """
    for record in (committed if fresh else None, local):
        if record is not None and record.status != "passed":
            problem = record.message or ", ".join(c.name for c in record.checks if not c.passed)
            raise StepNotProven(
                step, f"the run on {record.device} {record.status} ({problem})", RUN_IT.format(step=step)
            )
    if committed is not None and fresh:
        return _shown(committed, (_badge(committed),))
    if committed is not None:
        stale = Badge("stale", f"stale: the code has changed since the run on {committed.device}, {_day(committed)}")
        if local is None:
            return _shown(committed, (stale,), stale=True)
        return _shown(local, (stale, _badge(local)))
    if local is None:
        raise StepNotProven(step, "it has no record and was not run on this machine", RUN_IT.format(step=step))
    if local.backend == "cuda":
        return _shown(local, (_badge(local),))
    why = f": {pending['reason']}" if pending and pending.get("reason") else ""
    return _shown(local, (Badge("pending", f"not yet validated on a GPU{why}"), _badge(local)))


def _day(record: Evidence) -> str:
    return record.date[:10]


def _badge(record: Evidence) -> Badge:
    kind = "gpu" if record.backend == "cuda" else "sim"
    return Badge(kind, f"{record.device}, {_day(record)}, max error {number(record.max_error)}")  # type: ignore[arg-type]


def _shown(record: Evidence, badges: tuple[Badge, ...], *, stale: bool = False) -> Proof:
    rows = tuple(
        Row(
            name=check.name,
            observed=check.observed,
            expected=check.expected,
            error=number(check.max_error),
            tolerance=number(check.tolerance),
            verdict="stale" if stale else "passed" if check.passed else "failed",
            note=check.note,
        )
        for check in record.checks
    ) + tuple(
        Row(
            name=measured.name,
            observed=measured.text,
            expected=NONE,
            error=NONE,
            tolerance=NONE,
            verdict="stale" if stale else "measured",
            note=measured.note,
        )
        for measured in record.measured
    )
    when = f"{record.device}, {_day(record)}"
    caption = f"Observed on {when}, before the code changed" if stale else f"Observed on {when}"
    return Proof(badges, rows, caption, _facts(record))


def _facts(record: Evidence) -> tuple[tuple[str, str], ...]:
    versions = ", ".join(f"{name} {version}" for name, version in record.versions.items())
    digests = ", ".join(f"{name} {digest}" for name, digest in record.digests.items())
    facts = {
        "Step": record.step,
        "Device": record.device,
        "Driver": record.driver,
        "Date": record.date,
        "Versions": versions,
        "Seed": str(record.seed),
        "Digests": digests,
    }
    return tuple((name, value) for name, value in facts.items() if value)
