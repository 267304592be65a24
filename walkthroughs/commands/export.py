"""`pagewalk export tour`, `notebook` and `site`: what a reader takes along.

Each writes whole files or none, and says on stderr where they are and what is special about them.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from walkthroughs.commands.output import emit_json, json_option, notice, reports_errors, require_known
from walkthroughs.commands.steps import backend_option

if TYPE_CHECKING:
    from kernels.kernel import Backend
    from walkthroughs.step import Walkthrough

ROOT = Path(__file__).resolve().parents[2]
FOLDER = click.Path(file_okay=False, path_type=Path)
SITE = Path("pagewalk-site.zip")


@click.group("export")
def export_command() -> None:
    """Take it along: tours for an editor, notebooks, the site on a stick."""


@export_command.command("tour")
@click.argument("walkthroughs", nargs=-1, metavar="[WALKTHROUGH]...")
@click.option("--source", metavar="SOURCE", help="Only tours through this source.  [default: all]")
@click.option("--output", type=FOLDER, default=Path(".tours"), show_default=True, help="The folder to write to.")
@click.option("--anywhere", is_flag=True, help="For any revision: each line is found by its pattern alone.")
@json_option
@reports_errors
def tour_command(
    walkthroughs: tuple[str, ...], source: str | None, output: Path, anywhere: bool, as_json: bool
) -> None:
    """Write CodeTour files, for a checkout of the upstream source in VS Code.

    One a walkthrough, or one a source where a walkthrough has several. Where the source is fetched, each line has a
    pattern too; those are upstream's text, so keep such a file to yourself.
    """
    from annotate.sources import pins
    from walkthroughs.export import tour
    from walkthroughs.export.prose import ExportError

    if source is not None:
        require_known("source", source, pins(), "pagewalk sources")
    walks = chosen(walkthroughs)
    for walk in walks if walkthroughs else ():
        if not tour.sources_of(walk) or source not in (None, *tour.sources_of(walk)):
            has = ", ".join(tour.sources_of(walk)) or "none: all its lines are our own"
            raise click.UsageError(f"{walk.id} has no lines in {source or 'an upstream source'}. Its sources: {has}.")
    try:
        found = tour.tours(walks, source=source, anywhere=anywhere)
    except ExportError as error:
        raise click.ClickException(str(error)) from error
    rows = []
    for made in found:
        path = tour.write(made, output)
        steps = len(made.data["steps"])
        notice(f"{path}: {steps} steps through {made.source}")
        if made.notice:
            notice(f"  {made.notice}")
        row = {"id": made.id, "status": "passed", "path": str(path), "source": made.source, "ref": made.data.get("ref")}
        rows.append({**row, "steps": steps, "patterns": made.patterns, "message": made.notice})
    if as_json:
        emit_json("tours", rows)


@export_command.command("notebook")
@click.argument("walkthroughs", nargs=-1, metavar="[WALKTHROUGH]...")
@click.option("--output", type=FOLDER, default=Path("notebooks"), show_default=True, help="The folder to write to.")
@click.option("--no-run", is_flag=True, help="Leave the outputs out.")
@backend_option
@json_option
@reports_errors
def notebook_command(walkthroughs: tuple[str, ...], output: Path, no_run: bool, backend: str, as_json: bool) -> None:
    """Write notebooks that run from a checkout, with their outputs.

    Exit 1 if a cell fails, which is how a check that does not hold shows; that notebook is not written.
    """
    from walkthroughs.commands.steps import chosen_backend

    walks = chosen(walkthroughs)
    where = None if no_run else chosen_backend(backend)
    rows = [notebook_row(walk, output, where) for walk in walks]
    if as_json:
        emit_json("notebooks", rows)
    failed = sum(row["status"] != "passed" for row in rows)
    if failed:
        notice(f"{failed} of {len(rows)} notebooks failed and were not written.")
        raise SystemExit(1)


def notebook_row(walk: Walkthrough, output: Path, backend: Backend | None) -> dict[str, Any]:
    """Write one notebook, run on a backend (None: not run); answers its JSON row."""
    from walkthroughs.export import notebook
    from walkthroughs.export.prose import ExportError

    row = {"id": walk.id, "path": None, "backend": backend and backend.name, "message": ""}
    book = notebook.compose(walk)
    try:
        if backend is not None:
            book = notebook.execute(book, backend.name)
    except notebook.NotebookFailed as error:
        notice(f"{walk.id}: {error}")
        return {**row, "status": "failed", "message": str(error)}
    except ExportError as error:
        raise click.ClickException(str(error)) from error
    path = notebook.write(book, walk, output)
    notice(f"{path}: {len(walk.steps)} steps, {f'run on {backend.name}' if backend else 'not run'}")
    return {**row, "status": "passed", "path": str(path)}


@export_command.command("site")
@click.option(
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    default=SITE,
    show_default=True,
    help="The zip to write.",
)
@backend_option
@json_option
@reports_errors
def offline_command(output: Path, backend: str, as_json: bool) -> None:
    """Run the steps, build the site for file:// and pack it into one zip.

    Unpack it anywhere, open index.html: no server, no network, and the search works.
    """
    from walkthroughs.commands.site import mkdocs, mkdocs_environment, prepare
    from walkthroughs.export import offline

    shown, absent = offline.here()
    for pin in absent:
        notice(f"{pin.id} is not here: its panes will say so. Fetch it with: pagewalk fetch {pin.id}")
    prepare(backend)
    with tempfile.TemporaryDirectory(prefix="pagewalk-") as folder:
        site = Path(folder, "site")
        config = offline.configure(Path(folder), ROOT / "docs", site)
        command = mkdocs("build", "--strict", "-f", str(config))
        code = subprocess.run(command, cwd=ROOT, env=mkdocs_environment(), stdout=sys.stderr, check=False).returncode
        if code:
            if as_json:
                emit_json("sites", [{"id": "site", "status": "failed", "path": None}])
            raise SystemExit(1)
        made = offline.pack(
            site, output, offline.readme(offline.revision(), shown, absent), (ROOT / "LICENSE").read_text("utf-8")
        )
    notice(f"{output}: {made.files} files, {made.size / 1e6:.1f} MB")
    if as_json:
        emit_json(
            "sites", [{"id": "site", "status": "passed", "path": str(output), "files": made.files, "bytes": made.size}]
        )


def chosen(names: tuple[str, ...]) -> list[Walkthrough]:
    """The walkthroughs of these ids, or all; exit 2 with the nearest names for one that nobody knows."""
    from walkthroughs.step import registry

    known = registry()
    for name in names:
        require_known("walkthrough", name, known, "pagewalk list")
    return [known[name] for name in dict.fromkeys(names)] or list(known.values())
