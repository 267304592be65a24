"""The join table, read from `concepts.toml`: what a concept is called, what it means, where sources have it.

A concept ties together upstream anchors, the regions of our ports, steps and pages. Everything that shows a
line of code reaches it through a concept id.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

from annotate.errors import AnnotateError, UnknownName, nearest

TABLE = Path(__file__).with_name("concepts.toml")


@dataclass(frozen=True)
class Place:
    """Where a source has a concept: a symbol, a landmark in it (None: all of it), a file name if needed."""

    symbol: str
    landmark: str | None = None
    file: str | None = None


@dataclass(frozen=True)
class Concept:
    """One idea. `anchors` maps a source id to its places; `see_also` are ids of related concepts.

    `now` are the concepts that do this work where its own code has left.
    """

    id: str
    title: str
    summary: str
    anchors: Mapping[str, tuple[Place, ...]]
    see_also: tuple[str, ...]
    now: tuple[str, ...] = ()


@cache
def concepts() -> Mapping[str, Concept]:
    """Return every concept by id, in the table's order. Raises AnnotateError if the table is malformed."""
    return MappingProxyType(read_table(TABLE.read_text(encoding="utf-8")))


def concept(name: str) -> Concept:
    """Return one concept. Raises UnknownName with the nearest ids."""
    table = concepts()
    if name not in table:
        raise UnknownName("concept", name, nearest(name, table))
    return table[name]


def read_table(text: str) -> dict[str, Concept]:
    """Parse a concept table (TOML). Raises AnnotateError naming the concept and what is wrong with it."""
    table = {name: _concept(name, body) for name, body in tomllib.loads(text).items()}
    for entry in table.values():
        for key, others in (("see_also", entry.see_also), ("now", entry.now)):
            for other in others:
                if other not in table:
                    raise AnnotateError(f"concept {entry.id}: {key} names {other!r}, which is no concept")
    return table


def _concept(name: str, body: Any) -> Concept:
    if not isinstance(body, dict) or not {"title", "summary"} <= body.keys():
        raise AnnotateError(f"concept {name}: a title and a summary are needed")
    if unknown := body.keys() - {"title", "summary", "anchors", "see_also", "now"}:
        raise AnnotateError(f"concept {name}: no such key {', '.join(sorted(unknown))}")
    anchors = {
        source: tuple(_place(name, place) for place in places) for source, places in body.get("anchors", {}).items()
    }
    return Concept(
        id=name,
        title=body["title"],
        summary=" ".join(body["summary"].split()),
        anchors=MappingProxyType(anchors),
        see_also=tuple(body.get("see_also", ())),
        now=tuple(body.get("now", ())),
    )


def _place(name: str, place: Any) -> Place:
    if not isinstance(place, dict) or "symbol" not in place or place.keys() - {"symbol", "landmark", "file"}:
        raise AnnotateError(f"concept {name}: an anchor is {{symbol, landmark?, file?}}, not {place!r}")
    return Place(place["symbol"], place.get("landmark"), place.get("file"))
