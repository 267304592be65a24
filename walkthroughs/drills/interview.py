"""A mock interview as far as it has come: what was asked and answered, what is open, how much time is used.

Pure and kept as JSON. What is asked next is `interview_plan`'s, the score `interview_score`'s.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from walkthroughs.drills.errors import DrillError
from walkthroughs.drills.item import Item
from walkthroughs.drills.schedule import AGAIN, GOOD, HARD

MINUTES = 20
MINUTE = 60_000
Move = Literal["opens", "deeper", "source", "smaller"]
MOVES: Mapping[Move, str] = {
    "opens": "a new topic",
    "deeper": "deeper",
    "source": "show me in the source",
    "smaller": "a smaller one on the same",
}
"""Why a question is asked, in words: it opens a topic, or follows up an answer."""
LEAST_OF_HARD = 0.5
"""So much of the points is Hard rather than Again."""


@dataclass(frozen=True)
class Turn:
    """A question that was answered. `parent`: the item whose answer led to it, or "". `answer`: as it was typed.

    `had`: the numbers of the points that the answer had, from 1, out of `of`; a graded question has one point.
    `took`: milliseconds. `said`: what the grader said of it, or "".
    """

    item: str
    seed: int
    move: Move
    parent: str
    answer: str
    had: tuple[int, ...]
    of: int
    took: int
    said: str = ""

    @property
    def kind(self) -> str:
        """The kind of its item."""
        return self.item.split("/")[0]

    @property
    def score(self) -> float:
        """The part of the points that the answer had, 0 to 1."""
        return len(self.had) / self.of if self.of else 0.0

    @property
    def rating(self) -> int:
        """What the schedule is told: Good for all, Hard for half, Again for less; never Easy."""
        if len(self.had) >= self.of:
            return GOOD
        return HARD if self.score >= LEAST_OF_HARD else AGAIN


@dataclass(frozen=True)
class Interview:
    """Where an interview stands. `started`: milliseconds since 1970. `spent`: milliseconds used, pauses left out.

    `item`, `question` (its seed), `move`, `parent`: what is open, or "". `answer`: what was typed to it, where only
    the points are still to be ticked, else None; `took`: how long that took. `skipped`: what cannot be asked on this
    machine, or must not. `output`: where the report is to go, or "" for the usual place.
    """

    seed: int
    started: int
    minutes: int = MINUTES
    role: str = "general"
    spent: int = 0
    turns: tuple[Turn, ...] = ()
    item: str = ""
    question: int = 0
    move: Move = "opens"
    parent: str = ""
    answer: str | None = None
    took: int = 0
    skipped: tuple[str, ...] = ()
    output: str = ""

    @property
    def left(self) -> int:
        """Milliseconds left; never less than none."""
        return max(0, self.minutes * MINUTE - self.spent)

    @property
    def asked(self) -> frozenset[str]:
        """Every item that was answered."""
        return frozenset(turn.item for turn in self.turns)


def opened(interview: Interview, item: Item, move: Move, parent: str) -> Interview:
    """The interview with a question open."""
    seed = seed_of(interview, item.id)
    return replace(interview, item=item.id, question=seed, move=move, parent=parent, answer=None, took=0)


def typed(interview: Interview, answer: str, took: int) -> Interview:
    """The interview after the open question was answered, and before the points are ticked."""
    return replace(interview, answer=answer, took=took)


def answered(interview: Interview, answer: str, had: tuple[int, ...], of: int, took: int, said: str = "") -> Interview:
    """The interview after its open question: points `had` out of `of`. Raises ValueError for a point that is none."""
    if not interview.item or of < 1 or sorted(set(had)) != list(had) or not set(had) <= set(range(1, of + 1)):
        raise ValueError(f"points {had!r} of {of} to {interview.item or 'no question'}")
    turn = Turn(
        interview.item, interview.question, interview.move, interview.parent, answer, had, of, took, said
    )  # fmt: skip
    return replace(_closed(interview), turns=(*interview.turns, turn))


def skip(interview: Interview) -> Interview:
    """The interview without its open question, which cannot be asked here."""
    return replace(_closed(interview), skipped=(*interview.skipped, interview.item))


def passes(interview: Interview, milliseconds: int) -> Interview:
    """The interview after some time; a clock that went back counts as none."""
    return replace(interview, spent=interview.spent + max(0, milliseconds))


def ticked(text: str, of: int) -> tuple[int, ...]:
    """The points of a line such as `1 3 4`, `1,3`, `a` (all) or `0` (none). Raises DrillError, also for no words."""
    words = text.replace(",", " ").split()
    if words == ["0"]:
        return ()
    if len(words) == 1 and words[0].lower() in ("a", "all"):
        return tuple(range(1, of + 1))
    choices = f"1 to {of}, a for all, 0 for none"
    if not words:
        raise DrillError(f"Type which points you had: {choices}")
    if wrong := [word for word in words if not (word.isascii() and word.isdecimal() and 1 <= int(word) <= of)]:
        raise DrillError(f"{wrong[0]!r} is no point: {choices}")
    return tuple(sorted({int(word) for word in words}))


def seed_of(interview: Interview, item: str) -> int:
    """The seed of a question that is asked next: the same interview asks the same numbers on every machine."""
    digest = hashlib.sha256(f"interview/{interview.seed}/{len(interview.turns)}/{item}".encode()).digest()
    return int.from_bytes(digest[:4], "big") >> 1


def to_json(interview: Interview) -> dict[str, Any]:
    """The interview as JSON."""
    return asdict(interview)


def from_json(data: Any) -> Interview | None:
    """An interview that was kept, or None for what is none."""
    try:
        answer = data["answer"]
        return Interview(
            seed=int(data["seed"]),
            started=int(data["started"]),
            minutes=int(data["minutes"]),
            role=str(data["role"]),
            spent=int(data["spent"]),
            turns=tuple(_turn(row) for row in data["turns"]),
            item=str(data["item"]),
            question=int(data["question"]),
            move=_move(data["move"]),
            parent=str(data["parent"]),
            answer=answer if answer is None else _text(answer),
            took=int(data["took"]),
            skipped=tuple(map(_text, data["skipped"])),
            output=str(data["output"]),
        )
    except (KeyError, TypeError, ValueError):
        return None


def _turn(row: Any) -> Turn:
    return Turn(
        item=_text(row["item"]),
        seed=int(row["seed"]),
        move=_move(row["move"]),
        parent=_text(row["parent"]),
        answer=_text(row["answer"]),
        had=tuple(int(number) for number in row["had"]),
        of=int(row["of"]),
        took=int(row["took"]),
        said=_text(row["said"]),
    )


def _move(value: Any) -> Move:
    found: Move | None = next((move for move in MOVES if move == value), None)
    if found is None:
        raise ValueError(f"{value!r} is no move")
    return found


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    return value


def _closed(interview: Interview) -> Interview:
    return replace(interview, item="", question=0, move="opens", parent="", answer=None, took=0)
