"""The loads and stores of the ports, each in a kernel of its own: to see, and to measure, what a layout costs.

The key load of the classic kernel on two layouts proves what x is for: with it neighbouring tokens lie 16 bytes
apart, and a warp's load is one run of bytes. `memory_cases` names the launches that the machine's memory view and a
GPU's counters are compared on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numba import cuda, float32, int64

from kernels import cases, layout
from kernels.kernel import Backend, kernel
from kernels.vector import VECTOR_LOADS, vector_load4
from kernels.vllm.cache import reshape_and_cache

WARP_SIZE = 32
NUM_THREADS = 128
# Template parameters: `specialise` puts the real values in their place.
HEAD_SIZE = BLOCK_SIZE = NUM_WARPS = NUM_TOKENS_PER_THREAD_GROUP = THREAD_GROUP_SIZE = 0
VEC_SIZE = NUM_VECS_PER_THREAD = x = V_VEC_SIZE = NUM_V_VECS_PER_ROW = NUM_ROWS_PER_ITER = NUM_ROWS_PER_THREAD = 0
PACKED = True
load_vec = load_v_vec = vector_load4


def constexpr(*, HEAD_SIZE: int, BLOCK_SIZE: int, itemsize: int, PACKED: bool = True) -> dict[str, Any]:
    """The classic kernel's own sizes."""
    group = layout.thread_group_size(BLOCK_SIZE)
    vec, v_vec = layout.vec_size(group, itemsize), layout.v_vec_size(BLOCK_SIZE, itemsize)
    return {
        "NUM_WARPS": NUM_THREADS // WARP_SIZE,
        "THREAD_GROUP_SIZE": group,
        "NUM_TOKENS_PER_THREAD_GROUP": layout.num_tokens_per_thread_group(BLOCK_SIZE),
        "VEC_SIZE": vec,
        "NUM_VECS_PER_THREAD": HEAD_SIZE // group // vec,
        "x": layout.x_of(itemsize),
        "V_VEC_SIZE": v_vec,
        "NUM_V_VECS_PER_ROW": layout.num_v_vecs_per_row(BLOCK_SIZE, itemsize),
        "NUM_ROWS_PER_ITER": layout.num_rows_per_iter(BLOCK_SIZE, itemsize),
        "NUM_ROWS_PER_THREAD": layout.num_rows_per_thread(HEAD_SIZE, BLOCK_SIZE, itemsize),
        "load_vec": VECTOR_LOADS[vec],
        "load_v_vec": VECTOR_LOADS[v_vec],
    }


@kernel(constexpr)
def k_load(out, k_cache, block_table, num_blocks, kv_block_stride, kv_head_stride):  # type: ignore[no-untyped-def]
    """The key pass of the classic kernel with everything but its loads taken out: grid (num_kv_heads)."""
    thread_idx = cuda.threadIdx.x
    warp_idx = thread_idx // WARP_SIZE
    thread_group_idx = thread_idx // THREAD_GROUP_SIZE
    thread_group_offset = thread_idx % THREAD_GROUP_SIZE
    total = float32(0)
    # region: block-table-walk
    for block_idx in range(warp_idx, num_blocks, NUM_WARPS):
        # region: block-table-lookup
        physical_block_number = int64(block_table[block_idx])
        # endregion
        # endregion
        for i in range(NUM_TOKENS_PER_THREAD_GROUP):
            physical_block_offset = (thread_group_idx + i * WARP_SIZE) % BLOCK_SIZE
            # region: k-address
            head = physical_block_number * kv_block_stride + cuda.blockIdx.x * kv_head_stride
            for j in range(NUM_VECS_PER_THREAD):
                vec_idx = thread_group_offset + j * THREAD_GROUP_SIZE
                if PACKED:
                    offset1 = (vec_idx * VEC_SIZE) // x
                    offset2 = (vec_idx * VEC_SIZE) % x
                    k_offset = head + physical_block_offset * x + offset1 * BLOCK_SIZE * x + offset2
                else:
                    # [BLOCK_SIZE, HEAD_SIZE]: a token's key in one piece.
                    k_offset = head + physical_block_offset * HEAD_SIZE + vec_idx * VEC_SIZE
                k_vec = load_vec(k_cache, k_offset)
                for e in range(VEC_SIZE):
                    total += float32(k_vec[e])
            # endregion
    out[cuda.blockIdx.x * NUM_THREADS + thread_idx] = total


@kernel(constexpr)
def v_load(out, v_cache, block_table, num_blocks, kv_block_stride, kv_head_stride):  # type: ignore[no-untyped-def]
    """The value pass with everything but its loads taken out: grid (num_kv_heads)."""
    thread_idx = cuda.threadIdx.x
    warp_idx = thread_idx // WARP_SIZE
    lane = thread_idx % WARP_SIZE
    total = float32(0)
    for block_idx in range(warp_idx, num_blocks, NUM_WARPS):
        # region: v-table
        physical_block_number = int64(block_table[block_idx])
        # endregion
        # region: v-address
        physical_block_offset = (lane % NUM_V_VECS_PER_ROW) * V_VEC_SIZE
        v_ptr = physical_block_number * kv_block_stride + cuda.blockIdx.x * kv_head_stride
        for i in range(NUM_ROWS_PER_THREAD):
            row_idx = lane // NUM_V_VECS_PER_ROW + i * NUM_ROWS_PER_ITER
            if row_idx < HEAD_SIZE:
                v_vec = load_v_vec(v_cache, v_ptr + row_idx * BLOCK_SIZE + physical_block_offset)
                for e in range(V_VEC_SIZE):
                    total += float32(v_vec[e])
        # endregion
    out[cuda.blockIdx.x * NUM_THREADS + thread_idx] = total


@kernel()
def flash_write(key, value, key_cache, value_cache, slot_mapping, block_size, width):  # type: ignore[no-untyped-def]
    """The writer for the layout [num_blocks, block_size, heads, head_size]: a token a block, `width` elements a token.

    Only the memory side of `reshape_and_cache_flash`: a strided copy, one element a thread.
    """
    token_idx = int64(cuda.blockIdx.x)
    slot_idx = slot_mapping[token_idx]
    if slot_idx < 0:
        return
    target = slot_idx // block_size * block_size * width + slot_idx % block_size * width
    for i in range(cuda.threadIdx.x, width, cuda.blockDim.x):
        key_cache[target + i] = key[token_idx * width + i]
        value_cache[target + i] = value[token_idx * width + i]


HEADS, HEAD, BLOCKS = 2, 64, 8
DTYPE = "float16"


def run_k_load(block_size: int, packed: bool, backend: str | Backend) -> Any:
    """Launch the key load on 8 full blocks in random order, 2 KV heads of 64, float16; returns every thread's sum."""
    return _load(k_load, block_size, packed, backend)


def run_v_load(block_size: int, backend: str | Backend) -> Any:
    """Launch the value load on the same sizes; returns every thread's sum."""
    return _load(v_load, block_size, True, backend)


def _load(entry: Any, block_size: int, packed: bool, backend: str | Backend) -> Any:
    rng = np.random.default_rng(1)
    pool = rng.standard_normal(BLOCKS * HEADS * HEAD * block_size).astype(DTYPE)
    table = rng.permutation(BLOCKS).astype(np.int32)
    out = np.zeros(HEADS * NUM_THREADS, np.float32)
    chosen = entry.specialise(HEAD_SIZE=HEAD, BLOCK_SIZE=block_size, itemsize=pool.itemsize, PACKED=packed)
    strides = layout.kv_block_stride(HEADS, HEAD, block_size), layout.kv_head_stride(HEAD, block_size)
    chosen.on(backend)[HEADS, NUM_THREADS](out, pool, table, BLOCKS, *strides)
    return out


def run_writer(backend: str | Backend) -> cases.WriteCase:
    """Launch `reshape_and_cache` on 20 tokens, three of them padding; returns the case with its caches filled."""
    case = cases.write_case(20, HEADS, HEAD, 16, DTYPE, seed=2, padding=3)
    reshape_and_cache(case.key, case.value, case.k_cache, case.v_cache, case.slot_mapping, backend=backend)
    return case


def run_flash_writer(backend: str | Backend) -> tuple[cases.WriteCase, Any, Any]:
    """Launch `flash_write` on the same tokens; returns the case and the two caches, flat."""
    case = cases.write_case(20, HEADS, HEAD, 16, DTYPE, seed=2, padding=3)
    width = HEADS * HEAD
    caches = [np.zeros(case.num_blocks * 16 * width, DTYPE) for _ in range(2)]
    flash_write.on(backend)[case.num_tokens, width](
        case.key.reshape(-1), case.value.reshape(-1), *caches, case.slot_mapping, 16, width
    )
    return case, caches[0], caches[1]


def memory_cases() -> dict[str, Callable[[str | Backend], Any]]:
    """Launches by name: the key load on both layouts and the value load at each block size, and both writers."""

    def keys(size: int, packed: bool) -> Callable[[str | Backend], Any]:
        return lambda backend: run_k_load(size, packed, backend)

    def values(size: int) -> Callable[[str | Backend], Any]:
        return lambda backend: run_v_load(size, backend)

    found: dict[str, Callable[[str | Backend], Any]] = {}
    for size in (8, 16, 32):
        found[f"k-load-x-{size}"] = keys(size, True)
        found[f"k-load-naive-{size}"] = keys(size, False)
        found[f"v-load-{size}"] = values(size)
    return {**found, "reshape-and-cache": run_writer, "flash-writer": run_flash_writer}
