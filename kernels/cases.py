"""Small, seeded inputs for the ports: what a decode step or a cache write is handed, and nothing more.

A case carries the logical keys and values (one row a token) beside the paged caches packed from them. Every
place of a cache that no token owns holds a poison value, so that a kernel which reads it shows. The packing
is done by NumPy's reshape and transpose, on purpose without `layout`: each is the check of the other.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from kernels.errors import ArgumentError

Array = npt.NDArray[Any]
"""An array of the case's dtype."""
Order = Literal["shuffled", "reversed", "identity"]
"""How logical blocks are laid into the pool: at random, from the last down, or in place."""
Garbage = Literal["valid", "minus-one"]
"""What a block table holds past its used part: an existing but wrong block, or -1."""

DTYPES = ("float16", "float32", "float64")
GROUP_BYTES = 16


@dataclass(frozen=True, eq=False)
class DecodeCase:
    """One decode step: a query per sequence against that sequence's cached keys and values."""

    name: str
    seed: int
    q: Array
    """Queries, [num_seqs, num_heads, head_size]."""
    keys: tuple[Array, ...]
    """Logical keys, for each sequence [seq_len, num_kv_heads, head_size]."""
    values: tuple[Array, ...]
    """Logical values, shaped like the keys."""
    block_tables: npt.NDArray[np.int32]
    """Physical block of each logical block, [num_seqs, columns]; garbage past the used part."""
    seq_lens: npt.NDArray[np.int32]
    """Tokens in each sequence, [num_seqs]."""
    k_cache: Array
    """Paged keys, [num_blocks, num_kv_heads, head_size / x, block_size, x]."""
    v_cache: Array
    """Paged values, [num_blocks, num_kv_heads, head_size, block_size]."""
    block_size: int
    num_kv_heads: int
    scale: float
    """Factor of every q . k product: 1 / sqrt(head_size)."""
    alibi_slopes: npt.NDArray[np.float32] | None = None
    """Slope of each query head, [num_heads], or None."""

    @property
    def num_seqs(self) -> int:
        """Sequences in the batch."""
        return int(self.q.shape[0])

    @property
    def num_heads(self) -> int:
        """Query heads."""
        return int(self.q.shape[1])

    @property
    def head_size(self) -> int:
        """Elements in one head."""
        return int(self.q.shape[2])

    @property
    def num_blocks(self) -> int:
        """Physical blocks in the pool."""
        return int(self.k_cache.shape[0])

    @property
    def max_seq_len(self) -> int:
        """Tokens in the longest sequence."""
        return int(self.seq_lens.max())

    def blocks_of(self, seq: int) -> tuple[int, ...]:
        """Return the physical blocks of sequence `seq` in logical order, without the garbage."""
        used = -(-int(self.seq_lens[seq]) // self.block_size)
        return tuple(int(block) for block in self.block_tables[seq, :used])


@dataclass(frozen=True, eq=False)
class WriteCase:
    """One cache write: new keys and values, the slot of each token, and caches that hold only poison."""

    name: str
    seed: int
    key: Array
    """New keys, [num_rows, num_heads, head_size]; there may be more rows than slots."""
    value: Array
    """New values, shaped like the keys."""
    slot_mapping: npt.NDArray[np.int64]
    """Slot of each token, [num_tokens]; negative marks padding."""
    slot_buffer: npt.NDArray[np.int64]
    """The buffer that starts with `slot_mapping`, [num_rows]; the slots behind it must stay unwritten."""
    k_cache: Array
    """Poisoned keys, [num_blocks, num_heads, head_size / x, block_size, x]."""
    v_cache: Array
    """Poisoned values, [num_blocks, num_heads, head_size, block_size]."""
    block_size: int

    @property
    def num_tokens(self) -> int:
        """Tokens to write, padding included: the length of the slot mapping, not of the keys."""
        return int(self.slot_mapping.shape[0])

    @property
    def num_heads(self) -> int:
        """KV heads."""
        return int(self.key.shape[1])

    @property
    def head_size(self) -> int:
        """Elements in one head."""
        return int(self.key.shape[2])

    @property
    def num_blocks(self) -> int:
        """Physical blocks in the pool."""
        return int(self.k_cache.shape[0])


def decode_case(
    seq_lens: Sequence[int],
    num_heads: int,
    num_kv_heads: int,
    head_size: int,
    block_size: int,
    dtype: str = "float32",
    seed: int = 0,
    order: Order = "shuffled",
    alibi: bool = False,
    spare_blocks: int = 3,
    *,
    extra_columns: int = 1,
    garbage: Garbage = "valid",
    poison: float = float("nan"),
    name: str = "",
) -> DecodeCase:
    """Build a decode step over sequences of `seq_lens` tokens (0 is allowed), with normal random numbers.

    `spare_blocks` blocks of the pool belong to nobody; each block table is `extra_columns` wider than the
    longest sequence needs. Valid garbage names a spare block where there is one: it leads to `poison`.
    Raises `ArgumentError` for a shape that cannot be.
    """
    _check_shape(num_kv_heads, head_size, block_size, dtype)
    if not seq_lens or min(seq_lens) < 0:
        raise ArgumentError("seq_lens", tuple(seq_lens), "must hold one length of at least 0 for each sequence")
    if num_heads < 1 or num_heads % num_kv_heads:
        raise ArgumentError("num_heads", num_heads, f"must be divisible by num_kv_heads = {num_kv_heads}")
    if extra_columns < 0:
        raise ArgumentError("extra_columns", extra_columns, "must be at least 0")
    rng = np.random.default_rng(seed)

    def rows(count: int, heads: int) -> Array:
        return rng.standard_normal((count, heads, head_size)).astype(dtype)

    q = rows(len(seq_lens), num_heads)
    keys = tuple(rows(length, num_kv_heads) for length in seq_lens)
    values = tuple(rows(length, num_kv_heads) for length in seq_lens)
    blocks_of = [-(-length // block_size) for length in seq_lens]
    order_of_pool = _pool_order(_pool_size(sum(blocks_of), spare_blocks), order, rng)
    starts = np.cumsum([0, *blocks_of])
    owned = [order_of_pool[first:last] for first, last in pairwise(starts)]
    spare = order_of_pool[starts[-1] :]
    width = max(1, max(blocks_of) + extra_columns)
    slopes = np.exp2(-8.0 * np.arange(1, num_heads + 1) / num_heads).astype(np.float32) if alibi else None
    lengths = "+".join(map(str, seq_lens))
    return DecodeCase(
        name=name or f"decode {lengths} tokens, {num_heads}/{num_kv_heads} heads of {head_size}, block {block_size}",
        seed=seed,
        q=q,
        keys=keys,
        values=values,
        block_tables=_tables(owned, spare, width, garbage),
        seq_lens=np.asarray(seq_lens, dtype=np.int32),
        k_cache=pack_keys(_fill_pool(keys, owned, len(order_of_pool), block_size, poison)),
        v_cache=pack_values(_fill_pool(values, owned, len(order_of_pool), block_size, poison)),
        block_size=block_size,
        num_kv_heads=num_kv_heads,
        scale=head_size**-0.5,
        alibi_slopes=slopes,
    )


def lesson_case(dtype: str = "float32") -> DecodeCase:
    """Return lesson 1's example: one sequence of 6 tokens, one head of 4, blocks of 4, block table [3, 1].

    Its attention output is (0.363083, 0.449897, 0.392487, 0.386499).
    """
    _check_shape(1, 4, 4, dtype)
    key_rows = [
        (0.2, 0.1, -0.4, 0.6),
        (0.9, -0.2, 0.3, 0.0),
        (-0.5, 0.4, 0.7, -0.1),
        (0.1, 0.1, 0.1, 0.1),
        (0.8, 0.8, -0.8, 0.2),
        (-0.3, 0.5, 0.2, 0.9),
    ]
    keys = (np.array(key_rows, dtype=dtype).reshape(6, 1, 4),)
    values = (np.concatenate([np.eye(4), np.full((1, 4), 0.5), np.ones((1, 4))]).astype(dtype).reshape(6, 1, 4),)
    owned = [np.array([3, 1])]
    return DecodeCase(
        name="lesson 1, section 4",
        seed=0,
        q=np.array([[[0.5, -0.3, 0.8, 0.1]]], dtype=dtype),
        keys=keys,
        values=values,
        block_tables=np.array([[3, 1]], dtype=np.int32),
        seq_lens=np.array([6], dtype=np.int32),
        k_cache=pack_keys(_fill_pool(keys, owned, 4, 4, float("nan"))),
        v_cache=pack_values(_fill_pool(values, owned, 4, 4, float("nan"))),
        block_size=4,
        num_kv_heads=1,
        scale=0.5,
    )


def write_case(
    num_tokens: int,
    num_heads: int,
    head_size: int,
    block_size: int,
    dtype: str = "float32",
    seed: int = 0,
    order: Order = "shuffled",
    spare_blocks: int = 2,
    *,
    padding: int = 0,
    extra_rows: int = 0,
    poison: float = float("nan"),
    name: str = "",
) -> WriteCase:
    """Build a write of `num_tokens` tokens, `padding` of them (at random places) without a slot.

    The others fill blocks laid out by `order`, one slot a token. `extra_rows` key and value rows stand behind
    them, without a slot, as under graph padding. Raises `ArgumentError` for a shape that cannot be.
    """
    _check_shape(num_heads, head_size, block_size, dtype)
    if num_tokens < 1:
        raise ArgumentError("num_tokens", num_tokens, "must be at least 1")
    if not 0 <= padding <= num_tokens:
        raise ArgumentError("padding", padding, f"must be 0 .. num_tokens = {num_tokens}")
    if extra_rows < 0:
        raise ArgumentError("extra_rows", extra_rows, "must be at least 0")
    rng = np.random.default_rng(seed)
    key, value = (rng.standard_normal((num_tokens + extra_rows, num_heads, head_size)).astype(dtype) for _ in range(2))
    # The guard slots behind the mapping take blocks of their own: written by mistake, they show as numbers.
    used = -(-(num_tokens - padding + extra_rows) // block_size)
    order_of_pool = _pool_order(_pool_size(used, spare_blocks), order, rng)
    places = (order_of_pool[:, None] * block_size + np.arange(block_size)).ravel()
    slots = np.full(num_tokens + extra_rows, -1, dtype=np.int64)
    padded = rng.choice(num_tokens, size=padding, replace=False)
    real = np.setdiff1d(np.arange(num_tokens + extra_rows), padded)
    slots[real] = places[: len(real)]
    pool = np.full((len(order_of_pool), block_size, num_heads, head_size), poison, dtype=dtype)
    return WriteCase(
        name=name or f"write {num_tokens} tokens, {num_heads} heads of {head_size}, block {block_size}",
        seed=seed,
        key=key,
        value=value,
        slot_mapping=slots[:num_tokens],
        slot_buffer=slots,
        k_cache=pack_keys(pool),
        v_cache=pack_values(pool),
        block_size=block_size,
    )


def pack_keys(pool: Array) -> Array:
    """Turn a logical pool [num_blocks, block_size, heads, head_size] into a key cache (x innermost)."""
    num_blocks, block_size, heads, head_size = pool.shape
    x = GROUP_BYTES // pool.itemsize
    groups = pool.reshape(num_blocks, block_size, heads, head_size // x, x)
    return np.ascontiguousarray(groups.transpose(0, 2, 3, 1, 4))


def pack_values(pool: Array) -> Array:
    """Turn a logical pool [num_blocks, block_size, heads, head_size] into a value cache."""
    return np.ascontiguousarray(pool.transpose(0, 2, 3, 1))


def unpack_keys(cache: Array) -> Array:
    """Turn a key cache back into a logical pool [num_blocks, block_size, heads, head_size]."""
    num_blocks, heads, groups, block_size, x = cache.shape
    return np.ascontiguousarray(cache.transpose(0, 3, 1, 2, 4)).reshape(num_blocks, block_size, heads, groups * x)


def unpack_values(cache: Array) -> Array:
    """Turn a value cache back into a logical pool [num_blocks, block_size, heads, head_size]."""
    return np.ascontiguousarray(cache.transpose(0, 3, 1, 2))


def _check_shape(num_kv_heads: int, head_size: int, block_size: int, dtype: str) -> None:
    if dtype not in DTYPES:
        raise ArgumentError("dtype", dtype, f"must be one of {', '.join(DTYPES)}")
    if num_kv_heads < 1:
        raise ArgumentError("num_kv_heads", num_kv_heads, "must be at least 1")
    if block_size < 1:
        raise ArgumentError("block_size", block_size, "must be at least 1")
    x = GROUP_BYTES // np.dtype(dtype).itemsize
    if head_size < 1 or head_size % x:
        raise ArgumentError("head_size", head_size, f"must be divisible by x = {x} (16 bytes of {dtype})")


def _pool_size(used: int, spare_blocks: int) -> int:
    if spare_blocks < 0:
        raise ArgumentError("spare_blocks", spare_blocks, "must be at least 0")
    return max(1, used + spare_blocks)


def _pool_order(num_blocks: int, order: Order, rng: np.random.Generator) -> npt.NDArray[np.int64]:
    """Return all block numbers in the order in which they are handed out."""
    if order == "shuffled":
        return rng.permutation(num_blocks)
    if order == "reversed":
        return np.arange(num_blocks)[::-1]
    if order == "identity":
        return np.arange(num_blocks)
    raise ArgumentError("order", order, "must be shuffled, reversed or identity")


def _tables(
    owned: Sequence[npt.NDArray[np.int64]], spare: npt.NDArray[np.int64], width: int, garbage: Garbage
) -> npt.NDArray[np.int32]:
    """Return the block tables, [sequences, width], with garbage past each sequence's own blocks."""
    if garbage not in ("valid", "minus-one"):
        raise ArgumentError("garbage", garbage, "must be valid or minus-one")
    tables = np.full((len(owned), width), -1, dtype=np.int32)
    for row, own in enumerate(owned):
        tables[row, : len(own)] = own
        if garbage == "valid":
            others = (block for blocks in owned if blocks is not own for block in blocks)
            tables[row, len(own) :] = next(chain(spare, others, own, [0]))
    return tables


def _fill_pool(
    rows: Sequence[Array],
    owned: Sequence[npt.NDArray[np.int64]],
    num_blocks: int,
    block_size: int,
    poison: float,
) -> Array:
    """Return a logical pool of poison with each sequence's rows in the blocks it owns."""
    pool = np.full((num_blocks, block_size, *rows[0].shape[1:]), poison, dtype=rows[0].dtype)
    for sequence, blocks in zip(rows, owned, strict=True):
        for logical, physical in enumerate(blocks):
            part = sequence[logical * block_size : (logical + 1) * block_size]
            pool[physical, : len(part)] = part
    return pool
