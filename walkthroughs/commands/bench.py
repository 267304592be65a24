"""`pagewalk bench`: measure the ladder and its peers on this machine's GPU, or show what was measured on another."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from walkthroughs.commands.output import emit_json, json_option, notice, reports_errors

if TYPE_CHECKING:
    from kernels.tuned.bench_record import Cell, Record

MEASURING = ("set", "only", "rung", "peer", "without", "also")


@click.command("bench")
@click.option("--set", "sets", multiple=True, metavar="SET", help="facts, matrix, goals, writer or host.")
@click.option("--only", multiple=True, metavar="PART", help="Cells whose id contains this.")
@click.option("--rung", multiple=True, metavar="RUNG", help="This rung only.")
@click.option("--peer", multiple=True, metavar="PEER", help="This peer only.")
@click.option("--without", multiple=True, metavar="NAME", help="Leave a rung or a peer out.")
@click.option("--also", multiple=True, metavar="MODULE", help="A module with PEERS of your own.")
@click.option("--plans", metavar="PLANS", help="Plans of the last rung: 1x4x3,2x8x3 (splits, warps, depth), or all.")
@click.option("--seconds", type=float, metavar="N", help="What is left after so many seconds is not measured.")
@click.option("--out", type=click.Path(path_type=Path, file_okay=False), help="Folder of the record.")
@click.option("--recorded", is_flag=True, help="Only show the record, also where there is a GPU.")
@json_option
@reports_errors
def bench_command(
    sets: tuple[str, ...], plans: str | None, seconds: float | None, out: Path | None, recorded: bool, as_json: bool,
    **named: tuple[str, ...],
) -> None:  # fmt: skip
    """Measure the ladder and its peers on a GPU, or show the record.

    With a GPU this measures decode attention, rung by rung, beside the peers that are installed: every kernel is held
    against float64, then timed by graph replay. Without one it shows the record that the site shows. Exit 1 where a
    kernel is wrong.
    """
    from kernels.kernel import cuda_unavailable
    from walkthroughs import bench, evidence

    folder = out or evidence.EVIDENCE
    reason = None if recorded else cuda_unavailable()
    code = 0
    if not recorded and reason is None:
        arguments = [part for name, values in {"set": sets, **named}.items() for value in values
                     for part in (f"--{name}", value)]  # fmt: skip
        arguments += ["--plans", plans] if plans else []
        arguments += ["--seconds", str(seconds)] if seconds is not None else []
        code = bench.main([*arguments, "--out", str(folder)], say=notice)
        if code == 2:
            raise SystemExit(2)
    elif reason:
        notice(f"not measured here: {reason}")
    try:
        record = bench.load(folder)
    except ValueError as error:
        raise click.ClickException(str(error)) from error
    show(record, sets, as_json)
    if code:
        raise SystemExit(code)


def show(record: Record, sets: tuple[str, ...], as_json: bool) -> None:
    """Print the record, or those of its sets that are named."""
    from kernels.tuned import bench_text, goals
    from kernels.tuned.bench_record import Record as Some
    from walkthroughs import bench

    if unknown := [name for name in sets if name not in record.sets]:
        notice(f"the record holds no set called {unknown[0]}; it has {', '.join(record.sets) or 'none'}")
    chosen = Some({name: made for name, made in record.sets.items() if not sets or name in sets})
    stale = {name: not bench.fresh(made) for name, made in chosen.sets.items()}
    if as_json:
        emit_json("cells", [as_row(name, cell, stale[name]) for name, made in chosen.sets.items()
                            for cell in made.cells])  # fmt: skip
        return
    if not record.sets:
        click.echo("No record is there yet: `make bench`, on a machine with a GPU, makes one.")
        return
    for line in [*bench_text.table(chosen, stale), *goals.lines(record)]:
        click.echo(line)


def as_row(name: str, cell: Cell, stale: bool) -> dict[str, Any]:
    """A cell for `--json`: failed where a kernel's output was wrong, stale where the code has changed since."""
    from dataclasses import asdict

    from kernels.tuned.bench_record import MEASURED, WRONG

    states = {row.state for row in cell.rows}
    status = "failed" if WRONG in states else "stale" if stale else "passed" if MEASURED in states else "unavailable"
    data = asdict(cell)
    return {**data, "id": f"{name}/{cell.id}", "status": status}
