"""The truth for tiny-vllm's kernel, in float64 and from the logical keys and values: its parts, and its mistakes.

A mistake has an answer too: what the kernel must return when warp 1 always reads late, or when only some of the head's
elements take part. A step that predicts the wrong answer to six digits has understood why it is wrong.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from kernels.cases import DecodeCase

Float64 = npt.NDArray[np.float64]
LANES = 32


def products(case: DecodeCase, seq: int, head: int) -> Float64:
    """Return query element times key element, before anything is added: [tokens, head size]."""
    keys, _ = _rows(case, seq, head)
    found: Float64 = case.q[seq, head].astype(np.float64) * keys
    return found


def shuffled(values: Float64) -> list[Float64]:
    """Return the 32 lanes after each of the five shuffles down: a lane past the end adds its own value."""
    found = []
    for delta in (16, 8, 4, 2, 1):
        source = [lane + delta if lane + delta < LANES else lane for lane in range(LANES)]
        values = values + values[..., source]
        found.append(values)
    return found


def running(scores: Float64, values: Float64) -> tuple[Float64, Float64, Float64]:
    """Return maximum, sum of exponentials and weighted sum over the first 1, 2, ... tokens, each from the start."""
    firsts = [scores[: count + 1] for count in range(len(scores))]
    weights = [np.exp(first - first.max()) for first in firsts]
    return (
        np.array([first.max() for first in firsts]),
        np.array([weight.sum() for weight in weights]),
        np.array([weight @ values[: len(weight)] for weight in weights]),
    )


def mean(scores: Float64, values: Float64) -> Float64:
    """Return the values' mean, weighted by the softmax of the scores: [head size]."""
    weights = np.exp(scores - scores.max())
    return np.asarray(weights @ values / weights.sum(), np.float64)


def late(case: DecodeCase) -> Float64:
    """Return the output when warp 1 reads each score only after thread 0 stored the next token's half over it.

    Elements 0 to 31 are right: [num_seqs, num_heads, head_size]. The others weigh each token by the next one's
    unscaled half sum, over elements 0 to 31; the last token has no next one, and is right.
    """
    out = np.empty(case.q.shape)
    for seq in range(case.num_seqs):
        for head in range(case.num_heads):
            _, values = _rows(case, seq, head)
            parts = products(case, seq, head)
            right = parts.sum(axis=1) * case.scale
            wrong = np.concatenate([parts[1:, :LANES].sum(axis=1), right[-1:]])
            out[seq, head, :LANES] = mean(right, values[:, :LANES])
            out[seq, head, LANES:] = mean(wrong, values[:, LANES:])
    return out


def first_elements(case: DecodeCase, elements: int, divisor: float) -> Float64:
    """Return the output when scores add up only the first `elements` products and are divided by `divisor`."""
    out = np.empty(case.q.shape)
    for seq in range(case.num_seqs):
        for head in range(case.num_heads):
            _, values = _rows(case, seq, head)
            out[seq, head] = mean(products(case, seq, head)[:, :elements].sum(axis=1) / divisor, values)
    return out


def _rows(case: DecodeCase, seq: int, head: int) -> tuple[Float64, Float64]:
    """Return the keys and values of the KV head that query head `head` reads: each [tokens, head size]."""
    group = case.num_heads // case.num_kv_heads
    kv_head = [owner for owner in range(case.num_kv_heads) for _ in range(group)][head]
    keys, values = (rows[seq][:, kv_head].astype(np.float64) for rows in (case.keys, case.values))
    return keys, values
