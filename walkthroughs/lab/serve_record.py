"""The record of `lab serve`: what one machine's server said, committed so that a reader without one sees it.

It is no GPU record and says so. It is stale when the requests, the bounds or the way of reading have changed since.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from annotate.files import write_text
from walkthroughs import digest
from walkthroughs.lab.environment import ENGINE, Lab
from walkthroughs.lab.errors import EngineFailed
from walkthroughs.lab.phases import Outcome, Sample
from walkthroughs.lab.record_head import SCHEMA, Head, fields_of

RECORD = Path(__file__).with_name("serve.json")
MOST = 100
"""Readings of a phase that are kept, those that do not fit beside."""
FILES = (
    "walkthroughs/lab/phases.py",
    "walkthroughs/lab/metrics.py",
    "walkthroughs/lab/server.py",
    "walkthroughs/lab/scenarios.py",
    "walkthroughs/lab/model.py",
    "kernels/layout.py",
)
ASK = "import json, runpy, sys; e = runpy.run_path(sys.argv[1]); print(json.dumps([e['about'](), e['device']()]))"
NUMBERS = re.compile(r"\[[-\d\s.,]+\]")


@dataclass(frozen=True)
class Kept:
    """One phase of a record. `readings`, `fit` and `exact` count all readings, `samples` holds at most MOST of them."""

    id: str
    status: str
    readings: int
    fit: int
    exact: int
    most: int
    hits: int
    left: int
    seconds: float
    problems: tuple[str, ...]
    samples: tuple[Sample, ...]


@dataclass(frozen=True)
class Record(Head):
    """A whole run: what ran, when, and every phase."""

    phases: tuple[Kept, ...]


def about(lab: Lab) -> tuple[dict[str, str], str]:
    """The versions and the device, as the server's own Python says them; takes seconds. Raises EngineFailed."""
    done = subprocess.run(
        [lab.python, "-c", ASK, ENGINE], env=lab.variables(), capture_output=True, text=True, check=False
    )
    try:
        versions, device = json.loads(done.stdout.splitlines()[-1])
    except (ValueError, IndexError) as error:
        said = (done.stderr.strip().splitlines() or ["nothing"])[-1]
        raise EngineFailed(type(error).__name__, f"{lab.python} does not say its versions: {said}") from error
    return dict(versions), str(device)


def keep(outcome: Outcome) -> Kept:
    """An outcome as it is recorded."""
    samples = outcome.samples
    return Kept(
        id=outcome.phase.id,
        status=outcome.status,
        readings=len(samples),
        fit=sum(sample.fits for sample in samples),
        exact=sum(sample.low == sample.high for sample in samples),
        most=max((sample.used for sample in samples), default=0),
        hits=outcome.hits,
        left=outcome.left,
        seconds=round(samples[-1].seconds, 3) if samples else 0.0,
        problems=tuple(outcome.problems),
        samples=thinned(samples),
    )


def thinned(samples: Sequence[Sample], most: int = MOST) -> tuple[Sample, ...]:
    """At most so many readings, evenly spread over the tokens, the first and the last among them; and all misfits."""
    last = len(samples) - 1
    if last < most:
        return tuple(samples)
    begin, end = samples[0].generated, samples[-1].generated
    # The last reading of each part of the tokens stands for it.
    parts = {(s.generated - begin) * (most - 1) // (end - begin + 1): n for n, s in enumerate(samples)}
    kept = {0, last, *parts.values(), *(n for n, sample in enumerate(samples) if not sample.fits)}
    return tuple(samples[n] for n in sorted(kept))


def made(outcomes: Sequence[Outcome], versions: dict[str, str], device: str, date: str, seconds: float) -> Record:
    """A record of a run."""
    return Record(device, versions, date, present(), round(seconds, 1), tuple(map(keep, outcomes)))


def present() -> str:
    """The digest that a record made now would carry."""
    return digest.of_files(FILES)


def fresh(record: Record) -> bool:
    """True while the record describes the present requests and bounds."""
    return record.digest == present()


def write(record: Record, path: Path = RECORD) -> None:
    """Write a record by temporary file and rename, a reading a line."""
    fields = asdict(record)
    for row, kept in zip(fields["phases"], record.phases, strict=True):
        row["samples"] = [[round(s.seconds, 3), s.generated, s.used, s.low, s.high, *s.received] for s in kept.samples]
    text = json.dumps({"schema": SCHEMA, **fields}, indent=1, ensure_ascii=False, allow_nan=False)
    write_text(path, NUMBERS.sub(lambda found: "[" + " ".join(found[0][1:-1].split()) + "]", text) + "\n")


def load(path: Path = RECORD) -> Record | None:
    """The committed record, or None where there is none; raises ValueError for a file that is not one."""
    fields = fields_of(path, "pagewalk lab serve --record")
    if fields is None:
        return None
    try:
        return Record(**{**fields, "phases": tuple(map(_kept, fields["phases"]))})
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path.name}: not a record: {error}") from error


def _kept(row: dict[str, Any]) -> Kept:
    samples = tuple(
        Sample(seconds, generated, used, low, high, tuple(received))
        for seconds, generated, used, low, high, *received in row["samples"]
    )
    return Kept(**{**row, "problems": tuple(row["problems"]), "samples": samples})
