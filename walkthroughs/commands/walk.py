"""`pagewalk walk`: step through a walkthrough in the terminal, with values; without a terminal it is printed.

Textual is imported only where there is a terminal to show it on.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import click

from walkthroughs.commands.output import emit_json, json_option, notice, reports_errors, require_known

if TYPE_CHECKING:
    from walkthroughs.step import Walkthrough
    from walkthroughs.stepper.progress import Progress


@click.command("walk")
@click.argument("target", required=False, metavar="[WALKTHROUGH[/STEP]]")
@click.option("--print", "printed", is_flag=True, help="Print the walk as text, as without a terminal.")
@click.option("--restart", is_flag=True, help="Forget where you left: of the walkthrough named, or of all.")
@json_option
@reports_errors
def walk_command(target: str | None, printed: bool, restart: bool, as_json: bool) -> None:
    """Step through a walkthrough: code, values, the warp and the pool.

    Without a name: where you left, else the first. The key ? lists the keys. It runs on the SIMT machine and needs no
    GPU. Without a terminal, or with --print, the walk is printed: prose, lines, and what happened at each.
    """
    from walkthroughs.step import registry, steps
    from walkthroughs.stepper import progress

    walkthroughs, known = registry(), steps()
    if target is not None:
        require_known("step or walkthrough", target, {**walkthroughs, **known}, "pagewalk list")
    path = progress.state_file()
    left, remark = progress.load(path)
    if restart:
        left.forget(target.split("/")[0] if target else "")
    if not (printed or as_json) and is_screen():
        from walkthroughs.stepper.app import Stepper
        from walkthroughs.stepper.session import Session

        Stepper(Session(walkthroughs, left), first_step(target, left, walkthroughs), path, remark).run()
        return
    if remark:
        notice(remark)
    if restart and (said := progress.save(path, left)):
        notice(said)
    from walkthroughs.stepper import printed as paper

    chosen = target or first_step(None, left, walkthroughs).split("/")[0]
    wanted = [known[chosen]] if chosen in known else walkthroughs[chosen].steps
    if as_json:
        emit_json("steps", [paper.row(step) for step in wanted])
        return
    if target is None:
        notice(f"walkthrough: {chosen} (`pagewalk list` lists them)")
    for step in wanted:
        paper.show(step)


def is_screen() -> bool:
    """Whether there is a terminal that can show more than lines of text. Textual draws on stderr."""
    return os.environ.get("TERM") != "dumb" and all(s.isatty() for s in (sys.stdin, sys.stdout, sys.stderr))


def first_step(target: str | None, left: Progress, walkthroughs: dict[str, Walkthrough]) -> str:
    """The step to open: the one that is named, else where the reader left, else the first."""
    if target is not None and "/" in target:
        return target
    walkthrough = target or left.last.split("/")[0]
    if walkthrough not in walkthroughs:
        walkthrough = next(iter(walkthroughs))
    known = [step.id for step in walkthroughs[walkthrough].steps]
    last = left.steps.get(walkthrough, "")
    return last if last in known else known[0]
