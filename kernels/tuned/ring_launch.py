"""The ring kernel's call: what it takes, the kernel for its sizes, and the launch."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from kernels.kernel import Kernel
from kernels.tuned import plan as plans
from kernels.tuned import ring_sizes
from kernels.tuned.call import Decode, Launch, Zeros
from kernels.tuned.plan import Plan
from kernels.tuned.ring import paged_decode_ring
from kernels.unroll import unroll
from kernels.vllm.dtypes import FP8
from kernels.vllm.strided import flat, on_gpu


def launches(call: Decode, zeros: Zeros = np.zeros, plan: Plan | None = None) -> tuple[Launch, ...]:
    """One launch. Takes 1 to 16 query heads a KV head (times `query_len`), and 16-bit or fp8 caches.

    Head sizes are multiples of 16 (of 32 for fp8), blocks of 16 or 32. Raises ArgumentError. Source: our own;
    FlashDecoding's splits, the layout of vLLM's classic kernels.
    """
    _refuse(call)
    itemsize = call.key_cache.dtype.itemsize
    block_bytes = ring_sizes.block_bytes(call.head_size, call.block_size, itemsize)
    cut = plan or plans.choose(
        call.num_seqs, call.num_kv_heads, call.max_seq_len, call.block_size, block_bytes, mixed=_mixed(call)
    )
    work = np.zeros(plans.ITEM_FIELDS, np.int32)
    places, grid = call.num_seqs * cut.splits, (call.num_kv_heads, cut.splits, call.num_seqs)
    if cut.balance:
        call.need("lengths", call.lengths, call.lengths is not None, "must be given for a plan that balances")
        assert call.lengths is not None
        pieces = -(-cut.splits * plans.MULTIPROCESSORS // call.num_kv_heads)
        work = plans.as_words(plans.balanced(call.lengths, call.block_size, pieces))
        places = len(work) // plans.ITEM_FIELDS
        grid = (call.num_kv_heads, places, 1)
    columns = ring_sizes.TILE * ring_sizes.tiles(call.group, call.query_len)
    rows = places * call.num_kv_heads * call.group * call.query_len
    slopes = call.alibi_slopes if call.alibi_slopes is not None else zeros(1, np.float32)
    span = -(-max(1, call.max_seq_len) // (call.block_size * cut.splits))
    args = (
        codes(call.out), zeros(rows * call.head_size, np.float32), zeros(2 * rows, np.float32),
        zeros(call.num_seqs * call.num_kv_heads, np.uint32), _given(work, zeros), codes(call.query),
        codes(call.key_cache), codes(call.value_cache), flat(call.block_tables), call.seq_lens, slopes,
        _given(call.k_scale, zeros), _given(call.v_scale, zeros), np.float32(call.scale * math.log2(math.e)),
        np.int32(call.num_kv_heads), np.int32(call.block_tables.shape[1]), np.int32(span),
    )  # fmt: skip
    shared = ring_sizes.shared_bytes(call.head_size, call.block_size, itemsize, columns, cut.warps, cut.depth)
    return (Launch(kernel_for(call, cut), grid, 32 * cut.warps, args, shared, early=True),)


def kernel_for(call: Decode, cut: Plan) -> Kernel:
    """The kernel for a call's sizes, written out; the same object each time."""
    return unroll(
        paged_decode_ring, HEAD_SIZE=call.head_size, BLOCK_SIZE=call.block_size, GROUP=call.group,
        QUERY_LEN=call.query_len, WARPS=cut.warps, DEPTH=cut.depth, SCALAR=call.scalar,
        CACHE=FP8.get(call.kv_cache_dtype, "auto"), ALIBI=call.alibi_slopes is not None, LISTED=cut.balance,
    )  # fmt: skip


def codes(array: Any) -> Any:
    """An array as a row of 16-bit words, over the same memory."""
    return flat(array).view(np.uint16)


def _mixed(call: Decode) -> bool:
    """Whether a list would balance better: the sequences take less than half of what the longest would."""
    known = call.lengths
    return known is not None and 2 * sum(known) < len(known) * max([*known, 1])


def _given(numbers: Any, zeros: Zeros) -> Any:
    """Numbers where the kernel runs, perhaps from the host."""
    if on_gpu(numbers):
        return numbers
    there = zeros(len(numbers), numbers.dtype)
    if on_gpu(there):
        there.copy_to_device(numbers)
    else:
        there[:] = numbers
    return there


def _refuse(call: Decode) -> None:
    fp8 = call.kv_cache_dtype != "auto"
    step = 32 if fp8 else 16
    columns = call.group * call.query_len
    call.need("head_size", call.head_size, call.head_size % step == 0, f"must be a multiple of {step}")
    call.need("block_size", call.block_size, call.block_size in (16, 32), "must be 16 or 32: a product takes sixteen")
    call.need(
        "num_kv_heads", call.num_kv_heads, columns <= ring_sizes.MOST_COLUMNS,
        f"{call.group} query heads a KV head, {call.query_len} tokens: must be {ring_sizes.MOST_COLUMNS} columns or "
        "fewer",
    )  # fmt: skip
