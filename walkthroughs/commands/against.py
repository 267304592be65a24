"""`pagewalk run STEP --against vllm`: which steps can be compared, and how the result is told.

The row of the other op stands behind the step's own, under the id `STEP@vllm`. What is missing for it is always said,
with what to do; exit 2, never a silent skip.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from walkthroughs.commands.output import notice
from walkthroughs.commands.steps import COLOURS

if TYPE_CHECKING:
    from walkthroughs.against import Comparison
    from walkthroughs.evidence import Evidence
    from walkthroughs.step import Step


def chosen_comparisons(steps: Sequence[Step], against: str) -> list[Comparison]:
    """Return the comparison of each step; if one has none, a usage error (exit 2) names the steps that have."""
    from walkthroughs.against import comparisons

    known = comparisons(against)
    without = [step.id for step in steps if step.id not in known]
    if without:
        more = f" and {len(without) - 1} more of the chosen steps have" if len(without) > 1 else " has"
        raise click.UsageError(
            f"--against {against}: {without[0]}{more} no comparison with it. Steps that have one: {', '.join(known)}."
        )
    return [known[step.id] for step in steps]


def run_comparisons(chosen: Sequence[Comparison], python: str | None, *, show: bool) -> list[Evidence]:
    """Run comparisons. `show` prints each on stdout as it ends; otherwise only what did not pass, on stderr."""
    from walkthroughs.against import run

    results = []
    for comparison in chosen:
        notice(f"{comparison.step}: the same input through {comparison.against}'s own op; loading it takes a while")
        evidence = run(comparison, python=python)
        results.append(evidence)
        if show or evidence.status != "passed":
            report(evidence, to_stderr=not show)
    return results


def report(evidence: Evidence, *, to_stderr: bool) -> None:
    """Print who ran and where, every check with what was observed, and the verdict or what is missing."""
    status = click.style(f"{evidence.status:7}", fg=COLOURS[evidence.status])
    who = ", ".join(f"{name} {version}" for name, version in evidence.versions.items())
    lines = [f"{status}  {evidence.step}  {who}, {evidence.device}" if who else f"{status}  {evidence.step}"]
    for check in evidence.checks:
        wrong = "" if check.passed else f", expected {check.expected} (max error {check.max_error:.2g})"
        lines.append(f"          {check.name}: {check.observed}{wrong}")
    for line in [*lines, f"          {evidence.message}"]:
        click.echo(line, err=to_stderr)
