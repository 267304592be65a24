"""Rung 6, splits: a sequence is shared out among several thread blocks, and a second kernel merges what they found.

Rung 5 gives a sequence and KV head to one thread block: with few sequences most of the GPU has nothing to do, and
with many the last round of thread blocks fills it in part only. How many splits are best follows from how many thread
blocks there are and how many the GPU holds at once.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import cuda, float32, int32, int64, uint16

from kernels.kernel import kernel
from kernels.ptx import exp2, pack_bf16
from kernels.tuned import piece
from kernels.tuned.call import Decode, Launch, Zeros
from kernels.tuned.merge import merge_launch
from kernels.tuned.online import EARLY_AT_MOST, pack_of
from kernels.tuned.piece import dot2, dot8, high_bfloat16, keep, low_bfloat16, shared_load4, widen
from kernels.tuned.plan import MULTIPROCESSORS, Plan
from kernels.unroll import registers, unroll, unrolled
from kernels.vector import vector_load4
from kernels.vllm.strided import flat

FULL = 0xFFFFFFFF
LOG2_E = math.log2(math.e)
# Template parameters and what follows from them: `unroll` puts the real values in their place.
HEAD_SIZE, BLOCK_SIZE, PACK, PACKS, NUM_WARPS, ALIBI, EARLY = 128, 16, 4, 1, 4, False, True
TILE = TILES = PIECES = K_LANES = K_LOADS = K_WHOLE = K_REST = K_STEP = K_FOLDS = BLOCK_WORDS = TOKEN_FOLDS = 1
V_LANES = V_ROWS = V_LOADS = V_WHOLE = V_REST = V_STEP = V_FOLDS = SUMS = THREADS = MAXIMA = TOTALS = 1
low, high, pack = low_bfloat16, high_bfloat16, pack_bf16


def _constexpr(
    HEAD_SIZE: int, BLOCK_SIZE: int, PACK: int, PACKS: int, FORMAT: str, NUM_WARPS: int, ALIBI: bool
) -> dict[str, Any]:
    sizes = piece.lanes(HEAD_SIZE, BLOCK_SIZE)
    return {
        **piece.FORMATS[FORMAT],
        **sizes,
        "EARLY": 4 * (sizes["K_LOADS"] + sizes["V_LOADS"]) + PACK * (sizes["V_LOADS"] + 3) <= EARLY_AT_MOST,
        "SUMS": PACK * sizes["V_LOADS"],
        "THREADS": 32 * NUM_WARPS,
        "MAXIMA": NUM_WARPS * PACK * HEAD_SIZE,
        "TOTALS": NUM_WARPS * PACK * (HEAD_SIZE + 1),
    }


@kernel(_constexpr)
def paged_decode_split(
    out,  # [num_seqs, num_heads, HEAD_SIZE] 16-bit codes
    partial,  # [num_seqs, num_heads, num_splits, HEAD_SIZE] float32
    stats,  # [num_seqs, num_heads, num_splits, 2] float32: largest score, sum of weights
    q,  # [num_seqs, num_heads, HEAD_SIZE] 16-bit numbers in words, as the caches
    k_cache,  # [num_blocks, num_kv_heads, HEAD_SIZE / 8, BLOCK_SIZE, 8]
    v_cache,  # [num_blocks, num_kv_heads, HEAD_SIZE, BLOCK_SIZE]
    block_tables,  # [num_seqs, max_num_blocks_per_seq] int32
    seq_lens,  # [num_seqs] int32
    alibi_slopes,  # [num_heads] float32
    scale,  # of the scores, times log2(e): exponentials are to base 2
    num_kv_heads,
    max_num_blocks_per_seq,
):
    """One thread block: PACK query heads of a KV head, a split; grid (num_kv_heads * PACKS, num_seqs, num_splits)."""
    # The queries, [PACK, HEAD_SIZE]. In the end the warps' outputs, [NUM_WARPS, PACK, HEAD_SIZE], maxima and sums.
    shared = cuda.shared.array(0, float32)
    thread = cuda.threadIdx.x
    lane = thread % 32
    # From one lane to all: so the compiler knows that a warp stays together.
    warp = cuda.shfl_sync(FULL, int32(thread // 32), 0)
    seq = cuda.blockIdx.y
    kv_head = cuda.blockIdx.x // PACKS
    first_head = cuda.blockIdx.x * PACK
    head = seq * (cuda.gridDim.x * PACK) + first_head
    seq_len = seq_lens[seq]
    num_tiles = (seq_len + TILE - 1) // TILE
    # region: block-ranges
    num_splits = cuda.gridDim.z
    split = cuda.blockIdx.z
    span = (num_tiles + num_splits - 1) // num_splits
    first_tile = split * span
    # Counted in 32 bits: one register each, not two.
    last_tile = int32(min(first_tile + span, num_tiles))
    # endregion

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

    # Of each query head: the largest score so far, the sum of this lane's weights, this lane's rows of the output.
    m = registers(PACK)
    total = registers(PACK)
    acc = registers(SUMS)
    for h in unrolled(PACK):
        m[h] = float32(-math.inf)
        total[h] = float32(0)
    for i in unrolled(SUMS):
        acc[i] = float32(0)

    # region: block-table-walk
    block_table = seq * max_num_blocks_per_seq
    coming = int32(0)
    if first_tile + warp < last_tile:
        coming = block_tables[block_table + (first_tile + warp) // TILES]
    for tile in range(int32(first_tile + warp), last_tile, int32(NUM_WARPS)):
        physical_block = int64(coming)
        if tile + NUM_WARPS < last_tile:
            coming = block_tables[block_table + (tile + NUM_WARPS) // TILES]
        # endregion
        # region: k-address
        start = (physical_block * num_kv_heads + kv_head) * BLOCK_WORDS
        k_start = start + k_at + tile % TILES * (TILE * 4)
        v_start = start + v_at + tile % TILES * (TILE // 2)
        # A lane without a piece left, where they do not come out even, reads its first again.
        k = registers(K_LOADS)
        for j in unrolled(K_LOADS):
            k[j] = vector_load4(k_cache, k_start + (j if j < K_WHOLE or k_piece < K_REST else 0) * K_STEP)
        # endregion
        # region: v-address
        v = registers(V_LOADS)
        for i in unrolled(V_LOADS):
            v[i] = vector_load4(v_cache, v_start + (i if i < V_WHOLE or v_row < V_REST else 0) * V_STEP)
        # endregion
        if EARLY:
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

        # region: online-softmax
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
            # region: running-max
            top = max(m[h], s[h])
            for fold in unrolled(TOKEN_FOLDS):
                top = max(top, cuda.shfl_xor_sync(FULL, top, 1 << fold))
            # endregion
            # region: running-rescale
            shrink = exp2(m[h] - top)
            m[h] = top
            s[h] = exp2(s[h] - top)
            # region: running-sum
            total[h] = total[h] * shrink + s[h]
            # endregion
            for i in unrolled(V_LOADS):
                acc[V_LOADS * h + i] *= shrink
            # endregion
        # endregion

        # region: tail-guard
        left = seq_len - tile * TILE
        if left < TILE:
            # What lies behind the last token may be NaN, and zero times NaN is NaN.
            for i in unrolled(V_LOADS):
                v[i] = keep(v[i], left - 8 * v_piece)
        # endregion
        # region: accumulate
        for word in unrolled(4):
            # The weights of two tokens, from the lanes that have them.
            w0 = registers(PACK)
            w1 = registers(PACK)
            for h in unrolled(PACK):
                w0[h] = cuda.shfl_sync(FULL, s[h], 8 * v_piece + 2 * word)
                w1[h] = cuda.shfl_sync(FULL, s[h], 8 * v_piece + 2 * word + 1)
            for i in unrolled(V_LOADS):
                v0 = low(v[i][word])
                v1 = high(v[i][word])
                for h in unrolled(PACK):
                    acc[V_LOADS * h + i] = dot2(acc[V_LOADS * h + i], v0, w0[h], v1, w1[h])
        # endregion

    # region: cross-warp-reduce
    # The warps' outputs take the queries' place.
    cuda.syncthreads()
    for h in unrolled(PACK):
        for fold in unrolled(TOKEN_FOLDS):
            total[h] += cuda.shfl_xor_sync(FULL, total[h], 1 << fold)
        if lane == 0:
            shared[MAXIMA + warp * PACK + h] = m[h]
            shared[TOTALS + warp * PACK + h] = total[h]
        for i in unrolled(V_LOADS):
            for fold in unrolled(V_FOLDS):
                acc[V_LOADS * h + i] += cuda.shfl_xor_sync(FULL, acc[V_LOADS * h + i], 1 << fold)
            row = v_row + V_ROWS * i
            if v_piece == 0 and row < HEAD_SIZE:
                shared[(warp * PACK + h) * HEAD_SIZE + row] = acc[V_LOADS * h + i]
    # endregion
    cuda.syncthreads()

    # region: cross-warp-reduce
    for at in range(thread, PACK * HEAD_SIZE, THREADS):
        top = float32(-math.inf)
        for other in range(NUM_WARPS):
            top = max(top, shared[MAXIMA + other * PACK + at // HEAD_SIZE])
        whole = float32(0)
        value = float32(0)
        for other in range(NUM_WARPS):
            here = shared[MAXIMA + other * PACK + at // HEAD_SIZE]
            weight = exp2(here - top) if here > float32(-math.inf) else float32(0)
            whole += weight * shared[TOTALS + other * PACK + at // HEAD_SIZE]
            value += weight * shared[other * (PACK * HEAD_SIZE) + at]
        # endregion
        # region: output-write
        if num_splits == 1:
            out[head * HEAD_SIZE + at] = uint16(pack(value / whole if whole > 0 else float32(0), float32(0)))
        # endregion
        # region: partition-stats
        elif whole > 0:
            partial[((head + at // HEAD_SIZE) * num_splits + split) * HEAD_SIZE + at % HEAD_SIZE] = value
        if num_splits > 1 and at % HEAD_SIZE == 0:
            stats[2 * ((head + at // HEAD_SIZE) * num_splits + split)] = top
            stats[2 * ((head + at // HEAD_SIZE) * num_splits + split) + 1] = whole
        # endregion


def choose(call: Decode, multiprocessors: int = MULTIPROCESSORS) -> Plan:
    """The fewest splits, of 32 tiles or more, that leave a tenth of the GPU idle at most, all rounds taken together.

    Four warps a thread block. How many of them a multiprocessor holds at once follows from the registers of a thread.
    """
    heads = pack_of(call)
    sizes = piece.lanes(call.head_size, call.block_size)
    pieces = 4 * (sizes["K_LOADS"] + sizes["V_LOADS"]) + heads * (sizes["V_LOADS"] + 3)
    slots = multiprocessors * (2 if pieces > 110 else 3 if pieces > 75 else 4)
    blocks = call.num_seqs * (call.num_heads // heads)
    most = max(1, call.max_seq_len // (32 * sizes["TILE"]))

    def fill(splits: int) -> float:
        return blocks * splits / (-(-blocks * splits // slots) * slots)

    choices = range(1, min(most, -(-4 * slots // blocks)) + 1)
    return Plan(next((splits for splits in choices if fill(splits) >= 0.9), max(choices, key=fill)))


def launches(call: Decode, zeros: Zeros = np.zeros, plan: Plan | None = None) -> tuple[Launch, ...]:
    """One launch, or two where sequences are split; without a plan `choose` makes one. Raises ArgumentError."""
    piece.refuse(call)
    plan = plan or choose(call)
    warps, splits, heads = plan.warps, plan.splits, pack_of(call)
    call.need("plan.warps", warps, warps <= 8, "must be at most 8: a thread may have 255 registers")
    kernel = unroll(
        paged_decode_split, HEAD_SIZE=call.head_size, BLOCK_SIZE=call.block_size, PACK=heads,
        PACKS=call.group // heads, FORMAT=call.scalar, NUM_WARPS=warps, ALIBI=call.alibi_slopes is not None,
    )  # fmt: skip
    rows = call.num_seqs * call.num_heads * splits if splits > 1 else 1
    partial, stats = zeros(rows * call.head_size, np.float32), zeros(2 * rows, np.float32)
    args = (
        piece.codes(call.out), partial, stats, piece.words("query", call.query),
        piece.words("key_cache", call.key_cache), piece.words("value_cache", call.value_cache),
        flat(call.block_tables), call.seq_lens, piece.slopes(call, zeros), np.float32(call.scale * LOG2_E),
        call.num_kv_heads, call.block_tables.shape[1],
    )  # fmt: skip
    shared = warps * heads * (call.head_size + 2) * 4
    first = Launch(kernel, (call.num_heads // heads, call.num_seqs, splits), 32 * warps, args, shared)
    return (first, merge_launch(call, partial, stats, splits)) if splits > 1 else (first,)
