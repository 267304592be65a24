"""Ask a compute drill, judge what was typed, and show the way to the answer.

A whole number must be exact; a real one lies within the tolerance that the question states. A wrong answer is looked up
among the typical ones, so that the reader learns which step went wrong.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any, cast

from walkthroughs.drills.compute import quantities
from walkthroughs.drills.compute.problem import GENERATORS, Slip
from walkthroughs.drills.compute.quantities import Answer, Quantity
from walkthroughs.drills.errors import DrillError
from walkthroughs.drills.item import Graded, Item, Point, Question, Solution

NEAR = Fraction(1, 200)
"""How near a typed decimal lies to a typical wrong value that is no whole number."""


def items() -> tuple[Item, ...]:
    """Every compute drill, theme by theme."""
    return tuple(made.item for made in GENERATORS.values())


def ask(item: Item, seed: int) -> Question:
    """The item with the numbers of a seed. `state` is plain JSON: answer, tolerance, slips, why, given."""
    drawn = GENERATORS[item.id].problem(seed)
    state: dict[str, object] = {
        "answer": drawn.answer,
        "tolerance": drawn.tolerance,
        "slips": [[value, mistake] for value, mistake in drawn.slips],
        "why": drawn.why,
        "given": drawn.given,
    }
    form = "text" if isinstance(drawn.answer, bool | list) else "number"
    text = f"{drawn.text}\n\n{_how(drawn.answer, drawn.unit, drawn.tolerance)}"
    return Question(item, seed, text, "text" if form == "text" else "number", drawn.unit, state)


def grade(question: Question, answer: str) -> Graded:
    """Judge an answer as it was typed. Raises DrillError, with an example, where it cannot be read."""
    right = cast(Answer, question.state["answer"])
    if isinstance(right, bool):
        return _judge_exact(question, right, quantities.yes(answer))
    if isinstance(right, list):
        return _judge_exact(question, right, quantities.whole_numbers(answer))
    typed = quantities.number(answer, question.unit, real=isinstance(right, float))
    if isinstance(right, float):
        return _judge_real(question, right, typed)
    return _judge_whole(question, right, typed)


def solve(question: Question) -> Solution:
    """The answer with its unit, and the computation term by term."""
    right = cast(Answer, question.state["answer"])
    why = str(question.state["why"])
    item = question.item
    point = Point("The right formula, and every term of it with these numbers.", item.steps, item.concepts, item.claims)
    return Solution(quantities.shown(right, question.unit), (point,), why)


def _how(answer: Answer, unit: str, tolerance: float) -> str:
    """What the reader may type, in italics under the question."""
    if isinstance(answer, bool):
        return "*Yes or no.*"
    if isinstance(answer, list):
        return "*Whole numbers in order, such as `7, 2, 5`; `32-39` stands for all between; `none` for none.*"
    if isinstance(answer, float):
        counts = f"A bare number counts {'microseconds' if unit == 'us' else 'per cent'}. " if unit else ""
        return f"*{counts}Within {tolerance * 100:g} % is close enough.*"
    if unit == "bytes":
        return "*Exactly, in bytes; with a unit such as KiB, MB or GiB if you like.*"
    return f"*Exactly{', in ' + unit if unit else ''}.*"


def _slips(question: Question) -> list[Slip]:
    return [(value, mistake) for value, mistake in cast(Any, question.state["slips"])]


def _right(question: Question, right: Answer, extra: str = "") -> Graded:
    return Graded(True, f"Right: {quantities.shown(right, question.unit)}{extra}.")


def _wrong(mistake: str, otherwise: str) -> Graded:
    return Graded(False, f"No: it looks as if you {mistake}." if mistake else otherwise, mistake)


def _judge_exact(question: Question, right: Answer, typed: Answer) -> Graded:
    if typed == right:
        return _right(question, right)
    mistake = next((mistake for value, mistake in _slips(question) if value == typed), "")
    otherwise = f"No: {quantities.shown(typed)} is not it."
    if isinstance(typed, list) and isinstance(right, list):
        if sorted(typed) == sorted(right):
            otherwise = "No: these are the right numbers in another order."
        elif len(typed) != len(right):
            otherwise = f"No: you name {len(typed)}, and there are {len(right)}."
    return _wrong(mistake, otherwise)


def _judge_real(question: Question, right: float, typed: Quantity) -> Graded:
    tolerance = float(cast(float, question.state["tolerance"]))
    value = _float(typed.value)
    if abs(value - right) <= tolerance * abs(right):
        return _right(question, right)
    near = [
        (abs(value - float(cast(float, slip))), mistake)
        for slip, mistake in _slips(question)
        if abs(value - float(cast(float, slip))) <= tolerance * abs(float(cast(float, slip)))
    ]
    return _wrong(min(near)[1] if near else "", _apart(value / right if right else 0.0))


def _judge_whole(question: Question, right: int, typed: Quantity) -> Graded:
    if typed.value == right:
        return _right(question, right)
    slips = [(Fraction(cast(float, value)), mistake) for value, mistake in _slips(question)]
    rounded = [mistake for value, mistake in slips if typed.rounds_to(value)]
    if typed.rounds_to(Fraction(right)):
        if rounded:
            raise DrillError(f"That is rounded too far to be judged: {quantities.examples(question.unit)}.")
        return _right(question, right, ", to the digits that you gave")
    exact = [mistake for value, mistake in slips if value == typed.value]
    if exact:
        return _wrong(exact[0], "")
    if not rounded and typed.value.denominator != 1:
        # A wrong value with endless decimals is typed rounded.
        rounded = [
            mistake
            for value, mistake in slips
            if value.denominator != 1 and abs(value - typed.value) <= NEAR * abs(value)
        ]
    return _wrong(rounded[0] if rounded else "", _apart(_float(typed.value / right) if right else 0.0))


def _float(value: Fraction) -> float:
    """The nearest float, infinite where none is near."""
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def _apart(ratio: float) -> str:
    """What to say of a wrong number: a whole factor says which term is missing or too many."""
    for factor, words in ((ratio, "times the right answer"), (1 / ratio if ratio else 0.0, "times too small")):
        if 2 <= factor <= 4096 and abs(factor - round(factor)) < 1e-9 * factor:
            return f"No: that is exactly {round(factor)} {words}."
    if ratio <= 0:
        return "No: that is not it."
    return "No: that is too large." if ratio > 1 else "No: that is too small."
