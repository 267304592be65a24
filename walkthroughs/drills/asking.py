"""What a bank of drills must be able to do: the seam between those who ask and those who keep the answers.

`walkthroughs.drills.bank` is one, as a module; tests bring their own.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from typing import Protocol

from walkthroughs.drills.item import Graded, Item, Question, Solution


class Bank(Protocol):
    """Items by their id, and how each is asked, graded and solved."""

    def items(self) -> Mapping[str, Item]:
        """Every item by its id."""
        ...

    def ask(self, wanted: Item, seed: int, /) -> Question:
        """The item as a question; the same seed gives the same question."""
        ...

    def grade(self, question: Question, answer: str, /) -> Graded:
        """Judge an answer as it was typed; raises DrillError where it cannot be read."""
        ...

    def solve(self, question: Question, /) -> Solution:
        """The answer, the rubric and why."""
        ...


def fixed_seed(item: Item) -> int:
    """The seed under which an item is exported and shown: its own for ever."""
    return zlib.crc32(item.id.encode())


def places(steps: tuple[str, ...], concepts: tuple[str, ...], claims: tuple[str, ...]) -> list[str]:
    """Where to look, as commands."""
    return [
        *(f"pagewalk walk {name}" for name in steps),
        *(f"pagewalk read {name}" for name in concepts),
        *(f"pagewalk claims --id {name}" for name in claims),
    ]
