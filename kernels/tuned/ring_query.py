"""bfloat16 queries beside an fp8 cache: as float16 numbers, which is what fp8 codes are widened to."""

from __future__ import annotations

from kernels.kernel import device
from kernels.ptx import as_float, pack_f16

HIGH = -0x10000
"""The upper half of a word."""


@device
def widest(word):
    """The larger of two bfloat16 numbers in a word, without signs."""
    return max(abs(as_float(word << 16)), abs(as_float(word & HIGH)))


@device
def to_f16(word, factor):
    """Two bfloat16 numbers times a factor as two float16 numbers."""
    return pack_f16(as_float(word << 16) * factor, as_float(word & HIGH) * factor)
