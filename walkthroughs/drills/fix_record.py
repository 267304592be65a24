"""`python -m walkthroughs.drills.fix_record`: try every kernel to fix on a GPU, as it is given and as it should be.

One command for a GPU machine that has numba-cuda, NumPy, greenlet and the standard library, and nothing of the site:

    python -m walkthroughs.drills.fix_record --out fix.json --jobs 16

Each drill runs twice, each time in a process of its own: the solution must pass, the unsolved file must fail. `--only
ID` (may be repeated) takes some; `--backend sim` is a dry run elsewhere. Exit 1 where a drill does not do as it should,
2 without a GPU. Compiling is the work, so give it as many processes as there are cores: some minutes in all. The file
is written again after each drill, so what is there when time is over is not lost; `complete` says whether that is all.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from kernels.errors import BackendUnavailable
from walkthroughs import evidence, runner
from walkthroughs.drills import fix, fix_judge
from walkthroughs.drills.fix import Task
from walkthroughs.drills.fix_verdict import Verdict
from walkthroughs.server.process import Limits

SEEDS = (11, 12)
"""The held-out cases of a record: always the same."""
STATES = ("solved", "unsolved")


def main(argv: Sequence[str] | None = None) -> int:
    """Write the record; exit 1 when a drill does not do as it should, 2 without a GPU."""
    parser = argparse.ArgumentParser(prog="fix_record", description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--out", type=Path, default=Path("fix.json"), help="the file to write (fix.json)")
    parser.add_argument("--backend", choices=("cuda", "sim"), default="cuda", help="sim is for a dry run elsewhere")
    parser.add_argument("--jobs", type=int, default=min(16, os.cpu_count() or 1), help="processes at once")
    parser.add_argument("--only", action="append", metavar="ID", help="this drill alone; may be repeated")
    options = parser.parse_args(argv)
    if unknown := sorted(set(options.only or ()) - set(fix.tasks())):
        print(f"fix_record: --only {unknown[0]}: must be one of {', '.join(fix.tasks())}", file=sys.stderr)
        return 2
    try:
        backend = runner.choose(options.backend).name
    except BackendUnavailable as error:
        print(f"fix_record: {error}", file=sys.stderr)
        return 2
    tasks = [task for name, task in fix.tasks().items() if not options.only or name in options.only]
    record = asyncio.run(try_all(tasks, backend, max(1, options.jobs), options.out))
    bad = [row["id"] for row in record["drills"] if row["status"] != "passed"]
    print(f"{len(tasks)} drills on {backend}, {len(bad)} not as they should be: {options.out}", file=sys.stderr)
    return 1 if bad else 0


async def try_all(tasks: Sequence[Task], backend: str, jobs: int, out: Path) -> dict[str, Any]:
    """Every drill in both states, so many at once; writes the record after each, and returns it."""
    started, gate = time.perf_counter(), asyncio.Semaphore(jobs)
    device, driver = runner.device(backend)
    record: dict[str, Any] = {
        "schema": evidence.SCHEMA, "backend": backend, "device": device, "driver": driver,
        "versions": runner.versions(backend), "date": runner.now(), "seeds": list(SEEDS), "complete": False,
    }  # fmt: skip
    found: dict[str, dict[str, Any]] = {}
    # What is about a barrier is compiled under each delay: the longest work first.
    ordered = sorted(tasks, key=lambda task: not task.barrier)
    for row in asyncio.as_completed([asyncio.create_task(_row(task, backend, gate)) for task in ordered]):
        made = await row
        found[made["id"]] = made
        rows = [found[task.item.id] for task in tasks if task.item.id in found]
        record |= {"seconds": round(time.perf_counter() - started, 1), "complete": len(rows) == len(tasks)}
        record["drills"] = rows
        evidence.write_json(out, record)
    return record


async def _row(task: Task, backend: str, gate: asyncio.Semaphore) -> dict[str, Any]:
    found = await asyncio.gather(*(_state(task, state, backend, gate) for state in STATES))
    solved, unsolved = found
    fine = solved["status"] == "passed" and unsolved["status"] == "failed"
    row = {"id": task.item.id, "status": "passed" if fine else "failed", "solved": solved, "unsolved": unsolved}
    print(f"{row['status']:7} {task.item.id}: solved {_said(solved)}; unsolved {_said(unsolved)}", flush=True)
    return row


async def _state(task: Task, state: str, backend: str, gate: asyncio.Semaphore) -> dict[str, Any]:
    text = fix.solved(task) if state == "solved" else fix.unsolved(task)
    limits = replace(Limits.of(backend), seconds=fix_judge.BARRIER_SECONDS)
    async with gate:
        verdict: Verdict = await fix_judge.run(task, text, backend, SEEDS, limits=limits)
    return verdict.to_json()


def _said(found: dict[str, Any]) -> str:
    return f"{found['status']}, {found['seconds']} s{found['message'] and ': ' + found['message'][:140]}"


if __name__ == "__main__":
    raise SystemExit(main())
