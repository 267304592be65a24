"""The ladder behind vLLM's signatures: decode attention by any rung, and the tuned writer, on torch tensors.

The argument lists are those of `kernels.vllm.ops`, so what calls one calls the other. Tensors on a GPU are used where
they lie, on torch's current stream; tensors on the CPU run on the SIMT machine.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from kernels.errors import ArgumentError
from kernels.tuned import writer
from kernels.tuned.call import Decode, Zeros
from kernels.tuned.ladder import RUNGS
from kernels.tuned.plan import Plan

# Private there: how vLLM's ops find the device and see a tensor as an array must not differ here, nor be written twice.
from kernels.vllm.ops import _dense, _kind, _on
from kernels.vllm.strided import gpu_array


def paged_attention(
    rung: str,
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
    *,
    plan: Plan | None = None,
    query_len: int = 1,
    lengths: Sequence[int] | None = None,
) -> None:
    """Decode attention by one rung of the ladder; `out` is written in place.

    The arguments are those of `kernels.vllm.ops.paged_attention_v1` after `rung`, a name in `ladder.RUNGS`. out, query:
    [num_seqs * query_len, num_heads, head_size] float16 or bfloat16. Query rows may lie at any distance: they are
    brought together by a copy first. `plan`: how the launch is cut (None: the rung chooses). `query_len`: the last
    tokens of each sequence that are asked for at once. `lengths`: seq_lens as the host knows them. Scratch memory is
    made at each call and lives as long as its launches. Raises ArgumentError for what the rung does not take,
    LaunchError. Source: vllm/_custom_ops.py at 0.24.0 for the argument list.
    """
    if rung not in RUNGS:
        raise ArgumentError("rung", rung, f"must be one of {', '.join(RUNGS)}")
    _dense(blocksparse_vert_stride)
    with _on(out) as run:
        slopes = None if alibi_slopes is None else run(alibi_slopes)
        call = Decode(
            run(out), run(query.contiguous()), run(key_cache), run(value_cache), num_kv_heads, scale,
            run(block_tables), run(seq_lens), block_size, max_seq_len, slopes, _kind(kv_cache_dtype),
            run.scale(k_scale), run.scale(v_scale), query_len, lengths,
        )  # fmt: skip
        for launch in RUNGS[rung].launches(call, zeros_on(out.device), plan):
            launch.run(run.backend)


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
    """Write keys and values into the classic layout by the tuned writer; the caches are written in place.

    The arguments are those of `kernels.vllm.ops.reshape_and_cache`, and negative slots are skipped. Every head is
    written: vLLM's own writer stops at 512 (head, x-group) pairs. Raises ArgumentError.
    """
    with _on(key) as run:
        writer.reshape_and_cache(
            run(key), run(value), run(key_cache), run(value_cache), run(slot_mapping), _kind(kv_cache_dtype),
            run.scale(k_scale), run.scale(v_scale), backend=run.backend,
        )  # fmt: skip


def zeros_on(device: torch.device) -> Zeros:
    """Where a call's scratch memory comes from: NumPy, or torch's allocator on the GPU.

    torch hands the memory out again only to what comes later on the same stream, so nobody has to wait for the launch.
    """
    if device.type == "cpu":
        return np.zeros

    def zeros(size: int, dtype: Any) -> Any:
        # As bytes: torch and NumPy need not know the same types.
        held = torch.zeros(size * np.dtype(dtype).itemsize, dtype=torch.uint8, device=device)
        # What is then copied there from the host goes another way, and must not come before the zeros.
        if np.dtype(dtype) == np.int32:
            torch.cuda.current_stream(device).synchronize()
        return gpu_array(held.data_ptr(), (size,), (1,), dtype, held)

    return zeros
