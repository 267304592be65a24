"""Rung 3, wide loads: the algorithm of vLLM's v1 and v2, with every access to the cache one load of 16 bytes.

vLLM's kernel lets two lanes share a token, each with 8 bytes of a piece; here a lane takes whole pieces. That halves
the loads of K. Loops are written out, so that a lane has all its loads of a tile on their way at once. As v1 it takes
a whole sequence, as v2 partitions of 512 tokens, which a second kernel merges.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import cuda, float32, int32, int64, uint16

from kernels import layout
from kernels.kernel import OPT_IN_SHARED_BYTES, kernel
from kernels.ptx import exp2, pack_bf16
from kernels.tuned import piece
from kernels.tuned.call import Decode, Launch, Zeros
from kernels.tuned.merge import merge_launch
from kernels.tuned.piece import dot8, high_bfloat16, keep, low_bfloat16, shared_load4, widen
from kernels.tuned.plan import Plan
from kernels.unroll import registers, unroll, unrolled
from kernels.vector import vector_load4
from kernels.vllm.strided import flat

FULL = 0xFFFFFFFF
LOG2_E = math.log2(math.e)
# Template parameters and what follows from them: `unroll` puts the real values in their place.
HEAD_SIZE, BLOCK_SIZE, GROUP, NUM_WARPS, ALIBI = 128, 16, 4, 4, False
TILE = TILES = PIECES = K_LANES = K_LOADS = K_WHOLE = K_REST = K_STEP = K_FOLDS = BLOCK_WORDS = 1
V_LANES = V_ROWS = V_LOADS = V_WHOLE = V_REST = V_STEP = V_FOLDS = THREADS = MAXIMA = TOTALS = LOGITS = 1
low, high, pack = low_bfloat16, high_bfloat16, pack_bf16


def _constexpr(HEAD_SIZE: int, BLOCK_SIZE: int, GROUP: int, FORMAT: str, NUM_WARPS: int, ALIBI: bool) -> dict[str, Any]:
    sizes = piece.lanes(HEAD_SIZE, BLOCK_SIZE)
    return {
        **piece.FORMATS[FORMAT],
        **sizes,
        "THREADS": 32 * NUM_WARPS,
        "MAXIMA": HEAD_SIZE,
        "TOTALS": HEAD_SIZE + NUM_WARPS,
        "LOGITS": logits_at(HEAD_SIZE, NUM_WARPS),
    }


def logits_at(head_size: int, warps: int) -> int:
    """Where the scores begin in shared memory, behind the query, maxima and sums: a multiple of four."""
    return -(-(head_size + 2 * warps) // 4) * 4


@kernel(_constexpr)
def paged_decode_wide_loads(
    out,  # [num_seqs, num_heads, HEAD_SIZE] 16-bit codes
    partial,  # [num_seqs, num_heads, num_partitions, HEAD_SIZE] float32
    stats,  # [num_seqs, num_heads, num_partitions, 2] float32: largest score, sum of weights
    q,  # [num_seqs, num_heads, HEAD_SIZE] 16-bit numbers in words, as the caches
    k_cache,  # [num_blocks, num_kv_heads, HEAD_SIZE / 8, BLOCK_SIZE, 8]
    v_cache,  # [num_blocks, num_kv_heads, HEAD_SIZE, BLOCK_SIZE]
    block_tables,  # [num_seqs, max_num_blocks_per_seq] int32
    seq_lens,  # [num_seqs] int32
    alibi_slopes,  # [num_heads] float32
    scale,  # of the scores, times log2(e): exponentials are to base 2
    num_kv_heads,
    max_num_blocks_per_seq,
    span,  # tiles of a partition
):
    """One thread block: a query head, a partition of a sequence; grid (num_heads, num_seqs, num_partitions)."""
    # The query [HEAD_SIZE], each warp's maximum and sum [NUM_WARPS], scores [span * TILE]. In the end the warps'
    # outputs, [NUM_WARPS, HEAD_SIZE], take the place of the scores.
    shared = cuda.shared.array(0, float32)
    thread = cuda.threadIdx.x
    lane = thread % 32
    # From one lane to all: so the compiler knows that a warp stays together.
    warp = cuda.shfl_sync(FULL, int32(thread // 32), 0)
    seq = cuda.blockIdx.y
    kv_head = cuda.blockIdx.x // GROUP
    first_head = cuda.blockIdx.x
    head = seq * cuda.gridDim.x + first_head
    num_partitions = cuda.gridDim.z
    partition = cuda.blockIdx.z
    seq_len = seq_lens[seq]
    first_tile = partition * span
    last_tile = min(first_tile + span, (seq_len + TILE - 1) // TILE)
    num_tokens = max(last_tile - first_tile, 0) * TILE

    # region: q-load
    for at in range(8 * thread, HEAD_SIZE, 8 * THREADS):
        eight = widen(vector_load4(q, (head * HEAD_SIZE + at) // 2))
        for e in unrolled(8):
            shared[at + e] = eight[e] * scale
    # endregion
    cuda.syncthreads()

    # This lane's part of a tile: a token and pieces of its key; a piece of a row of V, and rows.
    k_token = lane % TILE
    k_piece = lane // TILE
    k_at = (min(k_piece, PIECES - 1) * BLOCK_SIZE + k_token) * 4
    v_piece = lane % V_LANES
    v_row = lane // V_LANES
    v_at = min(v_row, HEAD_SIZE - 1) * (BLOCK_SIZE // 2) + v_piece * 4

    # Scores.
    block_table = seq * max_num_blocks_per_seq
    top = float32(-math.inf)
    # region: block-table-walk
    for tile in range(first_tile + warp, last_tile, NUM_WARPS):
        physical_block = int64(block_tables[block_table + tile // TILES])
        # endregion
        # region: k-address
        k_start = (physical_block * num_kv_heads + kv_head) * BLOCK_WORDS + k_at + tile % TILES * (TILE * 4)
        # A lane without a piece left, where they do not come out even, reads its first again.
        k = registers(K_LOADS)
        for j in unrolled(K_LOADS):
            k[j] = vector_load4(k_cache, k_start + (j if j < K_WHOLE or k_piece < K_REST else 0) * K_STEP)
        # endregion
        # No load moves past this: all are on their way before the first is waited for.
        cuda.syncwarp()

        # region: qk-dot
        # The score of this lane's token.
        s = float32(0)
        for j in unrolled(K_LOADS):
            if j < K_WHOLE or k_piece < K_REST:
                at = (k_piece + K_LANES * j) * 8
                s = dot8(s, widen(k[j]), shared_load4(shared, at), shared_load4(shared, at + 4))
        # endregion

        token = tile * TILE + k_token
        for fold in unrolled(K_FOLDS):
            s += cuda.shfl_xor_sync(FULL, s, TILE << fold)
        if ALIBI:
            s += alibi_slopes[first_head] * float32(token - seq_len + 1) * float32(LOG2_E)
        # region: tail-guard
        if token >= seq_len:
            s = float32(-math.inf)
        # endregion
        top = max(top, s)
        if k_piece == 0:
            shared[LOGITS + token - first_tile * TILE] = s

    # region: qk-max
    # The largest score, over all warps.
    for fold in unrolled(5):
        top = max(top, cuda.shfl_xor_sync(FULL, top, 1 << fold))
    if lane == 0:
        shared[MAXIMA + warp] = top
    cuda.syncthreads()
    for other in range(NUM_WARPS):
        top = max(top, shared[MAXIMA + other])
    # endregion

    # region: exp-sum
    # Weights in the place of the scores, and their sum.
    total = float32(0)
    for i in range(thread, num_tokens, THREADS):
        weight = exp2(shared[LOGITS + i] - top)
        shared[LOGITS + i] = weight
        total += weight
    for fold in unrolled(5):
        total += cuda.shfl_xor_sync(FULL, total, 1 << fold)
    if lane == 0:
        shared[TOTALS + warp] = total
    # endregion
    cuda.syncthreads()

    # Values.
    acc = registers(V_LOADS)
    for i in unrolled(V_LOADS):
        acc[i] = float32(0)
    # region: block-table-walk
    for tile in range(first_tile + warp, last_tile, NUM_WARPS):
        physical_block = int64(block_tables[block_table + tile // TILES])
        # endregion
        # region: v-address
        v_start = (physical_block * num_kv_heads + kv_head) * BLOCK_WORDS + v_at + tile % TILES * (TILE // 2)
        v = registers(V_LOADS)
        for i in unrolled(V_LOADS):
            v[i] = vector_load4(v_cache, v_start + (i if i < V_WHOLE or v_row < V_REST else 0) * V_STEP)
        # endregion
        cuda.syncwarp()
        # region: tail-guard
        left = seq_len - tile * TILE
        if left < TILE:
            # What lies behind the last token may be NaN, and zero times NaN is NaN.
            for i in unrolled(V_LOADS):
                v[i] = keep(v[i], left - 8 * v_piece)
        # endregion
        # region: accumulate
        at = LOGITS + (tile - first_tile) * TILE + 8 * v_piece
        weights = shared_load4(shared, at)
        more = shared_load4(shared, at + 4)
        for i in unrolled(V_LOADS):
            acc[i] = dot8(acc[i], widen(v[i]), weights, more)
        # endregion

    # region: cross-warp-reduce
    # The warps' outputs take the place of the weights.
    cuda.syncthreads()
    for i in unrolled(V_LOADS):
        for fold in unrolled(V_FOLDS):
            acc[i] += cuda.shfl_xor_sync(FULL, acc[i], 1 << fold)
        row = v_row + V_ROWS * i
        if v_piece == 0 and row < HEAD_SIZE:
            shared[LOGITS + warp * HEAD_SIZE + row] = acc[i]
    # endregion
    cuda.syncthreads()

    # region: cross-warp-reduce
    for at in range(thread, HEAD_SIZE, THREADS):
        total = float32(0)
        value = float32(0)
        for other in range(NUM_WARPS):
            total += shared[TOTALS + other]
            value += shared[LOGITS + other * HEAD_SIZE + at]
        # endregion
        # region: output-write
        if num_partitions == 1:
            out[head * HEAD_SIZE + at] = uint16(pack(value / total if total > 0 else float32(0), float32(0)))
        # endregion
        # region: partition-stats
        elif total > 0:
            partial[(head * num_partitions + partition) * HEAD_SIZE + at] = value
        if num_partitions > 1 and at == 0:
            stats[2 * (head * num_partitions + partition)] = top
            stats[2 * (head * num_partitions + partition) + 1] = total
        # endregion


def partitions(call: Decode, pairs: int, plan: Plan | None) -> tuple[int, int]:
    """How many partitions, and the tiles of each.

    As many as a plan has splits. Without one as vLLM chooses between v1 and v2: of 512 tokens, but none up to 8192
    tokens where more than 512 thread blocks have work anyway; `pairs`: thread blocks of a sequence.
    """
    tile = piece.lanes(call.head_size, call.block_size)["TILE"]
    tiles = -(-call.max_seq_len // tile)
    if plan:
        span = -(-tiles // plan.splits)
    elif call.max_seq_len <= layout.V1_MAX_SEQ_LEN and call.num_seqs * pairs > layout.V1_MIN_PARALLEL:
        span = tiles
    else:
        span = layout.PARTITION_SIZE // tile
    return -(-tiles // span), span


def shared_bytes(call: Decode, span: int, warps: int) -> int:
    """Bytes of dynamic shared memory for `span` tiles."""
    tokens = span * piece.lanes(call.head_size, call.block_size)["TILE"]
    return 4 * (logits_at(call.head_size, warps) + max(tokens, warps * call.head_size))


def launches(call: Decode, zeros: Zeros = np.zeros, plan: Plan | None = None) -> tuple[Launch, ...]:
    """One launch, or two with partitions: see `partitions`. Raises ArgumentError."""
    piece.refuse(call)
    warps = plan.warps if plan else 4
    parts, span = partitions(call, call.num_heads, plan)
    shared = shared_bytes(call, span, warps)
    call.need("max_seq_len", call.max_seq_len, shared <= OPT_IN_SHARED_BYTES, f"{shared} bytes of scores: use splits")
    kernel = unroll(
        paged_decode_wide_loads, HEAD_SIZE=call.head_size, BLOCK_SIZE=call.block_size, GROUP=call.group,
        FORMAT=call.scalar, NUM_WARPS=warps, ALIBI=call.alibi_slopes is not None,
    )  # fmt: skip
    rows = call.num_seqs * call.num_heads * parts if parts > 1 else 1
    partial, stats = zeros(rows * call.head_size, np.float32), zeros(2 * rows, np.float32)
    args = (
        piece.codes(call.out), partial, stats, piece.words("query", call.query),
        piece.words("key_cache", call.key_cache), piece.words("value_cache", call.value_cache),
        flat(call.block_tables), call.seq_lens, piece.slopes(call, zeros), np.float32(call.scale * LOG2_E),
        call.num_kv_heads, call.block_tables.shape[1], span,
    )  # fmt: skip
    first = Launch(kernel, (call.num_heads, call.num_seqs, parts), 32 * warps, args, shared)
    return (first, merge_launch(call, partial, stats, parts)) if parts > 1 else (first,)
