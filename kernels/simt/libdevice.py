"""The `libdevice` functions of the ports: float32 in, float32 out, with what a GPU does for NaN and infinity.

The fast variants are computed to the last bit here and to a few units in the last place on a GPU; results
differ by that.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np

_box = np.empty(1, np.float32)
INFINITY = np.float32(np.inf)
NAN = np.float32(np.nan)
ZERO = np.float32(0)
OVERFLOW = np.float32(88.72284)  # the smallest x whose exponential is too large for float32


def _float32(value: Any) -> Any:
    """Nearest float32, ties to even; a store into an array is the fastest way there."""
    _box[0] = value
    return _box[0]


def expf(x: Any) -> Any:
    """e to the x."""
    if x >= OVERFLOW:
        return INFINITY
    _box[0] = math.exp(x)
    return _box[0]


fast_expf = expf


def fdividef(x: Any, y: Any) -> Any:
    """x / y, rounded to nearest; division by zero gives an infinity or NaN."""
    return _float32(x) / _float32(y)


def fast_fdividef(x: Any, y: Any) -> Any:
    """x / y, but 0 (NaN for infinite x) where the magnitude of y is above 2**126, as CUDA documents."""
    if 2.0**126 < abs(y) < math.inf:
        return NAN if math.isinf(x) else ZERO
    return _float32(x) / _float32(y)


def fmaxf(x: Any, y: Any) -> Any:
    """The larger; a NaN loses to a number."""
    larger = x if x >= y or y != y else y
    return larger if larger.__class__ is np.float32 else _float32(larger)


def fminf(x: Any, y: Any) -> Any:
    """The smaller; a NaN loses to a number."""
    smaller = x if x <= y or y != y else y
    return smaller if smaller.__class__ is np.float32 else _float32(smaller)


def sqrtf(x: Any) -> Any:
    """Square root; NaN below zero."""
    if x < 0:
        return NAN
    return _float32(math.sqrt(x))


def fmaf_rn(x: Any, y: Any, z: Any) -> Any:
    """x * y + z with one rounding, to nearest."""
    a, b, c = float(x), float(y), float(z)
    product = a * b  # exact: 24 + 24 bits fit into 53
    total = product + c
    shift = total - product
    lost = (product - (total - shift)) + (c - shift)  # what rounding to float64 dropped, exactly
    if lost != 0.0 and lost == lost and math.frexp(total)[0] * 2.0**53 % 2 == 0:
        # Rounding twice could take a near tie to the wrong side; an odd last bit keeps it right.
        total = math.nextafter(total, math.copysign(math.inf, lost))
    _box[0] = total
    return _box[0]


fmaf = fmaf_rn


def fma(x: Any, y: Any, z: Any) -> Any:
    """x * y + z with one rounding, in the widest of the three types: float32, or else float64."""
    if all(isinstance(v, np.float32 | np.float16) for v in (x, y, z)):
        return fmaf_rn(x, y, z)
    a, b, c = float(x), float(y), float(z)
    if not all(map(math.isfinite, (a, b, c))):
        return np.float64(a * b + c)
    exact = Fraction(a) * Fraction(b) + Fraction(c)
    if not exact:
        return np.float64(a * b + c)  # keeps the sign of zero
    try:
        return np.float64(float(exact))
    except OverflowError:
        return np.float64(math.inf if exact > 0 else -math.inf)
