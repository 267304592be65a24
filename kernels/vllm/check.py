"""What the host code of the ports checks before a launch.

A kernel that reads past a block table gives garbage or a crash, never a message; here the
argument, the place in it and the value are named before anything runs.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import float32
from numba.types import float16

from kernels import layout
from kernels.errors import ArgumentError

SCALAR_TYPES = {"float32": float32, "float16": float16}


def shape(name: str, array: Any, want: tuple[int | None, ...], dtypes: tuple[str, ...]) -> None:
    """Shape (None: any size), dtype and contiguity of one array; raises ArgumentError."""
    got = tuple(array.shape)
    if len(got) != len(want) or any(w is not None and w != g for w, g in zip(want, got, strict=True)):
        must = ", ".join("any" if w is None else str(w) for w in want)
        raise ArgumentError(f"{name}.shape", got, f"must be ({must})")
    if str(array.dtype) not in dtypes:
        raise ArgumentError(f"{name}.dtype", array.dtype, f"must be {' or '.join(dtypes)}")
    if isinstance(array, np.ndarray) and not array.flags.c_contiguous:
        raise ArgumentError(f"{name}.strides", array.strides, "must be contiguous; pass numpy.ascontiguousarray(...)")


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
) -> None:
    """Everything the decode kernels assume of their arguments; raises ArgumentError at the first that is wrong."""
    shape("query", query, (None, None, None), tuple(SCALAR_TYPES))
    num_seqs, num_heads, head_size = query.shape
    dtype = (str(query.dtype),)
    if num_kv_heads < 1 or num_heads % num_kv_heads:
        raise ArgumentError("num_kv_heads", num_kv_heads, f"must divide the {num_heads} query heads")
    x = layout.x_of(query.dtype.itemsize)
    if head_size % x:
        raise ArgumentError("head_size", head_size, f"must be a multiple of x = {x}")
    shape("out", out, (num_seqs, num_heads, head_size), dtype)
    shape("key_cache", key_cache, (None, num_kv_heads, head_size // x, block_size, x), dtype)
    num_blocks = key_cache.shape[0]
    shape("value_cache", value_cache, (num_blocks, num_kv_heads, head_size, block_size), dtype)
    shape("block_tables", block_tables, (num_seqs, None), ("int32",))
    shape("seq_lens", seq_lens, (num_seqs,), ("int32",))
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


def write(key: Any, value: Any, key_cache: Any, value_cache: Any, slot_mapping: Any) -> None:
    """Everything `reshape_and_cache` assumes of its arguments; raises ArgumentError at the first that is wrong."""
    shape("key", key, (None, None, None), tuple(SCALAR_TYPES))
    rows, num_heads, head_size = key.shape
    dtype = (str(key.dtype),)
    shape("value", value, (rows, num_heads, head_size), dtype)
    x = layout.x_of(key.dtype.itemsize)
    if head_size % x:
        raise ArgumentError("head_size", head_size, f"must be a multiple of x = {x}")
    shape("key_cache", key_cache, (None, num_heads, head_size // x, None, x), dtype)
    num_blocks, block_size = key_cache.shape[0], key_cache.shape[3]
    shape("value_cache", value_cache, (num_blocks, num_heads, head_size, block_size), dtype)
    shape("slot_mapping", slot_mapping, (None,), ("int64",))
    if len(slot_mapping) > rows:
        raise ArgumentError("slot_mapping.shape", slot_mapping.shape, f"must not exceed the {rows} rows of key")
    slots = num_blocks * block_size
    for token, slot in enumerate(slot_mapping):
        if slot >= slots:
            raise ArgumentError(f"slot_mapping[{token}]", slot, f"must be below the {slots} slots of the cache")
