"""One case of the ladder's grid: a rung, and a case of the ops' own grid that gives its inputs and its truth.

A call that the rung does not take is a case too: it must be refused with a typed error, whose words are kept.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from kernels.errors import ArgumentError, LaunchError
from kernels.tuned import ops
from kernels.tuned.plan import Plan
from kernels.tuned.takes import TAKES, Rounding
from kernels.vllm import ops_reference
from kernels.vllm.ops_attention_case import SPREAD, AttentionCase, Inputs, Outcome
from kernels.vllm.ops_reference import BOUNDS, FLOAT32_BOUND, KERNEL_EPSILON, ONE_TOKEN_BOUND, Truth


@dataclass(frozen=True)
class Found(Outcome):
    """What a case showed; `refused`: the words of the error with which the rung refused it."""

    refused: str = ""


@dataclass(frozen=True)
class TunedCase:
    """One call of one rung. `base`: one pair of heads, with or without slopes; `cut`: the plan, by name.

    `query_len`: rows of query for each sequence; in a shorter sequence the first of them see no token.
    """

    rung: str
    base: AttentionCase
    cut: str = "own"
    plan: Plan | None = None
    query_len: int = 1

    @property
    def id(self) -> str:
        """The case in a few words, unique in its group."""
        more = [f"q{self.query_len}"] if self.query_len > 1 else []
        return " ".join([self.base.id, *more, *([f"cut {self.cut}"] if self.plan else [])])

    @property
    def unit(self) -> str:
        """What is compiled for it, or nearly: cases with the same unit share it."""
        if self.base.beyond:
            return "beyond"  # one after another: each needs much memory
        query, kv = self.base.heads[0]
        return f"{self.base.unit}/{self.base.block_size}/{query // kv}"

    @property
    def row(self) -> dict[str, Any]:
        """The case's place on the axes of `takes`."""
        base = self.base
        return {
            "head_size": base.head_size, "heads": base.heads[0], "dtype": base.dtype, "kind": base.kv_cache_dtype,
            "block_size": base.block_size, "alibi": base.alibi[0], "query_len": self.query_len,
        }  # fmt: skip

    def refusal(self, lengths: list[int]) -> str:
        """Why the rung must refuse the case: the axis, or the empty string."""
        takes = TAKES[self.rung]
        too_long = takes.longest is not None and max(lengths) > takes.longest
        return takes.refused(self.row) or ("longest" if too_long else "")

    def run(self, device: str) -> Found:
        """Call the rung and compare; or see it refuse. Raises what the rung raises without being allowed to."""
        given = self.build(device)
        out = torch.full(given.query.shape, math.nan, dtype=given.query.dtype, device=given.query.device)
        must = self.refusal(given.seq_lens.tolist())
        try:
            self.call(out, given)
        except (ArgumentError, LaunchError) as refusal:
            if not must:
                raise
            return Found(0.0, 0.0, True, runs=0, refused=str(refusal))
        if must:
            raise RuntimeError(f"{self.rung} took what its row of TAKES refuses: {must}")
        truth = self.truth(given)
        allowed = self.allowed(truth)
        error, tolerance = ops_reference.worst(out, truth.out, allowed)
        return Found(
            error, tolerance, error <= tolerance,
            ops_reference.would_pass(torch.zeros_like(truth.out), truth.out, allowed),
            ops_reference.would_pass(self.truth(given, shuffled=True).out, truth.out, allowed),
        )  # fmt: skip

    def build(self, device: str) -> Inputs:
        """Seeded inputs on the device. query: [num_seqs * query_len, heads, head_size]."""
        base = self.base
        given = base.build(device, base.heads[0], base.alibi[0])
        if self.query_len == 1:
            return given
        make = torch.Generator(device).manual_seed(base.seed + 1)
        shape = (given.query.shape[0] * self.query_len, *given.query.shape[1:])
        query = torch.randn(shape, generator=make, device=device) * SPREAD
        return replace(given, query=query.to(given.query.dtype))

    def call(self, out: Tensor, given: Inputs) -> None:
        """The op, on these inputs."""
        k_scale, v_scale = (torch.tensor(s, device=out.device) for s in (given.k_scale, given.v_scale))
        longest = max(int(given.seq_lens.max()), 1)
        ops.paged_attention(
            self.rung, out, given.query, given.key_cache, given.value_cache, given.num_kv_heads, given.scale,
            given.block_tables, given.seq_lens, self.base.block_size, longest, given.slopes, self.base.kv_cache_dtype,
            k_scale, v_scale, plan=self.plan, query_len=self.query_len, lengths=given.seq_lens.tolist(),
        )  # fmt: skip

    def truth(self, given: Inputs, *, shuffled: bool = False) -> Truth:
        """The float64 answer; with `shuffled` over keys whose elements are mis-paired.

        Every row of query is a sequence of its own: the tokens up to its own. Without `scale_first` the fp8 codes are
        taken as the numbers that they are, and the scales are applied outside.
        """
        keys = ops_reference.mispaired(given.key_cache) if shuffled else given.key_cache
        rounding = TAKES[self.rung].rounding
        behind = torch.arange(1 - self.query_len, 1, dtype=torch.int32, device=given.seq_lens.device)
        lengths = (given.seq_lens[:, None] + behind).flatten().clamp(min=0)
        tables = given.block_tables.repeat_interleave(self.query_len, 0)
        inside = (given.k_scale, given.v_scale) if rounding.scale_first else (1.0, 1.0)
        k_outside, v_outside = given.k_scale / inside[0], given.v_scale / inside[1]
        found = ops_reference.attention(
            given.query, keys, given.value_cache, given.scale * k_outside, tables, lengths, given.slopes,
            self.base.kv_cache_dtype, *inside, eps=KERNEL_EPSILON if rounding.port else 0.0,
            rounded=self.base.inputs == "vllm",
        )  # fmt: skip
        return Truth(found.out * v_outside, found.spread * v_outside, found.total * v_outside, found.tokens)

    def allowed(self, truth: Truth) -> Tensor:
        """How far each output element may be off."""
        if self.base.tolerance:
            return ops_reference.close(truth.out, *self.base.tolerance)
        return bound(truth, TAKES[self.rung].rounding, self.base.dtype, self.base.kv_cache_dtype)


def bound(truth: Truth, rounding: Rounding, dtype: str, kind: str) -> Tensor:
    """How far an output element of a rung may be off: what its roundings to 16 bits add up to, and float32's share.

    As in `ops_reference.BOUNDS`, with A the mean of |V| under the weights and u half the distance between neighbours:
    a rounded weight is off by u of itself, so all of them by u A; the output by u of itself. float16 is no longer
    relative near zero: a weight may be off by its grain, so all of them by grain times the sum of |v|, and the output
    by the grain once. Weights are at most 1 before they are divided by their sum, which is at least 1, so their grain
    only shrinks. float32 adds what it adds to the ports, and nothing for a sequence of one token but its last place.
    """
    if rounding.port:
        return ops_reference.bound(truth, dtype, rounding.port)
    one = truth.tokens == 1
    allowed = torch.where(one, ONE_TOKEN_BOUND * truth.spread, FLOAT32_BOUND * truth.spread.clamp(max=1.0))
    allowed = allowed + BOUNDS[dtype].unit * truth.out.abs() + BOUNDS[dtype].grain
    if rounding.weights:
        held = BOUNDS[(rounding.narrow if kind != "auto" else "") or dtype]
        allowed = allowed + held.unit * truth.spread + held.grain * truth.total
    return allowed


def bounds() -> list[dict[str, Any]]:
    """The bounds for a page: one for each way of rounding and dtype, with the rungs that it holds for."""
    ways: dict[Rounding, list[str]] = {}
    for rung, takes in TAKES.items():
        ways.setdefault(takes.rounding, []).append(rung)
    found = []
    for rounding, rungs in ways.items():
        for dtype in dict.fromkeys(dtype for rung in rungs for dtype in TAKES[rung].dtype):
            port = BOUNDS[dtype]
            found.append({
                "rungs": rungs, "dtype": dtype, "unit": port.unit, "grain": port.grain, "port": rounding.port,
                "roundings": port.roundings if rounding.port else int(rounding.weights), "narrow": rounding.narrow,
                "float32_share": FLOAT32_BOUND, "one_token": ONE_TOKEN_BOUND, "why": rounding.why,
            })  # fmt: skip
    return found


def cell(group: str, rung: str, row: dict[str, Any], **more: Any) -> AttentionCase:
    """The ops' case at one place on the axes."""
    return AttentionCase(
        group, rung, row["dtype"], row["kind"], row["block_size"], row["head_size"], (row["heads"],), (row["alibi"],),
        **more,
    )  # fmt: skip
