"""tiny-vllm's decode attention for any head size, and without the race: not upstream's, but what it could be.

The shared array has a float for every warp, and every thread adds them up itself. So the barrier before the next
token's stores comes after the reads anyway: two barriers a token, as upstream has, and no race.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import cuda, float32, int64
from numba.cuda import libdevice
from numba.types import float16

from kernels.kernel import Backend, kernel
from kernels.tiny_vllm import arguments
from kernels.tiny_vllm.arguments import one_buffer

FULL_MASK = 0xFFFFFFFF
NEG_INFINITY = -np.inf
WARP_SIZE = 32
GQA_Q_TO_K_RATIO = 4
SCALAR_TYPES = {"float32": float32, "float16": float16}
scalar_t = float32
NUM_Q_HEADS = N_LAYERS = MAX_BLOCKS_PER_SEQ = HEAD_DIM = BLOCK_SIZE = 0
NUM_WARPS = KV_DIM = EMBEDDING_LENGTH = V_OFFSET = BLOCK_ELEMENTS = 0
SCALE = 0.0


def constexpr(
    *, NUM_Q_HEADS: int, N_LAYERS: int, MAX_BLOCKS_PER_SEQ: int, HEAD_DIM: int, BLOCK_SIZE: int, scalar_t: Any
) -> dict[str, Any]:
    """Everything that follows from the sizes: elements where upstream counts bytes."""
    kv_dim = NUM_Q_HEADS // GQA_Q_TO_K_RATIO * HEAD_DIM
    return {
        "NUM_WARPS": -(-HEAD_DIM // WARP_SIZE),
        "KV_DIM": kv_dim,
        "EMBEDDING_LENGTH": NUM_Q_HEADS * HEAD_DIM,
        "V_OFFSET": BLOCK_SIZE * kv_dim,
        "BLOCK_ELEMENTS": 2 * BLOCK_SIZE * kv_dim,
        "SCALE": 1.0 / math.sqrt(HEAD_DIM),
    }


# region: signature
@kernel(constexpr)
def general_attention_kernel(layer, q_proj, kv_cache, block_table, seq_lens, active_slots, output):  # type: ignore[no-untyped-def]
    """One query head of one sequence: grid (num_active_slots, NUM_Q_HEADS), whole warps over the head's elements."""
    # endregion
    dot_products = cuda.shared.array(NUM_WARPS, float32)
    # region: tiny-active-slot
    active_slot = cuda.blockIdx.x
    slot = active_slots[active_slot]
    # endregion
    q_head_id = cuda.blockIdx.y
    thread_id = cuda.threadIdx.x
    # region: gqa-mapping
    kv_head_idx = q_head_id // GQA_Q_TO_K_RATIO
    # endregion
    # Threads behind the head's end take part in the shuffles, with nothing to add.
    inside = thread_id < HEAD_DIM
    # region: q-load
    q = float32(0)
    if inside:
        q = float32(q_proj[active_slot * EMBEDDING_LENGTH + q_head_id * HEAD_DIM + thread_id])
    # endregion
    # region: block-ranges
    seq_len = seq_lens[active_slot]
    num_blocks = (seq_len + BLOCK_SIZE - 1) // BLOCK_SIZE
    # endregion

    current_max = float32(NEG_INFINITY)
    acc = float32(0)
    d = float32(0)
    # region: block-table-walk
    for logical_block_idx in range(num_blocks):
        # region: block-table-lookup
        row = slot * N_LAYERS * MAX_BLOCKS_PER_SEQ + layer * MAX_BLOCKS_PER_SEQ
        physical_block = int64(block_table[row + logical_block_idx])
        # endregion
        # endregion
        # region: tail-guard
        tokens_in_block = min(seq_len - logical_block_idx * BLOCK_SIZE, BLOCK_SIZE)
        # endregion
        for token in range(tokens_in_block):
            # region: k-address
            element = physical_block * BLOCK_ELEMENTS + token * KV_DIM + kv_head_idx * HEAD_DIM + thread_id
            # endregion
            k = float32(0)
            v = float32(0)
            if inside:
                # region: k-address
                k = float32(kv_cache[element])
                # endregion
                # region: v-address
                v = float32(kv_cache[element + V_OFFSET])
                # endregion
            # region: qk-dot
            qk = q * k
            # endregion
            # region: warp-reduce
            qk += cuda.shfl_down_sync(FULL_MASK, qk, 16)
            qk += cuda.shfl_down_sync(FULL_MASK, qk, 8)
            qk += cuda.shfl_down_sync(FULL_MASK, qk, 4)
            qk += cuda.shfl_down_sync(FULL_MASK, qk, 2)
            qk += cuda.shfl_down_sync(FULL_MASK, qk, 1)
            # endregion
            # region: cross-warp-reduce
            if thread_id % WARP_SIZE == 0:
                dot_products[thread_id // WARP_SIZE] = qk
            cuda.syncthreads()
            total = float32(0)
            for warp in range(NUM_WARPS):
                total += dot_products[warp]
            dot_product = total * float32(SCALE)
            cuda.syncthreads()
            # endregion
            # region: online-softmax
            # region: running-max
            new_max = max(current_max, dot_product)
            # endregion
            # region: running-rescale
            # region: running-sum
            correction_factor = libdevice.expf(current_max - new_max)
            # region: running-max
            current_max = new_max
            # endregion
            exp_score = libdevice.expf(dot_product - current_max)
            d = d * correction_factor + exp_score
            # endregion
            # region: accumulate
            acc = acc * correction_factor + exp_score * v
            # endregion
            # endregion
            # endregion
    # region: final-divide
    # region: output-write
    if inside:
        result = float32(0)
        if seq_len > 0:
            result = acc / d
        output[active_slot * EMBEDDING_LENGTH + q_head_id * HEAD_DIM + thread_id] = scalar_t(result)
    # endregion
    # endregion


def general_attention(
    layer: int,
    num_active_slots: int,
    q_proj: Any,
    kv_cache: Any,
    block_table: Any,
    seq_lens: Any,
    active_slots: Any,
    output: Any,
    *,
    backend: str | Backend = "sim",
    entry: Any = general_attention_kernel,
) -> None:
    """As `paged.tiny_attention`, for every head size up to 1024, and right under every warp order.

    A length of 0 gives zeros. `output` may be `q_proj` itself. Raises ArgumentError.
    """
    arguments.decode(layer, num_active_slots, q_proj, kv_cache, block_table, seq_lens, active_slots, output)
    num_q_heads, head_dim = q_proj.shape[1:]
    specialised = entry.specialise(
        NUM_Q_HEADS=num_q_heads,
        N_LAYERS=block_table.shape[1],
        MAX_BLOCKS_PER_SEQ=block_table.shape[2],
        HEAD_DIM=head_dim,
        BLOCK_SIZE=kv_cache.shape[2],
        scalar_t=SCALAR_TYPES[str(q_proj.dtype)],
    )
    threads = -(-head_dim // WARP_SIZE) * WARP_SIZE
    with one_buffer(q_proj, output, backend) as (q, out):
        specialised.on(backend)[(num_active_slots, num_q_heads), threads](
            layer, q, kv_cache.reshape(-1), block_table.reshape(-1), seq_lens, active_slots, out
        )
