"""The grids' truth: against plain Python loops over flat memory, and the bounds against numbers worked out by hand."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from kernels.vllm import ops_reference
from kernels.vllm.ops_reference import Truth, attention, bound, close, decoded, mispaired, worst, would_pass

NAN = math.nan


def fp8_by_bits(code: int, exponent_bits: int, bias: int) -> float:
    """A finite fp8 number from its bits: sign, exponent, mantissa."""
    mantissa_bits = 7 - exponent_bits
    sign = -1.0 if code >> 7 else 1.0
    exponent = code >> mantissa_bits & (1 << exponent_bits) - 1
    mantissa = code & (1 << mantissa_bits) - 1
    if exponent == 0:
        return sign * mantissa / (1 << mantissa_bits) * 2.0 ** (1 - bias)
    return sign * (1 + mantissa / (1 << mantissa_bits)) * 2.0 ** (exponent - bias)


class Case:
    """Tiny caches in random blocks, with the flat address of every element written out once more."""

    def __init__(
        self,
        dtype: torch.dtype,
        lengths: Sequence[int],
        block_size: int,
        kv_heads: int,
        group: int,
        size: int,
        seed: int,
    ) -> None:
        make = torch.Generator().manual_seed(seed)
        self.lengths, self.block_size, self.kv_heads, self.group, self.size = lengths, block_size, kv_heads, group, size
        columns = max(1, *(-(-n // block_size) for n in lengths))
        blocks = len(lengths) * columns
        self.x = 16 // dtype.itemsize
        self.query = torch.randn(len(lengths), kv_heads * group, size, generator=make).to(
            torch.float32 if dtype == torch.uint8 else dtype
        )
        shapes = ((blocks, kv_heads, size // self.x, block_size, self.x), (blocks, kv_heads, size, block_size))
        if dtype == torch.uint8:
            self.keys, self.values = (torch.randint(0, 0x78, shape, generator=make).to(dtype) for shape in shapes)
        else:
            self.keys, self.values = (torch.randn(shape, generator=make).to(dtype) for shape in shapes)
        self.tables = torch.randperm(blocks, generator=make).view(len(lengths), columns).int()
        self.slopes = torch.rand(kv_heads * group, generator=make)

    def key(self, seq: int, token: int, head: int, dim: int, x: int | None = None) -> int:
        """The address of a key's element; `x` as the cache has it, or as a mistaken reader would."""
        x = x or self.x
        block = int(self.tables[seq, token // self.block_size])
        group, rest = divmod(dim, x)
        base = (block * self.kv_heads + head) * self.size * self.block_size
        return base + group * self.block_size * x + token % self.block_size * x + rest

    def value(self, seq: int, token: int, head: int, dim: int) -> int:
        block = int(self.tables[seq, token // self.block_size])
        base = (block * self.kv_heads + head) * self.size * self.block_size
        return base + dim * self.block_size + token % self.block_size

    def brute(self, keys: list[float], values: list[float], scale: float, eps: float, x: int | None = None) -> Truth:
        out, spread, total = (torch.zeros(self.query.shape, dtype=torch.float64) for _ in range(3))
        for seq, length in enumerate(self.lengths):
            for head in range(self.kv_heads * self.group):
                kv = head // self.group
                q = [float(v) for v in self.query[seq, head]]
                scores = [
                    scale * math.fsum(q[d] * keys[self.key(seq, t, kv, d, x)] for d in range(self.size))
                    + float(self.slopes[head]) * (t - length + 1)
                    for t in range(length)
                ]
                powers = [math.exp(s - max(scores)) for s in scores]
                weights = [p / (math.fsum(powers) + eps) for p in powers]
                for d in range(self.size):
                    mine = [values[self.value(seq, t, kv, d)] for t in range(length)]
                    out[seq, head, d] = math.fsum(w * v for w, v in zip(weights, mine, strict=True))
                    spread[seq, head, d] = math.fsum(w * abs(v) for w, v in zip(weights, mine, strict=True))
                    total[seq, head, d] = math.fsum(abs(v) for v in mine)
        return Truth(out, spread, total, torch.tensor(self.lengths).view(-1, 1, 1))


def numbers(tensor: Tensor) -> list[float]:
    return [float(v) for v in tensor.flatten().tolist()]


def same(found: Truth, want: Truth) -> None:
    for name in ("out", "spread", "total"):
        torch.testing.assert_close(getattr(found, name), getattr(want, name), atol=1e-12, rtol=1e-12)
    assert found.tokens.flatten().tolist() == want.tokens.flatten().tolist()


@given(
    st.lists(st.integers(0, 9), min_size=1, max_size=3),
    st.sampled_from([2, 4]),
    st.sampled_from([(1, 1), (1, 3), (2, 2)]),
    st.sampled_from([torch.float32, torch.float16, torch.bfloat16]),
    st.integers(0, 99),
)
def test_attention_is_what_plain_loops_give(lengths, block_size, heads, dtype, seed):
    case = Case(dtype, lengths, block_size, *heads, 8, seed)
    found = attention(
        case.query, case.keys, case.values, 0.7, case.tables, torch.tensor(lengths), case.slopes, eps=0.25
    )
    same(found, case.brute(numbers(case.keys), numbers(case.values), 0.7, 0.25))


@pytest.mark.parametrize(("name", "bits"), [("fp8", (4, 7)), ("fp8_e4m3", (4, 7)), ("fp8_e5m2", (5, 15))])
def test_fp8_codes_are_decoded_by_their_bits(name, bits):
    case = Case(torch.uint8, [5, 3], 4, 2, 1, 16, 3)
    keys, values = (
        [s * fp8_by_bits(c, *bits) for c in cache.flatten().tolist()]
        for cache, s in ((case.keys, 0.5), (case.values, 0.25))
    )
    found = attention(
        case.query, case.keys, case.values, 1.0, case.tables, torch.tensor(case.lengths), case.slopes, name, 0.5, 0.25
    )
    same(found, case.brute(keys, values, 1.0, 1e-6))


def test_a_decoded_number_is_rounded_to_the_dtype_after_its_scale():
    codes = torch.arange(0x78, dtype=torch.uint8)
    found = decoded(codes, "fp8", torch.bfloat16, 0.37)
    assert found.dtype == torch.bfloat16
    want = [fp8_by_bits(code, 4, 7) * 0.37 for code in range(0x78)]
    assert (found.double() - torch.tensor(want).bfloat16().double()).abs().max() == 0
    plain = torch.randn(5)
    assert decoded(plain, "auto", torch.float32, 0.37) is plain


def test_several_codes_become_float32_by_way_of_float16():
    codes = torch.arange(0x78, dtype=torch.uint8)
    want = torch.tensor([fp8_by_bits(code, 4, 7) for code in range(0x78)]) * 0.37
    assert torch.equal(decoded(codes, "fp8", torch.float32, 0.37), want.half().float())
    assert torch.equal(decoded(codes, "fp8", torch.float32, 0.37, one_by_one=True), want)
    assert not torch.equal(want, want.half().float())


@pytest.mark.parametrize("block_size", [8, 16])
def test_with_blocks_of_8_a_float32_key_is_converted_one_by_one(block_size):
    case = Case(torch.uint8, [21], block_size, 1, 2, 16, 2)
    keys, values = (
        [fp8_by_bits(c, 4, 7) * 0.37 for c in cache.flatten().tolist()] for cache in (case.keys, case.values)
    )
    half = [float(v) for v in torch.tensor(keys).half()]
    found = attention(
        case.query, case.keys, case.values, 0.01, case.tables, torch.tensor([21]), case.slopes, "fp8", 0.37, 0.37
    )
    rounded = [float(v) for v in torch.tensor(values).half()]
    single = [float(v) for v in torch.tensor(keys)]
    torch.testing.assert_close(
        found.out, case.brute(single if block_size == 8 else half, rounded, 0.01, 1e-6).out, atol=1e-7, rtol=1e-7
    )
    other = case.brute(half if block_size == 8 else single, rounded, 0.01, 1e-6).out
    assert float((found.out - other).abs().max()) > 1e-5


def test_heads_may_be_taken_in_pieces(monkeypatch):
    case = Case(torch.float32, [9, 4], 4, 4, 2, 8, 1)
    given_ = (case.query, case.keys, case.values, 0.7, case.tables, torch.tensor([9, 4]), case.slopes)
    whole = attention(*given_)
    monkeypatch.setattr(ops_reference, "CHUNK", 9 * 8)
    same(attention(*given_), whole)


def test_nothing_behind_the_sequence_is_read():
    case = Case(torch.float32, [3, 0], 4, 1, 1, 8, 1)
    given_ = (0.7, case.tables, torch.tensor([3, 0]), case.slopes)
    whole = attention(case.query, case.keys, case.values, *given_)
    last = int(case.tables[0, 0])
    keys, values = torch.full_like(case.keys, NAN), torch.full_like(case.values, NAN)
    keys[last, :, :, :3], values[last, :, :, :3] = case.keys[last, :, :, :3], case.values[last, :, :, :3]
    case.tables[1] = 2**31 - 1
    same(attention(case.query, keys, values, *given_), whole)


def test_rounded_is_as_vllms_reference():
    case = Case(torch.bfloat16, [9], 4, 1, 2, 8, 1)
    given_ = (case.query, case.keys, case.values, 0.7, case.tables, torch.tensor([9]))
    exact, found = attention(*given_).out, attention(*given_, rounded=True).out
    assert torch.equal(found, found.bfloat16().double())
    assert 0 < float((found - exact).abs().max()) < 2.0**-6


def test_rounded_scores_are_float32():
    """Far from the end a bias is large, and neighbours' scores become equal or a step apart."""
    case = Case(torch.float32, [40_000], 4, 1, 1, 4, 1)
    slope = torch.tensor([-1.7])
    given_ = (case.query, case.keys, case.values, 0.01, case.tables, torch.tensor([40_000]), slope)
    exact, found = attention(*given_).out, attention(*given_, rounded=True).out
    bias = slope * (torch.arange(8).float() - 39_999)
    keys = [[float(case.keys.flatten()[case.key(0, t, 0, d)]) for d in range(4)] for t in range(8)]
    values = [[float(case.values.flatten()[case.value(0, t, 0, d)]) for d in range(4)] for t in range(8)]
    dots = [math.fsum(float(q) * k for q, k in zip(case.query[0, 0], key, strict=True)) for key in keys]
    scores = [float(torch.tensor(0.01 * dot + float(b)).float()) for dot, b in zip(dots, bias, strict=True)]
    powers = [math.exp(score - max(scores)) for score in scores]
    want = [math.fsum(p * v[d] for p, v in zip(powers, values, strict=True)) / math.fsum(powers) for d in range(4)]
    torch.testing.assert_close(found[0, 0], torch.tensor(want).double(), atol=1e-5, rtol=0)
    assert float((exact - found).abs().max()) > 1e-4


@pytest.mark.parametrize(("dtype", "x"), [(torch.uint8, 16), (torch.bfloat16, 8), (torch.float32, 4)])
def test_mispaired_reads_half_the_x(dtype, x):
    case = Case(dtype, [6], 4, 2, 1, 16, 5)
    assert case.x == x
    kind = "fp8" if dtype == torch.uint8 else "auto"
    found = attention(
        case.query, mispaired(case.keys), case.values, 0.7, case.tables, torch.tensor([6]), case.slopes, kind
    )
    keys, values = (numbers(decoded(cache, kind, torch.float32, 1.0)) for cache in (case.keys, case.values))
    same(found, case.brute(keys, values, 0.7, 1e-6, x // 2))
    right = case.brute(keys, values, 0.7, 1e-6)
    assert float((found.out - right.out).abs().max()) > 1e-2


# Bounds.


def one(out: float, spread: float, total: float, tokens: int) -> Truth:
    return Truth(*(torch.tensor([[[v]]], dtype=torch.float64) for v in (out, spread, total, tokens)))


@pytest.mark.parametrize(
    ("dtype", "version", "tokens", "spread", "want"),
    [
        ("bfloat16", "v1", 600, 0.5, (2 * 0.5 + 0.25) / 256 + 0.5e-5),
        ("bfloat16", "v2", 512, 0.5, (2 * 0.5 + 0.25) / 256 + 0.5e-5),
        ("bfloat16", "v2", 513, 0.5, (3 * 0.5 + 0.25) / 256 + 0.5e-5),
        ("bfloat16", "v1", 1, 0.5, (2 * 0.5 + 0.25) / 256 + 2.5e-7),
        ("float16", "v1", 9, 0.5, (5 * 0.5 + 0.25) / 2048 + 0.5e-5 + (7.0 + 9) / 2**25),
        ("float32", "v1", 9, 0.5, 0.5e-5),
        ("float32", "v1", 9, 3.0, 1e-5),
        ("float32", "v2", 513, 3.0, 1e-5),
        ("float32", "v1", 1, 3.0, 1.5e-6),
    ],
)
def test_the_bound_by_hand(dtype, version, tokens, spread, want):
    found = bound(one(-0.25, spread, 7.0, tokens), dtype, version)
    assert float(found) == pytest.approx(want, rel=1e-12)


def test_units_are_half_a_step():
    for dtype in (torch.bfloat16, torch.float16):
        name = str(dtype).removeprefix("torch.")
        assert ops_reference.BOUNDS[name].unit == torch.finfo(dtype).eps / 2
    assert ops_reference.BOUNDS["float16"].grain == torch.finfo(torch.float16).tiny * torch.finfo(torch.float16).eps / 2


def test_the_worst_element_is_the_one_nearest_to_its_tolerance():
    truth = torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64)
    allowed = torch.tensor([1.0, 0.1, 0.5], dtype=torch.float64)
    assert worst(torch.tensor([1.9, 2.05, 3.1]), truth, allowed) == pytest.approx((0.9, 1.0), rel=1e-6)
    assert worst(torch.tensor([1.5, 2.06, 3.1]), truth, allowed) == pytest.approx((0.06, 0.1), rel=1e-5)
    assert worst(torch.tensor([1.0, NAN, 3.0]), truth, allowed) == (math.inf, 0.1)
    assert worst(torch.tensor([1.0, 2.0, 3.0]), truth, torch.zeros(3)) == (0.0, 0.0)
    assert worst(torch.zeros(0), torch.zeros(0), torch.zeros(0)) == (0.0, 0.0)
    error, tolerance = worst(torch.tensor([1.0, 2.5, 3.0]), truth, torch.zeros(3))
    assert (error, tolerance) == (0.5, 0.0)


def test_close_and_would_pass():
    truth = torch.tensor([1.0, -2.0], dtype=torch.float64)
    allowed = close(truth, 0.5, 0.25)
    assert allowed.tolist() == [0.75, 1.0]
    assert would_pass(torch.tensor([1.75, -3.0]), truth, allowed)
    assert not would_pass(torch.tensor([1.75, -3.01]), truth, allowed)
    assert not would_pass(torch.tensor([1.0, NAN]), truth, allowed)
