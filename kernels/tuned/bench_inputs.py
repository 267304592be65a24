"""Inputs of a benchmark cell as torch tensors, what is right about them in float64, and how kernels are handed them.

Several sets of inputs take turns, so that the GPU's second-level cache holds nothing that is asked for next.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import torch

from kernels.tuned.call import Decode
from kernels.tuned.shapes import Shape, WriteShape
from kernels.vllm.strided import gpu_array

FOOTPRINT = 250_000_000
"""Bytes that the sets of a cell hold together, at least: several times the second-level cache of any GPU of today."""
MOST_SETS = 320
FP8 = {"fp8_e4m3": torch.float8_e4m3fn, "fp8_e5m2": torch.float8_e5m2}
STORAGE = {torch.bfloat16: torch.uint16, torch.float8_e4m3fn: torch.uint8, torch.float8_e5m2: torch.uint8}


@dataclass(frozen=True, eq=False)
class Case:
    """One set of inputs of one shape, as a peer is given it.

    batch, context (tokens of each sequence), heads, kv_heads, head_size, block_size, dtype and kv_cache_dtype (names,
    as `Shape` has them); query, out: [batch * query_len, heads, head_size]; key_cache: [blocks, kv_heads,
    head_size / x, block_size, x]; value_cache: [blocks, kv_heads, head_size, block_size]; both uint8 codes for an fp8
    cache; block_tables: [batch, most blocks] int32; seq_lens: [batch] int32; scale: of the scores. `memory`: the
    bytes of both caches as one row, keys first. `shared`: what the sets of a cell may keep in common.
    """

    shape: Shape
    query: torch.Tensor
    key_cache: torch.Tensor
    value_cache: torch.Tensor
    block_tables: torch.Tensor
    seq_lens: torch.Tensor
    out: torch.Tensor
    memory: torch.Tensor
    shared: dict[str, Any] = field(default_factory=dict)

    @property
    def batch(self) -> int:
        """Sequences."""
        return self.shape.batch

    @property
    def context(self) -> tuple[int, ...]:
        """Tokens of each sequence."""
        return self.shape.context

    @property
    def heads(self) -> int:
        """Query heads."""
        return self.shape.heads

    @property
    def kv_heads(self) -> int:
        """KV heads."""
        return self.shape.kv_heads

    @property
    def head_size(self) -> int:
        """Elements of a head."""
        return self.shape.head_size

    @property
    def block_size(self) -> int:
        """Tokens of a KV block."""
        return self.shape.block_size

    @property
    def dtype(self) -> str:
        """bfloat16 or float16."""
        return self.shape.dtype

    @property
    def kv_cache_dtype(self) -> str:
        """auto, fp8_e4m3 or fp8_e5m2."""
        return self.shape.kv_cache_dtype

    @property
    def query_len(self) -> int:
        """Queries of a sequence."""
        return self.shape.query_len

    @property
    def scale(self) -> float:
        """Factor of the scores."""
        return float(self.shape.head_size**-0.5)

    def tokens_of(self, seq: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Keys and values of one sequence in float64, [tokens, kv_heads, head_size]."""
        length = self.context[seq]
        blocks = self.block_tables[seq, : -(-length // self.block_size)].long()
        keys, values = self.key_cache[blocks], self.value_cache[blocks]
        if self.kv_cache_dtype in FP8:
            keys, values = keys.view(FP8[self.kv_cache_dtype]), values.view(FP8[self.kv_cache_dtype])
        # fp8 has no gather and no einsum, but it converts.
        rows = (-1, self.kv_heads, self.head_size)
        return (
            keys.to(torch.float64).permute(0, 3, 1, 2, 4).reshape(rows)[:length],
            values.to(torch.float64).permute(0, 3, 1, 2).reshape(rows)[:length],
        )

    def truth(self, seq: int) -> torch.Tensor:
        """The output of one sequence in float64, [query_len, heads, head_size]."""
        keys, values = self.tokens_of(seq)
        first = seq * self.query_len
        queries = self.query[first : first + self.query_len].to(torch.float64)
        grouped = queries.reshape(self.query_len, self.kv_heads, -1, self.head_size)
        scores = torch.einsum("qkgd,nkd->qkgn", grouped, keys) * self.scale
        # A sequence's last query sees every token, the one before it all but one.
        seen = torch.arange(len(keys), device=keys.device)[None, :] < (
            len(keys) - self.query_len + 1 + torch.arange(self.query_len, device=keys.device)[:, None]
        )
        weights = scores.masked_fill(~seen[:, None, None, :], -math.inf).softmax(-1)
        return torch.einsum("qkgn,nkd->qkgd", weights, values).reshape(queries.shape)


def make(shape: Shape, seed: int, device: str, shared: dict[str, Any] | None = None) -> Case:
    """Random inputs, blocks in random order; the same for the same seed. Slots past a sequence's end hold NaN."""
    chance = torch.Generator(device=device).manual_seed(seed)
    kind = getattr(torch, shape.dtype)
    codes = FP8.get(shape.kv_cache_dtype)
    item = torch.uint8 if codes else kind
    x = 16 if codes else 8
    half = shape.blocks * shape.kv_heads * shape.head_size * shape.block_size
    memory = torch.empty(2 * half, device=device, dtype=item)
    step = 1 << 28
    for first in range(0, 2 * half, step):
        part = memory[first : first + step]
        if codes is None:
            part.normal_(generator=chance)
        else:
            part.copy_(torch.randn(part.shape, device=device, generator=chance).to(codes).view(torch.uint8))
    sizes = (shape.blocks, shape.kv_heads, shape.head_size)
    key_cache = memory[:half].view(shape.blocks, shape.kv_heads, shape.head_size // x, shape.block_size, x)
    value_cache = memory[half:].view(*sizes, shape.block_size)
    order = torch.randperm(shape.blocks, device=device, generator=chance).to(torch.int32)
    tables = _tables(shape, order)
    query = torch.randn(
        shape.batch * shape.query_len, shape.heads, shape.head_size, device=device, generator=chance
    ).to(kind)
    case = Case(
        shape, query, key_cache, value_cache, tables,
        torch.tensor(shape.context, device=device, dtype=torch.int32), torch.empty_like(query), memory,
        {} if shared is None else shared,
    )  # fmt: skip
    _spoil(case)
    poison(case.out)
    return case


def _tables(shape: Shape, order: torch.Tensor) -> torch.Tensor:
    """Each sequence's blocks, one after the other in `order`; rows are as long as the longest, zeros behind."""
    counts = torch.tensor([-(-length // shape.block_size) for length in shape.context], device=order.device)
    column = torch.arange(int(counts.max()), device=order.device)[None, :]
    first = torch.cumsum(counts, 0) - counts
    place = (first[:, None] + column).clamp(max=shape.blocks - 1)
    return torch.where(column < counts[:, None], order[place], 0).to(torch.int32).contiguous()


def _spoil(case: Case) -> None:
    """NaN behind each sequence's last token: what a kernel must not let in."""
    if case.kv_cache_dtype == "fp8_e5m2":
        nan: float = 0x7F
    else:
        nan = 0x7F if case.kv_cache_dtype in FP8 else math.nan
    for seq, length in enumerate(case.context):
        if behind := length % case.block_size:
            block = int(case.block_tables[seq, length // case.block_size])
            case.key_cache[block, :, :, behind:, :] = nan
            case.value_cache[block, :, :, behind:] = nan


def sets_for(moved_bytes: int, footprint: int = FOOTPRINT) -> int:
    """How many sets of inputs take turns: at least two, and until they hold `footprint` bytes, up to a limit."""
    return min(MOST_SETS, max(2, -(-footprint // moved_bytes)))


def poison(out: torch.Tensor) -> None:
    """Fill with NaN: an element that is not written fails the check."""
    out.fill_(math.nan)


def checked_sequences(shape: Shape) -> tuple[int, ...]:
    """Which sequences are held against float64: the first, the longest, the shortest and the last."""
    lengths = shape.context
    chosen = {0, len(lengths) - 1, lengths.index(max(lengths)), lengths.index(min(lengths))}
    return tuple(sorted(chosen))


def relative_error(out: torch.Tensor, case: Case, truths: Sequence[tuple[int, torch.Tensor]]) -> float:
    """||out - truth|| / ||truth|| over the given sequences; NaN where an element of any sequence is not finite."""
    if not bool(torch.isfinite(out).all()):
        return math.nan
    rows = out.reshape(case.batch, case.query_len, case.heads, case.head_size)
    got = torch.stack([rows[seq] for seq, _ in truths]).to(torch.float64)
    want = torch.stack([truth for _, truth in truths])
    return float((got - want).norm() / want.norm())


def array(tensor: torch.Tensor) -> Any:
    """A tensor as our kernels take it, over the same memory: bfloat16 and fp8 as codes, on the GPU where it lies."""
    held = tensor.detach()
    held = held.view(STORAGE.get(held.dtype, held.dtype))
    if held.device.type == "cpu":
        return held.numpy()
    dtype = str(held.dtype).removeprefix("torch.")
    return gpu_array(held.data_ptr(), tuple(held.shape), held.stride(), dtype, held)


def zeros_on(device: str) -> Any:
    """`zeros(size, dtype)` for a rung's scratch memory: NumPy's, or rows of torch's memory."""
    if device == "cpu":
        return np.zeros

    def zeros(size: int, dtype: Any) -> Any:
        kind = np.dtype(dtype)
        held = torch.zeros(max(1, size * kind.itemsize), device=device, dtype=torch.uint8)
        return gpu_array(held.data_ptr(), (size,), (1,), kind.name, held)

    return zeros


def decode_call(case: Case) -> Decode:
    """The case as the arguments of a rung; writes to `case.out`. Raises ArgumentError."""
    return Decode(
        array(case.out), array(case.query), array(case.key_cache), array(case.value_cache), case.kv_heads, case.scale,
        array(case.block_tables), array(case.seq_lens), case.block_size, max(case.context),
        kv_cache_dtype=case.kv_cache_dtype, k_scale=one(case), v_scale=one(case), query_len=case.query_len,
        lengths=case.context,
    )  # fmt: skip


def one(case: Case) -> Any:
    """The scale of an fp8 cache's codes: one, where the kernel runs."""
    if "one" not in case.shared:
        case.shared["one"] = torch.ones(1, device=case.query.device, dtype=torch.float32)
    return array(case.shared["one"])


def copies(source: torch.Tensor, target: torch.Tensor) -> tuple[Callable[[], Any], Callable[[], Any]]:
    """Two ways to copy a tensor: the driver's copy, which inside a graph may be slower, and a kernel of torch's."""
    words, into = (tensor.view(-1).view(torch.int32) for tensor in (source, target))
    return partial(target.copy_, source), partial(torch.bitwise_or, words, 0, out=into)


@dataclass(frozen=True, eq=False)
class WriteCase:
    """One call of the cache writer: key, value [tokens, heads, head_size]; slots [tokens] int64."""

    shape: WriteShape
    key: torch.Tensor
    value: torch.Tensor
    key_cache: torch.Tensor
    value_cache: torch.Tensor
    slots: torch.Tensor

    def wrong(self) -> int:
        """Elements of the caches that are not what was to be written there."""
        block, offset = self.slots // self.shape.block_size, self.slots % self.shape.block_size
        keys = self.key_cache[block, :, :, offset, :].reshape(self.key.shape)
        values = self.value_cache[block, :, :, offset]
        return int((keys != self.key).sum() + (values != self.value).sum())


def make_write(shape: WriteShape, seed: int, device: str) -> WriteCase:
    """Random keys and values, and caches of NaN that they fill; blocks in random order, or every slot."""
    chance = torch.Generator(device=device).manual_seed(seed)
    kind = getattr(torch, shape.dtype)
    blocks = -(-shape.tokens // shape.block_size)
    key, value = (
        torch.randn(shape.tokens, shape.heads, shape.head_size, device=device, generator=chance).to(kind)
        for _ in range(2)
    )
    if shape.scattered:
        slots = torch.randperm(blocks * shape.block_size, device=device, generator=chance)
    else:
        order = torch.randperm(blocks, device=device, generator=chance)
        slots = (order[:, None] * shape.block_size + torch.arange(shape.block_size, device=device)).reshape(-1)
    slots = slots[: shape.tokens].contiguous()
    keys = torch.full(
        (blocks, shape.heads, shape.head_size // 8, shape.block_size, 8), math.nan, device=device, dtype=kind
    )
    values = torch.full((blocks, shape.heads, shape.head_size, shape.block_size), math.nan, device=device, dtype=kind)
    return WriteCase(shape, key, value, keys, values, slots)
