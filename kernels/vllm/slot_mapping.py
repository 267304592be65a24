"""From positions to slots: where vLLM writes each token of a batch, computed on the GPU.

A port of the Triton kernel `_compute_slot_mapping_kernel` at vLLM 0.26.0, with its context parallelism, in which each
rank keeps only its share of the tokens.
"""

from __future__ import annotations

from typing import Any

from numba import cuda, int64

from kernels.errors import ArgumentError
from kernels.kernel import Backend, kernel
from kernels.vllm import check

PAD_SLOT_ID = -1
NUM_THREADS = 64
# Template parameters: `specialise` puts the real values in their place.
KV_CACHE_BLOCK_SIZE = BLOCKS_PER_KV_BLOCK = TOTAL_CP_WORLD_SIZE = CP_KV_CACHE_INTERLEAVE_SIZE = 1
TOTAL_CP_RANK = 0
PAD_ID = PAD_SLOT_ID


# region: slot-kernel
@kernel(lambda **template: {})
def compute_slot_mapping_kernel(
    num_tokens,
    max_num_tokens,
    query_start_loc_ptr,  # [num_reqs + 1] int32
    positions_ptr,  # [num_tokens] int64
    block_table_ptr,  # [num_reqs, max_num_blocks_per_req] int32
    block_table_stride,
    block_size,
    slot_mapping_ptr,  # [max_num_tokens] int64
):
    """The slot of every token: grid (num_reqs + 1), a request each, and one that pads; arrays flat."""
    req_idx = cuda.blockIdx.x

    # region: slot-pad
    if req_idx == cuda.gridDim.x - 1:
        # A captured graph sees the whole buffer: what is behind the last token must say "no token".
        for offsets in range(num_tokens + cuda.threadIdx.x, max_num_tokens, cuda.blockDim.x):
            slot_mapping_ptr[offsets] = PAD_ID
        return
    # endregion

    start_idx = int64(query_start_loc_ptr[req_idx])
    end_idx = int64(query_start_loc_ptr[req_idx + 1])

    # Over all ranks together a block holds that many times more tokens.
    virtual_block_size = TOTAL_CP_WORLD_SIZE * KV_CACHE_BLOCK_SIZE
    row_offset = block_table_stride * req_idx
    # Triton moves 1024 tokens at once; here a thread takes one, then the one blockDim further on.
    for offsets in range(start_idx + cuda.threadIdx.x, end_idx, cuda.blockDim.x):
        pos = positions_ptr[offsets]
        virtual_block_offsets = pos % virtual_block_size
        virtual_block_indices = (pos - virtual_block_offsets) // virtual_block_size
        # region: slot-rank
        is_local = virtual_block_offsets // CP_KV_CACHE_INTERLEAVE_SIZE % TOTAL_CP_WORLD_SIZE == TOTAL_CP_RANK
        local_block_offsets = (
            virtual_block_offsets // (TOTAL_CP_WORLD_SIZE * CP_KV_CACHE_INTERLEAVE_SIZE) * CP_KV_CACHE_INTERLEAVE_SIZE
            + virtual_block_offsets % CP_KV_CACHE_INTERLEAVE_SIZE
        )
        # endregion
        block_indices = virtual_block_indices * BLOCKS_PER_KV_BLOCK + local_block_offsets // block_size
        # region: slot-formula
        slot_ids = int64(PAD_ID)
        if is_local:
            block_numbers = int64(block_table_ptr[row_offset + block_indices])
            slot_offsets = int64(local_block_offsets % block_size)
            slot_ids = slot_offsets + block_numbers * block_size
        slot_mapping_ptr[offsets] = slot_ids
        # endregion


# endregion


# region: slot-mapping-call
def compute_slot_mapping(
    slot_mapping: Any,
    query_start_loc: Any,
    positions: Any,
    block_table: Any,
    block_size: int,
    *,
    kv_cache_block_size: int | None = None,
    world_size: int = 1,
    rank: int = 0,
    interleave: int = 1,
    backend: str | Backend = "sim",
    entry: Any = compute_slot_mapping_kernel,
) -> None:
    """Fill `slot_mapping` with each token's slot, and with -1 behind the last token.

    slot_mapping: [max_num_tokens] int64, written in place; query_start_loc: [num_reqs + 1] int32; positions:
    [num_tokens] int64, each token's place in its sequence; block_table: [num_reqs, columns] int32. A block of the
    allocator may hold several kernel blocks (`kv_cache_block_size`, a multiple of `block_size`). Under context
    parallelism a token of another rank gets -1. Raises ArgumentError.
    """
    allocated = block_size if kv_cache_block_size is None else kv_cache_block_size
    _check(slot_mapping, query_start_loc, positions, block_table, block_size, allocated, world_size, rank, interleave)
    num_reqs = block_table.shape[0]
    entry.specialise(
        KV_CACHE_BLOCK_SIZE=allocated,
        BLOCKS_PER_KV_BLOCK=allocated // block_size,
        TOTAL_CP_WORLD_SIZE=world_size,
        TOTAL_CP_RANK=rank,
        CP_KV_CACHE_INTERLEAVE_SIZE=interleave,
        PAD_ID=PAD_SLOT_ID,
    ).on(backend)[num_reqs + 1, NUM_THREADS](
        len(positions),
        len(slot_mapping),
        query_start_loc,
        positions,
        block_table.reshape(-1),
        block_table.shape[1],
        block_size,
        slot_mapping,
    )


# endregion


def _check(
    slot_mapping: Any,
    query_start_loc: Any,
    positions: Any,
    block_table: Any,
    block_size: int,
    allocated: int,
    world_size: int,
    rank: int,
    interleave: int,
) -> None:
    check.shape("block_table", block_table, (None, None), ("int32",))
    num_reqs, columns = block_table.shape
    check.shape("positions", positions, (None,), ("int64",))
    check.shape("slot_mapping", slot_mapping, (None,), ("int64",))
    check.shape("query_start_loc", query_start_loc, (num_reqs + 1,), ("int32",))
    if len(positions) > len(slot_mapping):
        raise ArgumentError("slot_mapping.shape", slot_mapping.shape, f"must hold the {len(positions)} tokens")
    if block_size < 1 or allocated < block_size or allocated % block_size:
        raise ArgumentError("kv_cache_block_size", allocated, f"must be a multiple of block_size = {block_size}")
    if not 0 <= rank < world_size:
        raise ArgumentError("rank", rank, f"must be 0 .. {world_size - 1}")
    if interleave < 1 or allocated % interleave:
        raise ArgumentError("interleave", interleave, f"must divide the block of {allocated} tokens")
    ends = [int(end) for end in query_start_loc]
    if ends[0] != 0 or ends[-1] != len(positions) or ends != sorted(ends):
        raise ArgumentError("query_start_loc", ends, f"must rise from 0 to the {len(positions)} tokens")
    for token, position in enumerate(positions):
        # The last column that this position can reach, on whatever rank it lives.
        column = int(position) // (allocated * world_size) * (allocated // block_size) + allocated // block_size - 1
        if world_size == 1:
            column = int(position) // block_size
        if not position >= 0 or column >= columns:
            raise ArgumentError(f"positions[{token}]", position, f"leaves the {columns} columns of the block table")
