"""Models of `kernels.ptx`: what its instructions do on the machine, lane by lane.

A bulk copy lands as late as it may: when somebody asks whether its barrier's phase has ended. A kernel that reads
without asking finds memory uninitialised, or what was there before.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from operator import index as as_int
from sys import _getframe
from typing import Any, ClassVar

import numpy as np

from kernels.simt.access import READ, WRITE
from kernels.simt.facade import cuda
from kernels.simt.memory import Array
from kernels.simt.report import BadOperand, Misaligned, OutOfBounds, place
from kernels.simt.seen_arrays import SeenCells, SeenGlobal
from kernels.simt.warp import FULL_MASK
from kernels.simt.words import load_words_x2, load_words_x4, read_words_x4, store_words_x2, store_words_x4

LANES = 32
Word = np.int32


def together(what: str, value: Any) -> list[Any]:
    """Hand a value over and wait for the whole warp at this call; answers every lane's value."""
    lane = cuda.threadIdx
    warp = lane.warp
    frame = _getframe(2)
    if frame.f_lasti != warp.lasti or frame.f_code is not warp.code or warp.mask != FULL_MASK:
        warp.arrive(lane, what, frame.f_code, frame.f_lasti, FULL_MASK)
    warp.vals[lane.lid] = value
    lane.go()
    cuda.threadIdx = lane
    found: list[Any] = warp.result
    return found


class Once:
    """What a warp operation computes of all lanes' values, computed by the first lane that comes back for it."""

    def __init__(self, work: Callable[[list[Any]], Any]) -> None:
        self.work = work
        self.values: list[Any] | None = None
        self.answer: Any = None

    def __call__(self, values: list[Any]) -> Any:
        """The answer for the values of one pass of a warp."""
        if values is not self.values:
            self.values, self.answer = values, self.work(values)
        return self.answer


# 8 by 8 matrices and products.


def halves(words: Any) -> np.ndarray[Any, Any]:
    """Words as twice as many 16-bit codes, along the last axis."""
    return np.ascontiguousarray(words, np.int32).view(np.uint16)


def widen_bf16(codes: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """bfloat16 codes as float32."""
    return (codes.astype(np.uint32) << 16).view(np.float32)


def widen_f16(codes: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """float16 codes as float32."""
    return codes.view(np.float16).astype(np.float32)


def _product(widen: Callable[[np.ndarray[Any, Any]], np.ndarray[Any, Any]]) -> Callable[[list[Any]], Any]:
    def work(values: list[Any]) -> np.ndarray[Any, Any]:
        words = widen(halves(np.array([value[:6] for value in values], np.int32))).reshape(8, 4, 12)
        a, b, c = np.empty((16, 16), np.float32), np.empty((16, 8), np.float32), np.empty((16, 8), np.float32)
        for number, (row, column) in enumerate(((0, 0), (8, 0), (0, 8), (8, 8))):
            a[row : row + 8, column : column + 8] = words[:, :, 2 * number : 2 * number + 2].reshape(8, 8)
        for number in range(2):
            b[8 * number : 8 * number + 8] = words[:, :, 8 + 2 * number : 10 + 2 * number].reshape(8, 8).T
        sums = np.array([value[6:] for value in values], np.float32).reshape(8, 4, 4)
        c[:8], c[8:] = sums[:, :, :2].reshape(8, 8), sums[:, :, 2:].reshape(8, 8)
        d = (a.astype(np.float64) @ b + c).astype(np.float32)
        return np.concatenate([d[:8].reshape(8, 4, 2), d[8:].reshape(8, 4, 2)], 2).reshape(LANES, 4)

    return work


_BF16, _F16 = Once(_product(widen_bf16)), Once(_product(widen_f16))


def mma_bf16(*operands: Any) -> tuple[Any, ...]:
    """See `kernels.ptx`."""
    return tuple(_BF16(together("mma", operands))[cuda.threadIdx.lid])


def mma_f16(*operands: Any) -> tuple[Any, ...]:
    """See `kernels.ptx`."""
    return tuple(_F16(together("mma", operands))[cuda.threadIdx.lid])


def ldmatrix_x4(array: Array, index: Any) -> tuple[Any, ...]:
    """See `kernels.ptx`. Each lane reads its row; the rows are dealt out."""
    rows = together("ldmatrix", _row(array, as_int(index)))
    lid = cuda.threadIdx.lid
    return tuple(rows[8 * matrix + lid // 4][lid % 4] for matrix in range(4))


def _row(array: Array, first: int) -> tuple[Any, ...]:
    count = 16 // array.itemsize
    _within(array, first, count, 16)
    codes = np.array([array[number] for number in range(first, first + count)], array.dtype)
    return tuple(codes.view(np.int32))


def _transpose(values: list[Any]) -> np.ndarray[Any, Any]:
    matrix = halves(np.array(values, np.int32)).reshape(8, 8)
    return np.ascontiguousarray(matrix.T).view(np.int32).reshape(LANES)


_TRANSPOSE = Once(_transpose)


def transpose_8x8(word: Any) -> Any:
    """See `kernels.ptx`."""
    return _TRANSPOSE(together("movmatrix", word))[cuda.threadIdx.lid]


# Numbers.


def pack_bf16(first: Any, second: Any) -> Any:
    """See `kernels.ptx`; to nearest, ties to even."""
    bits = np.array([first, second], np.float32).view(np.uint32).astype(np.uint64)
    rounded = ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)
    rounded[np.isnan(np.array([first, second], np.float32))] = 0x7FFF
    return rounded.view(np.int32)[0]


def pack_f16(first: Any, second: Any) -> Any:
    """See `kernels.ptx`."""
    with np.errstate(over="ignore"):
        return np.array([first, second], np.float32).astype(np.float16).view(np.int32)[0]


def _float16_of(exponent: int, fraction: int, bias: int, bits: int, top: bool) -> float:
    """A number of an fp8 format by its fields; `top`: the largest exponent means infinity, else one code means NaN."""
    if top and exponent == 31:
        return float("nan") if fraction else float("inf")
    if not top and exponent == 15 and fraction == 7:
        return float("nan")
    scaled = fraction / (1 << bits)
    return float(scaled * 2.0 ** (1 - bias) if exponent == 0 else (1 + scaled) * 2.0 ** (exponent - bias))


def _table(bits: int, bias: int, top: bool) -> np.ndarray[Any, Any]:
    """The float16 of each of the 256 codes; `bits` of the fraction."""
    plain = [_float16_of(code >> bits, code & (1 << bits) - 1, bias, bits, top) for code in range(128)]
    return np.array([*plain, *(-number for number in plain)], np.float16)


_E4M3, _E5M2 = _table(3, 7, False), _table(2, 15, True)


def _widened(word: Any, table: np.ndarray[Any, Any]) -> tuple[Any, Any]:
    low, high = table[np.array([word], np.int32).view(np.uint8)].view(np.int32)
    return low, high


def halves_e4m3(word: Any) -> tuple[Any, Any]:
    """See `kernels.ptx`."""
    return _widened(word, _E4M3)


def halves_e5m2(word: Any) -> tuple[Any, Any]:
    """See `kernels.ptx`."""
    return _widened(word, _E5M2)


def as_float(word: Any) -> Any:
    """See `kernels.ptx`."""
    return _low_word(word).view(np.float32)[0]


def as_word(value: Any) -> Any:
    """See `kernels.ptx`."""
    return np.array([value], np.float32).view(np.int32)[0]


def _low_word(value: Any) -> np.ndarray[Any, Any]:
    """The low 32 bits of a whole number: what fits into a register."""
    return np.array([as_int(value) & 0xFFFFFFFF], np.uint32)


def exp2(value: Any) -> Any:
    """See `kernels.ptx`; here to the last place, and tiny results are zero as there."""
    with np.errstate(under="ignore"):
        found = np.exp2(np.float32(value))
    return found if found >= np.finfo(np.float32).tiny or found != found else np.float32(0)


def load_word(array: Array, index: Any) -> Any:
    """See `kernels.ptx`."""
    first, count = as_int(index), 4 // array.itemsize
    _within(array, first, count, 4)
    return np.array([array[number] for number in range(first, first + count)], array.dtype).view(np.int32)[0]


# Bulk copies.


class Barrier:
    """A barrier of the copy engine: its phase, what it waits for, and the copies that have not landed."""

    __slots__ = ("arrivals", "copies", "count", "parity", "pending")

    def __init__(self, count: int) -> None:
        self.count = self.arrivals = count
        self.parity = self.pending = 0
        self.copies: list[tuple[Array, int, list[Any]]] = []

    def settle(self) -> None:
        """End the phase once everybody arrived and every byte came."""
        if self.arrivals == 0 and self.pending == 0:
            self.parity ^= 1
            self.arrivals = self.count


def _spot(array: Array, index: Any) -> tuple[Array, int]:
    spot = as_int(index)
    _within(array, spot, 1, 8)
    return array, spot


def _barrier(array: Array, index: Any) -> Barrier:
    array, spot = _spot(array, index)
    found = array[spot]  # raises UninitialisedRead for one that was never initialised
    return _barriers()[as_int(found)]


class _Launch:
    """The barriers of the launch that runs."""

    machine: Any = None
    barriers: ClassVar[list[Barrier]] = []


def _barriers() -> list[Barrier]:
    if _Launch.machine is not cuda.machine:
        _Launch.machine = cuda.machine
        _Launch.barriers.clear()
    return _Launch.barriers


def mbarrier_init(array: Array, index: Any, count: Any) -> None:
    """See `kernels.ptx`. The cell keeps the barrier's number here."""
    array, spot = _spot(array, index)
    if count < 1:
        raise BadOperand("mbarrier count", count, "must be at least 1", place(cuda))
    known = _barriers()
    known.append(Barrier(as_int(count)))
    array[spot] = len(known) - 1


def mbarrier_fence() -> None:
    """See `kernels.ptx`: here the copy engine sees every write at once."""


def grid_launch() -> None:
    """See `kernels.ptx`: here one launch runs at a time."""


def grid_wait() -> None:
    """See `kernels.ptx`: here one launch runs at a time."""


def mbarrier_expect(array: Array, index: Any, count: Any) -> None:
    """See `kernels.ptx`."""
    barrier = _barrier(array, index)
    if barrier.arrivals == 0:
        raise BadOperand("mbarrier arrivals", barrier.count + 1, "the phase has all its arrivals", place(cuda))
    barrier.arrivals -= 1
    barrier.pending += as_int(count)
    barrier.settle()


def mbarrier_passed(array: Array, index: Any, parity: Any) -> Any:
    """See `kernels.ptx`. Copies land now. A phase that nothing can end any more is not waited for in silence."""
    barrier = _barrier(array, index)
    for target, first, values in barrier.copies:
        for number, value in enumerate(values, first):
            target[number] = value
        barrier.pending -= len(values) * target.itemsize
    barrier.copies.clear()
    barrier.settle()
    passed = barrier.parity != as_int(parity)
    if not passed:
        cuda.nanosleep(1)  # others must run, or it would never pass
    elif (observer := _observer()) is not None:
        observer.take(barrier, cuda.threadIdx)
    return np.int32(passed)


def bulk_load(target: Array, at: Any, source: Array, first: Any, count: Any, array: Array, index: Any) -> None:
    """See `kernels.ptx`. What is copied is what is there when the copy is asked for.

    For an observer the lane that asks writes at once, and that is over for whoever waits for the barrier.
    """
    to, start, size = as_int(at), as_int(first), as_int(count)
    if size < 16 or size % 16:
        raise BadOperand("bulk_load bytes", size, "must be a multiple of 16", place(cuda))
    _within(target, to, size // target.itemsize, 16)
    _within(source, start, size // source.itemsize, 16)
    barrier = _barrier(array, index)
    plain = _plain(source)
    values = [plain[number] for number in range(start, start + size // source.itemsize)]
    barrier.copies.append((_plain(target), to, values))
    _tell(READ, source, start, values)
    _tell(WRITE, target, to, values)
    if (observer := _observer()) is not None:
        observer.give(barrier, cuda.threadIdx)


def _observer() -> Any:
    """Who watches the launch, or None."""
    return getattr(cuda.machine, "observer", None)


def _plain(array: Array) -> Array:
    """The array without reports."""
    return array.plain() if isinstance(array, SeenGlobal | SeenCells) else array


def _tell(kind: str, array: Array, first: int, values: list[Any]) -> None:
    """Report a side of a copy as accesses, 16 bytes each, of the lane that asked for it."""
    if isinstance(array, SeenGlobal | SeenCells):
        frame, spot, step = _getframe(2), array.flat(first), 16 // array.itemsize  # the frame above `bulk_load`
        for number in range(0, len(values), step):
            part = tuple(values[number : number + step])
            array.tell(kind, array.memory, spot + number, step, part, cuda.threadIdx, frame.f_code, frame.f_lasti)


def _within(array: Array, first: int, count: int, width: int) -> None:
    shown = slice(first, first + count)
    if len(array.shape) != 1 or not 0 <= first <= array.shape[0] - count:
        raise OutOfBounds(array.name, shown, array.shape, place(cuda))
    if first * array.itemsize % width:
        raise Misaligned(array.name, shown, first * array.itemsize, width, place(cuda))


MODELS: Mapping[str, Callable[..., Any]] = {
    model.__name__: model
    for model in (
        mma_bf16, mma_f16, ldmatrix_x4, transpose_8x8, pack_bf16, pack_f16, halves_e4m3, halves_e5m2, as_float,
        as_word, exp2, load_word, mbarrier_init, mbarrier_fence, mbarrier_expect, mbarrier_passed, bulk_load,
        load_words_x2, load_words_x4, read_words_x4, store_words_x2, store_words_x4, grid_launch, grid_wait,
    )
}  # fmt: skip
"""By the instruction's name in `kernels.ptx`."""
