"""vLLM's cache writer for the classic layout: new keys and values into their slots.

A line-by-line port of `reshape_and_cache_kernel` and its host code at vLLM 0.24.0, including
the launch of at most 512 threads without a stride loop.
"""

from __future__ import annotations

from typing import Any

from numba import cuda, float32, int64

from kernels import layout
from kernels.kernel import Backend, kernel
from kernels.vllm import check
from kernels.vllm.dtypes import conversions, copy_auto, one_scale
from kernels.vllm.strided import flat, strides

# Template parameters and what follows from them: `specialise` puts the real values in their place.
KV_AUTO = True
convert = copy_auto


def constexpr(*, dtype: str, kv_cache_dtype: str) -> dict[str, Any]:
    """What the C++ knows at compile time: the element types, and so which conversion to make."""
    return conversions(dtype, kv_cache_dtype)


# region: reshape-and-cache
@kernel(constexpr)
def reshape_and_cache_kernel(
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

    # Not read where the cache keeps the elements as they are.
    k_scale_val = float32(0) if KV_AUTO else k_scale[0]
    v_scale_val = float32(0) if KV_AUTO else v_scale[0]

    # region: k-store
    # x neighbours in memory: the C++ copies these 16 bytes as one vector; Numba moves them one by one.
    for i in range(x):
        key_cache[key_dst + i] = convert(key[key_src + i], k_scale_val)
    # endregion

    # region: v-store
    # One row of V apart each: a token's values are block_size elements apart.
    for i in range(x):
        value_cache[tgt_value_start + i * block_size] = convert(value[src_value_start + i], v_scale_val)
    # endregion


# endregion


# region: reshape-and-cache-host
def reshape_and_cache(
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
    entry: Any = reshape_and_cache_kernel,
) -> None:
    """Write each token's key and value into the slot that `slot_mapping` gives; negative slots are skipped.

    key, value: [rows, num_heads, head_size] float32, float16 or bfloat16 codes (uint16), rows at any distance and at
    least len(slot_mapping) of them; key_cache: [num_blocks, num_heads, head_size/x, block_size, x]; value_cache:
    [num_blocks, num_heads, head_size, block_size]; slot_mapping: [num_tokens] int64. `kv_cache_dtype`: auto (the keys'
    dtype), or fp8, fp8_e4m3, fp8_e5m2 (uint8 codes of the elements divided by k_scale or v_scale, [1] float32, one if
    None). Arrays in NumPy or on the GPU; the caches are written in place. Raises ArgumentError. As in vLLM, heads
    beyond 512 (head, x-group) pairs stay unwritten.
    """
    k_scale, v_scale = one_scale(k_scale), one_scale(v_scale)
    check.write(key, value, key_cache, value_cache, slot_mapping, kv_cache_dtype, k_scale, v_scale)
    # The slots count, not the rows of key: a padded batch has more rows than slots.
    num_tokens = len(slot_mapping)
    if num_tokens == 0:
        return
    num_heads, head_size = key.shape[1], key.shape[2]
    block_size, x = key_cache.shape[3], key_cache.shape[4]

    launch = entry.specialise(dtype=str(key.dtype), kv_cache_dtype=kv_cache_dtype).on(backend)
    launch[num_tokens, layout.writer_threads(num_heads, head_size, x)](
        flat(key),
        flat(value),
        flat(key_cache),
        flat(value_cache),
        slot_mapping,
        strides(key)[0],
        strides(value)[0],
        num_heads,
        head_size,
        block_size,
        x,
        k_scale,
        v_scale,
    )


# endregion
