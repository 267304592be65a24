"""Small, seeded inputs for the FlashAttention layout's writer: rows, slots, and a cache under its logical view.

The cache is one array; the writer is handed two views of it, keys and values, whose axes are always
[blocks, block_size, KV heads, head_size] while the memory order underneath differs.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import numpy.typing as npt

from kernels.cases import Array
from kernels.errors import ArgumentError

Memory = Literal["NHD", "HND"]
"""Which comes first in the memory of a block: the tokens (N) or the heads (H)."""
Form = Literal["side-by-side", "stacked"]
"""Where V lies: behind each head's K (vLLM 0.26.0), or as a second half of each block (0.23.0 to 0.25.1)."""

POISON_CODE = 0xAB
"""What an integer cache holds before the write; float caches hold NaN."""


@dataclass(frozen=True, eq=False)
class FlashCase:
    """One write into a FlashAttention cache."""

    name: str
    seed: int
    key: Array
    """New keys, [num_rows, num_heads, head_size]; perhaps a slice of a wider projection."""
    value: Array
    """New values, shaped like the keys."""
    slot_mapping: npt.NDArray[np.int64]
    """Slot of each token, [num_tokens]; negative marks padding; there may be more rows than slots."""
    num_blocks: int
    block_size: int
    memory: Memory = "NHD"
    form: Form = "side-by-side"
    cache_dtype: str = ""
    """The dtype of the cache's elements; the keys' if empty."""
    first: int = field(default=0)
    """Elements of the allocation in front of the cache."""

    @property
    def num_heads(self) -> int:
        """KV heads."""
        return int(self.key.shape[1])

    @property
    def head_size(self) -> int:
        """Elements in one head."""
        return int(self.key.shape[2])

    def caches(self) -> tuple[Array, Array, Array]:
        """A poisoned cache: (the whole allocation, flat; the view of the keys; the view of the values)."""
        n, h, d = self.block_size, self.num_heads, self.head_size
        dtype = np.dtype(self.cache_dtype or self.key.dtype)
        poison = np.nan if dtype.kind == "f" else POISON_CODE
        whole = np.full(self.first + self.num_blocks * n * h * 2 * d, poison, dtype)
        places = (n, h) if self.memory == "NHD" else (h, n)
        if self.form == "side-by-side":
            both = whole[self.first :].reshape(self.num_blocks, *places, 2 * d)
            halves = both[..., :d], both[..., d:]
        else:
            both = whole[self.first :].reshape(self.num_blocks, 2, *places, d)
            halves = both[:, 0], both[:, 1]
        key, value = (half if self.memory == "NHD" else half.swapaxes(1, 2) for half in halves)
        return whole, key, value


def flash_case(
    num_tokens: int,
    num_heads: int,
    head_size: int,
    block_size: int,
    dtype: str = "float32",
    seed: int = 0,
    *,
    memory: Memory = "NHD",
    form: Form = "side-by-side",
    padding: int = 0,
    extra_rows: int = 0,
    spare_blocks: int = 2,
    fused: bool = False,
    spread: bool = False,
    cache_dtype: str = "",
    first: int = 0,
) -> FlashCase:
    """Build a write of `num_tokens` tokens into blocks in random order, `padding` of them without a slot.

    `dtype` uint16 stands for bfloat16 codes. `fused`: keys and values are slices of one projection
    [rows, (4 + 1 + 1) * heads * head_size], as the model's linear layer makes them, so that a row is not as wide
    as it is far from the next. `spread`: every token into a block of its own, at a random offset, as the newest tokens
    of so many sequences. Raises ArgumentError where the numbers cannot be.
    """
    if not 0 <= padding <= num_tokens:
        raise ArgumentError("padding", padding, f"must be 0 .. num_tokens = {num_tokens}")
    rng = np.random.default_rng(seed)
    rows, width = num_tokens + extra_rows, num_heads * head_size
    numbers = rng.standard_normal((rows, 6 * width)).astype(np.float32)
    table = numbers.view(np.uint32) >> 16 if dtype == "uint16" else numbers
    projection = table.astype(dtype)
    key, value = (
        projection[:, part * width : (part + 1) * width].reshape(rows, num_heads, head_size) for part in (4, 5)
    )
    if not fused:
        key, value = key.copy(), value.copy()
    used = num_tokens - padding
    num_blocks = (used if spread else -(-used // block_size)) + spare_blocks
    slots = np.full(num_tokens, -1, np.int64)
    # Sorted: sequences grow in order, but their blocks lie anywhere.
    real = np.sort(rng.permutation(num_tokens)[:used])
    blocks = rng.permutation(num_blocks)
    if spread:
        slots[real] = blocks[:used] * block_size + rng.integers(0, block_size, used)
    else:
        slots[real] = (blocks[:, None] * block_size + np.arange(block_size)).reshape(-1)[:used]
    name = f"{num_tokens} tokens, {num_heads} heads of {head_size}, block {block_size}, {memory}, {form}"
    return FlashCase(name, seed, key, value, slots, num_blocks, block_size, memory, form, cache_dtype, first)
