"""tiny-vllm's `pagedAttentionKernel`, whole: bytes for addresses, a table of three parts, 64 threads, its race.

A port of commit e25bf19, line by line. `REPAIRED` adds the barrier that upstream lacks; without it this is upstream's
loop. Upstream computes on bfloat16; here the cache is float16 or float32. `attention.py` has the loop alone.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import cuda, float32, int32, int64
from numba.cuda import libdevice
from numba.types import float16

from kernels.errors import ArgumentError
from kernels.kernel import Backend, device, kernel
from kernels.tiny_vllm import arguments
from kernels.tiny_vllm.arguments import one_buffer
from kernels.vllm import check

FULL_MASK = 0xFFFFFFFF
NEG_INFINITY = -np.inf
NOT_A_NUMBER = np.nan
# Constants of one model upstream. They stand here a second time, as they do there: `block_table` has its own.
# region: tiny-layout
HEAD_DIM = 64
SQRT_HEAD_DIM = 8.0
NUM_Q_HEADS = 32
GQA_Q_TO_K_RATIO = 4
N_LAYERS = 16
MAX_SEQ_LEN = 2048
SIZEOF = 2
BLOCK_SIZE = 16
KV_DIM = NUM_Q_HEADS // GQA_Q_TO_K_RATIO * HEAD_DIM
V_OFFSET = BLOCK_SIZE * KV_DIM * SIZEOF
BLOCK_BYTES = V_OFFSET * 2
MAX_BLOCKS_PER_SEQ = MAX_SEQ_LEN // BLOCK_SIZE
# endregion
EMBEDDING_LENGTH = NUM_Q_HEADS * HEAD_DIM
scalar_t = float16
REPAIRED = False
MARKED = False

SCALAR_TYPES = {"float32": float32, "float16": float16}
HEAD_SIZES = (32, 64, 128)
"""Whole warps, and what the two shared floats make of them can be shown."""


def constexpr(
    *,
    NUM_Q_HEADS: int = NUM_Q_HEADS,
    N_LAYERS: int = N_LAYERS,
    MAX_BLOCKS_PER_SEQ: int = MAX_BLOCKS_PER_SEQ,
    HEAD_DIM: int = HEAD_DIM,
    BLOCK_SIZE: int = BLOCK_SIZE,
    scalar_t: Any = float16,
    REPAIRED: bool = False,
    MARKED: bool = False,
) -> dict[str, Any]:
    """The constants that follow from those of a case; SQRT_HEAD_DIM stays 8 whatever the head size, as upstream."""
    size = scalar_t.bitwidth // 8
    kv_dim = NUM_Q_HEADS // GQA_Q_TO_K_RATIO * HEAD_DIM
    return {
        "SIZEOF": size,
        "KV_DIM": kv_dim,
        "EMBEDDING_LENGTH": NUM_Q_HEADS * HEAD_DIM,
        "V_OFFSET": BLOCK_SIZE * kv_dim * size,
        "BLOCK_BYTES": 2 * BLOCK_SIZE * kv_dim * size,
    }


# region: block-table-walk
@device
def table_index(slot, layer, logical_block_idx):  # type: ignore[no-untyped-def]
    """Slot, layer, logical block: the place of one entry in the flat table."""
    return slot * N_LAYERS * MAX_BLOCKS_PER_SEQ + layer * MAX_BLOCKS_PER_SEQ + logical_block_idx
    # endregion


# region: k-address
@device
def block_start(physical_block):  # type: ignore[no-untyped-def]
    """The first byte of a block. C++ multiplies two ints here; Numba would widen, so the cast cuts as int does."""
    return int32(int64(physical_block) * BLOCK_BYTES)
    # endregion


# region: signature
@kernel(constexpr)
def tiny_attention_kernel(  # type: ignore[no-untyped-def]
    layer,
    num_active_slots,  # handed over and never used, as upstream
    q_proj,  # [num_active_slots, NUM_Q_HEADS, HEAD_DIM] scalar_t
    kv_cache,  # [num_blocks, 2, BLOCK_SIZE, kv_heads, HEAD_DIM] scalar_t: keys, then values
    block_table,  # [slots, N_LAYERS, MAX_BLOCKS_PER_SEQ] int32
    seq_lens,  # [num_active_slots] int32
    active_slots,  # [num_active_slots] int32
    output,  # [num_active_slots, NUM_Q_HEADS, HEAD_DIM] scalar_t, may be q_proj itself
):
    """One query head of one sequence: grid (num_active_slots, NUM_Q_HEADS), a thread for each head element."""
    # endregion
    dot_products = cuda.shared.array(2, float32)
    # region: tiny-active-slot
    active_slot = cuda.blockIdx.x
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

    # Not in tiny-vllm: a mark in both shared floats, so that one which nobody writes is told from one that is zero.
    if MARKED:
        if thread_id == 0:
            dot_products[0] = float32(NOT_A_NUMBER)
            dot_products[1] = float32(NOT_A_NUMBER)
        cuda.syncthreads()

    # region: block-table-walk
    for logical_block_idx in range(num_blocks):
        # region: block-table-lookup
        physical_block = block_table[table_index(slot, layer, logical_block_idx)]
        # endregion
        # endregion
        # region: tail-guard
        tokens_in_block = min(seq_len - logical_block_idx * BLOCK_SIZE, BLOCK_SIZE)
        # endregion
        for token in range(tokens_in_block):
            row = token * KV_DIM * SIZEOF + kv_head_idx * HEAD_DIM * SIZEOF + thread_id * SIZEOF
            # region: k-address
            k = kv_cache[(block_start(physical_block) + row) // SIZEOF]
            # endregion
            # region: v-address
            v = kv_cache[(block_start(physical_block) + V_OFFSET + row) // SIZEOF]
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
            # Not in tiny-vllm: without it, warp 1 may read the line above only after thread 0 has stored the next
            # token's sum over it.
            if REPAIRED:
                cuda.syncthreads()
            # endregion

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


# region: tiny-launch
def tiny_attention(
    layer: int,
    num_active_slots: int,
    q_proj: Any,
    kv_cache: Any,
    block_table: Any,
    seq_lens: Any,
    active_slots: Any,
    output: Any,
    *,
    repaired: bool = False,
    marked: bool = False,
    block_size: int = BLOCK_SIZE,
    backend: str | Backend = "sim",
    entry: Any = tiny_attention_kernel,
) -> None:
    """Attention of each active sequence's newest token over its cached ones; `output` may be `q_proj` itself.

    q_proj, output: [num_active_slots, query heads, head size] float32 or float16, four query heads to a KV head;
    kv_cache: [num_blocks, 2, block size, KV heads, head size]; block_table: [slots, layers, blocks] int32; seq_lens:
    [num_active_slots] int32, 0 gives NaN; active_slots: [num_active_slots] int32. Head sizes are 32, 64 and 128: only
    64 gives attention, and only `repaired` under every warp order. `marked` puts NaN into the shared floats first.
    `block_size` is the kernel's own constant: nothing upstream holds it against the cache. Raises ArgumentError.
    """
    arguments.decode(layer, num_active_slots, q_proj, kv_cache, block_table, seq_lens, active_slots, output)
    if q_proj.shape[2] not in HEAD_SIZES:
        raise ArgumentError("q_proj.shape", q_proj.shape, f"must end in a head size of {HEAD_SIZES}")
    num_q_heads, head_dim = q_proj.shape[1:]
    specialised = entry.specialise(
        NUM_Q_HEADS=num_q_heads,
        N_LAYERS=block_table.shape[1],
        MAX_BLOCKS_PER_SEQ=block_table.shape[2],
        HEAD_DIM=head_dim,
        BLOCK_SIZE=block_size,
        scalar_t=SCALAR_TYPES[str(q_proj.dtype)],
        REPAIRED=repaired,
        MARKED=marked,
    )
    with one_buffer(q_proj, output, backend) as (q, out):
        specialised.on(backend)[(num_active_slots, num_q_heads), head_dim](
            layer,
            num_active_slots,
            q,
            kv_cache.reshape(-1),
            block_table.reshape(-1),
            seq_lens,
            active_slots,
            out,
        )


# endregion


# -- the index and the address, alone


@kernel(constexpr)
def walk_table_kernel(block_table, found, places):  # type: ignore[no-untyped-def]
    """Look up every entry as the attention kernel does: grid (slots, layers), a thread for each logical block."""
    at = (cuda.blockIdx.x * cuda.gridDim.y + cuda.blockIdx.y) * cuda.blockDim.x + cuda.threadIdx.x
    place = table_index(cuda.blockIdx.x, cuda.blockIdx.y, cuda.threadIdx.x)
    places[at] = place
    found[at] = block_table[place]


def walk_table(
    block_table: Any, found: Any, places: Any, *, backend: str | Backend = "sim", entry: Any = walk_table_kernel
) -> None:
    """Read a whole table entry by entry: what was found, and where. All three: [slots, layers, blocks] int32."""
    check.shape("block_table", block_table, (None, None, None), ("int32",))
    for name, array in (("found", found), ("places", places)):
        check.shape(name, array, tuple(block_table.shape), ("int32",))
    slots, layers, blocks = block_table.shape
    specialised = entry.specialise(N_LAYERS=layers, MAX_BLOCKS_PER_SEQ=blocks)
    specialised.on(backend)[(slots, layers), blocks](block_table.reshape(-1), found.reshape(-1), places.reshape(-1))


@kernel(constexpr)
def block_starts_kernel(blocks, starts, wide):  # type: ignore[no-untyped-def]
    """The first byte of each block: in 32 bits as tiny-vllm computes it, and in 64 bits as vLLM does."""
    at = cuda.threadIdx.x
    starts[at] = block_start(blocks[at])
    wide[at] = int64(blocks[at]) * BLOCK_BYTES


def block_starts(
    blocks: Any, starts: Any, wide: Any, *, backend: str | Backend = "sim", entry: Any = block_starts_kernel
) -> None:
    """Where blocks of tiny-vllm's own size (32,768 bytes) begin. blocks: int32; starts, wide: int64, one each."""
    check.shape("blocks", blocks, (None,), ("int32",))
    for name, array in (("starts", starts), ("wide", wide)):
        check.shape(name, array, tuple(blocks.shape), ("int64",))
    entry.specialise().on(backend)[1, len(blocks)](blocks, starts, wide)
