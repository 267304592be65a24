"""The truth that ports are compared with: attention in float64 from the logical keys and values.

It never looks into a paged cache and shares no code with `layout` or a port: no mistake can hide in both.
Each intermediate value of the classic kernel has its function here, for one (sequence, query head) pair;
`torch_sdpa` is a second oracle, written by other people.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from kernels.cases import Array, DecodeCase, WriteCase
from kernels.errors import ArgumentError

Float64 = npt.NDArray[np.float64]

KERNEL_EPSILON = 1e-6
"""What the classic kernel adds to the sum of exponentials before it divides."""


def logits(case: DecodeCase, seq: int, head: int) -> Float64:
    """Return scale * (q . k) plus the ALiBi bias slope * (position - seq_len + 1): [seq_len]."""
    keys, _ = _of_head(case, seq, head)
    scores: Float64 = case.scale * (keys @ case.q[seq, head].astype(np.float64))
    if case.alibi_slopes is not None:
        scores = scores + float(case.alibi_slopes[head]) * (np.arange(len(keys)) - len(keys) + 1)
    return scores


def qk_max(case: DecodeCase, seq: int, head: int) -> float:
    """Return the largest logit; minus infinity where there are no tokens."""
    return float(np.max(logits(case, seq, head), initial=-np.inf))


def exp_sum(case: DecodeCase, seq: int, head: int) -> float:
    """Return the sum of exp(logit - qk_max): at least 1, or 0 where there are no tokens."""
    return float(_exponentials(case, seq, head).sum())


def weights(case: DecodeCase, seq: int, head: int, eps: float = KERNEL_EPSILON) -> Float64:
    """Return the softmax weights as the kernel makes them, with `eps` added to the sum: [seq_len]."""
    exponentials = _exponentials(case, seq, head)
    # Without tokens there is nothing to divide, and 0 / 0 would warn.
    return exponentials / (exponentials.sum() + eps) if len(exponentials) else exponentials


def output(case: DecodeCase, seq: int, head: int, eps: float = 0.0) -> Float64:
    """Return the attention output: [head_size], zeros without tokens. `eps` = 0 is exact softmax."""
    _, values = _of_head(case, seq, head)
    return weights(case, seq, head, eps) @ values


def attention(case: DecodeCase, eps: float = 0.0) -> Float64:
    """Return the output of the whole case: [num_seqs, num_heads, head_size]. `eps` = 0 is exact softmax."""
    return np.array([[output(case, seq, head, eps) for head in range(case.num_heads)] for seq in range(case.num_seqs)])


def partial_output(
    case: DecodeCase, seq: int, head: int, blocks: Iterable[int], eps: float = KERNEL_EPSILON
) -> Float64:
    """Return what some logical blocks add to the output, with weights over all tokens: [head_size]."""
    tokens = range(int(case.seq_lens[seq]))
    taken = [token for block in blocks for token in tokens if token // case.block_size == block]
    _, values = _of_head(case, seq, head)
    result: Float64 = weights(case, seq, head, eps)[taken] @ values[taken]
    return result


def warp_outputs(case: DecodeCase, seq: int, head: int, num_warps: int = 4, eps: float = KERNEL_EPSILON) -> Float64:
    """Return the sums that the warps hold before they are added up: [num_warps, head_size].

    Warp w takes the logical blocks w, w + num_warps, w + 2 * num_warps and so on.
    """
    num_blocks = len(case.blocks_of(seq))
    turns = [range(warp, num_blocks, num_warps) for warp in range(num_warps)]
    return np.array([partial_output(case, seq, head, blocks, eps) for blocks in turns])


def slots(block_table: Sequence[int] | npt.NDArray[Any], seq_len: int, block_size: int) -> list[int]:
    """Return the slot of each token of a sequence: its blocks' slots end to end, up to the last token."""
    found: list[int] = []
    for physical in block_table:
        first = int(physical) * block_size
        for number in range(first, first + block_size):
            if len(found) == seq_len:
                return found
            found.append(number)
    if len(found) < seq_len:
        raise ArgumentError("block_table", list(block_table), f"must name enough blocks for {seq_len} tokens")
    return found


def written_caches(case: WriteCase) -> tuple[Array, Array]:
    """Return (key cache, value cache) as they must be after the write; the rest keeps its poison.

    Only as many rows are written as there are slots, and a negative slot writes nothing.
    """
    k_cache, v_cache = case.k_cache.copy(), case.v_cache.copy()
    x = k_cache.shape[-1]
    places = [(block, offset) for block in range(case.num_blocks) for offset in range(case.block_size)]
    for token, number in enumerate(case.slot_mapping):
        if number < 0:
            continue
        block, offset = places[number]
        for head in range(case.num_heads):
            for dim in range(case.head_size):
                k_cache[block, head, dim // x, offset, dim % x] = case.key[token, head, dim]
                v_cache[block, head, dim, offset] = case.value[token, head, dim]
    return k_cache, v_cache


def torch_sdpa(case: DecodeCase) -> Float64:
    """Return torch's attention (SDPA) of the case, in float64: [num_seqs, num_heads, head_size]."""
    import torch

    result = np.zeros(case.q.shape)
    for seq, (keys, values) in enumerate(zip(case.keys, case.values, strict=True)):
        if not len(keys):
            continue
        group = case.num_heads // case.num_kv_heads
        query = torch.from_numpy(case.q[seq].astype(np.float64)).unsqueeze(1)
        key, value = (
            torch.from_numpy(rows.astype(np.float64)).transpose(0, 1).repeat_interleave(group, dim=0)
            for rows in (keys, values)
        )
        bias = None
        if case.alibi_slopes is not None:
            distance = torch.arange(1 - len(keys), 1, dtype=torch.float64)
            bias = (torch.from_numpy(case.alibi_slopes.astype(np.float64))[:, None] * distance).unsqueeze(1)
        out = torch.nn.functional.scaled_dot_product_attention(query, key, value, attn_mask=bias, scale=case.scale)
        result[seq] = out.squeeze(1).numpy()
    return result


def _of_head(case: DecodeCase, seq: int, head: int) -> tuple[Float64, Float64]:
    """Return the keys and values that a query head attends to, each [seq_len, head_size]."""
    group = case.num_heads // case.num_kv_heads
    keys, values = (
        np.repeat(rows[seq], group, axis=1)[:, head].astype(np.float64) for rows in (case.keys, case.values)
    )
    return keys, values


def _exponentials(case: DecodeCase, seq: int, head: int) -> Float64:
    scores = logits(case, seq, head)
    return np.exp(scores - np.max(scores, initial=-np.inf))
