"""Find the line: where in the upstream source is this done? Answered with lines, graded by the committed spans.

`find.toml` has the questions. No text of a source is needed: an anchor's path and lines are enough, and the solution
links to the place at the pinned revision.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import MappingProxyType

from annotate.concepts import concept
from annotate.sourcetree import pins
from annotate.spans import Span, spans
from walkthroughs.drills.errors import DrillError
from walkthroughs.drills.item import Graded, Item, Point, Question, Solution

TABLE = Path(__file__).with_name("find.toml")
NEAR = 10
"""Lines away from a place that still count as close."""
WIDER = 2
"""An answer may cover a whole place, and be this many times as wide."""
_KEYS = frozenset({"title", "level", "concept", "source", "question"})
_ANSWER = re.compile(
    r"(?:(?P<path>[^\s:#]+)\s*[:#]\s*)?(?:lines?\s+)?"
    r"L?(?P<first>[0-9]{1,9})(?:\s*[-\N{EN DASH}]\s*L?(?P<last>[0-9]{1,9}))?",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Place:
    """An answer: the lines `first` to `last`, of a file named by `path` or of any ("")."""

    path: str
    first: int
    last: int

    @property
    def width(self) -> int:
        """How many lines it has."""
        return self.last - self.first + 1


@dataclass(frozen=True)
class Entry:
    """A question of the table: where `source` (a pin's id) has `concept`."""

    item: Item
    question: str
    concept: str
    source: str


@cache
def entries() -> Mapping[str, Entry]:
    """Every entry of the table by its item's id."""
    found = {}
    for name, body in tomllib.loads(TABLE.read_text(encoding="utf-8")).items():
        if body.keys() != _KEYS:
            raise DrillError(f"find.toml, {name}: an entry has {', '.join(sorted(_KEYS))} and nothing else")
        wanted = concept(body["concept"])
        item = Item(f"find/{name}", body["title"], int(body["level"]), concepts=(wanted.id,))
        found[item.id] = Entry(item, body["question"], wanted.id, body["source"])
    return MappingProxyType(found)


def items() -> tuple[Item, ...]:
    """Every question of this kind, in the order of the table."""
    return tuple(entry.item for entry in entries().values())


def ask(item: Item, seed: int) -> Question:
    """The question in words. The seed changes nothing."""
    entry = entries()[item.id]
    text = f"In `{entry.source}`: {entry.question}\n\nAnswer with lines: `120`, `120-124` or `file:120-124`."
    return Question(item, seed, text, "lines", state={"concept": entry.concept, "source": entry.source})


def solve(question: Question) -> Solution:
    """The path, the lines and the permanent link of each place."""
    entry = entries()[question.item.id]
    pin, places = pins()[entry.source], spans(entry.source)[entry.concept]
    why = [concept(entry.concept).summary]
    why += [f"[{span.path}, {_lines(span)}]({pin.link(span.path, span.first, span.last)})" for span in places]
    answer = ", ".join(f"{span.path}:{_lines(span)}" for span in places)
    return Solution(answer, (Point(concept(entry.concept).title, concepts=(entry.concept,)),), "\n\n".join(why))


def grade(question: Question, answer: str) -> Graded:
    """Judge lines by the spans: right inside a place, or where they cover it and are at most twice as wide.

    Raises DrillError for what are no lines.
    """
    entry = entries()[question.item.id]
    return judge(read_place(answer), spans(entry.source)[entry.concept], entry.source)


def read_place(answer: str) -> Place:
    """The lines that were typed; raises DrillError."""
    found = _ANSWER.fullmatch(answer.strip())
    if not found:
        raise DrillError(f"{answer!r}: lines are 249, 249-250 or file:249-250")
    first = int(found["first"])
    last = int(found["last"] or first)
    if not 1 <= first <= last:
        raise DrillError(f"{answer!r}: lines count from 1, and the first is not behind the last")
    return Place(found["path"] or "", first, last)


def judge(place: Place, wanted: list[Span], source: str) -> Graded:
    """Grade lines against the places of a concept in a source."""
    there = [span for span in wanted if _is_of(place.path, span.path)]
    if not there:
        names = " or ".join(dict.fromkeys(span.path for span in wanted))
        return Graded(False, f"{place.path} is another file: look in {names}.", "another file")
    if any(_right(place, span) for span in there):
        return Graded(True, "Right.")
    nearest = min(there, key=lambda span: _gap(place, span))
    if place.first <= nearest.first and nearest.last <= place.last:
        count = nearest.last - nearest.first + 1
        said = f"It is in there, but you named {place.width} lines, and {_number(count)} would do."
        return Graded(False, said, "too wide")
    gap = _gap(place, nearest)
    way = "down" if place.first < nearest.first else "up"
    if gap <= NEAR:
        return Graded(False, f"Close: {_number(gap) if gap else 'a part of it is'} further {way}.", "close")
    if around := _enclosing(place, there, source):
        title = concept(around.concept).title
        return Graded(False, f"Close: you are in the lines of “{title}”, and it is further {way} there.", "close")
    return Graded(False, "No, it is elsewhere.")


def _is_of(typed: str, path: str) -> bool:
    """Whether a typed path means a file: nothing typed, or the end of its path."""
    return not typed or f"/{path}".endswith(f"/{typed.removeprefix('./').lstrip('/')}")


def _right(place: Place, span: Span) -> bool:
    if span.first <= place.first and place.last <= span.last:
        return True
    covers = place.first <= span.first and span.last <= place.last
    return covers and place.width <= WIDER * (span.last - span.first + 1)


def _gap(place: Place, span: Span) -> int:
    """Lines from the answer to the place; 0 where they meet."""
    return max(span.first - place.last, place.first - span.last, 0)


def _enclosing(place: Place, wanted: list[Span], source: str) -> Span | None:
    """The smallest place of another concept that holds the answer and one of the places wanted."""
    around = [
        other
        for span in wanted
        for other in _in_file(source, span.path)
        if other.first <= min(place.first, span.first) and max(place.last, span.last) <= other.last
    ]
    return min(around, key=lambda span: span.last - span.first, default=None)


@cache
def _in_file(source: str, path: str) -> tuple[Span, ...]:
    """Every concept's places in a file."""
    return tuple(span for found in spans(source).values() for span in found if span.path == path)


def _lines(span: Span) -> str:
    return str(span.first) if span.first == span.last else f"{span.first}-{span.last}"


def _number(count: int) -> str:
    return f"{count} line" if count == 1 else f"{count} lines"
