"""Being told what a launch does: what an observer hears, and of which memory.

`launch(observers=...)` runs the same kernel on arrays, warps and barriers that report (`seen`, `seen_arrays`); a
launch without observers runs none of their code. Races, the memory view and the trace are all observers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from types import CodeType
from typing import TYPE_CHECKING, Any

import numpy as np

from kernels.simt.facade import cuda
from kernels.simt.report import UninitialisedRead, place
from kernels.simt.warp import Lane, Warp

if TYPE_CHECKING:
    from kernels.simt.seen import SeenMachine

READ, WRITE, ATOMIC = "read", "write", "atomic"


@dataclass(frozen=True, eq=False)
class Memory:
    """What an access goes to: one array argument, one shared array of the block, or local arrays of one call.

    `space`: global, shared or local. `name`: the parameter's, or that of the call. `shape`: as the kernel got it;
    an access's index counts elements from its start. `home` and `offset`: two memories with the same home overlap
    where their bytes do, and `offset` is where this one starts (for a global one its address on the host).
    """

    space: str
    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    home: object
    offset: int = 0

    @property
    def itemsize(self) -> int:
        """Bytes of one element."""
        return int(self.dtype.itemsize)

    def element(self, index: int) -> str:
        """`name[i, j]` of a flat index."""
        if len(self.shape) < 2:
            return f"{self.name}[{index}]"
        return f"{self.name}[{', '.join(str(part) for part in np.unravel_index(index, self.shape))}]"


class Observer:
    """Told what a launch does, in the order in which the machine does it. Does nothing; subclass what you need.

    An observer must not raise, except to stop the launch: then a SimtError.
    """

    local = False
    """Whether it wants the accesses to local arrays too."""

    def launch_start(self, machine: SeenMachine) -> None:
        """The threads exist, no block has started; `machine.memories` are the array arguments."""

    def block_start(self, number: int) -> None:
        """The next block starts; its linear number in the grid. Shared memory is new, and so is every lane."""

    def access(
        self, kind: str, memory: Memory, index: int, count: int, value: Any, lane: Lane, code: CodeType, lasti: int
    ) -> None:
        """A lane reads, writes or atomically changes `count` elements from flat `index` on.

        `value`: what was read or stored, a tuple where `count` is above 1; of an atomic, the old value. `code` and
        `lasti` are the instruction: `line_of(code, lasti)` gives its line, and costs more than this call.
        """

    def uninitialised(self, memory: Memory, index: int, shown: Any, lane: Lane, code: CodeType, lasti: int) -> Any:
        """A lane reads an element that nothing has written. Raises, or returns the value to go on with."""
        raise UninitialisedRead(memory.name, shown, place(cuda))

    def collective(self, warp: Warp, what: str, lanes: int) -> None:
        """A warp operation is complete; its mask names these lanes of the warp (bits), of which some may have returned.

        A shuffle's values are in `warp.vals`.
        """

    def fence(self, lane: Lane) -> None:
        """A `threadfence`: what the lane did so far is seen by everyone before what it does from here on."""

    def give(self, key: object, lane: Lane) -> None:
        """What the lane did so far is over for whoever takes the key: it arrives at a barrier, or asks for a copy."""

    def take(self, key: object, lane: Lane) -> None:
        """The lane has waited for the key."""

    def barrier(self, epoch: int) -> None:
        """A block-wide barrier opens; `epoch` counts them from 1 in each block."""

    def launch_end(self, error: BaseException | None) -> None:
        """The launch is over, by `error` if there is one."""


class Several(Observer):
    """Several observers as one."""

    def __init__(self, observers: Sequence[Observer]) -> None:
        self.each = tuple(observers)
        self.local = any(observer.local for observer in observers)

    def launch_start(self, machine: SeenMachine) -> None:
        """To each."""
        for observer in self.each:
            observer.launch_start(machine)

    def block_start(self, number: int) -> None:
        """To each."""
        for observer in self.each:
            observer.block_start(number)

    def access(
        self, kind: str, memory: Memory, index: int, count: int, value: Any, lane: Lane, code: CodeType, lasti: int
    ) -> None:
        """To each; local accesses only to those that want them."""
        for observer in self.each:
            if observer.local or memory.space != "local":
                observer.access(kind, memory, index, count, value, lane, code, lasti)

    def uninitialised(self, memory: Memory, index: int, shown: Any, lane: Lane, code: CodeType, lasti: int) -> Any:
        """To each; the last one's value counts."""
        return [o.uninitialised(memory, index, shown, lane, code, lasti) for o in self.each][-1]

    def collective(self, warp: Warp, what: str, lanes: int) -> None:
        """To each."""
        for observer in self.each:
            observer.collective(warp, what, lanes)

    def fence(self, lane: Lane) -> None:
        """To each."""
        for observer in self.each:
            observer.fence(lane)

    def give(self, key: object, lane: Lane) -> None:
        """To each."""
        for observer in self.each:
            observer.give(key, lane)

    def take(self, key: object, lane: Lane) -> None:
        """To each."""
        for observer in self.each:
            observer.take(key, lane)

    def barrier(self, epoch: int) -> None:
        """To each."""
        for observer in self.each:
            observer.barrier(epoch)

    def launch_end(self, error: BaseException | None) -> None:
        """To each."""
        for observer in self.each:
            observer.launch_end(error)
