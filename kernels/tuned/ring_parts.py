"""What the ring kernel does in one word: ask for a KV block, mask a score, and bfloat16 queries beside an fp8 cache.

fp8 codes are widened to float16, so such queries become float16, too.
"""

from __future__ import annotations

import math

from numba import cuda, float32, int32

from kernels.kernel import device
from kernels.ptx import as_float, as_word, bulk_load, load_word, mbarrier_expect, pack_f16

FULL = 0xFFFFFFFF
HIGH = -0x10000
"""The upper half of a word."""
HEAD_SIZE = HALF = STAGE = 1


@device
def ask(ring, target, k_cache, v_cache, source, barriers, bar):
    """Announce the bytes of a KV block to its barrier, and have its keys and values brought to `target`."""
    mbarrier_expect(barriers, bar, 2 * STAGE)
    bulk_load(ring, target, k_cache, source, 2 * HALF, barriers, bar)
    bulk_load(ring, target + HALF, v_cache, source, 2 * HALF, barriers, bar)


@device
def seen(score, token, count):
    """The score of a token below `count`; less than nothing for one behind."""
    return score if token < count else float32(-math.inf)


@device
def two_to(power):
    """Two to a whole power from -126 to 127, exactly."""
    return as_float((power + 127) << 23)


@device
def widest(word):
    """The larger of two bfloat16 numbers in a word, without signs."""
    return max(abs(as_float(word << 16)), abs(as_float(word & HIGH)))


@device
def power_of(q, row, lane):
    """The exponent's field of the largest element of a query; four lanes side by side look at it together."""
    top = float32(0)
    for word in range(lane % 4, HEAD_SIZE // 2, 4):
        top = max(top, widest(load_word(q, row + 2 * word)))
    top = max(top, cuda.shfl_xor_sync(FULL, top, 1))
    top = max(top, cuda.shfl_xor_sync(FULL, top, 2))
    return int32(min(max(as_word(top) >> 23, 1), 253))


@device
def to_f16(word, power):
    """Two bfloat16 numbers times two to a power as two float16 numbers."""
    return pack_f16(as_float(word << 16) * two_to(power), as_float(word & HIGH) * two_to(power))
