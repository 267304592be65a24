"""The libdevice functions against exact arithmetic, and their NaN and infinity rules; the scalar types."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kernels.simt import ScalarType, libdevice, scalar_type, stand_in

INF, NAN = np.float32(np.inf), np.float32(np.nan)
finite = st.floats(width=32, allow_nan=False, allow_infinity=False)
any_float = st.floats(width=32)
MAX = float(np.finfo(np.float32).max)


def nearest_float32(exact):
    """The float32 nearest to a fraction, ties to even, by comparing neighbours exactly."""
    if abs(exact) >= Fraction(MAX) + Fraction(2) ** 103:
        return math.copysign(math.inf, exact)
    guess = np.float32(min(max(float(exact), -MAX), MAX))
    near = {float(guess)}
    for away in (INF, -INF):
        with np.errstate(over="ignore"):
            step = np.nextafter(guess, away)
        if np.isfinite(step):
            near.add(float(step))
    best = min(abs(Fraction(v) - exact) for v in near)
    ties = [v for v in near if abs(Fraction(v) - exact) == best]
    return next((v for v in ties if np.float32(v).view(np.uint32) % 2 == 0), ties[0])


@given(finite, finite, finite)
@example(1.0, 1.0, 2.0**-24)  # a tie
@example(1.0, 1.0, 2.0**-24 + 2.0**-47)  # just above it
@example(1.0 + 2.0**-23, 1.0 - 2.0**-24, 2.0**-70)  # float64 alone would call it a tie
@example(4097.0, 4097.0, 2.0**-60)
@example(2.0**-100, 2.0**-49, 2.0**-149)  # below the normal range
def test_fma_rounds_once(x, y, z):
    exact = Fraction(x) * Fraction(y) + Fraction(z)
    with np.errstate(all="ignore"):
        got = libdevice.fmaf_rn(np.float32(x), np.float32(y), np.float32(z))
    assert type(got) is np.float32
    assert float(got) == nearest_float32(exact)


def test_fma_differs_from_multiply_and_add():
    a = np.float32(1 + 2.0**-12)
    assert libdevice.fmaf_rn(a, a, -a * a) == np.float32(2.0**-24)
    assert a * a - a * a == 0


def test_fma_of_specials():
    with np.errstate(all="ignore"):
        assert libdevice.fmaf_rn(INF, np.float32(2), np.float32(1)) == INF
        assert np.isnan(libdevice.fmaf_rn(INF, np.float32(0), np.float32(1)))
        assert np.isnan(libdevice.fmaf_rn(NAN, np.float32(0), np.float32(1)))
        assert libdevice.fmaf(np.float32(3e38), np.float32(2), np.float32(0)) == INF


@given(st.floats(-1e100, 1e100), st.floats(-1e100, 1e100), st.floats(-1e100, 1e100))
def test_fma_of_float64_rounds_once(x, y, z):
    got = libdevice.fma(np.float64(x), y, z)
    assert got == float(Fraction(x) * Fraction(y) + Fraction(z))
    assert type(got) is np.float64


def test_fma_of_float64_specials():
    assert libdevice.fma(1e308, 10.0, 0.0) == np.inf
    assert libdevice.fma(-1e308, 10.0, 0.0) == -np.inf
    assert np.isnan(libdevice.fma(np.nan, 1.0, 1.0))
    assert math.copysign(1, libdevice.fma(-0.0, 1.0, -0.0)) == -1


def test_fma_of_float32_stays_float32():
    assert type(libdevice.fma(np.float32(1), np.float32(2), np.float32(3))) is np.float32
    assert type(libdevice.fma(np.float32(1), 2.0, np.float32(3))) is np.float64


@given(st.floats(-110, 95, width=32))
@example(88.72283172607422)
@example(88.7228393554687500)
def test_exp_is_the_nearest_float32_of_the_float64_one(x):
    with np.errstate(all="raise", under="ignore"):
        got = libdevice.fast_expf(np.float32(x))
    exact = math.exp(x)
    assert type(got) is np.float32
    assert float(got) == (math.inf if exact > MAX * (1 + 2.0**-25) else nearest_float32(Fraction(exact)))


def test_exp_of_specials():
    assert libdevice.expf(INF) == INF
    assert libdevice.expf(-INF) == 0
    assert np.isnan(libdevice.expf(NAN))
    assert libdevice.expf(np.float32(1e30)) == INF
    assert libdevice.expf(np.float32(-np.finfo(np.float32).max)) == 0


@given(any_float, any_float)
def test_max_and_min_ignore_nan(x, y):
    with np.errstate(invalid="ignore"):
        top = libdevice.fmaxf(np.float32(x), np.float32(y))
        low = libdevice.fminf(np.float32(x), np.float32(y))
        expected = float(np.fmax(np.float32(x), np.float32(y))), float(np.fmin(np.float32(x), np.float32(y)))
    assert (type(top), type(low)) == (np.float32, np.float32)
    assert np.array_equal([float(top), float(low)], expected, equal_nan=True)


def test_max_takes_other_number_types():
    assert type(libdevice.fmaxf(np.float16(2), 3)) is np.float32
    assert libdevice.fmaxf(np.float16(2), 3) == 3
    assert libdevice.fminf(np.float32(2), -3.5) == -3.5


@given(st.floats(0, width=32, allow_infinity=False))
def test_sqrt_is_rounded_to_nearest(x):
    got = libdevice.sqrtf(np.float32(x))
    assert type(got) is np.float32
    assert got == np.sqrt(np.float32(x))


def test_sqrt_of_specials():
    assert np.isnan(libdevice.sqrtf(np.float32(-1)))
    assert libdevice.sqrtf(INF) == INF
    assert np.isnan(libdevice.sqrtf(NAN))


@given(finite, finite)
def test_division(x, y):
    a, b = np.float32(x), np.float32(y)
    with np.errstate(all="ignore"):
        exact = a / b
        got, fast = libdevice.fdividef(a, b), libdevice.fast_fdividef(a, b)
    assert np.array_equal(got, exact, equal_nan=True)
    assert np.array_equal(fast, 0 if abs(y) > 2.0**126 else exact, equal_nan=True)


def test_division_of_specials():
    with np.errstate(all="ignore"):
        assert libdevice.fast_fdividef(np.float32(1), np.float32(0)) == INF
        assert np.isnan(libdevice.fast_fdividef(np.float32(0), np.float32(0)))
        assert np.isnan(libdevice.fast_fdividef(INF, np.float32(2.0**127)))
        assert libdevice.fast_fdividef(np.float32(1), INF) == 0


# Scalar types.


@pytest.mark.parametrize("name", ["float16", "float32", "float64", "int32", "int64", "uint8"])
def test_a_scalar_type_converts_like_numpy(name):
    kind = scalar_type(name)
    assert kind is scalar_type(np.dtype(name)) is scalar_type(kind)
    assert (kind.name, kind.bitwidth, repr(kind)) == (name, np.dtype(name).itemsize * 8, name)
    for value in (3, np.int64(5), 2.5, np.float32(1.25), np.float16(0.5), True):
        got = kind(value)
        assert type(got) is np.dtype(name).type
        assert got == np.array(value).astype(name)
    same = np.dtype(name).type(7)
    assert kind(same) is same


def test_integer_casts_wrap():
    assert scalar_type("int32")(2**31) == -(2**31)
    assert scalar_type("uint8")(-1) == 255
    assert scalar_type("int32")(np.int64(2**33 + 5)) == 5


class NumbaLike:
    name, bitwidth = "float16", 16


class NotANumber:
    name, bitwidth = "no such type", 16


def test_only_number_types_get_a_stand_in():
    assert stand_in(NumbaLike()) is scalar_type("float16")
    strange = NotANumber()
    for value in (strange, 3, "float32", np.float32, libdevice, None, scalar_type("int8")):
        assert stand_in(value) is value


def test_numbas_types_get_a_stand_in():
    numba = pytest.importorskip("numba")
    assert stand_in(numba.float32) is scalar_type(np.float32)
    assert stand_in(numba.int64) is scalar_type(np.int64)
    assert isinstance(stand_in(numba.types.float16), ScalarType)
