"""What a drill is: an item of the bank, the question that is made of it, and what became of an answer.

An item is authored and keeps its id for ever; its texts may change. A question is an item with a seed: the same seed
gives the same numbers. Nothing here knows a kind.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

Kind = Literal["recall", "compute", "predict", "find", "fix"]
KINDS: tuple[Kind, ...] = ("recall", "compute", "predict", "find", "fix")


@dataclass(frozen=True)
class Item:
    """One thing to be able to answer. `id` is `kind/name`.

    `level`: 1 (to know), 2 (to explain), 3 (to defend). `concepts`, `steps`, `claims`: ids that it leads to, at least
    one in all. `after`: the item that this one follows up, or "".
    """

    id: str
    title: str
    level: int
    concepts: tuple[str, ...] = ()
    steps: tuple[str, ...] = ()
    claims: tuple[str, ...] = ()
    after: str = ""

    @property
    def kind(self) -> str:
        """The part of the id before the slash."""
        return self.id.split("/")[0]


@dataclass(frozen=True)
class Question:
    """An item as it is asked once: `text` (Markdown), and how to answer it.

    `form`: self (the reader judges by the rubric), number (with a unit), text (a few words), lines (`path:first-last`
    or a line number), or file. `unit`: what a bare number means, or "". `state`: what the kind needs to grade it.
    """

    item: Item
    seed: int
    text: str
    form: Literal["self", "number", "text", "lines", "file"]
    unit: str = ""
    state: dict[str, object] = field(default_factory=dict, repr=False)


@dataclass(frozen=True)
class Point:
    """One point of a model answer, with the places that show it (ids of steps, concepts, claims)."""

    text: str
    steps: tuple[str, ...] = ()
    concepts: tuple[str, ...] = ()
    claims: tuple[str, ...] = ()


@dataclass(frozen=True)
class Solution:
    """What the reader sees afterwards: `answer` (a short one), `points` (the rubric), `why` (Markdown)."""

    answer: str
    points: tuple[Point, ...] = ()
    why: str = ""


@dataclass(frozen=True)
class Graded:
    """What became of an answer. `right` is None where the reader is the judge. `said`: one or two sentences.

    `mistake`: the likely mistake's name where the wrong answer is a typical one, or "".
    """

    right: bool | None
    said: str
    mistake: str = ""
