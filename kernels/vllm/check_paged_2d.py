"""What the host code of the 2d kernel checks before a launch.

The kernel takes strides, so caches need not be contiguous; what it assumes beyond that is named here, with the
argument and its value, before anything runs.
"""

from __future__ import annotations

from typing import Any

from numba import float32
from numba.types import float16

from kernels import layout
from kernels.errors import ArgumentError
from kernels.kernel import MAX_SHARED_BYTES
from kernels.vllm.check import kind, shape

__all__ = ["SCALAR_TYPES", "decode_2d", "kind", "shape", "shared", "table", "threads"]

SCALAR_TYPES = {"float32": float32, "float16": float16}
"""What the 2d kernel reads and writes, by the dtype's name; it knows no bfloat16 and no fp8 cache."""


def table(block_table: Any, seq_lens: Any, num_blocks: int, block_size: int) -> None:
    """Every block that the lengths reach is there and is a block of the cache; raises ArgumentError."""
    for seq, seq_len in enumerate(seq_lens):
        if seq_len < 0:
            raise ArgumentError(f"seq_lens[{seq}]", seq_len, "must be at least 0")
        used = layout.blocks_for(int(seq_len), block_size)
        if used > block_table.shape[1]:
            raise ArgumentError(
                f"seq_lens[{seq}]", seq_len, f"needs {used} blocks, its row of block_table has {block_table.shape[1]}"
            )
        for index, number in enumerate(block_table[seq, :used]):
            if not 0 <= number < num_blocks:
                raise ArgumentError(
                    f"block_table[{seq}, {index}]", number, f"must be a block of the cache, 0 to {num_blocks - 1}"
                )


def decode_2d(
    output: Any,
    query: Any,
    key_cache: Any,
    value_cache: Any,
    block_table: Any,
    seq_lens: Any,
    query_start_loc: Any,
    sliding_window: int,
    unified: bool,
) -> None:
    """Everything the 2d kernel assumes of its arguments; raises ArgumentError at the first that is wrong."""
    shape("query", query, (None, None, None), tuple(SCALAR_TYPES))
    num_tokens, num_query_heads, head_size = query.shape
    dtype = (str(query.dtype),)
    shape("output", output, (num_tokens, num_query_heads, head_size), dtype)
    kind("value_cache", value_cache, (None, None, head_size, None), dtype)
    num_blocks, num_kv_heads, _, block_size = value_cache.shape
    if num_query_heads % num_kv_heads:
        raise ArgumentError("value_cache.shape", value_cache.shape, f"KV heads must divide the {num_query_heads} heads")
    kind("key_cache", key_cache, (num_blocks, num_kv_heads, None, block_size, None), dtype)
    if key_cache.shape[2] * key_cache.shape[4] != head_size:
        raise ArgumentError("key_cache.shape", key_cache.shape, f"axes 2 and 4 must make the head size, {head_size}")
    shape("seq_lens", seq_lens, (None,), ("int32",))
    shape("block_table", block_table, (len(seq_lens), None), ("int32",))
    table(block_table, seq_lens, num_blocks, block_size)
    _starts(query_start_loc, len(seq_lens), num_tokens)
    if sliding_window < 0:
        raise ArgumentError("sliding_window", sliding_window, "must be at least 1, or 0 or None for no window")
    if unified:
        for seq, seq_len in enumerate(seq_lens):
            if not seq_len:
                raise ArgumentError(f"seq_lens[{seq}]", seq_len, "must be at least 1: the unified kernel divides by L")


def threads(num_threads: int, tile: int) -> None:
    """Whole warps, and whole rows of scores; raises ArgumentError."""
    if num_threads < 32 or num_threads % 32:
        raise ArgumentError("num_threads", num_threads, "must be a multiple of 32, at least 32: whole warps")
    if tile < 1 or num_threads % tile:
        raise ArgumentError("num_threads", num_threads, f"must be a multiple of the tile's {tile} tokens")


def shared(num_queries_per_kv: int, head_size: int, tile: int, element_size: int) -> None:
    """The tiles fit into 48 KiB of shared memory; raises ArgumentError."""
    tiles = (num_queries_per_kv * head_size + 2 * head_size * tile + num_queries_per_kv * tile) * element_size
    size = tiles + 8 * tile + 8 * num_queries_per_kv
    if size > MAX_SHARED_BYTES:
        raise ArgumentError(
            "query.shape", (num_queries_per_kv, head_size), f"{size} bytes of tiles, a block has {MAX_SHARED_BYTES}"
        )


def _starts(query_start_loc: Any, num_seqs: int, num_tokens: int) -> None:
    shape("query_start_loc", query_start_loc, (num_seqs + 1,), ("int32",))
    if query_start_loc[0] != 0 or query_start_loc[-1] > num_tokens:
        ends = (int(query_start_loc[0]), int(query_start_loc[-1]))
        raise ArgumentError("query_start_loc", ends, f"must start at 0 and end within the {num_tokens} query rows")
    for seq in range(num_seqs):
        if query_start_loc[seq + 1] <= query_start_loc[seq]:
            raise ArgumentError(
                f"query_start_loc[{seq + 1}]",
                query_start_loc[seq + 1],
                f"must exceed {query_start_loc[seq]}: a query each",
            )
