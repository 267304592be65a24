"""Checks that no declarative kind can express, one function each: they run something and say what they saw."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

from walkthroughs.claims.context import Context
from walkthroughs.claims.model import Finding

# The worked example of lesson 1: see walkthroughs/catalog/paged_reference.py, which runs it step by step.
_QUERY = (0.5, -0.3, 0.8, 0.1)
_KEYS = (
    (0.2, 0.1, -0.4, 0.6), (0.9, -0.2, 0.3, 0.0), (-0.5, 0.4, 0.7, -0.1),
    (0.1, 0.1, 0.1, 0.1), (0.8, 0.8, -0.8, 0.2), (-0.3, 0.5, 0.2, 0.9),
)  # fmt: skip
_VALUES = (
    (1.0, 0.0, 0.0, 0.0), (0.0, 1.0, 0.0, 0.0), (0.0, 0.0, 1.0, 0.0),
    (0.0, 0.0, 0.0, 1.0), (0.5, 0.5, 0.5, 0.5), (1.0, 1.0, 1.0, 1.0),
)  # fmt: skip
Add = Callable[[Iterable[float]], float]


def plain_sum(values: Iterable[float]) -> float:
    """Add from left to right, as Python's `sum` did for floats up to 3.11."""
    total = 0.0
    for value in values:
        total += value
    return total


def compensated_sum(values: Iterable[float]) -> float:
    """Add with Neumaier's correction, as Python's `sum` does for floats since 3.12."""
    total = correction = 0.0
    for value in values:
        new = total + value
        correction += (total - new) + value if abs(total) >= abs(value) else (value - new) + total
        total = new
    return total + correction


def dense(add: Add) -> list[float]:
    """Softmax attention over the example, all scores at once."""
    scores = [add(a * b for a, b in zip(_QUERY, key, strict=True)) / math.sqrt(4) for key in _KEYS]
    weights = [math.exp(score - max(scores)) for score in scores]
    total = add(weights)
    return [add(w / total * row[d] for w, row in zip(weights, _VALUES, strict=True)) for d in range(4)]


def gathered(add: Add) -> list[float]:
    """The same token by token, with a running maximum and a final division."""
    largest, total, acc = -math.inf, 0.0, [0.0] * 4
    for key, row in zip(_KEYS, _VALUES, strict=True):
        score = add(a * b for a, b in zip(_QUERY, key, strict=True)) / math.sqrt(4)
        new = max(largest, score)
        factor, weight = math.exp(largest - new), math.exp(score - new)
        total = total * factor + weight
        acc = [a * factor + weight * v for a, v in zip(acc, row, strict=True)]
        largest = new
    return [a / total for a in acc]


def sum_decides(context: Context) -> Finding:
    """The difference between both forms of the example depends on how `sum` adds: it is no fixed number."""
    seen = {}
    for name, add in (("added plainly", plain_sum), ("added with correction", compensated_sum)):
        seen[name] = max(abs(a - b) for a, b in zip(dense(add), gathered(add), strict=True))
    text = ", ".join(f"{name}: {value:.3g}" for name, value in seen.items())
    return Finding(len(set(seen.values())) > 1, text)


FUNCTIONS: dict[str, Callable[[Context], Finding]] = {"sum-decides": sum_decides}
