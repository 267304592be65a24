"""`pagewalk lab serve`: vLLM's own server on loopback, asked and read from outside, and gone when it is over."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from walkthroughs.commands.lab import reports_lab_errors
from walkthroughs.commands.output import console, emit_json, json_option, notice
from walkthroughs.lab import environment
from walkthroughs.lab.process import Limits
from walkthroughs.lab.server import BLOCK_SIZE, NUM_BLOCKS, Outcome, phases, serving

SHOWN = 5
NEEDED = 5 * 2**29
"""Bytes of memory that must be free: the server has two processes, and holds about 1.3 GiB."""


@click.command("serve")
@click.option(
    "--port", type=click.IntRange(0, 65535), default=0, help="The server's port on 127.0.0.1; 0: any free one."
)
@click.option(
    "--seconds", type=click.FloatRange(1), default=300.0, show_default=True, help="Time to get ready, at most."
)
@click.option("--python", type=click.Path(path_type=Path), help="A Python of your own that has vLLM.")
@click.option("--model", type=click.Path(path_type=Path), help="The folder of a model of your own.")
@json_option
@reports_lab_errors
def serve_command(port: int, seconds: float, python: Path | None, model: Path | None, as_json: bool) -> None:
    """Start vLLM's server on loopback, send it requests, and read its metrics meanwhile.

    Each reading of the blocks in use must fit how far the requests are: exactly, where there is one request. The
    server ends with this command, whatever happens. Exit 1 where a reading does not fit.
    """
    lab = environment.find(python=python, model=model)
    environment.need_memory(NEEDED)
    notice("The server is starting: about a minute.")
    outcomes = []
    with serving(lab, port, Limits(seconds=seconds)) as server:
        notice(f"It answers on 127.0.0.1:{server.port}.")
        for phase in phases():
            outcomes.append(server.run(phase))
            if not as_json:
                show(outcomes[-1])
    if as_json:
        emit_json("phases", [as_row(outcome) for outcome in outcomes])
    readings = sum(len(outcome.samples) for outcome in outcomes)
    wrong = sum(len(outcome.problems) for outcome in outcomes)
    notice(f"{readings} readings, problems: {wrong}; the server is gone.")
    if wrong:
        raise SystemExit(1)


def show(outcome: Outcome) -> None:
    """Print a phase: its requests, how many readings fit, and what did not."""
    screen = console()
    screen.print(f"\n{outcome.phase.title}", style="bold", markup=False)
    for ask in outcome.phase.asks:
        screen.print(f"  {ask.name}: {len(ask.prompt)} tokens in the prompt, generates {ask.generate}", markup=False)
    most = max((sample.used for sample in outcome.samples), default=0)
    exact = sum(sample.low == sample.high for sample in outcome.samples)
    fit = sum(sample.fits for sample in outcome.samples)
    screen.print(f"  blocks of {BLOCK_SIZE}, {NUM_BLOCKS - 1} in the pool; up to {most} in use", markup=False)
    style = "green" if outcome.status == "passed" else "bold red"
    screen.print(f"  {fit} of {len(outcome.samples)} readings fit, {exact} of them predicted exactly", style=style)
    screen.print(f"  {outcome.hits} tokens found in the prefix cache", markup=False)
    for problem in outcome.problems[:SHOWN]:
        screen.print(f"  MISMATCH {problem}", style="bold red", markup=False, soft_wrap=True)


def as_row(outcome: Outcome) -> dict[str, Any]:
    """A phase for `--json`."""
    return {
        "id": outcome.phase.id,
        "status": outcome.status,
        "title": outcome.phase.title,
        "hits": outcome.hits,
        "problems": outcome.problems,
        "samples": [
            {"seconds": round(sample.seconds, 3), "generated": sample.generated, "used": sample.used,
             "low": sample.low, "high": sample.high}
            for sample in outcome.samples
        ],
    }  # fmt: skip
