"""The last rung: tensor cores fed by the copy engine, one ring of KV blocks a warp.

A KV block of one head lies in one piece: 4 KB of keys, 4 KB of values at head size 128. So one thread asks for it, and
the copy engine brings it to shared memory while the warp works on an earlier one. Each warp has a ring of its own, and
no warp waits for another until the end.

Products are taken the wide way round: keys times queries, values times weights. Sixteen tokens (or head elements) are
the rows of a tensor-core product, and the query heads of a KV head its eight columns, so no row is wasted. Keys in
vLLM's x layout lie as `ldmatrix` wants them: eight elements of sixteen tokens, side by side.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import cuda, float32, int32, int64, uint16

from kernels.errors import ArgumentError
from kernels.kernel import Backend, Kernel, kernel
from kernels.ptx import (
    bulk_load,
    exp2,
    ldmatrix_x4,
    load_word,
    mbarrier_expect,
    mbarrier_fence,
    mbarrier_init,
    mbarrier_passed,
    mma_bf16,
    mma_f16,
    pack_bf16,
    pack_f16,
    transpose_8x8,
)
from kernels.tuned.plan import Plan, Workspace
from kernels.unroll import registers, unroll, unrolled
from kernels.vllm import check
from kernels.vllm.strided import flat

FULL = 0xFFFFFFFF
COLUMNS = 8
"""Query heads that a product has columns for."""
FORMATS = {"uint16": (mma_bf16, pack_bf16), "float16": (mma_f16, pack_f16)}
"""By the dtype of the arrays: uint16 holds bfloat16."""


def _constexpr(HEAD_SIZE: int, BLOCK_SIZE: int, GROUP: int, FORMAT: str, WARPS: int, DEPTH: int) -> dict[str, Any]:
    product, pack = FORMATS[FORMAT]
    half = HEAD_SIZE * BLOCK_SIZE
    return {
        "mma": product,
        "pack": pack,
        "STEPS": HEAD_SIZE // 16,
        "SUMS": 4 * (HEAD_SIZE // 16),
        "PIECES": BLOCK_SIZE // 16,
        "HALF": half,
        "STAGE": 2 * half,
        "RING": 2 * half * DEPTH,
        "BARRIERS": exchange_bytes(HEAD_SIZE, BLOCK_SIZE, WARPS, DEPTH) // 8,
        "THREADS": 32 * WARPS,
        "SHARE": COLUMNS * HEAD_SIZE,
        "MAXIMA": WARPS * COLUMNS * HEAD_SIZE,
        "TOTALS": WARPS * COLUMNS * HEAD_SIZE + WARPS * COLUMNS,
        "LAST_TURN": WARPS * COLUMNS * HEAD_SIZE + 2 * WARPS * COLUMNS,
    }


def exchange_bytes(head_size: int, block_size: int, warps: int, depth: int) -> int:
    """Bytes of the rings, or of what the warps exchange at the end, which takes their place: whole 8 bytes."""
    rings = warps * depth * 2 * head_size * block_size * 2
    shares = (warps * COLUMNS * (head_size + 2) + 2) * 4
    return max(rings, shares)


def shared_bytes(head_size: int, block_size: int, warps: int, depth: int) -> int:
    """Bytes of dynamic shared memory.

    The barriers lie behind the rings, not in an array of their own: that would come first, and the rings would no
    longer begin on 128 bytes.
    """
    return exchange_bytes(head_size, block_size, warps, depth) + 8 * warps * depth


# Template parameters: `specialise` puts the real values in their place.
HEAD_SIZE, BLOCK_SIZE, GROUP, WARPS, DEPTH = 128, 16, 8, 4, 3
STEPS = SUMS = PIECES = HALF = STAGE = RING = BARRIERS = THREADS = SHARE = MAXIMA = TOTALS = LAST_TURN = 1
mma, pack = mma_bf16, pack_bf16


@kernel(_constexpr)
def paged_decode_ring(
    out,  # [num_seqs, num_heads, HEAD_SIZE] 16-bit codes
    partial,  # [num_seqs, num_heads, num_splits, HEAD_SIZE] float32
    stats,  # [num_seqs, num_heads, num_splits, 2] float32: maximum and sum
    turns,  # [num_seqs, num_kv_heads] uint32, zeros, and zeros again afterwards
    q,  # [num_seqs, num_heads, HEAD_SIZE] 16-bit codes
    k_cache,  # [num_blocks, num_kv_heads, HEAD_SIZE / 8, BLOCK_SIZE, 8] 16-bit codes
    v_cache,  # [num_blocks, num_kv_heads, HEAD_SIZE, BLOCK_SIZE] 16-bit codes
    block_tables,  # [num_seqs, max_num_blocks_per_seq] int32
    seq_lens,  # [num_seqs] int32
    scale,  # of the scores, times log2(e): exponentials are to base 2
    num_kv_heads,
    max_num_blocks_per_seq,
    num_splits,
):
    """One thread block: a split of one sequence and one KV head; grid (num_splits, num_kv_heads, num_seqs)."""
    ring = cuda.shared.array(0, uint16)
    shares = cuda.shared.array(0, float32)  # the same bytes, once the ring is done with
    barriers = cuda.shared.array(0, int64)  # behind both
    thread = cuda.threadIdx.x
    lane = thread % 32
    warp = thread // 32
    g = lane // 4
    t = lane % 4
    split = cuda.blockIdx.x
    kv_head = cuda.blockIdx.y
    seq = cuda.blockIdx.z
    num_heads = num_kv_heads * GROUP

    # This warp's KV blocks: first + warp, and every WARPS-th from there, below `last`.
    length = seq_lens[seq]
    num_blocks = (length + BLOCK_SIZE - 1) // BLOCK_SIZE
    span = (num_blocks + num_splits - 1) // num_splits
    first = split * span
    last = min(first + span, num_blocks)
    count = max(0, (last - first - warp + WARPS - 1) // WARPS)
    row = seq * max_num_blocks_per_seq + first + warp

    mine = warp * RING
    bar = BARRIERS + warp * DEPTH
    if lane == 0:
        for stage in range(DEPTH):
            mbarrier_init(barriers, bar + stage, 1)
        mbarrier_fence()
    cuda.syncwarp()

    # One load brings 32 entries of the block table, and the next 32 are on their way.
    entries = int32(0)
    if lane < count:
        entries = block_tables[row + lane * WARPS]
    coming = int32(0)
    if 32 + lane < count:
        coming = block_tables[row + (32 + lane) * WARPS]
    for ahead in range(min(DEPTH, count)):
        physical_block = cuda.shfl_sync(FULL, entries, ahead)
        if lane == 0:
            source = (int64(physical_block) * num_kv_heads + kv_head) * HALF
            target = mine + ahead * STAGE
            mbarrier_expect(barriers, bar + ahead, 2 * STAGE)
            bulk_load(ring, target, k_cache, source, 2 * HALF, barriers, bar + ahead)
            bulk_load(ring, target + HALF, v_cache, source, 2 * HALF, barriers, bar + ahead)

    # The queries as the second factor: column g is query head g of the group. Columns past the group repeat its last.
    q_low = registers(STEPS)
    q_high = registers(STEPS)
    q_at = (seq * num_heads + kv_head * GROUP + min(g, GROUP - 1)) * HEAD_SIZE + 2 * t
    for step in unrolled(STEPS):
        q_low[step] = load_word(q, q_at + 16 * step)
        q_high[step] = load_word(q, q_at + 16 * step + 8)

    # Running maximum, sum and output of columns 2t and 2t + 1; the output's rows are 16 step + g and 8 below.
    m0 = float32(-math.inf)
    m1 = float32(-math.inf)
    l0 = float32(0)
    l1 = float32(0)
    acc = registers(SUMS)
    for number in unrolled(SUMS):
        acc[number] = float32(0)

    # Lane 8j + r names row r of matrix j: the matrices are (tokens or head elements) 0-7 and 8-15, left, then right.
    k_row = (lane // 16) * (8 * BLOCK_SIZE) + (lane % 16) * 8
    v_row = (lane % 16) * BLOCK_SIZE + (lane // 16) * 8
    stage = int32(0)
    parity = int32(0)
    for turn in range(count):
        while mbarrier_passed(barriers, bar + stage, parity) == 0:
            pass
        keys = mine + stage * STAGE
        values = keys + HALF
        token = (first + warp + turn * WARPS) * BLOCK_SIZE
        if token + BLOCK_SIZE > length:
            # What lies behind the last token may be NaN, and zero times NaN is NaN.
            for element in range(lane, HEAD_SIZE, 32):
                for behind in range(length - token, BLOCK_SIZE):
                    ring[values + element * BLOCK_SIZE + behind] = uint16(0)
            cuda.syncwarp()
        for piece in unrolled(PIECES):
            # Scores of tokens g and g + 8 of the piece, columns 2t and 2t + 1.
            s0 = float32(0)
            s1 = float32(0)
            s2 = float32(0)
            s3 = float32(0)
            for step in unrolled(STEPS):
                a0, a1, a2, a3 = ldmatrix_x4(ring, keys + k_row + 128 * piece + 16 * BLOCK_SIZE * step)
                s0, s1, s2, s3 = mma(a0, a1, a2, a3, q_low[step], q_high[step], s0, s1, s2, s3)
            s0 *= scale
            s1 *= scale
            s2 *= scale
            s3 *= scale
            if token + 16 * piece + 16 > length:
                if token + 16 * piece + g >= length:
                    s0 = float32(-math.inf)
                    s1 = float32(-math.inf)
                if token + 16 * piece + g + 8 >= length:
                    s2 = float32(-math.inf)
                    s3 = float32(-math.inf)
            # The maximum of a column lies in the eight lanes with the same t.
            x0 = max(s0, s2)
            x1 = max(s1, s3)
            for fold in unrolled(3):
                x0 = max(x0, cuda.shfl_xor_sync(FULL, x0, 4 << fold))
                x1 = max(x1, cuda.shfl_xor_sync(FULL, x1, 4 << fold))
            x0 = max(x0, m0)
            x1 = max(x1, m1)
            keep0 = exp2(m0 - x0)
            keep1 = exp2(m1 - x1)
            p0 = exp2(s0 - x0)
            p1 = exp2(s1 - x1)
            p2 = exp2(s2 - x0)
            p3 = exp2(s3 - x1)
            m0 = x0
            m1 = x1
            l0 = l0 * keep0 + p0 + p2
            l1 = l1 * keep1 + p1 + p3
            # The weights come out as rows; the second factor wants them as columns.
            b0 = transpose_8x8(pack(p0, p1))
            b1 = transpose_8x8(pack(p2, p3))
            for step in unrolled(STEPS):
                a0, a1, a2, a3 = ldmatrix_x4(ring, values + v_row + 16 * piece + 16 * BLOCK_SIZE * step)
                acc[4 * step], acc[4 * step + 1], acc[4 * step + 2], acc[4 * step + 3] = mma(
                    a0,
                    a1,
                    a2,
                    a3,
                    b0,
                    b1,
                    acc[4 * step] * keep0,
                    acc[4 * step + 1] * keep1,
                    acc[4 * step + 2] * keep0,
                    acc[4 * step + 3] * keep1,
                )
        # Every lane has read the stage: it may be written again.
        cuda.syncwarp()
        ahead = turn + DEPTH
        if ahead < count:
            if ahead % 32 == 0:
                entries = coming
                coming = int32(0)
                if ahead + 32 + lane < count:
                    coming = block_tables[row + (ahead + 32 + lane) * WARPS]
            physical_block = cuda.shfl_sync(FULL, entries, ahead % 32)
            if lane == 0:
                source = (int64(physical_block) * num_kv_heads + kv_head) * HALF
                mbarrier_expect(barriers, bar + stage, 2 * STAGE)
                bulk_load(ring, keys, k_cache, source, 2 * HALF, barriers, bar + stage)
                bulk_load(ring, values, v_cache, source, 2 * HALF, barriers, bar + stage)
        stage += 1
        if stage == DEPTH:
            stage = int32(0)
            parity ^= 1

    # Each lane summed its own tokens.
    for fold in unrolled(3):
        l0 += cuda.shfl_xor_sync(FULL, l0, 4 << fold)
        l1 += cuda.shfl_xor_sync(FULL, l1, 4 << fold)
    cuda.syncthreads()
    share = warp * SHARE + 2 * t * HEAD_SIZE + g
    for step in unrolled(STEPS):
        shares[share + 16 * step] = acc[4 * step]
        shares[share + 16 * step + HEAD_SIZE] = acc[4 * step + 1]
        shares[share + 16 * step + 8] = acc[4 * step + 2]
        shares[share + 16 * step + 8 + HEAD_SIZE] = acc[4 * step + 3]
    if g == 0:
        shares[MAXIMA + warp * COLUMNS + 2 * t] = m0
        shares[MAXIMA + warp * COLUMNS + 2 * t + 1] = m1
        shares[TOTALS + warp * COLUMNS + 2 * t] = l0
        shares[TOTALS + warp * COLUMNS + 2 * t + 1] = l1
    cuda.syncthreads()

    # Merge the warps.
    head = seq * num_heads + kv_head * GROUP
    for element in range(thread, GROUP * HEAD_SIZE, THREADS):
        column = element // HEAD_SIZE
        top = float32(-math.inf)
        for other in range(WARPS):
            top = max(top, shares[MAXIMA + other * COLUMNS + column])
        total = float32(0)
        value = float32(0)
        for other in range(WARPS):
            here = shares[MAXIMA + other * COLUMNS + column]
            weight = exp2(here - top) if here > float32(-math.inf) else float32(0)
            total += weight * shares[TOTALS + other * COLUMNS + column]
            value += weight * shares[other * SHARE + element]
        if num_splits == 1:
            out[head * HEAD_SIZE + element] = uint16(pack(value / total if total > 0 else float32(0), float32(0)))
        else:
            place = (head + column) * num_splits + split
            partial[place * HEAD_SIZE + element % HEAD_SIZE] = value
            if element % HEAD_SIZE == 0:
                stats[2 * place] = top
                stats[2 * place + 1] = total
    if num_splits == 1:
        return

    # Whoever comes last merges the splits; its turn also puts the counter back to zero.
    cuda.threadfence()
    cuda.syncthreads()
    if thread == 0:
        turn = cuda.atomic.inc(turns, seq * num_kv_heads + kv_head, num_splits - 1)
        shares[LAST_TURN] = float32(turn)
    cuda.syncthreads()
    if shares[LAST_TURN] < float32(num_splits - 1):
        return
    cuda.threadfence()
    for element in range(thread, GROUP * HEAD_SIZE, THREADS):
        place = (head + element // HEAD_SIZE) * num_splits
        top = float32(-math.inf)
        for other in range(num_splits):
            top = max(top, stats[2 * (place + other)])
        total = float32(0)
        value = float32(0)
        for other in range(num_splits):
            here = stats[2 * (place + other)]
            weight = exp2(here - top) if here > float32(-math.inf) else float32(0)
            total += weight * stats[2 * (place + other) + 1]
            value += weight * partial[(place + other) * HEAD_SIZE + element % HEAD_SIZE]
        out[head * HEAD_SIZE + element] = uint16(pack(value / total if total > 0 else float32(0), float32(0)))


def paged_decode(
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
    *,
    cut: Plan,
    workspace: Workspace,
    backend: str | Backend = "sim",
    entry: Any = None,
) -> None:
    """Decode attention; `out` is written in place.

    The arguments are those of `classic_v1.paged_attention_v1`, in float16 or bfloat16 (uint16 codes), with 1 to 8 query
    heads a KV head, a head size that is a multiple of 16, and blocks of 16 or 32. `entry` may be a probed kernel.
    Raises ArgumentError, LaunchError. Source: our own; FlashDecoding's splits, the layout of vLLM's classic kernels.
    """
    one = np.ones(1, np.float32)
    check.decode(
        out, query, key_cache, value_cache, num_kv_heads, block_tables, seq_lens, block_size, max_seq_len, "auto", one,
        one,
    )  # fmt: skip
    for name, array in (("query", query), ("key_cache", key_cache), ("value_cache", value_cache)):
        check.shape(name, array, tuple(array.shape), (str(array.dtype),))
    num_seqs, num_heads, head_size = query.shape
    group = num_heads // num_kv_heads
    if str(query.dtype) not in FORMATS:
        raise ArgumentError("query.dtype", query.dtype, f"must be {' or '.join(FORMATS)} (uint16 holds bfloat16)")
    if group > COLUMNS:
        raise ArgumentError("num_kv_heads", num_kv_heads, f"{num_heads} query heads make groups above {COLUMNS}")
    if head_size % 16:
        raise ArgumentError("head_size", head_size, "must be a multiple of 16")
    if block_size not in (16, 32):
        raise ArgumentError("block_size", block_size, "must be 16 or 32: a product takes sixteen tokens")
    made = entry or kernel_for(head_size, block_size, group, str(query.dtype), cut)
    shared = shared_bytes(head_size, block_size, cut.warps, cut.depth)
    launcher = made.on(backend).opt_in(shared)
    launcher[(cut.splits, num_kv_heads, num_seqs), 32 * cut.warps, 0, shared](
        codes(out), workspace.partial, workspace.stats, workspace.turns, codes(query), codes(key_cache),
        codes(value_cache), flat(block_tables), seq_lens, np.float32(scale * math.log2(math.e)), num_kv_heads,
        block_tables.shape[1], cut.splits,
    )  # fmt: skip


def kernel_for(head_size: int, block_size: int, group: int, dtype: str, cut: Plan) -> Kernel:
    """The kernel for these sizes, written out; the same object each time."""
    return unroll(
        paged_decode_ring, HEAD_SIZE=head_size, BLOCK_SIZE=block_size, GROUP=group, FORMAT=dtype, WARPS=cut.warps,
        DEPTH=cut.depth,
    )  # fmt: skip


def codes(array: Any) -> Any:
    """An array of 16-bit numbers as a row of their codes, over the same memory."""
    return flat(array).view(np.uint16)
