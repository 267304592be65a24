"""Element types of vLLM's classic kernels: how a number becomes a float32, a scalar_t or a cache element, and back.

The C++ chooses a conversion by overload and template; here a table names it and `specialise` puts it in its place.
bfloat16 is kept as its code in a uint16, fp8 in a uint8: see `kernels.numbers`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import float32, uint16
from numba.types import float16

from kernels.errors import ArgumentError
from kernels.kernel import device
from kernels.numbers import (
    bfloat16_to_float32,
    float32_to_bfloat16,
    float32_to_fp8_e4m3,
    float32_to_fp8_e5m2,
    fp8_e4m3_to_float32,
    fp8_e5m2_to_float32,
)

SCALAR_TYPES = {"float32": float32, "float16": float16, "uint16": uint16}
"""What holds a query, a new key or value, and an output, by the dtype's name; uint16 holds bfloat16."""
FP8 = {"fp8": "fp8_e4m3", "fp8_e4m3": "fp8_e4m3", "fp8_e5m2": "fp8_e5m2"}
"""The number format (`kernels.numbers`) behind each `kv_cache_dtype` but auto."""
CACHE_DTYPES = ("auto", *FP8)
"""`kv_cache_dtype`: auto keeps the scalar type."""

# Template parameters: `specialise` puts the real values in their place.
to_float = from_float = float32
to_fp8, from_fp8 = float32_to_fp8_e4m3, fp8_e4m3_to_float32


# region: fp8-read
@device
def scaled_convert(code, scale):
    """An fp8 code times its scale, as a scalar_t."""
    return from_float(from_fp8(code) * scale)


@device
def scaled_convert_by_half(code, scale):
    """An fp8 code times its scale, as a float32 that went through float16."""
    # vLLM has no conversion of several codes to float32 at once: it takes that to float16 and widens the result.
    return float32(float16(from_fp8(code) * scale))


# endregion


@device
def copy_auto(value, scale):
    """The element as it is."""
    return value


# region: flash-scales
@device
def copy_fp8(value, scale):
    """The element divided by its scale, as an fp8 code."""
    return to_fp8(to_float(value) / scale)


# endregion


def cache_itemsize(itemsize: int, kv_cache_dtype: str) -> int:
    """Bytes of a cache element: those of the scalar type, or one."""
    return itemsize if kv_cache_dtype == "auto" else 1


def cache_dtype(dtype: Any, kv_cache_dtype: str) -> str:
    """The NumPy dtype that a cache must have; raises ArgumentError for a `kv_cache_dtype` that vLLM does not know."""
    if kv_cache_dtype not in CACHE_DTYPES:
        raise ArgumentError("kv_cache_dtype", kv_cache_dtype, f"must be one of {', '.join(CACHE_DTYPES)}")
    return str(dtype) if kv_cache_dtype == "auto" else "uint8"


def conversions(dtype: str, kv_cache_dtype: str) -> dict[str, Any]:
    """The conversions of a kernel whose scalar type is `dtype` (a key of SCALAR_TYPES), for `specialise`."""
    wide = dtype == "uint16"
    e5m2 = kv_cache_dtype == "fp8_e5m2"
    auto = kv_cache_dtype == "auto"
    return {
        "KV_AUTO": auto,
        "scalar_t": SCALAR_TYPES[dtype],
        "to_float": bfloat16_to_float32 if wide else float32,
        "from_float": float32_to_bfloat16 if wide else SCALAR_TYPES[dtype],
        "to_fp8": float32_to_fp8_e5m2 if e5m2 else float32_to_fp8_e4m3,
        "from_fp8": fp8_e5m2_to_float32 if e5m2 else fp8_e4m3_to_float32,
        "convert": copy_auto if auto else copy_fp8,
    }


def reader(dtype: str, vector: int) -> Any:
    """The conversion from fp8 of `vector` codes that are loaded at once."""
    return scaled_convert_by_half if dtype == "float32" and vector > 1 else scaled_convert


def one_scale(scale: Any) -> Any:
    """The scale as it is, or [1.0] float32 for None."""
    return np.ones(1, np.float32) if scale is None else scale
