"""The bank on paper: CSV with the schedule, Markdown, and an Anki package that updates when it is imported again.

What has fresh numbers at each review has fixed ones here, an item's own.
"""

from __future__ import annotations

import csv
import io
import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from annotate.errors import AnnotateError
from kernels.errors import KernelError
from walkthroughs.drills.asking import Bank, fixed_seed, places
from walkthroughs.drills.item import Item, Point, Question, Solution
from walkthroughs.drills.log import NOTHING, Entry

# Anki knows a deck and a note type by these; another number would be another deck, beside the first.
DECK, MODEL = 1764460801, 1764460802
DECK_NAME = "Pagewalk"
ANKI_KINDS = ("recall", "compute", "find")
CSV_FIELDS = (
    "id", "kind", "level", "title", "question", "answer", "concepts", "steps", "claims", "after",
    "state", "due", "reviews", "lapses", "suspended",
)  # fmt: skip
STYLE = """.card { font: 18px/1.5 sans-serif; max-width: 42em; margin: 0 auto; text-align: left; }
code, pre { font-family: monospace; font-size: 0.9em; }
pre { white-space: pre-wrap; }
.where { font-size: 0.8em; opacity: 0.7; }"""


@dataclass(frozen=True)
class Leaf:
    """An item as it is exported: its question under its fixed seed, and the solution."""

    item: Item
    question: Question
    solution: Solution


def leaves(bank: Bank, kinds: Sequence[str] = ()) -> tuple[list[Leaf], dict[str, str]]:
    """Every item (of these kinds), and why some cannot be asked on this machine, by id."""
    found, absent = [], {}
    for item in bank.items().values():
        if kinds and item.kind not in kinds:
            continue
        try:
            question = bank.ask(item, fixed_seed(item))
            found.append(Leaf(item, question, bank.solve(question)))
        except (AnnotateError, KernelError) as error:
            absent[item.id] = str(error)
    return found, absent


def to_csv(found: Sequence[Leaf], entries: Mapping[str, Entry]) -> str:
    """One row an item, with how it stands."""
    out = io.StringIO()
    rows = csv.DictWriter(out, CSV_FIELDS, lineterminator="\n")
    rows.writeheader()
    for leaf in found:
        item, entry = leaf.item, entries.get(leaf.item.id, NOTHING)
        due = entry.card.due
        rows.writerow(
            {
                **{name: getattr(item, name) for name in ("id", "kind", "level", "title", "after")},
                **{name: " ".join(getattr(item, name)) for name in ("concepts", "steps", "claims")},
                "question": leaf.question.text,
                "answer": _answer(leaf.solution),
                "state": entry.card.state,
                "due": due.isoformat() if due else "",
                "reviews": entry.reviews,
                "lapses": entry.lapses,
                "suspended": int(entry.suspended),
            }
        )
    return out.getvalue()


def to_markdown(found: Sequence[Leaf]) -> str:
    """A page of questions, each with its answer behind a fold."""
    parts = ["# Pagewalk: drills"]
    kind = ""
    for leaf in found:
        if leaf.item.kind != kind:
            kind = leaf.item.kind
            parts.append(f"## {kind.capitalize()}")
        parts.append(f"### {leaf.item.title}\n\n`{leaf.item.id}`, level {leaf.item.level}")
        parts.append(leaf.question.text.strip())
        where = "\n".join(f"- `{place}`" for place in _places(leaf))
        parts.append(f"<details><summary>Answer</summary>\n\n{_answer(leaf.solution)}\n\n{where}\n\n</details>")
    return "\n\n".join(parts) + "\n"


def write_anki(path: Path, found: Sequence[Leaf], now: datetime) -> None:
    """Write an Anki package: a note an item, known by the item's id. Raises OSError; no half file is left."""
    import genanki

    deck = genanki.Deck(DECK, DECK_NAME)
    for leaf in found:
        fields = [leaf.item.title, _html(leaf.question.text), _html(_answer(leaf.solution)), _where(leaf)]
        tags = [f"pagewalk::{leaf.item.kind}", f"pagewalk::level-{leaf.item.level}"]
        deck.add_note(genanki.Note(_model(), fields, guid=guid(leaf.item), tags=tags))
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    os.close(handle)
    try:
        genanki.Package(deck).write_to_file(name, timestamp=now.timestamp())
        Path(name).chmod(0o644)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def guid(item: Item) -> str:
    """How Anki knows the note of an item: by nothing but the id."""
    import genanki

    made: str = genanki.guid_for("pagewalk", item.id)
    return made


def _model() -> Any:
    import genanki

    return genanki.Model(
        MODEL,
        "Pagewalk drill",
        fields=[{"name": name} for name in ("Title", "Question", "Answer", "Where")],
        templates=[
            {
                "name": "Drill",
                "qfmt": "<h3>{{Title}}</h3>{{Question}}",
                "afmt": '{{FrontSide}}<hr id="answer">{{Answer}}<div class="where">{{Where}}</div>',
            }
        ],
        css=STYLE,
    )


def _answer(solution: Solution) -> str:
    points = "\n".join(f"- {point.text}" for point in solution.points)
    return "\n\n".join(part for part in (solution.answer.strip(), points, solution.why.strip()) if part)


def _places(leaf: Leaf) -> list[str]:
    every: list[Item | Point] = [leaf.item, *leaf.solution.points]
    return list(dict.fromkeys(place for each in every for place in places(each.steps, each.concepts, each.claims)))


def _where(leaf: Leaf) -> str:
    return _html("\n".join(f"- `{place}`" for place in _places(leaf)))


def _html(text: str) -> str:
    from markdown_it import MarkdownIt

    made: str = MarkdownIt("commonmark", {"html": False}).enable("table").render(text)
    return made
