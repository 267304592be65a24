"""tiny-vllm's decode attention: 64 threads for one query head, and two barriers for every token.

A port of the loop of `pagedAttentionKernel` at commit e25bf19. As upstream has it, the loop is one barrier short: see
`paged_attention`, which can also run it repaired. Upstream computes on bfloat16; here the cache is float16 or float32.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import cuda, float32
from numba.cuda import libdevice
from numba.types import float16

from kernels.cases import DecodeCase, unpack_keys, unpack_values
from kernels.errors import ArgumentError
from kernels.kernel import Backend, kernel
from kernels.vllm import check

FULL_MASK = 0xFFFFFFFF
HEAD_DIM = 64
BLOCK_SIZE = 16
GQA_Q_TO_K_RATIO = 4
SQRT_HEAD_DIM = 8.0
NEG_INFINITY = -np.inf
# Template parameters: upstream has constants, of one model; `specialise` puts those of a case in their place.
scalar_t = float32
NUM_Q_HEADS = 32
N_LAYERS = 16
MAX_BLOCKS_PER_SEQ = 8
REPAIRED = False
KV_DIM = EMBEDDING_LENGTH = V_OFFSET = BLOCK_ELEMENTS = 0


def constexpr(
    *, scalar_t: Any, NUM_Q_HEADS: int, N_LAYERS: int, MAX_BLOCKS_PER_SEQ: int, REPAIRED: bool
) -> dict[str, Any]:
    """The sizes that follow: elements where upstream counts bytes."""
    kv_dim = NUM_Q_HEADS // GQA_Q_TO_K_RATIO * HEAD_DIM
    return {
        "KV_DIM": kv_dim,
        "EMBEDDING_LENGTH": NUM_Q_HEADS * HEAD_DIM,
        "V_OFFSET": BLOCK_SIZE * kv_dim,
        "BLOCK_ELEMENTS": 2 * BLOCK_SIZE * kv_dim,
    }


# region: signature
@kernel(constexpr)
def paged_attention_kernel(  # type: ignore[no-untyped-def]
    layer,
    q_proj,  # [num_active_slots, NUM_Q_HEADS, HEAD_DIM] scalar_t
    kv_cache,  # [num_blocks, 2, BLOCK_SIZE, kv_heads, HEAD_DIM] scalar_t: keys, then values
    block_table,  # [slots, N_LAYERS, MAX_BLOCKS_PER_SEQ] int32
    seq_lens,  # [num_active_slots] int32
    active_slots,  # [num_active_slots] int32
    output,  # [num_active_slots, NUM_Q_HEADS, HEAD_DIM] scalar_t
):
    """One query head of one sequence: grid (num_active_slots, NUM_Q_HEADS), a thread for each head element."""
    # endregion
    dot_products = cuda.shared.array(2, float32)
    # region: tiny-active-slot
    active_slot = cuda.blockIdx.x
    # The table keeps the slot that a sequence was given; everything else counts the active ones.
    slot = active_slots[active_slot]
    # endregion
    q_head_id = cuda.blockIdx.y
    thread_id = cuda.threadIdx.x
    # region: gqa-mapping
    kv_head_idx = q_head_id // GQA_Q_TO_K_RATIO
    # endregion
    # region: q-load
    q = q_proj[active_slot * EMBEDDING_LENGTH + q_head_id * HEAD_DIM + thread_id]
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
        physical_block = block_table[row + logical_block_idx]
        # endregion
        # endregion
        # region: tail-guard
        tokens = min(seq_len - logical_block_idx * BLOCK_SIZE, BLOCK_SIZE)
        # endregion
        for token in range(tokens):
            element = physical_block * BLOCK_ELEMENTS + token * KV_DIM + kv_head_idx * HEAD_DIM + thread_id
            # region: k-address
            k = kv_cache[element]
            # endregion
            # region: v-address
            v = kv_cache[element + V_OFFSET]
            # endregion
            # region: qk-dot
            qk = float32(q) * float32(k)
            # endregion
            # region: warp-reduce
            qk += cuda.shfl_down_sync(FULL_MASK, qk, 16)
            qk += cuda.shfl_down_sync(FULL_MASK, qk, 8)
            qk += cuda.shfl_down_sync(FULL_MASK, qk, 4)
            qk += cuda.shfl_down_sync(FULL_MASK, qk, 2)
            qk += cuda.shfl_down_sync(FULL_MASK, qk, 1)
            # endregion
            # region: cross-warp-reduce
            if thread_id == 0:
                dot_products[0] = qk
            if thread_id == 32:
                dot_products[1] = qk
            cuda.syncthreads()
            if thread_id == 0:
                dot_products[0] = (dot_products[0] + dot_products[1]) / float32(SQRT_HEAD_DIM)
            cuda.syncthreads()
            dot_product = dot_products[0]
            # endregion
            # Not in tiny-vllm: without it, warp 1 may read the line above only after thread 0 has stored the next
            # token's sum over it.
            if REPAIRED:
                cuda.syncthreads()
            # region: online-softmax
            # region: running-max
            new_max = current_max
            if dot_product > current_max:
                new_max = dot_product
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
            acc = acc * correction_factor + exp_score * float32(v)
            # endregion
            # endregion
            # endregion

    # region: final-divide
    # region: output-write
    output[active_slot * EMBEDDING_LENGTH + q_head_id * HEAD_DIM + thread_id] = scalar_t(acc / d)
    # endregion
    # endregion


SCALAR_TYPES = {"float32": float32, "float16": float16}


def paged_attention(
    output: Any,
    q_proj: Any,
    kv_cache: Any,
    block_table: Any,
    seq_lens: Any,
    active_slots: Any,
    layer: int = 0,
    *,
    repaired: bool = False,
    backend: str | Backend = "sim",
    entry: Any = paged_attention_kernel,
) -> None:
    """Attention of each active sequence's newest token over its cached ones; `output` is written in place.

    `repaired` false is the loop as tiny-vllm has it, with its race: the output is right on most runs, and wrong under
    some warp orders. True adds the missing barrier.
    output, q_proj: [num_active_slots, query heads, 64] float32 or float16, four query heads to a KV head; kv_cache:
    [num_blocks, 2, 16, KV heads, 64]; block_table: [slots, layers, blocks] int32; seq_lens: [num_active_slots] int32,
    at least 1 each; active_slots: [num_active_slots] int32, rows of block_table. Raises ArgumentError.
    """
    _check(output, q_proj, kv_cache, block_table, seq_lens, active_slots, layer)
    num_active_slots, num_q_heads, _ = q_proj.shape
    specialised = entry.specialise(
        scalar_t=SCALAR_TYPES[str(q_proj.dtype)],
        NUM_Q_HEADS=num_q_heads,
        N_LAYERS=block_table.shape[1],
        MAX_BLOCKS_PER_SEQ=block_table.shape[2],
        REPAIRED=repaired,
    )
    specialised.on(backend)[(num_active_slots, num_q_heads), HEAD_DIM](
        layer,
        q_proj.reshape(-1),
        kv_cache.reshape(-1),
        block_table.reshape(-1),
        seq_lens,
        active_slots,
        output.reshape(-1),
    )


def cache_of(case: DecodeCase) -> Any:
    """A case's keys and values as tiny-vllm keeps them: [num_blocks, 2, 16, KV heads, 64]."""
    return np.ascontiguousarray(np.stack([unpack_keys(case.k_cache), unpack_values(case.v_cache)], axis=1))


def _check(
    output: Any, q_proj: Any, kv_cache: Any, block_table: Any, seq_lens: Any, active_slots: Any, layer: int
) -> None:
    check.shape("q_proj", q_proj, (None, None, HEAD_DIM), tuple(SCALAR_TYPES))
    active, heads, _ = q_proj.shape
    dtype = (str(q_proj.dtype),)
    if heads < 1 or heads % GQA_Q_TO_K_RATIO:
        raise ArgumentError("q_proj.shape", q_proj.shape, f"must have a multiple of {GQA_Q_TO_K_RATIO} query heads")
    check.shape("output", output, (active, heads, HEAD_DIM), dtype)
    check.shape("kv_cache", kv_cache, (None, 2, BLOCK_SIZE, heads // GQA_Q_TO_K_RATIO, HEAD_DIM), dtype)
    check.shape("block_table", block_table, (None, None, None), ("int32",))
    check.shape("seq_lens", seq_lens, (active,), ("int32",))
    check.shape("active_slots", active_slots, (active,), ("int32",))
    slots, layers, columns = block_table.shape
    if not 0 <= layer < layers:
        raise ArgumentError("layer", layer, f"must be from 0 to {layers - 1}")
    for index, (slot, length) in enumerate(zip(active_slots, seq_lens, strict=True)):
        if not 0 <= slot < slots:
            raise ArgumentError(f"active_slots[{index}]", slot, f"must be a row of block_table, 0 to {slots - 1}")
        if not 1 <= length <= columns * BLOCK_SIZE:
            raise ArgumentError(f"seq_lens[{index}]", length, f"must be from 1 to {columns * BLOCK_SIZE}")
        for block in block_table[slot, layer, : -(-int(length) // BLOCK_SIZE)]:
            if not 0 <= block < kv_cache.shape[0]:
                raise ArgumentError(
                    f"block_table[{slot}, {layer}]", block, f"must name blocks 0 to {kv_cache.shape[0] - 1}"
                )
