"""How far a kernel that computes in float32 may be from the float64 oracle: a bound that holds for every case.

Derived from the rounding of each operation on the way from the scores to the output, never from what a kernel happened
to show. So a reader can change a case and a sound kernel still passes, while a wrong block or a lost token does not.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kernels import oracle_2d
from kernels.cases import DecodeCase

SINGLE = 2.0**-24
"""Half a unit in the last place of a float32 near one."""
DOUBLE = 2.0**-53
"""The same for float64."""
HALF = 2.0**-11
"""The same for float16."""
HALF_TINY = 2.0**-25
"""Half of the smallest float16 above zero."""
DEEP = 104.0
"""A score that far below the maximum has the weight zero in float32."""


@dataclass(frozen=True)
class Bounds:
    """The most that the values of a case may be off, over all sequences and heads."""

    score: float
    """Of a score, and so of a maximum."""
    share: float
    """Of a sum of exponentials, as a part of it."""
    output: float
    """Of an element of the output."""


def bounds(case: DecodeCase, window: int = 0, unit: float = SINGLE) -> Bounds:
    """The bounds of one case. `window`: tokens that a query sees, 0 for all; `unit`: of the kernel's own floats."""
    score = share = output = 0.0
    for seq, head in np.ndindex(case.num_seqs, case.num_heads):
        own = _of_row(case, seq, head, window, unit)
        score, share, output = max(score, own.score), max(share, own.share), max(output, own.output)
    return Bounds(score, share, output)


def _of_row(case: DecodeCase, seq: int, head: int, window: int, unit: float) -> Bounds:
    row = oracle_2d.scores(case, seq, head, window)
    kv_head = head // (case.num_heads // case.num_kv_heads)
    keys, values = (np.abs(rows[seq][:, kv_head].astype(np.float64)) for rows in (case.keys, case.values))
    products = case.scale * keys @ np.abs(case.q[seq, head].astype(np.float64))
    # Head size products, as many sums, the scale and its own rounding.
    score = float((case.head_size + 8) * unit * products.max())
    span = min(float(row.max() - row.min()), DEEP)
    # Both terms of the difference are off. The approximate exponential is off by 2 + 1.2 |x| units in the last place,
    # which is twice as many of ours. A running sum is mended at each new maximum: an exponential and two roundings.
    steps = 6 * len(row) + 16
    share = 2 * score + unit * (8 + 4 * span + steps)
    weights = np.exp(row - row.max())
    mean = weights / weights.sum() @ values
    output = float((mean * (2 * share + unit * steps)).max())
    if case.q.dtype == np.float16:
        # Weights, products, four sums, a partition's row and the output in float16; what is too small is lost.
        lost = HALF_TINY * float((4 * values + 2).sum(axis=0).max() + 1)
        output += 9 * HALF * float(mean.max()) + lost
    return Bounds(score, share, output)
