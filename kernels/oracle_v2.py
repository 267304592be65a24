"""The truth about partitions: each partition's own softmax, and their merge, in float64.

Built on `oracle.logits` alone, with one array a partition: no code, and no index arithmetic, is shared with the port.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from kernels import oracle
from kernels.cases import DecodeCase
from kernels.oracle import KERNEL_EPSILON, Float64


def parts(case: DecodeCase, seq: int, head: int, size: int) -> list[tuple[Float64, Float64]]:
    """Return (logits, values) of each partition of `size` tokens; the last may be shorter, there may be none."""
    scores = oracle.logits(case, seq, head)
    group = case.num_heads // case.num_kv_heads
    values = case.values[seq][:, head // group].astype(np.float64)
    return [(scores[first : first + size], values[first : first + size]) for first in range(0, len(scores), size)]


def maxima(case: DecodeCase, seq: int, head: int, size: int) -> Float64:
    """Return the largest logit of each partition: [partitions]."""
    return np.array([scores.max() for scores, _ in parts(case, seq, head, size)])


def sums(case: DecodeCase, seq: int, head: int, size: int) -> Float64:
    """Return each partition's sum of exponentials, relative to its own maximum: [partitions]."""
    return np.array([np.exp(scores - scores.max()).sum() for scores, _ in parts(case, seq, head, size)])


def outputs(case: DecodeCase, seq: int, head: int, size: int, eps: float = KERNEL_EPSILON) -> Float64:
    """Return each partition's own attention output, `eps` added to its sum: [partitions, head_size]."""
    rows = []
    for scores, values in parts(case, seq, head, size):
        exponentials = np.exp(scores - scores.max())
        rows.append(exponentials @ values / (exponentials.sum() + eps))
    return np.array(rows).reshape(-1, case.head_size)


def rescaled(maximum: npt.ArrayLike, total: npt.ArrayLike) -> Float64:
    """Return sums of exponentials brought to the largest of their maxima: sum * exp(maximum - largest)."""
    own = np.asarray(maximum, np.float64)
    result: Float64 = np.asarray(total, np.float64) * np.exp(own - own.max(initial=-np.inf))
    return result


def merge(maximum: npt.ArrayLike, total: npt.ArrayLike, rows: npt.ArrayLike, eps: float = KERNEL_EPSILON) -> Float64:
    """Return the rows merged into one, each weighted by its rescaled sum; zeros where there are no partitions."""
    weight = rescaled(maximum, total)
    result: Float64 = weight @ np.asarray(rows, np.float64)
    # Without partitions there is nothing to divide, and 0 / 0 would warn.
    return result / (weight.sum() + eps) if len(weight) else result


def attention(case: DecodeCase, size: int, eps: float = KERNEL_EPSILON) -> Float64:
    """Return v2's output by its own formula, [num_seqs, num_heads, head_size].

    A sequence of one partition has `eps` once, in the partition; a longer one twice, in the partitions and the merge.
    """
    out = np.zeros(case.q.shape)
    for seq in range(case.num_seqs):
        for head in range(case.num_heads):
            rows = outputs(case, seq, head, size, eps)
            single = len(rows) == 1
            pair = maxima(case, seq, head, size), sums(case, seq, head, size)
            out[seq, head] = rows[0] if single else merge(*pair, rows, eps)
    return out
