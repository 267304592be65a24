"""What the host code of the FlashAttention layout's writer checks before a launch.

The kernel takes bare addresses and strides: a cache of another shape is written all the same, somewhere.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from kernels import layout
from kernels.errors import ArgumentError
from kernels.vllm import check

KEY_DTYPES = ("float32", "float16", "uint16")
CACHE_DTYPES = ("auto", "fp8", "fp8_e4m3", "fp8_e5m2")


def write(
    key: Any,
    value: Any,
    key_cache: Any,
    value_cache: Any,
    slot_mapping: Any,
    kv_cache_dtype: str,
    k_scale: Any,
    v_scale: Any,
) -> None:
    """Everything that `reshape_and_cache_flash` assumes; raises ArgumentError at the first thing that is wrong."""
    if kv_cache_dtype not in CACHE_DTYPES:
        raise ArgumentError("kv_cache_dtype", kv_cache_dtype, f"must be one of {', '.join(CACHE_DTYPES)}")
    _view("key", key, (None, None, None), KEY_DTYPES)
    rows, num_heads, head_size = key.shape
    _view("value", value, (rows, num_heads, head_size), (str(key.dtype),))
    for name, array in (("key", key), ("value", value)):
        if array.strides[1] != head_size * array.itemsize:
            raise ArgumentError(f"{name}.strides", array.strides, "must have a row's heads one behind the other")
    dtype = str(key.dtype) if kv_cache_dtype == "auto" else "uint8"
    _view("key_cache", key_cache, (None, None, num_heads, head_size), (dtype,))
    _view("value_cache", value_cache, key_cache.shape, (dtype,))
    if key_cache.strides != value_cache.strides:
        raise ArgumentError("value_cache.strides", value_cache.strides, f"must be key_cache's, {key_cache.strides}")
    for name, scale in (("k_scale", k_scale), ("v_scale", v_scale)):
        check.shape(name, scale, (None,), ("float32",))
        if len(scale) not in (1, num_heads) or len(scale) != len(k_scale):
            raise ArgumentError(
                f"{name}.shape", scale.shape, f"must be (1) or ({num_heads}), for keys and values alike"
            )
        if kv_cache_dtype != "auto" and not (np.isfinite(scale) & (scale > 0)).all():
            raise ArgumentError(name, scale.tolist(), "must be finite and above zero")
    check.shape("slot_mapping", slot_mapping, (None,), ("int64",))
    if len(slot_mapping) > rows:
        raise ArgumentError("slot_mapping.shape", slot_mapping.shape, f"must not exceed the {rows} rows of key")
    slots = key_cache.shape[0] * key_cache.shape[1]
    for token, slot in enumerate(slot_mapping):
        if slot >= slots:
            raise ArgumentError(f"slot_mapping[{token}]", slot, f"must be below the {slots} slots of the cache")
    # Below 32 threads there is no whole warp: in vLLM the loop over heads would then step by zero, for ever.
    threads = layout.writer_threads(num_heads, head_size, 1)
    if threads < layout.WARP_SIZE and not whole_rows(key_cache, k_scale):
        raise ArgumentError("head_size", head_size, f"gives {threads} threads; the loop over heads needs a whole warp")


def whole_rows(key_cache: Any, k_scale: Any) -> bool:
    """True where a token's heads are one run of the cache and have one scale: the kernel's short way."""
    return bool(key_cache.strides[2] == key_cache.shape[3] * key_cache.itemsize and len(k_scale) == 1)


def _view(name: str, array: Any, want: tuple[int | None, ...], dtypes: tuple[str, ...]) -> None:
    """Shape and dtype; the last axis in one piece, the others at any distance forwards."""
    check.shape(name, np.empty(array.shape, array.dtype), want, dtypes)
    if array.strides[-1] != array.itemsize or min(array.strides) < array.itemsize:
        raise ArgumentError(f"{name}.strides", array.strides, "must be positive, and one element on the last axis")
