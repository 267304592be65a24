"""What a layout question is about: the sizes of a cache, its element type, and a sequence's block table.

Everything is checked here, once, with the argument and what it must be; behind it the arithmetic cannot fail. Sizes are
bounded so that no byte offset passes 2^53: a browser computes them exactly too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import index
from typing import Any

from kernels import layout
from kernels.errors import ArgumentError

DTYPES = {"float32": (4, 4), "float16": (2, 2), "bfloat16": (2, 2), "fp8": (1, 2)}
"""Bytes of a cache element and of the number that the kernel computes with; fp8 caches belong to 16-bit models."""
MOST = {"block_size": 256, "head_size": 1024, "num_heads": 1024, "num_kv_heads": 1024}
MOST_BLOCKS = 4096
MOST_BLOCK_NUMBER = 2**31 - 1
"""A block table holds int32."""
MOST_BYTES = 2**53


@dataclass(frozen=True)
class Geometry:
    """The sizes of a cache: tokens a block, channels a head, query heads, KV heads, element type.

    Raises ArgumentError for a size that no cache could have.
    """

    block_size: int = 16
    head_size: int = 128
    num_heads: int = 32
    num_kv_heads: int = 8
    dtype: str = "float16"

    def __post_init__(self) -> None:
        for name, most in MOST.items():
            object.__setattr__(self, name, within(name, getattr(self, name), 1, most))
        if self.dtype not in DTYPES:
            raise ArgumentError("dtype", self.dtype, f"must be {', '.join(DTYPES)}")
        layout.num_queries_per_kv(self.num_heads, self.num_kv_heads)
        layout.key_cache_shape(1, self.num_kv_heads, self.head_size, self.block_size, self.itemsize)

    @property
    def itemsize(self) -> int:
        """Bytes of a cache element."""
        return DTYPES[self.dtype][0]

    @property
    def computed(self) -> int:
        """Bytes of the number that the kernel computes with: it decides how much a thread loads at once."""
        return DTYPES[self.dtype][1]

    @property
    def x(self) -> int:
        """Channels in one 16-byte group of a classic key."""
        return layout.x_of(self.itemsize)

    @property
    def group(self) -> int:
        """Query heads that share one KV head."""
        return layout.num_queries_per_kv(self.num_heads, self.num_kv_heads)

    @property
    def block_elements(self) -> int:
        """Elements of one block, of K or of V."""
        return layout.kv_block_stride(self.num_kv_heads, self.head_size, self.block_size)


def within(argument: str, value: Any, low: int, high: int, why: str = "") -> int:
    """The value as an int; ArgumentError unless it is one from low to high."""
    try:
        number = index(value)
    except TypeError:
        number = low - 1
    if isinstance(value, bool) or not low <= number <= high:
        raise ArgumentError(argument, value, f"must be an integer from {low} to {high}{why}")
    return number


def check_table(block_table: Sequence[int], geometry: Geometry) -> tuple[int, ...]:
    """The table as a tuple: at least one physical block, each once, and a cache that can be; or ArgumentError."""
    if not 1 <= len(block_table) <= MOST_BLOCKS:
        raise ArgumentError("block_table", list(block_table), f"must name 1 to {MOST_BLOCKS} physical blocks")
    seen: dict[int, int] = {}
    for entry, value in enumerate(block_table):
        block = within(f"block_table[{entry}]", value, 0, MOST_BLOCK_NUMBER)
        if block in seen:
            must = f"is there already, as entry {seen[block]}; a sequence has a block once"
            raise ArgumentError(f"block_table[{entry}]", block, must)
        seen[block] = entry
    largest = max(seen)
    if (largest + 1) * 2 * geometry.block_elements * geometry.itemsize > MOST_BYTES:
        most = MOST_BYTES // (2 * geometry.block_elements * geometry.itemsize) - 1
        must = f"must be at most {most}, or the cache has more than 2^53 bytes"
        raise ArgumentError(f"block_table[{seen[largest]}]", largest, must)
    return tuple(seen)


def check_point(geometry: Geometry, table: Sequence[int], token: int, head: int, channel: int) -> tuple[int, int, int]:
    """The point as ints; ArgumentError for a token behind the table, or a KV head or channel that is not there."""
    tokens = len(table) * geometry.block_size
    held = f": {len(table)} blocks of {geometry.block_size} tokens"
    return (
        within("token", token, 0, tokens - 1, held),
        within("head", head, 0, geometry.num_kv_heads - 1, ": a KV head"),
        within("channel", channel, 0, geometry.head_size - 1),
    )
