"""Numbers that the questions are made of: sizes of caches and models, block tables, and how a text says them."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

ITEMSIZES = {"float32": 4, "float16": 2, "bfloat16": 2, "fp8": 1}
"""Bytes of an element."""
BLOCK_SIZES = (8, 16, 32)
"""What the classic kernel is compiled for."""
HEAD_SIZES = (64, 80, 96, 112, 128, 192, 256)
KV_HEADS = (2, 4, 8, 16)


@dataclass(frozen=True)
class Cache:
    """The sizes of one layer's cache."""

    block_size: int
    num_kv_heads: int
    head_size: int
    dtype: str

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return ITEMSIZES[self.dtype]

    @property
    def words(self) -> str:
        """The sizes, for a text."""
        heads = f"{self.num_kv_heads} KV heads of {self.head_size} channels"
        return f"{heads}, blocks of {self.block_size} tokens, {self.dtype}"

    @property
    def given(self) -> dict[str, Any]:
        """The sizes, for a test."""
        return dict(vars(self))


@dataclass(frozen=True)
class Model:
    """What the KV cache of a model depends on."""

    layers: int
    heads: int
    kv_heads: int
    head_size: int
    dtype: str

    @property
    def itemsize(self) -> int:
        """Bytes of a cache element."""
        return ITEMSIZES[self.dtype]

    @property
    def words(self) -> str:
        """The model, for a text."""
        return (
            f"A model has {self.layers} layers, {self.heads} query heads and {self.kv_heads} KV heads "
            f"of {self.head_size} channels; its KV cache holds {self.dtype}"
        )

    @property
    def given(self) -> dict[str, Any]:
        """The model, for a test."""
        return dict(vars(self))


def cache(rng: random.Random, dtypes: tuple[str, ...] = tuple(ITEMSIZES)) -> Cache:
    """Sizes at random."""
    return Cache(rng.choice(BLOCK_SIZES), rng.choice(KV_HEADS), rng.choice(HEAD_SIZES), rng.choice(dtypes))


def model(rng: random.Random) -> Model:
    """A model at random: query heads in groups of 1 to 8 over its KV heads."""
    kv_heads, group = rng.choice((2, 4, 8, 16)), rng.choice((1, 2, 4, 5, 7, 8))
    dtype = rng.choice(("bfloat16", "bfloat16", "float16", "fp8"))
    return Model(rng.choice((16, 24, 28, 32, 40, 48, 64, 80)), kv_heads * group, kv_heads, rng.choice((64, 128)), dtype)


def table(rng: random.Random, entries: int, pool: int = 60) -> list[int]:
    """A block table: that many different blocks of the pool, in no order."""
    return rng.sample(range(pool), entries)


def position(rng: random.Random, block_size: int, entries: int) -> int:
    """A position behind the first block, where the table matters."""
    return rng.randrange(block_size, block_size * entries)
