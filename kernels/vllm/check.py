"""What the host code of the ports checks before a launch.

A kernel that reads past a block table gives garbage or a crash, never a message; here the argument, the place in it
and the value are named before anything runs. Lengths, block numbers and slots are looked at where they lie in host
memory; what lies on the GPU is taken at its word, as vLLM does: looking would stop the GPU.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from kernels import layout
from kernels.errors import ArgumentError
from kernels.vllm.dtypes import SCALAR_TYPES, cache_dtype, cache_itemsize

__all__ = ["SCALAR_TYPES", "decode", "kind", "scale", "shape", "slots", "view", "write"]


def shape(name: str, array: Any, want: tuple[int | None, ...], dtypes: tuple[str, ...]) -> None:
    """Shape (None: any size), dtype and contiguity of one array; raises ArgumentError."""
    view(name, array, want, dtypes, free=0)


def kind(name: str, array: Any, want: tuple[int | None, ...], dtypes: tuple[str, ...]) -> None:
    """Shape (None: any size) and dtype; raises ArgumentError."""
    got = tuple(array.shape)
    if len(got) != len(want) or any(w is not None and w != g for w, g in zip(want, got, strict=True)):
        must = ", ".join("any" if w is None else str(w) for w in want)
        raise ArgumentError(f"{name}.shape", got, f"must be ({must})")
    if str(array.dtype) not in dtypes:
        raise ArgumentError(f"{name}.dtype", array.dtype, f"must be {' or '.join(dtypes)}")


def view(name: str, array: Any, want: tuple[int | None, ...], dtypes: tuple[str, ...], *, free: int) -> None:
    """As `shape`, but the first `free` axes may lie at any distance forwards."""
    kind(name, array, want, dtypes)
    got = array.shape
    if 0 in got:
        return
    dense = array.dtype.itemsize
    for axis in reversed(range(len(got))):
        step = array.strides[axis]
        if got[axis] < 2:
            continue  # Nobody takes a step along it.
        if step < dense or step % array.dtype.itemsize or (axis >= free and step != dense):
            after = f" after {'its first axis' if free == 1 else f'its first {free} axes'}" if free else ""
            must = f"must be contiguous{after}; pass numpy.ascontiguousarray(...)"
            raise ArgumentError(f"{name}.strides", array.strides, must)
        dense = step * got[axis]


def scale(name: str, value: Any, kv_cache_dtype: str, sizes: tuple[int, ...] = (1,)) -> None:
    """A scale: float32, as many as `sizes` allows, and for an fp8 cache finite and above zero; raises ArgumentError."""
    shape(name, value, (None,), ("float32",))
    if len(value) not in sizes:
        raise ArgumentError(f"{name}.shape", value.shape, f"must be ({') or ('.join(map(str, sizes))})")
    if kv_cache_dtype != "auto" and isinstance(value, np.ndarray) and not (np.isfinite(value) & (value > 0)).all():
        raise ArgumentError(name, value.tolist(), "must be finite and above zero")


def decode(
    out: Any,
    query: Any,
    key_cache: Any,
    value_cache: Any,
    num_kv_heads: int,
    block_tables: Any,
    seq_lens: Any,
    block_size: int,
    max_seq_len: int,
    kv_cache_dtype: str,
    k_scale: Any,
    v_scale: Any,
) -> None:
    """Everything the decode kernels assume of their arguments; raises ArgumentError at the first that is wrong."""
    view("query", query, (None, None, None), tuple(SCALAR_TYPES), free=1)
    num_seqs, num_heads, head_size = query.shape
    if num_kv_heads < 1 or num_heads % num_kv_heads:
        raise ArgumentError("num_kv_heads", num_kv_heads, f"must divide the {num_heads} query heads")
    stored = (cache_dtype(query.dtype, kv_cache_dtype),)
    x = layout.x_of(cache_itemsize(query.dtype.itemsize, kv_cache_dtype))
    if head_size % x:
        raise ArgumentError("head_size", head_size, f"must be a multiple of x = {x}")
    shape("out", out, (num_seqs, num_heads, head_size), (str(query.dtype),))
    view("key_cache", key_cache, (None, num_kv_heads, head_size // x, block_size, x), stored, free=2)
    num_blocks = key_cache.shape[0]
    view("value_cache", value_cache, (num_blocks, num_kv_heads, head_size, block_size), stored, free=2)
    _same_steps(key_cache, value_cache, 2)
    shape("block_tables", block_tables, (num_seqs, None), ("int32",))
    shape("seq_lens", seq_lens, (num_seqs,), ("int32",))
    for name, value in (("k_scale", k_scale), ("v_scale", v_scale)):
        scale(name, value, kv_cache_dtype)
    if isinstance(seq_lens, np.ndarray) and isinstance(block_tables, np.ndarray):
        _tables(seq_lens, block_tables, num_blocks, block_size, max_seq_len)


def _tables(seq_lens: Any, block_tables: Any, num_blocks: int, block_size: int, max_seq_len: int) -> None:
    for seq, seq_len in enumerate(seq_lens):
        if not 0 <= seq_len <= max_seq_len:
            raise ArgumentError(f"seq_lens[{seq}]", seq_len, f"must be from 0 to max_seq_len = {max_seq_len}")
        used = layout.blocks_for(int(seq_len), block_size)
        if used > block_tables.shape[1]:
            raise ArgumentError(
                f"seq_lens[{seq}]", seq_len, f"needs {used} blocks, its row of block_tables has {block_tables.shape[1]}"
            )
        for index, number in enumerate(block_tables[seq, :used]):
            if not 0 <= number < num_blocks:
                raise ArgumentError(
                    f"block_tables[{seq}, {index}]", number, f"must be a block of the cache, 0 to {num_blocks - 1}"
                )


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
    """Everything `reshape_and_cache` assumes of its arguments; raises ArgumentError at the first that is wrong."""
    view("key", key, (None, None, None), tuple(SCALAR_TYPES), free=1)
    rows, num_heads, head_size = key.shape
    view("value", value, (rows, num_heads, head_size), (str(key.dtype),), free=1)
    stored = (cache_dtype(key.dtype, kv_cache_dtype),)
    x = layout.x_of(cache_itemsize(key.dtype.itemsize, kv_cache_dtype))
    if head_size % x:
        raise ArgumentError("head_size", head_size, f"must be a multiple of x = {x}")
    shape("key_cache", key_cache, (None, num_heads, head_size // x, None, x), stored)
    num_blocks, block_size = key_cache.shape[0], key_cache.shape[3]
    shape("value_cache", value_cache, (num_blocks, num_heads, head_size, block_size), stored)
    for name, factor in (("k_scale", k_scale), ("v_scale", v_scale)):
        scale(name, factor, kv_cache_dtype)
    slots("slot_mapping", slot_mapping, rows, num_blocks * block_size)


def slots(name: str, slot_mapping: Any, rows: int, count: int) -> None:
    """A slot mapping: int64, not longer than `rows` of key, each slot below `count`; raises ArgumentError."""
    shape(name, slot_mapping, (None,), ("int64",))
    if len(slot_mapping) > rows:
        raise ArgumentError(f"{name}.shape", slot_mapping.shape, f"must not exceed the {rows} rows of key")
    if isinstance(slot_mapping, np.ndarray):
        for token, slot in enumerate(slot_mapping):
            if slot >= count:
                raise ArgumentError(f"{name}[{token}]", slot, f"must be below the {count} slots of the cache")


def _same_steps(key_cache: Any, value_cache: Any, axes: int) -> None:
    """The kernels know one distance from block to block and from head to head, the key cache's."""
    for axis in range(axes):
        if key_cache.shape[axis] > 1 and key_cache.strides[axis] != value_cache.strides[axis]:
            raise ArgumentError("value_cache.strides", value_cache.strides, f"must begin as {key_cache.strides[:axes]}")
