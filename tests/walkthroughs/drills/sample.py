"""A made-up bank for tests of scheduling, state and terminal; run as a program it is `pagewalk` over this bank.

Each kind is small: recall is judged by the reader, compute adds two numbers, find wants a line.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Mapping
from types import ModuleType

from annotate.errors import SourceUnavailable
from walkthroughs.drills.errors import DrillError
from walkthroughs.drills.item import Graded, Item, Point, Question, Solution

ITEMS = (
    Item("recall/table", "What is a block table?", 1, concepts=("block-table-walk",)),
    Item("recall/why-paged", "Why pages?", 2, steps=("paged-reference/lookup",)),
    Item("recall/deeper", "And if the table is wrong?", 2, concepts=("block-table-walk",), after="recall/table"),
    Item("recall/deepest", "Who would notice?", 3, concepts=("block-table-walk",), after="recall/deeper"),
    Item("compute/slot", "A slot", 1, concepts=("slot-formula",)),
    Item("compute/sum", "A sum", 2, concepts=("slot-formula",)),
    Item("find/walk", "Find the walk", 1, concepts=("block-table-walk",)),
    Item("find/absent", "Find what is not here", 3, concepts=("block-table-walk",)),
)


class Sample:
    """The bank as an object."""

    def __init__(self, chosen: tuple[Item, ...] = ITEMS) -> None:
        self._items = {item.id: item for item in chosen}

    def items(self) -> Mapping[str, Item]:
        return self._items

    def ask(self, wanted: Item, seed: int, /) -> Question:
        if wanted.id == "find/absent":
            raise SourceUnavailable("vllm@0.0", "it was never there")
        if wanted.kind == "recall":
            return Question(wanted, seed, f"**{wanted.title}** Say it in `two` sentences.", "self")
        if wanted.kind == "compute":
            a, b = (random.Random(seed).randrange(100) for _ in range(2))
            return Question(wanted, seed, f"What is {seed} of {a} + {b}?", "number", "bytes", {"sum": a + b})
        return Question(wanted, seed, "Which line? x < y & z", "lines")

    def grade(self, question: Question, answer: str, /) -> Graded:
        match question.form:
            case "self":
                return Graded(None, f"You said {len(answer)} letters.")
            case "number":
                if not answer.isdecimal():
                    raise DrillError(f"{answer!r} is no number")
                right = int(answer) == question.state["sum"]
                return Graded(right, "Right." if right else "No: the carry was forgotten.", "" if right else "carry")
            case _ if answer == "lost":
                raise SourceUnavailable("vllm@0.1", "it went away")
            case _:
                return Graded(answer in ("17", "u"), "Right." if answer in ("17", "u") else "Not there.")

    def solve(self, question: Question, /) -> Solution:
        if question.form == "self":
            steps = ("paged-reference/lookup",)
            return Solution(
                "It maps blocks.", (Point("logical to physical", steps), Point("one row a sequence")), "So."
            )
        if question.form == "number":
            return Solution(f"{question.state['sum']} bytes")
        return Solution("line 17", why="There it is: `a {{b}} c`.")


def install(bank: Sample | None = None) -> None:
    """Make `walkthroughs.drills.bank` this bank, for the rest of the process."""
    import walkthroughs.drills

    fake = ModuleType("walkthroughs.drills.bank")
    made = bank or Sample()
    for name in ("items", "ask", "grade", "solve"):
        setattr(fake, name, getattr(made, name))
    sys.modules[fake.__name__] = fake
    walkthroughs.drills.bank = fake  # type: ignore[attr-defined]


if __name__ == "__main__":
    install()
    from walkthroughs.cli import main

    main()
