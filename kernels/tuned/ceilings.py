"""What the memory itself can do: a kernel that only reads, 16 bytes a load, and a copy.

A decode kernel must read every key and value once, so none is faster than reading as many bytes and doing nothing.
"""

from __future__ import annotations

from typing import Any

from numba import cuda, int32, int64

from kernels.kernel import Kernel, kernel
from kernels.ptx import _instruction
from kernels.tuned.call import Launch

WORD_BYTES = 16
THREADS = 256
WAVES = (4, 8, 16)
"""Thread blocks a multiprocessor that are tried; the fastest counts."""

load16 = _instruction("load16", "ld.global.nc.L1::no_allocate.v4.u32 {$0, $1, $2, $3}, [$4];", "rrrr", "g")
"""(int32 array, index) -> four words by one load that keeps nothing in the first-level cache."""
load16.vector_count = 4  # on the SIMT machine a vector load of four elements


@kernel()
def read_only(
    words,  # [4 * count] int32
    count,  # loads of 16 bytes, over all threads
    answer,  # [1] int32
    expected,  # the exclusive or of what a thread reads, which is never right: without it nothing would be read
):
    """Every thread has eight loads in flight; neighbours read neighbouring 16 bytes."""
    step = int64(cuda.gridDim.x) * cuda.blockDim.x
    place = int64(cuda.blockIdx.x) * cuda.blockDim.x + cuda.threadIdx.x
    found = int32(0)
    while place + 7 * step < count:
        a0, a1, a2, a3 = load16(words, 4 * place)
        b0, b1, b2, b3 = load16(words, 4 * (place + step))
        c0, c1, c2, c3 = load16(words, 4 * (place + 2 * step))
        d0, d1, d2, d3 = load16(words, 4 * (place + 3 * step))
        e0, e1, e2, e3 = load16(words, 4 * (place + 4 * step))
        f0, f1, f2, f3 = load16(words, 4 * (place + 5 * step))
        g0, g1, g2, g3 = load16(words, 4 * (place + 6 * step))
        h0, h1, h2, h3 = load16(words, 4 * (place + 7 * step))
        found = int32(found ^ a0 ^ a1 ^ a2 ^ a3 ^ b0 ^ b1 ^ b2 ^ b3 ^ c0 ^ c1 ^ c2 ^ c3 ^ d0 ^ d1 ^ d2 ^ d3)
        found = int32(found ^ e0 ^ e1 ^ e2 ^ e3 ^ f0 ^ f1 ^ f2 ^ f3 ^ g0 ^ g1 ^ g2 ^ g3 ^ h0 ^ h1 ^ h2 ^ h3)
        place += 8 * step
    while place < count:
        a0, a1, a2, a3 = load16(words, 4 * place)
        found = int32(found ^ a0 ^ a1 ^ a2 ^ a3)
        place += step
    if found == expected:
        answer[0] = found


@kernel()
def nothing(
    answer,  # [1] int32
):
    """Does nothing: what a launch alone takes."""


def empty_launch(answer: Any) -> Launch:
    """A launch of one warp that does nothing."""
    made: Kernel = nothing
    return Launch(made.specialise(), (1, 1, 1), 32, (answer,))


def read_launch(words: Any, answer: Any, blocks: int, threads: int = THREADS) -> Launch:
    """Read an int32 array whole, but for a rest below 16 bytes; `blocks` thread blocks."""
    made: Kernel = read_only
    count = int(words.shape[0]) * 4 // WORD_BYTES
    return Launch(made.specialise(), (blocks, 1, 1), threads, (words, count, answer, 0x5EEDBEE5 - (1 << 31)))


def grids(processors: int) -> tuple[int, ...]:
    """How many thread blocks are tried on a GPU of so many multiprocessors."""
    return tuple(waves * processors for waves in WAVES)
