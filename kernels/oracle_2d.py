"""The truth about the 2d kernel, in float64: scores with a window, and what it remembers after each tile.

Nothing is carried from tile to tile here: each value is computed anew from all tokens seen so far. So an error in the
kernel's rescaling cannot be repeated in its check.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kernels import oracle
from kernels.cases import DecodeCase
from kernels.oracle import Float64

OUTSIDE = -10000.0
"""The score that the 2d kernel gives a token before the window."""
EPSILON = 1e-10
"""What the 2d kernel adds to the sum before it divides."""


@dataclass(frozen=True)
class State:
    """What one query head remembers after a tile."""

    m: float
    """Largest score so far."""
    l: float
    """Sum of exp(score - m) so far."""
    alpha: float
    """exp(m before this tile - m after it); 0 for the first tile."""
    acc: Float64
    """Sum of exp(score - m) x value so far, [head_size]."""


def scores(case: DecodeCase, seq: int, head: int, window: int = 0, outside: float = OUTSIDE) -> Float64:
    """Return the scores of one row, [seq_len]; tokens before the window have `outside` plus their ALiBi bias."""
    found = oracle.logits(case, seq, head)
    if window:
        bias = found - oracle.logits(DecodeCase(**{**vars(case), "alibi_slopes": None}), seq, head)
        hidden = np.arange(len(found)) < len(found) - window
        found = np.where(hidden, outside + bias, found)
    return found


def states(
    case: DecodeCase, seq: int, head: int, tile: int, window: int = 0, outside: float = OUTSIDE, first: int = 0
) -> list[State]:
    """Return the state after each tile of `tile` tokens, beginning with tile `first`."""
    row = scores(case, seq, head, window, outside)
    values = case.values[seq][:, head // (case.num_heads // case.num_kv_heads)].astype(np.float64)
    start, found, before = first * tile, [], -np.inf
    for end in range(start + tile, len(row) + tile, tile):
        seen = row[start:end]
        # A unified tile of nothing but hidden tokens has no largest score: it counts as zero.
        m = float(seen.max()) if np.isfinite(seen.max()) else 0.0
        weights = np.exp(seen - m)
        found.append(State(m, float(weights.sum()), float(np.exp(before - m)), weights @ values[start:end]))
        before = m
    return found


def attention(case: DecodeCase, window: int = 0, eps: float = EPSILON) -> Float64:
    """Return the output of the whole case, [num_seqs, num_heads, head_size]: plain attention inside the window."""
    found = np.zeros(case.q.shape)
    for seq, head in np.ndindex(case.num_seqs, case.num_heads):
        row = oracle.logits(case, seq, head)
        values = case.values[seq][:, head // (case.num_heads // case.num_kv_heads)].astype(np.float64)
        start = max(len(row) - window, 0) if window else 0
        if len(row):
            weights = np.exp(row[start:] - row[start:].max())
            found[seq, head] = weights @ values[start:] / (weights.sum() + eps)
    return found
