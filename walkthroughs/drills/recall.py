"""Recall: a question as an interviewer asks it, a model answer, and the points that a good answer has.

The bank is `bank_recall/*.toml`, a file a theme, one table a question. Nobody but the reader can grade a spoken answer,
so each point names a step, a concept or a claim that shows it. An answer's numbers stand in one of them.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

from walkthroughs.drills.item import Graded, Item, Point, Question, Solution

FOLDER = Path(__file__).with_name("bank_recall")
LESSONS: Mapping[str, str] = MappingProxyType(
    {
        "pitfall-two-blocks": "Lesson 1, pitfall: a KV block is no thread block.",
        "pitfall-same-result": "Lesson 1, pitfall: paging does not change the result.",
        "pitfall-why-x": "Lesson 1, pitfall: why there is an x.",
        "pitfall-order": "Lesson 1, pitfall: tables are neither contiguous nor ordered.",
        "pitfall-one-read": "Lesson 1, pitfall: do not expect one contiguous read.",
        "pitfall-serving-story": "Lesson 1, pitfall: do not over-claim the serving story.",
        "pitfall-document": "Lesson 1, pitfall: the design document's kernel is not what runs today.",
        "check-why-blocks": "Lesson 1, self-check: why blocks?",
        "check-block-table": "Lesson 1, self-check: what is a block table, and how does the kernel use it?",
        "check-approximation": "Lesson 1, self-check: is PagedAttention an approximation?",
        "open-index": "Lesson 2, left open: the index of three parts at run time.",
        "open-head-size": "Lesson 2, left open: the dependence on the head size.",
        "open-in-place": "Lesson 2, left open: writing in place, and races.",
        "open-copies": "Lesson 2, left open: the cost of copying the table.",
    }
)
"""What the two lessons warn of, ask, or leave open; a question names which of them it covers."""
_NEEDED = frozenset({"title", "level", "question", "answer", "points"})
_KEYS = _NEEDED | {"after", "lessons"}
_LINKS = ("steps", "concepts", "claims")


class BankError(ValueError):
    """An entry of the bank that cannot be read; names the entry and what is wrong with it."""

    def __init__(self, entry: str, why: str) -> None:
        super().__init__(f"recall question {entry!r}: {why}")


@dataclass(frozen=True)
class Entry:
    """A question of the bank. `lessons`: what of the lessons it covers, names of `LESSONS`."""

    item: Item
    question: str
    answer: str
    points: tuple[Point, ...]
    lessons: tuple[str, ...]


def items() -> tuple[Item, ...]:
    """Every recall question, by theme, each follow-up behind the question that it follows."""
    return tuple(entry.item for entry in entries().values())


def ask(item: Item, seed: int) -> Question:
    """The question in words. The seed changes nothing."""
    return Question(item, seed, entries()[item.id].question, "self")


def grade(question: Question, answer: str) -> Graded:
    """Leave it to the reader."""
    count = len(entries()[question.item.id].points)
    return Graded(None, f"You are the judge: compare your answer with the {count} points.")


def solve(question: Question) -> Solution:
    """The model answer and its points."""
    entry = entries()[question.item.id]
    return Solution(entry.answer, entry.points)


@cache
def entries() -> Mapping[str, Entry]:
    """Every entry of the bank by its item's id. Raises BankError for one that cannot be read."""
    found: dict[str, Entry] = {}
    for path in sorted(FOLDER.glob("*.toml")):
        for entry in read_theme(path.read_text(encoding="utf-8")):
            if entry.item.id in found:
                raise BankError(entry.item.id, "it stands twice in the bank")
            found[entry.item.id] = entry
    return MappingProxyType(found)


@cache
def themes() -> Mapping[str, str]:
    """Each item's theme: its file's name without the number."""
    return MappingProxyType(
        {
            f"recall/{name}": path.stem.partition("-")[2]
            for path in sorted(FOLDER.glob("*.toml"))
            for name in tomllib.loads(path.read_text(encoding="utf-8"))
        }
    )


def follow_ups(item_id: str) -> tuple[Item, ...]:
    """The questions that follow one up, in the order of the bank."""
    return tuple(item for item in items() if item.after == item_id)


def chains() -> tuple[tuple[Item, ...], ...]:
    """Every way from a question that follows none to one that none follows."""
    return tuple(chain for item in items() if not item.after for chain in _ways((item,)))


def _ways(begun: tuple[Item, ...]) -> Iterator[tuple[Item, ...]]:
    following = follow_ups(begun[-1].id)
    if not following:
        yield begun
    for item in following:
        yield from _ways((*begun, item))


def read_theme(text: str) -> list[Entry]:
    """Parse one theme (TOML). Raises BankError."""
    return [_entry(name, body) for name, body in tomllib.loads(text).items()]


def _entry(name: str, body: Any) -> Entry:
    if not isinstance(body, dict) or not body.keys() >= _NEEDED:
        raise BankError(name, f"{', '.join(sorted(_NEEDED))} are needed")
    if unknown := body.keys() - _KEYS:
        raise BankError(name, f"no such key as {', '.join(sorted(unknown))}")
    if unknown := set(body.get("lessons", ())) - LESSONS.keys():
        raise BankError(name, f"no lesson has {', '.join(sorted(unknown))}")
    points = tuple(_point(name, point) for point in body["points"])
    links = {key: tuple(dict.fromkeys(id for point in points for id in getattr(point, key))) for key in _LINKS}
    after = f"recall/{body['after']}" if body.get("after") else ""
    item = Item(f"recall/{name}", body["title"], int(body["level"]), **links, after=after)
    return Entry(item, body["question"], body["answer"], points, tuple(body.get("lessons", ())))


def _point(name: str, body: Any) -> Point:
    if not isinstance(body, dict) or "text" not in body or not body.keys() <= {"text", *_LINKS}:
        raise BankError(name, f"a point is {{text, {', '.join(_LINKS)}}}, not {body!r}")
    if len(body) < 2:
        raise BankError(name, f"the point {body['text']!r} leads nowhere")
    return Point(body["text"], **{key: tuple(body.get(key, ())) for key in _LINKS})
