"""Which kernels there are, and which concepts are one idea in several of them, read from `ideas.toml`.

Concepts are told apart finely: `block-table-walk` and `paged-2d-table` have pages of their own. An idea joins them
again, so that one idea can be shown in all kernels side by side.
"""

from __future__ import annotations

import tomllib
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

from annotate.concepts import concept, concepts
from annotate.errors import AnnotateError
from annotate.spans import Span

TABLE = Path(__file__).with_name("ideas.toml")
LISTS = ("symbols", "ports", "shared", "variants")


@dataclass(frozen=True)
class KernelEntry:
    """One kernel. Upstream it is `symbols` of `source` (None: it is our own).

    `ports` are our files, relative to the repository; `shared` are files of several kernels, in which this one has the
    concepts that it has upstream; `variants` do the same in another form.
    """

    id: str
    title: str
    source: str | None
    symbols: tuple[str, ...]
    ports: tuple[str, ...]
    shared: tuple[str, ...]
    variants: tuple[str, ...]

    def holds(self, span: Span) -> bool:
        """Whether upstream lines belong to this kernel."""
        return span.source == self.source and span.symbol in self.symbols


@dataclass(frozen=True)
class Idea:
    """Concepts that are one idea. `id` is that of one of them.

    `says` is what all its kernels do, `differs` how they differ; `part` is the heading under which a list of ideas has
    it. An idea that the table does not name has none of the three.
    """

    id: str
    title: str
    differs: str
    concepts: tuple[str, ...]
    part: str = ""
    says: str = ""


@dataclass(frozen=True)
class Tables:
    """Both tables, by id, in the order of the file."""

    kernels: Mapping[str, KernelEntry]
    ideas: Mapping[str, Idea]


@cache
def tables() -> Tables:
    """Return every kernel and idea. Raises AnnotateError if the file is malformed."""
    return read_tables(TABLE.read_text(encoding="utf-8"), concepts())


def idea_of(name: str) -> Idea:
    """Return the idea that a concept belongs to; if no idea names it, one of that concept alone.

    Raises UnknownName for what is no concept.
    """
    entry = concept(name)
    joined = next((idea for idea in tables().ideas.values() if name in idea.concepts), None)
    return joined or Idea(name, entry.title, "", (name,))


def read_tables(text: str, known: Collection[str]) -> Tables:
    """Parse the two tables (TOML); `known` are the concepts' ids. Raises AnnotateError naming the entry at fault."""
    data = tomllib.loads(text)
    if unknown := data.keys() - {"kernels", "ideas"}:
        raise AnnotateError(f"ideas.toml: no such table {', '.join(sorted(unknown))}")
    kernels = {name: _kernel(name, body) for name, body in data.get("kernels", {}).items()}
    ideas: dict[str, Idea] = {}
    part = ""
    for name, body in data.get("ideas", {}).items():
        ideas[name] = _idea(name, body, known, part)
        part = ideas[name].part
    _once("file", {name: (*kernel.ports, *kernel.variants) for name, kernel in kernels.items()})
    _once("concept", {name: idea.concepts for name, idea in ideas.items()})
    _once("symbol", {name: tuple(f"{k.source} {symbol}" for symbol in k.symbols) for name, k in kernels.items()})
    return Tables(MappingProxyType(kernels), MappingProxyType(ideas))


def _kernel(name: str, body: Any) -> KernelEntry:
    _keys(f"kernel {name}", body, {"title"}, {"source", *LISTS})
    found = KernelEntry(
        id=name,
        title=body["title"],
        source=body.get("source"),
        **{key: tuple(body.get(key, ())) for key in LISTS},
    )
    if (found.source is None) != (not found.symbols):
        raise AnnotateError(f"kernel {name}: a source and its symbols go together")
    if not found.symbols and not found.ports:
        raise AnnotateError(f"kernel {name}: it has neither symbols upstream nor a port")
    return found


def _idea(name: str, body: Any, known: Collection[str], part: str) -> Idea:
    _keys(f"idea {name}", body, {"title", "concepts", "differs"}, {"part", "says"})
    says, differs = (" ".join(body.get(key, "").split()) for key in ("says", "differs"))
    found = Idea(name, body["title"], differs, tuple(body["concepts"]), body.get("part", part), says)
    for member in found.concepts:
        if member not in known:
            raise AnnotateError(f"idea {name}: {member!r} is no concept")
    if name not in found.concepts:
        raise AnnotateError(f"idea {name}: its id must be that of one of its concepts")
    return found


def _keys(what: str, body: Any, needed: set[str], optional: set[str]) -> None:
    if not isinstance(body, dict) or not needed <= body.keys():
        raise AnnotateError(f"{what}: needs {', '.join(sorted(needed))}")
    if unknown := body.keys() - needed - optional:
        raise AnnotateError(f"{what}: no such key {', '.join(sorted(unknown))}")


def _once(what: str, groups: Mapping[str, tuple[str, ...]]) -> None:
    """Refuse what stands twice, in one entry or in two."""
    owner: dict[str, str] = {}
    for name, members in groups.items():
        for member in members:
            if member in owner:
                raise AnnotateError(f"{what} {member} stands in {owner[member]} and in {name}")
            owner[member] = name
