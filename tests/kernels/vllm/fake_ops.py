"""vLLM's ops once more, in vectorised torch: fast enough to try the whole grid, and easy to break on purpose.

Rounds where vLLM's kernels round, so that it shows how close a right kernel comes to the bounds. `broken` is one of
BROKEN or empty.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

BROKEN = ("zeros", "mispaired", "head-shift", "no-tail-mask", "no-epsilon", "no-alibi", "last-token-lost", "scale-lost")
FP8 = {"fp8": torch.float8_e4m3fn, "fp8_e4m3": torch.float8_e4m3fn, "fp8_e5m2": torch.float8_e5m2}


class FakeOps:
    """Stands in for `kernels.vllm.ops`."""

    def __init__(self, broken: str = "") -> None:
        assert broken in ("", *BROKEN)
        self.broken = broken

    def paged_attention_v1(self, out: Tensor, *rest: Any) -> None:
        self._attention(out, 1 << 30, *rest)

    def paged_attention_v2(
        self, out: Tensor, exp_sums: Tensor, max_logits: Tensor, tmp_out: Tensor, *rest: Any
    ) -> None:
        self._attention(out, 512, *rest)

    def _attention(
        self, out, part, query, key_cache, value_cache, num_kv_heads, scale, tables, seq_lens, block_size, longest,
        slopes, kind, k_scale, v_scale,
    ):  # fmt: skip
        group = query.shape[1] // num_kv_heads
        if self.broken == "mispaired":
            n, h, g, b, x = key_cache.shape
            key_cache = key_cache.reshape(n, h, 2 * g, b, x // 2)
        for seq, length in enumerate(seq_lens.tolist()):
            out[seq] = 0
            if self.broken == "zeros" or not length:
                continue
            used = tables[seq, : -(-length // block_size)].long()
            keys = key_cache[used].permute(1, 0, 3, 2, 4).reshape(num_kv_heads, len(used) * block_size, -1)
            values = value_cache[used].permute(1, 0, 3, 2).reshape(num_kv_heads, len(used) * block_size, -1)
            keys = self._read(keys, kind, k_scale, query.dtype, block_size == 8)
            values = self._read(values, kind, v_scale, query.dtype, False)
            if self.broken == "head-shift":
                keys, values = keys.roll(1, 0), values.roll(1, 0)
            tail = torch.arange(keys.shape[1], device=out.device) >= length - (self.broken == "last-token-lost")
            if self.broken != "no-tail-mask":
                values[:, tail] = 0
            q = query[seq].float().view(num_kv_heads, group, -1)
            logits = q @ keys.float().transpose(1, 2) * scale
            if slopes is not None and self.broken != "no-alibi":
                away = (torch.arange(keys.shape[1], device=out.device) - length + 1).float()
                logits = logits + slopes.view(num_kv_heads, group, 1) * away
            if self.broken != "no-tail-mask":
                logits[:, :, tail] = -math.inf
            sums, tops, outs = [], [], []
            for first in range(0, length, part):
                mine = logits[:, :, first : first + part]
                top = mine.amax(-1, keepdim=True)
                mine = torch.exp(mine - top)
                total = mine.sum(-1, keepdim=True)
                weights = (mine * (1 / (total + self._epsilon()))).to(query.dtype)
                outs.append(self._dot(weights, values[:, first : first + part], block_size))
                sums.append(total)
                tops.append(top)
            out[seq] = self._merge(outs, sums, tops).reshape(out[seq].shape)

    def _epsilon(self) -> float:
        return 0.0 if self.broken == "no-epsilon" else 1e-6

    def _read(self, cache: Tensor, kind: str, scale: Any, dtype: torch.dtype, one_by_one: bool) -> Tensor:
        if kind == "auto":
            return cache.clone()
        lost = self.broken == "scale-lost"
        read = cache.view(FP8[kind]).float() * (1.0 if lost else float(scale))
        return (read if one_by_one or dtype != torch.float32 else read.half()).to(dtype)

    def _dot(self, weights: Tensor, values: Tensor, block_size: int) -> Tensor:
        """[kv, group, tokens] with [kv, tokens, size], rounded as the kernels round."""
        dtype = weights.dtype
        if dtype == torch.float32:
            return weights @ values
        found = []
        for head in range(weights.shape[0]):
            # [group, size, tokens]: products in the narrow type.
            products = weights[head][:, None] * values[head].T[None]
            if dtype == torch.float16:
                short = -products.shape[-1] % 8
                p = torch.nn.functional.pad(products, (0, short)).unflatten(-1, (-1, 4, 2))
                p = ((p[..., 0, :] + p[..., 1, :]) + p[..., 2, :]) + p[..., 3, :]
                found.append(p.float().sum((-1, -2)))
            else:
                found.append(products.float().sum(-1))
        return torch.stack(found).to(dtype)

    def _merge(self, outs: list[Tensor], sums: list[Tensor], tops: list[Tensor]) -> Tensor:
        if len(outs) == 1:
            return outs[0]
        top = torch.stack(tops).amax(0)
        rescaled = [s * torch.exp(t - top) for s, t in zip(sums, tops, strict=True)]
        over = 1 / (sum(rescaled) + self._epsilon())
        return sum(o.float() * r * over for o, r in zip(outs, rescaled, strict=True)).to(outs[0].dtype)

    def _rows(self, rows: Tensor, kind: str, scale: Any) -> Tensor:
        if kind == "auto":
            return rows
        most = torch.finfo(FP8[kind]).max
        lost = self.broken == "scale-lost"
        return (rows.float() / (1 if lost else scale)).clamp(-most, most).to(FP8[kind]).view(torch.uint8)

    def reshape_and_cache(self, key, value, key_cache, value_cache, slots, kind, k_scale, v_scale):
        used = slots >= 0
        slots, count = slots[used], len(slots)
        size = value_cache.shape[3]
        k, v = (self._rows(r[:count][used], kind, s) for r, s in ((key, k_scale), (value, v_scale)))
        if self.broken == "head-shift":
            k = k.roll(1, 1)
        x = key_cache.shape[4] // (2 if self.broken == "mispaired" else 1)
        n, h, g, b, w = key_cache.shape
        cache = key_cache.view(n, h, g * (w // x), b, x)
        cache.permute(0, 3, 1, 2, 4)[slots // size, slots % size] = k.unflatten(-1, (-1, x))
        value_cache.permute(0, 3, 1, 2)[slots // size, slots % size] = v

    def reshape_and_cache_flash(self, key, value, key_cache, value_cache, slots, kind, k_scale, v_scale):
        used = slots >= 0
        slots, count = slots[used], len(slots)
        size = key_cache.shape[1]
        for rows, cache, scale in ((key, key_cache, k_scale), (value, value_cache, v_scale)):
            heads = scale.view(-1, 1) if scale.numel() > 1 else scale
            made = self._rows(rows[:count][used], kind, heads)
            if self.broken == "head-shift":
                made = made.roll(1, 1)
            cache[slots // size, slots % size] = made
