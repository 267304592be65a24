"""The paged decode kernel that vLLM still runs: every block once, with a softmax that never waits.

A port of the Triton kernel `kernel_paged_attention_2d` at vLLM 0.26.0, without its fp8 and sink branches. With
`UNIFIED` it does what differs in one decode step of `kernel_unified_attention`, and no more. Triton speaks of whole
tiles and leaves the threads to its compiler; where this port has to choose a thread, a comment says so.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import cuda, float32, int64
from numba.cuda import libdevice

from kernels.kernel import Backend, kernel
from kernels.vllm import check_paged_2d as check
from kernels.vllm.strided import flat, strides

FULL_MASK = 0xFFFFFFFF
NUM_THREADS = 128
# Template parameters and what follows from them: `specialise` puts the real values in their place.
scalar_t = float32
num_queries_per_kv = BLOCK_SIZE = PHYSICAL_BLOCK_SIZE = HEAD_SIZE = SLIDING_WINDOW = x = 0
USE_ALIBI_SLOPES = UNIFIED = False
NUM_ROWS = NUM_ROWS_PER_THREAD = NUM_ACCS_PER_THREAD = 0


def constexpr(
    *,
    num_queries_per_kv: int,
    BLOCK_SIZE: int,
    HEAD_SIZE: int,
    NUM_THREADS: int = 128,
    **others: Any,
) -> dict[str, Any]:
    """How the tile of scores and the accumulator are dealt to threads: the port's own choice, Triton hides it."""
    # BLOCK_SIZE neighbouring threads are one row of scores (one query head), a thread a token.
    NUM_ROWS = NUM_THREADS // BLOCK_SIZE
    NUM_ROWS_PER_THREAD = -(-num_queries_per_kv // NUM_ROWS)
    NUM_ACCS_PER_THREAD = -(-num_queries_per_kv * HEAD_SIZE // NUM_THREADS)
    return {
        "NUM_THREADS": NUM_THREADS,
        "NUM_ROWS": NUM_ROWS,
        "NUM_ROWS_PER_THREAD": NUM_ROWS_PER_THREAD,
        "NUM_ACCS_PER_THREAD": NUM_ACCS_PER_THREAD,
    }


# region: paged-2d
# region: paged-2d-signature
@kernel(constexpr)
def kernel_paged_attention_2d(
    output_ptr,  # [num_tokens, num_query_heads, head_size] scalar_t
    query_ptr,  # [num_tokens, num_query_heads, head_size] scalar_t
    # region: paged-2d-layouts
    key_cache_ptr,  # [num_blocks, num_kv_heads, head_size/x, block_size, x] scalar_t
    value_cache_ptr,  # [num_blocks, num_kv_heads, head_size, block_size] scalar_t
    # endregion
    block_tables_ptr,  # [num_seqs, max_num_blocks_per_seq] int32
    seq_lens_ptr,  # [num_seqs] int32
    alibi_slopes_ptr,  # [num_query_heads] float32
    scale,
    block_table_stride,
    query_stride_0,
    query_stride_1,
    output_stride_0,
    output_stride_1,
    stride_k_cache_0,
    stride_k_cache_1,
    stride_k_cache_2,
    stride_k_cache_3,
    stride_k_cache_4,
    stride_v_cache_0,
    stride_v_cache_1,
    stride_v_cache_2,
    stride_v_cache_3,
    query_start_len_ptr,  # [num_seqs + 1] int32
):
    """Attention of one sequence's newest token, for all query heads of one KV head: grid (num_seqs, num_kv_heads)."""
    # endregion
    # region: paged-2d-program
    seq_idx = cuda.blockIdx.x
    kv_head_idx = cuda.blockIdx.y
    thread_idx = cuda.threadIdx.x
    # endregion

    # region: paged-2d-filter
    cur_batch_in_all_start_index = query_start_len_ptr[seq_idx]
    cur_batch_in_all_stop_index = query_start_len_ptr[seq_idx + 1]
    if cur_batch_in_all_stop_index - cur_batch_in_all_start_index > 1:
        # More than one new token: that is prefill, and another kernel's work.
        return
    # endregion

    # region: paged-2d-group
    first_query_head = kv_head_idx * num_queries_per_kv
    query_offset = int64(cur_batch_in_all_start_index) * query_stride_0 + first_query_head * query_stride_1
    # Triton pads the group to 16 rows and the head to a power of two, and masks both; threads need no padding.
    # region: q-load
    Q = cuda.shared.array((num_queries_per_kv, HEAD_SIZE), scalar_t)
    for i in range(thread_idx, num_queries_per_kv * HEAD_SIZE, NUM_THREADS):
        Q[i // HEAD_SIZE, i % HEAD_SIZE] = query_ptr[query_offset + i // HEAD_SIZE * query_stride_1 + i % HEAD_SIZE]
    # endregion
    # endregion

    # What Triton calls a tile lies in shared memory here, so that any thread may read any element of it.
    K = cuda.shared.array((HEAD_SIZE, BLOCK_SIZE), scalar_t)
    V = cuda.shared.array((BLOCK_SIZE, HEAD_SIZE), scalar_t)
    P = cuda.shared.array((num_queries_per_kv, BLOCK_SIZE), scalar_t)
    p_block_idx = cuda.shared.array(BLOCK_SIZE, int64)
    alpha_of_row = cuda.shared.array(num_queries_per_kv, float32)
    L_of_row = cuda.shared.array(num_queries_per_kv, float32)

    # region: paged-2d-state
    # Each thread of a row keeps a copy of the row's maximum and sum; the accumulator is dealt by elements.
    M = cuda.local.array(NUM_ROWS_PER_THREAD, float32)
    L = cuda.local.array(NUM_ROWS_PER_THREAD, float32)
    for r in range(NUM_ROWS_PER_THREAD):
        M[r] = float32(-math.inf)
        L[r] = float32(0)
    acc = cuda.local.array(NUM_ACCS_PER_THREAD, float32)
    for i in range(NUM_ACCS_PER_THREAD):
        acc[i] = float32(0)
    # endregion

    block_table_offset = block_table_stride * seq_idx
    seq_len = seq_lens_ptr[seq_idx]
    context_len = seq_len - 1
    # region: paged-2d-loop
    # region: block-ranges
    num_blocks = (seq_len + BLOCK_SIZE - 1) // BLOCK_SIZE
    # endregion
    first_block = 0
    # region: unified-bounds
    if UNIFIED and SLIDING_WINDOW > 0:
        # Only the unified kernel skips the tiles before the window; the 2d kernel reads them all.
        first_block = max(seq_len - SLIDING_WINDOW, 0) // BLOCK_SIZE
    # endregion

    # region: block-table-walk
    for j in range(first_block, num_blocks):
        start_n = j * BLOCK_SIZE
        # endregion
        # endregion
        # region: block-table-walk
        # region: paged-2d-table
        # A thread looks one token up. A tile may span two physical blocks, whatever their size.
        if thread_idx < BLOCK_SIZE:
            abs_token_idx = start_n + thread_idx
            l_block_idx = (start_n + thread_idx) // PHYSICAL_BLOCK_SIZE
            # Triton looks tokens behind the end up as well, and never uses what it finds.
            # A row that is exactly full would be read past its end, so the port asks first.
            physical = int64(0)
            if abs_token_idx < seq_len:
                # region: block-table-lookup
                physical = int64(block_tables_ptr[block_table_offset + l_block_idx])
                # endregion
            p_block_idx[thread_idx] = physical
        cuda.syncthreads()
        # endregion
        # endregion

        # region: paged-2d-loads
        # Neighbouring threads take neighbouring addresses: of K the x elements of a token, then the next token.
        for i in range(thread_idx, HEAD_SIZE * BLOCK_SIZE, NUM_THREADS):
            offs_n = i // x % BLOCK_SIZE
            offs_d = i // (x * BLOCK_SIZE) * x + i % x
            # region: paged-2d-tail-mask
            # Places behind the end may hold NaN. They are not loaded: zero stands for them.
            kv_load_mask = start_n + offs_n < seq_len
            # endregion
            internal_offsets = (start_n + offs_n) % PHYSICAL_BLOCK_SIZE
            # region: paged-2d-k
            k_offset = (
                p_block_idx[offs_n] * stride_k_cache_0
                + stride_k_cache_1 * kv_head_idx
                + offs_d // x * stride_k_cache_2
                + internal_offsets * stride_k_cache_3
                + offs_d % x * stride_k_cache_4
            )
            # endregion
            K[offs_d, offs_n] = key_cache_ptr[k_offset] if kv_load_mask else scalar_t(0)
        # Of V the tokens of one head element, then the next element: good for memory, while the writes into the tile
        # queue up at the same banks of shared memory.
        for i in range(thread_idx, HEAD_SIZE * BLOCK_SIZE, NUM_THREADS):
            offs_n = i % BLOCK_SIZE
            offs_d = i // BLOCK_SIZE
            # region: paged-2d-tail-mask
            kv_load_mask = start_n + offs_n < seq_len
            # endregion
            internal_offsets = (start_n + offs_n) % PHYSICAL_BLOCK_SIZE
            # region: paged-2d-v
            v_offset = (
                p_block_idx[offs_n] * stride_v_cache_0
                + stride_v_cache_1 * kv_head_idx
                + offs_d * stride_v_cache_2
                + internal_offsets * stride_v_cache_3
            )
            # endregion
            V[offs_n, offs_d] = value_cache_ptr[v_offset] if kv_load_mask else scalar_t(0)
        cuda.syncthreads()
        # endregion

        offs_n = thread_idx % BLOCK_SIZE
        for r in range(NUM_ROWS_PER_THREAD):
            # region: paged-2d-qk
            query_row = thread_idx // BLOCK_SIZE + r * NUM_ROWS
            # Shuffles want whole warps: a row without a query head takes part with minus infinity.
            head_mask = query_row < num_queries_per_kv
            dot = float32(0)
            if head_mask:
                for d in range(HEAD_SIZE):
                    dot = libdevice.fmaf_rn(float32(Q[query_row, d]), float32(K[d, offs_n]), dot)
            qk = scale * dot
            seq_offset = start_n + offs_n
            S = qk if head_mask and seq_offset < seq_len else float32(-math.inf)
            # endregion
            # region: paged-2d-window
            if SLIDING_WINDOW > 0 and context_len - seq_offset >= SLIDING_WINDOW:
                # Not minus infinity in the 2d kernel: a tile of nothing but such tokens has a finite maximum.
                S = float32(-math.inf) if UNIFIED else float32(-10000)
            # endregion
            # region: alibi
            if USE_ALIBI_SLOPES and head_mask:
                S += alibi_slopes_ptr[first_query_head + query_row] * float32(seq_offset - context_len)
            # endregion

            # region: online-softmax
            # region: paged-2d-max
            m_j = S
            # `lane_mask` butterflies stay inside the BLOCK_SIZE lanes of the row.
            lane_mask = BLOCK_SIZE // 2
            while lane_mask >= 1:
                m_j = libdevice.fmaxf(m_j, cuda.shfl_xor_sync(FULL_MASK, m_j, lane_mask))
                lane_mask //= 2
            m_j = libdevice.fmaxf(M[r], m_j)
            # endregion
            # region: softmax-step
            if UNIFIED and m_j == float32(-math.inf):
                m_j = float32(0)
            # endregion

            # region: paged-2d-sum
            # Minus infinity minus itself is NaN: such a row gets zero instead.
            p = float32(0)
            if m_j != float32(-math.inf):
                p = libdevice.fast_expf(S - m_j)
            l_j = p
            lane_mask = BLOCK_SIZE // 2
            while lane_mask >= 1:
                l_j += cuda.shfl_xor_sync(FULL_MASK, l_j, lane_mask)
                lane_mask //= 2
            # endregion

            # region: paged-2d-rescale
            alpha = float32(0)
            if M[r] != float32(-math.inf):
                alpha = libdevice.fast_expf(M[r] - m_j)
            L[r] = L[r] * alpha + l_j
            M[r] = m_j
            # endregion
            # region: paged-2d-v-add
            if head_mask:
                P[query_row, offs_n] = scalar_t(p)
                if offs_n == 0:
                    alpha_of_row[query_row] = alpha
        # From here on a thread works for a head element, no longer for a token.
        cuda.syncthreads()
        # endregion
        # endregion

        for i in range(NUM_ACCS_PER_THREAD):
            element = thread_idx + i * NUM_THREADS
            if element < num_queries_per_kv * HEAD_SIZE:
                query_row = element // HEAD_SIZE
                # region: online-softmax
                # region: paged-2d-rescale
                acc[i] = acc[i] * alpha_of_row[query_row]
                # endregion
                # region: paged-2d-v-add
                for n in range(BLOCK_SIZE):
                    acc[i] = libdevice.fmaf_rn(float32(P[query_row, n]), float32(V[n, element % HEAD_SIZE]), acc[i])
                # endregion
                # endregion

    # region: paged-2d-normalise
    for r in range(NUM_ROWS_PER_THREAD):
        query_row = thread_idx // BLOCK_SIZE + r * NUM_ROWS
        if thread_idx % BLOCK_SIZE == 0 and query_row < num_queries_per_kv:
            L_of_row[query_row] = L[r]
    cuda.syncthreads()
    # endregion
    output_offset = int64(cur_batch_in_all_start_index) * output_stride_0 + first_query_head * output_stride_1
    for i in range(NUM_ACCS_PER_THREAD):
        element = thread_idx + i * NUM_THREADS
        if element < num_queries_per_kv * HEAD_SIZE:
            query_row = element // HEAD_SIZE
            # region: unified-normalise
            if UNIFIED:
                acc[i] = acc[i] / L_of_row[query_row]
            # endregion
            # region: paged-2d-normalise
            else:
                acc[i] = acc[i] / (L_of_row[query_row] + float32(1e-10))
            # endregion
            # region: paged-2d-store
            output_ptr[output_offset + query_row * output_stride_1 + element % HEAD_SIZE] = scalar_t(acc[i])
            # endregion


# endregion


# region: paged-2d-launch
def paged_attention_2d(
    output: Any,
    query: Any,
    key_cache: Any,
    value_cache: Any,
    block_table: Any,
    seq_lens: Any,
    *,
    query_start_loc: Any = None,
    sm_scale: float | None = None,
    alibi_slopes: Any = None,
    sliding_window: int | None = None,
    unified: bool = False,
    num_threads: int = NUM_THREADS,
    backend: str | Backend = "sim",
    entry: Any = kernel_paged_attention_2d,
) -> None:
    """Launch the kernel as vLLM's host code does; `output` is written in place.

    output, query: [num_tokens, num_query_heads, head_size] float32 or float16; key_cache: [num_blocks, num_kv_heads,
    head_size/x, block_size, x] and value_cache: [num_blocks, num_kv_heads, head_size, block_size], of the same dtype
    and with any strides; block_table: [num_seqs, columns] int32; seq_lens: [num_seqs] int32; query_start_loc:
    [num_seqs + 1] int32, the first query row of each sequence (one row each, if not given); sm_scale: 1 / sqrt(head
    size) if not given; alibi_slopes: [num_query_heads] float32; sliding_window: tokens that a query sees, itself
    included; None or 0 for all. A sequence with more than one query row is prefill: its output is left as it is.
    `unified`: behave as the unified kernel where the two differ. Raises ArgumentError.
    """
    num_seqs = len(seq_lens)
    starts = np.arange(num_seqs + 1, dtype=np.int32) if query_start_loc is None else query_start_loc
    window = sliding_window or 0
    check.decode_2d(output, query, key_cache, value_cache, block_table, seq_lens, starts, window, unified)
    num_query_heads, head_size = query.shape[1], query.shape[2]
    num_kv_heads, block_size = value_cache.shape[1], value_cache.shape[3]
    slopes = np.zeros(num_query_heads, np.float32) if alibi_slopes is None else alibi_slopes
    check.shape("alibi_slopes", slopes, (num_query_heads,), ("float32",))
    tile = tile_size(block_size)
    check.threads(num_threads, tile)
    check.shared(num_query_heads // num_kv_heads, head_size, tile, query.dtype.itemsize)

    entry.specialise(
        num_queries_per_kv=num_query_heads // num_kv_heads,
        BLOCK_SIZE=tile,
        PHYSICAL_BLOCK_SIZE=block_size,
        HEAD_SIZE=head_size,
        USE_ALIBI_SLOPES=alibi_slopes is not None,
        SLIDING_WINDOW=window,
        x=key_cache.shape[4],
        UNIFIED=unified,
        NUM_THREADS=num_threads,
        scalar_t=check.SCALAR_TYPES[str(query.dtype)],
    ).on(backend)[(num_seqs, num_kv_heads), num_threads](
        flat(output),
        flat(query),
        flat(key_cache),
        flat(value_cache),
        flat(block_table),
        seq_lens,
        slopes,
        np.float32(head_size**-0.5 if sm_scale is None else sm_scale),
        strides(block_table)[0],
        *strides(query)[:2],
        *strides(output)[:2],
        *strides(key_cache),
        *strides(value_cache),
        starts,
    )


# endregion


# region: paged-2d-tile
def tile_size(block_size: int) -> int:
    """Tokens in one tile: the KV block itself where its size is a power of two, otherwise 32.

    vLLM allows tiles of up to 128 tokens. Ours live in shared memory and have one lane a token, so 32 is the most.
    """
    return min(block_size, 32) if block_size & (block_size - 1) == 0 else 32


# endregion
