"""The ring kernel beyond one token and 16 bits: fp8 caches, several tokens at once, ALiBi, large queries."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kernels import layout
from kernels.numbers import decode, encode
from kernels.tuned import ring_launch
from kernels.tuned.call import Decode
from kernels.tuned.plan import Plan

BACKENDS = ["sim", pytest.param("cuda", marks=pytest.mark.gpu)]
ROUNDING = {"bfloat16": 2.0**-8, "float16": 2.0**-11}


def halves(numbers: np.ndarray, scalar: str) -> np.ndarray:
    """Numbers as the kernel takes them."""
    return numbers.astype(np.float16) if scalar == "float16" else encode(numbers.astype(np.float32), "bfloat16")


def plain(codes: np.ndarray, scalar: str) -> np.ndarray:
    """What codes stand for, in float64."""
    return (codes if scalar == "float16" else decode(codes, "bfloat16")).astype(np.float64)


class Given:
    """Random inputs and the float64 answer, by plain loops over what the caches hold."""

    def __init__(
        self, lengths: list[int], heads: tuple[int, int], head_size: int, *, scalar: str = "bfloat16",
        kind: str = "auto", query_len: int = 1, alibi: bool = False, block_size: int = 16, large: float = 1.0,
    ) -> None:  # fmt: skip
        rng = np.random.default_rng(7)
        self.scalar, self.kind, self.query_len = scalar, kind, query_len
        self.lengths, (self.num_heads, self.kv_heads) = lengths, heads
        self.k_scale, self.v_scale = (0.37, 0.21) if kind != "auto" else (1.0, 1.0)
        counts = [layout.blocks_for(length, block_size) for length in lengths]
        order = rng.permutation(sum(counts) + 2)
        rows = iter(order)
        tables = [[next(rows) for _ in range(count)] for count in counts]
        width = max(counts) + 1
        self.tables = np.array([row + [-5] * (width - len(row)) for row in tables], np.int32)
        x = 16 if kind != "auto" else 8
        keys = rng.standard_normal((sum(counts) + 2, self.kv_heads, head_size, block_size))
        values = rng.standard_normal(keys.shape)
        if kind == "auto":
            k, v = halves(keys, scalar), halves(values, scalar)
            self.keys, self.values = plain(k, scalar), plain(v, scalar)
        else:
            k, v = encode(keys.astype(np.float32) / self.k_scale, kind), encode(values.astype(np.float32), kind)
            self.keys = decode(k, kind).astype(np.float64) * np.float64(np.float32(self.k_scale))
            self.values = decode(v, kind).astype(np.float64) * np.float64(np.float32(self.v_scale))
        for table, length in zip(tables, lengths, strict=True):
            if length % block_size:
                for cache in (k, v):
                    cache[table[-1], :, :, length % block_size :] = 0x7F if kind != "auto" else 0x7FFF
        self.k_cache = np.ascontiguousarray(
            k.reshape(*k.shape[:2], head_size // x, x, block_size).transpose(0, 1, 2, 4, 3)
        )
        self.v_cache = np.ascontiguousarray(v)
        self.q = halves(large * rng.standard_normal((len(lengths) * query_len, self.num_heads, head_size)), scalar)
        self.slopes = (2.0 ** -np.arange(1, self.num_heads + 1)).astype(np.float32) if alibi else None
        self.scale = 1 / large / head_size**0.5
        self.block_size = block_size

    def run(self, cut: Plan, backend: Any) -> np.ndarray:
        out = np.full(self.q.shape, 0x7FFF, np.uint16).view(self.q.dtype)
        scales = [np.array([scale], np.float32) for scale in (self.k_scale, self.v_scale)]
        call = Decode(
            out, self.q, self.k_cache, self.v_cache, self.kv_heads, self.scale, self.tables,
            np.array(self.lengths, np.int32), self.block_size, max(self.lengths), self.slopes, self.kind, *scales,
            query_len=self.query_len, lengths=self.lengths,
        )  # fmt: skip
        for launch in ring_launch.launches(call, np.zeros, cut):
            launch.run(backend)
        return plain(out, self.scalar)

    def truth(self) -> tuple[np.ndarray, np.ndarray]:
        """The answer, and the sum of what was added up, without signs."""
        q = plain(self.q, self.scalar)
        out, sizes = np.zeros(q.shape), np.zeros(q.shape)
        for row in range(len(q)):
            seq, number = divmod(row, self.query_len)
            seen = self.lengths[seq] - self.query_len + number + 1
            if seen <= 0:
                continue
            where = [(self.tables[seq, n // self.block_size], n % self.block_size) for n in range(seen)]
            for head in range(self.num_heads):
                kv = head // (self.num_heads // self.kv_heads)
                keys = np.array([self.keys[block, kv, :, slot] for block, slot in where])
                values = np.array([self.values[block, kv, :, slot] for block, slot in where])
                scores = keys @ q[row, head] * self.scale
                if self.slopes is not None:
                    scores += self.slopes[head] * (np.arange(seen) - seen + 1)
                weights = np.exp(scores - scores.max())
                weights /= weights.sum()
                out[row, head], sizes[row, head] = weights @ values, weights @ np.abs(values)
        return out, sizes

    def agrees(self, out: np.ndarray) -> bool:
        """Each weight is rounded once (to float16 beside fp8 codes), and so is the output."""
        truth, sizes = self.truth()
        weights = ROUNDING["float16" if self.kind != "auto" else self.scalar]
        bound = weights * sizes + ROUNDING[self.scalar] * np.abs(truth) + 4e-6 * sizes
        return bool((np.abs(out - truth) <= bound).all())


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    ("lengths", "heads", "head_size", "options", "cut"),
    [
        ([37], (8, 1), 128, {"kind": "fp8_e4m3"}, Plan(1, 1, 2)),
        ([70, 17], (14, 2), 64, {"kind": "fp8_e4m3"}, Plan(2, 2, 3)),
        ([33, 64], (4, 2), 64, {"kind": "fp8_e5m2", "scalar": "float16"}, Plan(1, 2, 2)),
        ([45], (16, 1), 32, {"kind": "fp8_e4m3", "block_size": 32}, Plan(1, 2, 2)),
        ([50, 20], (4, 2), 32, {"kind": "fp8_e4m3", "large": 1e7}, Plan(1, 2, 2)),
        ([50, 20], (4, 2), 32, {"kind": "fp8_e4m3", "large": 1e-7}, Plan(1, 2, 2)),
        ([37, 18], (8, 2), 64, {"query_len": 2}, Plan(2, 2, 2)),
        ([34, 4, 49], (8, 2), 32, {"query_len": 4}, Plan(1, 2, 2)),
        ([50, 3], (3, 1), 32, {"query_len": 3, "block_size": 32}, Plan(3, 2, 2)),
        ([35, 18], (4, 1), 32, {"query_len": 4, "kind": "fp8_e4m3"}, Plan(1, 2, 2, balance=True)),
        ([60, 5], (6, 2), 32, {"alibi": True}, Plan(2, 2, 2)),
        ([60, 5], (6, 2), 32, {"alibi": True, "query_len": 2, "scalar": "float16"}, Plan(1, 2, 2)),
    ],
)
def test_within_its_roundings(
    lengths: list[int], heads: tuple[int, int], head_size: int, options: dict[str, Any], cut: Plan, backend: str
) -> None:
    given = Given(lengths, heads, head_size, **options)
    assert given.agrees(given.run(cut, backend))


def test_what_is_wrong_fails() -> None:
    right = Given([37, 18], (4, 2), 32, query_len=2, alibi=True)
    out = right.run(Plan(1, 2, 2), "sim")
    assert right.agrees(out)
    assert not Given([37, 18], (4, 2), 32, query_len=2).agrees(out), "without the slopes"
    assert not right.agrees(np.roll(out, 1, axis=0)), "the other token"
    fp8 = Given([37, 18], (4, 2), 32, kind="fp8_e4m3")
    found = fp8.run(Plan(1, 2, 2), "sim")
    assert not fp8.agrees(found / fp8.v_scale), "a scale forgotten"
    fp8.k_scale = 1.0
    assert not fp8.agrees(fp8.run(Plan(1, 2, 2), "sim"))
