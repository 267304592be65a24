"""Rung 4, grouped: one thread block serves all query heads of a KV head, so the cache is read once for the group.

In rung 3 each query head has a thread block of its own, and all of a group read the same keys and values: one from
memory, the others from the L2 cache at best. Here a piece is loaded once, widened once, and meets every query head.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import cuda, float32, int32, int64, uint16

from kernels.kernel import OPT_IN_SHARED_BYTES, kernel
from kernels.ptx import exp2, pack_bf16
from kernels.tuned import piece
from kernels.tuned.call import Decode, Launch, Zeros
from kernels.tuned.merge import merge_launch
from kernels.tuned.piece import dot8, high_bfloat16, keep, low_bfloat16, shared_load4, widen
from kernels.tuned.plan import Plan
from kernels.tuned.wide_loads import partitions
from kernels.unroll import registers, unroll, unrolled
from kernels.vector import vector_load4
from kernels.vllm.strided import flat

FULL = 0xFFFFFFFF
LOG2_E = math.log2(math.e)
REGISTERS = 176
"""For outputs and the values of a tile; the rest of a thread's 255 has other uses."""
# Template parameters and what follows from them: `unroll` puts the real values in their place.
HEAD_SIZE, BLOCK_SIZE, PACK, PACKS, NUM_WARPS, ALIBI = 128, 16, 4, 1, 4, False
TILE = TILES = PIECES = K_LANES = K_LOADS = K_WHOLE = K_REST = K_STEP = K_FOLDS = BLOCK_WORDS = 1
V_LANES = V_ROWS = V_LOADS = V_WHOLE = V_REST = V_STEP = V_FOLDS = SUMS = THREADS = MAXIMA = TOTALS = LOGITS = 1
low, high, pack = low_bfloat16, high_bfloat16, pack_bf16


def _constexpr(
    HEAD_SIZE: int, BLOCK_SIZE: int, PACK: int, PACKS: int, FORMAT: str, NUM_WARPS: int, ALIBI: bool
) -> dict[str, Any]:
    sizes = piece.lanes(HEAD_SIZE, BLOCK_SIZE)
    return {
        **piece.FORMATS[FORMAT],
        **sizes,
        "SUMS": PACK * sizes["V_LOADS"],
        "THREADS": 32 * NUM_WARPS,
        "MAXIMA": PACK * HEAD_SIZE,
        "TOTALS": PACK * (HEAD_SIZE + NUM_WARPS),
        "LOGITS": logits_at(HEAD_SIZE, PACK, NUM_WARPS),
    }


def logits_at(head_size: int, heads: int, warps: int) -> int:
    """Where the scores begin in shared memory, behind queries, maxima and sums: a multiple of four."""
    return -(-heads * (head_size + 2 * warps) // 4) * 4


@kernel(_constexpr)
def paged_decode_grouped(
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
    """One thread block: PACK heads of a KV head, a partition; grid (num_kv_heads * PACKS, num_seqs, num_partitions)."""
    # Queries [PACK, HEAD_SIZE], each warp's maxima and sums [PACK, NUM_WARPS], scores [PACK, span * TILE]. In the end
    # the warps' outputs, [NUM_WARPS, PACK, HEAD_SIZE], take the place of the scores.
    shared = cuda.shared.array(0, float32)
    thread = cuda.threadIdx.x
    lane = thread % 32
    # From one lane to all: so the compiler knows that a warp stays together.
    warp = cuda.shfl_sync(FULL, int32(thread // 32), 0)
    seq = cuda.blockIdx.y
    kv_head = cuda.blockIdx.x // PACKS
    first_head = cuda.blockIdx.x * PACK
    head = seq * (cuda.gridDim.x * PACK) + first_head
    num_partitions = cuda.gridDim.z
    partition = cuda.blockIdx.z
    seq_len = seq_lens[seq]
    first_tile = partition * span
    last_tile = min(first_tile + span, (seq_len + TILE - 1) // TILE)
    num_tokens = max(last_tile - first_tile, 0) * TILE

    # region: q-load
    for at in range(8 * thread, PACK * HEAD_SIZE, 8 * THREADS):
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
    top = registers(PACK)
    for h in unrolled(PACK):
        top[h] = float32(-math.inf)
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
        # The score of this lane's token with each query head. A piece is widened once for all of them.
        s = registers(PACK)
        for h in unrolled(PACK):
            s[h] = float32(0)
        for j in unrolled(K_LOADS):
            if j < K_WHOLE or k_piece < K_REST:
                eight = widen(k[j])
                for h in unrolled(PACK):
                    at = h * HEAD_SIZE + (k_piece + K_LANES * j) * 8
                    s[h] = dot8(s[h], eight, shared_load4(shared, at), shared_load4(shared, at + 4))
        # endregion

        token = tile * TILE + k_token
        for h in unrolled(PACK):
            for fold in unrolled(K_FOLDS):
                s[h] += cuda.shfl_xor_sync(FULL, s[h], TILE << fold)
            if ALIBI:
                s[h] += alibi_slopes[first_head + h] * float32(token - seq_len + 1) * float32(LOG2_E)
            # region: tail-guard
            if token >= seq_len:
                s[h] = float32(-math.inf)
            # endregion
            top[h] = max(top[h], s[h])
            if k_piece == 0:
                shared[LOGITS + h * (span * TILE) + token - first_tile * TILE] = s[h]

    # region: qk-max
    # The largest score of each query head, over all warps.
    for h in unrolled(PACK):
        for fold in unrolled(5):
            top[h] = max(top[h], cuda.shfl_xor_sync(FULL, top[h], 1 << fold))
        if lane == 0:
            shared[MAXIMA + h * NUM_WARPS + warp] = top[h]
    cuda.syncthreads()
    for h in unrolled(PACK):
        for other in range(NUM_WARPS):
            top[h] = max(top[h], shared[MAXIMA + h * NUM_WARPS + other])
    # endregion

    # region: exp-sum
    # Weights in the place of the scores, and their sum.
    for h in unrolled(PACK):
        total = float32(0)
        for i in range(thread, num_tokens, THREADS):
            weight = exp2(shared[LOGITS + h * (span * TILE) + i] - top[h])
            shared[LOGITS + h * (span * TILE) + i] = weight
            total += weight
        for fold in unrolled(5):
            total += cuda.shfl_xor_sync(FULL, total, 1 << fold)
        if lane == 0:
            shared[TOTALS + h * NUM_WARPS + warp] = total
    # endregion
    cuda.syncthreads()

    # Values.
    acc = registers(SUMS)
    for i in unrolled(SUMS):
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
        weights = LOGITS + (tile - first_tile) * TILE + 8 * v_piece
        for i in unrolled(V_LOADS):
            eight = widen(v[i])
            for h in unrolled(PACK):
                at = weights + h * (span * TILE)
                acc[V_LOADS * h + i] = dot8(
                    acc[V_LOADS * h + i], eight, shared_load4(shared, at), shared_load4(shared, at + 4)
                )
        # endregion

    # region: cross-warp-reduce
    # The warps' outputs take the place of the weights.
    cuda.syncthreads()
    for h in unrolled(PACK):
        for i in unrolled(V_LOADS):
            for fold in unrolled(V_FOLDS):
                acc[V_LOADS * h + i] += cuda.shfl_xor_sync(FULL, acc[V_LOADS * h + i], 1 << fold)
            row = v_row + V_ROWS * i
            if v_piece == 0 and row < HEAD_SIZE:
                shared[LOGITS + (warp * PACK + h) * HEAD_SIZE + row] = acc[V_LOADS * h + i]
    # endregion
    cuda.syncthreads()

    # region: cross-warp-reduce
    for at in range(thread, PACK * HEAD_SIZE, THREADS):
        largest = float32(-math.inf)
        total = float32(0)
        value = float32(0)
        for other in range(NUM_WARPS):
            largest = max(largest, shared[MAXIMA + at // HEAD_SIZE * NUM_WARPS + other])
            total += shared[TOTALS + at // HEAD_SIZE * NUM_WARPS + other]
            value += shared[LOGITS + other * (PACK * HEAD_SIZE) + at]
        # endregion
        # region: output-write
        if num_partitions == 1:
            out[head * HEAD_SIZE + at] = uint16(pack(value / total if total > 0 else float32(0), float32(0)))
        # endregion
        # region: partition-stats
        elif total > 0:
            partial[((head + at // HEAD_SIZE) * num_partitions + partition) * HEAD_SIZE + at % HEAD_SIZE] = value
        if num_partitions > 1 and at % HEAD_SIZE == 0:
            stats[2 * ((head + at // HEAD_SIZE) * num_partitions + partition)] = largest
            stats[2 * ((head + at // HEAD_SIZE) * num_partitions + partition) + 1] = total
        # endregion


def pack_of(call: Decode) -> int:
    """Query heads of one thread block: the whole group, up to 16, if their outputs fit into registers."""
    return piece.heads_at_once(
        call.group, min(16, REGISTERS // piece.lanes(call.head_size, call.block_size)["V_LOADS"] - 4)
    )


def shared_bytes(call: Decode, heads: int, span: int, warps: int) -> int:
    """Bytes of dynamic shared memory for `span` tiles."""
    tokens = span * piece.lanes(call.head_size, call.block_size)["TILE"]
    return 4 * (logits_at(call.head_size, heads, warps) + heads * max(tokens, warps * call.head_size))


def launches(call: Decode, zeros: Zeros = np.zeros, plan: Plan | None = None) -> tuple[Launch, ...]:
    """One launch, or two with partitions: as many as the plan has splits; without one as vLLM chooses, by pairs of a
    sequence and a KV head, and wherever the scores of a whole sequence do not fit. Raises ArgumentError.
    """
    piece.refuse(call)
    heads, warps = pack_of(call), plan.warps if plan else 4
    call.need("plan.warps", warps, warps <= 8, "must be at most 8: a thread may have 255 registers")
    parts, span = partitions(call, call.num_heads // heads, plan)
    if not plan and shared_bytes(call, heads, span, warps) > OPT_IN_SHARED_BYTES:
        parts, span = partitions(call, 0, plan)
    shared = shared_bytes(call, heads, span, warps)
    call.need("max_seq_len", call.max_seq_len, shared <= OPT_IN_SHARED_BYTES, f"{shared} bytes of scores: use splits")
    kernel = unroll(
        paged_decode_grouped, HEAD_SIZE=call.head_size, BLOCK_SIZE=call.block_size, PACK=heads,
        PACKS=call.group // heads, FORMAT=call.scalar, NUM_WARPS=warps, ALIBI=call.alibi_slopes is not None,
    )  # fmt: skip
    rows = call.num_seqs * call.num_heads * parts if parts > 1 else 1
    partial, stats = zeros(rows * call.head_size, np.float32), zeros(2 * rows, np.float32)
    args = (
        piece.codes(call.out), partial, stats, piece.words("query", call.query),
        piece.words("key_cache", call.key_cache), piece.words("value_cache", call.value_cache),
        flat(call.block_tables), call.seq_lens, piece.slopes(call, zeros), np.float32(call.scale * LOG2_E),
        call.num_kv_heads, call.block_tables.shape[1], span,
    )  # fmt: skip
    first = Launch(kernel, (call.num_heads // heads, call.num_seqs, parts), 32 * warps, args, shared)
    return (first, merge_launch(call, partial, stats, parts)) if parts > 1 else (first,)
