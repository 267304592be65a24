"""Arithmetic of the benchmark's charts: logarithmic axes, labels that make room for each other, and units in words."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Log:
    """A logarithmic axis: values `low` to `high` at the places `start` to `end`."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        """The place of a value."""
        part = math.log(value / self.low) / math.log(self.high / self.low)
        return self.start + (self.end - self.start) * part

    def decades(self) -> Iterator[tuple[float, float]]:
        """Powers of ten on the axis, with their places."""
        for power in range(math.ceil(math.log10(self.low)), math.floor(math.log10(self.high)) + 1):
            yield 10.0**power, self(10.0**power)

    def factors(self, one: float) -> Iterator[tuple[float, float]]:
        """1, 2, 5, 10, ... times `one`, with their places."""
        power = 0
        while one * 10.0**power <= self.high:
            for digit in (1, 2, 5):
                factor = digit * 10.0**power
                if self.low * 0.999 <= one * factor <= self.high:
                    yield factor, self(one * factor)
            power += 1


def dodge(places: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Places at least `gap` apart, in the same order, as near to the wanted ones as a pass each way brings them.

    `places` in ascending order; all within `low` and `high` where these leave room.
    """
    found = list(places)
    for number in range(1, len(found)):
        found[number] = max(found[number], found[number - 1] + gap)
    edge = high
    for number in reversed(range(len(found))):
        found[number] = min(found[number], edge)
        edge = found[number] - gap
    # What was pushed up too far comes down again, unless the room is too small.
    edge = low
    for number in range(len(found)):
        found[number] = max(found[number], edge)
        edge = found[number] + gap
    return found


def time_text(us: float) -> str:
    """Microseconds as a reader wants them: 1.9 µs, 247 µs, 18.6 ms."""
    if us >= 1_000_000:
        return f"{us / 1_000_000:.3g} s"
    value, unit = (us / 1000, "ms") if us >= 1000 else (us, "µs")
    return f"{value:.0f} {unit}" if value >= 100 else f"{value:.3g} {unit}"


def times_text(factor: float) -> str:
    """A factor: 78×, 4.7×, 1.03×."""
    return f"{factor:.0f}×" if factor >= 20 else f"{factor:.1f}×" if factor >= 2 else f"{factor:.2f}×"


def wrapped(words: str, width: int) -> list[str]:
    """Lines of at most `width` characters, a longer word on a line of its own."""
    return textwrap.wrap(words, width, break_long_words=False) or [""]
