"""Copy whole blocks inside the cache: what must happen before one of two owners writes into a shared block.

A port of vLLM's `copy_blocks_kernel` (0.24.0 and 0.26.0), for one layer: Numba takes arrays, not a list of addresses.
"""

from __future__ import annotations

from typing import Any

from numba import cuda, int64

from kernels.errors import ArgumentError
from kernels.kernel import Backend, kernel
from kernels.vllm import check

MAX_THREADS = 1024
DTYPES = ("float16", "float32", "float64")


# region: block-copy
@kernel()
def copy_blocks_kernel(
    key_cache,  # [num_blocks, ...]
    value_cache,  # [num_blocks, ...]
    block_mapping,  # [num_pairs, 2] int64: from, to
    numel_per_block,
):
    """Copy the keys and the values of one block to another: grid (num_pairs), arrays flat."""
    # The C++ has the layer in blockIdx.x, and the pair in blockIdx.y.
    pair_idx = cuda.blockIdx.x
    src_block_number = block_mapping[2 * pair_idx]
    dst_block_number = block_mapping[2 * pair_idx + 1]

    src_block_offset = src_block_number * int64(numel_per_block)
    dst_block_offset = dst_block_number * int64(numel_per_block)
    for i in range(cuda.threadIdx.x, numel_per_block, cuda.blockDim.x):
        key_cache[dst_block_offset + i] = key_cache[src_block_offset + i]
    for i in range(cuda.threadIdx.x, numel_per_block, cuda.blockDim.x):
        value_cache[dst_block_offset + i] = value_cache[src_block_offset + i]


# endregion


def copy_blocks(
    key_cache: Any,
    value_cache: Any,
    block_mapping: Any,
    *,
    backend: str | Backend = "sim",
    entry: Any = copy_blocks_kernel,
) -> None:
    """Copy blocks within both caches, in place.

    key_cache, value_cache: [num_blocks, ...], contiguous, a block as large in the one as in the other; block_mapping:
    [num_pairs, 2] int64, (from, to). All pairs are copied at once, so no block may be a target twice, nor a target of
    one pair and the source of another. Raises ArgumentError.
    """
    check.shape("key_cache", key_cache, (None,) * key_cache.ndim, DTYPES)
    check.shape(
        "value_cache", value_cache, (len(key_cache), *(None,) * (value_cache.ndim - 1)), (str(key_cache.dtype),)
    )
    if key_cache.size != value_cache.size:
        raise ArgumentError("value_cache.shape", value_cache.shape, f"must have a block as large as {key_cache.shape}")
    check.shape("block_mapping", block_mapping, (None, 2), ("int64",))
    num_blocks = len(key_cache)
    for pair, (source, target) in enumerate(block_mapping):
        for number in (source, target):
            if not 0 <= number < num_blocks:
                raise ArgumentError(f"block_mapping[{pair}]", number, f"must be a block, 0 to {num_blocks - 1}")
    targets = [int(target) for _, target in block_mapping]
    if len(set(targets)) < len(targets) or set(targets) & {int(source) for source, _ in block_mapping}:
        raise ArgumentError("block_mapping", block_mapping.tolist(), "must not write a block twice, nor one it reads")
    if not len(block_mapping):
        return
    numel_per_block = key_cache.size // num_blocks
    entry.on(backend)[len(block_mapping), min(numel_per_block, MAX_THREADS)](
        key_cache.reshape(-1), value_cache.reshape(-1), block_mapping.reshape(-1), numel_per_block
    )
