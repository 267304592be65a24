"""What a reader of `lab serve` is asked before a phase, with the answer, the sum behind it, and where to read it.

The answers are arithmetic on the requests' lengths; the readings come later, and may differ.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from walkthroughs.lab.metrics import exact
from walkthroughs.lab.phases import BLOCK_SIZE, HITS, MOST, Outcome, Phase, common_prefix, longest, phases
from walkthroughs.lab.scenarios import Ask


@dataclass(frozen=True)
class Question:
    """A question, its answer, the sum in words, and `read`: what an outcome says of it, in words."""

    text: str
    answer: int
    why: str
    read: Callable[[Outcome], str]


def questions(phase: Phase) -> tuple[Question, ...]:
    """Those of a phase, in order."""
    return tuple(_question(phase, moment) for moment in phase.moments)


def _question(phase: Phase, moment: str | tuple[str, int]) -> Question:
    if isinstance(moment, tuple):
        return _at(phase, *moment)
    return {MOST: _most, HITS: _hits}[moment](phase)


def _at(phase: Phase, name: str, count: int) -> Question:
    (ask,) = (one for one in phase.asks if one.name == name)
    others = [one for one in phase.asks if one is not ask]
    total = sum(one.generate for one in others) + count
    answer = exact(len(ask.prompt), ask.generate, count, BLOCK_SIZE)
    last, written = count == ask.generate, len(ask.prompt) + count - 1
    what = "the last token" if last else "1 token" if count == 1 else f"{count} tokens"
    done = f", with {' and '.join(one.name for one in others)} done" if others else ""
    why = f"{len(ask.prompt)} + {count} - 1 = {written} tokens are written; {written} / {BLOCK_SIZE}, rounded up"
    return Question(
        f"Blocks in use after {what} of {name}{done}?",
        answer,
        f"{name} is done and has given its blocks back" if last else why,
        lambda outcome: _read_end(outcome) if last else _read_at(outcome, total, answer),
    )


def _read_end(outcome: Outcome) -> str:
    return f"read {outcome.left} after the end"


def _read_at(outcome: Outcome, total: int, answer: int) -> str:
    """The nearest reading within a block's tokens, where this is the one value that can be."""
    one = [sample for sample in outcome.samples if sample.low == sample.high == answer]
    sample = min(one, key=lambda sample: abs(sample.generated - total), default=None)
    if sample is None or abs(sample.generated - total) >= BLOCK_SIZE:
        return "no reading fell there"
    of = "" if len(outcome.phase.asks) == 1 else " in all"
    return f"read {sample.used} at {sample.generated} {'token' if sample.generated == 1 else 'tokens'}{of}"


def _most(phase: Phase) -> Question:
    parts = " + ".join(f"{ask.name} {longest(ask)}" for ask in phase.asks)
    return Question(
        "Blocks in use together: no more than?",
        phase.most,
        f"{parts}, each at its longest",
        lambda outcome: f"read {max((sample.used for sample in outcome.samples), default=0)} at most",
    )


def _hits(phase: Phase) -> Question:
    (ask,) = phase.asks
    return Question(
        f"Tokens of {ask.name} found in the prefix cache?",
        phase.hits,
        _why_found(phase, ask),
        lambda outcome: f"the server counted {outcome.hits}",
    )


def _why_found(phase: Phase, ask: Ask) -> str:
    if not phase.hits:
        return "nobody sent this prefix before"
    known = [one for other in phases() for one in other.asks if one.name != ask.name]
    best = max(known, key=lambda one: common_prefix(one, ask))
    common = common_prefix(best, ask)
    return f"{common} tokens as in {best.name}, which fill {phase.hits // BLOCK_SIZE} whole blocks of {BLOCK_SIZE}"
