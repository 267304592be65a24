"""Rung 7, tensor cores: vLLM's layouts go straight into the fragments of `mma`; nothing is staged in shared memory.

A dot product does not mind the order of its terms, nor a sum of weighted values the order of its tokens. So each lane
takes whole chunks of memory, and what lies where in a fragment is chosen to fit them: the chunk 4i + t of a key holds
four words, two for each of two products, and the queries are dealt out the same way once. Tokens are dealt out so that
the scores of a lane are those of four neighbours, which is what it holds of the values: weights need not move.
"""

from __future__ import annotations

import math

import numpy as np
from numba import cuda, float32, int32, int64, uint16

from kernels.kernel import Kernel, kernel
from kernels.ptx import exp2, load_words_x2, load_words_x4, mma_bf16, pack_bf16
from kernels.tuned.call import Decode, Launch, Zeros
from kernels.tuned.merge import merge_launch
from kernels.tuned.piece import codes
from kernels.tuned.plan import MULTIPROCESSORS, Plan
from kernels.tuned.tensor_cores_sizes import MOST_WARPS, ROWS, TOKENS, constexpr, shared_bytes
from kernels.unroll import registers, unroll, unrolled
from kernels.vllm.strided import flat

FULL = 0xFFFFFFFF
LOG2_E = np.float32(math.log2(math.e))

# Template parameters: `specialise` puts the real values in their place.
HEAD_SIZE, BLOCK_SIZE, GROUP, WARPS = 128, 16, 8, 4
ALIBI = LATE = TWO_HALVES = False
EARLY = True
HALVES = CHUNKS = QUERY_WORDS = TILES = WORDS = SUMS = PIECES = STEP = BLOCK_ELEMENTS = THREADS = 1
PITCH = SHARE = MAXIMA = TOTALS = 1
mma, pack = mma_bf16, pack_bf16


@kernel(constexpr)
def paged_decode_tensor_cores(
    out,  # [num_seqs, num_heads, HEAD_SIZE] 16-bit codes
    partial,  # [num_seqs, num_heads, num_splits, HEAD_SIZE] float32
    stats,  # [num_seqs, num_heads, num_splits, 2] float32: maximum and sum
    q,  # [num_seqs, num_heads, HEAD_SIZE] 16-bit codes
    k_cache,  # [num_blocks, num_kv_heads, HEAD_SIZE / 8, BLOCK_SIZE, 8] 16-bit codes
    v_cache,  # [num_blocks, num_kv_heads, HEAD_SIZE, BLOCK_SIZE] 16-bit codes
    block_tables,  # [num_seqs, max_num_blocks_per_seq] int32
    seq_lens,  # [num_seqs] int32
    alibi_slopes,  # [num_heads] float32; or numbers that nobody reads
    scale,  # of the scores, times log2(e): exponentials are to base 2
    num_kv_heads,
    max_num_blocks_per_seq,
    num_splits,
):
    """One thread block: a split of one sequence and one KV head; grid (num_splits, num_kv_heads, num_seqs)."""
    shares = cuda.shared.array(0, float32)
    # Whole numbers of the loop have 32 bits: Numba's own have 64, and a register more each.
    thread = int32(cuda.threadIdx.x)
    lane = int32(thread % 32)
    warp = int32(thread // 32)
    g = int32(lane // 4)
    t = int32(lane % 4)
    split = cuda.blockIdx.x
    kv_head = cuda.blockIdx.y
    seq = cuda.blockIdx.z
    head = seq * num_kv_heads * GROUP + kv_head * GROUP

    # region: block-ranges
    # This warp's pieces of sixteen tokens: `piece`, and every WARPS-th from there, below the split's end. Splits are
    # whole blocks, so a warp's pieces lie at one place of their blocks.
    length = int32(seq_lens[seq])
    num_blocks = int32((length + BLOCK_SIZE - 1) // BLOCK_SIZE)
    span = int32((num_blocks + num_splits - 1) // num_splits)
    piece = int32(split * span * PIECES + warp)
    end = int32(min((split + 1) * span * PIECES, (length + TOKENS - 1) // TOKENS))
    count = int32(max(0, (end - piece + WARPS - 1) // WARPS))
    left = int32(length - piece * TOKENS)  # tokens from the piece's first on
    row = int64(seq) * max_num_blocks_per_seq + split * span + warp // PIECES
    # endregion

    # region: block-table-walk
    # One load brings the block numbers of 32 turns, and the next 32 are on their way.
    entries = int32(0)
    if lane < count:
        entries = block_tables[row + lane * STEP]
    coming = int32(0)
    if 32 + lane < count:
        coming = block_tables[row + (32 + lane) * STEP]
    # endregion

    # region: q-load
    # Rows g and g + 8 of the queries; rows past the group repeat its last. Words 0 and 1 of a chunk go to one product,
    # 2 and 3 to the next, as those of the keys will.
    q_low = registers(QUERY_WORDS)
    q_high = registers(QUERY_WORDS)
    q_at = (head + min(g, GROUP - 1)) * HEAD_SIZE + 8 * t
    for i in unrolled(CHUNKS):
        q_low[4 * i], q_low[4 * i + 1], q_low[4 * i + 2], q_low[4 * i + 3] = load_words_x4(q, q_at + 32 * i)
    for word in unrolled(QUERY_WORDS):
        q_high[word] = int32(0)
    if TWO_HALVES:
        q_at = (head + min(g + 8, GROUP - 1)) * HEAD_SIZE + 8 * t
        for i in unrolled(CHUNKS):
            q_high[4 * i], q_high[4 * i + 1], q_high[4 * i + 2], q_high[4 * i + 3] = load_words_x4(q, q_at + 32 * i)
    # endregion

    # Running maximum and sum of rows g and g + 8. The output lies the other way round: head elements 16 tile + g and 8
    # below, of heads 2t and 2t + 1.
    m = registers(HALVES)
    total = registers(HALVES)
    slope = registers(HALVES)
    for half in unrolled(HALVES):
        m[half] = float32(-math.inf)
        total[half] = float32(0)
        slope[half] = float32(0)
        if ALIBI:
            slope[half] = alibi_slopes[kv_head * GROUP + min(g + 8 * half, GROUP - 1)] * LOG2_E
    acc = registers(SUMS)
    for number in unrolled(SUMS):
        acc[number] = float32(0)

    # Column g of tile 0 is token 4 (g / 2) + g % 2, and of tile 1 that plus 2: so columns 2t and 2t + 1 of both tiles
    # are tokens 4t to 4t + 3.
    k_lane = int32((t * BLOCK_SIZE + 4 * (g // 2) + g % 2 + TOKENS * (warp % PIECES)) * 8)
    v_lane = int32(g * BLOCK_SIZE + 4 * t + TOKENS * (warp % PIECES))
    k = registers(WORDS)
    v = registers(WORDS)
    for number in unrolled(WORDS):
        k[number] = v[number] = int32(0)
    block = cuda.shfl_sync(FULL, entries, 0)
    at = (int64(block) * num_kv_heads + kv_head) * BLOCK_ELEMENTS
    if count > 0:
        # region: k-address
        k_at = at + k_lane
        for i in unrolled(2 * CHUNKS):
            k[4 * i], k[4 * i + 1], k[4 * i + 2], k[4 * i + 3] = load_words_x4(
                k_cache, k_at + 32 * BLOCK_SIZE * (i // 2) + 16 * (i % 2)
            )
        # endregion
        # region: v-address
        v_at = at + v_lane
        if EARLY:
            for i in unrolled(2 * TILES):
                v[2 * i], v[2 * i + 1] = load_words_x2(v_cache, v_at + 8 * BLOCK_SIZE * i)
        # endregion

    s = registers(8)
    for turn in range(count):
        # region: qk-dot
        # s[0 .. 3]: row g, tokens 4t .. 4t + 3; s[4 .. 7]: row g + 8.
        for number in unrolled(8):
            s[number] = float32(0)
        for i in unrolled(2 * CHUNKS):
            for tile in unrolled(2):
                s[2 * tile], s[2 * tile + 1], s[2 * tile + 4], s[2 * tile + 5] = mma(
                    q_low[2 * i],
                    q_high[2 * i],
                    q_low[2 * i + 1],
                    q_high[2 * i + 1],
                    k[8 * (i // 2) + 4 * tile + 2 * (i % 2)],
                    k[8 * (i // 2) + 4 * tile + 2 * (i % 2) + 1],
                    s[2 * tile],
                    s[2 * tile + 1],
                    s[2 * tile + 4],
                    s[2 * tile + 5],
                )
        # endregion

        # Registers are free again. The next keys may come while this piece's values are used; or, where there are too
        # few registers for both, the values may.
        ahead = int32(turn + 1)
        if LATE:
            for number in unrolled(WORDS):
                k[number] = v[number] = int32(0)  # nobody wants the old ones any more
            if left > 0:  # always; without the branch the compiler would load before it multiplies
                for i in unrolled(2 * TILES):
                    v[2 * i], v[2 * i + 1] = load_words_x2(v_cache, v_at + 8 * BLOCK_SIZE * i)
        if ahead < count:
            # region: block-table-walk
            if ahead & 31 == 0:
                entries = coming
                coming = int32(0)
                if ahead + 32 + lane < count:
                    coming = block_tables[row + (ahead + 32 + lane) * STEP]
            block = cuda.shfl_sync(FULL, entries, ahead & 31)
            # endregion
            at = (int64(block) * num_kv_heads + kv_head) * BLOCK_ELEMENTS
            k_at = at + k_lane
            if EARLY:
                for i in unrolled(2 * CHUNKS):
                    k[4 * i], k[4 * i + 1], k[4 * i + 2], k[4 * i + 3] = load_words_x4(
                        k_cache, k_at + 32 * BLOCK_SIZE * (i // 2) + 16 * (i % 2)
                    )

        mine = int32(left - 4 * t)
        for half in unrolled(HALVES):
            for number in unrolled(4):
                s[4 * half + number] *= scale
                if ALIBI:
                    s[4 * half + number] += slope[half] * float32(number + 1 - mine)
        # region: tail-guard
        if left < TOKENS:
            # What lies behind the last token may be NaN, and zero times NaN is NaN.
            for half in unrolled(HALVES):
                for number in unrolled(4):
                    if mine <= number:
                        s[4 * half + number] = float32(-math.inf)
            low = int32(-1) if mine > 1 else int32(0xFFFF) if mine > 0 else int32(0)
            high = int32(-1) if mine > 3 else int32(0xFFFF) if mine > 2 else int32(0)
            for i in unrolled(2 * TILES):
                v[2 * i] &= low
                v[2 * i + 1] &= high
        # endregion
        left = int32(left - TOKENS * WARPS)

        for half in unrolled(HALVES):
            # region: online-softmax
            # region: running-max
            # The scores of a row lie in the four lanes with the same g.
            top = max(max(s[4 * half], s[4 * half + 1]), max(s[4 * half + 2], s[4 * half + 3]))
            top = max(top, cuda.shfl_xor_sync(FULL, top, 1))
            top = max(m[half], max(top, cuda.shfl_xor_sync(FULL, top, 2)))
            # endregion
            # region: running-rescale
            keep = exp2(m[half] - top)
            # endregion
            m[half] = top
            for number in unrolled(4):
                s[4 * half + number] = exp2(s[4 * half + number] - top)
            # region: running-sum
            total[half] = total[half] * keep + ((s[4 * half] + s[4 * half + 1]) + (s[4 * half + 2] + s[4 * half + 3]))
            # endregion
            # endregion
            # region: accumulate
            # Values times weights: the values' rows are head elements, and the weights are the second factor as they
            # are. What was summed before belongs to rows 2t and 2t + 1.
            weights0 = pack(s[4 * half], s[4 * half + 1])
            weights1 = pack(s[4 * half + 2], s[4 * half + 3])
            keep0 = cuda.shfl_sync(FULL, keep, 8 * t)
            keep1 = cuda.shfl_sync(FULL, keep, 8 * t + 4)
            for tile in unrolled(TILES):
                (
                    acc[4 * (half * TILES + tile)],
                    acc[4 * (half * TILES + tile) + 1],
                    acc[4 * (half * TILES + tile) + 2],
                    acc[4 * (half * TILES + tile) + 3],
                ) = mma(
                    v[4 * tile],
                    v[4 * tile + 2],
                    v[4 * tile + 1],
                    v[4 * tile + 3],
                    weights0,
                    weights1,
                    acc[4 * (half * TILES + tile)] * keep0,
                    acc[4 * (half * TILES + tile) + 1] * keep1,
                    acc[4 * (half * TILES + tile) + 2] * keep0,
                    acc[4 * (half * TILES + tile) + 3] * keep1,
                )
            # endregion

        if ahead < count:
            v_at = at + v_lane
            if EARLY:
                for i in unrolled(2 * TILES):
                    v[2 * i], v[2 * i + 1] = load_words_x2(v_cache, v_at + 8 * BLOCK_SIZE * i)
            else:
                for i in unrolled(2 * CHUNKS):
                    k[4 * i], k[4 * i + 1], k[4 * i + 2], k[4 * i + 3] = load_words_x4(
                        k_cache, k_at + 32 * BLOCK_SIZE * (i // 2) + 16 * (i % 2)
                    )

    # region: cross-warp-reduce
    # Each lane summed its own tokens. The pitch of a row keeps the lanes of a warp out of each other's banks.
    for half in unrolled(HALVES):
        total[half] += cuda.shfl_xor_sync(FULL, total[half], 1)
        total[half] += cuda.shfl_xor_sync(FULL, total[half], 2)
        place = warp * SHARE + (8 * half + 2 * t) * PITCH + g
        for tile in unrolled(TILES):
            shares[place + 16 * tile] = acc[4 * (half * TILES + tile)]
            shares[place + 16 * tile + PITCH] = acc[4 * (half * TILES + tile) + 1]
            shares[place + 16 * tile + 8] = acc[4 * (half * TILES + tile) + 2]
            shares[place + 16 * tile + 8 + PITCH] = acc[4 * (half * TILES + tile) + 3]
        if t == 0:
            shares[MAXIMA + warp * 8 * HALVES + 8 * half + g] = m[half]
            shares[TOTALS + warp * 8 * HALVES + 8 * half + g] = total[half]
    cuda.syncthreads()

    # Merge the warps.
    for element in range(thread, GROUP * HEAD_SIZE, THREADS):
        member = element // HEAD_SIZE
        column = element % HEAD_SIZE
        top = float32(-math.inf)
        for other in range(WARPS):
            top = max(top, shares[MAXIMA + other * 8 * HALVES + member])
        share = float32(0)
        value = float32(0)
        for other in range(WARPS):
            here = shares[MAXIMA + other * 8 * HALVES + member]
            weight = exp2(here - top) if here != float32(-math.inf) else float32(0)
            share += weight * shares[TOTALS + other * 8 * HALVES + member]
            value += weight * shares[other * SHARE + member * PITCH + column]
        # endregion
        # region: output-write
        if num_splits == 1:
            out[head * HEAD_SIZE + element] = uint16(pack(value / share if share != 0 else float32(0), float32(0)))
        # endregion
        else:
            # region: partition-stats
            place = (head + member) * num_splits + split
            partial[place * HEAD_SIZE + column] = value
            if column == 0:
                stats[2 * place] = top
                stats[2 * place + 1] = share
            # endregion


def launches(call: Decode, zeros: Zeros = np.zeros, plan: Plan | None = None) -> tuple[Launch, ...]:
    """The launches of a decode call: attention, and with several splits their merge.

    Up to 16 query heads a KV head, a head size that is a multiple of 32 and at most 256, blocks of 16 or 32, at most 8
    warps (for blocks of 32 rounded up to an even number); no fp8 cache, one query a sequence. Groups above 8 at head
    sizes above 128 do not fit into the registers and are slow. Raises ArgumentError. Source: our own; splits as in
    FlashDecoding.
    """
    call.need("kv_cache_dtype", call.kv_cache_dtype, call.kv_cache_dtype == "auto", "must be auto")
    call.need("query_len", call.query_len, call.query_len == 1, "must be 1")
    size, block_size = call.head_size, call.block_size
    call.need("head_size", size, size % 32 == 0 and size <= 256, "must be a multiple of 32, at most 256")
    call.need("num_kv_heads", call.num_kv_heads, call.group <= ROWS, f"makes groups above {ROWS}")
    call.need("block_size", block_size, block_size in (16, 32), "must be 16 or 32: a product takes 16 tokens")
    plan = plan or plan_for(call)
    call.need("balance", plan.balance, not plan.balance, "must be False: splits have one length")
    pieces = block_size // TOKENS
    warps = -(-plan.warps // pieces) * pieces
    call.need("warps", plan.warps, warps <= MOST_WARPS, f"must be at most {MOST_WARPS}")
    rows = call.num_seqs * call.num_heads * plan.splits if plan.splits > 1 else 0
    partial, stats = zeros(max(1, rows * size), np.float32), zeros(max(1, 2 * rows), np.float32)
    # An array of its own: what is handed over twice would be copied back from a GPU twice.
    slopes = zeros(1, np.float32) if call.alibi_slopes is None else call.alibi_slopes
    attention = Launch(
        kernel_for(size, block_size, call.group, call.scalar, warps, call.alibi_slopes is not None),
        (plan.splits, call.num_kv_heads, call.num_seqs), 32 * warps,
        (
            codes(call.out), partial, stats, codes(call.query), codes(call.key_cache), codes(call.value_cache),
            flat(call.block_tables), call.seq_lens, slopes,
            np.float32(call.scale * math.log2(math.e)), call.num_kv_heads, call.block_tables.shape[1], plan.splits,
        ),
        shared_bytes(size, call.group, warps),
    )  # fmt: skip
    if plan.splits == 1:
        return (attention,)
    return attention, merge_launch(call, partial, stats, plan.splits)


def plan_for(call: Decode, multiprocessors: int = MULTIPROCESSORS) -> Plan:
    """Splits enough to fill the multiprocessors, and a second one where the last round would be a short one."""
    blocks = max(1, call.num_seqs * call.num_kv_heads)
    # By the registers of a thread, with four warps.
    room = multiprocessors * (4 if call.head_size <= 64 else 3 if call.head_size <= 128 else 2)
    if 4 * blocks <= multiprocessors:
        warps, splits = 8, multiprocessors // blocks
    else:
        warps, splits = 4, room // blocks if blocks <= room else 2 if blocks < 2 * room else 1
    return Plan(splits=max(1, min(splits, -(-call.max_seq_len // (TOKENS * warps)))), warps=warps)


def kernel_for(head_size: int, block_size: int, group: int, scalar: str, warps: int, alibi: bool = False) -> Kernel:
    """The kernel for these sizes, written out; the same object each time."""
    return unroll(
        paged_decode_tensor_cores, HEAD_SIZE=head_size, BLOCK_SIZE=block_size, GROUP=group, FORMAT=scalar, WARPS=warps,
        ALIBI=alibi,
    )  # fmt: skip
