"""A compute drill with its numbers drawn: the text, the answer, what goes wrong typically, and why.

A generator is a function of a seeded `random.Random`; `@generator` enters it in the bank. It computes its answer with
`kernels` and its typical wrong values from the same numbers.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from walkthroughs.drills.compute.quantities import Answer
from walkthroughs.drills.item import Item

Slip = tuple[Answer, str]
"""A typical wrong value, and the mistake that leads to it: words that go on from "it looks as if you"."""
APART = 3.0
"""A wrong real value nearer to the right one than so many tolerances cannot be told from it."""


@dataclass(frozen=True)
class Problem:
    """One drawn problem.

    `unit`: what a bare number counts. `tolerance`: relative, for a real answer. `given`: every number that the text
    shows, by name, so that a test can work the answer out anew. `why`: the formula with these numbers (Markdown).
    """

    text: str
    answer: Answer
    slips: tuple[Slip, ...]
    why: str
    given: dict[str, Any] = field(default_factory=dict)
    unit: str = ""
    tolerance: float = 0.0


@dataclass(frozen=True)
class Generator:
    """An item of the bank and what draws its problems."""

    item: Item
    make: Callable[[random.Random], Problem]

    def problem(self, seed: int) -> Problem:
        """The problem of a seed: the same on every machine. Wrong values that happen to be right are left out."""
        drawn = self.make(random.Random(f"{self.item.id} {seed}"))
        return replace(drawn, slips=distinct(drawn))


GENERATORS: dict[str, Generator] = {}
"""Every generator by its item's id, in the order of the modules."""


def generator(
    name: str,
    *,
    title: str,
    level: int,
    concepts: tuple[str, ...] = (),
    steps: tuple[str, ...] = (),
    claims: tuple[str, ...] = (),
) -> Callable[[Callable[[random.Random], Problem]], Callable[[random.Random], Problem]]:
    """Enter the decorated function as item `compute/NAME`; raises ValueError where that is taken."""
    made = Item(f"compute/{name}", title, level, concepts, steps, claims)

    def enter(make: Callable[[random.Random], Problem]) -> Callable[[random.Random], Problem]:
        if made.id in GENERATORS:
            raise ValueError(f"{made.id} is there twice")
        GENERATORS[made.id] = Generator(made, make)
        return make

    return enter


def distinct(drawn: Problem) -> tuple[Slip, ...]:
    """The slips whose value differs from the answer and from those before them."""
    kept: list[Slip] = []
    for value, mistake in drawn.slips:
        if not any(same(value, other, drawn.tolerance) for other in (drawn.answer, *(one for one, _ in kept))):
            kept.append((value, mistake))
    return tuple(kept)


def same(value: Answer, other: Answer, tolerance: float) -> bool:
    """Whether two values are one answer: equal, or nearer than a few tolerances where a tolerance is given."""
    if tolerance and not isinstance(value, list) and not isinstance(other, list):
        return abs(value - other) <= APART * tolerance * max(abs(value), abs(other))
    return value == other


def bullets(*terms: str) -> str:
    """The steps of a computation as a Markdown list of code."""
    return "\n".join(f"- `{term}`" for term in terms)
