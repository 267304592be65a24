"""The films as files that a page can load: `docs/assets/films/FILM.js`, made when the site is prepared.

A file is one line of JavaScript that registers a packed film, so that it also loads from `file://`. It holds the trace
(its events as columns, which pack to half), the scene, the regions, and the port's own lines; no upstream text.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from annotate.concepts import concepts
from walkthroughs import packing
from walkthroughs.digest import ROOT
from walkthroughs.stepper.films import Film, films, join, record

if TYPE_CHECKING:
    from kernels.simt.trace import Trace

FOLDER = ROOT / "docs" / "assets" / "films"
LIMIT = 160_000
"""The most bytes that a film's file may have; a test holds every film to it."""


def columns(rows: list[list[Any]]) -> dict[str, Any]:
    """A trace's event rows by kind and field: `kinds` is a letter an event, `threads` a number an event.

    The nth row of a kind has the nth item of each of that kind's columns.
    """
    found: dict[str, list[list[Any]]] = {}
    for letter, _, *fields in rows:
        for column, item in zip(found.setdefault(letter, [[] for _ in fields]), fields, strict=True):
            column.append(item)
    return {"kinds": "".join(row[0] for row in rows), "threads": [row[1] for row in rows], "columns": found}


def content(wanted: Film) -> dict[str, Any]:
    """What the player gets of a film, as JSON values."""
    trace = record(wanted)
    head = json.loads(trace.to_json(1 << 30))
    joined = join(wanted)
    regions = {
        path: [[r.first, r.last, r.id] for r in sorted(found, key=lambda r: r.last - r.first)]
        for path, found in joined.files.items()
    }
    known = concepts()
    titles = {region.id: known[region.id].title for found in joined.files.values() for region in found}
    return {
        "film": {"id": wanted.id, "title": wanted.title, "case": wanted.case, "focus": wanted.focus},
        "trace": {**head, "events": columns(head["events"])},
        "scene": asdict(wanted.scene),
        "regions": regions,
        "titles": titles,
        "lines": port_lines(trace),
    }


def port_lines(trace: Trace) -> dict[str, dict[int, str]]:
    """The text of every line of our own files that a trace stands at, by path and line."""
    wanted: dict[str, set[int]] = {}
    for event in trace.events:
        if event.kind in ("line", "call"):
            wanted.setdefault(trace.files[trace.functions[event.function].file].path, set()).add(event.line)
    found = {}
    for path, numbers in wanted.items():
        if (ROOT / path).is_file():
            lines = (ROOT / path).read_text("utf-8").split("\n")
            found[path] = {number: lines[number - 1].strip() for number in sorted(numbers)}
    return found


def script(wanted: Film) -> str:
    """A film's file: registers its gzip in base64 under its id. The same text each time."""
    return packing.script("pagewalkFilms", wanted.id, content(wanted))


def write_all(folder: Path = FOLDER, wanted: Mapping[str, Film] | None = None) -> list[Path]:
    """Write every film's file that is missing or differs, and delete those of no film; answers the paths touched."""
    chosen = films() if wanted is None else wanted
    return packing.write_all(folder, {name: script(film) for name, film in chosen.items()})
