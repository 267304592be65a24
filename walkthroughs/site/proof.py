"""What proves a step, for its page: the badges, the table's rows, and the facts of the record.

A GPU record that matches the code counts first, then a run on this machine, then a record that has gone stale; a step
with none of them, or with a failed one, stops the build. Where the steps read a record of something else, such as a
real engine, a badge of its own says where that was seen.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from walkthroughs.digest import ROOT
from walkthroughs.evidence import Evidence
from walkthroughs.lab import record as lab_record

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

    `committed` is the record kept with the pages, a GPU's unless the steps read what another machine saw, and `fresh`
    whether it still matches the code; `local` a passing and matching run on this machine; `pending` the reason and date
    why there is no GPU record.
    """
    for record in (committed if fresh else None, local):
        if record is not None and record.status != "passed":
            problem = record.message or ", ".join(c.name for c in record.checks if not c.passed)
            raise StepNotProven(
                step, f"the run on {record.device} {record.status} ({problem})", RUN_IT.format(step=step)
            )
    if committed is not None and fresh and (_on_gpu(committed) or not _on_gpu(local)):
        return _shown(committed, (_badge(committed),))
    if committed is not None and not fresh:
        stale = Badge("stale", f"stale: the code has changed since the run on {committed.device}, {_day(committed)}")
        if local is None:
            return _shown(committed, (stale,), stale=True)
        return _shown(local, (stale, _badge(local)))
    if local is None:
        raise StepNotProven(step, "it has no record and was not run on this machine", RUN_IT.format(step=step))
    if _on_gpu(local):
        return _shown(local, (_badge(local),))
    why = f": {pending['reason']}" if pending and pending.get("reason") else ""
    return _shown(local, (Badge("pending", f"not yet validated on a GPU{why}"), _badge(local)))


def seen_badge(seen: str) -> tuple[Badge, ...]:
    """Where that was seen which the steps read out of the record `seen`; nothing for steps that read none."""
    if not seen:
        return ()
    made = lab_record.load(ROOT / seen)
    if made is None:
        return (Badge("pending", "not yet seen: there is no record of it"),)
    if not lab_record.fresh(made):
        return (Badge("stale", f"stale: the lab has changed since it was seen on {made.badge}, {made.date[:10]}"),)
    kind, where = ("cpu", "a ") if made.device == "CPU" else ("gpu", "")
    return (Badge(kind, f"seen on {where}{made.badge}, {made.date[:10]}"),)  # type: ignore[arg-type]


def _on_gpu(record: Evidence | None) -> bool:
    return record is not None and record.backend == "cuda"


def _day(record: Evidence) -> str:
    return record.date[:10]


def _badge(record: Evidence) -> Badge:
    kind = "gpu" if _on_gpu(record) else "sim"
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
