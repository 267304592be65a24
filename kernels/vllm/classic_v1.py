"""vLLM's classic decode kernel, first version: the whole sequence in one thread block.

Ports of the v1 entry and of its launcher at vLLM 0.24.0; the body is in `attention_kernels`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import cuda, float32

from kernels import layout
from kernels.errors import ArgumentError, LaunchError
from kernels.kernel import Backend, kernel
from kernels.vllm import check
from kernels.vllm.attention_kernels import NUM_THREADS, constexpr, paged_attention_kernel
from kernels.vllm.dtypes import SCALAR_TYPES, one_scale
from kernels.vllm.strided import flat, strides

HEAD_SIZES = (32, 64, 80, 96, 112, 120, 128, 192, 256)


# region: v1-entry
@kernel(constexpr)
def paged_attention_v1_kernel(
    out,  # [num_seqs, num_heads, head_size] scalar_t
    q,
    k_cache,
    v_cache,
    num_kv_heads,
    scale,
    block_tables,
    seq_lens,
    max_num_blocks_per_seq,
    alibi_slopes,
    q_stride,
    kv_block_stride,
    kv_head_stride,
    k_scale,
    v_scale,
):
    """The body without partitions: grid (num_heads, num_seqs, 1), every array flat."""
    # Stands for the two null pointers of the C++: PARTITION_SIZE is zero, so nobody reads it.
    nullptr = cuda.local.array(1, float32)
    paged_attention_kernel(
        nullptr,
        nullptr,
        out,
        q,
        k_cache,
        v_cache,
        num_kv_heads,
        scale,
        block_tables,
        seq_lens,
        max_num_blocks_per_seq,
        alibi_slopes,
        q_stride,
        kv_block_stride,
        kv_head_stride,
        k_scale,
        v_scale,
    )


# endregion


# region: v1-launcher
def paged_attention_v1(
    out: Any,
    query: Any,
    key_cache: Any,
    value_cache: Any,
    num_kv_heads: int,
    scale: float,
    block_tables: Any,
    seq_lens: Any,
    block_size: int,
    max_seq_len: int,
    alibi_slopes: Any = None,
    kv_cache_dtype: str = "auto",
    k_scale: Any = None,
    v_scale: Any = None,
    *,
    backend: str | Backend = "sim",
    entry: Any = paged_attention_v1_kernel,
    num_threads: int = NUM_THREADS,
) -> None:
    """Launch the v1 kernel as vLLM's host code does; `out` is written in place.

    out, query: [num_seqs, num_heads, head_size] float32, float16 or bfloat16 codes (uint16), the query's rows at any
    distance; key_cache: [num_blocks, num_kv_heads, head_size/x, block_size, x]; value_cache: [num_blocks,
    num_kv_heads, head_size, block_size]; block_tables: [num_seqs, max_num_blocks_per_seq] int32; seq_lens: [num_seqs]
    int32; alibi_slopes: [num_heads] float32 or None. `kv_cache_dtype`: auto (caches in the query's dtype), or fp8,
    fp8_e4m3, fp8_e5m2 (uint8 codes; an element is the code times k_scale or v_scale, [1] float32, one if None).
    Arrays in NumPy or on the GPU. `entry` may be a probed kernel. Raises ArgumentError for what vLLM would read as
    nonsense, LaunchError where the logits of `max_seq_len` tokens do not fit into shared memory.
    """
    k_scale, v_scale = one_scale(k_scale), one_scale(v_scale)
    check.decode(
        out, query, key_cache, value_cache, num_kv_heads, block_tables, seq_lens, block_size, max_seq_len,
        kv_cache_dtype, k_scale, v_scale,
    )  # fmt: skip
    num_seqs, num_heads, head_size = query.shape
    max_num_blocks_per_seq = block_tables.shape[1]
    q_stride = strides(query)[0]
    kv_block_stride, kv_head_stride = strides(key_cache)[:2]
    slopes = np.zeros(num_heads, np.float32) if alibi_slopes is None else alibi_slopes
    check.shape("alibi_slopes", slopes, (num_heads,), ("float32",))

    if (warps := layout.num_warps(num_threads)) & (warps - 1):
        raise ArgumentError("num_threads", num_threads, "must be 32 times a power of two: warps are added up in pairs")

    # region: block-sizes
    if block_size not in (8, 16, 32):
        raise ArgumentError("block_size", block_size, "must be 8, 16 or 32, the sizes vLLM compiles")
    if head_size not in HEAD_SIZES:
        raise ArgumentError("head_size", head_size, f"must be one of {HEAD_SIZES}, the sizes vLLM compiles")
    specialised = entry.specialise(
        HEAD_SIZE=head_size,
        BLOCK_SIZE=block_size,
        NUM_THREADS=num_threads,
        PARTITION_SIZE=0,
        scalar_t=SCALAR_TYPES[str(query.dtype)],
        kv_cache_dtype=kv_cache_dtype,
    ).on(backend)
    # endregion
    # region: shared-size
    shared_mem_size = layout.v1_shared_bytes(max_seq_len, block_size, head_size, num_threads)
    static = layout.v1_static_shared_bytes(head_size, query.dtype.itemsize, num_threads)
    if shared_mem_size + static > (limit := Backend.of(backend).shared_limit):
        raise LaunchError(
            f"max_seq_len = {max_seq_len}: {shared_mem_size} + {static} bytes of shared memory, a block has "
            f"{limit} at most; shorten the sequence or partition it"
        )
    # A block has 48 KiB for the asking; for more, the kernel's limit is raised first.
    launcher = specialised.opt_in(shared_mem_size + static)
    # endregion
    # region: grid
    grid = (num_heads, num_seqs, 1)
    # endregion
    # region: v1-op
    launcher[grid, num_threads, 0, shared_mem_size](
        flat(out),
        flat(query),
        flat(key_cache),
        flat(value_cache),
        num_kv_heads,
        np.float32(scale),
        flat(block_tables),
        seq_lens,
        max_num_blocks_per_seq,
        slopes,
        q_stride,
        kv_block_stride,
        kv_head_stride,
        k_scale,
        v_scale,
    )
    # endregion


# endregion
