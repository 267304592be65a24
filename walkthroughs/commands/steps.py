"""`pagewalk list` and `pagewalk run`: the walkthroughs' steps, their records, and running them.

The backend that runs is always said on stderr. Asking for a GPU that is not there is an error, never a
silent change of backend.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from walkthroughs.commands.output import (
    emit_json,
    json_option,
    notice,
    print_rows,
    reports_errors,
    require_known,
)

if TYPE_CHECKING:
    from kernels.kernel import Backend
    from walkthroughs.evidence import Evidence
    from walkthroughs.step import Step

backend_option = click.option(
    "--backend",
    type=click.Choice(["auto", "cuda", "sim"]),
    default="auto",
    show_default=True,
    help="auto: a GPU if one works, else the SIMT machine.",
)
COLOURS = {"passed": "green", "failed": "red", "error": "red", "stale": "yellow", "unavailable": "yellow"}


def record_state(step: Step, records: dict[str, Evidence]) -> tuple[str, str]:
    """Return the status of a step's committed record, a GPU's as a rule, and a few words on it."""
    from walkthroughs.evidence import fresh

    record = records.get(step.id)
    if record is None:
        return "unavailable", "not yet validated on a GPU"
    if not fresh(record, step):
        return "stale", f"the record of {record.date[:10]} is stale"
    return record.status, f"{record.device}, {record.date[:10]}"


@click.command("list")
@json_option
@reports_errors
def list_command(as_json: bool) -> None:
    """List the walkthroughs and their steps, with the state of each step's committed GPU record."""
    from walkthroughs.evidence import load_committed
    from walkthroughs.step import registry, steps

    records = load_committed()
    if as_json:
        rows = []
        for step in steps().values():
            status, message = record_state(step, records)
            row = {"id": step.id, "walkthrough": step.walkthrough, "title": step.title}
            rows.append({**row, "status": status, "message": message})
        emit_json("steps", rows)
        return
    for walkthrough in registry().values():
        print_rows([(walkthrough.id, walkthrough.title)], [""])
        states = [record_state(step, records) for step in walkthrough.steps]
        cells = [(s.id, s.title, said) for s, (_, said) in zip(walkthrough.steps, states, strict=True)]
        print_rows(cells, [COLOURS[status] for status, _ in states], indent=2)


@click.command("run")
@click.argument("targets", nargs=-1, metavar="[STEP|WALKTHROUGH]...")
@click.option("--all", "everything", is_flag=True, help="Run every step.")
@backend_option
@click.option("--jobs", type=click.IntRange(min=1), default=None, help="Steps at once.  [default: up to 2]")
@click.option("--no-cache", is_flag=True, help="Run again what ran already.")
@click.option("--against", type=click.Choice(["vllm"]), help="Run the same input through vLLM's own compiled op, too.")
@click.option("--against-python", metavar="PATH", help="The Python that has it.  [default: this one]")
@json_option
@reports_errors
def run_command(
    targets: tuple[str, ...],
    everything: bool,
    backend: str,
    jobs: int | None,
    no_cache: bool,
    against: str | None,
    against_python: str | None,
    as_json: bool,
) -> None:
    """Run steps and check what they observe. Exit 1 if a check fails.

    With --against: exit 2 if vLLM, its PyTorch or a GPU is not there.
    """
    if everything == bool(targets):
        raise click.UsageError("name a STEP or a WALKTHROUGH, or give --all. `pagewalk list` lists them.")
    if against_python and not against:
        raise click.UsageError("--against-python needs --against")
    if against_python and not shutil.which(against_python):
        raise click.UsageError(f"--against-python {against_python}: no such program")
    from walkthroughs.step import registry, select, steps

    known = {**registry(), **steps()}
    for target in targets:
        require_known("step or walkthrough", target, known, "pagewalk list")
    from walkthroughs.commands.against import chosen_comparisons, run_comparisons

    chosen = select(targets or tuple(registry()))
    comparisons = chosen_comparisons(chosen, against) if against else []
    results = run_steps(chosen, backend, jobs=jobs, use_cache=not no_cache, show=not as_json)
    results += run_comparisons(comparisons, against_python, show=not as_json)
    if as_json:
        emit_json("steps", [as_row(evidence) for evidence in results])
    passed, missing = (sum(e.status == status for e in results) for status in ("passed", "unavailable"))
    failed = len(results) - passed - missing
    notice(f"{passed} passed, {failed} failed" + (f", {missing} unavailable" if missing else ""))
    if failed or missing:
        raise SystemExit(1 if failed else 2)


def run_all(backend: str) -> list[Evidence]:
    """Run every step, from the cache where it is fresh, saying on stderr what did not pass."""
    from walkthroughs.step import steps

    return run_steps(list(steps().values()), backend, show=False)


def run_steps(
    steps: Sequence[Step], backend: str, *, jobs: int | None = None, use_cache: bool = True, show: bool
) -> list[Evidence]:
    """Run steps on a backend. `show` prints each on stdout as it ends; otherwise only failures, on stderr."""
    from walkthroughs.runner import run_many

    results = []
    jobs = jobs or min(2, os.cpu_count() or 1)
    for evidence in run_many(steps, chosen_backend(backend), jobs=jobs, use_cache=use_cache):
        results.append(evidence)
        if show or evidence.status != "passed":
            report(evidence, to_stderr=not show)
    return results


def chosen_backend(name: str) -> Backend:
    """Choose the backend and say on stderr which and why. Raises BackendUnavailable."""
    from kernels.kernel import cuda_unavailable
    from walkthroughs.runner import choose

    backend = choose(name)
    why = "as asked" if name == backend.name else cuda_unavailable() or "a GPU works"
    notice(f"backend: {backend.name} ({why})")
    return backend


def report(evidence: Evidence, *, to_stderr: bool) -> None:
    """Print one result, what it measured, and every check of it that did not hold."""
    status = click.style(f"{evidence.status:7}", fg=COLOURS[evidence.status])
    numbers = f"{len(evidence.checks)} checks, max error {evidence.max_error:.2g}, {evidence.seconds:.2f} s"
    click.echo(f"{status}  {evidence.step}  {numbers}", err=to_stderr)
    for row in evidence.measured:
        click.echo(f"          {row.name}: {row.text}{row.note and f'; {row.note}'}", err=to_stderr)
    if evidence.status == "passed":
        return
    if evidence.message:
        click.echo(f"          {evidence.message}", err=to_stderr)
    for check in evidence.checks:
        if not check.passed:
            click.echo(
                f"          {check.name}: observed {check.observed}, expected {check.expected}"
                f" (max error {check.max_error:.2g}, tolerance {check.tolerance:.2g})",
                err=to_stderr,
            )


def as_row(evidence: Evidence) -> dict[str, Any]:
    """Return one result as its JSON row: the record, with its step as the id."""
    fields = evidence.to_json()
    del fields["schema"]
    return {"id": fields.pop("step"), **fields}
