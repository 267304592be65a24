"""The architecture page: what every module says about itself in its opening docstring, folder by folder.

Read from the syntax tree; nothing is imported or run.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

from .inline import label

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("annotate", "kernels", "walkthroughs")


def modules(root: Path = ROOT) -> Iterator[tuple[str, str]]:
    """Every module of the three packages with its opening docstring, folder by folder."""
    for package in PACKAGES:
        for path in sorted((root / package).rglob("*.py"), key=lambda path: (path.parent, path.name)):
            doc = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
            if doc:
                yield path.relative_to(root).as_posix(), doc


def lines(root: Path = ROOT) -> list[str]:
    """The page's Markdown: a heading a folder, an entry a module."""
    out: list[str] = []
    folder = ""
    for path, doc in modules(root):
        head, _, name = path.rpartition("/")
        if head != folder:
            folder = head
            out += ["", f"## `{head}/` {{#{head.replace('/', '-')}}}", ""]
        text = label(" ".join(doc.split("\n\n")[0].split()))
        out.append(f"* {text}" if name == "__init__.py" else f"* `{name}`: {text}")
    return [*out, ""]
