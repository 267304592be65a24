"""CodeTour files: a walkthrough as a tour through a checkout of the upstream source, in an editor.

A tour holds our words, line numbers and the values of the record. Only a tour that is made where the source was
fetched has patterns; those hold upstream text, and stay on the reader's disk.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from annotate import concepts, sources
from annotate.errors import SourceUnavailable
from annotate.files import write_text
from annotate.sources import Pin, SourceTree
from annotate.spans import Span
from walkthroughs import evidence
from walkthroughs.step import Step, Walkthrough, registry

from . import prose
from .patterns import pattern_for
from .prose import ExportError

FOLDER = Path(".tours")
# Longer than any line: an editor takes the line's end for it. Used where the source is not here to be measured.
BEHIND_THE_END = 1000


@dataclass(frozen=True)
class Tour:
    """One `.tour` file: its name, what is in it, and what is special about it (empty: nothing)."""

    id: str
    source: str
    file: str
    data: Mapping[str, Any]
    notice: str = ""

    @property
    def patterns(self) -> int:
        """How many steps have a pattern."""
        return sum("pattern" in step for step in self.data["steps"])


def sources_of(walkthrough: Walkthrough) -> list[str]:
    """The upstream sources of a walkthrough's steps, in the order in which it meets them."""
    return list(dict.fromkeys(step.source for step in walkthrough.steps if prose.places(step)))


def tours(
    chosen: Sequence[Walkthrough], *, source: str | None = None, anywhere: bool = False, cache: Path | None = None
) -> list[Tour]:
    """The tours of some walkthroughs, of one source only or of all.

    `anywhere`: without revision, line and selection, so that an editor finds each line by its pattern in whatever is
    checked out. Raises ExportError where that is asked for and the source is not here.
    """
    records = evidence.load_committed()
    made = []
    for walkthrough in chosen:
        for pin_id in sources_of(walkthrough):
            if source in (None, pin_id):
                made.append(_tour(walkthrough, pin_id, records, anywhere, _tree(pin_id, cache)))
    return made


def write(tour: Tour, folder: Path) -> Path:
    """Write a tour as a whole or not at all; answers its path. Raises OSError."""
    path = folder / tour.file
    write_text(path, json.dumps(tour.data, indent=2, ensure_ascii=False) + "\n")
    return path


def _tree(pin_id: str, cache: Path | None) -> SourceTree | None:
    try:
        return sources.open_tree(pin_id, cache)
    except SourceUnavailable:
        return None


def _tour(
    walkthrough: Walkthrough,
    pin_id: str,
    records: Mapping[str, evidence.Evidence],
    anywhere: bool,
    tree: SourceTree | None,
) -> Tour:
    if anywhere and tree is None:
        raise ExportError(f"a tour for any revision needs patterns, and {pin_id} is not here: pagewalk fetch {pin_id}")
    pin = sources.pins()[pin_id]
    mine = [step for step in walkthrough.steps if step.source == pin_id and prose.places(step)]
    steps = [entry for step in mine for entry in _entries(step, records.get(step.id), tree)]
    notice = _notice(pin, tree, steps)
    data: dict[str, Any] = {
        "title": _title(walkthrough, pin),
        "description": _description(walkthrough, mine, pin, notice),
    }
    if not anywhere:
        data["ref"] = ref_of(pin)
    if walkthrough.id == _first_of(pin_id):
        data["isPrimary"] = True
    kept = [_found_by_pattern(entry) for entry in steps] if anywhere else steps
    alone = sources_of(walkthrough) == [pin_id]
    name = walkthrough.id if alone else f"{walkthrough.id}-{pin_id}"
    return Tour(name, pin_id, f"{name}.tour", {**data, "steps": kept}, notice)


def ref_of(pin: Pin) -> str:
    """What git calls a pin's revision: the tag of a release, else the whole commit."""
    return pin.digest.removeprefix("git:") if pin.kind == "git" else f"v{pin.revision}"


def _first_of(pin_id: str) -> str:
    return next(walkthrough.id for walkthrough in registry().values() if pin_id in sources_of(walkthrough))


def _title(walkthrough: Walkthrough, pin: Pin) -> str:
    return f"{walkthrough.title.replace('`', '')} ({pin.name} {pin.revision})"


def _description(walkthrough: Walkthrough, mine: Sequence[Step], pin: Pin, notice: str) -> str:
    count = len(walkthrough.steps)
    parts = [
        prose.words(walkthrough.intro),
        f"{len(mine)} of the {count} steps of Pagewalk's walkthrough `{walkthrough.id}`: those that read {pin.id}. "
        "The values were observed in a port of these lines that runs.",
        notice,
    ]
    return "\n\n".join(part for part in parts if part)


def _notice(pin: Pin, tree: SourceTree | None, steps: Sequence[Mapping[str, Any]]) -> str:
    if tree is None:
        return (
            f"Made without {pin.id}: lines and selections hold at {ref_of(pin)} only, and there are no patterns. "
            f"For patterns: pagewalk fetch {pin.id}, then export again."
        )
    without = sum("pattern" not in step for step in steps)
    said = [f"{without} lines are not told apart by any pattern."] if without else []
    said += [f"Patterns are from your own copy of {pin.id}, not checked against the pin."] if tree.marked_copy else []
    return " ".join(said)


def _entries(step: Step, record: evidence.Evidence | None, tree: SourceTree | None) -> list[dict[str, Any]]:
    """A step of ours as steps of the tour: an editor selects one range at a time, and we often read several."""
    spans = prose.places(step)
    entries = []
    seen: set[str] = set()
    for number, span in enumerate(spans):
        concept = concepts.concept(span.concept)
        if number == 0:
            title, said = step.title.replace("`", ""), _first_words(step, spans, record)
        else:
            title = f"{step.title.replace('`', '')}: {prose.title_of(span.concept)}"
            said = "More of the same." if span.concept in seen else prose.words(concept.summary)
            said += f"\n\n{prose.link(span)}"
        seen.add(span.concept)
        entries.append({"title": title, **_place(span, tree), "description": said})
    return entries


def _place(span: Span, tree: SourceTree | None) -> dict[str, Any]:
    text = None if tree is None else tree.read(span.path).decode("utf-8")
    place: dict[str, Any] = {"file": span.path, "line": span.first}
    pattern = None if text is None else pattern_for(text, span.first)
    if pattern is not None:
        place["pattern"] = pattern
    end = BEHIND_THE_END if text is None else len(text.split("\n")[span.last - 1].rstrip("\r")) + 1
    place["selection"] = {
        "start": {"line": span.first, "character": 1},
        "end": {"line": span.last, "character": end},
    }
    return place


def _found_by_pattern(entry: Mapping[str, Any]) -> dict[str, Any]:
    if "pattern" not in entry:
        return dict(entry)
    return {name: value for name, value in entry.items() if name not in ("line", "selection")}


def _first_words(step: Step, spans: Sequence[Span], record: evidence.Evidence | None) -> str:
    """The description of a step: its prose, how far it is proven, what was seen, and where to go on."""
    standing = prose.standing(step, record)
    said = "; ".join(standing.words)
    more = len(spans) - 1
    rest = f" Its other lines: the next {f'{more} steps' if more > 1 else 'step'} of this tour." if more else ""
    parts = [
        prose.words(step.prose),
        f"**{said[0].upper()}{said[1:]}.**",
        "\n".join(prose.table(standing.rows)),
        standing.rows_from and f"{standing.rows_from}.",
        *prose.proven_by(step),
        f"{prose.link(spans[0])}. The port: `{step.port}`. Run it: `pagewalk run {step.id}`.{rest}",
    ]
    return "\n\n".join(part for part in parts if part)
