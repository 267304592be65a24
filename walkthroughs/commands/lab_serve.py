"""`pagewalk lab serve`: vLLM's own server on loopback, asked and read from outside, and gone when it is over."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import click

from walkthroughs.commands.lab import reports_lab_errors
from walkthroughs.commands.output import console, emit_json, json_option, notice
from walkthroughs.lab import environment
from walkthroughs.lab.phases import Outcome, phases
from walkthroughs.lab.process import limits_for
from walkthroughs.lab.server import HOST, NEEDED, Server, serving


@click.command("serve")
@click.option("--no-ask", is_flag=True, help="Run at once, without asking for a prediction first.")
@click.option(
    "--port", type=click.IntRange(0, 65535), default=0, help="The server's port on 127.0.0.1; 0: any free one."
)
@click.option(
    "--seconds", type=click.FloatRange(1), default=300.0, show_default=True, help="Time to get ready, at most."
)
@click.option("--python", type=click.Path(path_type=Path), help="A Python of your own that has vLLM.")
@click.option("--model", type=click.Path(path_type=Path), help="The folder of a model of your own.")
@click.option("--record", is_flag=True, help="Keep what was read as the record that the site shows.")
@json_option
@reports_lab_errors
def serve_command(
    no_ask: bool, port: int, seconds: float, python: Path | None, model: Path | None, record: bool, as_json: bool
) -> None:
    """Ask for the blocks in use, then start vLLM's server on loopback and read its metrics.

    Each reading of the blocks in use must fit how far the requests are: exactly, where there is one request. The
    server ends with this command, whatever happens. Exit 1 where a reading does not fit.
    """
    from walkthroughs import runner
    from walkthroughs.commands.lab_serve_sitting import ServeSitting
    from walkthroughs.lab import serve_record

    lab = environment.find(python=python, model=model)
    environment.need_memory(NEEDED)
    asks = sys.stdin.isatty() and sys.stdout.isatty() and not (no_ask or as_json)
    sitting, sent, started = ServeSitting(console(stderr=as_json), asks, quiet=as_json), phases(), time.perf_counter()

    def meanwhile(server: Server) -> None:
        notice("The server is starting: about half a minute." + (" Predict meanwhile." if asks else ""))
        sitting.open(sent[0], server)
        notice("Waiting for the server.")

    with serving(lab, port, limits_for(lab, seconds), meanwhile=meanwhile) as server:
        notice(f"It answers on {HOST}:{server.port}.")
        sitting.run(sent, server)
        versions, device = serve_record.about(lab) if record else ({}, "")
    took, outcomes = time.perf_counter() - started, sitting.outcomes
    if as_json:
        emit_json("phases", [as_row(outcome) for outcome in outcomes])
    readings = sum(len(outcome.samples) for outcome in outcomes)
    wrong = sum(len(outcome.problems) for outcome in outcomes)
    notice(f"{readings} readings, problems: {wrong}, {took:.0f} s; the server is gone.")
    if guesses := sitting.guesses.asked:
        notice(f"You predicted {sitting.guesses.right} of {guesses} numbers.")
    if record:
        serve_record.write(serve_record.made(outcomes, versions, device, runner.now(), took), serve_record.RECORD)
        notice(f"wrote {serve_record.RECORD.name}")
    if wrong:
        raise SystemExit(1)


def as_row(outcome: Outcome) -> dict[str, Any]:
    """A phase for `--json`."""
    return {
        "id": outcome.phase.id,
        "status": outcome.status,
        "title": outcome.phase.title,
        "hits": outcome.hits,
        "left": outcome.left,
        "problems": outcome.problems,
        "samples": [
            {"seconds": round(sample.seconds, 3), "generated": sample.generated, "used": sample.used,
             "low": sample.low, "high": sample.high}
            for sample in outcome.samples
        ],
    }  # fmt: skip
