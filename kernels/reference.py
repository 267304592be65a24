"""Paged attention in plain Python: lists and `math`, nothing else. Start here.

One query attends to the tokens of one sequence. `dense_attention` finds their keys and values in a row;
`paged_attention` finds them through a block table, block by block, and keeps a running softmax.
Both give the same answer: paging moves the data, not the mathematics.
"""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from kernels.errors import ArgumentError

Vector = Sequence[float]
"""One head of one token: head_size numbers."""
Pool = list[list[list[float]]]
"""Physical blocks of token rows: pool[block][offset] is one token's key (or value)."""


class TokenStep(NamedTuple):
    """What `paged_attention` knows right after one token."""

    position: int
    """The token's place in the sequence, from 0."""
    block: int
    """Its logical block."""
    physical: int
    """The physical block that the block table names for it."""
    offset: int
    """Its place in that block."""
    score: float
    """scale * (q . k)."""
    running_max: float
    """The largest score so far: m."""
    running_sum: float
    """The sum of exp(score - m) so far: l."""
    accumulator: tuple[float, ...]
    """The sum of exp(score - m) * v so far."""


def dot(a: Vector, b: Vector) -> float:
    """Return the sum of the products of two vectors."""
    return sum(x * y for x, y in zip(a, b, strict=True))


# region: dense-attention
def dense_attention(
    q: Vector, keys: Sequence[Vector], values: Sequence[Vector], scale: float | None = None
) -> list[float]:
    """Return softmax(scale * q . K) V, keys and values lying in a row: the answer that paging must keep.

    `scale` is 1 / sqrt(head size) unless given.
    """
    scale = 1 / math.sqrt(len(q)) if scale is None else scale
    scores = [scale * dot(q, key) for key in keys]
    top = max(scores)
    exponentials = [math.exp(score - top) for score in scores]
    total = sum(exponentials)
    return [dot(exponentials, column) / total for column in zip(*values, strict=True)]


# endregion


def empty_pool(num_blocks: int, block_size: int, head_size: int) -> Pool:
    """Return a pool whose every number is NaN: reading a place that nobody wrote shows in the result."""
    return [[[math.nan] * head_size for _ in range(block_size)] for _ in range(num_blocks)]


# region: slot-of-token
def slot_of_token(position: int, block_table: Sequence[int], block_size: int) -> int:
    """Return the slot of a token: the table turns its logical block into a physical one, the offset stays."""
    block, offset = divmod(position, block_size)
    return block_table[block] * block_size + offset


# endregion


# region: scatter
def scatter(rows: Sequence[Vector], pool: Pool, block_table: Sequence[int], block_size: int) -> None:
    """Write the rows of a sequence, token by token, to their slots in the pool.

    Raises `ArgumentError` where the table is too short, or names a block that the pool does not have.
    """
    _check_table(block_table, len(rows), block_size, len(pool))
    for position, row in enumerate(rows):
        physical, offset = divmod(slot_of_token(position, block_table, block_size), block_size)
        pool[physical][offset] = list(row)


# endregion


def paged_attention(
    q: Vector,
    k_pool: Pool,
    v_pool: Pool,
    block_table: Sequence[int],
    seq_len: int,
    block_size: int,
    scale: float | None = None,
    observe: Callable[[TokenStep], None] | None = None,
) -> list[float]:
    """Return the attention of q over the `seq_len` tokens that the block table leads to.

    `scale` is 1 / sqrt(head size) unless given; `observe` is called after each token. Raises `ArgumentError`
    where there is no token, or the table is too short, or names a block that the pool does not have.
    """
    if seq_len < 1:
        raise ArgumentError("seq_len", seq_len, "must be at least 1: softmax over nothing has no value")
    _check_table(block_table, seq_len, block_size, len(k_pool))
    scale = 1 / math.sqrt(len(q)) if scale is None else scale

    running_max = -math.inf
    running_sum = 0.0
    accumulator = [0.0] * len(v_pool[0][0])

    # region: gather-loop
    # region: block-table-walk
    # region: block-ranges
    for block in range(math.ceil(seq_len / block_size)):
        # endregion
        # region: gather-lookup
        physical = block_table[block]
        # endregion
        # endregion
        for offset in range(block_size):
            # region: tail-guard
            position = block * block_size + offset
            if position >= seq_len:
                break
            # endregion
            # region: k-address
            # region: v-address
            key, value = k_pool[physical][offset], v_pool[physical][offset]
            # endregion
            # endregion
            # region: qk-dot
            score = scale * dot(q, key)
            # endregion

            # region: online-softmax
            # region: running-max
            new_max = max(running_max, score)
            # endregion
            # region: running-rescale
            # region: running-sum
            correction = math.exp(running_max - new_max)
            weight = math.exp(score - new_max)
            running_sum = running_sum * correction + weight
            # endregion
            # region: accumulate
            accumulator = [a * correction + weight * v for a, v in zip(accumulator, value, strict=True)]
            # endregion
            # endregion
            # region: running-max
            running_max = new_max
            # endregion
            # endregion
            if observe:
                now = (running_max, running_sum, tuple(accumulator))
                observe(TokenStep(position, block, physical, offset, score, *now))
    # endregion

    # region: final-divide
    return [a / running_sum for a in accumulator]
    # endregion


def paged_attention_trace(
    q: Vector,
    k_pool: Pool,
    v_pool: Pool,
    block_table: Sequence[int],
    seq_len: int,
    block_size: int,
    scale: float | None = None,
) -> tuple[list[float], list[TokenStep]]:
    """Return the output of `paged_attention` and what it knew after each token."""
    steps: list[TokenStep] = []
    out = paged_attention(q, k_pool, v_pool, block_table, seq_len, block_size, scale, observe=steps.append)
    return out, steps


def _check_table(block_table: Sequence[int], tokens: int, block_size: int, num_blocks: int) -> None:
    """Refuse a table that does not lead to `tokens` tokens; what it holds past them is nobody's business."""
    used = math.ceil(tokens / block_size)
    if len(block_table) < used:
        raise ArgumentError("block_table", list(block_table), f"must name enough blocks for {tokens} tokens")
    for block in range(used):
        # Python would take -1, the usual mark for "none", as the last block.
        if not 0 <= block_table[block] < num_blocks:
            must = f"must be a block of the pool: 0 .. {num_blocks - 1}"
            raise ArgumentError(f"block_table[{block}]", block_table[block], must)
