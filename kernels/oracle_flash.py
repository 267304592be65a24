"""The truth about the FlashAttention layout's writer: each token's row put in its place, by NumPy's own indexing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from kernels.cases import Array
from kernels.cases_flash import FlashCase

Convert = Callable[[Any, int, str], Any]
"""(a head's elements, head, "key" or "value") -> what the cache holds of them."""


def written(case: FlashCase, convert: Convert | None = None) -> tuple[Array, Array, Array]:
    """Return (whole allocation, keys, values) as they must be after the write; the rest keeps its poison."""
    whole, keys, values = case.caches()
    street = [(block, offset) for block in range(case.num_blocks) for offset in range(case.block_size)]
    for token, slot in enumerate(case.slot_mapping):
        if slot < 0:
            continue
        block, offset = street[slot]
        for head in range(case.num_heads):
            for side, cache, rows in (("key", keys, case.key), ("value", values, case.value)):
                row = rows[token, head]
                cache[block, offset, head] = row if convert is None else convert(row, head, side)
    return whole, keys, values


def places(case: FlashCase) -> tuple[Array, Array]:
    """Return where in the allocation each element of the two views lies: [blocks, block_size, heads, head_size]."""
    whole, keys, values = case.caches()
    start = whole.__array_interface__["data"][0]
    found = []
    for view in (keys, values):
        grid = np.indices(view.shape)
        steps = np.array(view.strides).reshape(-1, 1, 1, 1, 1)
        first = view.__array_interface__["data"][0] - start
        found.append((first + (grid * steps).sum(0)) // view.itemsize)
    return found[0], found[1]
