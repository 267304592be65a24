"""Integers as the hardware's bit instructions see them: `popc`, `clz`, `ffs`, `brev`, and 32-bit results.

These answer by the width of their operand. A NumPy integer has one; a Python int stands for 64 bits, as Numba
types it. What Numba types as 32 bits wide but is a Python int here (ballots, masks) is an `Int32`.
"""

from __future__ import annotations

from typing import Any

import numpy as np


class Int32(int):
    """An int that is 32 bits wide until something is computed with it, which gives 64, as in Numba."""

    __slots__ = ()

    @classmethod
    def signed(cls, bits: int) -> Int32:
        """The two's complement number of 32 bits."""
        return cls(bits - (bits >> 31 << 32))


def _bits(value: Any, least: int = 8) -> tuple[int, int]:
    """The operand without a sign, and its width."""
    if isinstance(value, np.integer):
        width = max(least, 8 * value.itemsize)
    elif isinstance(value, int):
        width = 32 if isinstance(value, Int32) else 64
    else:
        raise TypeError(f"{value!r}: bit operations take integers")
    return int(value) & (1 << width) - 1, width


def popc(x: Any) -> int:
    """How many bits are set."""
    return _bits(x)[0].bit_count()


def clz(x: Any) -> int:
    """How many zeros stand above the highest set bit; the width for 0."""
    bits, width = _bits(x)
    return width - bits.bit_length()


def ffs(x: Any) -> int:
    """The place of the lowest set bit, counted from 1; 0 where none is set."""
    bits, _ = _bits(x)
    return (bits & -bits).bit_length()


def brev(x: Any) -> int:
    """The bits in reverse order, without a sign: 64 of a 64-bit operand, 32 of any other."""
    bits, width = _bits(x, least=32)
    turned = int(f"{bits:0{width}b}"[::-1], 2)
    return Int32(turned) if width == 32 else turned
