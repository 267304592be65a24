"""`python -m walkthroughs.records`: run every step on this machine's GPU and write the records.

One command for a GPU machine that has numba-cuda, NumPy, torch and the standard library, and nothing
of the site. It also runs every mutation, since a step that cannot fail on a GPU proves nothing there.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from kernels.errors import BackendUnavailable
from kernels.kernel import Backend
from walkthroughs import digest, evidence, mutations, runner
from walkthroughs.evidence import Evidence
from walkthroughs.mutations import Mutation, MutationError
from walkthroughs.step import Step, registry

MUTATIONS_FILE = "mutations.json"


def main(argv: Sequence[str] | None = None) -> int:
    """Write docs/evidence/; exit 1 when a step fails or a mutant survives, 2 without a GPU."""
    parser = argparse.ArgumentParser(prog="records", description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--out", type=Path, default=evidence.EVIDENCE, help="folder to write (docs/evidence)")
    parser.add_argument("--backend", choices=("cuda", "sim"), default="cuda", help="sim is for a dry run elsewhere")
    parser.add_argument("--jobs", type=int, help="processes, since compiling is the work (8 on a GPU, else 1)")
    parser.add_argument("--only", action="append", metavar="WALKTHROUGH", help="this walkthrough alone, no mutations")
    options = parser.parse_args(argv)
    if unknown := sorted(set(options.only or ()) - set(registry())):
        print(f"records: --only {unknown[0]}: must be one of {', '.join(registry())}", file=sys.stderr)
        return 2
    if options.backend == "sim" and options.out.resolve() == evidence.EVIDENCE:
        print("records: --backend sim needs --out: docs/evidence holds GPU records only", file=sys.stderr)
        return 2
    try:
        backend = runner.choose(options.backend)
    except BackendUnavailable as error:
        print(f"records: {error}", file=sys.stderr)
        return 2
    jobs = options.jobs or (min(8, os.cpu_count() or 1) if backend.name == "cuda" else 1)
    fine = record_steps(backend, options.out, jobs, options.only)
    if not options.only:
        fine &= record_mutations(backend, options.out, jobs)
    return 0 if fine else 1


def record_steps(backend: Backend, out: Path, jobs: int = 1, only: Sequence[str] | None = None) -> bool:
    """Run and write every walkthrough, or `only` some; False if a step did not pass (its file is then not written)."""
    fine = True
    chosen = [walkthrough for walkthrough in registry().values() if not only or walkthrough.id in only]
    steps = [step for walkthrough in chosen for step in walkthrough.steps]
    found = dict(zip((s.id for s in steps), _each(partial(_run_step, backend.name), steps, jobs), strict=True))
    if jobs > 1:
        # What was timed while other steps ran beside it says little: once more, alone.
        found.update({step.id: _run_step(backend.name, step) for step in steps if found[step.id].measured})
    for walkthrough in chosen:
        records = [found[step.id] for step in walkthrough.steps]
        for record in records:
            _report(record)
        if all(record.status == "passed" for record in records):
            evidence.write(out / f"{walkthrough.id}.json", records)
        else:
            fine = False
    return fine


def record_mutations(backend: Backend, out: Path, jobs: int = 1) -> bool:
    """Run every mutation and write who noticed it; False if one survived."""
    tasks = mutations.control_tasks(backend.name)
    broken = [line for line in _each(partial(_control, backend.name), tasks, jobs) if line]
    for line in broken:
        _say(f"control FAILED: {line}")
    rows: list[dict[str, str | None]] = []
    chosen = mutations.MUTATIONS
    for mutation, caught in zip(chosen, _each(partial(_caught, backend.name), chosen, jobs), strict=True):
        rows.append({
            "id": mutation.id, "what": mutation.what, "file": mutation.file, "region": mutation.region,
            "caught_by": caught[0] if caught else None, "said": caught[1] if caught else None,
        })  # fmt: skip
        _say(f"mutation {mutation.id}: {caught or 'SURVIVED'}")
    device, driver = runner.device(backend.name)
    data = {
        "schema": evidence.SCHEMA, "backend": backend.name, "device": device, "driver": driver,
        "versions": runner.versions(backend.name), "date": runner.now(), "digest": mutations_digest(),
        "mutations": rows,
    }  # fmt: skip
    evidence.write_json(out / MUTATIONS_FILE, data)
    return not broken and all(row["caught_by"] for row in rows)


def _each(work: Callable[[Any], Any], items: Sequence[Any], jobs: int) -> Iterator[Any]:
    """`work` on each item, in order; in processes of their own if there are several jobs."""
    if jobs <= 1:
        yield from map(work, items)
        return
    # Spawned: a CUDA context does not survive a fork.
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        yield from pool.map(work, items)


def _run_step(backend: str, step: Step) -> Evidence:
    return runner.run(step, Backend(backend))


def _control(backend: str, task: tuple[int, str]) -> str | None:
    return mutations.control_one(backend, *task)


def _caught(backend: str, mutation: Mutation) -> tuple[str, str] | None:
    try:
        return mutations.caught_by(mutation, backend)
    except MutationError as error:
        _say(f"mutation {mutation.id} FAILED: {error}")
        return None


def _report(record: Evidence) -> None:
    _say(f"{record.status:7} {record.step} {record.seconds:.2f} s, max error {record.max_error:.2g} {record.message}")
    for check in record.checks:
        if not check.passed:
            _say(f"        {check.name}: {check.observed} instead of {check.expected} ({check.max_error:.3g})")


def mutations_digest() -> str:
    """What the mutation record depends on: the mutations and the files they change."""
    files = sorted({mutation.file for mutation in mutations.MUTATIONS})
    return digest.of_files(files, extra=repr(mutations.MUTATIONS))


def _say(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
