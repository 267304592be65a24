"""The `libdevice` functions of the ports, under Numba's names, with what a GPU does for NaN and infinity.

A name that ends in `f` takes and gives float32; the others float64. A GPU computes most of them to a few units in
the last place, here they are right to the last bit: results differ by that. The `fast_` ones likewise.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np

from kernels.simt import bits
from kernels.simt.memory import truncated

_box = np.empty(1, np.float32)
_bits = _box.view(np.int32)
_half = np.empty(1, np.float16)
_half_bits = _half.view(np.int16)
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


def exp2f(x: Any) -> Any:
    """2 to the x."""
    if x >= 128:
        return INFINITY
    _box[0] = math.pow(2.0, x)
    return _box[0]


def _single(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A float32 function by way of float64, which leaves one rounding that counts."""

    def rounded(x: Any) -> Any:
        with np.errstate(all="ignore"):
            _box[0] = function(np.float64(x))
        return _box[0]

    return rounded


def _double(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A float64 function."""

    def called(x: Any) -> Any:
        with np.errstate(all="ignore"):
            return function(np.float64(x))

    return called


def _reciprocal_root(x: Any) -> Any:
    return 1.0 / np.sqrt(x)


def _away(x: Any) -> Any:
    """To the nearest integer, halves away from zero; `np.round` takes them to even."""
    whole = np.trunc(x)
    return whole + np.copysign(1.0, x) if abs(x - whole) >= 0.5 else whole


exp, exp2, exp10 = _double(np.exp), _double(np.exp2), _double(lambda x: np.power(10.0, x))
exp10f = fast_exp10f = _single(lambda x: np.power(10.0, x))
expm1, expm1f = _double(np.expm1), _single(np.expm1)
log, log2, log10, log1p = _double(np.log), _double(np.log2), _double(np.log10), _double(np.log1p)
logf = fast_logf = _single(np.log)
log2f = fast_log2f = _single(np.log2)
log10f = fast_log10f = _single(np.log10)
log1pf = _single(np.log1p)
sqrt, rsqrt = _double(np.sqrt), _double(_reciprocal_root)
rsqrtf = frsqrt_rn = _single(_reciprocal_root)
frcp_rn = _single(np.reciprocal)
tanh, tanhf = _double(np.tanh), _single(np.tanh)
fabs, floor, ceil = _double(np.abs), _double(np.floor), _double(np.ceil)
trunc, rint, round = _double(np.trunc), _double(np.rint), _double(_away)
floorf, ceilf, truncf = _single(np.floor), _single(np.ceil), _single(np.trunc)
rintf, roundf = _single(np.rint), _single(_away)
cbrt, cbrtf = _double(np.cbrt), _single(np.cbrt)


def cbrt_of(x: Any) -> Any:
    """`cuda.cbrt`: the cube root, in the type of x."""
    return cbrtf(x) if x.__class__ is np.float32 else cbrt(x)


def fabsf(x: Any) -> Any:
    """The magnitude."""
    return _float32(abs(x))


def powf(x: Any, y: Any) -> Any:
    """x to the y."""
    with np.errstate(all="ignore"):
        return _float32(np.power(np.float64(x), np.float64(y)))


fast_powf = powf


def copysignf(x: Any, y: Any) -> Any:
    """The magnitude of x with the sign of y."""
    return _float32(math.copysign(x, y))


def saturatef(x: Any) -> Any:
    """x held between 0 and 1; a NaN gives 0."""
    return _float32(min(max(x, 0), 1) if x == x else 0)


def fdividef(x: Any, y: Any) -> Any:
    """x / y, rounded to nearest; division by zero gives an infinity or NaN."""
    return _float32(x) / _float32(y)


fdiv_rn = fdividef


def fast_fdividef(x: Any, y: Any) -> Any:
    """x / y, but 0 (NaN for infinite x) where the magnitude of y is above 2**126, as CUDA documents."""
    if 2.0**126 < abs(y) < math.inf:
        return NAN if math.isinf(x) else ZERO
    return _float32(x) / _float32(y)


def fadd_rn(x: Any, y: Any) -> Any:
    """x + y; a compiler does not merge it with a multiplication."""
    return _float32(x) + _float32(y)


def fmul_rn(x: Any, y: Any) -> Any:
    """x * y; a compiler does not merge it with an addition."""
    return _float32(x) * _float32(y)


def fmaxf(x: Any, y: Any) -> Any:
    """The larger; a NaN loses to a number."""
    larger = x if x >= y or y != y else y
    return larger if larger.__class__ is np.float32 else _float32(larger)


def fminf(x: Any, y: Any) -> Any:
    """The smaller; a NaN loses to a number."""
    smaller = x if x <= y or y != y else y
    return smaller if smaller.__class__ is np.float32 else _float32(smaller)


def fmax(x: Any, y: Any) -> Any:
    """The larger, in float64; a NaN loses to a number."""
    return np.float64(x if x >= y or y != y else y)


def fmin(x: Any, y: Any) -> Any:
    """The smaller, in float64; a NaN loses to a number."""
    return np.float64(x if x <= y or y != y else y)


def sqrtf(x: Any) -> Any:
    """Square root; NaN below zero."""
    if x < 0:
        return NAN
    return _float32(math.sqrt(x))


fsqrt_rn = sqrtf


def fused(x: Any, y: Any, z: Any, box: np.ndarray[Any, Any]) -> Any:
    """x * y + z with one rounding to the type of a one-element float16 or float32 array."""
    a, b, c = float(x), float(y), float(z)
    product = a * b  # exact: 24 + 24 bits fit into 53
    total = product + c
    shift = total - product
    lost = (product - (total - shift)) + (c - shift)  # what rounding to float64 dropped, exactly
    if lost != 0.0 and lost == lost and math.frexp(total)[0] * 2.0**53 % 2 == 0:
        # Rounding twice could take a near tie to the wrong side; an odd last bit keeps it right.
        total = math.nextafter(total, math.copysign(math.inf, lost))
    box[0] = total
    return box[0]


def fmaf_rn(x: Any, y: Any, z: Any) -> Any:
    """x * y + z with one rounding, to nearest."""
    return fused(x, y, z, _box)


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


# Bits and integers.

popc, popcll, clz, clzll = bits.popc, bits.popc, bits.clz, bits.clz
ffs, ffsll, brev, brevll = bits.ffs, bits.ffs, bits.brev, bits.brev


def float_as_int(x: Any) -> Any:
    """The bits of a float32 as an int32."""
    _box[0] = x
    return _bits[0]


def int_as_float(x: Any) -> Any:
    """The float32 with the bits of an int32."""
    _bits[0] = x
    return _box[0]


def float2half_rn(x: Any) -> Any:
    """The bits, as an int16, of the float16 nearest to a float32."""
    with np.errstate(all="ignore"):
        _half[0] = x
    return _half_bits[0]


def half2float(x: Any) -> Any:
    """The float32 of a float16 that is given by its bits."""
    _half_bits[0] = x
    return _float32(_half[0])


def float2int_rn(x: Any) -> Any:
    """Nearest int32, halves to even; what does not fit is clamped, a NaN gives 0."""
    return np.int32(truncated(np.rint(np.float32(x)), 32, True))


def float2int_rz(x: Any) -> Any:
    """The int32 next towards zero; what does not fit is clamped, a NaN gives 0."""
    return np.int32(truncated(np.float32(x), 32, True))


def float2uint_rn(x: Any) -> Any:
    """Nearest uint32, halves to even; what does not fit is clamped, a NaN gives 0."""
    return np.uint32(truncated(np.rint(np.float32(x)), 32, False))


def float2uint_rz(x: Any) -> Any:
    """The uint32 next towards zero; what does not fit is clamped, a NaN gives 0."""
    return np.uint32(truncated(np.float32(x), 32, False))


def int2float_rn(x: Any) -> Any:
    """Nearest float32, halves to even."""
    # NumPy's own conversion rounds once; by way of float64 it could round twice.
    return np.int64(x).astype(np.float32)


def isnanf(x: Any) -> int:
    """1 for a NaN, else 0."""
    return int(x != x)


def isinff(x: Any) -> int:
    """1 for an infinity, else 0."""
    return int(math.isinf(x))
