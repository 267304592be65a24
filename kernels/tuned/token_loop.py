"""Rung 0, one token at a time: tiny-vllm's decode loop on vLLM's layout.

A thread has one element of the head. Each token's dot product is added up over the thread block, by shuffles in a warp
and shared memory between warps, before the next token is looked at: two barriers a token. tiny-vllm has two warps and
lets thread 0 add their sums, which takes a third barrier to be right; here every thread adds them up itself.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import cuda, float32, int64
from numba.cuda import libdevice

from kernels.kernel import kernel
from kernels.tuned import piece
from kernels.tuned.call import Decode, Launch, Zeros
from kernels.tuned.plan import Plan
from kernels.vllm.dtypes import conversions
from kernels.vllm.strided import flat

FULL = 0xFFFFFFFF
# Template parameters and what follows from them: `specialise` puts the real values in their place.
HEAD_SIZE, BLOCK_SIZE, GROUP, NUM_WARPS = 64, 16, 4, 2
ALIBI = False
to_float = from_float = float32


def _constexpr(HEAD_SIZE: int, BLOCK_SIZE: int, GROUP: int, DTYPE: str, ALIBI: bool) -> dict[str, Any]:
    return {**conversions(DTYPE, "auto"), "NUM_WARPS": -(-HEAD_SIZE // 32)}


@kernel(_constexpr)
def paged_decode_token_loop(
    out,  # [num_seqs, num_heads, HEAD_SIZE] scalar_t
    q,  # [num_seqs, num_heads, HEAD_SIZE] scalar_t
    k_cache,  # [num_blocks, num_kv_heads, HEAD_SIZE / 8, BLOCK_SIZE, 8] scalar_t
    v_cache,  # [num_blocks, num_kv_heads, HEAD_SIZE, BLOCK_SIZE] scalar_t
    block_tables,  # [num_seqs, max_num_blocks_per_seq] int32
    seq_lens,  # [num_seqs] int32
    alibi_slopes,  # [num_heads] float32
    scale,
    num_kv_heads,
    max_num_blocks_per_seq,
):
    """One thread block: a query head of a sequence, whole warps over its elements; grid (num_heads, num_seqs)."""
    dot_products = cuda.shared.array(NUM_WARPS, float32)
    element = cuda.threadIdx.x
    lane = element % 32
    warp = element // 32
    seq = cuda.blockIdx.y
    kv_head = cuda.blockIdx.x // GROUP
    head = seq * cuda.gridDim.x + cuda.blockIdx.x
    seq_len = seq_lens[seq]
    num_blocks = (seq_len + BLOCK_SIZE - 1) // BLOCK_SIZE

    # Threads behind the head's end take part in the shuffles, with nothing to add.
    # region: q-load
    inside = element < HEAD_SIZE
    query = float32(0)
    if inside:
        query = to_float(q[head * HEAD_SIZE + element])
    # endregion

    m = float32(-math.inf)
    total = float32(0)
    acc = float32(0)
    # region: block-table-walk
    for block in range(num_blocks):
        physical_block = int64(block_tables[seq * max_num_blocks_per_seq + block])
        start = (physical_block * num_kv_heads + kv_head) * (HEAD_SIZE * BLOCK_SIZE)
        left = seq_len - block * BLOCK_SIZE
        # endregion
        # region: tail-guard
        for token in range(min(left, BLOCK_SIZE)):
            # endregion
            # Eight neighbours read 16 bytes together; the next eight read a block's length further on.
            k = float32(0)
            # Each thread has a row of V to itself, so a warp's elements lie 32 rows apart.
            v = float32(0)
            if inside:
                # region: k-address
                k = to_float(k_cache[start + (element // 8 * BLOCK_SIZE + token) * 8 + element % 8])
                # endregion
                # region: v-address
                v = to_float(v_cache[start + element * BLOCK_SIZE + token])
                # endregion

            # region: qk-dot
            s = query * k
            # region: warp-reduce
            fold = 16
            while fold >= 1:
                s += cuda.shfl_xor_sync(FULL, s, fold)
                fold //= 2
            # endregion
            # region: cross-warp-reduce
            if lane == 0:
                dot_products[warp] = s
            cuda.syncthreads()
            s = float32(0)
            for other in range(NUM_WARPS):
                s += dot_products[other]
            # Before the next token's sums are written over these.
            cuda.syncthreads()
            # endregion

            s *= scale
            # endregion
            if ALIBI:
                s += alibi_slopes[cuda.blockIdx.x] * float32(token - left + 1)
            # region: online-softmax
            # region: running-max
            top = max(m, s)
            shrink = libdevice.expf(m - top)
            weight = libdevice.expf(s - top)
            m = top
            # endregion
            # region: running-rescale
            # region: running-sum
            total = total * shrink + weight
            # endregion
            # region: accumulate
            acc = acc * shrink + weight * v
            # endregion
            # endregion
            # endregion
    # region: output-write
    if inside:
        # region: final-divide
        out[head * HEAD_SIZE + element] = from_float(acc / total if total > 0 else float32(0))
        # endregion
    # endregion


def launches(call: Decode, zeros: Zeros = np.zeros, plan: Plan | None = None) -> tuple[Launch, ...]:
    """One launch, however it is planned. Raises ArgumentError."""
    piece.refuse(call)
    made = paged_decode_token_loop.specialise(
        HEAD_SIZE=call.head_size, BLOCK_SIZE=call.block_size, GROUP=call.group, DTYPE=str(call.query.dtype),
        ALIBI=call.alibi_slopes is not None,
    )  # fmt: skip
    args = (
        flat(call.out), flat(call.query), flat(call.key_cache), flat(call.value_cache), flat(call.block_tables),
        call.seq_lens, piece.slopes(call, zeros), np.float32(call.scale), call.num_kv_heads,
        call.block_tables.shape[1],
    )  # fmt: skip
    return (Launch(made, (call.num_heads, call.num_seqs, 1), -(-call.head_size // 32) * 32, args),)
