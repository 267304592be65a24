"""The truth for the ops' grids: attention in float64 by gathering through the block table, and how far off is allowed.

Works on torch tensors where they lie, so that a GPU checks itself in milliseconds. It shares no code with the ops,
with `layout` or with `numbers`: fp8 is decoded by torch's own dtypes, the caches are taken apart by torch's indexing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

DTYPES = {"bfloat16": torch.bfloat16, "float16": torch.float16, "float32": torch.float32}
FP8 = {"fp8": torch.float8_e4m3fn, "fp8_e4m3": torch.float8_e4m3fn, "fp8_e5m2": torch.float8_e5m2}
KERNEL_EPSILON = 1e-6
"""What v1's formula adds to the sum of exponentials before it divides."""
PARTITION = 512
CHUNK = 1 << 25
"""Elements of float64 keys that are held at once: 256 MiB, since several processes share a GPU."""


@dataclass(frozen=True)
class Bound:
    """How far an output element of one dtype may be from float64: see BOUNDS."""

    unit: float
    roundings: int
    why: str
    grain: float = 0.0


FLOAT32_BOUND = 1e-5
"""What float32 arithmetic may be off (scores, exponentials, sums): that times A of BOUNDS, or times 1 if A is more."""
ONE_TOKEN_BOUND = 5e-7
"""The share of A where a sequence has one token: there is no sum, so an output without the 1e-6 is seen."""
BOUNDS = {
    "bfloat16": Bound(2.0**-8, 2, "a weight is rounded, then its product with a value; sums of products are float32"),
    "float16": Bound(
        2.0**-11,
        5,
        "a weight is rounded, then its product with a value, then three sums of four products each; "
        "weights and products below 6.1e-5 have a grain of their own",
        2.0**-25,
    ),
    "float32": Bound(0.0, 0, "float32 throughout"),
}
"""What bounds the error of an output element, by the query's dtype.

A is the mean of |V| under the weights, the sum of w |v| over the tokens: at most max |V|. `unit` u is half the
distance between neighbours, relative: 2**-8 for bfloat16, 2**-11 for float16. Each of the `roundings` on the way of a
product into the sum changes that product by at most u of itself, so all products together by u A. The output is
rounded once more: u of the output itself. v2 with several partitions also rounds each partition's output: u A once
more. All this is to first order. What float32 adds is FLOAT32_BOUND min(A, 1). So

    |error| <= u (roundings A + |out|) + 1e-5 min(A, 1)

which is at most (roundings + 1) u max |V| + 1e-5. Near zero float16 is no longer relative: each weight and each
product may be off by `grain`, half its smallest number, which adds grain (sum of |v| + number of tokens).
"""


@dataclass(frozen=True)
class Truth:
    """What the output must be, with what its bound needs: all float64 [num_seqs, num_heads, head_size].

    `spread`: A of BOUNDS. `total`: the sum of |v| over the tokens. `tokens`: [num_seqs, 1, 1].
    """

    out: Tensor
    spread: Tensor
    total: Tensor
    tokens: Tensor


def decoded(
    cache: Tensor, kv_cache_dtype: str, dtype: torch.dtype, scale: float, *, one_by_one: bool = False
) -> Tensor:
    """A cache's elements as the numbers of `dtype` that they stand for: fp8 times its scale, rounded to `dtype`.

    For float32 vLLM converts several codes at once, and then by way of float16; `one_by_one` does not.
    """
    if kv_cache_dtype == "auto":
        return cache
    by_way_of = torch.float16 if dtype == torch.float32 and not one_by_one else dtype
    return (cache.view(FP8[kv_cache_dtype]).float() * scale).to(by_way_of).to(dtype)


def keys_of(key_cache: Tensor, blocks: Tensor) -> Tensor:
    """The keys of some blocks, one block after another: [num_kv_heads, tokens, head_size].

    key_cache: [num_blocks, num_kv_heads, head_size/x, block_size, x].
    """
    taken = key_cache[blocks].permute(1, 0, 3, 2, 4)
    heads, count, size, groups, x = taken.shape
    return taken.reshape(heads, count * size, groups * x)


def values_of(value_cache: Tensor, blocks: Tensor) -> Tensor:
    """The values of some blocks: [num_kv_heads, tokens, head_size].

    value_cache: [num_blocks, num_kv_heads, head_size, block_size].
    """
    taken = value_cache[blocks].permute(1, 0, 3, 2)
    heads, count, size, dims = taken.shape
    return taken.reshape(heads, count * size, dims)


def mispaired(key_cache: Tensor) -> Tensor:
    """The same memory read as though x were half as large: every key gets elements of others.

    vLLM's test reads its fp8 key cache (x = 16) in this way when it makes its reference (x = 8).
    """
    blocks, heads, groups, size, x = key_cache.shape
    return key_cache.view(blocks, heads, groups * 2, size, x // 2)


def attention(
    query: Tensor,
    key_cache: Tensor,
    value_cache: Tensor,
    scale: float,
    block_tables: Tensor,
    seq_lens: Tensor,
    slopes: Tensor | None = None,
    kv_cache_dtype: str = "auto",
    k_scale: float = 1.0,
    v_scale: float = 1.0,
    eps: float = KERNEL_EPSILON,
    rounded: bool = False,
) -> Truth:
    """Attention of every sequence, by v1's own formula in float64; zeros where there are no tokens.

    `rounded`: as in the reference of vLLM's test, scores are float32 (an ALiBi bias of 10**5 leaves them steps of
    2**-7), and weights and output are rounded to the query's dtype.
    """
    block_size, num_kv_heads = value_cache.shape[3], value_cache.shape[1]
    group = query.shape[1] // num_kv_heads
    found = torch.zeros((3, *query.shape), dtype=torch.float64, device=query.device)
    lengths = seq_lens.tolist()
    for seq, length in enumerate(lengths):
        if not length:
            continue
        blocks = block_tables[seq, : -(-length // block_size)].long()
        step = max(1, CHUNK // (length * query.shape[2]))
        for first in range(0, num_kv_heads, step):
            kv, q = slice(first, first + step), slice(first * group, (first + step) * group)
            keys = keys_of(key_cache[:, kv], blocks)[:, :length]
            values = values_of(value_cache[:, kv], blocks)[:, :length]
            found[:, seq, q] = _attend(
                query[seq, q].double(),
                # With blocks of 8, four threads share a float32 key, and each loads one element at a time.
                decoded(keys, kv_cache_dtype, query.dtype, k_scale, one_by_one=block_size == 8).double(),
                decoded(values, kv_cache_dtype, query.dtype, v_scale).double(),
                scale,
                None if slopes is None else slopes[q],
                eps,
                query.dtype if rounded else torch.float64,
            )
    tokens = torch.tensor(lengths, dtype=torch.float64, device=query.device).view(-1, 1, 1)
    return Truth(found[0], found[1], found[2], tokens)


def _attend(
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    scale: float,
    slopes: Tensor | None,
    eps: float,
    kept: torch.dtype,
) -> Tensor:
    """One sequence: query [heads, head_size], keys and values [KV heads, tokens, head_size] -> [3, heads, head_size].

    The output, the weighted mean of |v|, and the sum of |v|. Weights and output are rounded to `kept`, and if that is
    no float64, biases and scores to float32.
    """
    kv_heads, tokens, size = keys.shape
    grouped = query.reshape(kv_heads, -1, size)
    scores = grouped @ keys.transpose(1, 2) * scale
    single = torch.float64 if kept == torch.float64 else torch.float32
    if slopes is not None:
        away = torch.arange(1 - tokens, 1, dtype=single, device=query.device)
        scores += slopes.to(single).view(kv_heads, -1, 1) * away
    scores = scores.to(single).double()
    scores = torch.exp_(scores - scores.amax(-1, keepdim=True))
    weights = (scores / (scores.sum(-1, keepdim=True) + eps)).to(kept).double()
    out = (weights @ values).to(kept).double()
    values = values.abs_()
    total = values.sum(1, keepdim=True).expand_as(out)
    return torch.stack([out, weights @ values, total]).reshape(3, *query.shape)


def bound(truth: Truth, dtype: str, version: str) -> Tensor:
    """How far each output element may be off: see BOUNDS."""
    this = BOUNDS[dtype]
    one = truth.tokens == 1
    arithmetic = torch.where(one, ONE_TOKEN_BOUND * truth.spread, FLOAT32_BOUND * truth.spread.clamp(max=1.0))
    roundings = this.roundings + ((truth.tokens > PARTITION).double() if version == "v2" else 0)
    allowed = arithmetic + this.unit * (roundings * truth.spread + truth.out.abs())
    if this.grain:
        allowed = allowed + this.grain * (truth.total + truth.tokens)
    return allowed


def close(truth: Tensor, atol: float, rtol: float) -> Tensor:
    """How far each element may be off in the manner of `torch.testing.assert_close`."""
    return atol + rtol * truth.abs()


def worst(found: Tensor, truth: Tensor, allowed: Tensor) -> tuple[float, float]:
    """The error and the tolerance where the error is the largest share of its tolerance; NaN is an infinite error."""
    error = (found.double() - truth).abs().nan_to_num(nan=math.inf)
    if not error.numel():
        return 0.0, 0.0
    share = torch.where(error == 0, 0.0, error / allowed)
    at = int(share.argmax())
    return float(error.flatten()[at]), float(allowed.expand_as(error).flatten()[at])


def would_pass(wrong: Tensor, truth: Tensor, allowed: Tensor) -> bool:
    """Whether another output would have passed with the same tolerance."""
    return bool(((wrong.double() - truth).abs() <= allowed).all())
