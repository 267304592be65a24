"""A corrected `reshape_and_cache`: vLLM's kernel with the stride loop that it lost.

vLLM 0.11.0 still had the loop; 0.11.2 to 0.33.0 do not. This port is ours, not vLLM's: it differs from
`cache.reshape_and_cache_kernel` in the loop alone, and writes every head.
"""

from __future__ import annotations

from typing import Any

from numba import cuda, float32, int64

from kernels.kernel import Backend, kernel
from kernels.vllm.cache import constexpr, reshape_and_cache
from kernels.vllm.dtypes import copy_auto

# Template parameters and what follows from them: `specialise` puts the real values in their place.
KV_AUTO = True
convert = copy_auto


# region: reshape-and-cache
@kernel(constexpr)
def reshape_and_cache_fixed_kernel(
    key,  # [num_tokens, num_heads, head_size] scalar_t
    value,  # [num_tokens, num_heads, head_size] scalar_t
    key_cache,  # [num_blocks, num_heads, head_size/x, block_size, x] cache_t
    value_cache,  # [num_blocks, num_heads, head_size, block_size] cache_t
    slot_mapping,  # [num_tokens] int64
    key_stride,
    value_stride,
    num_heads,
    head_size,
    block_size,
    x,
    k_scale,  # [1] float32
    v_scale,  # [1] float32
):
    """Write one token's key and value: grid (num_tokens), any number of threads, arrays flat."""
    # region: slot-guard
    token_idx = int64(cuda.blockIdx.x)
    slot_idx = slot_mapping[token_idx]
    if slot_idx < 0:
        return
    # endregion

    # region: slot-split
    block_idx = slot_idx // block_size
    block_offset = slot_idx % block_size
    # endregion
    k_scale_val = float32(0) if KV_AUTO else k_scale[0]
    v_scale_val = float32(0) if KV_AUTO else v_scale[0]
    # region: head-of-thread
    h_block_count = head_size // x

    # The repair: a thread comes back for the piece that lies blockDim.x further on, until none is left.
    for h_block_idx in range(cuda.threadIdx.x, num_heads * h_block_count, cuda.blockDim.x):
        head_idx = h_block_idx // h_block_count
        h_block = h_block_idx % h_block_count
        # endregion

        # region: k-source
        key_src = token_idx * key_stride + head_idx * head_size + h_block * x
        value_src = token_idx * value_stride + head_idx * head_size + h_block * x
        # endregion

        # region: k-store
        key_dst = (
            block_idx * num_heads * h_block_count * block_size * x
            + head_idx * h_block_count * block_size * x
            + h_block * block_size * x
            + block_offset * x
        )
        for i in range(x):
            key_cache[key_dst + i] = convert(key[key_src + i], k_scale_val)
        # endregion

        # region: v-store
        value_dst = (
            block_idx * num_heads * h_block_count * x * block_size
            + head_idx * h_block_count * x * block_size
            + h_block * x * block_size
            + block_offset
        )
        for i in range(x):
            value_cache[value_dst + i * block_size] = convert(value[value_src + i], v_scale_val)
        # endregion


# endregion


def reshape_and_cache_fixed(
    key: Any,
    value: Any,
    key_cache: Any,
    value_cache: Any,
    slot_mapping: Any,
    kv_cache_dtype: str = "auto",
    k_scale: Any = None,
    v_scale: Any = None,
    *,
    backend: str | Backend = "sim",
    entry: Any = reshape_and_cache_fixed_kernel,
) -> None:
    """As `cache.reshape_and_cache`, with the same host code and the same launch, but every head is written."""
    scales = kv_cache_dtype, k_scale, v_scale
    reshape_and_cache(key, value, key_cache, value_cache, slot_mapping, *scales, backend=backend, entry=entry)
