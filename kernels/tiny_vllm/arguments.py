"""What the host code of tiny-vllm's ports has in common: checks before a launch, and a buffer that is input and output.

Upstream checks nothing: an entry of -1 would read 32,768 bytes before the cache. Here it is named instead.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from numba import cuda

from kernels.errors import ArgumentError
from kernels.kernel import Backend
from kernels.vllm import check

GQA_Q_TO_K_RATIO = 4
DTYPES = ("float32", "float16")


def decode(
    layer: int,
    num_active_slots: int,
    q_proj: Any,
    kv_cache: Any,
    block_table: Any,
    seq_lens: Any,
    active_slots: Any,
    output: Any,
) -> None:
    """Everything the attention kernels assume of their arguments; raises ArgumentError at the first that is wrong."""
    check.shape("q_proj", q_proj, (None, None, None), DTYPES)
    active, heads, head_dim = q_proj.shape
    dtype = (str(q_proj.dtype),)
    if active < 1 or num_active_slots != active:
        raise ArgumentError("num_active_slots", num_active_slots, f"must be the {active} rows of q_proj, at least 1")
    if heads < 1 or heads % GQA_Q_TO_K_RATIO:
        raise ArgumentError("q_proj.shape", q_proj.shape, f"must have a multiple of {GQA_Q_TO_K_RATIO} query heads")
    check.shape("output", output, (active, heads, head_dim), dtype)
    check.shape("kv_cache", kv_cache, (None, 2, None, heads // GQA_Q_TO_K_RATIO, head_dim), dtype)
    check.shape("block_table", block_table, (None, None, None), ("int32",))
    check.shape("seq_lens", seq_lens, (active,), ("int32",))
    check.shape("active_slots", active_slots, (active,), ("int32",))
    slots, layers, columns = block_table.shape
    if not 0 <= layer < layers:
        raise ArgumentError("layer", layer, f"must be from 0 to {layers - 1}")
    block_size = kv_cache.shape[2]
    for index, (slot, length) in enumerate(zip(active_slots, seq_lens, strict=True)):
        if not 0 <= slot < slots:
            raise ArgumentError(f"active_slots[{index}]", slot, f"must be a row of block_table, 0 to {slots - 1}")
        if not 0 <= length <= columns * block_size:
            raise ArgumentError(f"seq_lens[{index}]", length, f"must be from 0 to {columns * block_size}")
        for number in range(-(-int(length) // block_size)):
            existing(f"block_table[{slot}, {layer}, {number}]", block_table[slot, layer, number], kv_cache)


def existing(name: str, block: Any, kv_cache: Any) -> None:
    """Raise ArgumentError unless `block` is one of the cache: -1 means that none was taken."""
    if not 0 <= block < kv_cache.shape[0]:
        raise ArgumentError(name, block, f"must be a block of the cache, 0 to {kv_cache.shape[0] - 1}")


@contextmanager
def one_buffer(q_proj: Any, output: Any, backend: str | Backend) -> Iterator[tuple[Any, Any]]:
    """Yield both arrays flat. Where they are one, a GPU gets one buffer: a launch would copy it once for each."""
    name = backend if isinstance(backend, str) else backend.name
    if output is not q_proj or name != "cuda":
        yield q_proj.reshape(-1), output.reshape(-1)
        return
    moved = cuda.to_device(q_proj.reshape(-1))
    yield moved, moved
    moved.copy_to_host(output.reshape(-1))
