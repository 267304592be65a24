"""Where a block begins in vLLM's caches: the two lines of the classic kernel that decide how large a cache may be.

In the kernel they stand far apart, and between them memory is read. Here they stand alone, so that the block numbers at
the edge of 32 bits can be tried without a cache of that size.
"""

from __future__ import annotations

from typing import Any

from numba import cuda, int32, int64

from kernels.errors import ArgumentError
from kernels.kernel import MAX_THREADS, Backend, kernel
from kernels.vllm import check


@kernel()
def block_offsets_kernel(block_tables, kv_block_stride, wide, short):
    """The first element of each block: in 64 bits as vLLM multiplies, and as a product of two ints would come out."""
    block_idx = cuda.threadIdx.x
    # region: block-table-lookup
    physical_block_number = int64(block_tables[block_idx])
    # endregion
    # region: k-address
    wide[block_idx] = physical_block_number * kv_block_stride
    # endregion
    # Not in vLLM: Numba widens by itself, so the cast cuts as an int in C++ does.
    short[block_idx] = int32(physical_block_number * kv_block_stride)


def block_offsets(
    block_tables: Any,
    kv_block_stride: int,
    wide: Any,
    short: Any,
    *,
    backend: str | Backend = "sim",
    entry: Any = block_offsets_kernel,
) -> None:
    """Multiply block numbers by a block's elements: one thread each. block_tables: int32; wide, short: int64.

    Raises ArgumentError for other shapes, for more than 1024 blocks, and for a stride that is no int.
    """
    check.shape("block_tables", block_tables, (None,), ("int32",))
    if not 1 <= len(block_tables) <= MAX_THREADS:
        raise ArgumentError("block_tables.shape", block_tables.shape, f"must hold 1 to {MAX_THREADS} blocks")
    if not 1 <= kv_block_stride < 2**31:
        raise ArgumentError("kv_block_stride", kv_block_stride, "must be from 1 to 2**31 - 1, as an int in C++ is")
    for name, array in (("wide", wide), ("short", short)):
        check.shape(name, array, tuple(block_tables.shape), ("int64",))
    entry.on(backend)[1, len(block_tables)](block_tables, kv_block_stride, wide, short)
