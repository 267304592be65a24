"""`pagewalk site build` and `site serve`: run the steps, write the generated pages, let mkdocs build.

mkdocs is another process, never an import, so that its successor can take its place.
A step that fails, or that could not run, fails the build.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import click

from walkthroughs.commands.output import emit_json, json_option, notice, reports_errors
from walkthroughs.commands.sources import fetch_one, missing
from walkthroughs.commands.steps import backend_option, run_all

ROOT = Path(__file__).resolve().parents[2]
HOST = "127.0.0.1"


@click.group("site")
def site_command() -> None:
    """Build the site, or serve it."""


@site_command.command("build")
@backend_option
@json_option
@reports_errors
def build_command(backend: str, as_json: bool) -> None:
    """Run the steps, write the generated pages and build the site into site/."""
    for pin in missing():
        notice(f"{pin.id} is not here: its panes will say so. Fetch it with: pagewalk fetch {pin.id}")
    prepare(backend)
    command = mkdocs("build", "--strict")
    code = subprocess.run(command, cwd=ROOT, env=mkdocs_environment(), stdout=sys.stderr, check=False).returncode
    if as_json:
        status = "failed" if code else "passed"
        emit_json("sites", [{"id": "site", "status": status, "path": str(ROOT / "site")}])
    if code:
        raise SystemExit(1)
    notice(f"The site is in {ROOT / 'site'}")


@site_command.command("serve")
@click.option("--watch", is_flag=True, help="Build again when a page changes.")
@click.option("--port", type=click.IntRange(1, 65535), default=8000, show_default=True)
@backend_option
@json_option
@reports_errors
def serve_command(port: int, watch: bool, backend: str, as_json: bool) -> None:
    """Fetch what is missing, do what build does, and serve the site on 127.0.0.1 until Ctrl-C."""
    failed = [pin.id for pin in missing() if fetch_one(pin)["status"] != "passed"]
    if failed:
        notice(f"Going on without {', '.join(failed)}: the pages say so where its lines would stand.")
    prepare(backend)
    chosen = free_port(port)
    if chosen != port:
        notice(f"Port {port} is in use, taking {chosen}.")
    url = f"http://{HOST}:{chosen}/"
    if as_json:
        emit_json("sites", [{"id": "site", "status": "passed", "url": url}])
    notice(f"Pagewalk is at {url} as soon as the build below ends. Ctrl-C stops it.")
    sys.stdout.flush()
    # This process becomes mkdocs, so that Ctrl-C and a kill reach the server itself.
    os.chdir(ROOT)
    reload = "--livereload" if watch else "--no-livereload"
    command = mkdocs("serve", "--strict", reload, "-a", f"{HOST}:{chosen}")
    os.execve(command[0], command, mkdocs_environment())


def prepare(backend: str) -> None:
    """Run every step, from the cache where fresh, and write the generated pages; exit 1 if a step fails."""
    from walkthroughs.site.pages import write_all

    results = run_all(backend)
    bad = [evidence.step for evidence in results if evidence.status != "passed"]
    if bad:
        raise click.ClickException(f"{len(bad)} of {len(results)} steps did not pass: {', '.join(bad)}")
    notice(f"{len(results)} steps passed. Writing pages.")
    write_all(ROOT / "docs")


def mkdocs(*args: str) -> list[str]:
    """Return the command line of mkdocs under this Python."""
    return [sys.executable, "-m", "mkdocs", *args]


def mkdocs_environment() -> dict[str, str]:
    """Return this process's environment, less mkdocs-material's notice on what mkdocs 2 will change."""
    return {**os.environ, "NO_MKDOCS_2_WARNING": "1"}


def free_port(wanted: int) -> int:
    """Return `wanted` if it can be bound on 127.0.0.1, else a free port that the system picks."""
    for port in (wanted, 0):
        with socket.socket() as probe:
            # As the server does: a port whose last connections are still closing counts as free.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((HOST, port))
            except OSError:
                continue
            number: int = probe.getsockname()[1]
            return number
    raise click.ClickException(f"no port on {HOST} can be bound")
