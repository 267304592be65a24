"""The machine that reports: pools, atomics, warps and barriers that tell an observer what they do."""

from __future__ import annotations

import dis
from collections.abc import Callable, Sequence
from sys import _getframe
from types import CodeType
from typing import TYPE_CHECKING, Any

import numpy as np

from kernels.simt.access import ATOMIC, Memory, Observer, Several
from kernels.simt.cells import ByteCells, CellArray, LocalPool, SharedPool
from kernels.simt.facade import Atomic, cuda
from kernels.simt.machine import Machine
from kernels.simt.memory import global_array
from kernels.simt.position import Position
from kernels.simt.seen_arrays import SeenCells, SeenGlobal, address_of, seen_cells, seen_global
from kernels.simt.warp import Lane, Warp

if TYPE_CHECKING:
    from kernels.simt.report import LaunchReport


def variable(code: CodeType, lasti: int) -> str:
    """The variable that the result of this call is stored in; empty where it goes elsewhere."""
    after = [found for found in dis.get_instructions(code) if found.offset > lasti]
    return str(after[0].argval) if after and after[0].opname in ("STORE_FAST", "STORE_DEREF") else ""


class SeenShared(SharedPool):
    """Shared memory whose arrays report."""

    __slots__ = ("_memories", "_seen", "observer")

    def __init__(self, at: Position, dynamic_bytes: int, observer: Observer) -> None:
        super().__init__(at, dynamic_bytes)
        self.observer = observer
        self._memories: dict[tuple[Any, ...], Memory] = {}  # one a declaration, for all blocks
        self._seen: dict[tuple[int, int], SeenCells] = {}

    def clear(self) -> None:
        """A new block."""
        super().clear()
        self._seen.clear()
        machine: Any = self.at.machine
        machine.block_started()

    def array(self, code: CodeType, lasti: int, shape: Any, spec: Any) -> CellArray:
        """The array declared at this call."""
        found = self._seen.get((id(code), lasti))
        if found is None:
            plain = super().array(code, lasti, shape, spec)
            key = (id(code), lasti, plain.shape, plain.dtype)
            if key not in self._memories:
                home: object = "dynamic" if isinstance(plain.cells, ByteCells) else key
                name = variable(code, lasti) or plain.name
                self._memories[key] = Memory("shared", name, plain.shape, plain.dtype, home)
            found = self._seen[id(code), lasti] = seen_cells(plain, self._memories[key], self.observer)
        return found


class SeenLocal(LocalPool):
    """Local arrays that report."""

    __slots__ = ("_memories", "observer")

    def __init__(self, at: Position, observer: Observer) -> None:
        super().__init__(at)
        self.observer = observer
        self._memories: dict[tuple[Any, ...], Memory] = {}

    def array(self, code: CodeType, lasti: int, shape: Any, spec: Any) -> CellArray:
        """A thread's own array."""
        plain = super().array(code, lasti, shape, spec)
        key = (id(code), lasti, plain.shape, plain.dtype)
        memory = self._memories.get(key)
        if memory is None:
            name = variable(code, lasti) or plain.name
            memory = self._memories[key] = Memory("local", name, plain.shape, plain.dtype, key)
        return seen_cells(plain, memory, self.observer)


class SeenAtomic:
    """`cuda.atomic`, each operation reported as one access."""

    def __init__(self, plain: Atomic, at: Position) -> None:
        self._plain = plain
        self._at = at

    def __getattr__(self, name: str) -> Callable[..., Any]:
        change = getattr(self._plain, name)

        def tell(array: Any, index: Any, *rest: Any) -> Any:
            if not isinstance(array, SeenGlobal | SeenCells):  # a local array that nobody watches
                return change(array, index, *rest)
            frame = _getframe(1)
            old = change(array.plain(), index, *rest)
            array.tell(ATOMIC, array.memory, array.flat(index), 1, old, self._at.threadIdx, frame.f_code, frame.f_lasti)
            return old

        return tell


class SeenWarp(Warp):
    """A warp that reports its complete operations."""

    __slots__ = ("clock",)

    clock: int  # for observers: how many of them there were

    def finish(self) -> None:
        """The pass is over."""
        if self.quick:
            self.machine.observer.collective(self, self.op.what, self.op.lanes & self.everyone)  # type: ignore[attr-defined]
        super().finish()

    def _complete(self, lane: Lane, living: Sequence[Lane]) -> int:
        members = super()._complete(lane, living)
        if members:
            self.machine.observer.collective(self, lane.op.what, lane.op.lanes & self.everyone)  # type: ignore[attr-defined]
        return members


class SeenMachine(Machine):
    """A machine that tells an observer what it does."""

    warp_type = SeenWarp

    def __init__(self, observers: Sequence[Observer], *settings: Any) -> None:
        super().__init__(*settings)
        self.observer = observers[0] if len(observers) == 1 else Several(observers)
        self.shared = SeenShared(cuda, self.shared.used_bytes, self.observer)
        if self.observer.local:
            self.local = SeenLocal(cuda, self.observer)
        self.memories: list[Memory] = []  # those of the arguments
        self._epoch = 0

    def run(self, args: Sequence[Any]) -> LaunchReport:
        """Run the whole grid."""
        plain = cuda.atomic
        seen: Any = SeenAtomic(plain, cuda)
        cuda.atomic = seen
        try:
            report = super().run(args)
        except BaseException as error:
            self.observer.launch_end(error)
            raise
        finally:
            cuda.atomic = plain
        self.observer.launch_end(None)
        return report

    def wrap(self, arg: Any, name: str) -> Any:
        """An array argument as one that reports."""
        if not isinstance(arg, np.ndarray):
            return arg
        memory = Memory("global", name, arg.shape, arg.dtype, "global", address_of(arg))
        self.memories.append(memory)
        return seen_global(global_array(arg, name, cuda), memory, self.observer)

    def fence(self, lane: Lane) -> None:
        """A `threadfence` of the lane."""
        self.observer.fence(lane)

    def _start(self, args: tuple[Any, ...]) -> None:
        super()._start(args)
        self.observer.launch_start(self)

    def block_started(self) -> None:
        """A new block is about to run."""
        self._epoch = 0
        b, d = cuda.blockIdx, cuda.gridDim
        self.observer.block_start(b.x + d.x * (b.y + d.y * b.z))

    def _open_barrier(self) -> bool:
        opened = super()._open_barrier()
        if opened:
            self._epoch += 1
            self.observer.barrier(self._epoch)
        return opened
