"""Other people's decode attention, on the same inputs: torch, FlashInfer, vLLM's compiled ops, each where it is there.

A peer is a function from a case to a call that takes no arguments, runs on torch's current stream, and names its
output: `.out`. It raises Unsupported for a case that it does not take; what cannot be imported is its reason too.
`--also MODULE` adds more: a module with `PEERS`, and `VERSIONS` if it wants to say what they are. Its own exception
called Unsupported will do. Only a function with an attribute `query_lens` is given several queries a sequence.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import metadata
from typing import Any

import torch
from torch.nn import functional

from kernels.tuned.bench_inputs import FP8, Case

WORKSPACE_BYTES = 256 << 20
FLEX_LIMIT = 3e9


class Unsupported(Exception):
    """A case that this peer does not take, with the reason."""


@dataclass(eq=False)
class PeerCall:
    """A call of a peer, ready. `graph`: whether a CUDA graph can capture it. `kept`: what it needs alive."""

    call: Callable[[], Any]
    out: torch.Tensor
    graph: bool = True
    kept: Any = field(default=None)

    def __call__(self) -> None:
        """Run it on torch's current stream."""
        self.call()


Maker = Callable[[Case], Any]


def gather_sdpa(case: Case) -> PeerCall:
    """Gather each sequence's blocks into a dense tensor by torch's indexing, then scaled_dot_product_attention."""
    _plain(case)
    length = case.context[0]
    if set(case.context) != {length}:
        raise Unsupported("sequences of one length only: it works on a dense tensor")
    blocks = case.block_tables.long()
    query = case.query[:, :, None, :]

    def call() -> None:
        dense = (case.batch, case.kv_heads, -1, case.head_size)
        # [batch, blocks, kv_heads, head_size / x, block_size, x] -> [batch, kv_heads, tokens, head_size]
        keys = case.key_cache[blocks].permute(0, 2, 1, 4, 3, 5).reshape(dense)[:, :, :length]
        values = case.value_cache[blocks].permute(0, 2, 1, 4, 3).reshape(dense)[:, :, :length]
        found = functional.scaled_dot_product_attention(
            query, keys, values, scale=case.scale, enable_gqa=case.heads != case.kv_heads
        )
        case.out.copy_(found[:, :, 0])

    return PeerCall(call, case.out)


def flex(case: Case) -> PeerCall:
    """torch's flex_attention, compiled, over a paged cache: all pages as one long row, a block mask as block table.

    Its blocks are 128 tokens, so eight of ours are put side by side; these pages lie in random order, as ours do.
    """
    _plain(case)
    page, length = 128, case.context[0]
    if set(case.context) != {length} or length % page:
        raise Unsupported(f"tried with sequences of one length only, whole pages of {page} tokens")
    if case.shape.kv_bytes > FLEX_LIMIT:
        raise Unsupported("its mask has a place for every page and sequence: too large here")
    from torch.nn.attention.flex_attention import BlockMask, flex_attention

    device, pages = case.query.device, case.batch * length // page
    order = torch.randperm(pages, device=device)
    blocks = torch.empty(pages, page // case.block_size, device=device, dtype=torch.int64)
    blocks[order] = case.block_tables.long().reshape(blocks.shape)
    row = (1, case.kv_heads, pages * page, case.head_size)
    keys = case.key_cache[blocks.reshape(-1)].permute(1, 0, 3, 2, 4).reshape(row).contiguous()
    values = case.value_cache[blocks.reshape(-1)].permute(1, 0, 3, 2).reshape(row).contiguous()
    indices = torch.zeros(case.batch, 1, 1, pages, device=device, dtype=torch.int32)
    indices[:, 0, 0, : length // page] = order.reshape(case.batch, -1).to(torch.int32)
    none = torch.zeros(case.batch, 1, 1, device=device, dtype=torch.int32)
    owner = torch.empty(pages, device=device, dtype=torch.int64)
    owner[order] = torch.arange(pages, device=device) // (length // page)

    def own(batch: Any, head: Any, place: Any, token: Any) -> Any:
        return owner[token // page] == batch

    # Every page of the list is whole, so the compiled kernel never asks `own`; what runs uncompiled knows only that.
    mask = BlockMask.from_kv_blocks(
        none, torch.zeros_like(indices), none + length // page, indices, BLOCK_SIZE=(page, page),
        mask_mod=own, seq_lengths=(1, pages * page),
    )  # fmt: skip
    attend: Any = flex_attention
    if device.type == "cuda":
        attend = case.shared.get("flex") or _compiled(flex_attention)
        case.shared["flex"] = attend
    query = case.query[:, :, None, :]

    def call() -> None:
        found = attend(query, keys, values, block_mask=mask, scale=case.scale, enable_gqa=case.heads != case.kv_heads)
        case.out.copy_(found[:, :, 0])

    return PeerCall(call, case.out, kept=(keys, values, mask))


def _compiled(function: Any) -> Any:
    """Compiled for fixed sizes; torch counts how often it compiled one function, and stops at eight."""
    torch._dynamo.reset()
    return torch.compile(function, dynamic=False)


def flashinfer(tensor_cores: bool) -> Maker:
    """FlashInfer's decode over a paged cache, planned before, in its own layout [blocks, 2, block, heads, size]."""

    def build(case: Case) -> PeerCall:
        package = importlib.import_module("flashinfer")
        pages, kind = _nhd(case)
        device = case.query.device
        counts = torch.tensor([-(-length // case.block_size) for length in case.context], dtype=torch.int32)
        starts = torch.cat([torch.zeros(1, dtype=torch.int32), counts.cumsum(0).to(torch.int32)]).to(device)
        most = case.block_tables.shape[1]
        used = torch.arange(most, device=device)[None, :] < counts.to(device)[:, None]
        indices = case.block_tables[used].contiguous()
        last = ((case.seq_lens - 1) % case.block_size + 1).to(torch.int32)
        # One stream, so the sets of a cell can share it.
        if (space := case.shared.get("flashinfer")) is None:
            space = case.shared["flashinfer"] = torch.zeros(WORKSPACE_BYTES, dtype=torch.uint8, device=device)
        wrapper = package.BatchDecodeWithPagedKVCacheWrapper(
            space, "NHD", use_cuda_graph=True, use_tensor_cores=tensor_cores, paged_kv_indptr_buffer=starts.clone(),
            paged_kv_indices_buffer=indices.clone(), paged_kv_last_page_len_buffer=last.clone(),
        )  # fmt: skip
        wrapper.plan(
            starts, indices, last, case.heads, case.kv_heads, case.head_size, case.block_size,
            q_data_type=case.query.dtype, kv_data_type=kind, sm_scale=case.scale,
        )  # fmt: skip
        return PeerCall(lambda: wrapper.run(case.query, pages, out=case.out), case.out, kept=(wrapper, pages, space))

    return build


def _nhd(case: Case) -> tuple[torch.Tensor, torch.dtype]:
    """The caches as [blocks, 2, block_size, kv_heads, head_size], and their dtype."""
    kind = FP8.get(case.kv_cache_dtype, case.query.dtype)
    sizes = (case.shape.blocks, 2, case.block_size, case.kv_heads, case.head_size)
    pages = torch.empty(sizes, dtype=case.key_cache.dtype, device=case.query.device)
    pages[:, 0] = case.key_cache.permute(0, 3, 1, 2, 4).reshape(sizes[0], *sizes[2:])
    pages[:, 1] = case.value_cache.permute(0, 3, 1, 2)
    return pages.view(kind), kind


def vllm_op(version: int) -> Maker:
    """vLLM's compiled paged_attention_v1 or _v2, on the caches as they are."""

    def build(case: Case) -> PeerCall:
        ops = importlib.import_module("vllm._custom_ops")
        if case.kv_cache_dtype == "fp8_e5m2":
            raise Unsupported("fp8 in e4m3 only")
        device = case.query.device
        most = max(case.context)
        one = torch.ones(1, device=device, dtype=torch.float32)
        kind = "auto" if case.kv_cache_dtype == "auto" else "fp8"
        tail = (
            case.query, case.key_cache, case.value_cache, case.kv_heads, case.scale, case.block_tables, case.seq_lens,
            case.block_size, most, None, kind, one, one,
        )  # fmt: skip
        if version == 1:
            return PeerCall(lambda: ops.paged_attention_v1(case.out, *tail), case.out, kept=tail)
        parts = -(-most // 512)
        sums = torch.empty(case.batch, case.heads, parts, device=device, dtype=torch.float32)
        tops = torch.empty_like(sums)
        rows = torch.empty(case.batch, case.heads, parts, case.head_size, device=device, dtype=case.query.dtype)
        return PeerCall(lambda: ops.paged_attention_v2(case.out, sums, tops, rows, *tail), case.out, kept=tail)

    return build


def _plain(case: Case) -> None:
    """What torch's own operators take."""
    if case.kv_cache_dtype != "auto":
        raise Unsupported("no fp8 cache")


FLASHINFER, FLASHINFER_PLAIN = "flashinfer-tc", "flashinfer"
VLLM_V1, VLLM_V2 = "vllm-v1", "vllm-v2"
PEERS: dict[str, Maker] = {
    "torch-sdpa": gather_sdpa,
    "torch-flex": flex,
    FLASHINFER_PLAIN: flashinfer(False),
    FLASHINFER: flashinfer(True),
    VLLM_V1: vllm_op(1),
    VLLM_V2: vllm_op(2),
}
"""By id."""
TITLES = {
    "torch-sdpa": "torch: gather, then SDPA",
    "torch-flex": "torch: flex_attention",
    FLASHINFER_PLAIN: "FlashInfer, without tensor cores",
    FLASHINFER: "FlashInfer, tensor cores",
    VLLM_V1: "vLLM's compiled v1",
    VLLM_V2: "vLLM's compiled v2",
    "cudnn": "cuDNN, paged",
    "flash-attn": "FlashAttention, paged",
}
"""Of these, and of two that a module may bring."""
_DISTRIBUTIONS = {"torch": "torch", "flashinfer": "flashinfer-python", "vllm": "vllm"}


def versions() -> dict[str, str]:
    """The peers' distributions that are installed, by name."""
    found = {}
    for name, distribution in _DISTRIBUTIONS.items():
        try:
            found[name] = metadata.version(distribution)
        except metadata.PackageNotFoundError:
            continue
    return found


def also(modules: list[str]) -> tuple[dict[str, Maker], dict[str, str]]:
    """The peers of other modules and what they say of their versions; raises ImportError, AttributeError."""
    makers: dict[str, Maker] = {}
    words: dict[str, str] = {}
    for name in modules:
        module = importlib.import_module(name)
        more: Mapping[str, Maker] = module.PEERS
        makers.update(more)
        words.update(getattr(module, "VERSIONS", {}))
    return makers, words
