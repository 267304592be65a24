"""The end of the ring kernel: what its warps found becomes one result, and the splits' results become the output.

Each part has a maximum, a sum and an output of its own. A part counts by two to the power of its maximum less the
largest of all.
"""

from __future__ import annotations

import math

from numba import cuda, float32, int32, int64, uint16

from kernels.kernel import device
from kernels.ptx import exp2, pack_bf16

FULL = 0xFFFFFFFF
HEAD_SIZE, GROUP, QUERY_LEN, WARPS = 128, 8, 1, 4
COLUMNS = USED = PITCH = TOTALS = TOPS = TURN = 1
pack_out = pack_bf16


@device
def weight_of(maximum, top):
    """What a part counts; one that saw no token counts nothing."""
    return exp2(maximum - top) if maximum > float32(-math.inf) else float32(0)


@device
def store(out, seq, kv_head, num_kv_heads, column, element, value):
    """Round an element of a column's output and write it."""
    row = (seq * QUERY_LEN + column // GROUP) * (num_kv_heads * GROUP) + kv_head * GROUP + column % GROUP
    out[int64(row) * HEAD_SIZE + element] = uint16(pack_out(value, float32(0)))


@device
def merge_warps(out, partial, stats, shares, seq, kv_head, num_kv_heads, warp, lane, place, parts, value_scale):
    """Add the warps' shares up: into the output if the sequence has one part, else into this part's place."""
    pieces = int32((HEAD_SIZE + 31) // 32)
    # region: cross-warp-reduce
    for unit in range(warp, int32(USED * pieces), int32(WARPS)):
        column = int32(unit // pieces)
        element = int32(unit % pieces * 32 + lane)
        if element < HEAD_SIZE:
            total = float32(0)
            value = float32(0)
            for other in range(WARPS):
                total += shares[TOTALS + other * COLUMNS + column]
                value += shares[(other * COLUMNS + column) * PITCH + element]
            if parts == 1:
                done = value * value_scale / total if total > 0 else float32(0)
                store(out, seq, kv_head, num_kv_heads, column, element, done)
            else:
                at = (int64(place) * num_kv_heads + kv_head) * USED + column
                partial[at * HEAD_SIZE + element] = value
                if element == 0:
                    stats[2 * at] = shares[TOPS + column]
                    stats[2 * at + 1] = total
    # endregion


@device
def comes_last(turns, shares, number, parts, thread):
    """Whether this thread block is the last of its sequence's parts; the counter is back at zero then."""
    cuda.threadfence()
    cuda.syncthreads()
    if thread == 0:
        shares[TURN] = float32(cuda.atomic.inc(turns, number, parts - 1))
    cuda.syncthreads()
    last = shares[TURN] == float32(parts - 1)
    if last:
        cuda.threadfence()
    return last


@device
def merge_splits(out, partial, stats, seq, kv_head, num_kv_heads, warp, lane, base, parts, value_scale):
    """Merge a sequence's parts: a warp takes 32 elements of a column, whose lanes first look at a part each."""
    step = int64(num_kv_heads) * USED
    pieces = int32((HEAD_SIZE + 31) // 32)
    # region: v2-merge
    for unit in range(warp, int32(USED * pieces), int32(WARPS)):
        column = int32(unit // pieces)
        element = int32(unit % pieces * 32 + lane)
        first = (int64(base) * num_kv_heads + kv_head) * USED + column
        top = float32(-math.inf)
        for part in range(lane, parts, int32(32)):
            top = max(top, stats[2 * (first + part * step)])
        for fold in range(5):
            top = max(top, cuda.shfl_xor_sync(FULL, top, 1 << fold))
        total = float32(0)
        value = float32(0)
        at = first
        for _ in range(parts):
            weight = weight_of(stats[2 * at], top)
            total += weight * stats[2 * at + 1]
            if element < HEAD_SIZE:
                value += weight * partial[at * HEAD_SIZE + element]
            at += step
        # endregion
        if element < HEAD_SIZE:
            store(
                out, seq, kv_head, num_kv_heads, column, element,
                value * value_scale / total if total > 0 else float32(0),
            )  # fmt: skip
