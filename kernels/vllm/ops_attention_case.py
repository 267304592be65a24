"""One case of paged attention for the ops' grids: seeded inputs on a device, a run of the op, and the comparison.

Two kinds of inputs. `vllm`: those of vLLM's own test, uniform in +-1/sqrt(head size), blocks drawn with repetition.
`ours`: normal numbers whose weights differ much, each block owned once, NaN wherever a kernel may not look.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from kernels.kernel import Backend
from kernels.vllm import ops, ops_reference
from kernels.vllm.ops_reference import DTYPES, FP8, PARTITION

GARBAGE = (2**31 - 1, -1, -(2**31), 123_456_789)
"""What stands in a block table behind the used part: no block has such a number."""
NAN_CODE = 0x7F
"""A NaN in both fp8 formats."""
SPREAD = 2.0
"""The standard deviation of our queries, and so of the scores: few tokens have most of the weight."""
K_SCALE, V_SCALE = 0.37, 0.21
BEYOND = 2**31


@dataclass(frozen=True)
class Outcome:
    """What a case showed. `error` and `tolerance`: of the element whose error is the largest share of its tolerance.

    `zeros_pass`, `shuffled_keys_pass`: whether an output of zeros, or the attention over keys whose elements are
    mis-paired, would have passed too (None for a writer). `runs`: calls of the op.
    """

    error: float
    tolerance: float
    passed: bool
    zeros_pass: bool | None = None
    shuffled_keys_pass: bool | None = None
    runs: int = 1

    @property
    def share(self) -> float:
        """The error as a share of the tolerance."""
        if self.error == 0:
            return 0.0
        return self.error / self.tolerance if self.tolerance else math.inf


@dataclass(frozen=True)
class Inputs:
    """The op's arguments. query: [num_seqs, heads, head_size], rows at any distance."""

    query: Tensor
    key_cache: Tensor
    value_cache: Tensor
    num_kv_heads: int
    scale: float
    block_tables: Tensor
    seq_lens: Tensor
    slopes: Tensor | None
    k_scale: float
    v_scale: float


@dataclass(frozen=True)
class AttentionCase:
    """Paged attention at one specialisation, with each pair of `heads` (query, KV) and each of `alibi`.

    `lengths`: tokens of each sequence; a `longest` above 0 adds one of that length, -1 one as long as v1 can take.
    `tolerance`: (atol, rtol) of vLLM's test, or None for our bounds. `beyond`: blocks whose elements lie beyond 2**31.
    """

    group: str
    version: str
    dtype: str
    kv_cache_dtype: str
    block_size: int
    head_size: int
    heads: tuple[tuple[int, int], ...]
    alibi: tuple[bool, ...] = (False,)
    lengths: tuple[int, ...] = ()
    longest: int = 0
    inputs: str = "ours"
    tolerance: tuple[float, float] | None = None
    num_blocks: int = 0
    beyond: bool = False
    seed: int = 0

    @property
    def id(self) -> str:
        """The case in a few words, unique in its group."""
        words = [self.version, self.dtype, self.kv_cache_dtype, f"d{self.head_size}", f"b{self.block_size}"]
        if len(self.heads) * len(self.alibi) == 1:
            words += [f"{self.heads[0][0]}:{self.heads[0][1]}", *(["alibi"] if self.alibi[0] else [])]
        if self.beyond:
            words.append("beyond 2^31")
        elif self.inputs == "ours" and self.longest:
            words.append("v1's longest" if self.longest < 0 else f"{self.longest} tokens")
        return " ".join(words)

    @property
    def unit(self) -> str:
        """What is compiled for it, but for the block size: v2's second kernel does not depend on that."""
        return f"{self.version}/{self.dtype}/{self.kv_cache_dtype}/{self.head_size}"

    def run(self, device: str) -> Outcome:
        """Call the op for every pair of heads with and without slopes; the worst of all calls counts."""
        found = [self._one(device, pair, slopes) for pair in self.heads for slopes in self.alibi]
        shares = [
            (o.error / o.tolerance if o.error else 0.0) if o.tolerance or not o.error else math.inf for o in found
        ]
        worst = found[shares.index(max(shares))]
        return Outcome(
            worst.error,
            worst.tolerance,
            all(o.passed for o in found),
            any(o.zeros_pass for o in found),
            any(o.shuffled_keys_pass for o in found),
            len(found),
        )

    def _one(self, device: str, heads: tuple[int, int], alibi: bool) -> Outcome:
        given = self.build(device, heads, alibi)
        out = call(self.version, given, self.kv_cache_dtype)
        truth = self.truth(given)
        allowed = self.allowed(truth)
        error, tolerance = ops_reference.worst(out, truth.out, allowed)
        shuffled = self.truth(given, shuffled=True).out
        return Outcome(
            error,
            tolerance,
            error <= tolerance,
            ops_reference.would_pass(torch.zeros_like(truth.out), truth.out, allowed),
            ops_reference.would_pass(shuffled, truth.out, allowed),
        )

    def truth(self, given: Inputs, *, shuffled: bool = False) -> ops_reference.Truth:
        """The float64 answer; with `shuffled` over keys whose elements are mis-paired."""
        keys = ops_reference.mispaired(given.key_cache) if shuffled else given.key_cache
        return ops_reference.attention(
            given.query, keys, given.value_cache, given.scale, given.block_tables, given.seq_lens, given.slopes,
            self.kv_cache_dtype, given.k_scale, given.v_scale, rounded=self.inputs == "vllm",
        )  # fmt: skip

    def allowed(self, truth: ops_reference.Truth) -> Tensor:
        """How far each output element may be off."""
        if self.tolerance:
            return ops_reference.close(truth.out, *self.tolerance)
        return ops_reference.bound(truth, self.dtype, self.version)

    def build(self, device: str, heads: tuple[int, int], alibi: bool) -> Inputs:
        """Seeded inputs on the device: the same for the same case, device and versions."""
        make = torch.Generator(device).manual_seed(self.seed)
        build = _vllm if self.inputs == "vllm" else _ours
        return build(self, device, heads, alibi, make)

    def all_lengths(self, device: str) -> list[int]:
        """The sequences' lengths; vLLM's are six random ones below the longest."""
        longest = v1_longest(device) if self.longest < 0 else self.longest
        if self.inputs == "vllm":
            draw = random.Random(self.seed)
            return [*(draw.randint(1, longest) for _ in range(6)), longest]
        return [*self.lengths, *([longest] if longest else [])]


def v1_longest(device: str) -> int:
    """The tokens that vLLM's test takes for v1's longest: 512 fewer scores than shared memory holds."""
    backend = Backend("cuda" if torch.device(device).type == "cuda" else "sim")
    return backend.shared_limit // torch.float32.itemsize - 512


def call(version: str, given: Inputs, kv_cache_dtype: str) -> Tensor:
    """The op's output; every buffer it gets to write is NaN before."""
    out = torch.full(given.query.shape, math.nan, dtype=given.query.dtype, device=given.query.device)
    longest = max(int(given.seq_lens.max()), 1)
    scales = [torch.tensor(s, dtype=torch.float32, device=out.device) for s in (given.k_scale, given.v_scale)]
    rest: tuple[Any, ...] = (
        given.query, given.key_cache, given.value_cache, given.num_kv_heads, given.scale, given.block_tables,
        given.seq_lens, given.value_cache.shape[3], longest, given.slopes, kv_cache_dtype, *scales,
    )  # fmt: skip
    if version == "v1":
        ops.paged_attention_v1(out, *rest)
    else:
        notes = (*out.shape[:2], -(-longest // PARTITION))
        exp_sums, max_logits = (torch.full(notes, math.nan, device=out.device) for _ in range(2))
        tmp_out = torch.full((*notes, out.shape[2]), math.nan, dtype=out.dtype, device=out.device)
        ops.paged_attention_v2(out, exp_sums, max_logits, tmp_out, *rest)
    return out


def _cache_shapes(case: AttentionCase, num_blocks: int, kv_heads: int) -> tuple[list[int], list[int], torch.dtype]:
    dtype = torch.uint8 if case.kv_cache_dtype in FP8 else DTYPES[case.dtype]
    x = 16 // dtype.itemsize
    keys = [num_blocks, kv_heads, case.head_size // x, case.block_size, x]
    return keys, [num_blocks, kv_heads, case.head_size, case.block_size], dtype


def _vllm(case: AttentionCase, device: str, heads: tuple[int, int], alibi: bool, make: torch.Generator) -> Inputs:
    far = case.head_size**-0.5
    lengths = case.all_lengths(device)
    *shapes, dtype = _cache_shapes(case, case.num_blocks, heads[1])

    def uniform(shape: list[int], of: torch.dtype) -> Tensor:
        return torch.empty(shape, dtype=of, device=device).uniform_(-far, far, generator=make)

    def filled(shape: list[int]) -> Tensor:
        if dtype != torch.uint8:
            return uniform(shape, dtype)
        return uniform(shape, torch.float16).to(FP8[case.kv_cache_dtype]).view(torch.uint8)

    query = uniform([len(lengths), heads[0], case.head_size], DTYPES[case.dtype])
    slopes = torch.randn(heads[0], generator=make, device=device) if alibi else None
    columns = -(-max(lengths) // case.block_size)
    tables = torch.randint(case.num_blocks, (len(lengths), columns), generator=make, device=device).int()
    keys, values = (filled(shape) for shape in shapes)
    seq_lens = torch.tensor(lengths, dtype=torch.int32, device=device)
    return Inputs(query, keys, values, heads[1], far, tables, seq_lens, slopes, 1.0, 1.0)


def _ours(case: AttentionCase, device: str, heads: tuple[int, int], alibi: bool, make: torch.Generator) -> Inputs:
    lengths = case.all_lengths(device)
    counts = [-(-length // case.block_size) for length in lengths]
    # Three blocks that nobody owns, and behind 2**31 elements everything that is owned.
    spare = 3 + (BEYOND // (heads[1] * case.head_size * case.block_size) if case.beyond else 0)
    order = torch.randperm(sum(counts) + 3, generator=torch.Generator().manual_seed(case.seed))
    owned = (order[: sum(counts)] + spare - 3).to(device)
    keys, values = _filled(case, sum(counts) + spare, heads[1], owned, make)
    rows, left = [], owned.tolist()
    for length, count in zip(lengths, counts, strict=True):
        mine, left = left[:count], left[count:]
        if length % case.block_size:
            _poison(keys[mine[-1], :, :, length % case.block_size :])
            _poison(values[mine[-1], :, :, length % case.block_size :])
        rows.append([*mine, *(GARBAGE[i % 4] for i in range(max(counts) + 2 - count))])
    # One row of a projection holds query, key and value: the queries' rows are further apart than they are long.
    fused = torch.randn((len(lengths), sum(heads) + heads[1], case.head_size), generator=make, device=device)
    query = (fused * SPREAD).to(DTYPES[case.dtype])[:, : heads[0]]
    slopes = 2.0 ** (-8 * torch.arange(1, heads[0] + 1, device=device) / heads[0]) if alibi else None
    scales = (K_SCALE, V_SCALE) if case.kv_cache_dtype in FP8 else (1.0, 1.0)
    return Inputs(
        query, keys, values, heads[1], case.head_size**-0.5, torch.tensor(rows, dtype=torch.int32, device=device),
        torch.tensor(lengths, dtype=torch.int32, device=device), slopes, *scales,
    )  # fmt: skip


def _filled(case: AttentionCase, num_blocks: int, kv_heads: int, owned: Tensor, make: torch.Generator) -> list[Tensor]:
    """Both caches: normal numbers in the blocks that are owned, NaN in the others."""
    *shapes, dtype = _cache_shapes(case, num_blocks, kv_heads)
    caches = []
    for shape, scale in zip(shapes, (K_SCALE, V_SCALE), strict=True):
        cache = torch.empty(shape, dtype=dtype, device=owned.device)
        _poison(cache)
        plain = torch.randn((len(owned), *shape[1:]), generator=make, device=owned.device)
        cache[owned] = fp8_codes(plain / scale, case.kv_cache_dtype) if dtype == torch.uint8 else plain.to(dtype)
        caches.append(cache)
    return caches


def _poison(cache: Tensor) -> None:
    cache.fill_(NAN_CODE if cache.dtype == torch.uint8 else math.nan)


def fp8_codes(numbers: Tensor, kv_cache_dtype: str) -> Tensor:
    """The fp8 codes of float32 numbers, as uint8: nearest, ties to even; too large ones become the largest."""
    kind = FP8[kv_cache_dtype]
    most = torch.finfo(kind).max
    return numbers.clamp(-most, most).to(kind).view(torch.uint8)
