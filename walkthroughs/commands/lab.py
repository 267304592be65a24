"""`pagewalk lab`: predict how many KV blocks a real vLLM engine holds, then watch it.

`run` asks first, runs the engine in a process of its own, draws the blocks in use as they come, and holds every step
against the prediction. `list` shows the scenarios; it needs no engine.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec

import click

from walkthroughs.commands.output import (
    console,
    emit_json,
    json_option,
    notice,
    print_rows,
    reports_errors,
    require_known,
)

if TYPE_CHECKING:
    from walkthroughs.lab.watch import About, Result

P = ParamSpec("P")
ELSEWHERE = {"serve": "lab_serve"}


class LabGroup(click.Group):
    """A group that imports those of its commands that have a module of their own only on use."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names, in the order in which a reader meets them."""
        return [*self.commands, *ELSEWHERE]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return one command, or None for an unknown name."""
        if cmd_name in ELSEWHERE:
            module = importlib.import_module(f"walkthroughs.commands.{ELSEWHERE[cmd_name]}")
            command: click.Command = getattr(module, f"{cmd_name}_command")
            return command
        return super().get_command(ctx, cmd_name)


def reports_lab_errors(command: Callable[P, None]) -> Callable[P, None]:
    """Turn the lab's errors into one line on stderr: exit 2 where something is to be made or named, else 1."""

    @functools.wraps(command)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> None:
        from walkthroughs.lab.errors import LabError, LabMissing, NotAsNamed, PortInUse

        try:
            command(*args, **kwargs)
        except (LabMissing, NotAsNamed, PortInUse) as error:
            raise click.UsageError(str(error)) from error
        except LabError as error:
            raise click.ClickException(str(error)) from error

    return reports_errors(wrapper)


@click.group("lab", cls=LabGroup)
def lab_command() -> None:
    """Predict the blocks of a real vLLM engine, then watch it.

    `make live-lab` makes the engine's environment: vLLM's CPU build, about 2.5 GB, in some 3 minutes.
    """


@lab_command.command("list")
@json_option
@reports_lab_errors
def list_command(as_json: bool) -> None:
    """List the scenarios, and whether the engine's environment is here."""
    from walkthroughs.lab import environment
    from walkthroughs.lab.errors import LabMissing
    from walkthroughs.lab.predict import predict
    from walkthroughs.lab.scenarios import scenarios

    try:
        environment.find()
        lacking = ""
    except LabMissing as error:
        lacking = str(error)
    rows = []
    for scenario in scenarios().values():
        moments = predict(scenario)
        most = max(moment.used for moment in moments)
        rows.append({"id": scenario.id, "status": "unavailable" if lacking else "passed", "title": scenario.title,
                     "block_size": scenario.block_size, "steps": len(moments), "most_blocks": most})  # fmt: skip
    if as_json:
        emit_json("scenarios", rows)
    else:
        cells = [(str(row["id"]), f"{row['steps']} steps, up to {row['most_blocks']} blocks", str(row["title"]))
                 for row in rows]  # fmt: skip
        print_rows(cells, [""] * len(cells))
    if lacking:
        notice(lacking)


@lab_command.command("run")
@click.argument("names", nargs=-1, metavar="[SCENARIO]...")
@click.option("--no-ask", is_flag=True, help="Run at once, without asking for a prediction first.")
@click.option("--pace", type=click.FloatRange(0, 10), default=0.0, metavar="S", help="Seconds to stay at each step.")
@click.option("--seconds", type=click.FloatRange(1), default=600.0, show_default=True, help="The engine's time in all.")
@click.option("--python", type=click.Path(path_type=Path), help="A Python of your own that has vLLM.")
@click.option("--model", type=click.Path(path_type=Path), help="The folder of a model of your own.")
@click.option("--record", is_flag=True, help="Keep what was seen as the record that the site shows.")
@json_option
@reports_lab_errors
def run_command(
    names: tuple[str, ...], no_ask: bool, pace: float, seconds: float, python: Path | None, model: Path | None,
    record: bool, as_json: bool,
) -> None:  # fmt: skip
    """Ask for the blocks in use, then run a real engine and compare every step.

    SCENARIO is one of `pagewalk lab list`; without any, all of them run. Exit 1 where a step differs from the
    prediction.
    """
    from walkthroughs import runner
    from walkthroughs.commands.lab_sitting import Sitting
    from walkthroughs.lab import environment
    from walkthroughs.lab.process import limits_for
    from walkthroughs.lab.record import RECORD, made, write
    from walkthroughs.lab.scenarios import scenarios
    from walkthroughs.lab.steps import write_steps
    from walkthroughs.lab.watch import About, grouped, watch

    known = scenarios()
    for name in names:
        require_known("scenario", name, known, "pagewalk lab list")
    if record and names:
        raise click.UsageError("a record holds every scenario: leave the names out")
    lab = environment.find(python=python, model=model)
    environment.need_memory()
    chosen = grouped([known[name] for name in names] or known.values())
    asks = sys.stdin.isatty() and sys.stdout.isatty() and not (no_ask or as_json)
    sitting = Sitting(console(stderr=as_json), asks, pace, quiet=as_json)
    about, started = About(), time.perf_counter()
    notice("The engine is loading: about half a minute." + (" Predict meanwhile." if asks else ""))
    with contextlib.closing(watch(lab, chosen, about, limits_for(lab, seconds))) as steps:
        sitting.run(chosen, steps)
    took = time.perf_counter() - started
    results = sitting.results
    if as_json:
        emit_json("scenarios", [as_row(result, about) for result in results])
    counted = sum(len(result.seen) for result in results)
    wrong = sum(len(result.mismatches) for result in results)
    notice(f"{counted} steps, {wrong} mismatches, {took:.0f} s; {about.device}, vLLM {about.versions.get('vllm', '?')}")
    if guesses := sitting.guesses.asked:
        notice(f"You predicted {sitting.guesses.right} of {guesses} moments.")
    failed: list[str] = []
    if record:
        write(made(results, about, runner.now(), took))
        failed = write_steps()
        notice("\n".join(failed) or f"wrote {RECORD.name} and the records of the steps that read it")
    if failed or any(result.status != "passed" for result in results):
        raise SystemExit(1)


def as_row(result: Result, about: About) -> dict[str, Any]:
    """A scenario for `--json`."""
    return {
        "id": result.scenario.id,
        "status": result.status,
        "title": result.scenario.title,
        "block_size": result.scenario.block_size,
        "steps": len(result.seen),
        "mismatches": [str(mismatch) for mismatch in result.mismatches],
        "predicted": [moment.used for moment in result.predicted],
        "observed": [seen.used for seen in result.seen],
        "tables": [{name: list(held.blocks) for name, held in seen.requests.items()} for seen in result.seen],
        "device": about.device,
        "versions": about.versions,
    }
