"""The smallest paged kernels: one thread scatters a token, one thread gathers a whole sequence.

`reference.py` as two kernels, with the same steps in the same order. They are slow on purpose:
nothing here but the block table, the slots and the online softmax.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import cuda, float64

from kernels import layout
from kernels.errors import ArgumentError
from kernels.kernel import Backend, kernel
from kernels.vllm import check

# Template parameter: `specialise` puts the real value in its place.
HEAD_SIZE = 4


@kernel()
def scatter_kernel(k_pool, v_pool, key, value, block_table, num_tokens, block_size, head_size):
    """Write a token a thread into the slots that the block table gives; arrays flat, float64."""
    # region: slot-of-token
    token_idx = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x
    if token_idx >= num_tokens:
        return
    physical_block_number = block_table[token_idx // block_size]
    block_offset = token_idx % block_size
    slot = physical_block_number * block_size + block_offset
    # endregion
    # region: scatter
    for d in range(head_size):
        k_pool[slot * head_size + d] = key[token_idx * head_size + d]
        v_pool[slot * head_size + d] = value[token_idx * head_size + d]
    # endregion


# region: signature
@kernel(lambda HEAD_SIZE: {})
def gather_kernel(out, q, k_pool, v_pool, block_table, seq_len, block_size, scale):
    """Attention of one query by one thread, block after block; arrays flat, float64."""
    # endregion
    acc = cuda.local.array(HEAD_SIZE, float64)
    for d in range(HEAD_SIZE):
        acc[d] = float64(0)
    m = float64(-np.inf)
    l = float64(0)

    # region: gather-loop
    # region: block-ranges
    num_seq_blocks = (seq_len + block_size - 1) // block_size
    # endregion
    # region: block-table-walk
    for block_idx in range(num_seq_blocks):
        # region: gather-lookup
        physical_block_number = block_table[block_idx]
        # endregion
        # endregion
        for block_offset in range(block_size):
            # region: tail-guard
            token_idx = block_idx * block_size + block_offset
            if token_idx >= seq_len:
                break
            # endregion
            # region: k-address
            # region: v-address
            slot = physical_block_number * block_size + block_offset
            # endregion
            # endregion
            # region: qk-dot
            score = float64(0)
            for d in range(HEAD_SIZE):
                score += q[d] * k_pool[slot * HEAD_SIZE + d]
            score *= scale
            # endregion

            # region: online-softmax
            # region: running-max
            m_new = max(m, score)
            # endregion
            # region: running-rescale
            # region: running-sum
            correction = math.exp(m - m_new)
            p = math.exp(score - m_new)
            l = l * correction + p
            # endregion
            # region: accumulate
            for d in range(HEAD_SIZE):
                acc[d] = acc[d] * correction + p * v_pool[slot * HEAD_SIZE + d]
            # endregion
            # endregion
            # region: running-max
            m = m_new
            # endregion
            # endregion
    # endregion

    # region: final-divide
    # region: output-write
    for d in range(HEAD_SIZE):
        out[d] = acc[d] / l
    # endregion
    # endregion


def scatter(
    k_pool: Any,
    v_pool: Any,
    key: Any,
    value: Any,
    block_table: Any,
    *,
    backend: str | Backend = "sim",
    entry: Any = scatter_kernel,
) -> None:
    """Write tokens 0, 1, ... of one sequence into the pools, through its block table.

    k_pool, v_pool: [num_blocks, block_size, head_size] float64, written in place; key, value: [num_tokens, head_size]
    float64; block_table: [blocks] int32. Raises ArgumentError.
    """
    check.shape("key", key, (None, None), ("float64",))
    num_tokens, head_size = key.shape
    block_size = _check_pools(k_pool, v_pool, head_size)
    check.shape("value", value, (num_tokens, head_size), ("float64",))
    _check_table(block_table, num_tokens, k_pool.shape[0], block_size)
    threads = 32
    entry.on(backend)[-(-num_tokens // threads), threads](
        k_pool.reshape(-1), v_pool.reshape(-1), key.reshape(-1), value.reshape(-1), block_table, num_tokens,
        block_size, head_size,
    )  # fmt: skip


def gather(
    out: Any,
    q: Any,
    k_pool: Any,
    v_pool: Any,
    block_table: Any,
    seq_len: int,
    scale: float,
    *,
    backend: str | Backend = "sim",
    entry: Any = gather_kernel,
) -> None:
    """Attention of one query over one paged sequence, by one thread.

    out, q: [head_size] float64; k_pool, v_pool: [num_blocks, block_size, head_size] float64; block_table: [blocks]
    int32; seq_len: at least 1. `out` is written in place. Raises ArgumentError.
    """
    check.shape("q", q, (None,), ("float64",))
    check.shape("out", out, (len(q),), ("float64",))
    block_size = _check_pools(k_pool, v_pool, len(q))
    if seq_len < 1:
        raise ArgumentError("seq_len", seq_len, "must be at least 1: an empty sequence has no softmax")
    _check_table(block_table, seq_len, k_pool.shape[0], block_size)
    entry.specialise(HEAD_SIZE=len(q)).on(backend)[1, 1](
        out, q, k_pool.reshape(-1), v_pool.reshape(-1), block_table, seq_len, block_size, scale
    )


def _check_pools(k_pool: Any, v_pool: Any, head_size: int) -> int:
    check.shape("k_pool", k_pool, (None, None, head_size), ("float64",))
    check.shape("v_pool", v_pool, tuple(k_pool.shape), ("float64",))
    return int(k_pool.shape[1])


def _check_table(block_table: Any, num_tokens: int, num_blocks: int, block_size: int) -> None:
    check.shape("block_table", block_table, (None,), ("int32",))
    used = layout.blocks_for(num_tokens, block_size)
    if used > len(block_table):
        raise ArgumentError(
            "block_table.shape", block_table.shape, f"must hold the {used} blocks of {num_tokens} tokens"
        )
    for index, number in enumerate(block_table[:used]):
        if not 0 <= number < num_blocks:
            raise ArgumentError(f"block_table[{index}]", number, f"must be a block of the pool, 0 to {num_blocks - 1}")
