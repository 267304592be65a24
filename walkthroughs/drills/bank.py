"""The bank: every item by its id, and for each kind the module that asks, grades and solves.

A kind's module has `items() -> tuple[Item, ...]`, `ask(item, seed) -> Question`, `grade(question, answer) -> Graded`
and `solve(question) -> Solution`. A module is imported when it is needed.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from functools import cache
from typing import Any

from annotate.errors import UnknownName, nearest
from walkthroughs.drills.item import Graded, Item, Question, Solution

MODULES = {
    "recall": "walkthroughs.drills.recall",
    "compute": "walkthroughs.drills.compute",
    "predict": "walkthroughs.drills.predict",
    "find": "walkthroughs.drills.find",
    "fix": "walkthroughs.drills.fix",
}


@cache
def items() -> Mapping[str, Item]:
    """Every item by its id: by kind, then in the order of the bank."""
    return {item.id: item for kind in MODULES for item in _module(kind).items()}


def item(name: str) -> Item:
    """One item; raises UnknownName with the nearest ids."""
    if name not in items():
        raise UnknownName("drill", name, nearest(name, items()) or items())
    return items()[name]


def ask(wanted: Item, seed: int) -> Question:
    """The item as a question; the same seed gives the same question."""
    question: Question = _module(wanted.kind).ask(wanted, seed)
    return question


def grade(question: Question, answer: str) -> Graded:
    """Judge an answer as it was typed; raises DrillError where it cannot be read."""
    graded: Graded = _module(question.item.kind).grade(question, answer)
    return graded


def solve(question: Question) -> Solution:
    """The answer, the rubric and why."""
    solution: Solution = _module(question.item.kind).solve(question)
    return solution


def _module(kind: str) -> Any:
    return importlib.import_module(MODULES[kind])
