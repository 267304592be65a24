"""The body of vLLM's classic decode kernels: one query head against one paged sequence.

A line-by-line port of the device function `paged_attention_kernel` at vLLM 0.24.0, the last release
that held it. Block-sparse branches are left out: the templates here are those with IS_BLOCK_SPARSE false.
"""

from __future__ import annotations

from typing import Any

from numba import cuda, float32, int64
from numba.cuda import libdevice

from kernels import layout
from kernels.kernel import device
from kernels.vllm.attention_utils import DOTS, FLT_MAX, FULL_MASK, WARP_SIZE, block_sum, dot_float, qk_dot
from kernels.vllm.dtypes import cache_itemsize, conversions, reader, scaled_convert

NUM_THREADS = 128
# Template parameters and what follows from them: `specialise` puts the real values in their place.
scalar_t = float32
HEAD_SIZE = BLOCK_SIZE = PARTITION_SIZE = NUM_WARPS = RED_SMEM_SIZE = 0
USE_PARTITIONING = False
THREAD_GROUP_SIZE = NUM_THREAD_GROUPS = NUM_TOKENS_PER_THREAD_GROUP = 0
VEC_SIZE = NUM_ELEMS_PER_THREAD = NUM_VECS_PER_THREAD = x = 0
V_VEC_SIZE = NUM_V_VECS_PER_ROW = NUM_ROWS_PER_ITER = NUM_ROWS_PER_THREAD = 0
KV_AUTO = True
dot, from_float = dot_float, float32
k_convert = v_convert = scaled_convert


def constexpr(
    *,
    HEAD_SIZE: int,
    BLOCK_SIZE: int,
    NUM_THREADS: int = 128,
    PARTITION_SIZE: int = 0,
    scalar_t: Any = float32,
    kv_cache_dtype: str = "auto",
) -> dict[str, Any]:
    """What the C++ computes at compile time.

    Numba needs array sizes as constants before it compiles, so they are computed here,
    and the kernel sees them as globals.
    """
    sizeof = scalar_t.bitwidth // 8
    # region: thread-groups
    THREAD_GROUP_SIZE = layout.thread_group_size(BLOCK_SIZE)
    NUM_THREAD_GROUPS = NUM_THREADS // THREAD_GROUP_SIZE
    NUM_TOKENS_PER_THREAD_GROUP = layout.num_tokens_per_thread_group(BLOCK_SIZE)
    NUM_WARPS = NUM_THREADS // WARP_SIZE
    RED_SMEM_SIZE = 2 * NUM_WARPS
    VEC_SIZE = layout.vec_size(THREAD_GROUP_SIZE, sizeof)
    NUM_ELEMS_PER_THREAD = HEAD_SIZE // THREAD_GROUP_SIZE
    NUM_VECS_PER_THREAD = NUM_ELEMS_PER_THREAD // VEC_SIZE
    # endregion
    # region: x-packing
    x = layout.x_of(cache_itemsize(sizeof, kv_cache_dtype))
    # endregion
    # region: v-sizes
    V_VEC_SIZE = layout.v_vec_size(BLOCK_SIZE, sizeof)
    NUM_V_VECS_PER_ROW = BLOCK_SIZE // V_VEC_SIZE
    NUM_ROWS_PER_ITER = WARP_SIZE // NUM_V_VECS_PER_ROW
    NUM_ROWS_PER_THREAD = -(-HEAD_SIZE // NUM_ROWS_PER_ITER)
    # endregion
    USE_PARTITIONING = PARTITION_SIZE > 0
    dot = DOTS[str(scalar_t)]
    k_convert, v_convert = reader(str(scalar_t), VEC_SIZE), reader(str(scalar_t), V_VEC_SIZE)
    derived = locals()
    sizes = {name: derived[name] for name in derived if name not in ("sizeof", "kv_cache_dtype")}
    return {**sizes, **conversions(str(scalar_t), kv_cache_dtype)}


# region: signature
@device
def paged_attention_kernel(
    exp_sums,  # [num_seqs, num_heads, max_num_partitions] float32
    max_logits,  # [num_seqs, num_heads, max_num_partitions] float32
    out,  # [num_seqs, num_heads, max_num_partitions, head_size] scalar_t
    q,  # [num_seqs, num_heads, head_size] scalar_t
    k_cache,  # [num_blocks, num_kv_heads, head_size/x, block_size, x] cache_t
    v_cache,  # [num_blocks, num_kv_heads, head_size, block_size] cache_t
    num_kv_heads,
    scale,
    block_tables,  # [num_seqs, max_num_blocks_per_seq] int32
    seq_lens,  # [num_seqs] int32
    max_num_blocks_per_seq,
    alibi_slopes,  # [num_heads] float32
    q_stride,
    kv_block_stride,
    kv_head_stride,
    k_scale,  # [1] float32
    v_scale,  # [1] float32
):
    """Attention of one query head over one partition of one sequence; the whole sequence if PARTITION_SIZE is 0.

    Every array arrives flat, as a C++ pointer does: the shapes are for the reader, the index arithmetic below is
    the kernel's own.
    """
    # endregion
    # region: partition-exit
    seq_idx = cuda.blockIdx.y
    partition_idx = cuda.blockIdx.z
    max_num_partitions = cuda.gridDim.z
    seq_len = seq_lens[seq_idx]
    if USE_PARTITIONING and partition_idx * PARTITION_SIZE >= seq_len:
        return
    # endregion

    # region: block-ranges
    num_seq_blocks = (seq_len + BLOCK_SIZE - 1) // BLOCK_SIZE
    num_blocks_per_partition = PARTITION_SIZE // BLOCK_SIZE if USE_PARTITIONING else num_seq_blocks

    start_block_idx = partition_idx * num_blocks_per_partition if USE_PARTITIONING else 0
    end_block_idx = min(start_block_idx + num_blocks_per_partition, num_seq_blocks)
    num_blocks = end_block_idx - start_block_idx

    start_token_idx = start_block_idx * BLOCK_SIZE
    end_token_idx = min(start_token_idx + num_blocks * BLOCK_SIZE, seq_len)
    num_tokens = end_token_idx - start_token_idx
    # endregion

    # region: thread-groups
    thread_idx = cuda.threadIdx.x
    warp_idx = thread_idx // WARP_SIZE
    lane = thread_idx % WARP_SIZE
    # region: gqa-mapping
    head_idx = cuda.blockIdx.x
    num_heads = cuda.gridDim.x
    num_queries_per_kv = num_heads // num_kv_heads
    kv_head_idx = head_idx // num_queries_per_kv
    # endregion
    # Numba has no null pointer for the slopes: the launcher passes zeros, which mean the same.
    alibi_slope = alibi_slopes[head_idx]
    # endregion

    # region: q-load
    thread_group_idx = thread_idx // THREAD_GROUP_SIZE
    thread_group_offset = thread_idx % THREAD_GROUP_SIZE

    # A pointer is an offset here: Numba has arrays, not addresses.
    q_ptr = seq_idx * q_stride + head_idx * HEAD_SIZE
    q_vecs = cuda.shared.array((THREAD_GROUP_SIZE, NUM_VECS_PER_THREAD, VEC_SIZE), scalar_t)
    for i in range(thread_group_idx, NUM_VECS_PER_THREAD, NUM_THREAD_GROUPS):
        vec_idx = thread_group_offset + i * THREAD_GROUP_SIZE
        # Numba has no vector types here: the C++ moves these VEC_SIZE elements as one load.
        for e in range(VEC_SIZE):
            q_vecs[thread_group_offset, i, e] = q[q_ptr + vec_idx * VEC_SIZE + e]
    cuda.syncthreads()
    # endregion

    # region: shared-logits
    logits = cuda.shared.array(0, float32)
    # 2 * NUM_WARPS, named: Numba takes no product as an array size.
    red_smem = cuda.shared.array(RED_SMEM_SIZE, float32)
    # endregion
    qk_max = float32(-FLT_MAX)

    # region: block-table-row
    # The offset of this sequence's row, where the C++ has a pointer to it.
    block_table = seq_idx * max_num_blocks_per_seq
    # endregion

    # region: key-loop
    # region: block-table-walk
    for block_idx in range(start_block_idx + warp_idx, end_block_idx, NUM_WARPS):
        # region: block-table-lookup
        # int64, as in the C++: times the block stride, an int32 would overflow.
        physical_block_number = int64(block_tables[block_table + block_idx])
        # endregion
        # endregion

        for i in range(NUM_TOKENS_PER_THREAD_GROUP):
            # region: k-address
            physical_block_offset = (thread_group_idx + i * WARP_SIZE) % BLOCK_SIZE
            token_idx = block_idx * BLOCK_SIZE + physical_block_offset
            k_vecs = cuda.local.array((NUM_VECS_PER_THREAD, VEC_SIZE), scalar_t)
            for j in range(NUM_VECS_PER_THREAD):
                k_ptr = (
                    physical_block_number * kv_block_stride + kv_head_idx * kv_head_stride + physical_block_offset * x
                )
                vec_idx = thread_group_offset + j * THREAD_GROUP_SIZE
                offset1 = (vec_idx * VEC_SIZE) // x
                offset2 = (vec_idx * VEC_SIZE) % x
                k_offset = k_ptr + offset1 * BLOCK_SIZE * x + offset2
                if KV_AUTO:
                    for e in range(VEC_SIZE):
                        k_vecs[j, e] = k_cache[k_offset + e]
                # region: fp8-read
                else:
                    for e in range(VEC_SIZE):
                        k_vecs[j, e] = k_convert(k_cache[k_offset + e], k_scale[0])
                # endregion
            # endregion

            # region: qk-dot
            qk = scale * qk_dot(q_vecs, thread_group_offset, k_vecs)
            # region: alibi
            # float32() keeps Numba from widening int times float32 to float64. Rounded before the sum: merged into
            # one fma, a far token's bias (57,600 tokens times a slope near one) would move the last bit of the score.
            bias = libdevice.fmul_rn(alibi_slope, float32(token_idx - seq_len + 1))
            qk += bias if alibi_slope != 0 else float32(0)
            # endregion
            # endregion

            # region: mask-and-store
            if thread_group_offset == 0:
                mask = token_idx >= seq_len
                logits[token_idx - start_token_idx] = float32(0) if mask else qk
                qk_max = qk_max if mask else libdevice.fmaxf(qk_max, qk)
            # endregion
    # endregion

    # region: qk-max
    # `lane_mask`, since `mask` is a truth value above and Numba gives a name one type.
    lane_mask = WARP_SIZE // 2
    while lane_mask >= THREAD_GROUP_SIZE:
        qk_max = libdevice.fmaxf(qk_max, cuda.shfl_xor_sync(FULL_MASK, qk_max, lane_mask))
        lane_mask //= 2
    if lane == 0:
        red_smem[warp_idx] = qk_max
    cuda.syncthreads()

    qk_max = red_smem[lane] if lane < NUM_WARPS else float32(-FLT_MAX)
    lane_mask = NUM_WARPS // 2
    while lane_mask >= 1:
        qk_max = libdevice.fmaxf(qk_max, cuda.shfl_xor_sync(FULL_MASK, qk_max, lane_mask))
        lane_mask //= 2
    qk_max = cuda.shfl_sync(FULL_MASK, qk_max, 0)
    # endregion

    # region: exp-sum
    exp_sum = float32(0)
    for i in range(thread_idx, num_tokens, NUM_THREADS):
        val = libdevice.fast_expf(logits[i] - qk_max)
        logits[i] = val
        exp_sum += val
    exp_sum = block_sum(red_smem[NUM_WARPS:], exp_sum)
    # endregion

    # region: normalise
    inv_sum = libdevice.fast_fdividef(float32(1), exp_sum + float32(1e-6))
    for i in range(thread_idx, num_tokens, NUM_THREADS):
        logits[i] *= inv_sum
    cuda.syncthreads()
    # endregion

    # region: partition-stats
    if USE_PARTITIONING and thread_idx == 0:
        partition_ptr = seq_idx * num_heads * max_num_partitions + head_idx * max_num_partitions + partition_idx
        max_logits[partition_ptr] = qk_max
        exp_sums[partition_ptr] = exp_sum
    # endregion

    # region: v-sizes
    accs = cuda.local.array(NUM_ROWS_PER_THREAD, float32)
    for i in range(NUM_ROWS_PER_THREAD):
        accs[i] = float32(0)
    zero_value = scalar_t(0)
    # endregion

    # region: v-loop
    for block_idx in range(start_block_idx + warp_idx, end_block_idx, NUM_WARPS):
        # region: v-table
        physical_block_number = int64(block_tables[block_table + block_idx])
        # endregion
        # region: logits-vec
        physical_block_offset = (lane % NUM_V_VECS_PER_ROW) * V_VEC_SIZE
        token_idx = block_idx * BLOCK_SIZE + physical_block_offset
        logits_vec = cuda.local.array(V_VEC_SIZE, scalar_t)
        for e in range(V_VEC_SIZE):
            logits_vec[e] = from_float(logits[token_idx - start_token_idx + e])
        # endregion

        # region: v-address
        v_ptr = physical_block_number * kv_block_stride + kv_head_idx * kv_head_stride
        for i in range(NUM_ROWS_PER_THREAD):
            row_idx = lane // NUM_V_VECS_PER_ROW + i * NUM_ROWS_PER_ITER
            if row_idx < HEAD_SIZE:
                offset = row_idx * BLOCK_SIZE + physical_block_offset
                v_vec = cuda.local.array(V_VEC_SIZE, scalar_t)
                if KV_AUTO:
                    for e in range(V_VEC_SIZE):
                        v_vec[e] = v_cache[v_ptr + offset + e]
                # region: fp8-read
                else:
                    for e in range(V_VEC_SIZE):
                        v_vec[e] = v_convert(v_cache[v_ptr + offset + e], v_scale[0])
                # endregion
                # endregion
                # region: tail-zeroing
                if block_idx == num_seq_blocks - 1:
                    # Zero times NaN is NaN: a weight of zero alone would not be enough.
                    for j in range(V_VEC_SIZE):
                        v_vec[j] = v_vec[j] if token_idx + j < seq_len else zero_value
                # endregion
                # region: accumulate
                accs[i] += dot(logits_vec, v_vec)
                # endregion
    # endregion

    # region: warp-reduce
    for i in range(NUM_ROWS_PER_THREAD):
        acc = accs[i]
        lane_mask = NUM_V_VECS_PER_ROW // 2
        while lane_mask >= 1:
            acc += cuda.shfl_xor_sync(FULL_MASK, acc, lane_mask)
            lane_mask //= 2
        accs[i] = acc
    # endregion

    # region: cross-warp-reduce
    # out_smem is logits under a new name: without this barrier a fast warp would
    # overwrite weights that a slow warp has still to read.
    cuda.syncthreads()
    out_smem = logits
    i = NUM_WARPS
    while i > 1:
        mid = i // 2
        if warp_idx >= mid and warp_idx < i:
            dst = (warp_idx - mid) * HEAD_SIZE
            for r in range(NUM_ROWS_PER_THREAD):
                row_idx = lane // NUM_V_VECS_PER_ROW + r * NUM_ROWS_PER_ITER
                if row_idx < HEAD_SIZE and lane % NUM_V_VECS_PER_ROW == 0:
                    out_smem[dst + row_idx] = accs[r]
        cuda.syncthreads()

        if warp_idx < mid:
            src = warp_idx * HEAD_SIZE
            for r in range(NUM_ROWS_PER_THREAD):
                row_idx = lane // NUM_V_VECS_PER_ROW + r * NUM_ROWS_PER_ITER
                if row_idx < HEAD_SIZE and lane % NUM_V_VECS_PER_ROW == 0:
                    accs[r] += out_smem[src + row_idx]
        cuda.syncthreads()
        i //= 2
    # endregion

    # region: output-write
    if warp_idx == 0:
        out_ptr = (
            seq_idx * num_heads * max_num_partitions * HEAD_SIZE
            + head_idx * max_num_partitions * HEAD_SIZE
            + partition_idx * HEAD_SIZE
        )
        for r in range(NUM_ROWS_PER_THREAD):
            row_idx = lane // NUM_V_VECS_PER_ROW + r * NUM_ROWS_PER_ITER
            if row_idx < HEAD_SIZE and lane % NUM_V_VECS_PER_ROW == 0:
                out[out_ptr + row_idx] = from_float(accs[r])
    # endregion
