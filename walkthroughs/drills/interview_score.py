"""What an interview was worth: the points had, by kind, topic and level, and where to read on for those missed.

Pure over the bank: a question is asked again under its seed, so that its points need not be kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from annotate.errors import AnnotateError
from kernels.errors import KernelError
from walkthroughs.drills.asking import Bank
from walkthroughs.drills.interview import Interview, Turn
from walkthroughs.drills.interview_roles import topic_of, topics
from walkthroughs.drills.item import Item, Point, Question, Solution

READINGS = 8
"""Places to read, at most."""
GRADED_POINT = "The right answer."


@dataclass(frozen=True)
class Answered:
    """A turn with what it asked: its number from 1, the item, the question, the solution, and its points in order.

    `points`: a recall question's own; for a graded question one that stands for the right answer.
    """

    number: int
    turn: Turn
    item: Item
    question: Question
    solution: Solution
    points: tuple[Point, ...]

    def missed(self) -> list[Point]:
        """The points that the answer did not have."""
        return [point for number, point in enumerate(self.points, 1) if number not in self.turn.had]


@dataclass(frozen=True)
class Row:
    """A part of the score. `share`: the mean over its questions of the part of the points had, 0 to 1."""

    id: str
    title: str
    questions: int
    had: int
    of: int
    share: float

    @property
    def percent(self) -> str:
        """The share, rounded."""
        return f"{100 * self.share:.0f} %"

    def as_json(self) -> dict[str, Any]:
        """Without the title."""
        return {"id": self.id, "questions": self.questions, "had": self.had, "of": self.of, "share": self.share}


@dataclass(frozen=True)
class Score:
    """The whole score and its parts; a part without a question is left out."""

    all: Row
    kinds: tuple[Row, ...]
    topics: tuple[Row, ...]
    levels: tuple[Row, ...]


@dataclass(frozen=True)
class Reading:
    """A place to read: `what` (walk, read or claims) and its id; `questions`: the numbers of those that lead there."""

    what: str
    name: str
    questions: tuple[int, ...]

    @property
    def command(self) -> str:
        """How to read it in the terminal."""
        return f"pagewalk claims --id {self.name}" if self.what == "claims" else f"pagewalk {self.what} {self.name}"

    @property
    def page(self) -> str:
        """Where it is on the site, from its top."""
        if self.what == "walk":
            walkthrough, _, slug = self.name.partition("/")
            return f"walkthroughs/{walkthrough}/#step-{slug}"
        return f"concepts/{self.name}/" if self.what == "read" else f"claims/#{self.name}"


def recalled(interview: Interview, bank: Bank) -> list[Answered]:
    """Every turn with its question; one that the bank has no more, or cannot ask here, is left out."""
    found = []
    for number, turn in enumerate(interview.turns, 1):
        item = bank.items().get(turn.item)
        if item is None:
            continue
        try:
            question = bank.ask(item, turn.seed)
            solution = bank.solve(question)
        except (AnnotateError, KernelError):
            continue
        found.append(Answered(number, turn, item, question, solution, points_of(question, solution)))
    return found


def points_of(question: Question, solution: Solution) -> tuple[Point, ...]:
    """The rubric: a recall question's points; a graded question has one, which leads where its item does."""
    if question.form == "self" and solution.points:
        return solution.points
    item = question.item
    return (Point(GRADED_POINT, item.steps, item.concepts, item.claims),)


def score(found: Iterable[Answered]) -> Score:
    """The score over all, and by kind, topic and level."""
    every = list(found)
    titles = {name: topic.title for name, topic in topics().items()}

    def rows(key: Callable[[Answered], str], title: Callable[[str], str], order: Iterable[str]) -> tuple[Row, ...]:
        parts = {name: [one for one in every if key(one) == name] for name in order}
        return tuple(_row(name, title(name), part) for name, part in parts.items() if part)

    kinds = dict.fromkeys(one.item.kind for one in every)
    levels = sorted({str(one.item.level) for one in every})
    return Score(
        all=_row("all", "All", every),
        kinds=rows(lambda one: one.item.kind, str.capitalize, kinds),
        topics=rows(lambda one: topic_of(one.item), lambda name: titles[name], titles),
        levels=rows(lambda one: str(one.item.level), lambda name: f"Level {name}", levels),
    )


def readings(found: Iterable[Answered], most: int = READINGS) -> list[Reading]:
    """Where to read on: the places of the missed points, those that most questions lead to first.

    A step comes before a concept, and that before a claim: it shows more. One place of each missed point comes
    before a second one of any.
    """
    leads: dict[tuple[str, str], list[int]] = {}
    rank: dict[tuple[str, str], int] = {}
    for one in found:
        for point in one.missed():
            for place, where in enumerate(_places(point)):
                leads.setdefault(where, []).append(one.number)
                rank[where] = min(place, rank.get(where, place))
    order = sorted(leads, key=lambda where: (rank[where], -len(set(leads[where])), leads[where][0]))
    return [Reading(*where, tuple(dict.fromkeys(leads[where]))) for where in order[:most]]


def _places(point: Point) -> list[tuple[str, str]]:
    parts = (("walk", point.steps), ("read", point.concepts), ("claims", point.claims))
    return [(what, name) for what, names in parts for name in names]


def _row(name: str, title: str, part: list[Answered]) -> Row:
    turns = [one.turn for one in part]
    share = sum(turn.score for turn in turns) / len(turns) if turns else 0.0
    return Row(name, title, len(turns), sum(len(turn.had) for turn in turns), sum(turn.of for turn in turns), share)
