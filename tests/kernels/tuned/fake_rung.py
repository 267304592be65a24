"""A rung in a few lines of torch: rounds where its `Rounding` says, and is easy to break on purpose."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from kernels.tuned.call import Decode
from kernels.tuned.ladder import Rung
from kernels.tuned.takes import Rounding

BROKEN = (
    "zeros", "mispaired", "head-shift", "no-tail-mask", "no-alibi", "last-token-lost", "scale-lost", "sees-the-future",
    "rounds-twice", "no-maximum",
)  # fmt: skip
FP8 = {"fp8": torch.float8_e4m3fn, "fp8_e5m2": torch.float8_e5m2}
DTYPES = {"bfloat16": torch.bfloat16, "float16": torch.float16}


@dataclass(frozen=True)
class FakeLaunch:
    """Stands in for `call.Launch`."""

    call: Decode
    rounding: Rounding
    broken: str = ""
    seen: list[Any] = field(default_factory=list)

    def run(self, backend: Any) -> None:
        self.seen.append(backend)
        c, broken = self.call, self.broken
        dtype = DTYPES[c.scalar]
        out = torch.from_numpy(c.out).view(dtype)
        query = torch.from_numpy(c.query).view(dtype).float()
        keys = torch.from_numpy(c.key_cache)
        if broken == "mispaired":
            n, h, g, b, x = keys.shape
            keys = keys.reshape(n, h, 2 * g, b, x // 2)
        for row in range(len(out)):
            seq, behind = divmod(row, c.query_len)
            length = int(c.seq_lens[seq])
            seen = length if broken == "sees-the-future" else length - (c.query_len - 1 - behind)
            out[row] = 0
            if seen < 1 or broken == "zeros":
                continue
            used = torch.from_numpy(c.block_tables)[seq, : -(-length // c.block_size)].long()
            k = keys[used].permute(1, 0, 3, 2, 4).reshape(c.num_kv_heads, -1, c.head_size)
            v = torch.from_numpy(c.value_cache)[used].permute(1, 0, 3, 2).reshape(c.num_kv_heads, -1, c.head_size)
            k, v = (self._wide(part, dtype, factor) for part, factor in ((k, c.k_scale), (v, c.v_scale)))
            if broken == "head-shift":
                k, v = k.roll(1, 0), v.roll(1, 0)
            tokens = k.shape[1] if broken == "no-tail-mask" else seen - (broken == "last-token-lost")
            out[row] = self._attend(query[row], k[:, :tokens], v[:, :tokens], seen, dtype)

    def _wide(self, codes: Tensor, dtype: torch.dtype, factor: Any) -> Tensor:
        if self.call.kv_cache_dtype == "auto":
            return codes.view(dtype).float()
        numbers = codes.view(FP8[self.call.kv_cache_dtype]).float()
        return numbers if self.broken == "scale-lost" else numbers * float(factor[0])

    def _attend(self, query: Tensor, k: Tensor, v: Tensor, seen: int, dtype: torch.dtype) -> Tensor:
        c = self.call
        if not k.shape[1]:
            return torch.zeros_like(query)
        scores = query.view(c.num_kv_heads, c.group, -1) @ k.transpose(1, 2) * c.scale
        if c.alibi_slopes is not None and self.broken != "no-alibi":
            slopes = torch.from_numpy(c.alibi_slopes).view(c.num_kv_heads, c.group, 1)
            scores = scores + slopes * (torch.arange(k.shape[1]) - (seen - 1)).float()
        top = 0.0 if self.broken == "no-maximum" else scores.amax(-1, keepdim=True)
        weights = torch.exp(scores - top)
        total = weights.sum(-1, keepdim=True)
        if self.rounding.weights:
            narrow = DTYPES.get(self.rounding.narrow if c.kv_cache_dtype != "auto" else "", dtype)
            weights = weights.to(narrow).float()
        values = weights @ v
        if self.broken == "rounds-twice":
            values = (values / math.pi).to(dtype).float() * math.pi
        return (values / total).reshape(query.shape)


def fake(rung: str, rounding: Rounding, broken: str = "") -> Rung:
    """A rung of that name."""
    assert broken in ("", *BROKEN)
    return Rung(0, rung, "A fake", "none", lambda call, zeros, plan: (FakeLaunch(call, rounding, broken),))  # type: ignore[return-value]
