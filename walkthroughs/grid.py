"""`python -m walkthroughs.grid`: run the ops over vLLM's own test parameters and over our matrix; write the record.

Needs a GPU, numba-cuda, NumPy and torch; nothing of the site. Compiling is the work, so it runs in several processes.
`--tuned` runs the rungs of the ladder and writes a record of its own. `--device cpu --small` tries a small grid on the
SIMT machine instead. Exit 1 where a case fails, 2 for wrong use.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib import import_module, metadata
from pathlib import Path
from typing import Any

from annotate.files import write_text
from kernels.errors import BackendUnavailable
from walkthroughs import digest, evidence, runner
from walkthroughs.grid_workers import BLIND, ERROR, FAILED, PASSED, REFUSED, SOURCE, Plan, Row, clock, run_all

FILE, TUNED_FILE = "grid.json", "tuned_grid.json"
COLUMNS = ("case", "error", "tolerance", "result", "zeros_pass", "shuffled_keys_pass", "runs")
"""A row's columns; a row that is an error or a refusal has its words behind them."""
AT_ONCE = 14
EVERY = 25


@dataclass(frozen=True)
class Subject:
    """What is run: the module that lists the cases, and the record's file."""

    source: str
    file: str

    @property
    def path(self) -> str:
        """The module's file."""
        return self.source.replace(".", "/") + ".py"


OPS = Subject(SOURCE, FILE)
TUNED = Subject("kernels.tuned.grid", TUNED_FILE)
GRID = OPS.path


def main(argv: Sequence[str] | None = None) -> int:
    """Write the record; exit 1 when a case fails, 2 without a GPU or for wrong use."""
    parser = argparse.ArgumentParser(prog="grid", description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--out", type=Path, default=evidence.EVIDENCE, help="folder to write (docs/evidence)")
    parser.add_argument("--jobs", type=int, help=f"processes ({AT_ONCE} on a GPU, else 1)")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda", help="cpu: the SIMT machine, with --small")
    parser.add_argument("--small", action="store_true", help="the small grid")
    parser.add_argument("--tuned", action="store_true", help="the rungs of the ladder in place of vLLM's ops")
    parser.add_argument("--only", action="append", default=[], metavar="GROUP", help="this group; may be repeated")
    options = parser.parse_args(argv)
    subject = TUNED if options.tuned else OPS
    plan = Plan(options.device, options.small, subject.source)
    if wrong := _wrong_use(options, plan):
        print(f"grid: {wrong}", file=sys.stderr)
        return 2
    cores = os.cpu_count() or 1
    jobs = options.jobs or (max(1, min(AT_ONCE, cores - 2)) if options.device == "cuda" else 1)
    record = measure(plan, options.only, jobs, subject)
    write_text(options.out / subject.file, dump(record))
    bad = [row for group in record["groups"] for row in group["rows"] if row[3] not in (PASSED, REFUSED)]
    rows = sum(group["cases"] for group in record["groups"])
    _say(f"{rows} cases in {record['seconds']} s, {len(bad)} of them not passed: {options.out / subject.file}")
    return 1 if bad else 0


def _wrong_use(options: argparse.Namespace, plan: Plan) -> str:
    if options.device == "cpu" and not options.small:
        return "--device cpu needs --small: the grid is too large for the SIMT machine"
    part = options.device != "cuda" or options.small or options.only
    if part and options.out.resolve() == evidence.EVIDENCE:
        return "docs/evidence holds whole grids of a GPU only: name another folder with --out"
    if options.jobs is not None and options.jobs < 1:
        return f"--jobs {options.jobs}: must be 1 or more"
    try:
        runner.choose("cuda" if options.device == "cuda" else "sim")
    except BackendUnavailable as error:
        return str(error)
    known = plan.groups() if options.only else {}
    unknown = [name for name in options.only if name not in known]
    return f"--only {unknown[0]}: must be one of {', '.join(known)}" if unknown else ""


def measure(plan: Plan, only: Sequence[str], jobs: int, subject: Subject = OPS) -> dict[str, Any]:
    """Run the chosen groups; returns the record."""
    spent, tasks, seen = clock(), plan.tasks(only), [0]

    def told(row: Row) -> None:
        seen[0] += 1
        if row.result not in (PASSED, REFUSED):
            how = row.message or f"error {row.error:.3g}, tolerance {row.tolerance:.3g}"
            _say(f"{row.result:7} {row.group}: {row.id}: {how}")
        if seen[0] % EVERY == 0 or seen[0] == len(tasks):
            _say(f"{seen[0]:5} of {len(tasks)}, {spent():.0f} s")

    rows = run_all(plan, tasks, jobs, told)
    backend = "cuda" if plan.device == "cuda" else "sim"
    device, driver = runner.device(backend)
    return {
        "schema": evidence.SCHEMA, "backend": backend, "device": device, "driver": driver,
        "versions": {**runner.versions(backend), "torch": metadata.version("torch")}, "date": runner.now(),
        "digest": grid_digest(subject), "seconds": round(spent(), 1), "jobs": jobs, "bounds": bounds(subject),
        "columns": COLUMNS, "groups": summaries(rows, subject),
    }  # fmt: skip


def grid_digest(subject: Subject = OPS) -> str:
    """What the record depends on: the grids, the reference, and the kernels behind the ops."""
    return digest.of_files(file for file in digest.port_files(subject.path) if not file.startswith("kernels/simt/"))


def fresh(record: dict[str, Any], subject: Subject = OPS) -> bool:
    """Whether the record describes the present kernels and grids."""
    return bool(record["digest"] == grid_digest(subject))


def bounds(subject: Subject = OPS) -> list[dict[str, Any]]:
    """The bounds of our attention matrix, for the page: what each dtype's roundings may add up to."""
    if subject == TUNED:
        from kernels.tuned.grid_case import bounds as of_rungs

        return of_rungs()
    from kernels.vllm.ops_reference import BOUNDS, FLOAT32_BOUND, ONE_TOKEN_BOUND

    shared = {"float32_share": FLOAT32_BOUND, "one_token": ONE_TOKEN_BOUND}
    return [{"dtype": dtype, **asdict(bound), **shared} for dtype, bound in BOUNDS.items()]


def summaries(rows: Sequence[Row], subject: Subject = OPS) -> list[dict[str, Any]]:
    """The rows by group, each group with its counts and the row whose error comes nearest to its tolerance."""
    titles: dict[str, str] = import_module(subject.source).TITLES
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(row.group, []).append(row)
    return [_summary(name, titles.get(name, name), found) for name, found in groups.items()]


def _summary(name: str, title: str, rows: Sequence[Row]) -> dict[str, Any]:
    worst = max(rows, key=_share)
    return {
        "id": name, "title": title, "cases": len(rows),
        **{result: sum(row.result == result for row in rows) for result in (PASSED, FAILED, BLIND, ERROR, REFUSED)},
        "runs": sum(row.runs for row in rows),
        "compared": sum(row.zeros_pass is not None for row in rows),
        "zeros_pass": sum(bool(row.zeros_pass) for row in rows),
        "shuffled_keys_pass": sum(bool(row.shuffled_keys_pass) for row in rows),
        "worst": {"case": worst.id, "error": _number(worst.error), "tolerance": _number(worst.tolerance)},
        "rows": [_as_list(row) for row in rows],
    }  # fmt: skip


def _share(row: Row) -> float:
    if row.error == 0:
        return 0.0
    return row.error / row.tolerance if row.tolerance else math.inf


def _as_list(row: Row) -> list[Any]:
    found = [row.id, _number(row.error), _number(row.tolerance), row.result, row.zeros_pass, row.shuffled_keys_pass]
    return [*found, row.runs, *([row.message] if row.message else [])]


def _number(value: float) -> float | None:
    """Three digits; JSON has no infinity: None is an error that cannot be measured."""
    return float(f"{value:.3g}") if math.isfinite(value) else None


def dump(record: dict[str, Any]) -> str:
    """The record as JSON, a case a line: a thousand cases stay small and can be read."""
    marked = {**record, "groups": [{**group, "rows": f"@{i}@"} for i, group in enumerate(record["groups"])]}
    text = json.dumps(marked, indent=1, ensure_ascii=False, allow_nan=False)
    for i, group in enumerate(record["groups"]):
        lines = ",\n".join("   " + json.dumps(row, ensure_ascii=False, allow_nan=False) for row in group["rows"])
        text = text.replace(f'"@{i}@"', f"[\n{lines}\n  ]")
    return text + "\n"


def load(folder: Path = evidence.EVIDENCE, subject: Subject = OPS) -> dict[str, Any] | None:
    """The committed record, or None; raises EvidenceError for a file that is not one."""
    path = folder / subject.file
    if not path.exists():
        return None
    try:
        record = json.loads(path.read_text("utf-8"))
        if record["schema"] != evidence.SCHEMA or not record["groups"]:
            raise ValueError(f"schema {record['schema']}, {len(record['groups'])} groups")
    except (ValueError, KeyError, TypeError) as error:
        raise evidence.EvidenceError(f"{subject.file}: {error}") from error
    return dict(record)


def _say(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
