"""`pagewalk sources` and `pagewalk fetch`: the pinned upstream sources, and bringing them here.

An optional source that cannot be had is reported and no failure, unless it was asked for by name.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

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
    from annotate.sources import Pin, Progress

STAGES = {
    "wait": "another process is fetching it, waiting",
    "find": "asking the package index",
    "download": "downloading",
    "verify": "checking the digest",
    "unpack": "keeping the files of interest",
    "copy": "copying the files of interest",
}


def state(pin: Pin) -> dict[str, Any]:
    """Return one source as a JSON row: `passed` when it is here and complete, else `unavailable`."""
    from annotate.errors import AnnotateError
    from annotate.sources import open_tree

    row = {"id": pin.id, "status": "passed", "message": "", "optional": pin.optional, "licence": pin.licence}
    row["drift"] = pin.drift
    try:
        tree = open_tree(pin.id)
    except AnnotateError as error:
        return {**row, "status": "unavailable", "message": str(error)}
    files = len(tree.paths())
    copy = ", a copy of your own" if tree.marked_copy else ""
    return {**row, "message": f"{files} files{copy}", "files": files, "marked_copy": tree.marked_copy}


def missing() -> list[Pin]:
    """Return the pins, other than optional ones, whose source is not here."""
    from annotate.sources import pins

    return [pin for pin in pins().values() if not pin.optional and state(pin)["status"] != "passed"]


@click.command("sources")
@json_option
@reports_errors
def sources_command(as_json: bool) -> None:
    """List the pinned upstream sources, and whether they are here."""
    from annotate.sources import every_pin

    rows = [state(pin) for pin in every_pin().values()]
    if as_json:
        emit_json("sources", rows)
        return
    print_rows(
        [(row["id"], row["licence"], describe(row)) for row in rows],
        ["green" if row["status"] == "passed" else "yellow" for row in rows],
    )


def describe(row: dict[str, Any]) -> str:
    """Return a source's state in a few words."""
    if row["status"] == "passed":
        return str(row["message"])
    if row["drift"]:
        return "not here: pagewalk fetch --drift (only drift looks into it)"
    return "not here: pagewalk fetch" + (f" {row['id']} (optional)" if row["optional"] else "")


@click.command("fetch")
@click.argument("names", nargs=-1, metavar="[SOURCE]...")
@click.option(
    "--from",
    "from_dir",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Take one SOURCE from a copy that you have; pages say so.",
)
@click.option("--drift", is_flag=True, help="Also the releases that only drift looks into (about 340 MB to download).")
@json_option
@reports_errors
def fetch_command(names: tuple[str, ...], from_dir: Path | None, drift: bool, as_json: bool) -> None:
    """Fetch the pinned upstream sources, and verify them.

    SOURCE is an id that `pagewalk sources` lists, such as vllm@0.24.0. Without one, all that the site needs are
    fetched.
    """
    from annotate.sources import every_pin

    known = every_pin()
    for name in names:
        require_known("source", name, known, "pagewalk sources")
    if from_dir is not None and len(names) != 1:
        raise click.UsageError("--from takes exactly one SOURCE, the one that DIR holds.")
    chosen = [*names] or [name for name, pin in known.items() if not pin.drift]
    if drift:
        chosen += [name for name, pin in known.items() if pin.drift and name not in chosen]
    rows = [fetch_one(known[name], from_dir) for name in chosen]
    if as_json:
        emit_json("sources", rows)
    if any(row["status"] != "passed" and (names or not row["optional"]) for row in rows):
        raise SystemExit(1)


def fetch_one(pin: Pin, from_dir: Path | None = None) -> dict[str, Any]:
    """Fetch one source with progress on stderr; return its JSON row, whose message says what went wrong."""
    from annotate.errors import AnnotateError
    from annotate.sources import fetch

    before = state(pin)
    if before["status"] == "passed" and from_dir is None:
        notice(f"{pin.id}: here already")
        return before
    try:
        with progress_bar(pin.id) as progress:
            fetch(pin, from_dir=from_dir, progress=progress)
    except (AnnotateError, OSError) as error:
        optional = " (optional: everything else works without it)" if pin.optional else ""
        notice(f"{error}{optional}")
        return {**before, "status": "unavailable" if pin.optional else "error", "message": str(error)}
    after = state(pin)
    notice(f"{pin.id}: fetched and verified, {after['message']}")
    return after


@contextmanager
def progress_bar(label: str) -> Iterator[Progress]:
    """Give a callback (stage, done, of how much): a bar on a terminal, a few plain lines elsewhere."""
    screen = console(stderr=True)
    if not screen.is_terminal:
        yield plain_progress(label)
        return
    from rich.progress import BarColumn, DownloadColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bars

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Bars(*columns, console=screen, transient=True) as bar:
        tasks = {}

        def progress(stage: str, done: int, total: int | None) -> None:
            if stage not in tasks:
                tasks[stage] = bar.add_task(f"{label}: {STAGES.get(stage, stage)}", total=None)
                for earlier in tasks.values():
                    bar.update(earlier, visible=earlier == tasks[stage])
            # Only a download is counted in bytes; the other stages are short.
            if stage == "download":
                bar.update(tasks[stage], completed=done, total=total)

        yield progress


def plain_progress(label: str) -> Progress:
    """Return a callback that writes a line when a stage begins, and at each quarter of a download."""
    said: set[tuple[str, int]] = set()

    def progress(stage: str, done: int, total: int | None) -> None:
        quarter = 4 * done // total if stage == "download" and total else 0
        if (stage, quarter) in said:
            return
        said.add((stage, quarter))
        amount = f", {done / 1e6:.1f} of {total / 1e6:.1f} MB" if stage == "download" and total else ""
        notice(f"{label}: {STAGES.get(stage, stage)}{amount}")

    return progress
