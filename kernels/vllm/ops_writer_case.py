"""One case of a cache writer for the ops' grids: seeded inputs on a device, a run of the op, and the comparison.

The rows that the slots name are read back by torch's indexing and compared; then the old rows are put back, and the
whole cache must be as it was, bit for bit.
"""

from __future__ import annotations

import itertools
import math
import random
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from kernels.vllm import ops, ops_reference
from kernels.vllm.ops_attention_case import BEYOND, Outcome, fp8_codes
from kernels.vllm.ops_reference import DTYPES, FP8

SCALES = ("tensor", "attn_head")
"""One scale for all heads, or one a head (the flash writer alone)."""
BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32}
CHUNK = 1 << 28
"""Elements that are compared at once."""
FILL = 0x11
"""What every byte of a cache beyond 2**31 elements holds: a copy of it would not fit beside it."""
ROWS_TOO_MANY = 3
"""Rows of key and value behind the last slot, which nobody may write."""


@dataclass(frozen=True)
class Cache:
    """A cache as the op takes it, by token [num_blocks, block_size, num_heads, ...], and the tensor that holds it."""

    given: Tensor
    by_token: Tensor
    whole: Tensor

    def rows(self, slots: Tensor) -> Tensor:
        """A copy of the rows of some slots: [slots, num_heads, ...]."""
        return self.by_token[slots // self.by_token.shape[1], slots % self.by_token.shape[1]]

    def put(self, slots: Tensor, rows: Tensor) -> None:
        """Overwrite the rows of some slots."""
        self.by_token[slots // self.by_token.shape[1], slots % self.by_token.shape[1]] = rows


@dataclass(frozen=True)
class WriterCase:
    """One dtype and cache dtype of a writer, over block sizes, numbers of heads, memory orders and scales.

    `op`: reshape (one memory order, "classic") or flash (see `flash_caches`). `tolerance`: (atol, rtol) of vLLM's
    test, which compares numbers; None compares bits. `inputs` vllm: vLLM's; ours adds negative slots, rows too many,
    and numbers that saturate. `beyond`: the slots' elements lie beyond 2**31.
    """

    group: str
    op: str
    dtype: str
    kv_cache_dtype: str
    head_size: int
    block_sizes: tuple[int, ...]
    heads: tuple[int, ...]
    layouts: tuple[str, ...] = ("classic",)
    scales: tuple[str, ...] = ("tensor",)
    num_blocks: int = 16
    tokens: int = 42
    inputs: str = "ours"
    tolerance: tuple[float, float] | None = None
    beyond: bool = False
    seed: int = 0

    @property
    def id(self) -> str:
        """The case in a few words, unique in its group."""
        words = [self.op, self.dtype, self.kv_cache_dtype, f"d{self.head_size}"]
        if self.beyond:
            words.append("beyond 2^31")
        elif len(self.block_sizes) == 1:
            words += [f"b{self.block_sizes[0]}", f"n{self.num_blocks}"]
            words += [*self.layouts, *self.scales] if self.op == "flash" and len(self.layouts) == 1 else []
        return " ".join(words)

    @property
    def unit(self) -> str:
        """What is compiled for it: cases with the same unit share it."""
        return f"{self.op}/{self.dtype}/{self.kv_cache_dtype}"

    def run(self, device: str) -> Outcome:
        """Call the op for every block size, number of heads, memory order and scale; the worst of all calls counts.

        `error`: for bits the number of elements that differ; infinite where another row changed.
        """
        ways = itertools.product(self.block_sizes, self.heads, self.layouts, self.scales)
        found = [_one(self, device, *way) for way in ways]
        worst = max(found, key=lambda o: (not o.passed, o.error))
        return Outcome(worst.error, worst.tolerance, all(o.passed for o in found), runs=len(found))


def _one(case: WriterCase, device: str, block_size: int, heads: int, layout: str, per: str) -> Outcome:
    make = torch.Generator(device).manual_seed(case.seed)
    caches = _caches(case, (block_size, heads, case.head_size), layout, device)
    # K and V may lie in one tensor.
    wholes = list({id(cache.whole): cache.whole for cache in caches}.values())
    for whole in wholes:
        _fill(whole, case, make)
    slots = _slots(case, caches[0].by_token.shape[0], block_size).to(device)
    rows = _rows(case, len(slots), heads, device, make)
    scales = [_scale(case, one, per) for one in rows]
    before = [None if case.beyond else whole.clone() for whole in wholes]
    used = slots >= 0
    old = [cache.rows(slots[used]) for cache in caches]
    write: Any = ops.reshape_and_cache if case.op == "reshape" else ops.reshape_and_cache_flash
    write(*rows, *(cache.given for cache in caches), slots, case.kv_cache_dtype, *scales)
    found = [
        _compare(case, cache.rows(slots[used]).flatten(2), mine[: len(slots)][used], scale)
        for cache, mine, scale in zip(caches, rows, scales, strict=True)
    ]
    for cache, was in zip(caches, old, strict=True):
        cache.put(slots[used], was)
    same = all(unchanged(whole, was) for whole, was in zip(wholes, before, strict=True))
    error, tolerance = max(found, key=lambda pair: (pair[0] > pair[1], pair[0]))
    error = error if same else math.inf
    return Outcome(error, tolerance, error <= tolerance)


def _caches(case: WriterCase, sizes: tuple[int, int, int], layout: str, device: str) -> tuple[Cache, Cache]:
    dtype = torch.uint8 if case.kv_cache_dtype in FP8 else DTYPES[case.dtype]
    one = math.prod(sizes) * (1 if layout in ("classic", "apart") else 2)
    num_blocks = case.num_blocks + (BEYOND // one if case.beyond else 0)
    if case.op == "reshape":
        return classic_caches(num_blocks, *sizes, dtype, device)
    return flash_caches(num_blocks, *sizes, dtype, device, layout)


def classic_caches(
    num_blocks: int, block_size: int, heads: int, head_size: int, dtype: torch.dtype, device: str
) -> tuple[Cache, Cache]:
    """Empty caches of the classic layout: keys in pieces of 16 bytes, values transposed."""
    x = 16 // dtype.itemsize
    keys = torch.empty((num_blocks, heads, head_size // x, block_size, x), dtype=dtype, device=device)
    values = torch.empty((num_blocks, heads, head_size, block_size), dtype=dtype, device=device)
    return Cache(keys, keys.permute(0, 3, 1, 2, 4), keys), Cache(values, values.permute(0, 3, 1, 2), values)


def flash_caches(
    num_blocks: int, block_size: int, heads: int, head_size: int, dtype: torch.dtype, device: str, layout: str
) -> tuple[Cache, Cache]:
    """Empty caches of FlashAttention's layout, as views [num_blocks, block_size, heads, head_size].

    `layout`: apart (two tensors), NHD or HND (one tensor, K and V of a block one after the other; HND: each head's
    tokens together), beside (one tensor, K and V of a token and head one after the other, as 0.26.0 keeps them).
    """

    def new(*shape: int) -> Tensor:
        return torch.empty(shape, dtype=dtype, device=device)

    if layout == "apart":
        both = [new(num_blocks, block_size, heads, head_size) for _ in range(2)]
        return Cache(both[0], both[0], both[0]), Cache(both[1], both[1], both[1])
    if layout == "beside":
        whole = new(num_blocks, heads, block_size, 2 * head_size)
        tokens_first = whole.permute(0, 2, 1, 3)
        views = tokens_first[..., :head_size], tokens_first[..., head_size:]
    elif layout == "HND":
        whole = new(num_blocks, 2, heads, block_size, head_size)
        views = whole[:, 0].transpose(1, 2), whole[:, 1].transpose(1, 2)
    else:
        whole = new(num_blocks, 2, block_size, heads, head_size)
        views = whole[:, 0], whole[:, 1]
    return Cache(views[0], views[0], whole), Cache(views[1], views[1], whole)


def _fill(whole: Tensor, case: WriterCase, make: torch.Generator) -> None:
    if case.beyond:
        whole.view(torch.uint8).fill_(FILL)
    elif whole.dtype == torch.uint8:
        whole.random_(0, 256, generator=make)
    else:
        whole.uniform_(-1, 1, generator=make)


def _slots(case: WriterCase, num_blocks: int, block_size: int) -> Tensor:
    """Different slots in random order, in the last `case.num_blocks` blocks; every seventh of ours is negative."""
    first = (num_blocks - case.num_blocks) * block_size
    drawn = random.Random(case.seed).sample(range(first, num_blocks * block_size), case.tokens)
    if case.inputs == "ours":
        drawn[::7] = [-1] * len(drawn[::7])
    return torch.tensor(drawn, dtype=torch.int64)


def _rows(case: WriterCase, tokens: int, heads: int, device: str, make: torch.Generator) -> tuple[Tensor, Tensor]:
    """Key and value rows, as slices of one projection."""
    shape = (tokens + (ROWS_TOO_MANY if case.inputs == "ours" else 0), 3, heads, case.head_size)
    plain = torch.randn(shape, generator=make, device=device)
    if case.inputs == "ours":
        # Some so large that fp8 saturates, some so small that it has few places left, some beside the middle of two.
        draw = torch.rand(shape, generator=make, device=device)
        plain = torch.where(draw < 0.02, plain * 1e5, torch.where(draw > 0.9, plain * 1e-3, plain)).clamp(-6e4, 6e4)
    _, key, value = plain.to(DTYPES[case.dtype]).unbind(1)
    return key, value


def _scale(case: WriterCase, rows: Tensor, per: str) -> Tensor:
    """vLLM's: a 64th of the largest element, of a head or of all; ours: some number."""
    if case.inputs == "vllm":
        largest = rows.amax() if per == "tensor" else rows.amax(dim=(0, 2))
        return (largest / 64).float()
    heads = torch.arange(rows.shape[1], device=rows.device)
    return torch.tensor(0.37, device=rows.device) if per == "tensor" else 0.37 + heads / 16


def _compare(case: WriterCase, got: Tensor, rows: Tensor, scale: Tensor) -> tuple[float, float]:
    """The error of the rows that were read back, and its tolerance."""
    per_head = scale.reshape(-1, 1)
    if case.tolerance:
        if case.kv_cache_dtype in FP8:
            got = (got.view(FP8[case.kv_cache_dtype]).float() * per_head).half()
            rows = rows.half()
        want = rows.double()
        return ops_reference.worst(got, want, ops_reference.close(want, *case.tolerance))
    if case.kv_cache_dtype in FP8:
        rows = fp8_codes(rows.float() / per_head, case.kv_cache_dtype)
    bits = BITS[rows.dtype.itemsize]
    return float((got.view(bits) != rows.contiguous().view(bits)).sum()), 0.0


def unchanged(whole: Tensor, before: Tensor | None) -> bool:
    """Whether two tensors have the same bits; without `before`, whether every byte is FILL."""
    bits = BITS[whole.dtype.itemsize]
    now = whole.view(-1).view(bits)
    then = before.view(-1).view(bits) if before is not None else None
    fill = int.from_bytes(bytes([FILL] * whole.dtype.itemsize), "little")
    for first in range(0, len(now), CHUNK):
        part = slice(first, first + CHUNK)
        if not (bool((now[part] == fill).all()) if then is None else torch.equal(now[part], then[part])):
            return False
    return True
