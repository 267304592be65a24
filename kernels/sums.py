"""Two ways to add up floats, and lesson 1's two attentions with either: the last digit depends on the way.

Python's own `sum` was the first until 3.11, and is the second since 3.12. Both are written out here, so that any Python
can show what the other one prints.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

from kernels.reference import Vector

Sum = Callable[[Iterable[float]], float]


def left_to_right(numbers: Iterable[float]) -> float:
    """Add one number after the other, rounding each time."""
    total = 0.0
    for number in numbers:
        total += number
    return total


def compensated(numbers: Iterable[float]) -> float:
    """Add one number after the other, keep what each rounding drops, and add that at the end (Neumaier)."""
    total = dropped = 0.0
    for number in numbers:
        longer = total + number
        # The smaller of the two is the one that lost digits.
        if abs(total) >= abs(number):
            dropped += (total - longer) + number
        else:
            dropped += (number - longer) + total
        total = longer
    return total + dropped


def scores_of(q: Vector, keys: Sequence[Vector], scale: float, add: Sum) -> list[float]:
    """Return scale * (q . k) for each key, products added up by `add`."""
    return [scale * add(a * b for a, b in zip(q, key, strict=True)) for key in keys]


def dense(q: Vector, keys: Sequence[Vector], values: Sequence[Vector], scale: float, add: Sum) -> list[float]:
    """Return attention over rows that lie together; each weight is divided by the sum before it meets its value."""
    scores = scores_of(q, keys, scale, add)
    top = max(scores)
    exponentials = [math.exp(score - top) for score in scores]
    total = add(exponentials)
    weights = [number / total for number in exponentials]
    return [add(w * v for w, v in zip(weights, column, strict=True)) for column in zip(*values, strict=True)]


def online(q: Vector, keys: Sequence[Vector], values: Sequence[Vector], scale: float, add: Sum) -> list[float]:
    """Return the same with a running softmax, token by token: only scores use `add`, the rest is one `+` a token."""
    top, total, parts = -math.inf, 0.0, [0.0] * len(values[0])
    for score, value in zip(scores_of(q, keys, scale, add), values, strict=True):
        higher = max(top, score)
        correction, weight = math.exp(top - higher), math.exp(score - higher)
        total = total * correction + weight
        parts = [part * correction + weight * number for part, number in zip(parts, value, strict=True)]
        top = higher
    return [part / total for part in parts]


def apart(one: Sequence[float], other: Sequence[float]) -> float:
    """Return the largest difference of an element."""
    return max(abs(a - b) for a, b in zip(one, other, strict=True))
