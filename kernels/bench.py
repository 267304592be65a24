"""`python -m kernels.bench`: how fast the ports run here. Prints a table; measures, asserts nothing.

On a GPU: the classic v1 port and the cache writer against a device copy, by CUDA events, median of many.
Everywhere: the SIMT machine, by `bench_simt`.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
from numba import cuda

from kernels import bench_simt, layout
from kernels.kernel import Kernel, compile_cuda, cuda_unavailable, quiet_occupancy
from kernels.tiny_vllm import table_copy
from kernels.vllm import cache, check, classic_v1

REPEATS = 20
# (batch, context, query heads, KV heads, head size): decode steps of known models.
SHAPES = {
    "Qwen2.5-7B": (64, 4096, 28, 4, 128),
    "Llama-3-8B": (64, 4096, 32, 8, 128),
    "Llama-3.2-1B": (64, 4096, 32, 8, 64),
    "Llama-3-8B, one sequence": (1, 8192, 32, 8, 128),
}
BLOCK_SIZE = 16


def main() -> int:
    """Print the measurements of this machine."""
    bench_simt.report()
    reason = cuda_unavailable()
    if reason:
        print(f"GPU: not measured: {reason}")
    else:
        with quiet_occupancy():
            _gpu()
    return 0


def _gpu() -> None:
    copied = 1 << 30
    source = cuda.device_array(copied // 4, np.float32)
    target = cuda.device_array(copied // 4, np.float32)
    ceiling = 2 * copied / _microseconds(lambda: target.copy_to_device(source)) / 1e6
    print(f"GPU: {cuda.get_current_device().name}, device copy {ceiling:.2f} TB/s read plus written")
    print(f"{'classic v1, float16, blocks of 16':36} {'us':>9} {'TB/s of KV':>11} {'of copy':>8}")
    for name, shape in SHAPES.items():
        run, moved = _decode(*shape)
        spent = _microseconds(run)
        print(f"{name:36} {spent:9.0f} {moved / spent / 1e6:11.2f} {moved / spent / 1e6 / ceiling:8.0%}")
    run, moved = _write(16384, 8, 128)
    spent = _microseconds(run)
    print(f"{'reshape_and_cache, 16,384 tokens':36} {spent:9.0f} {moved / spent / 1e6:11.2f} "
          f"{moved / spent / 1e6 / ceiling:8.0%}")  # fmt: skip
    print(_table_line(table_copy.measure(table_copy.Gpu(*table_copy.crossing()))))


def _table_line(times: table_copy.CopyTimes) -> str:
    """tiny-vllm's way to keep its block table on the GPU, and two that do less."""
    return (f"{'tiny-vllm, its table in each layer':36} {times.every_layer.median:9.0f}   "
            f"us a decode step; once {times.once.median:.0f}, changed entries {times.together.median:.0f}")  # fmt: skip


def _decode(batch: int, context: int, heads: int, kv_heads: int, head_size: int) -> tuple[Callable[[], None], int]:
    """A launch of v1 on random numbers and a random block order, and the bytes of K and V that it must read."""
    blocks = layout.blocks_for(context, BLOCK_SIZE)
    rng = np.random.default_rng(0)
    cell = kv_heads * head_size * BLOCK_SIZE
    one = rng.standard_normal(cell * 64).astype(np.float16)
    k_cache, v_cache = (cuda.to_device(np.resize(one, batch * blocks * cell)) for _ in range(2))
    tables = cuda.to_device(rng.permutation(batch * blocks).astype(np.int32))
    q = cuda.to_device(rng.standard_normal(batch * heads * head_size).astype(np.float16))
    out = cuda.device_array(batch * heads * head_size, np.float16)
    lengths = cuda.to_device(np.full(batch, context, np.int32))
    slopes = cuda.to_device(np.zeros(heads, np.float32))
    chosen = classic_v1.paged_attention_v1_kernel.specialise(
        HEAD_SIZE=head_size, BLOCK_SIZE=BLOCK_SIZE, NUM_THREADS=128, scalar_t=check.SCALAR_TYPES["float16"]
    )
    shared = layout.v1_shared_bytes(context, BLOCK_SIZE, head_size)
    strides = (heads * head_size, layout.kv_block_stride(kv_heads, head_size, BLOCK_SIZE),
               layout.kv_head_stride(head_size, BLOCK_SIZE))  # fmt: skip
    scales = (cuda.to_device(np.ones(1, np.float32)),) * 2
    args = (
        out, q, k_cache, v_cache, kv_heads, np.float32(head_size**-0.5), tables, lengths, blocks, slopes, *strides,
        *scales,
    )  # fmt: skip
    return _launch(chosen, (heads, batch, 1), 128, shared, args), 2 * 2 * batch * context * kv_heads * head_size


def _write(tokens: int, heads: int, head_size: int) -> tuple[Callable[[], None], int]:
    """A launch of the writer into random slots, and the bytes it must read and write."""
    rng = np.random.default_rng(0)
    size = tokens * heads * head_size
    key, value = (cuda.to_device(rng.standard_normal(size).astype(np.float16)) for _ in range(2))
    caches = [cuda.device_array(size, np.float16) for _ in range(2)]
    slots = cuda.to_device(rng.permutation(tokens).astype(np.int64))
    stride = heads * head_size
    scales = (cuda.to_device(np.ones(1, np.float32)),) * 2
    args = (key, value, *caches, slots, stride, stride, heads, head_size, BLOCK_SIZE, layout.x_of(2), *scales)
    threads = layout.writer_threads(heads, head_size, layout.x_of(2))
    chosen = cache.reshape_and_cache_kernel.specialise(dtype="float16", kv_cache_dtype="auto")
    return _launch(chosen, tokens, threads, 0, args), 2 * 2 * 2 * size


def _launch(chosen: Kernel, grid: Any, block: int, shared: int, args: tuple[Any, ...]) -> Callable[[], None]:
    compiled = compile_cuda(chosen)
    return lambda: compiled[grid, block, 0, shared](*args)


def _microseconds(run: Callable[[], Any]) -> float:
    """Median time of one call by CUDA events, ten calls between two events so that the host stays ahead."""
    run()
    found = []
    for _ in range(REPEATS):
        start, end = cuda.event(), cuda.event()
        start.record()
        for _ in range(10):
            run()
        end.record()
        end.synchronize()
        found.append(cuda.event_elapsed_time(start, end) * 100)
    return float(statistics.median(found))


if __name__ == "__main__":
    sys.exit(main())
