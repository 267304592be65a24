"""vLLM's classic decode kernel, second version: a long sequence in partitions, merged by a second kernel.

Ports of the v2 entry, the reduce kernel and their launcher at vLLM 0.24.0; the body of the first kernel is the
one that v1 runs, in `attention_kernels`. vLLM's partitions hold 512 tokens; smaller ones are for teaching.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import cuda, float32
from numba.cuda import libdevice

from kernels import layout
from kernels.errors import ArgumentError, LaunchError
from kernels.kernel import MAX_SHARED_BYTES, Backend, kernel
from kernels.vllm import check
from kernels.vllm.attention_kernels import NUM_THREADS, constexpr, paged_attention_kernel
from kernels.vllm.attention_utils import FLT_MAX, FULL_MASK, WARP_SIZE, block_sum
from kernels.vllm.classic_v1 import HEAD_SIZES
from kernels.vllm.dtypes import SCALAR_TYPES, conversions, one_scale
from kernels.vllm.strided import flat, strides

# Template parameters and what follows from them: `specialise` puts the real values in their place.
to_float = from_float = float32
HEAD_SIZE = PARTITION_SIZE = NUM_WARPS = RED_SMEM_SIZE = 0


# region: v2-entry
@kernel(constexpr)
def paged_attention_v2_kernel(
    exp_sums,  # [num_seqs, num_heads, max_num_partitions] float32
    max_logits,  # [num_seqs, num_heads, max_num_partitions] float32
    tmp_out,  # [num_seqs, num_heads, max_num_partitions, head_size] scalar_t
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
    """The body with partitions: grid (num_heads, num_seqs, max_num_partitions), every array flat."""
    paged_attention_kernel(
        exp_sums,
        max_logits,
        tmp_out,
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


def reduce_constexpr(*, HEAD_SIZE: int, NUM_THREADS: int, PARTITION_SIZE: int, scalar_t: Any) -> dict[str, Any]:
    """What the C++ of the reduce kernel computes at compile time."""
    NUM_WARPS = NUM_THREADS // WARP_SIZE
    return {"NUM_WARPS": NUM_WARPS, "RED_SMEM_SIZE": 2 * NUM_WARPS, **conversions(str(scalar_t), "auto")}


# region: v2-reduce
@kernel(reduce_constexpr)
def paged_attention_v2_reduce_kernel(
    out,  # [num_seqs, num_heads, head_size] scalar_t
    exp_sums,  # [num_seqs, num_heads, max_num_partitions] float32
    max_logits,  # [num_seqs, num_heads, max_num_partitions] float32
    tmp_out,  # [num_seqs, num_heads, max_num_partitions, head_size] scalar_t
    seq_lens,  # [num_seqs] int32
    max_num_partitions,
):
    """One output row out of its partitions: grid (num_heads, num_seqs), every array flat."""
    num_heads = cuda.gridDim.x
    head_idx = cuda.blockIdx.x
    seq_idx = cuda.blockIdx.y
    seq_len = seq_lens[seq_idx]
    num_partitions = (seq_len + PARTITION_SIZE - 1) // PARTITION_SIZE
    # region: v2-single-partition
    if num_partitions == 1:
        # Finished by the first kernel already.
        out_ptr = seq_idx * num_heads * HEAD_SIZE + head_idx * HEAD_SIZE
        tmp_out_ptr = seq_idx * num_heads * max_num_partitions * HEAD_SIZE + head_idx * max_num_partitions * HEAD_SIZE
        for i in range(cuda.threadIdx.x, HEAD_SIZE, cuda.blockDim.x):
            out[out_ptr + i] = tmp_out[tmp_out_ptr + i]
        return
    # endregion

    warp_idx = cuda.threadIdx.x // WARP_SIZE
    lane = cuda.threadIdx.x % WARP_SIZE

    # Two floats a partition: first the maxima, behind them the rescaled sums.
    shared_mem = cuda.shared.array(0, float32)
    red_smem = cuda.shared.array(RED_SMEM_SIZE, float32)

    # region: v2-max
    shared_max_logits = shared_mem
    max_logits_ptr = seq_idx * num_heads * max_num_partitions + head_idx * max_num_partitions
    max_logit = float32(-FLT_MAX)
    for i in range(cuda.threadIdx.x, num_partitions, cuda.blockDim.x):
        l = max_logits[max_logits_ptr + i]
        shared_max_logits[i] = l
        max_logit = libdevice.fmaxf(max_logit, l)
    cuda.syncthreads()

    mask = WARP_SIZE // 2
    while mask >= 1:
        max_logit = libdevice.fmaxf(max_logit, cuda.shfl_xor_sync(FULL_MASK, max_logit, mask))
        mask //= 2
    if lane == 0:
        red_smem[warp_idx] = max_logit
    cuda.syncthreads()

    max_logit = red_smem[lane] if lane < NUM_WARPS else float32(-FLT_MAX)
    mask = NUM_WARPS // 2
    while mask >= 1:
        max_logit = libdevice.fmaxf(max_logit, cuda.shfl_xor_sync(FULL_MASK, max_logit, mask))
        mask //= 2
    max_logit = cuda.shfl_sync(FULL_MASK, max_logit, 0)
    # endregion

    # region: v2-rescale
    shared_exp_sums = shared_mem[num_partitions:]
    exp_sums_ptr = seq_idx * num_heads * max_num_partitions + head_idx * max_num_partitions
    global_exp_sum = float32(0)
    for i in range(cuda.threadIdx.x, num_partitions, cuda.blockDim.x):
        l = shared_max_logits[i]
        rescaled_exp_sum = exp_sums[exp_sums_ptr + i] * libdevice.expf(l - max_logit)
        global_exp_sum += rescaled_exp_sum
        shared_exp_sums[i] = rescaled_exp_sum
    cuda.syncthreads()
    global_exp_sum = block_sum(red_smem[NUM_WARPS:], global_exp_sum)
    inv_global_exp_sum = libdevice.fast_fdividef(float32(1), global_exp_sum + float32(1e-6))
    # endregion

    # region: v2-merge
    tmp_out_ptr = seq_idx * num_heads * max_num_partitions * HEAD_SIZE + head_idx * max_num_partitions * HEAD_SIZE
    out_ptr = seq_idx * num_heads * HEAD_SIZE + head_idx * HEAD_SIZE
    for i in range(cuda.threadIdx.x, HEAD_SIZE, NUM_THREADS):
        acc = float32(0)
        for j in range(num_partitions):
            acc += to_float(tmp_out[tmp_out_ptr + j * HEAD_SIZE + i]) * shared_exp_sums[j] * inv_global_exp_sum
        out[out_ptr + i] = from_float(acc)
    # endregion


# endregion


# region: v2-launcher
def paged_attention_v2(
    out: Any,
    exp_sums: Any,
    max_logits: Any,
    tmp_out: Any,
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
    entry: Any = paged_attention_v2_kernel,
    reduce_entry: Any = paged_attention_v2_reduce_kernel,
    num_threads: int = NUM_THREADS,
    # region: partition-size
    # vLLM compiles 512 and no other; a step takes less, to see several partitions in a short sequence.
    partition_size: int = layout.PARTITION_SIZE,
    # endregion
) -> None:
    """Launch both v2 kernels as vLLM's host code does; `out` and the three buffers are written in place.

    exp_sums, max_logits: [num_seqs, num_heads, partitions of max_seq_len] float32; tmp_out: the same and head_size,
    in the query's dtype; partitions that a sequence does not have stay as they are. The other arguments are those
    of `paged_attention_v1`. Raises ArgumentError for what vLLM would read as nonsense, LaunchError for a launch
    that no GPU would take; nothing runs then.
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
    if block_size not in (8, 16, 32):
        raise ArgumentError("block_size", block_size, "must be 8, 16 or 32, the sizes vLLM compiles")
    if head_size not in HEAD_SIZES:
        raise ArgumentError("head_size", head_size, f"must be one of {HEAD_SIZES}, the sizes vLLM compiles")
    if partition_size < 1 or partition_size % block_size:
        raise ArgumentError("partition_size", partition_size, f"must be a multiple of block_size = {block_size}")

    max_num_partitions = layout.partitions_for(max_seq_len, partition_size)
    notes = (num_seqs, num_heads, max_num_partitions)
    check.shape("exp_sums", exp_sums, notes, ("float32",))
    check.shape("max_logits", max_logits, notes, ("float32",))
    check.shape("tmp_out", tmp_out, (*notes, head_size), (str(query.dtype),))

    # region: v2-grid
    grid = (num_heads, num_seqs, max_num_partitions)
    # No longer a matter of the sequence: a partition's scores are all there can be.
    shared_mem_size = layout.v1_shared_bytes(partition_size, block_size, head_size, num_threads)
    reduce_grid = (num_heads, num_seqs)
    reduce_shared_mem_size = 2 * max_num_partitions * layout.FLOAT_BYTES
    # endregion
    static = layout.v1_static_shared_bytes(head_size, query.dtype.itemsize, num_threads)
    if shared_mem_size + static > MAX_SHARED_BYTES:
        raise LaunchError(f"partition_size = {partition_size}: {shared_mem_size} + {static} bytes of shared memory")
    template = {"HEAD_SIZE": head_size, "NUM_THREADS": num_threads, "PARTITION_SIZE": partition_size}
    template |= {"scalar_t": SCALAR_TYPES[str(query.dtype)]}
    attend = entry.specialise(BLOCK_SIZE=block_size, kv_cache_dtype=kv_cache_dtype, **template).on(backend)

    # region: v2-op
    # Both configurations are checked before either kernel runs.
    reduce = reduce_entry.specialise(**template).on(backend)[reduce_grid, num_threads, 0, reduce_shared_mem_size]
    attend[grid, num_threads, 0, shared_mem_size](
        flat(exp_sums),
        flat(max_logits),
        flat(tmp_out),
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
    reduce(
        flat(out),
        flat(exp_sums),
        flat(max_logits),
        flat(tmp_out),
        seq_lens,
        max_num_partitions,
    )
    # endregion


# endregion


def buffers(
    num_seqs: int,
    num_heads: int,
    head_size: int,
    max_seq_len: int,
    dtype: Any,
    partition_size: int = layout.PARTITION_SIZE,
    fill: float = float("nan"),
) -> tuple[Any, Any, Any]:
    """The three buffers that v2's caller must bring (exp_sums, max_logits, tmp_out), every element `fill`."""
    notes = (num_seqs, num_heads, layout.partitions_for(max_seq_len, partition_size))
    return (
        np.full(notes, fill, np.float32),
        np.full(notes, fill, np.float32),
        np.full((*notes, head_size), fill, dtype),
    )
