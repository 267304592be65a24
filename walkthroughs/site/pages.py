"""Writes the committed page stubs: a page a walkthrough, a concept and an idea to compare, and their indexes.

A stub holds its title, one line for search engines and one directive; a test says when a stub is missing or stale.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from annotate.files import write_text

from .model import SiteData, Summary

FOLDERS = ("walkthroughs", "concepts", "compare")
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
    entries: Mapping[str, Mapping[str, Summary]] = {"walkthrough": data.walkthroughs(), "concept": data.concepts()}
    for kind, table in entries.items():
        for entry in table.values():
            pages[f"{kind}s/{entry.id}.md"] = _stub(entry.title.replace("`", ""), f"::: {kind} {entry.id} root=..")
    for entry in data.compares().values():
        title = f"Compare: {entry.title.replace('`', '')}"
        pages[f"compare/{entry.id}.md"] = _stub(title, f"::: compare {entry.id} root=..", _WIDE)
    return pages


def outdated(docs_dir: Path, data: SiteData | None = None) -> list[Path]:
    """The stubs that are missing, differ from what they should be, or belong to nothing any more."""
    wanted = {docs_dir / name: text for name, text in stubs(data or _project()).items()}
    wrong = [path for path, text in wanted.items() if not path.is_file() or path.read_text("utf-8") != text]
    extra = [path for folder in FOLDERS for path in (docs_dir / folder).glob("*.md") if path not in wanted]
    return sorted([*wrong, *extra])


def write_all(docs_dir: Path, data: SiteData | None = None) -> list[Path]:
    """Write every stub that is outdated and delete those that belong to nothing; answers the paths touched."""
    texts = {docs_dir / name: text for name, text in stubs(data or _project()).items()}
    changed = outdated(docs_dir, data)
    for path in changed:
        if path in texts:
            write_text(path, texts[path])
        else:
            path.unlink()
    return changed


def _project() -> SiteData:
    from .loader import project_data

    return project_data()
