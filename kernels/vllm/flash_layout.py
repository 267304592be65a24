"""The paged cache that FlashAttention reads at vLLM 0.26.0: K and V side by side, one row a token and KV head.

The logical shape is (blocks, KV heads, tokens, 2 x head size). Memory may hold it in another order: NHD keeps a
token's heads together, HND a head's tokens. A small kernel gathers one sequence through the block table.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numba import cuda, int64

from kernels import layout
from kernels.errors import ArgumentError
from kernels.kernel import Backend, kernel
from kernels.vllm import check_paged_2d as check
from kernels.vllm.strided import flat, strides

Memory = Literal["NHD", "HND"]
Shape = tuple[int, int, int, int]
DTYPES = ("float32", "float16")
MAX_HEAD_SIZE = 256


# region: flash-cache-shape
def kv_cache_shape(num_blocks: int, block_size: int, num_kv_heads: int, head_size: int) -> Shape:
    """Return the logical shape (blocks, KV heads, tokens, 2 x head size). Raises ArgumentError for a wrong block size.

    All counts are elements. Keys are the first half of the last axis, values the second.
    """
    if block_size < 1 or block_size % 16:
        raise ArgumentError("block_size", block_size, "must be a multiple of 16, as the backend asks")
    layout.value_cache_shape(num_blocks, num_kv_heads, head_size, block_size)  # refuses what no cache could have
    return num_blocks, num_kv_heads, block_size, 2 * head_size


# endregion


# region: flash-stride-order
def stride_order(memory: Memory) -> Shape:
    """Return which logical axis comes first, second and so on in memory. Raises ArgumentError for another name."""
    if memory == "NHD":
        # (blocks, tokens, KV heads, 2 x head size)
        return 0, 2, 1, 3
    if memory == "HND":
        # (blocks, KV heads, tokens, 2 x head size)
        return 0, 1, 2, 3
    raise ArgumentError("memory", memory, "must be NHD or HND")


# endregion


def kv_cache_strides(shape: Shape, memory: Memory) -> Shape:
    """Return the elements from one place to the next along each logical axis."""
    found = [0, 0, 0, 0]
    step = 1
    for axis in reversed(stride_order(memory)):
        found[axis] = step
        step *= shape[axis]
    return found[0], found[1], found[2], found[3]


def allocate(
    num_blocks: int,
    block_size: int,
    num_kv_heads: int,
    head_size: int,
    dtype: str = "float16",
    memory: Memory = "NHD",
    fill: float = float("nan"),
) -> Any:
    """Return a new cache in its logical shape over memory in the chosen order, every place holding `fill`.

    Raises ArgumentError for a shape, dtype or order that cannot be.
    """
    if dtype not in DTYPES:
        raise ArgumentError("dtype", dtype, f"must be {' or '.join(DTYPES)}")
    order = stride_order(memory)
    shape = kv_cache_shape(num_blocks, block_size, num_kv_heads, head_size)
    in_memory = np.full([shape[axis] for axis in order], fill, dtype)
    # NHD and HND swap at most two axes: the way back is the same permutation.
    return in_memory.transpose(order)


# region: flash-split
def split(kv_cache: Any, head_size: int) -> tuple[Any, Any]:
    """Return (keys, values) as views, each (blocks, tokens, KV heads, head size). No byte moves.

    kv_cache: the logical shape, in any memory order. Raises ArgumentError where the last axis is not two heads wide.
    """
    check.kind("kv_cache", kv_cache, (None, None, None, 2 * head_size), DTYPES)
    tokens_first = kv_cache.swapaxes(1, 2)
    return tokens_first[..., :head_size], tokens_first[..., head_size:]


# endregion


def as_2d_caches(key_cache: Any, value_cache: Any) -> tuple[Any, Any]:
    """Return the split views with the axes of the 2d kernel: keys [B, H, 1, N, D], values [B, H, D, N].

    With one chunk as wide as the head, x has no effect: the strides say all.
    """
    return key_cache.transpose(0, 2, 1, 3)[:, :, None], value_cache.transpose(0, 2, 3, 1)


@kernel()
def gather_kv_kernel(
    key,  # [seq_len, num_kv_heads, head_size]
    value,  # [seq_len, num_kv_heads, head_size]
    kv_cache,  # (num_blocks, num_kv_heads, block_size, 2 x head_size), by strides
    block_table,  # [blocks] int32
    block_size,
    head_size,
    stride_block,
    stride_head,
    stride_token,
):
    """Copy one token of one KV head out of the cache: grid (seq_len, num_kv_heads), 2 x head_size threads."""
    token_idx = cuda.blockIdx.x
    kv_head_idx = cuda.blockIdx.y
    num_kv_heads = cuda.gridDim.y
    # region: flash-block-table
    # region: block-table-lookup
    physical_block_number = int64(block_table[token_idx // block_size])
    # endregion
    block_offset = token_idx % block_size
    # endregion
    # region: flash-split
    # One run of 2 x head_size elements: a warp that reads the key's end goes straight on into the value.
    row = physical_block_number * stride_block + kv_head_idx * stride_head + block_offset * stride_token
    element = cuda.threadIdx.x
    target = (token_idx * num_kv_heads + kv_head_idx) * head_size
    if element < head_size:
        key[target + element] = kv_cache[row + element]
    else:
        value[target + element - head_size] = kv_cache[row + element]
    # endregion


def gather_kv(
    key: Any,
    value: Any,
    kv_cache: Any,
    block_table: Any,
    *,
    backend: str | Backend = "sim",
    entry: Any = gather_kv_kernel,
) -> None:
    """Copy one sequence's keys and values out of the cache, in the order of its tokens.

    key, value: [seq_len, num_kv_heads, head_size] float32 or float16, written in place; kv_cache: the logical shape in
    any memory order; block_table: [blocks] int32. Raises ArgumentError.
    """
    check.shape("key", key, (None, None, None), DTYPES)
    seq_len, num_kv_heads, head_size = key.shape
    dtype = (str(key.dtype),)
    check.shape("value", value, (seq_len, num_kv_heads, head_size), dtype)
    check.kind("kv_cache", kv_cache, (None, num_kv_heads, None, 2 * head_size), dtype)
    if not 1 <= head_size <= MAX_HEAD_SIZE:
        raise ArgumentError("key.shape", key.shape, f"head size must be 1 to {MAX_HEAD_SIZE}: a thread an element")
    if strides(kv_cache)[3] != 1:
        raise ArgumentError("kv_cache.strides", kv_cache.strides, "must have the last axis in one piece")
    check.shape("block_table", block_table, (None,), ("int32",))
    block_size = kv_cache.shape[2]
    check.table(block_table.reshape(1, -1), [seq_len], kv_cache.shape[0], block_size)
    if seq_len == 0:
        return
    entry.on(backend)[(seq_len, num_kv_heads), 2 * head_size](
        flat(key), flat(value), flat(kv_cache), block_table, block_size, head_size, *strides(kv_cache)[:3]
    )
