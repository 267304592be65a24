"""The `cuda` object that kernels see on the machine: Numba's names, with the machine behind them.

Every warp operation and barrier does the same: compare the call (code, offset, mask) with the one at which
this pass of the warp stands, hand the value over, switch to the next lane, and read the answer once all lanes
have handed over. Those few lines stand in each method again: a helper would cost a call a switch.
"""

from __future__ import annotations

from sys import _getframe
from typing import Any

import numpy as np

from kernels.simt import libdevice
from kernels.simt.cells import CellArray
from kernels.simt.position import Position
from kernels.simt.warp import FULL_MASK, WARP_SIZE


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


class Atomic:
    """`cuda.atomic`: one indivisible read and write of an element; each returns the old value.

    Threads switch at warp operations and barriers only, so a plain read and write is indivisible here.
    """

    def add(self, array: Any, index: Any, value: Any) -> Any:
        """array[index] += value."""
        old = array[index]
        array[index] = old + value
        return old

    def max(self, array: Any, index: Any, value: Any) -> Any:
        """array[index] = the larger of both."""
        old = array[index]
        if value > old:
            array[index] = value
        return old

    def min(self, array: Any, index: Any, value: Any) -> Any:
        """array[index] = the smaller of both."""
        old = array[index]
        if value < old:
            array[index] = value
        return old

    def exch(self, array: Any, index: Any, value: Any) -> Any:
        """array[index] = value."""
        old = array[index]
        array[index] = value
        return old

    def cas(self, array: Any, index: Any, old: Any, value: Any) -> Any:
        """array[index] = value where it equals `old`."""
        now = array[index]
        if now == old:
            array[index] = value
        return now


class Cuda(Position):
    """Numba's `cuda` module, for kernels on the machine; every use outside a launch is OutsideLaunch."""

    __slots__ = ("atomic", "local", "shared")

    warpsize = WARP_SIZE

    def __init__(self) -> None:
        super().__init__()
        self.shared = Shared()
        self.local = Local()
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

    # Shuffles: lane numbers and distances count modulo 32, as the hardware takes only five bits of them.

    def shfl_sync(self, mask: Any, value: Any, src_lane: Any) -> Any:
        """The value that lane `src_lane` handed over."""
        lane = self.threadIdx
        warp = lane.warp
        frame = _getframe(1)
        if frame.f_lasti != warp.lasti or frame.f_code is not warp.code or mask != warp.mask:
            warp.arrive(lane, "shfl_sync", frame.f_code, frame.f_lasti, mask)
        warp.vals[lane.lid] = value
        lane.go()
        self.threadIdx = lane
        source = src_lane & 31
        if mask != FULL_MASK and not mask >> source & 1:
            return undefined(value)
        return warp.result[source]

    def shfl_xor_sync(self, mask: Any, value: Any, lane_mask: Any) -> Any:
        """The value of the lane whose number differs in the bits of `lane_mask`."""
        lane = self.threadIdx
        warp = lane.warp
        frame = _getframe(1)
        if frame.f_lasti != warp.lasti or frame.f_code is not warp.code or mask != warp.mask:
            warp.arrive(lane, "shfl_xor_sync", frame.f_code, frame.f_lasti, mask)
        warp.vals[lane.lid] = value
        lane.go()
        self.threadIdx = lane
        source = lane.lid ^ (lane_mask & 31)
        if mask != FULL_MASK and not mask >> source & 1:
            return undefined(value)
        return warp.result[source]

    def shfl_up_sync(self, mask: Any, value: Any, delta: Any) -> Any:
        """The value of the lane `delta` below; a lane without one keeps its own."""
        lane = self.threadIdx
        warp = lane.warp
        frame = _getframe(1)
        if frame.f_lasti != warp.lasti or frame.f_code is not warp.code or mask != warp.mask:
            warp.arrive(lane, "shfl_up_sync", frame.f_code, frame.f_lasti, mask)
        warp.vals[lane.lid] = value
        lane.go()
        self.threadIdx = lane
        source = lane.lid - (delta & 31)
        if source < 0:
            return value
        if mask != FULL_MASK and not mask >> source & 1:
            return undefined(value)
        return warp.result[source]

    def shfl_down_sync(self, mask: Any, value: Any, delta: Any) -> Any:
        """The value of the lane `delta` above; a lane without one keeps its own."""
        lane = self.threadIdx
        warp = lane.warp
        frame = _getframe(1)
        if frame.f_lasti != warp.lasti or frame.f_code is not warp.code or mask != warp.mask:
            warp.arrive(lane, "shfl_down_sync", frame.f_code, frame.f_lasti, mask)
        warp.vals[lane.lid] = value
        lane.go()
        self.threadIdx = lane
        source = lane.lid + (delta & 31)
        if source >= WARP_SIZE:
            return value
        if mask != FULL_MASK and not mask >> source & 1:
            return undefined(value)
        return warp.result[source]

    # Votes.

    def ballot_sync(self, mask: Any, predicate: Any) -> int:
        """Bits of the lanes in `mask` whose predicate was true, as Numba's int32: all 32 of them is -1."""
        bits = self._vote_warp("ballot_sync", mask, predicate)
        return bits - (bits >> 31 << 32)

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

    def activemask(self) -> int:
        """Bits of the lanes that are at this call together."""
        lane = self.threadIdx
        self._arrive("activemask")
        return lane.active

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

    def fma(self, x: Any, y: Any, z: Any) -> Any:
        """x * y + z with one rounding: float32 where all are, else float64."""
        return libdevice.fma(x, y, z)


def undefined(value: Any) -> Any:
    """What a shuffle reads from a lane outside its mask: NaN or the smallest integer, so that a use shows."""
    dtype = np.asarray(value).dtype
    return dtype.type(np.iinfo(dtype).min if dtype.kind in "iu" else np.nan)


cuda = Cuda()
"""The one facade; bind a kernel's global `cuda` to it."""
