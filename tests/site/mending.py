"""A small site of the real fix-the-kernel pages, a few of them, with the project's own theme, scripts and styles.

Where their links lead there are pages with nothing but the headings that are named.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from walkthroughs import step as catalog
from walkthroughs.drills import fix
from walkthroughs.site import fix_pages

ROOT = Path(__file__).resolve().parents[2]
HIDDEN = ("films", "drills")
FOLDER = fix_pages.FOLDER
SERVING = ROOT / "tests" / "walkthroughs" / "server" / "serving.py"


@dataclass(frozen=True)
class Served:
    """A server: its address, the key that its terminal shows ("" where code is not allowed), and the site's folder."""

    url: str
    key: str
    site: Path


@contextmanager
def serving(site: Path, *settings: str) -> Iterator[Served]:
    """Serve a folder with the live server; `settings` as serving.py has them."""
    command = [sys.executable, str(SERVING), str(site), *settings]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        said = json.loads(process.stdout.readline())
        yield Served(said["url"], said["key"], site)
    finally:
        process.terminate()
        process.wait(timeout=30)
        if process.stdout is not None:
            process.stdout.close()


def write_docs(docs: Path, names: Sequence[str]) -> None:
    """Fill a docs folder: an index, the pages of `names` with their neighbours, and what they link to."""
    shutil.copytree(ROOT / "docs" / "assets", docs / "assets", ignore=shutil.ignore_patterns(*HIDDEN))
    _write(docs / "index.md", "# A site of kernels to mend\n")
    links = "\n".join(f"* [{name}]({name}.md)" for name in names)
    _write(docs / FOLDER / "index.md", f"# Fix the kernel\n\n{links}\n")
    pages, tasks = fix_pages.stubs(), [task for task in fix.tasks().values() if task.name in names]
    for name in names:
        _write(docs / FOLDER / f"{name}.md", pages[f"{FOLDER}/{name}.md"])
    order = [task.name for task in fix.tasks().values()]
    for at in map(order.index, names):
        for name in {*order[max(at - 1, 0) : at + 2]} - {*names}:
            _write(docs / FOLDER / f"{name}.md", f"# {name}\n")
    for walk in {catalog.get(step).walkthrough for task in tasks for step in task.steps}:
        steps = (f"\n## {step.id} {{#step-{step.slug}}}\n" for step in catalog.registry()[walk].steps)
        _write(docs / "walkthroughs" / f"{walk}.md", "\n".join([f"# {walk}", *steps]))
    for name in {name for task in tasks for name in (task.shows, *task.item.concepts)}:
        _write(docs / "concepts" / f"{name}.md", f"# {name}\n")


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")


def build(docs: Path, site: Path, names: Sequence[str], **changes: Any) -> None:
    """Build it; strict, so a broken link raises."""
    from mkdocs.commands.build import build as build_site
    from mkdocs.config import load_config

    write_docs(docs, names)
    settings = load_config(
        str(ROOT / "mkdocs.yml"), docs_dir=str(docs), site_dir=str(site), strict=True, plugins=[], **changes
    )
    settings.nav = ["index.md", {"Fix the kernel": f"{FOLDER}/index.md"}]
    settings.not_in_nav = None
    settings.validation.nav.omitted_files = 0
    build_site(settings)
