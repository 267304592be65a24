"""The last rung: tensor cores fed by the copy engine, one ring of KV blocks a warp.

A KV block of one head lies in one piece: 4 KB of keys, 4 KB of values at head size 128. So one thread asks for it, and
the copy engine brings it to shared memory while the warp works on an earlier one. Each warp has a ring of its own, and
no warp waits for another until the end.

Products are taken the wide way round: keys times queries, values times weights. Sixteen tokens (or head elements) are
the rows of a tensor-core product, and the query heads of a KV head its eight columns, so no row is wasted. Keys in
vLLM's x layout lie as `ldmatrix` wants them: 16 bytes of sixteen tokens, side by side. What surrounds the kernel is in
`ring_launch`.
"""

from __future__ import annotations

import math

from numba import cuda, float32, int32, int64, uint8, uint16

from kernels.kernel import kernel
from kernels.ptx import (
    exp2,
    grid_launch,
    grid_wait,
    halves_e4m3,
    ldmatrix_x4,
    load_word,
    mbarrier_fence,
    mbarrier_init,
    mbarrier_passed,
    mma_bf16,
    pack_bf16,
    transpose_8x8,
)
from kernels.tuned.ring_merge import comes_last, merge_splits, merge_warps, weight_of
from kernels.tuned.ring_parts import ask, power_of, seen, to_f16, two_to
from kernels.tuned.ring_sizes import constexpr
from kernels.unroll import fixed, registers, unrolled
from kernels.vector import vector_load4

FULL = 0xFFFFFFFF
LOG2E = math.log2(math.e)
# Template parameters, and what `ring_sizes` computes of them: `specialise` puts the real values in their place.
HEAD_SIZE, BLOCK_SIZE, GROUP, QUERY_LEN, WARPS, DEPTH = 128, 16, 8, 1, 4, 3
FP8 = ALIBI = LISTED = BFLOAT16 = False
COLUMNS = USED = TILES = STEPS = LOADS = HALVES = PIECES = V_PIECE = Q_LANE = Q_NEXT = 1
HALF = STAGE = RING = BARRIERS = PITCH = MAXIMA = TOTALS = TOPS = 1
mma, pack, halves = mma_bf16, pack_bf16, halves_e4m3


@kernel(constexpr)
def paged_decode_ring(
    out,  # [num_seqs, QUERY_LEN, num_heads, HEAD_SIZE] 16-bit codes
    partial,  # [places, num_kv_heads, USED, HEAD_SIZE] float32; a place is a split of a sequence
    stats,  # [places, num_kv_heads, USED, 2] float32: maximum and sum
    turns,  # [num_seqs, num_kv_heads] uint32, zeros, and zeros again afterwards
    work,  # [items, 8] int32, see `plan.as_words`; read if LISTED
    q,  # [num_seqs, QUERY_LEN, num_heads, HEAD_SIZE] 16-bit codes
    k_cache,  # [num_blocks, num_kv_heads, HEAD_SIZE / x, BLOCK_SIZE, x] as 16-bit words, two fp8 codes in one
    v_cache,  # [num_blocks, num_kv_heads, HEAD_SIZE, BLOCK_SIZE] as 16-bit words
    block_tables,  # [num_seqs, max_num_blocks_per_seq] int32
    seq_lens,  # [num_seqs] int32
    alibi_slopes,  # [num_heads] float32; read if ALIBI
    k_scale,  # [1] float32; read if FP8
    v_scale,  # [1] float32; read if FP8
    scale,  # of the scores, times log2(e): exponentials are to base 2
    num_kv_heads,
    max_num_blocks_per_seq,
    span,  # KV blocks of a split, unless LISTED
):
    """One thread block: a split of one sequence and one KV head.

    Grid (num_kv_heads, num_splits, num_seqs), or (num_kv_heads, items, 1) if LISTED: the heads of a KV block lie side
    by side in memory, and thread blocks with neighbouring numbers run at once.
    """
    ring = cuda.shared.array(0, uint16)
    shares = cuda.shared.array(0, float32)  # the same bytes, once the ring is done with
    barriers = cuda.shared.array(0, int64)  # behind both, and before what the warps tell each other at the end
    thread = int32(cuda.threadIdx.x)
    lane = thread % int32(32)
    warp = thread // int32(32)
    g = lane // int32(4)
    t = lane % int32(4)
    kv_head = int32(cuda.blockIdx.x)
    num_heads = int32(num_kv_heads * GROUP)
    mine = int32(warp * RING)
    bar = int32(BARRIERS + warp * DEPTH)
    if lane == 0:
        for stage in range(DEPTH):
            mbarrier_init(barriers, bar + stage, 1)
        mbarrier_fence()
    # The launch after this one may begin; what the launch before this one wrote is there.
    grid_launch()
    grid_wait()

    # This thread block's KV blocks: `first` to below `last`, the `split`-th of `parts` pieces of the sequence.
    if LISTED:
        seq, first, last, split = vector_load4(work, 8 * cuda.blockIdx.y)
        parts, base, _, _ = vector_load4(work, 8 * cuda.blockIdx.y + 4)
    else:
        seq = int32(cuda.blockIdx.z)
        split = int32(cuda.blockIdx.y)
        base = int32(seq * cuda.gridDim.y)
        first = int32(split * span)
        last = int32(first + span)
        parts = int32(0)
    # region: block-table-walk
    # One load brings 32 entries of the block table, and the next 32 are on their way. It does not wait for the length:
    # what lies in the row behind the last block is loaded, but never used.
    begin = int32(first + warp)
    row = int32(seq * max_num_blocks_per_seq)
    entries = int32(0)
    if begin + lane * WARPS < max_num_blocks_per_seq:
        entries = block_tables[row + begin + lane * WARPS]
    coming = int32(0)
    if begin + (32 + lane) * WARPS < max_num_blocks_per_seq:
        coming = block_tables[row + begin + (32 + lane) * WARPS]
    # endregion

    length = seq_lens[seq]
    num_blocks = int32((length + (BLOCK_SIZE - 1)) // BLOCK_SIZE)
    if LISTED:
        # The last piece takes what a sequence grew by since the list was made.
        last = num_blocks if split == parts - 1 else min(last, num_blocks)
    else:
        last = min(last, num_blocks)
        parts = int32(max(1, (num_blocks + span - 1) // span))
        if split >= parts:
            return
    # This warp's: begin, and every WARPS-th from there, below `last`.
    count = int32(max(0, (last - begin + (WARPS - 1)) // WARPS))
    cuda.syncwarp()
    # region: block-table-walk
    for ahead in range(min(int32(DEPTH), count)):
        physical_block = cuda.shfl_sync(FULL, entries, ahead)
        if lane == 0:
            source = (int64(physical_block) * num_kv_heads + kv_head) * HALF
            target = int32(mine + ahead * STAGE)
            # region: k-address
            # region: v-address
            ask(ring, target, k_cache, v_cache, source, barriers, bar + ahead)
            # endregion
            # endregion
    # endregion

    # region: q-load
    # The queries as the second factor: column 8 tile + g is a query head of the group, and of one of the QUERY_LEN
    # tokens. Columns that nobody uses repeat the last.
    q_low = registers(TILES * STEPS)
    q_high = registers(TILES * STEPS)
    scale0 = registers(TILES)
    scale1 = registers(TILES)
    slope0 = registers(TILES)
    slope1 = registers(TILES)
    for tile in unrolled(TILES):
        column = min(int32(8 * tile + g), int32(USED - 1))
        q_row = int32((seq * QUERY_LEN + column // GROUP) * num_heads + kv_head * GROUP + column % GROUP)
        # A lane's four fp8 codes are neighbours, so its elements are, too: a product does not mind their order.
        q_at = int64(q_row) * HEAD_SIZE + Q_LANE * t
        for step in unrolled(STEPS):
            q_low[tile * STEPS + step] = load_word(q, q_at + 16 * step)
            q_high[tile * STEPS + step] = load_word(q, q_at + 16 * step + Q_NEXT)
        factor = float32(scale)
        if FP8:
            factor *= k_scale[0]
            if BFLOAT16:
                # float16 holds every bfloat16 but for its range: a power of two brings the largest close to one.
                power = power_of(q, int64(q_row) * HEAD_SIZE, lane)
                for step in unrolled(STEPS):
                    q_low[tile * STEPS + step] = to_f16(q_low[tile * STEPS + step], 127 - power)
                    q_high[tile * STEPS + step] = to_f16(q_high[tile * STEPS + step], 127 - power)
                factor *= two_to(power - 127)
        scale0[tile] = cuda.shfl_sync(FULL, factor, 8 * t)
        scale1[tile] = cuda.shfl_sync(FULL, factor, 8 * t + 4)
        # endregion
        if ALIBI:
            slope0[tile] = alibi_slopes[kv_head * GROUP + min(8 * tile + 2 * t, USED - 1) % GROUP] * float32(LOG2E)
            slope1[tile] = alibi_slopes[kv_head * GROUP + min(8 * tile + 2 * t + 1, USED - 1) % GROUP] * float32(LOG2E)

    # Running maximum, sum and output of columns 2t and 2t + 1 of a tile; the output's rows are 16 step + g, 8 below.
    m0 = registers(TILES)
    m1 = registers(TILES)
    l0 = registers(TILES)
    l1 = registers(TILES)
    for tile in unrolled(TILES):
        m0[tile] = float32(-math.inf)
        m1[tile] = float32(-math.inf)
        l0[tile] = float32(0)
        l1[tile] = float32(0)
    acc = registers(4 * TILES * STEPS)
    for number in unrolled(4 * TILES * STEPS):
        acc[number] = float32(0)
    s0 = registers(TILES)
    s1 = registers(TILES)
    s2 = registers(TILES)
    s3 = registers(TILES)
    keep0 = registers(TILES)
    keep1 = registers(TILES)
    a = registers(8)
    b0 = registers(TILES)
    b1 = registers(TILES)

    # Lane 8j + r names row r of matrix j. Rows are tokens of the keys, head elements of the values. A lane's four fp8
    # codes of a row are neighbours: the product takes two of them as columns 2t, 2t + 1, and two as 8 more. So the
    # weights of tokens 4j, 4j + 1 have to be rows 2j, 2j + 1 of the scores, and those of 4j + 2, 4j + 3 eight below.
    if FP8:
        k_token = int32(4 * (lane % 8 // 2) + 2 * (lane % 16 // 8) + lane % 2)
        v_row = int32(lane * (BLOCK_SIZE // 2))
        upper = int32(4 * (g // 2) + g % 2)
        lower = int32(upper + 2)
    else:
        k_token = int32(lane % 16)
        v_row = int32((lane % 16) * BLOCK_SIZE + (lane // 16) * 8)
        upper = g
        lower = int32(g + 8)
    k_row = int32((lane // 16) * (8 * BLOCK_SIZE) + k_token * 8)
    stage = int32(0)
    parity = int32(0)
    for turn in range(count):
        while mbarrier_passed(barriers, bar + stage, parity) == 0:
            pass
        keys = int32(mine + stage * STAGE)
        values = int32(keys + HALF)
        token = int32((begin + turn * WARPS) * BLOCK_SIZE)
        # region: tail-guard
        if token + BLOCK_SIZE > length:
            # What lies behind the last token may be NaN, and zero times NaN is NaN.
            for element in range(lane, int32(HEAD_SIZE), int32(32)):
                for behind in range(length - token, int32(BLOCK_SIZE)):
                    if FP8:
                        cuda.shared.array(0, uint8)[2 * values + element * BLOCK_SIZE + behind] = uint8(0)
                    else:
                        ring[values + element * BLOCK_SIZE + behind] = uint16(0)
            cuda.syncwarp()
        # endregion
        for piece in unrolled(PIECES):
            # region: qk-dot
            # Scores of tokens `upper` and `lower` of the piece, columns 2t and 2t + 1 of each tile.
            for tile in unrolled(TILES):
                s0[tile] = float32(0)
                s1[tile] = float32(0)
                s2[tile] = float32(0)
                s3[tile] = float32(0)
            for load in unrolled(LOADS):
                a[0], a[1], a[2], a[3] = ldmatrix_x4(ring, keys + (k_row + (128 * piece + 16 * BLOCK_SIZE * load)))
                if FP8:
                    a[4], a[6] = halves(a[2])
                    a[5], a[7] = halves(a[3])
                    a[0], a[2] = halves(a[0])
                    a[1], a[3] = halves(a[1])
                for half in unrolled(HALVES):
                    for tile in unrolled(TILES):
                        step = fixed(tile * STEPS + HALVES * load + half)
                        s0[tile], s1[tile], s2[tile], s3[tile] = mma(
                            a[4 * half], a[4 * half + 1], a[4 * half + 2], a[4 * half + 3], q_low[step], q_high[step],
                            s0[tile], s1[tile], s2[tile], s3[tile],
                        )  # fmt: skip
            # endregion
            here = int32(token + 16 * piece)
            for tile in unrolled(TILES):
                s0[tile] *= scale0[tile]
                s1[tile] *= scale1[tile]
                s2[tile] *= scale0[tile]
                s3[tile] *= scale1[tile]
                # Tokens that a column sees: all of the sequence but for those asked for after it.
                seen0 = int32(length - (QUERY_LEN - 1) + min(int32(8 * tile + 2 * t), int32(USED - 1)) // GROUP)
                seen1 = int32(length - (QUERY_LEN - 1) + min(int32(8 * tile + 2 * t + 1), int32(USED - 1)) // GROUP)
                if ALIBI:
                    s0[tile] += slope0[tile] * float32(here + upper - seen0 + 1)
                    s1[tile] += slope1[tile] * float32(here + upper - seen1 + 1)
                    s2[tile] += slope0[tile] * float32(here + lower - seen0 + 1)
                    s3[tile] += slope1[tile] * float32(here + lower - seen1 + 1)
                # region: tail-guard
                if here + (16 + QUERY_LEN - 1) > length:
                    s0[tile] = seen(s0[tile], here + upper, seen0)
                    s1[tile] = seen(s1[tile], here + upper, seen1)
                    s2[tile] = seen(s2[tile], here + lower, seen0)
                    s3[tile] = seen(s3[tile], here + lower, seen1)
                # endregion
                # region: online-softmax
                # region: running-max
                # The maximum of a column lies in the eight lanes with the same t.
                x0 = max(s0[tile], s2[tile])
                x1 = max(s1[tile], s3[tile])
                for fold in unrolled(3):
                    x0 = max(x0, cuda.shfl_xor_sync(FULL, x0, 4 << fold))
                    x1 = max(x1, cuda.shfl_xor_sync(FULL, x1, 4 << fold))
                x0 = max(x0, m0[tile])
                x1 = max(x1, m1[tile])
                # endregion
                if QUERY_LEN > 1 or PIECES > 1:
                    # Perhaps a column has seen no token yet: less than nothing minus less than nothing is NaN.
                    x0 = max(x0, float32(-3e38))
                    x1 = max(x1, float32(-3e38))
                # region: running-rescale
                keep0[tile] = exp2(m0[tile] - x0)
                keep1[tile] = exp2(m1[tile] - x1)
                # endregion
                s0[tile] = exp2(s0[tile] - x0)
                s1[tile] = exp2(s1[tile] - x1)
                s2[tile] = exp2(s2[tile] - x0)
                s3[tile] = exp2(s3[tile] - x1)
                m0[tile] = x0
                m1[tile] = x1
                # region: running-sum
                l0[tile] = l0[tile] * keep0[tile] + s0[tile] + s2[tile]
                l1[tile] = l1[tile] * keep1[tile] + s1[tile] + s3[tile]
                # endregion
                # endregion
                # region: accumulate
                # The weights come out as rows; the second factor wants them as columns.
                b0[tile] = transpose_8x8(pack(s0[tile], s1[tile]))
                b1[tile] = transpose_8x8(pack(s2[tile], s3[tile]))
            for load in unrolled(LOADS):
                a[0], a[1], a[2], a[3] = ldmatrix_x4(
                    ring, values + (v_row + (V_PIECE * piece + 16 * BLOCK_SIZE * load))
                )
                if FP8:
                    a[4], a[6] = halves(a[2])
                    a[5], a[7] = halves(a[3])
                    a[0], a[2] = halves(a[0])
                    a[1], a[3] = halves(a[1])
                for half in unrolled(HALVES):
                    for tile in unrolled(TILES):
                        sums = fixed(4 * (tile * STEPS + HALVES * load + half))
                        acc[sums], acc[sums + 1], acc[sums + 2], acc[sums + 3] = mma(
                            a[4 * half], a[4 * half + 1], a[4 * half + 2], a[4 * half + 3], b0[tile], b1[tile],
                            acc[sums] * keep0[tile], acc[sums + 1] * keep1[tile], acc[sums + 2] * keep0[tile],
                            acc[sums + 3] * keep1[tile],
                        )  # fmt: skip
                # endregion
        # Every lane has read the stage: it may be written again.
        cuda.syncwarp()
        # region: block-table-walk
        ahead = int32(turn + DEPTH)
        if ahead < count:
            if ahead % 32 == 0:
                entries = coming
                coming = int32(0)
                if begin + (ahead + 32 + lane) * WARPS < max_num_blocks_per_seq:
                    coming = block_tables[row + begin + (ahead + 32 + lane) * WARPS]
            physical_block = cuda.shfl_sync(FULL, entries, ahead % 32)
            if lane == 0:
                source = (int64(physical_block) * num_kv_heads + kv_head) * HALF
                ask(ring, keys, k_cache, v_cache, source, barriers, bar + stage)
        # endregion
        stage += int32(1)
        if stage == DEPTH:
            stage = int32(0)
            parity ^= int32(1)

    # Each lane summed its own tokens. The warps agree on a maximum; their outputs take the place of the rings.
    for tile in unrolled(TILES):
        for fold in unrolled(3):
            # region: cross-warp-reduce
            l0[tile] += cuda.shfl_xor_sync(FULL, l0[tile], 4 << fold)
            l1[tile] += cuda.shfl_xor_sync(FULL, l1[tile], 4 << fold)
        if g == 0:
            shares[MAXIMA + warp * COLUMNS + 8 * tile + 2 * t] = m0[tile]
            shares[MAXIMA + warp * COLUMNS + 8 * tile + 2 * t + 1] = m1[tile]
    cuda.syncthreads()
    for tile in unrolled(TILES):
        column = int32(8 * tile + 2 * t)
        top0 = m0[tile]
        top1 = m1[tile]
        for other in range(WARPS):
            top0 = max(top0, shares[MAXIMA + other * COLUMNS + column])
            top1 = max(top1, shares[MAXIMA + other * COLUMNS + column + 1])
        scale0[tile] = weight_of(m0[tile], top0)
        scale1[tile] = weight_of(m1[tile], top1)
        if g == 0:
            shares[TOTALS + warp * COLUMNS + column] = l0[tile] * scale0[tile]
            shares[TOTALS + warp * COLUMNS + column + 1] = l1[tile] * scale1[tile]
            if warp == 0:
                shares[TOPS + column] = top0
                shares[TOPS + column + 1] = top1
        share = int32((warp * COLUMNS + column) * PITCH + g)
        for step in unrolled(STEPS):
            sums = fixed(4 * (tile * STEPS + step))
            shares[share + 16 * step] = acc[sums] * scale0[tile]
            shares[share + 16 * step + PITCH] = acc[sums + 1] * scale1[tile]
            shares[share + 16 * step + 8] = acc[sums + 2] * scale0[tile]
            shares[share + 16 * step + 8 + PITCH] = acc[sums + 3] * scale1[tile]
    cuda.syncthreads()
    value_scale = v_scale[0] if FP8 else float32(1)
    merge_warps(
        out, partial, stats, shares, seq, kv_head, num_kv_heads, warp, lane, base + split, parts, value_scale
    )  # fmt: skip
    # endregion
    # region: v2-merge
    if parts > 1 and comes_last(turns, shares, seq * num_kv_heads + kv_head, parts, thread):
        merge_splits(out, partial, stats, seq, kv_head, num_kv_heads, warp, lane, base, parts, value_scale)
    # endregion
