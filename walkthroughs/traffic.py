"""Counts what a launch asks of memory: loads, their widths, bytes, barriers, warp operations. The SIMT machine runs it.

The counts belong to the kernel, not to a device: a GPU runs the same loads, stores and barriers. How long they take is
another question, and no business of this module.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from sys import _getframe
from types import CodeType, FrameType
from typing import Any

import numpy as np
import numpy.typing as npt

from kernels import simt
from kernels.kernel import Backend
from kernels.simt.access import READ, Memory, Observer
from kernels.simt.seen import SeenMachine
from kernels.simt.seen_arrays import address_of
from kernels.simt.warp import Lane, Warp
from kernels.tuned.call import Launch

MACHINE = str(Path(simt.__file__).parent)


class Traffic(Observer):
    """What some launches did to global memory. `arrays`: the arrays that are told apart, by name; others are `rest`.

    `loads` and `stores`: for each array and each width in bytes, how many a lane (or a copy that it asked for) made.
    `barriers`: how often a block-wide barrier opened, over all blocks; `operations`: warp operations, by name.
    `shared`: most bytes of shared memory that a block had. `blocks`, `threads`: thread blocks, and threads in all.
    """

    def __init__(self, **arrays: npt.NDArray[Any]) -> None:
        self.loads: dict[str, Counter[int]] = {name: Counter() for name in (*arrays, "rest")}
        self.stores: dict[str, Counter[int]] = {name: Counter() for name in (*arrays, "rest")}
        self.operations: Counter[str] = Counter()
        self.barriers = self.blocks = self.threads = self.shared = 0
        self._bounds = {name: (address_of(array), array.nbytes) for name, array in arrays.items()}
        self._read = {name: np.zeros(array.nbytes, np.bool_) for name, array in arrays.items()}
        self._homes: dict[Memory, tuple[str, int]] = {}
        self._machine: SeenMachine | None = None
        self._call: FrameType | None = None
        self._memory: Memory | None = None
        self._kind = ""
        self._end = self._width = 0

    def run(self, launches: Sequence[Launch]) -> Traffic:
        """Run the launches on the SIMT machine, one after another, and count; answers itself."""
        for launch in launches:
            launch.run(Backend("sim", observers=(self,)))
        return self

    def bytes(self, *names: str) -> int:
        """Bytes that were asked for from these arrays."""
        return sum(width * count for name in names for width, count in self.loads[name].items())

    def lanes(self, *names: str) -> int:
        """Loads of single lanes from these arrays."""
        return sum(sum(self.loads[name].values()) for name in names)

    def stored(self, *names: str) -> int:
        """Bytes that were stored to these arrays."""
        return sum(width * count for name in names for width, count in self.stores[name].items())

    def widths(self, *names: str) -> list[int]:
        """Every width of a load from these arrays, in bytes."""
        return sorted({width for name in names for width in self.loads[name]})

    def distinct(self, *names: str) -> int:
        """Bytes of these arrays that were read at least once."""
        return sum(int(self._read[name].sum()) for name in names)

    def launch_start(self, machine: SeenMachine) -> None:
        """Tell the argument arrays apart by their addresses."""
        self._machine = machine
        gx, gy, gz = machine.grid
        self.blocks += gx * gy * gz
        self.threads += gx * gy * gz * len(machine.lanes)
        self._homes = {memory: self._home(memory) for memory in machine.memories}

    def access(
        self, kind: str, memory: Memory, index: int, count: int, value: Any, lane: Lane, code: CodeType, lasti: int
    ) -> None:
        """Count it; what one instruction of `kernels.ptx` reads or writes element by element is one access."""
        if memory.space != "global":
            return
        width = count * memory.itemsize
        call = _call(_getframe(1))
        name, offset = self._homes[memory]
        first = offset + index * memory.itemsize
        if kind == READ and name in self._read:
            self._read[name][first : first + width] = True
        table = (self.loads if kind == READ else self.stores)[name]
        if call is self._call and kind == self._kind and memory is self._memory and index == self._end:
            # The same instruction goes on, element by element: it was counted with less.
            table[self._width] -= 1
            if not table[self._width]:
                del table[self._width]
            self._width += width
        else:
            self._width = width
        table[self._width] += 1
        self._call, self._kind, self._memory, self._end = call, kind, memory, index + count

    def collective(self, warp: Warp, what: str, lanes: int) -> None:
        """Count it."""
        self.operations[what] += 1

    def barrier(self, epoch: int) -> None:
        """Count it."""
        self.barriers += 1

    def launch_end(self, error: BaseException | None) -> None:
        """Keep the largest shared memory."""
        self._call = None
        if self._machine is not None:
            self.shared = max(self.shared, self._machine.shared.most_bytes)

    def _home(self, memory: Memory) -> tuple[str, int]:
        for name, (first, size) in self._bounds.items():
            if first <= memory.offset < first + size:
                return name, memory.offset - first
        return "rest", 0


def _call(frame: FrameType | None) -> FrameType | None:
    """The machine's function that the kernel called for an access: all accesses of one instruction share it."""
    found = frame
    while frame is not None and frame.f_code.co_filename.startswith(MACHINE):
        found, frame = frame, frame.f_back
    return found


def counted(launches: Sequence[Launch], arrays: Mapping[str, npt.NDArray[Any]]) -> Traffic:
    """What the launches do, run on the SIMT machine; `arrays`: those that are told apart."""
    return Traffic(**arrays).run(launches)
