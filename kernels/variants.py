"""Kernels that are broken on purpose, each with the verdict that it must get: the proof that the sanitizers can see.

Each stands for a mistake that real kernels had. The SIMT machine's verdict is checked by the tests, that of NVIDIA's
compute-sanitizer is recorded on a GPU; where that tool does not look, the variant says why.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import cuda, float32

from kernels.kernel import Backend, Kernel, kernel
from kernels.vector import vector_load4

THREADS = 128
WARPS = 4
FULL_MASK = 0xFFFFFFFF
FAR = 1 << 20


@dataclass(frozen=True)
class Variant:
    """A broken kernel and what must be found.

    `verdict`: `race`, or the kind of fault. `tool`: which tool of compute-sanitizer can see it (racecheck, memcheck),
    or empty, then `why` says why not. `launch` runs it once on a backend.
    """

    id: str
    what: str
    kernel: Kernel
    launch: Callable[[str | Backend], None]
    verdict: str
    tool: str
    why: str = ""


@kernel()
def reduction_without_barriers(out, values):  # type: ignore[no-untyped-def]
    """A tree over 128 values whose rounds do not wait for each other."""
    sums = cuda.shared.array(THREADS, float32)
    i = cuda.threadIdx.x
    sums[i] = values[i]
    cuda.syncthreads()
    width = THREADS // 2
    while width > 0:
        if i < width:
            sums[i] += sums[i + width]
        width //= 2
    if i == 0:
        out[0] = sums[0]


@kernel()
def reduction_without_first_barrier(out, values):  # type: ignore[no-untyped-def]
    """A tree that starts before all values are there."""
    sums = cuda.shared.array(THREADS, float32)
    i = cuda.threadIdx.x
    sums[i] = values[i]
    width = THREADS // 2
    while width > 0:
        if i < width:
            sums[i] += sums[i + width]
        cuda.syncthreads()
        width //= 2
    if i == 0:
        out[0] = sums[0]


@kernel()
def neighbour_without_barrier(out, values):  # type: ignore[no-untyped-def]
    """Every thread reads what the thread 32 further on stores, and does not wait for it."""
    row = cuda.shared.array(THREADS, float32)
    i = cuda.threadIdx.x
    row[i] = values[i]
    out[i] = row[(i + 32) % THREADS]


@kernel()
def one_slot_for_all_warps(out, values):  # type: ignore[no-untyped-def]
    """Each warp's first lane stores into the same element."""
    slot = cuda.shared.array(1, float32)
    i = cuda.threadIdx.x
    if i % 32 == 0:
        slot[0] = values[i]
    cuda.syncthreads()
    out[i] = slot[0]


@kernel()
def lanes_of_one_warp_store_to_one_slot(out, values):  # type: ignore[no-untyped-def]
    """All lanes of one warp store different values into one element by one instruction."""
    slot = cuda.shared.array(1, float32)
    i = cuda.threadIdx.x
    if i < 32:
        slot[0] = values[i]
    cuda.syncthreads()
    out[i] = slot[0]


@kernel()
def scratch_used_twice(out, values):  # type: ignore[no-untyped-def]
    """Two block-wide sums through one scratch buffer, with no barrier between the first read and the second store."""
    scratch = cuda.shared.array(WARPS, float32)
    i = cuda.threadIdx.x
    total = float32(0)
    for turn in range(2):
        part = values[turn * THREADS + i]
        lane_mask = 16
        while lane_mask >= 1:
            part += cuda.shfl_xor_sync(FULL_MASK, part, lane_mask)
            lane_mask //= 2
        if i % 32 == 0:
            scratch[i // 32] = part
        cuda.syncthreads()
        for warp in range(WARPS):
            total += scratch[warp]
    out[i] = total


@kernel()
def broadcast_in_a_loop(out, values):  # type: ignore[no-untyped-def]
    """Thread 0 hands a value to all in each turn, and does not wait until all have read the last one."""
    shared_value = cuda.shared.array(1, float32)
    i = cuda.threadIdx.x
    total = float32(0)
    for turn in range(4):
        if i == 0:
            shared_value[0] = values[turn]
        cuda.syncthreads()
        total += shared_value[0]
    out[i] = total


@kernel()
def counter_without_atomic(out, values):  # type: ignore[no-untyped-def]
    """A histogram whose bins are read and written by two instructions."""
    bins = cuda.shared.array(4, float32)
    i = cuda.threadIdx.x
    if i < 4:
        bins[i] = float32(0)
    cuda.syncthreads()
    bins[i // 32 % 2] += values[i]
    cuda.syncthreads()
    if i < 4:
        out[i] = bins[i]


@kernel()
def warp_without_syncwarp(out, values):  # type: ignore[no-untyped-def]
    """The old warp-synchronous style: a lane reads what its neighbour stored one instruction ago."""
    row = cuda.shared.array(THREADS, float32)
    i = cuda.threadIdx.x
    row[i] = values[i]
    out[i] = row[i ^ 1]


@kernel()
def output_shared_by_blocks(out, values):  # type: ignore[no-untyped-def]
    """Every thread block stores its own result into the same place."""
    if cuda.threadIdx.x == 0:
        out[0] = values[cuda.blockIdx.x]


@kernel()
def partial_results_read_at_once(out, values):  # type: ignore[no-untyped-def]
    """The last block reads what the others store, in the same launch."""
    i = cuda.blockIdx.x
    if cuda.threadIdx.x == 0:
        out[i] = values[i]
        if i == cuda.gridDim.x - 1:
            total = float32(0)
            for block in range(cuda.gridDim.x):
                total += out[block]
            out[cuda.gridDim.x] = total


@kernel()
def global_exchange_without_barrier(out, values):  # type: ignore[no-untyped-def]
    """Threads exchange values through global memory and do not wait."""
    i = cuda.threadIdx.x
    out[i] = values[i]
    out[THREADS + i] = out[(i + 32) % THREADS]


@kernel()
def reads_past_the_end(out, values):  # type: ignore[no-untyped-def]
    """The guard of the last, half-filled block is missing, for the loads."""
    i = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x
    got = values[i]
    if i < out.size:
        out[i] = got
    if got > float32(1e30):
        out[0] = got


@kernel()
def writes_past_the_end(out, values):  # type: ignore[no-untyped-def]
    """The guard of the last, half-filled block is missing, for the stores."""
    i = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x
    out[i] = values[i % values.size]


@kernel()
def shared_read_out_of_bounds(out, far):  # type: ignore[no-untyped-def]
    """An index far outside the shared array."""
    row = cuda.shared.array(THREADS, float32)
    i = cuda.threadIdx.x
    row[i] = float32(i)
    cuda.syncthreads()
    out[i] = row[i + far]


@kernel()
def shared_write_out_of_bounds(out, far):  # type: ignore[no-untyped-def]
    """A store far outside the shared array."""
    row = cuda.shared.array(THREADS, float32)
    i = cuda.threadIdx.x
    row[i] = float32(i)
    cuda.syncthreads()
    row[i + far] = float32(1)
    cuda.syncthreads()
    out[i] = row[i]


@kernel()
def misaligned_vector(out, values):  # type: ignore[no-untyped-def]
    """A 16-byte load that starts 4 bytes too late."""
    i = cuda.threadIdx.x
    a, b, c, d = vector_load4(values, 4 * i + 1)
    out[i] = a + b + c + d


@kernel()
def odd_head_size(out, rows, head_size):  # type: ignore[no-untyped-def]
    """8-byte loads from rows of 46 two-byte elements: only every other row starts on 8 bytes."""
    i = cuda.threadIdx.x
    a, b, c, d = vector_load4(rows, i * head_size)
    out[i] = float32(a) + float32(b) + float32(c) + float32(d)


@kernel()
def uninitialised_shared(out, values):  # type: ignore[no-untyped-def]
    """Half of the scratch is stored, all of it is read."""
    row = cuda.shared.array(THREADS, float32)
    i = cuda.threadIdx.x
    if i < THREADS // 2:
        row[i] = values[i]
    cuda.syncthreads()
    out[i] = row[i]


@kernel()
def barrier_in_a_branch(out, values):  # type: ignore[no-untyped-def]
    """Only the first warps come to the barrier; the others have returned."""
    i = cuda.threadIdx.x
    if i >= THREADS // 2:
        return
    out[i] = values[i]
    cuda.syncthreads()
    out[THREADS + i] = out[(i + 32) % (THREADS // 2)]


def _values(size: int, dtype: str = "float32") -> Any:
    return np.random.default_rng(3).standard_normal(size).astype(dtype)


def _plain(chosen: Kernel, out: int = THREADS, values: int = THREADS, grid: int = 1) -> Callable[[str | Backend], None]:
    def launch(backend: str | Backend) -> None:
        chosen.on(backend)[grid, THREADS](np.zeros(out, np.float32), _values(values))

    return launch


def _far(chosen: Kernel) -> Callable[[str | Backend], None]:
    def launch(backend: str | Backend) -> None:
        chosen.on(backend)[1, THREADS](np.zeros(THREADS, np.float32), FAR)

    return launch


def _odd(backend: str | Backend) -> None:
    odd_head_size.on(backend)[1, 8](np.zeros(8, np.float32), _values(8 * 46, "float16"), 46)


NOT_GLOBAL = "racecheck looks at shared memory only"
RACE, OUT, MISALIGNED = "race", "out of bounds", "misaligned"
_ROWS: tuple[tuple[Kernel, Callable[[str | Backend], None], str, str, str], ...] = (
    (reduction_without_barriers, _plain(reduction_without_barriers, 1), RACE, "racecheck", ""),
    (reduction_without_first_barrier, _plain(reduction_without_first_barrier, 1), RACE, "racecheck", ""),
    (neighbour_without_barrier, _plain(neighbour_without_barrier), RACE, "racecheck", ""),
    (one_slot_for_all_warps, _plain(one_slot_for_all_warps), RACE, "racecheck", ""),
    (lanes_of_one_warp_store_to_one_slot, _plain(lanes_of_one_warp_store_to_one_slot), RACE, "racecheck", ""),
    (scratch_used_twice, _plain(scratch_used_twice, values=2 * THREADS), RACE, "racecheck", ""),
    (broadcast_in_a_loop, _plain(broadcast_in_a_loop), RACE, "racecheck", ""),
    (counter_without_atomic, _plain(counter_without_atomic, 4), RACE, "racecheck", ""),
    (warp_without_syncwarp, _plain(warp_without_syncwarp), RACE, "racecheck", ""),
    (output_shared_by_blocks, _plain(output_shared_by_blocks, 1, 4, 4), RACE, "", NOT_GLOBAL),
    (partial_results_read_at_once, _plain(partial_results_read_at_once, 5, 4, 4), RACE, "", NOT_GLOBAL),
    (global_exchange_without_barrier, _plain(global_exchange_without_barrier, 2 * THREADS), RACE, "", NOT_GLOBAL),
    (reads_past_the_end, _plain(reads_past_the_end, 200, 200, 2), OUT, "memcheck", ""),
    (writes_past_the_end, _plain(writes_past_the_end, 200, 200, 2), OUT, "memcheck", ""),
    (shared_read_out_of_bounds, _far(shared_read_out_of_bounds), OUT, "memcheck", ""),
    (shared_write_out_of_bounds, _far(shared_write_out_of_bounds), OUT, "memcheck", ""),
    (misaligned_vector, _plain(misaligned_vector, THREADS, 5 * THREADS), MISALIGNED, "memcheck", ""),
    (odd_head_size, _odd, MISALIGNED, "memcheck", ""),
    (
        uninitialised_shared, _plain(uninitialised_shared), "uninitialised read", "",
        "memcheck and racecheck do not follow whether shared memory was written",
    ),
    (
        barrier_in_a_branch, _plain(barrier_in_a_branch, 2 * THREADS), "barrier divergence", "",
        "a GPU lets a barrier pass when the other threads have returned; CUDA promises nothing",
    ),
)  # fmt: skip
VARIANTS = {
    variant.id: variant
    for variant in (
        Variant(k.name.replace("_", "-"), (k.fn.__doc__ or "").strip(), k, launch, verdict, tool, why)
        for k, launch, verdict, tool, why in _ROWS
    )
}
"""Every broken kernel, by its id."""
