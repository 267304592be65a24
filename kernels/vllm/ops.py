"""vLLM's signatures: the four ops of its classic kernels and cache writers, on torch tensors.

The argument lists are those of `vllm._custom_ops` at 0.24.0, so that code and tests written for vLLM's ops call ours
unchanged. Tensors on a GPU are used where they lie, on torch's current stream; tensors on the CPU run on the SIMT
machine. Block-sparse attention is not ported: its arguments are taken, and refused where they would matter.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from kernels.errors import ArgumentError
from kernels.kernel import Backend
from kernels.numbers import decode, encode
from kernels.vllm import cache, cache_flash, classic_v1, classic_v2
from kernels.vllm.dtypes import FP8
from kernels.vllm.strided import gpu_array

STORAGE = {
    torch.bfloat16: torch.uint16,
    torch.float8_e4m3fn: torch.uint8,
    torch.float8_e5m2: torch.uint8,
}
"""What NumPy and Numba have no type for, and what holds its codes."""
SPELLINGS = {"float16": "auto", "bfloat16": "auto", "fp8_ds_mla": "fp8"}
"""Other names that vLLM takes for a `kv_cache_dtype`."""


def paged_attention_v1(
    out: torch.Tensor,
    query: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    num_kv_heads: int,
    scale: float,
    block_tables: torch.Tensor,
    seq_lens: torch.Tensor,
    block_size: int,
    max_seq_len: int,
    alibi_slopes: torch.Tensor | None,
    kv_cache_dtype: str,
    k_scale: torch.Tensor,
    v_scale: torch.Tensor,
    tp_rank: int = 0,
    blocksparse_local_blocks: int = 0,
    blocksparse_vert_stride: int = 0,
    blocksparse_block_size: int = 64,
    blocksparse_head_sliding_step: int = 0,
) -> None:
    """Decode attention, the whole sequence in one thread block; `out` is written in place.

    out, query: [num_seqs, num_heads, head_size] float32, float16 or bfloat16; key_cache: [num_blocks, num_kv_heads,
    head_size/x, block_size, x]; value_cache: [num_blocks, num_kv_heads, head_size, block_size]; block_tables:
    [num_seqs, max_num_blocks_per_seq] int32; seq_lens: [num_seqs] int32; alibi_slopes: [num_heads] float32. The caches
    are of the query's dtype (`kv_cache_dtype` auto), or uint8 or float8 (fp8, fp8_e4m3, fp8_e5m2): code times k_scale
    or v_scale, float32 of one element. Raises ArgumentError, LaunchError; on a GPU, lengths and block numbers are
    taken at their word. Source: vllm/_custom_ops.py at 0.24.0.
    """
    _dense(blocksparse_vert_stride)
    with _on(out) as run:
        classic_v1.paged_attention_v1(
            run(out), run(query), run(key_cache), run(value_cache), num_kv_heads, scale, run(block_tables),
            run(seq_lens), block_size, max_seq_len, run.slopes(alibi_slopes, query), _kind(kv_cache_dtype),
            run.scale(k_scale), run.scale(v_scale), backend=run.backend,
        )  # fmt: skip


def paged_attention_v2(
    out: torch.Tensor,
    exp_sum: torch.Tensor,
    max_logits: torch.Tensor,
    tmp_out: torch.Tensor,
    query: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    num_kv_heads: int,
    scale: float,
    block_tables: torch.Tensor,
    seq_lens: torch.Tensor,
    block_size: int,
    max_seq_len: int,
    alibi_slopes: torch.Tensor | None,
    kv_cache_dtype: str,
    k_scale: torch.Tensor,
    v_scale: torch.Tensor,
    tp_rank: int = 0,
    blocksparse_local_blocks: int = 0,
    blocksparse_vert_stride: int = 0,
    blocksparse_block_size: int = 64,
    blocksparse_head_sliding_step: int = 0,
) -> None:
    """Decode attention in partitions of 512 tokens, merged by a second kernel; `out` and three buffers are written.

    exp_sum, max_logits: [num_seqs, num_heads, partitions of max_seq_len] float32; tmp_out: the same and head_size, in
    the query's dtype. The other arguments, and what is raised, as for `paged_attention_v1`.
    """
    _dense(blocksparse_vert_stride)
    with _on(out) as run:
        classic_v2.paged_attention_v2(
            run(out), run(exp_sum), run(max_logits), run(tmp_out), run(query), run(key_cache), run(value_cache),
            num_kv_heads, scale, run(block_tables), run(seq_lens), block_size, max_seq_len,
            run.slopes(alibi_slopes, query), _kind(kv_cache_dtype), run.scale(k_scale), run.scale(v_scale),
            backend=run.backend,
        )  # fmt: skip


def reshape_and_cache(
    key: torch.Tensor,
    value: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    slot_mapping: torch.Tensor,
    kv_cache_dtype: str,
    k_scale: torch.Tensor,
    v_scale: torch.Tensor,
) -> None:
    """Write keys and values into the classic layout; the caches are written in place, negative slots skipped.

    key, value: [rows, num_heads, head_size], rows at any distance; the caches as for `paged_attention_v1`;
    slot_mapping: [num_tokens] int64. Raises ArgumentError. As in vLLM, heads beyond 512 (head, x-group) pairs stay
    unwritten. Source: vllm/_custom_ops.py at 0.24.0.
    """
    with _on(key) as run:
        cache.reshape_and_cache(
            run(key), run(value), run(key_cache), run(value_cache), run(slot_mapping), _kind(kv_cache_dtype),
            run.scale(k_scale), run.scale(v_scale), backend=run.backend,
        )  # fmt: skip


def reshape_and_cache_flash(
    key: torch.Tensor,
    value: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    slot_mapping: torch.Tensor,
    kv_cache_dtype: str,
    k_scale: torch.Tensor,
    v_scale: torch.Tensor,
) -> None:
    """Write keys and values into FlashAttention's layout: caches [num_blocks, block_size, num_heads, head_size].

    The caches may be views of any memory order, and of one tensor. k_scale, v_scale: float32, one element or one a
    head. The rest as for `reshape_and_cache`; every head is written. Raises ArgumentError.
    """
    with _on(key) as run:
        cache_flash.reshape_and_cache_flash(
            run(key), run(value), run(key_cache), run(value_cache), run(slot_mapping), _kind(kv_cache_dtype),
            run.scale(k_scale), run.scale(v_scale), backend=run.backend,
        )  # fmt: skip


def convert_fp8(output: torch.Tensor, input: torch.Tensor, scale: float = 1.0, kv_dtype: str = "fp8") -> None:
    """Convert a whole cache to fp8 codes (element over scale) or back (code times scale); `output` is written in place.

    One of the two is uint8, the other float32, float16 or bfloat16, both of one shape. Raises ArgumentError. This one
    is no port: it is here because vLLM's tests call it. Computed by `kernels.numbers` on the host.
    """
    if kv_dtype not in FP8:
        raise ArgumentError("kv_dtype", kv_dtype, f"must be one of {', '.join(FP8)}")
    if output.shape != input.shape or (output.dtype == torch.uint8) == (input.dtype == torch.uint8):
        raise ArgumentError("output", f"{output.dtype} {tuple(output.shape)}", "must be of the input's shape, and one "
                            "of the two uint8")  # fmt: skip
    if output.dtype == torch.uint8:
        codes = encode(input.detach().cpu().float().numpy() / scale, FP8[kv_dtype])
        output.copy_(torch.from_numpy(codes))
    else:
        values = decode(input.detach().cpu().numpy(), FP8[kv_dtype]) * scale
        output.copy_(torch.from_numpy(values))


def _kind(kv_cache_dtype: str) -> str:
    return SPELLINGS.get(kv_cache_dtype, kv_cache_dtype)


def _dense(blocksparse_vert_stride: int) -> None:
    """vLLM takes its block-sparse branch for a stride above one."""
    if blocksparse_vert_stride > 1:
        must = "must be 0 or 1: block-sparse attention is not ported"
        raise ArgumentError("blocksparse_vert_stride", blocksparse_vert_stride, must)


@contextlib.contextmanager
def _on(first: torch.Tensor) -> Iterator[_Run]:
    """A run where the first tensor lies; a GPU is the current one meanwhile, as vLLM's device guard sees to."""
    if first.device.type == "cpu":
        yield _Run(first.device, Backend("sim"))
    elif first.device.type == "cuda":
        from numba import cuda

        stream = torch.cuda.current_stream(first.device).cuda_stream
        with cuda.gpus[first.device.index or 0]:
            yield _Run(first.device, Backend("cuda", stream=cuda.external_stream(stream) if stream else 0))
    else:
        raise ArgumentError("device", str(first.device), "must be cuda (runs the GPU) or cpu (the SIMT machine)")


@dataclass(frozen=True)
class _Run:
    """Where a call runs, and its tensors as the ports take them: NumPy arrays, or Numba's arrays on the GPU."""

    device: torch.device
    backend: Backend

    def scale(self, scale: torch.Tensor) -> Any:
        """A scale as a row: vLLM passes one number as a tensor without axes."""
        return self(scale.reshape(-1))

    def slopes(self, slopes: torch.Tensor | None, query: torch.Tensor) -> Any:
        """The ALiBi slopes, or zeros, which mean the same as none."""
        if slopes is None:
            slopes = torch.zeros(query.shape[1], dtype=torch.float32, device=self.device)
        return self(slopes)

    def __call__(self, tensor: torch.Tensor) -> Any:
        """A tensor as an array over the same memory."""
        if tensor.device != self.device:
            raise ArgumentError("device", str(tensor.device), f"must be {self.device}, as the first tensor's")
        if tensor.dtype == torch.uint16:
            raise ArgumentError("dtype", str(tensor.dtype), "must be a float type, or uint8 for an fp8 cache")
        held = tensor.detach()
        held = held.view(STORAGE.get(held.dtype, held.dtype))
        if self.device.type == "cpu":
            return held.numpy()
        dtype = str(held.dtype).removeprefix("torch.")
        return gpu_array(held.data_ptr(), tuple(held.shape), held.stride(), dtype, held)
