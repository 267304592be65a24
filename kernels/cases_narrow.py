"""Cases in the number formats that NumPy lacks: bfloat16 tensors, and fp8 caches with a scale.

A case is built in float32 with values that the narrow format holds exactly, so that every oracle works on it as it is;
`encoded` gives the codes that a kernel is handed. The rounding is `kernels.numbers.encode`, which the tests hold
against torch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from kernels import cases
from kernels.cases import Array, DecodeCase, WriteCase
from kernels.errors import ArgumentError
from kernels.numbers import decode, encode

SCALARS = ("float32", "float16", "bfloat16")
CACHES = {"auto": None, "fp8": "fp8_e4m3", "fp8_e4m3": "fp8_e4m3", "fp8_e5m2": "fp8_e5m2"}
"""The number format behind each `kv_cache_dtype`; None is the scalar type."""


@dataclass(frozen=True, eq=False)
class NarrowCase:
    """A decode step as numbers (`case`, float32) and as what a kernel is handed."""

    case: DecodeCase
    """The numbers that the codes stand for, scale included: exactly q, and keys and values but for their rounding to a
    16-bit scalar type."""
    q: Array
    """Queries, [num_seqs, num_heads, head_size], in the scalar type (uint16 codes for bfloat16)."""
    k_cache: Array
    """Paged keys with the cache type's own x: [num_blocks, num_kv_heads, head_size / x, block_size, x]."""
    v_cache: Array
    """Paged values, [num_blocks, num_kv_heads, head_size, block_size]."""
    kv_cache_dtype: str
    k_scale: npt.NDArray[np.float32]
    """Factor of every key code, [1]."""
    v_scale: npt.NDArray[np.float32]
    """Factor of every value code, [1]."""


def storage(scalar: str) -> np.dtype[Any]:
    """The NumPy dtype that holds a scalar type: its own, or uint16 for bfloat16; raises ArgumentError."""
    if scalar not in SCALARS:
        raise ArgumentError("scalar", scalar, f"must be one of {', '.join(SCALARS)}")
    return np.dtype(np.uint16) if scalar == "bfloat16" else np.dtype(scalar)


def pack(values: Any, scalar: str) -> Array:
    """Float values as the scalar type: rounded to nearest, bfloat16 as codes; raises ArgumentError."""
    if scalar == "bfloat16":
        return encode(values, "bfloat16")
    return np.asarray(values).astype(storage(scalar))


def unpack(array: Any, scalar: str) -> npt.NDArray[np.float32]:
    """What `pack` gave, as float32; exact."""
    held: npt.NDArray[np.float32] = (
        decode(array, "bfloat16") if scalar == "bfloat16" else np.asarray(array).astype(np.float32)
    )
    return held


def narrow_decode_case(
    seq_lens: Sequence[int],
    num_heads: int,
    num_kv_heads: int,
    head_size: int,
    block_size: int,
    scalar: str = "bfloat16",
    kv_cache_dtype: str = "auto",
    k_scale: float = 1.0,
    v_scale: float = 1.0,
    **more: Any,
) -> NarrowCase:
    """As `cases.decode_case`, with numbers that `scalar` and the cache hold exactly; NaN is the caches' poison.

    Raises ArgumentError, also for a head size that the cache's x does not divide.
    """
    kind = _format(kv_cache_dtype)
    scales = [np.full(1, factor, np.float32) for factor in (k_scale, v_scale)]
    case = cases.decode_case(seq_lens, num_heads, num_kv_heads, head_size, block_size, "float32", **more)
    x = cases.GROUP_BYTES // (1 if kind else storage(scalar).itemsize)
    if head_size % x:
        raise ArgumentError("head_size", head_size, f"must be divisible by x = {x}")

    def codes(values: Array, factor: Array) -> Array:
        return encode(values / factor, kind) if kind else pack(values, scalar)

    def numbers(array: Array, factor: Array, alone: bool = False) -> Array:
        if not kind:
            return unpack(array, scalar)
        read: Array = decode(array, kind) * factor
        # vLLM takes several codes at once to float32 by way of float16.
        return read.astype(np.float16).astype(np.float32) if scalar == "float32" and not alone else read

    one_by_one = block_size == 8  # so float32 keys are loaded there
    pools = cases.unpack_keys(case.k_cache), cases.unpack_values(case.v_cache)
    k_pool, v_pool = (codes(pool, factor) for pool, factor in zip(pools, scales, strict=True))
    keys = tuple(numbers(codes(rows, scales[0]), scales[0], one_by_one) for rows in case.keys)
    values = tuple(numbers(codes(rows, scales[1]), scales[1]) for rows in case.values)
    q = pack(case.q, scalar)
    exact = replace(
        case, q=unpack(q, scalar), keys=keys, values=values,
        k_cache=cases.pack_keys(numbers(k_pool, scales[0], one_by_one).astype(np.float32)),
        v_cache=cases.pack_values(numbers(v_pool, scales[1]).astype(np.float32)),
        name=f"{case.name}, {scalar}, cache {kv_cache_dtype}",
    )  # fmt: skip
    caches = cases.pack_keys(k_pool), cases.pack_values(v_pool)
    return NarrowCase(exact, q, *caches, kv_cache_dtype, *scales)


def narrow_write_case(
    num_tokens: int,
    num_heads: int,
    head_size: int,
    block_size: int,
    scalar: str = "bfloat16",
    kv_cache_dtype: str = "auto",
    **more: Any,
) -> WriteCase:
    """As `cases.write_case`, key and value in `scalar` and the caches in their own type, poisoned with 0xAA bytes."""
    kind = _format(kv_cache_dtype)
    case = cases.write_case(num_tokens, num_heads, head_size, block_size, "float32", **more)
    dtype = np.dtype(np.uint8) if kind else storage(scalar)
    x = cases.GROUP_BYTES // dtype.itemsize
    if head_size % x:
        raise ArgumentError("head_size", head_size, f"must be divisible by x = {x}")
    k_shape = (case.num_blocks, num_heads, head_size // x, block_size, x)
    v_shape = (case.num_blocks, num_heads, head_size, block_size)
    k_cache, v_cache = (np.full(np.prod(s) * dtype.itemsize, 0xAA, np.uint8).view(dtype) for s in (k_shape, v_shape))
    return replace(
        case, key=pack(case.key, scalar), value=pack(case.value, scalar), k_cache=k_cache.reshape(k_shape),
        v_cache=v_cache.reshape(v_shape), name=f"{case.name}, {scalar}, cache {kv_cache_dtype}",
    )  # fmt: skip


def stored(values: Array, scalar: str, kv_cache_dtype: str, scale: float) -> Array:
    """What a writer must store of `values` (in `scalar`): themselves, or the fp8 codes of the values over the scale."""
    kind = _format(kv_cache_dtype)
    return encode(unpack(values, scalar) / np.float32(scale), kind) if kind else values


def _format(kv_cache_dtype: str) -> str | None:
    if kv_cache_dtype not in CACHES:
        raise ArgumentError("kv_cache_dtype", kv_cache_dtype, f"must be one of {', '.join(CACHES)}")
    return CACHES[kv_cache_dtype]
