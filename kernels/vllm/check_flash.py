"""What the host code of the FlashAttention layout's writer checks before a launch.

The kernel takes bare addresses and strides: a cache of another shape is written all the same, somewhere.
"""

from __future__ import annotations

from typing import Any

from kernels import layout
from kernels.errors import ArgumentError
from kernels.vllm import check
from kernels.vllm.dtypes import SCALAR_TYPES, cache_dtype


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
    stored = (cache_dtype(key.dtype, kv_cache_dtype),)
    _view("key", key, (None, None, None), tuple(SCALAR_TYPES))
    rows, num_heads, head_size = key.shape
    _view("value", value, (rows, num_heads, head_size), (str(key.dtype),))
    for name, array in (("key", key), ("value", value)):
        if array.strides[1] != head_size * array.dtype.itemsize:
            raise ArgumentError(f"{name}.strides", array.strides, "must have a row's heads one behind the other")
    _view("key_cache", key_cache, (None, None, num_heads, head_size), stored)
    _view("value_cache", value_cache, key_cache.shape, stored)
    if key_cache.strides != value_cache.strides:
        raise ArgumentError("value_cache.strides", value_cache.strides, f"must be key_cache's, {key_cache.strides}")
    for name, factor in (("k_scale", k_scale), ("v_scale", v_scale)):
        check.scale(name, factor, kv_cache_dtype, (1, num_heads))
    if len(k_scale) != len(v_scale):
        raise ArgumentError("v_scale.shape", v_scale.shape, f"must be k_scale's, {k_scale.shape}")
    check.slots("slot_mapping", slot_mapping, rows, key_cache.shape[0] * key_cache.shape[1])
    # Below 32 threads there is no whole warp: in vLLM the loop over heads would then step by zero, for ever.
    threads = layout.writer_threads(num_heads, head_size, 1)
    if threads < layout.WARP_SIZE and not whole_rows(key_cache, k_scale):
        raise ArgumentError("head_size", head_size, f"gives {threads} threads; the loop over heads needs a whole warp")


def whole_rows(key_cache: Any, k_scale: Any) -> bool:
    """True where a token's heads are one run of the cache and have one scale: the kernel's short way."""
    return bool(key_cache.strides[2] == key_cache.shape[3] * key_cache.dtype.itemsize and len(k_scale) == 1)


def _view(name: str, array: Any, want: tuple[int | None, ...], dtypes: tuple[str, ...]) -> None:
    """Shape and dtype; the last axis in one piece, the others at any distance forwards."""
    size = array.dtype.itemsize
    check.kind(name, array, want, dtypes)
    if array.strides[-1] != size or min(array.strides) < size:
        raise ArgumentError(f"{name}.strides", array.strides, "must be positive, and one element on the last axis")
