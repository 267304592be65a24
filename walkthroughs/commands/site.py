"""`pagewalk site build` and `site serve`: run the steps, write the generated pages, let mkdocs build, serve the result.

mkdocs is another process, never an import, so that its successor can take its place. A step that fails, or that could
not run, fails the build. `serve` builds in another process, too: it never opens a GPU itself, so that nothing which
breaks one can break the server.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from walkthroughs.commands.output import emit_json, json_option, notice, reports_errors
from walkthroughs.commands.sources import fetch_one, missing
from walkthroughs.commands.steps import backend_option, run_all

if TYPE_CHECKING:
    from walkthroughs.server.app import Live, Settings
    from walkthroughs.server.watch import Snapshot

ROOT = Path(__file__).resolve().parents[2]
ALLOWED = (
    "Code is allowed (--allow-code): what you type into the fix-the-kernel pages runs on this machine, with your "
    "rights. It can read, change and delete whatever you can. Run nothing there that you would not run in a terminal. "
    "Only who has this address can send code, so keep it to yourself; it is good until the server stops:"
)
WATCHED = ("docs", "annotate", "kernels", "walkthroughs", "mkdocs.yml")


@click.group("site")
def site_command() -> None:
    """Build the site, or serve it."""


@site_command.command("build")
@backend_option
@click.option("--into", type=click.Path(path_type=Path), help="The folder to build into.  [default: site/]")
@click.option("--address", hidden=True, help="The address that the site will have.")
@json_option
@reports_errors
def build_command(backend: str, into: Path | None, address: str | None, as_json: bool) -> None:
    """Run the steps, write the generated pages and build the site into site/."""
    for pin in missing():
        notice(f"{pin.id} is not here: its panes will say so. Fetch it with: pagewalk fetch {pin.id}")
    prepare(backend)
    folder = into.resolve() if into else ROOT / "site"
    with tempfile.TemporaryDirectory(prefix="pagewalk-") as scratch:
        chosen = ("-f", str(configuration(Path(scratch), folder, address))) if into or address else ()
        command = mkdocs("build", "--strict", *chosen)
        code = subprocess.run(command, cwd=ROOT, env=mkdocs_environment(), stdout=sys.stderr, check=False).returncode
    if as_json:
        status = "failed" if code else "passed"
        emit_json("sites", [{"id": "site", "status": status, "path": str(folder), **backend_said(backend)}])
    if code:
        raise SystemExit(1)
    notice(f"The site is in {folder}")


@site_command.command("serve")
@click.option("--watch", is_flag=True, help="Build again when a page changes.")
@click.option("--port", type=click.IntRange(1, 65535), default=8000, show_default=True)
@click.option(
    "--allow-code",
    is_flag=True,
    help="Let the fix-the-kernel pages run the code that is typed into them. It runs on this machine with your rights: "
    "it can do whatever you can, such as read and delete your files. Only a page with this server's key may send it. "
    "Off unless you ask for it.",
)
@backend_option
@json_option
@reports_errors
def serve_command(port: int, watch: bool, allow_code: bool, backend: str, as_json: bool) -> None:
    """Fetch what is missing, do what build does, and serve the site on 127.0.0.1 until Ctrl-C.

    Every step has a Run button then: it runs here, on the GPU or on the SIMT machine. Code of your own does not run,
    unless you allow it.
    """
    from walkthroughs.server.serve import HOST, bind, serve, stoppable

    with stoppable() as stop, tempfile.TemporaryDirectory(prefix="pagewalk-") as folder:
        failed = [pin.id for pin in missing() if fetch_one(pin)["status"] != "passed"]
        if failed:
            notice(f"Going on without {', '.join(failed)}: the pages say so where its lines would stand.")
        listening = bind(port)
        number = listening.getsockname()[1]
        if number != port:
            notice(f"Port {port} is in use, taking {number}.")
        url = f"http://{HOST}:{number}/"
        builds = Builds(Path(folder), url, backend)
        first = builds.build()
        if first is None:
            raise click.ClickException("the site was not built: the reason is above")
        settings = live_settings(listening, first, watch, allow_code)
        desk = code_address(url, settings)
        if as_json:
            emit_json("sites", [{"id": "site", "status": "passed", "url": url, **({"code": desk} if desk else {})}])
        notice(f"Pagewalk is at {url} and runs steps on {first['device']}. Ctrl-C stops it.")
        if desk:
            notice(f"{ALLOWED}\n{desk}")
        sys.stdout.flush()
        stop.serving = True
        serve(listening, settings, builds.watch if watch else None)


def code_address(url: str, settings: Settings) -> str:
    """Where the reader's code is taken, with the key behind the `#`, which a browser sends nowhere; or ""."""
    return f"{url}drills/fix/#code={settings.code.key}" if settings.code else ""


def live_settings(listening: socket.socket, built: dict[str, Any], watch: bool, allow_code: bool = False) -> Settings:
    """What the server is told: the folder, the steps of the catalog, the backend that the build found."""
    from walkthroughs.server.app import Registry, Settings
    from walkthroughs.server.code import Code
    from walkthroughs.server.guards import hosts_of
    from walkthroughs.server.process import Limits
    from walkthroughs.server.serve import new_token

    return Settings(
        site=Path(built["path"]),
        token=new_token(),
        hosts=hosts_of(listening.getsockname()[1]),
        backend=built["backend"],
        device=built["device"],
        registry=Registry.of_catalog(),
        limits=Limits.of(built["backend"]),
        rebuilds=watch,
        code=Code.of_bank() if allow_code else None,
    )


class Builds:
    """Builds of the site, each by `site build` in a process group of its own and into a new folder."""

    def __init__(self, folder: Path, url: str, backend: str) -> None:
        self.folder = folder
        self.url = url
        self.backend = backend
        self.count = 0
        self.places = [ROOT / name for name in WATCHED]
        self.known: Snapshot | None = None

    def build(self, stop: threading.Event | None = None) -> dict[str, Any] | None:
        """The row of the build's answer, with its folder, backend and device; None if it failed or was stopped."""
        from walkthroughs.server.watch import snapshot

        # What changes while the first build goes on is built again after it.
        self.known = self.known or snapshot(self.places)
        into = self.folder / str(self.count)
        self.count += 1
        command = [sys.executable, "-m", "walkthroughs.cli", "site", "build", "--json", "--backend", self.backend]
        command += ["--into", str(into), "--address", self.url]
        with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, start_new_session=True) as process:
            try:
                while process.poll() is None and not (stop and stop.is_set()):
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        process.wait(0.2)
            finally:
                if process.poll() is None:
                    # mkdocs and the workers that run steps are in the group.
                    os.killpg(process.pid, signal.SIGKILL)
            said = process.stdout.read() if process.stdout else ""
        row: dict[str, Any] = json.loads(said)["sites"][0] if process.returncode == 0 else {}
        return row or None

    def watch(self, app: Live, stop: threading.Event) -> None:
        """Build again after each change of a page or of the code behind it, and serve what was built."""
        from walkthroughs.server.watch import watch

        assert self.known is not None, "the first build looked"

        def rebuild() -> None:
            notice("Something has changed: building again.")
            built = self.build(stop)
            if built:
                app.pages.replace(Path(built["path"]))
                notice("The new pages are served.")
            elif not stop.is_set():
                notice("The build failed: the pages stay as they were.")

        watch(self.places, self.known, rebuild, stop)


def prepare(backend: str) -> None:
    """Run every step, from the cache where fresh, and write the generated pages; exit 1 if a step fails."""
    from walkthroughs.site.drill_files import write_all as write_drills
    from walkthroughs.site.pages import write_all
    from walkthroughs.stepper.film_files import write_all as write_films

    results = run_all(backend)
    bad = [evidence.step for evidence in results if evidence.status != "passed"]
    if bad:
        raise click.ClickException(f"{len(bad)} of {len(results)} steps did not pass: {', '.join(bad)}")
    notice(f"{len(results)} steps passed. Writing pages.")
    write_all(ROOT / "docs")
    write_films()
    write_drills()


def backend_said(name: str) -> dict[str, str]:
    """The backend that was chosen, and its device, for the answer."""
    from walkthroughs import runner

    chosen = runner.choose(name).name
    return {"backend": chosen, "device": runner.device(chosen)[0]}


def configuration(scratch: Path, into: Path, address: str | None) -> Path:
    """Write a configuration for mkdocs that is the project's own but for the folder and the address."""
    changes: dict[str, object] = {"INHERIT": str(ROOT / "mkdocs.yml")}
    # Folders are taken from where a configuration lies; what is watched is for mkdocs's own server.
    changes |= {"docs_dir": str(ROOT / "docs"), "site_dir": str(into), "watch": []}
    if address:
        # Instant navigation believes the site map, which holds the address that the site was built for.
        changes["site_url"] = address
    path = scratch / "mkdocs.yml"
    path.write_text("".join(f"{name}: {json.dumps(value)}\n" for name, value in changes.items()), "utf-8")
    return path


def mkdocs(*args: str) -> list[str]:
    """Return the command line of mkdocs under this Python."""
    return [sys.executable, "-m", "mkdocs", *args]


def mkdocs_environment() -> dict[str, str]:
    """Return this process's environment, less mkdocs-material's notice on what mkdocs 2 will change."""
    return {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
