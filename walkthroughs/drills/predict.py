"""Predict: a line of a port is about to run; what is the value next? Graded by the recorded trace of a film.

The seed draws a thread and a visit. The state is shown as text. The answer and the typical wrong values are read off
the trace, none is typed in.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from functools import cache

from walkthroughs.drills.errors import DrillError
from walkthroughs.drills.item import Graded, Item, Point, Question, Solution
from walkthroughs.drills.moments import Moment, Number, find_line, visits
from walkthroughs.drills.predict_bank import SPECS, Spec
from walkthroughs.stepper.films import film, record

RELATIVE = 1e-4
WARP = 32


@cache
def _specs() -> Mapping[str, Spec]:
    return {f"predict/{spec.name}": spec for spec in SPECS}


@cache
def items() -> tuple[Item, ...]:
    """Every prediction, in the order of the bank. No film is recorded for it."""
    return tuple(
        Item(name, spec.title, spec.level, concepts=(spec.concept,), steps=spec.steps)
        for name, spec in _specs().items()
    )


def ask(item: Item, seed: int) -> Question:
    """Draw a thread and a visit, and show the state there; records the film at its first use."""
    spec = _specs()[item.id]
    moment = _draw(spec, random.Random(f"{item.id} {seed}"))
    answer = spec.answer(moment)
    wrong = {name: value for name, value in spec.wrong(moment).items() if not same(value, answer)}
    state: dict[str, object] = {
        "film": spec.film,
        "thread": moment.thread,
        "path": moment.line.path,
        "line": moment.line.number,
        "nth": moment.nth,
        "event": moment.event,
        "answer": answer,
        "wrong": wrong,
    }
    return Question(item, seed, _text(spec, moment), "number", state=state)


def grade(question: Question, answer: str) -> Graded:
    """Compare with the trace: whole numbers exactly, others within 1e-4 of their size. Raises DrillError."""
    typed, right = read_number(answer), _answer(question)
    if same(typed, right):
        return Graded(True, "Right.")
    wrong = question.state["wrong"]
    assert isinstance(wrong, dict)
    for mistake, value in wrong.items():
        if same(typed, value):
            return Graded(False, f"That is {mistake}.", str(mistake))
    return Graded(False, "No, the trace has another value.")


def solve(question: Question) -> Solution:
    """The value that the trace has, and how it comes about."""
    spec, item = _specs()[question.item.id], question.item
    place = f"Event {question.state['event']} of that run: `pagewalk walk` shows it."
    points = (Point(spec.why, steps=item.steps, concepts=item.concepts),)
    return Solution(_shown(_answer(question)), points, f"{spec.why}\n\n{place}")


def read_number(answer: str) -> Number:
    """A number as it was typed; raises DrillError."""
    text = answer.strip().replace("\N{MINUS SIGN}", "-")
    try:
        return int(text)
    except ValueError:
        pass
    try:
        return float(text)
    except ValueError:
        raise DrillError(f"{answer!r} is no number: 12, -0.25 and 3e-5 are some") from None


def same(typed: Number, right: Number) -> bool:
    """Whether two numbers agree: exactly where the right one is whole, else within 1e-4 of its size."""
    if isinstance(right, int):
        return typed == right
    try:
        typed = float(typed)
    except OverflowError:
        return False
    if math.isnan(right):
        return math.isnan(typed)
    if math.isinf(right) or math.isinf(typed):
        return typed == right
    return abs(typed - right) <= RELATIVE * abs(right)


def _answer(question: Question) -> Number:
    answer = question.state["answer"]
    assert isinstance(answer, int | float)
    return answer


def _draw(spec: Spec, rng: random.Random) -> Moment:
    wanted = film(spec.film)
    line = find_line(wanted, spec.concept, spec.begins)
    places = list(_places(spec))
    rng.shuffle(places)
    for thread, nth in places:
        moment = Moment(wanted, thread, line, nth)
        if spec.when(moment):
            return moment
    raise DrillError(f"predict/{spec.name}: no thread of the film {wanted.id} comes to line {line.number}")


@cache
def _places(spec: Spec) -> tuple[tuple[int, int], ...]:
    """Every visit of the line, by thread and number; to count them takes longer than all the rest of a question."""
    wanted = film(spec.film)
    line = find_line(wanted, spec.concept, spec.begins)
    return tuple(
        (thread, nth)
        for thread, known in enumerate(record(wanted).threads)
        if not spec.lanes_only or known.number < WARP
        for nth in range(1, visits(wanted, thread, line) + 1)
    )


def _text(spec: Spec, moment: Moment) -> str:
    shown = {f"`{name}`": moment.shown(name) for name in spec.shows}
    shown |= {f"`{name}`": _shown(value) for name, value in spec.also(moment).items()}
    where = f"Thread {moment.lane} of block {moment.film.block} in the recorded run `{spec.film}` is about to run line "
    where += f"{moment.line.number} of `{moment.line.path}`, its visit number {moment.nth}:"
    state = "\n".join(f"- {name} = {value}" for name, value in shown.items())
    return f"{where}\n\n    {moment.line.text}\n\n{state}\n\n{spec.asks.format(lane=moment.lane)}"


def _shown(value: object) -> str:
    return f"{value:.9g}" if isinstance(value, float) else str(value)
