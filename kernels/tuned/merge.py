"""What the parts of a sequence left, made one row: the second kernel of rungs 3, 4 and 6.

A part leaves its output times its sum of weights, that sum, and the score by which it weighed. A part counts by two to
the power of its score less the largest of all.
"""

from __future__ import annotations

import math
from typing import Any

from numba import cuda, float32, uint16

from kernels.kernel import Kernel, kernel
from kernels.ptx import exp2, pack_bf16
from kernels.tuned.call import Decode, Launch
from kernels.tuned.piece import FORMATS, codes
from kernels.unroll import unroll, unrolled

# Template parameters: `unroll` puts the real values in their place.
HEAD_SIZE, AT_ONCE = 128, 8
pack = pack_bf16


def _constexpr(HEAD_SIZE: int, FORMAT: str) -> dict[str, Any]:
    return {"pack": FORMATS[FORMAT]["pack"], "AT_ONCE": 8}


@kernel(_constexpr)
def paged_decode_merge(
    out,  # [num_seqs, num_heads, HEAD_SIZE] 16-bit codes
    partial,  # [num_seqs, num_heads, num_parts, HEAD_SIZE] float32
    stats,  # [num_seqs, num_heads, num_parts, 2] float32: largest score, sum of weights
    num_parts,
):
    """One thread block: a query head of a sequence, a thread an element; grid (num_heads, num_seqs)."""
    # What each part counts, and behind it that times its sum.
    shared = cuda.shared.array(0, float32)
    element = cuda.threadIdx.x
    head = cuda.blockIdx.y * cuda.gridDim.x + cuda.blockIdx.x
    # region: v2-merge
    row = head * num_parts
    top = float32(-math.inf)
    for part in range(num_parts):
        top = max(top, stats[2 * (row + part)])
    for part in range(element, num_parts, HEAD_SIZE):
        here = stats[2 * (row + part)]
        weight = exp2(here - top) if here > float32(-math.inf) else float32(0)
        shared[part] = weight
        shared[num_parts + part] = weight * stats[2 * (row + part) + 1]
    cuda.syncthreads()

    total = float32(0)
    value = float32(0)
    for first in range(0, num_parts, AT_ONCE):
        # Several loads at once: none waits for the one before. A part without tokens wrote nothing.
        for i in unrolled(AT_ONCE):
            part = min(first + i, num_parts - 1)
            found = partial[(row + part) * HEAD_SIZE + element]
            if first + i < num_parts and shared[part] > 0:
                total += shared[num_parts + part]
                value += shared[part] * found
    # endregion
    # region: output-write
    out[head * HEAD_SIZE + element] = uint16(pack(value / total if total > 0 else float32(0), float32(0)))
    # endregion


def merge_launch(call: Decode, partial: Any, stats: Any, num_parts: int) -> Launch:
    """The launch that follows one which wrote `partial` and `stats`."""
    kernel: Kernel = unroll(paged_decode_merge, HEAD_SIZE=call.head_size, FORMAT=call.scalar)
    args = (codes(call.out), partial, stats, num_parts)
    return Launch(kernel, (call.num_heads, call.num_seqs, 1), call.head_size, args, 2 * num_parts * 4)
