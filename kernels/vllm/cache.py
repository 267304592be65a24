"""vLLM's cache writer for the classic layout: new keys and values into their slots.

A line-by-line port of `reshape_and_cache_kernel` and its host code at vLLM 0.24.0, including
the launch of at most 512 threads without a stride loop.
"""

from __future__ import annotations

from typing import Any

from numba import cuda, int64

from kernels import layout
from kernels.kernel import Backend, kernel
from kernels.vllm import check


# region: reshape-and-cache
@kernel()
def reshape_and_cache_kernel(
    key,  # [num_tokens, num_heads, head_size] scalar_t
    value,  # [num_tokens, num_heads, head_size] scalar_t
    key_cache,  # [num_blocks, num_heads, head_size/x, block_size, x] scalar_t
    value_cache,  # [num_blocks, num_heads, head_size, block_size] scalar_t
    slot_mapping,  # [num_tokens] int64
    key_stride,
    value_stride,
    num_heads,
    head_size,
    block_size,
    x,
):
    """Write one token's key and value: grid (num_tokens), a thread for each (head, 16-byte piece), arrays flat."""
    # region: slot-guard
    token_idx = int64(cuda.blockIdx.x)
    slot_idx = slot_mapping[token_idx]
    if slot_idx < 0:
        # Padding: no cache line belongs to this token.
        return
    # endregion

    # region: slot-split
    block_idx = slot_idx // block_size
    block_offset = slot_idx % block_size
    # endregion
    # region: head-of-thread
    h_block_count = head_size // x

    h_block_idx = cuda.threadIdx.x
    if h_block_idx >= num_heads * h_block_count:
        return

    head_idx = h_block_idx // h_block_count
    h_block = h_block_idx % h_block_count
    # endregion

    # region: k-source
    key_src = token_idx * key_stride + head_idx * head_size + h_block * x
    src_value_start = token_idx * value_stride + head_idx * head_size + h_block * x
    # endregion

    # region: k-store
    key_dst = (
        block_idx * num_heads * h_block_count * block_size * x
        + head_idx * h_block_count * block_size * x
        + h_block * block_size * x
        + block_offset * x
    )
    # endregion
    # region: v-store
    tgt_value_start = (
        block_idx * num_heads * h_block_count * x * block_size
        + head_idx * h_block_count * x * block_size
        + h_block * x * block_size
        + block_offset
    )
    # endregion

    # region: k-store
    # x neighbours in memory: the C++ copies these 16 bytes as one vector; Numba moves them one by one.
    for i in range(x):
        key_cache[key_dst + i] = key[key_src + i]
    # endregion

    # region: v-store
    # One row of V apart each: a token's values are block_size elements apart.
    for i in range(x):
        value_cache[tgt_value_start + i * block_size] = value[src_value_start + i]
    # endregion


# endregion


# region: reshape-and-cache-host
def reshape_and_cache(
    key: Any,
    value: Any,
    key_cache: Any,
    value_cache: Any,
    slot_mapping: Any,
    *,
    backend: str | Backend = "sim",
    entry: Any = reshape_and_cache_kernel,
) -> None:
    """Write each token's key and value into the slot that `slot_mapping` gives; negative slots are skipped.

    key, value: [rows, num_heads, head_size] float32 or float16, rows at least len(slot_mapping); key_cache:
    [num_blocks, num_heads, head_size/x, block_size, x]; value_cache: [num_blocks, num_heads, head_size, block_size];
    slot_mapping: [num_tokens] int64. The caches are written in place. Raises ArgumentError. As in vLLM, heads
    beyond 512 (head, x-group) pairs stay unwritten.
    """
    check.write(key, value, key_cache, value_cache, slot_mapping)
    # The slots count, not the rows of key: a padded batch has more rows than slots.
    num_tokens = len(slot_mapping)
    if num_tokens == 0:
        return
    num_heads, head_size = key.shape[1], key.shape[2]
    block_size, x = key_cache.shape[3], key_cache.shape[4]

    entry.on(backend)[num_tokens, layout.writer_threads(num_heads, head_size, x)](
        key.reshape(-1),
        value.reshape(-1),
        key_cache.reshape(-1),
        value_cache.reshape(-1),
        slot_mapping,
        num_heads * head_size,
        num_heads * head_size,
        num_heads,
        head_size,
        block_size,
        x,
    )


# endregion
