"""Number formats that NumPy lacks: bfloat16, and the two fp8 of CUDA, kept as uint16 and uint8.

The device functions convert one value inside a kernel, on both backends; `encode` and `decode` convert arrays on the
host. To the narrow format: nearest, ties to even. fp8 saturates, as vLLM's conversions do: what is too large, an
infinity too, becomes the largest finite number. A NaN becomes the one pattern that the hardware gives.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from numba import float32, int32, int64, uint8, uint16
from numba.cuda import libdevice

from kernels.errors import ArgumentError
from kernels.kernel import device


@dataclass(frozen=True)
class Format:
    """A narrow float: sign, exponent, `mantissa` bits, in an unsigned integer of `storage`.

    `largest`: the code of the largest finite number; `nan`: the code that a conversion gives for a NaN.
    """

    name: str
    storage: np.dtype[Any]
    mantissa: int
    bias: int
    largest: int
    nan: int


BFLOAT16 = Format("bfloat16", np.dtype(np.uint16), 7, 127, 0x7F7F, 0x7FFF)
FP8_E4M3 = Format("fp8_e4m3", np.dtype(np.uint8), 3, 7, 0x7E, 0x7F)
FP8_E5M2 = Format("fp8_e5m2", np.dtype(np.uint8), 2, 15, 0x7B, 0x7F)
FORMATS = {made.name: made for made in (BFLOAT16, FP8_E4M3, FP8_E5M2)}


# In a kernel.


@device
def bfloat16_to_float32(code):
    """The float32 of a bfloat16 code: the same bits with sixteen zeros below."""
    return libdevice.int_as_float(int32(int64(code) << 16))


@device
def float32_to_bfloat16(value):
    """The bfloat16 code nearest to a float32, as uint16; beyond the range an infinity."""
    bits = int64(libdevice.float_as_int(float32(value))) & 0xFFFFFFFF
    if bits & 0x7FFFFFFF > 0x7F800000:
        return uint16(0x7FFF)
    # Half of the last kept place, less one unless that place is odd: a tie goes to even.
    return uint16((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16)


@device
def narrow(value, mantissa, bias, largest):
    """The fp8 code nearest to a float32, as int64, saturated at `largest`."""
    bits = int64(libdevice.float_as_int(float32(value))) & 0xFFFFFFFF
    magnitude = bits & 0x7FFFFFFF
    if magnitude > 0x7F800000:
        return int64(0x7F)
    exponent = (magnitude >> 23) - 127
    significand = (magnitude & 0x7FFFFF) | 0x800000
    # Below the smallest normal number the exponent stays and the number loses bits instead. A float32 that is
    # itself subnormal is far below that: with or without its leading bit it rounds to zero.
    kept_exponent = max(exponent, 1 - bias)
    drop = min(23 - mantissa + kept_exponent - exponent, 26)
    kept = (significand + (1 << (drop - 1)) - 1 + ((significand >> drop) & 1)) >> drop
    # `kept` holds the leading bit, which counts one exponent step; so does a carry out of the mantissa.
    code = ((kept_exponent + bias - 1) << mantissa) + kept
    return min(code, largest) | ((bits >> 24) & 0x80)


@device
def widen(code, mantissa, bias):
    """The float32 of a finite fp8 code."""
    exponent = (int64(code) & 0x7F) >> mantissa
    fraction = int64(code) & ((1 << mantissa) - 1)
    if exponent == 0:
        # Subnormal: so many steps of the smallest one.
        magnitude = float32(fraction) * libdevice.int_as_float(int32((1 - bias - mantissa + 127) << 23))
    else:
        magnitude = libdevice.int_as_float(int32(((exponent - bias + 127) << 23) | (fraction << (23 - mantissa))))
    return -magnitude if int64(code) & 0x80 else magnitude


@device
def float32_to_fp8_e4m3(value):
    """The e4m3 code nearest to a float32, as uint8; 448 is the largest, there is no infinity."""
    return uint8(narrow(value, 3, 7, 0x7E))


@device
def float32_to_fp8_e5m2(value):
    """The e5m2 code nearest to a float32, as uint8; saturated at 57344."""
    return uint8(narrow(value, 2, 15, 0x7B))


@device
def fp8_e4m3_to_float32(code):
    """The float32 of an e4m3 code; 0x7F and 0xFF are NaN."""
    if int64(code) & 0x7F == 0x7F:
        return libdevice.int_as_float(int32(0x7FFFFFFF))
    return widen(code, 3, 7)


@device
def fp8_e5m2_to_float32(code):
    """The float32 of an e5m2 code; 0x7C is infinity, above it are NaN."""
    if int64(code) & 0x7F > 0x7C:
        return libdevice.int_as_float(int32(0x7FFFFFFF))
    if int64(code) & 0x7F == 0x7C:
        infinity = libdevice.int_as_float(int32(0x7F800000))
        return -infinity if int64(code) & 0x80 else infinity
    return widen(code, 2, 15)


# On the host, by another way: a table of all fp8 values, searched.


def _table(kind: Format) -> npt.NDArray[np.float64]:
    """The values of codes 0 to `largest`, in ascending order."""
    codes = np.arange(kind.largest + 1)
    exponent, fraction = codes >> kind.mantissa, codes & (1 << kind.mantissa) - 1
    normal = np.ldexp(1.0 + fraction / (1 << kind.mantissa), exponent - kind.bias)
    subnormal = np.ldexp(fraction / (1 << kind.mantissa), 1 - kind.bias)
    return np.where(exponent > 0, normal, subnormal)


_TABLES = {kind.name: _table(kind) for kind in (FP8_E4M3, FP8_E5M2)}


def encode(values: Any, name: str) -> npt.NDArray[Any]:
    """Float values of any shape as codes of `bfloat16`, `fp8_e4m3` or `fp8_e5m2`, as the device functions give them.

    Values are taken as float32 first. Raises ArgumentError for another name.
    """
    kind = format_of(name)
    single = np.asarray(values, np.float32)
    if kind is BFLOAT16:
        bits = single.view(np.uint32).astype(np.uint64)
        codes = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16
    else:
        table = _TABLES[name]
        middles = (table[:-1] + table[1:]) / 2  # exact in float64
        magnitude = np.where(np.isnan(single), 0, np.abs(single)).astype(np.float64)
        below, above = np.searchsorted(middles, magnitude, "left"), np.searchsorted(middles, magnitude, "right")
        codes = (np.where(below % 2 == 0, below, above) | np.where(np.signbit(single), 0x80, 0)).astype(np.uint64)
    return np.where(np.isnan(single), kind.nan, codes).astype(kind.storage)


def decode(codes: Any, name: str) -> npt.NDArray[np.float32]:
    """Codes of any shape as float32; exact. Raises ArgumentError for another name or another dtype than its storage."""
    kind = format_of(name)
    codes = np.asarray(codes)
    values: npt.NDArray[np.float32]
    if codes.dtype != kind.storage:
        raise ArgumentError("codes.dtype", codes.dtype.name, f"must be {kind.storage.name}, which holds {name}")
    if kind is BFLOAT16:
        values = (codes.astype(np.uint32) << 16).view(np.float32)
        return values
    table = np.full(128, np.nan)
    table[: kind.largest + 1] = _TABLES[name]
    if kind is FP8_E5M2:
        table[kind.largest + 1] = np.inf
    values = np.where(codes & 0x80, -table[codes & 0x7F], table[codes & 0x7F]).astype(np.float32)
    return values


def format_of(name: str) -> Format:
    """The format of that name; raises ArgumentError."""
    if name not in FORMATS:
        raise ArgumentError("format", name, f"must be one of {', '.join(FORMATS)}")
    return FORMATS[name]
