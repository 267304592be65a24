"""The wider set of libdevice functions, and casts of floats to integers, against exact or float64 arithmetic."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kernels.simt import cuda, launch, libdevice, scalar_type

INF, NAN = np.float32(np.inf), np.float32(np.nan)
any_float = st.floats(width=32)


def nearest_float32(exact):
    """The float32 nearest to a fraction inside the range, ties to even, by comparing neighbours exactly."""
    guess = np.float32(float(exact))
    near = [np.nextafter(guess, -INF), guess, np.nextafter(guess, INF)]
    return float(min(near, key=lambda v: (abs(Fraction(float(v)) - exact), v.view(np.uint32) % 2)))


# The value is the nearest float32 of an exact or float64 one, and nothing raises or warns.

SINGLE = {
    "exp2f": lambda x: 2.0**x,
    "exp10f": lambda x: 10.0**x,
    "fast_exp10f": lambda x: 10.0**x,
    "expm1f": math.expm1,
    "logf": math.log,
    "fast_logf": math.log,
    "log2f": math.log2,
    "fast_log2f": math.log2,
    "log10f": math.log10,
    "fast_log10f": math.log10,
    "log1pf": math.log1p,
    "rsqrtf": lambda x: 1 / math.sqrt(x),
    "frsqrt_rn": lambda x: 1 / math.sqrt(x),
    "fsqrt_rn": math.sqrt,
    "frcp_rn": lambda x: 1 / x,
    "tanhf": math.tanh,
    "fabsf": abs,
    "floorf": math.floor,
    "ceilf": math.ceil,
    "truncf": math.trunc,
    "rintf": round,
    "roundf": lambda x: math.floor(x + 0.5),
    "cbrtf": math.cbrt,
}
DOUBLE = {
    "exp": math.exp,
    "exp2": lambda x: 2.0**x,
    "exp10": lambda x: 10.0**x,
    "expm1": math.expm1,
    "log": math.log,
    "log2": math.log2,
    "log10": math.log10,
    "log1p": math.log1p,
    "sqrt": math.sqrt,
    "rsqrt": lambda x: 1 / math.sqrt(x),
    "tanh": math.tanh,
    "fabs": abs,
    "floor": math.floor,
    "ceil": math.ceil,
    "trunc": math.trunc,
    "rint": round,
    "round": lambda x: math.floor(x + 0.5),
    "cbrt": math.cbrt,
}


@pytest.mark.parametrize("name", SINGLE)
@given(st.floats(0.00390625, 30, width=32))
@example(2.5)
@example(1.0)
def test_float32_functions(name, x):
    got = getattr(libdevice, name)(np.float32(x))
    exact = SINGLE[name](x)
    assert type(got) is np.float32
    # Two float64 libraries may differ in their last place, which a float32 shows only next to a tie.
    assert got in {np.float32(exact * (1 + e)) for e in (-(2.0**-51), 0, 2.0**-51)}


@pytest.mark.parametrize("name", DOUBLE)
@given(st.floats(0.01, 30))
@example(2.5)
def test_float64_functions(name, x):
    got = getattr(libdevice, name)(x)
    assert type(got) is np.float64
    assert got == pytest.approx(DOUBLE[name](x), rel=1e-15)


@pytest.mark.parametrize("name", [*SINGLE, *DOUBLE])
def test_no_function_raises_for_specials(name):
    for x in (np.inf, -np.inf, np.nan, 0.0, -0.0, -1.0, 1e30, -1e30):
        value = getattr(libdevice, name)(np.float32(x) if name in SINGLE else x)
        assert type(value) is (np.float32 if name in SINGLE else np.float64)
        assert not np.isnan(x) or np.isnan(value)


def test_specials_written_down():
    assert libdevice.exp2f(np.float32(128)) == INF
    assert libdevice.exp2f(np.float32(-149)) == np.float32(2.0**-149)
    assert libdevice.exp2f(np.float32(-151)) == 0
    assert libdevice.logf(np.float32(0)) == -INF
    assert np.isnan(libdevice.logf(np.float32(-1)))
    assert libdevice.rsqrtf(np.float32(0)) == INF
    assert libdevice.rsqrtf(INF) == 0
    assert libdevice.frcp_rn(np.float32(-0.0)) == -INF
    assert libdevice.roundf(np.float32(-2.5)) == -3
    assert libdevice.rintf(np.float32(-2.5)) == -2
    assert libdevice.roundf(np.float32(0.49999997)) == 0  # adding a half in float32 would give 1
    assert libdevice.round(0.49999999999999994) == 0  # and here in float64


@given(st.floats(0.125, 9, width=32), st.floats(-9, 9, width=32))
def test_functions_of_two(x, y):
    a, b = np.float32(x), np.float32(y)
    assert libdevice.powf(a, b) == pytest.approx(x**y, rel=1e-6)
    assert libdevice.copysignf(a, b) == math.copysign(x, y)
    assert libdevice.fadd_rn(a, b) == a + b
    assert libdevice.fmul_rn(a, b) == a * b
    assert (libdevice.fmax(x, y), libdevice.fmin(x, y)) == (max(x, y), min(x, y))
    assert (libdevice.fmax(NAN, y), libdevice.fmin(x, NAN)) == (y, x)
    assert libdevice.saturatef(b) == min(max(y, 0), 1)
    assert libdevice.saturatef(NAN) == 0


@given(st.integers(0, 2**32 - 1))
def test_bits_of_floats_come_back(bits):
    signed = np.uint32(bits).astype(np.int32)
    value = libdevice.int_as_float(signed)
    assert type(value) is np.float32
    assert libdevice.float_as_int(value) == signed
    assert type(libdevice.float_as_int(value)) is np.int32
    assert libdevice.isnanf(value) == (bits & 0x7FFFFFFF > 0x7F800000)
    assert libdevice.isinff(value) == (bits & 0x7FFFFFFF == 0x7F800000)


def test_every_float16_by_its_bits():
    for bits in range(0, 1 << 16, 7):
        signed = np.uint16(bits).astype(np.int16)
        value = libdevice.half2float(signed)
        assert type(value) is np.float32
        if value == value:
            assert libdevice.float2half_rn(value) == signed
            assert value == np.float32(np.uint16(bits).view(np.float16))
    assert libdevice.float2half_rn(np.float32(65520)) == 0x7C00


@given(any_float)
@example(2147483520.0)
@example(-2147483648.0)
@example(2.5)
@example(-0.5)
def test_conversions_to_integers_clamp(x):
    for name, low, high in (("int", -(2**31), 2**31 - 1), ("uint", 0, 2**32 - 1)):
        for mode, whole in (("rz", math.trunc), ("rn", round)):
            got = getattr(libdevice, f"float2{name}_{mode}")(np.float32(x))
            exact = 0 if x != x else low if x < low else high if x > high else min(max(whole(x), low), high)
            assert got == exact
            assert got.dtype == f"{name}32"


@given(st.integers(-(2**31), 2**31 - 1))
@example(16777217)
@example(2147483583)
def test_int2float_rounds_once(x):
    got = libdevice.int2float_rn(np.int32(x))
    assert type(got) is np.float32
    assert float(got) == nearest_float32(Fraction(x))


@given(st.floats(width=64), st.sampled_from(["int8", "uint8", "int16", "int32", "uint32", "int64", "uint64"]))
def test_casts_of_floats_clamp_in_32_or_64_bits(x, name):
    dtype = np.dtype(name)
    wide = max(32, 8 * dtype.itemsize)
    low, high = (-(2 ** (wide - 1)), 2 ** (wide - 1) - 1) if dtype.kind == "i" else (0, 2**wide - 1)
    if x == x:
        whole = low if x <= low else high if x >= high else math.trunc(x)
        bits = whole & (1 << 8 * dtype.itemsize) - 1
        assert scalar_type(name)(x) == np.array([bits], np.uint64).astype(dtype)[0]
    else:
        bits = 1 << wide - 1 & (1 << 8 * dtype.itemsize) - 1
        assert scalar_type(name)(x) == np.array([bits], np.uint64).astype(dtype)[0]


# float16.

halves = st.floats(width=16, allow_nan=False, allow_infinity=False)


def nearest_half(exact):
    """The float16 nearest to a fraction, ties to even, by comparing neighbours exactly."""
    if abs(exact) >= 65520:
        return math.copysign(math.inf, exact)
    guess = np.float16(min(max(float(exact), -65504.0), 65504.0))
    near = {float(guess)} | {float(v) for v in (np.nextafter(guess, np.float16(a)) for a in (-np.inf, np.inf))}
    near = [v for v in near if math.isfinite(v)]
    return min(near, key=lambda v: (abs(Fraction(v) - exact), np.float16(v).view(np.uint16) % 2))


@given(halves, halves, halves)
@example(1.0, 2.0**-11, 1.0)  # a tie
@example(2.0**-10 + 1, 2.0**-11, 1.0)
@example(2.0**-24, 2.0**-24, 1 + 2.0**-10)  # float64 alone would lose the product
@example(255.875, 256.0, 16.0)
@example(2.0**-20, 2.0**-4, 2.0**-24)
def test_half_fma_rounds_once(x, y, z):
    with np.errstate(all="ignore"):
        got = cuda.fp16.hfma(np.float16(x), y, z)
        assert type(got) is np.float16
        assert float(got) == nearest_half(Fraction(x) * Fraction(y) + Fraction(z))


@given(halves, halves)
def test_half_arithmetic_rounds_once(x, y):
    with np.errstate(all="ignore"):
        fp16, a, b = cuda.fp16, Fraction(x), Fraction(y)
        assert float(fp16.hadd(x, y)) == nearest_half(a + b)
        assert float(fp16.hsub(x, y)) == nearest_half(a - b)
        assert float(fp16.hmul(x, y)) == nearest_half(a * b)
        assert y == 0 or float(fp16.hdiv(x, y)) == nearest_half(a / b)
        assert (fp16.hneg(x), fp16.habs(x), fp16.hmax(x, y), fp16.hmin(x, y)) == (-x, abs(x), max(x, y), min(x, y))
        found = [getattr(fp16, name)(x, y) for name in ("heq", "hne", "hge", "hgt", "hle", "hlt")]
        assert found == [x == y, x != y, x >= y, x > y, x <= y, x < y]


def test_half_of_nan_and_in_a_kernel():
    def kernel(x, out):
        i = cuda.threadIdx.x
        out[i] = cuda.fp16.hfma(x[i], x[i], np.float16(-1))

    x = (1 + np.arange(32) / 1024).astype(np.float16)
    out = np.zeros(32, np.float16)
    launch(kernel, 1, 32, (x, out))
    assert out.tolist() == [nearest_half(Fraction(float(v)) ** 2 - 1) for v in x]
    assert (x * x - np.float16(1)).tolist() != out.tolist()
    assert cuda.fp16.hmax(np.float16(np.nan), 1) == 1
    assert cuda.fp16.hmin(2, np.float16(np.nan)) == 2
    assert cuda.fp16.heq(0.1, np.float16(0.1)) is True
    assert cuda.fp16.hne(np.nan, np.nan) is True
