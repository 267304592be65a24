"""How alike two pieces of code are, where a part of one lies in the other, and which tokens differ.

Everything here works on token lists and knows no parser and no file. It never decides alone: what rests on
likeness is called a guess wherever it is shown.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

Located = Sequence[tuple[int, str]]  # line and token, in order
Shingles = Counter[tuple[str, ...]]

_WORD = re.compile(r"\w+|[^\w\s]")


def words(tokens: Sequence[str]) -> list[str]:
    """Return the tokens, with those that hold a whole text (a macro's body, a string) cut into words."""
    return [word for token in tokens for word in (_WORD.findall(token) if " " in token else (token,))]


def shingles(tokens: Sequence[str]) -> Shingles:
    """Count the runs of three tokens, the ends padded so that a short list has some too."""
    padded = ["", *words(tokens), ""]
    return Counter(zip(padded, padded[1:], padded[2:], strict=False))


def likeness(one: Shingles, other: Shingles) -> float:
    """Return the share of runs that two pieces have in common, from 0 to 1 (their Dice coefficient)."""
    total = one.total() + other.total()
    return 2 * (one & other).total() / total if total else 1.0


def alike(one: Sequence[str], other: Sequence[str]) -> float:
    """Return how alike two token lists are, from 0 (nothing in common) to 1."""
    return likeness(shingles(one), shingles(other))


@dataclass(frozen=True)
class Projection:
    """Where a part went: lines `first` to `last`, and the `share` of its tokens that were found there in order."""

    first: int
    last: int
    share: float


class Alignment:
    """Two versions of one symbol, token against token."""

    def __init__(self, old: Located, new: Located) -> None:
        self._old = old
        self._new = new
        matcher = SequenceMatcher(None, [token for _, token in old], [token for _, token in new])
        self._blocks = [block for block in matcher.get_matching_blocks() if block.size]

    def project(self, first: int, last: int) -> Projection | None:
        """Return where lines `first` to `last` of the old version lie in the new one, or None if nowhere.

        Runs of one or two tokens count for nothing: brackets and commas match anywhere. A run far from where most of
        the part went is left out.
        """
        low = next((i for i, (line, _) in enumerate(self._old) if line >= first), len(self._old))
        high = next((i for i, (line, _) in enumerate(self._old) if line > last), len(self._old))
        runs = []
        for block in self._blocks:
            start, end = max(block.a, low), min(block.a + block.size, high)
            if end - start >= min(3, high - low):
                runs.append((start - block.a + block.b, end - block.a + block.b))
        runs = _densest(runs, 2 * (high - low) + 8)
        if not runs or high == low:
            return None
        share = sum(end - start for start, end in runs) / (high - low)
        return Projection(self._new[runs[0][0]][0], self._new[runs[-1][1] - 1][0], share)


def _densest(runs: list[tuple[int, int]], width: int) -> list[tuple[int, int]]:
    """Return the runs that lie within one window of `width` tokens and hold the most tokens together."""
    best: list[tuple[int, int]] = []
    most = 0
    for index, (start, _) in enumerate(runs):
        inside = [run for run in runs[index:] if run[1] <= start + max(width, runs[index][1] - start)]
        held = sum(end - begin for begin, end in inside)
        if held > most:
            best, most = inside, held
    return best


@dataclass(frozen=True)
class Hunk:
    """Tokens that differ: those that were there (`old`) and those that stand in their place (`new`)."""

    old: tuple[str, ...]
    new: tuple[str, ...]


def changes(old: Sequence[str], new: Sequence[str]) -> list[Hunk]:
    """Return what must be taken out of `old` and put in to make `new`, in order; empty when they are equal."""
    one, other = words(old), words(new)
    matcher = SequenceMatcher(None, one, other)
    return [Hunk(tuple(one[a:b]), tuple(other[c:d])) for tag, a, b, c, d in matcher.get_opcodes() if tag != "equal"]


def count(hunks: Sequence[Hunk]) -> tuple[int, int]:
    """Return how many tokens came and how many went."""
    return sum(len(hunk.new) for hunk in hunks), sum(len(hunk.old) for hunk in hunks)
