"""The `cuda` object that kernels see on the machine: Numba's names, with the machine behind them.

Every warp operation and barrier does the same: compare the call (code, offset, mask) with the one at which
this pass of the warp stands, hand the value over, switch to the next lane, and read the answer once all lanes
have handed over. Those few lines stand in each method again: a helper would cost a call a switch.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import add, and_, or_, sub, xor
from sys import _getframe
from typing import Any

import numpy as np

from kernels.simt import libdevice
from kernels.simt.bits import Int32, brev, clz, ffs, popc
from kernels.simt.cells import CellArray
from kernels.simt.half import Half
from kernels.simt.memory import GlobalArray, global_array
from kernels.simt.position import Position
from kernels.simt.report import BadOperand, place
from kernels.simt.scalars import scalar_type
from kernels.simt.warp import FULL_MASK, WARP_SIZE

WIDTHS = (1, 2, 4, 8, 16, 32)


class Shared:
    """`cuda.shared`."""

    def array(self, shape: Any, dtype: Any) -> CellArray:
        """An array of the thread block, the same for every thread that gets here. Shape 0: dynamic memory."""
        frame = _getframe(1)
        return cuda.machine.shared.array(frame.f_code, frame.f_lasti, shape, dtype)


class Local:
    """`cuda.local`."""

    def array(self, shape: Any, dtype: Any) -> CellArray:
        """An array of this thread alone. Each call gives a new one, uninitialised."""
        frame = _getframe(1)
        return cuda.machine.local.array(frame.f_code, frame.f_lasti, shape, dtype)


class Const:
    """`cuda.const`."""

    def array_like(self, array: Any) -> GlobalArray:
        """A NumPy array of the module as constant memory: bounds are checked, a store is an error."""
        frozen = array.view()
        frozen.flags.writeable = False
        return global_array(frozen, "const array", cuda)


class Atomic:
    """`cuda.atomic`: one indivisible read and write of an element; each returns the old value.

    Threads switch at warp operations and barriers only, so a plain read and write is indivisible here. All go
    through `update`.
    """

    def update(self, array: Any, index: Any, change: Callable[[Any, Any], Any], value: Any) -> Any:
        """array[index] = change(old, value), both of the array's type; nothing is stored where that is `old` itself."""
        old = array[index]
        new = change(old, value if value.__class__ is old.__class__ else cast(old, value))
        if new is not old:
            array[index] = new
        return old

    def add(self, array: Any, index: Any, value: Any) -> Any:
        """array[index] += value."""
        return self.update(array, index, add, value)

    def sub(self, array: Any, index: Any, value: Any) -> Any:
        """array[index] -= value."""
        return self.update(array, index, sub, value)

    def and_(self, array: Any, index: Any, value: Any) -> Any:
        """array[index] &= value."""
        return self.update(array, index, and_, value)

    def or_(self, array: Any, index: Any, value: Any) -> Any:
        """array[index] |= value."""
        return self.update(array, index, or_, value)

    def xor(self, array: Any, index: Any, value: Any) -> Any:
        """array[index] ^= value."""
        return self.update(array, index, xor, value)

    def inc(self, array: Any, index: Any, value: Any) -> Any:
        """array[index] += 1, but 0 once it has reached `value`; for unsigned elements."""
        return self.update(array, index, lambda old, top: cast(old, 0 if old >= top else int(old) + 1), value)

    def dec(self, array: Any, index: Any, value: Any) -> Any:
        """array[index] -= 1, but `value` where it was 0 or above `value`; for unsigned elements."""
        return self.update(array, index, lambda old, top: top if not 0 < old <= top else cast(old, int(old) - 1), value)

    def max(self, array: Any, index: Any, value: Any) -> Any:
        """array[index] = the larger of both; a NaN on either side changes nothing."""
        return self.update(array, index, lambda old, new: new if new > old else old, value)

    def min(self, array: Any, index: Any, value: Any) -> Any:
        """array[index] = the smaller of both; a NaN on either side changes nothing."""
        return self.update(array, index, lambda old, new: new if new < old else old, value)

    def nanmax(self, array: Any, index: Any, value: Any) -> Any:
        """array[index] = the larger of both; a NaN there gives way to any number."""
        return self.update(array, index, lambda old, new: new if new > old or old != old else old, value)

    def nanmin(self, array: Any, index: Any, value: Any) -> Any:
        """array[index] = the smaller of both; a NaN there gives way to any number."""
        return self.update(array, index, lambda old, new: new if new < old or old != old else old, value)

    def exch(self, array: Any, index: Any, value: Any) -> Any:
        """array[index] = value."""
        return self.update(array, index, lambda old, new: new, value)

    def cas(self, array: Any, index: Any, old: Any, value: Any) -> Any:
        """array[index] = value where it equals `old`."""
        return self.update(array, index, lambda now, new: new if now == old else now, value)


class Cuda(Position):
    """Numba's `cuda` module, for kernels on the machine; every use outside a launch is OutsideLaunch."""

    __slots__ = ("atomic", "const", "fp16", "local", "shared")

    warpsize = WARP_SIZE
    # Of one value alone: no lane waits.
    popc, clz, ffs, brev = staticmethod(popc), staticmethod(clz), staticmethod(ffs), staticmethod(brev)
    cbrt = staticmethod(libdevice.cbrt_of)

    def __init__(self) -> None:
        super().__init__()
        self.shared = Shared()
        self.local = Local()
        self.const = Const()
        self.fp16 = Half()
        self.atomic = Atomic()

    @property
    def laneid(self) -> int:
        """The thread's number in its warp, 0 to 31."""
        return self.threadIdx.lid

    def grid(self, ndim: int) -> Any:
        """The thread's absolute position in the grid: an int for 1, a tuple for 2 or 3."""
        b, d, t = self.blockIdx, self.blockDim, self.threadIdx
        spots = (b.x * d.x + t.x, b.y * d.y + t.y, b.z * d.z + t.z)
        return spots[0] if ndim == 1 else spots[:ndim]

    def gridsize(self, ndim: int) -> Any:
        """Threads of the whole grid along each axis: an int for 1, a tuple for 2 or 3."""
        g, d = self.gridDim, self.blockDim
        sizes = (g.x * d.x, g.y * d.y, g.z * d.z)
        return sizes[0] if ndim == 1 else sizes[:ndim]

    # Barriers.

    def syncthreads(self) -> None:
        """Wait for every thread of the block, at this call."""
        lane = self.threadIdx
        warp = lane.warp
        frame = _getframe(1)
        if frame.f_lasti != warp.lasti or frame.f_code is not warp.code:
            warp.arrive(lane, "syncthreads", frame.f_code, frame.f_lasti, None)
        lane.go()
        self.threadIdx = lane

    def syncthreads_count(self, predicate: Any) -> int:
        """A barrier that tells every thread how many of the block had a true predicate."""
        return self._vote_block("syncthreads_count", predicate)

    def syncthreads_and(self, predicate: Any) -> int:
        """A barrier; 1 where every thread's predicate was true, else 0."""
        d = self.blockDim
        return int(self._vote_block("syncthreads_and", predicate) == d.x * d.y * d.z)

    def syncthreads_or(self, predicate: Any) -> int:
        """A barrier; 1 where any thread's predicate was true, else 0."""
        return int(self._vote_block("syncthreads_or", predicate) > 0)

    def _vote_block(self, what: str, predicate: Any) -> int:
        lane = self.threadIdx
        warp = lane.warp
        frame = _getframe(2)
        if frame.f_lasti != warp.lasti or frame.f_code is not warp.code:
            warp.arrive(lane, what, frame.f_code, frame.f_lasti, None)
        warp.vals[lane.lid] = predicate
        lane.go()
        self.threadIdx = lane
        return self.machine.votes

    def syncwarp(self, mask: Any = FULL_MASK) -> None:
        """Wait for the lanes in `mask`; those that have returned are not waited for."""
        lane = self.threadIdx
        warp = lane.warp
        frame = _getframe(1)
        if frame.f_lasti != warp.lasti or frame.f_code is not warp.code or mask != warp.mask:
            warp.arrive(lane, "syncwarp", frame.f_code, frame.f_lasti, mask)
        lane.go()
        self.threadIdx = lane

    # Shuffles: lane numbers and distances count modulo 32, as the hardware takes only five bits of them. `width` is
    # CUDA's fourth argument, which Numba does not have: a warp of several segments, each with lanes of its own.

    def shfl_sync(self, mask: Any, value: Any, src_lane: Any, width: int = WARP_SIZE) -> Any:
        """The value that lane `src_lane` of the segment handed over."""
        if width != WARP_SIZE:
            self._check_width(width)
        lane = self.threadIdx
        warp = lane.warp
        frame = _getframe(1)
        if frame.f_lasti != warp.lasti or frame.f_code is not warp.code or mask != warp.mask:
            warp.arrive(lane, "shfl_sync", frame.f_code, frame.f_lasti, mask)
        warp.vals[lane.lid] = value
        lane.go()
        self.threadIdx = lane
        source = lane.lid & -width | src_lane & width - 1
        if mask != FULL_MASK and not mask >> source & 1:
            return undefined(value)
        return warp.result[source]

    def shfl_xor_sync(self, mask: Any, value: Any, lane_mask: Any, width: int = WARP_SIZE) -> Any:
        """The value of the lane whose number differs in the bits of `lane_mask`.

        A lane that would read from a later segment keeps its own; an earlier one it can read.
        """
        if width != WARP_SIZE:
            self._check_width(width)
        lane = self.threadIdx
        warp = lane.warp
        frame = _getframe(1)
        if frame.f_lasti != warp.lasti or frame.f_code is not warp.code or mask != warp.mask:
            warp.arrive(lane, "shfl_xor_sync", frame.f_code, frame.f_lasti, mask)
        warp.vals[lane.lid] = value
        lane.go()
        self.threadIdx = lane
        source = lane.lid ^ lane_mask & 31
        if source > lane.lid | width - 1:
            return value
        if mask != FULL_MASK and not mask >> source & 1:
            return undefined(value)
        return warp.result[source]

    def shfl_up_sync(self, mask: Any, value: Any, delta: Any, width: int = WARP_SIZE) -> Any:
        """The value of the lane `delta` below; a lane whose segment has none keeps its own."""
        if width != WARP_SIZE:
            self._check_width(width)
        lane = self.threadIdx
        warp = lane.warp
        frame = _getframe(1)
        if frame.f_lasti != warp.lasti or frame.f_code is not warp.code or mask != warp.mask:
            warp.arrive(lane, "shfl_up_sync", frame.f_code, frame.f_lasti, mask)
        warp.vals[lane.lid] = value
        lane.go()
        self.threadIdx = lane
        source = lane.lid - (delta & 31)
        if source < lane.lid & -width:
            return value
        if mask != FULL_MASK and not mask >> source & 1:
            return undefined(value)
        return warp.result[source]

    def shfl_down_sync(self, mask: Any, value: Any, delta: Any, width: int = WARP_SIZE) -> Any:
        """The value of the lane `delta` above; a lane whose segment has none keeps its own."""
        if width != WARP_SIZE:
            self._check_width(width)
        lane = self.threadIdx
        warp = lane.warp
        frame = _getframe(1)
        if frame.f_lasti != warp.lasti or frame.f_code is not warp.code or mask != warp.mask:
            warp.arrive(lane, "shfl_down_sync", frame.f_code, frame.f_lasti, mask)
        warp.vals[lane.lid] = value
        lane.go()
        self.threadIdx = lane
        source = lane.lid + (delta & 31)
        if source > lane.lid | width - 1:
            return value
        if mask != FULL_MASK and not mask >> source & 1:
            return undefined(value)
        return warp.result[source]

    def _check_width(self, width: Any) -> None:
        if width not in WIDTHS:
            raise BadOperand("shuffle width", width, f"must be one of {', '.join(map(str, WIDTHS))}", place(self))

    # Votes.

    def ballot_sync(self, mask: Any, predicate: Any) -> int:
        """Bits of the lanes in `mask` whose predicate was true, as Numba's int32: all 32 of them is -1."""
        return Int32.signed(self._vote_warp("ballot_sync", mask, predicate))

    def all_sync(self, mask: Any, predicate: Any) -> bool:
        """Whether every lane in `mask` had a true predicate."""
        return self._vote_warp("all_sync", mask, predicate) == int(mask) & FULL_MASK

    def any_sync(self, mask: Any, predicate: Any) -> bool:
        """Whether any lane in `mask` had a true predicate."""
        return self._vote_warp("any_sync", mask, predicate) != 0

    def _vote_warp(self, what: str, mask: Any, predicate: Any) -> int:
        lane = self.threadIdx
        warp = lane.warp
        frame = _getframe(2)
        if frame.f_lasti != warp.lasti or frame.f_code is not warp.code or mask != warp.mask:
            warp.arrive(lane, what, frame.f_code, frame.f_lasti, mask)
        warp.vals[lane.lid] = predicate
        lane.go()
        self.threadIdx = lane
        return warp.votes(mask)

    def match_any_sync(self, mask: Any, value: Any) -> int:
        """Bits of the lanes in `mask` that handed over the same bits as this one, as Numba's int32."""
        return Int32.signed(self._match("match_any_sync", mask, value))

    def match_all_sync(self, mask: Any, value: Any) -> tuple[int, bool]:
        """The mask (as Numba's int32) and True where all lanes in it handed over the same bits, else 0 and False."""
        same = self._match("match_all_sync", mask, value) == int(mask) & FULL_MASK
        return Int32.signed(int(mask) & FULL_MASK if same else 0), same

    def _match(self, what: str, mask: Any, value: Any) -> int:
        lane = self.threadIdx
        warp = lane.warp
        frame = _getframe(2)
        if frame.f_lasti != warp.lasti or frame.f_code is not warp.code or mask != warp.mask:
            warp.arrive(lane, what, frame.f_code, frame.f_lasti, mask)
        mine = warp.vals[lane.lid] = pattern(value)
        lane.go()
        self.threadIdx = lane
        return sum(1 << lid for lid, other in enumerate(warp.result) if mask >> lid & 1 and other == mine)

    def activemask(self) -> int:
        """Bits of the lanes that are at this call together."""
        lane = self.threadIdx
        self._arrive("activemask")
        return Int32(lane.active)

    def lanemask_lt(self) -> int:
        """Bits of the lanes with a smaller number, whether they are there or not."""
        return Int32((1 << self.threadIdx.lid) - 1)

    def nanosleep(self, ns: Any) -> None:
        """Let other warps go first; nothing else happens, as the machine has no clock."""
        self._arrive("nanosleep")

    def _arrive(self, what: str) -> None:
        lane = self.threadIdx
        warp = lane.warp
        frame = _getframe(2)
        if frame.f_lasti != warp.lasti or frame.f_code is not warp.code:
            warp.arrive(lane, what, frame.f_code, frame.f_lasti, None)
        lane.go()
        self.threadIdx = lane

    # Fences order what other threads see. Here every write is seen at once, so there is nothing to wait for.

    def threadfence(self) -> None:
        """Nothing, unless somebody watches."""
        self.machine.fence(self.threadIdx)

    def threadfence_block(self) -> None:
        """Nothing: see above."""

    threadfence_system = threadfence

    def selp(self, condition: Any, a: Any, b: Any) -> Any:
        """`a` where the condition holds, else `b`; both are computed."""
        return a if condition else b

    def fma(self, x: Any, y: Any, z: Any) -> Any:
        """x * y + z with one rounding: float32 where all are, else float64."""
        return libdevice.fma(x, y, z)


def cast(like: Any, value: Any) -> Any:
    """The value as a NumPy scalar of the type of `like`."""
    return scalar_type(like.dtype)(value)


def pattern(value: Any) -> Any:
    """What two lanes compare in a match: the bits of a float, the number of anything else."""
    return np.asarray(value).tobytes() if isinstance(value, float | np.floating) else int(value)


def undefined(value: Any) -> Any:
    """What a shuffle reads from a lane outside its mask: NaN or the smallest integer, so that a use shows."""
    dtype = np.asarray(value).dtype
    return dtype.type(np.iinfo(dtype).min if dtype.kind in "iu" else np.nan)


cuda = Cuda()
"""The one facade; bind a kernel's global `cuda` to it."""
