"""The site for a stick: built so that it works from `file://`, and packed into one zip that is the same each time.

It is the same `mkdocs.yml` with a few settings laid over it. The theme's offline plugin puts the search index into a
script; our own `iframe-worker.js` runs the search where no worker may start, so nothing comes from another host.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import tempfile
import zipfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from annotate import sources
from annotate.errors import SourceUnavailable
from annotate.sources import Pin

ROOT = Path(__file__).resolve().parents[2]
TOP = "pagewalk-site"
SHIM = "assets/js/iframe-worker.js"
# A server's files: from the disk nobody asks for them, and two of them hold the time of the build.
LEFT_OUT = {"404.html", "sitemap.xml", "sitemap.xml.gz"}
INSTANT = re.compile(r"^ +- navigation\.instant\S*[ \t]*\n", re.MULTILINE)
# The first moment that a zip can name.
MOMENT = (1980, 1, 1, 0, 0, 0)


def configure(folder: Path, docs: Path, site: Path, base: Path = ROOT / "mkdocs.yml") -> Path:
    """Write a configuration into `folder` that builds `base` for `file://`, from `docs` into `site`: its path."""
    # From the disk, the theme's instant navigation ends the stream that starts the theme's own parts.
    whole = INSTANT.sub("", base.read_text("utf-8"))
    (folder / "base.yml").write_text(whole, "utf-8")
    settings = {
        "INHERIT": str(folder / "base.yml"),
        "docs_dir": str(docs),
        "site_dir": str(site),
        # A copy has no address.
        "site_url": "",
        "use_directory_urls": False,
        "plugins": ["search", "offline"],
        # The plugin leaves it at this one, instead of another host's, by its name.
        "extra": {"polyfills": [SHIM]},
        "watch": [],
    }
    path = folder / "mkdocs.yml"
    # JSON is YAML too.
    path.write_text(json.dumps(settings, indent=1), "utf-8")
    return path


@dataclass(frozen=True)
class Packed:
    """What a zip holds: how many files, and its size in bytes."""

    files: int
    size: int


def pack(site: Path, target: Path, readme: str, licence: str) -> Packed:
    """Zip a built site, with `README.txt` and `LICENSE.txt` beside it; the same site gives the same bytes.

    Written beside `target` first, then renamed. Raises OSError.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    contents = {"README.txt": readme.encode(), "LICENSE.txt": licence.encode()}
    paths = {path.relative_to(site).as_posix(): path for path in site.rglob("*") if path.is_file()}
    names = sorted({*contents, *(name for name in paths if name not in LEFT_OUT and not name.endswith(".map"))})
    handle, aside = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with os.fdopen(handle, "wb") as out, zipfile.ZipFile(out, "w") as archive:
            for name in names:
                data = contents[name] if name in contents else paths[name].read_bytes()
                archive.writestr(_entry(name), data, zipfile.ZIP_DEFLATED, 9)
        Path(aside).chmod(0o644)
        Path(aside).replace(target)
    except BaseException:
        Path(aside).unlink(missing_ok=True)
        raise
    return Packed(len(names), target.stat().st_size)


def _entry(name: str) -> zipfile.ZipInfo:
    entry = zipfile.ZipInfo(f"{TOP}/{name}", MOMENT)
    entry.create_system = 3  # as on Unix, wherever it is made
    entry.external_attr = 0o644 << 16
    return entry


def revision(root: Path = ROOT) -> str:
    """The commit of a checkout, and whether it was changed since; says so where there is none."""
    try:
        commit = _git(root, "rev-parse", "HEAD")
        changed = _git(root, "status", "--porcelain", "--untracked-files=no")
    except (OSError, subprocess.CalledProcessError):
        return "an unknown revision (not a git checkout)"
    return f"commit {commit}{', with changes that are not committed' if changed else ''}"


def _git(root: Path, *args: str) -> str:
    done = subprocess.run(
        ["git", *args], cwd=root, capture_output=True, text=True, check=True, stdin=subprocess.DEVNULL
    )
    return done.stdout.strip()


def here() -> tuple[list[Pin], list[Pin]]:
    """The pinned sources whose lines the pages show, and those that are not on this machine."""
    shown, absent = [], []
    for pin in sources.pins().values():
        try:
            sources.open_tree(pin.id)
        except SourceUnavailable:
            absent.append(pin)
        else:
            shown.append(pin)
    return shown, absent


def readme(made_from: str, shown: Iterable[Pin], absent: Iterable[Pin] = ()) -> str:
    """The text of README.txt: what this is, what it was made from, and under which licences its parts are."""
    parts = [
        "Pagewalk: an offline copy of the site\n",
        "Open index.html in a browser. No server and no network are needed; the search works too.\n",
        f"Made from Pagewalk, {made_from}, by `pagewalk export site`.\n",
        "Licences\n",
        "  Pagewalk's own pages and code: Apache-2.0 (LICENSE.txt).",
        *(
            f"  Excerpts of {pin.name} {pin.revision}, in the code panes: {pin.licence}, copyright of its authors.\n"
            f"    The whole: {pin.link('')}"
            for pin in shown
        ),
        *(f"  No line of {pin.name} {pin.revision} is in this copy; its panes link to them." for pin in absent),
        "  The theme, Material for MkDocs, and the lunr search in it: MIT.",
    ]
    return "\n".join(parts) + "\n"
