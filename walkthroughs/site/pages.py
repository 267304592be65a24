"""Writes the committed page stubs: a page a walkthrough, a concept, an idea to compare and a film, and their indexes.

A stub holds its title, one line for search engines and one directive; a test says when a stub is missing or stale.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from annotate.files import write_text

from . import drill_pages, fix_pages, machine_page
from .model import SiteData, Summary

FOLDERS = ("walkthroughs", "concepts", "compare", "play", "drills")
OWN_FOLDERS = (*FOLDERS, machine_page.FOLDER, fix_pages.FOLDER)
_NOTE = "# Written by walkthroughs/site/pages.py; edit the catalog or the concept table instead."


# Columns of code need the whole width of the page.
_WIDE = "hide: [navigation, toc]\n"


def _stub(title: str, body: str, more: str = "") -> str:
    # A JSON string is a YAML string too, whatever the title holds.
    return f"---\n{_NOTE}\ntitle: {json.dumps(title, ensure_ascii=False)}\n{more}---\n{body}\n"


def stubs(data: SiteData) -> dict[str, str]:
    """Every stub by its path under `docs`, with its text."""
    pages = {
        "walkthroughs/index.md": _stub(
            "Walkthroughs",
            "# Walkthroughs\n\nEach step shows some lines, runs them, and checks what it saw. Start at the first.\n\n"
            "::: walkthroughs folder=.",
        ),
        "concepts/index.md": _stub(
            "Concepts",
            "# Concepts\n\nOne page for each idea, with its lines in every source and in every port.\n\n"
            "::: concepts folder=.",
        ),
        "compare/index.md": _stub(
            "Compare",
            "# Compare\n\nOne page for each idea that several kernels have: upstream's lines and ours, kernel beside "
            "kernel. Lines that do the same light up in all of them.\n\n::: compares folder=.",
        ),
    }
    pages["play/index.md"] = _stub(
        "Play",
        "# Play\n\nA recorded run of each kernel, to step through: its code on both sides, the block table and the "
        "pool, the lanes of a warp, and every value.\n\n::: films folder=.",
    )
    entries: Mapping[str, Mapping[str, Summary]] = {"walkthrough": data.walkthroughs(), "concept": data.concepts()}
    for kind, table in entries.items():
        for entry in table.values():
            pages[f"{kind}s/{entry.id}.md"] = _stub(entry.title.replace("`", ""), f"::: {kind} {entry.id} root=..")
    for entry in data.compares().values():
        title = f"Compare: {entry.title.replace('`', '')}"
        pages[f"compare/{entry.id}.md"] = _stub(title, f"::: compare {entry.id} root=..", _WIDE)
    for entry in data.films().values():
        pages[f"play/{entry.id}.md"] = _stub(f"Play: {entry.id}", f"::: player {entry.id} root=..", _WIDE)
    for path, (title, body) in drill_pages.stubs(data.drills()).items():
        pages[path] = _stub(title, body)
    return pages


def outdated(docs_dir: Path, data: SiteData | None = None) -> list[Path]:
    """The stubs that are missing, differ from what they should be, or belong to nothing any more."""
    wanted = _wanted(docs_dir, data)
    wrong = [path for path, text in wanted.items() if not path.is_file() or path.read_text("utf-8") != text]
    folders = FOLDERS if data else OWN_FOLDERS
    extra = [path for folder in folders for path in (docs_dir / folder).glob("*.md") if path not in wanted]
    return sorted([*wrong, *extra])


def write_all(docs_dir: Path, data: SiteData | None = None) -> list[Path]:
    """Write every stub that is outdated and delete those that belong to nothing; answers the paths touched."""
    texts = _wanted(docs_dir, data)
    changed = outdated(docs_dir, data)
    for path in changed:
        if path in texts:
            write_text(path, texts[path])
        else:
            path.unlink()
    return changed


def _wanted(docs_dir: Path, data: SiteData | None) -> dict[Path, str]:
    """Every stub's text; machine code and kernels to fix belong to the project alone, whatever content is shown."""
    texts = stubs(data) if data else {**stubs(_project()), **machine_page.stubs(), **fix_pages.stubs()}
    return {docs_dir / name: text for name, text in texts.items()}


def _project() -> SiteData:
    from .loader import project_data

    return project_data()
