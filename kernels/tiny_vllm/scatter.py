"""tiny-vllm's writes: a prompt into whole blocks, then one token at a time.

Upstream asks cudaMemcpy for every copy, two a block or token. Here a kernel makes them, with upstream's addresses:
the prompt's rows lie one behind the other, in the block as before it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import cuda, int64

from kernels.errors import ArgumentError
from kernels.kernel import Backend, kernel
from kernels.tiny_vllm import arguments
from kernels.tiny_vllm.block_table import BLOCK_SIZE, Blocks
from kernels.vllm import check

THREADS = 64


@kernel()
def write_prefill_kernel(k_proj, v_proj, kv_cache, blocks, prompt_len, KV_DIM):  # type: ignore[no-untyped-def]
    """Copy up to 16 tokens of K and of V: a thread block for each KV block, arrays flat, offsets in elements."""
    # region: tiny-write-prefill
    token_idx = cuda.blockIdx.x * BLOCK_SIZE
    num_tokens_to_copy = prompt_len - token_idx
    if num_tokens_to_copy > BLOCK_SIZE:
        num_tokens_to_copy = BLOCK_SIZE
    block = int64(blocks[cuda.blockIdx.x])
    k_cache_ptr = block * 2 * BLOCK_SIZE * KV_DIM
    v_cache_ptr = k_cache_ptr + BLOCK_SIZE * KV_DIM
    # One copy each for K and V upstream: the rows of a block lie together on both sides.
    for i in range(cuda.threadIdx.x, num_tokens_to_copy * KV_DIM, cuda.blockDim.x):
        kv_cache[k_cache_ptr + i] = k_proj[token_idx * KV_DIM + i]
        kv_cache[v_cache_ptr + i] = v_proj[token_idx * KV_DIM + i]
    # endregion


@kernel()
def write_decode_kernel(k_proj, v_proj, kv_cache, blocks, places, KV_DIM):  # type: ignore[no-untyped-def]
    """Copy one token of K and of V: a thread block for each active sequence, arrays flat, offsets in elements."""
    # region: tiny-write-decode
    slot = cuda.blockIdx.x  # main.cpp's word for the compact index, which the attention kernel calls active_slot
    block = int64(blocks[slot])
    token_in_block_idx = places[slot]
    k_cache_ptr = block * 2 * BLOCK_SIZE * KV_DIM + token_in_block_idx * KV_DIM
    v_cache_ptr = k_cache_ptr + BLOCK_SIZE * KV_DIM
    for i in range(cuda.threadIdx.x, KV_DIM, cuda.blockDim.x):
        kv_cache[k_cache_ptr + i] = k_proj[slot * KV_DIM + i]
        kv_cache[v_cache_ptr + i] = v_proj[slot * KV_DIM + i]
    # endregion


def write_prefill(
    state: Blocks,
    slot: int,
    layer: int,
    k_proj: Any,
    v_proj: Any,
    kv_cache: Any,
    *,
    backend: str | Backend = "sim",
    entry: Any = write_prefill_kernel,
) -> list[int]:
    """Take blocks for a prompt in one layer and write its keys and values there; returns the blocks.

    k_proj, v_proj: [prompt length, KV heads, head size]; kv_cache: [num_blocks, 2, 16, KV heads, head size], all of
    one dtype. Raises ArgumentError, and what `Blocks.prefill_layer` raises.
    """
    rows, kv_dim = _check(k_proj, v_proj, kv_cache)
    blocks = state.prefill_layer(slot, layer, rows)
    for number, block in enumerate(blocks):
        arguments.existing(f"block_table[{slot}, {layer}, {number}]", block, kv_cache)
    entry.on(backend)[len(blocks), THREADS](
        k_proj.reshape(-1), v_proj.reshape(-1), kv_cache.reshape(-1), np.array(blocks, np.int32), rows, kv_dim
    )
    return blocks


def write_decode(
    state: Blocks,
    active_slots: Any,
    positions: Any,
    layer: int,
    k_proj: Any,
    v_proj: Any,
    kv_cache: Any,
    *,
    backend: str | Backend = "sim",
    entry: Any = write_decode_kernel,
) -> None:
    """Write the newest token of each active sequence in one layer, each into a new block where its place is 0.

    k_proj, v_proj: [active, KV heads, head size]: row i belongs to slot active_slots[i], whose token stands at
    positions[i]. Raises ArgumentError, and what `Blocks.decode_layer` raises.
    """
    rows, kv_dim = _check(k_proj, v_proj, kv_cache)
    if not len(active_slots) == len(positions) == rows:
        raise ArgumentError("active_slots", list(active_slots), f"must name the {rows} rows of k_proj, as positions do")
    pairs = zip(active_slots, positions, strict=True)
    places = [state.decode_layer(int(slot), layer, int(position)) for slot, position in pairs]
    for row, (block, _) in enumerate(places):
        arguments.existing(f"block of row {row}", block, kv_cache)
    blocks, offsets = (np.array(column, np.int32) for column in zip(*places, strict=True))
    entry.on(backend)[rows, THREADS](
        k_proj.reshape(-1), v_proj.reshape(-1), kv_cache.reshape(-1), blocks, offsets, kv_dim
    )


def _check(k_proj: Any, v_proj: Any, kv_cache: Any) -> tuple[int, int]:
    """Shapes and dtypes; the rows, and the elements of one token over all KV heads."""
    check.shape("k_proj", k_proj, (None, None, None), arguments.DTYPES)
    rows, heads, head_dim = k_proj.shape
    dtype = (str(k_proj.dtype),)
    if rows < 1:
        raise ArgumentError("k_proj.shape", k_proj.shape, "must have at least one row")
    check.shape("v_proj", v_proj, (rows, heads, head_dim), dtype)
    check.shape("kv_cache", kv_cache, (None, 2, BLOCK_SIZE, heads, head_dim), dtype)
    return rows, heads * head_dim
