"""What the block table costs on its way to a GPU, in time: tiny-vllm's way, and four that send less or less often.

A copy is started by the host and waited for by the host, so the host's clock is the one that counts. What is timed
is given from outside (`Machine`): a GPU, or in tests a machine that only counts.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from kernels.errors import ArgumentError, BackendUnavailable
from kernels.kernel import compile_cuda, cuda_unavailable, quiet_occupancy
from kernels.tiny_vllm.block_table import N_LAYERS, Blocks, Table, update_table_kernel

REPEATS = 500
WARM_UP = 50
Changes = Sequence[tuple[int, int]]
"""(place in the flat table, new block) of each entry that a decode step changed."""


class Machine(Protocol):
    """Holds a copy of the table, and brings it up to date by one of these calls; `changed`: how many entries."""

    changed: int

    def copy_table(self) -> None:
        """Copy the whole table from ordinary host memory."""

    def copy_entry(self, number: int) -> None:
        """Copy one changed entry, 4 bytes, straight to its place."""

    def copy_changes(self) -> None:
        """Copy the list of changed entries, places and blocks, in one piece."""

    def launch_update(self) -> None:
        """Launch the kernel that writes the listed entries into the copy."""

    def wait(self) -> None:
        """Return when all of that is done."""

    def reset(self) -> None:
        """Go back to the table before the step, and to an empty list."""

    def read(self) -> Table:
        """The copy of the table as it is now, flat."""


@dataclass(frozen=True)
class Timing:
    """Microseconds a decode step: the median of `count` samples, the 10th and the 90th percentile."""

    median: float
    low: float
    high: float
    count: int


@dataclass(frozen=True)
class CopyTimes:
    """Each way to renew the copy in one decode step, timed from the first call until the GPU has it all."""

    nothing: Timing
    """No copy: the clock and one wait, which every other time contains."""
    every_layer: Timing
    """The whole table once a layer, as tiny-vllm does."""
    once: Timing
    """The whole table once."""
    each_entry: Timing
    """A copy of 4 bytes for each changed entry."""
    together: Timing
    """One small copy of all changed entries, and the kernel that puts them in place."""
    launch: Timing
    """That kernel alone, launched from Python."""


def _nothing(machine: Machine) -> None:
    pass


def _every_layer(machine: Machine) -> None:
    for _ in range(N_LAYERS):
        machine.copy_table()


def _once(machine: Machine) -> None:
    machine.copy_table()


def _each_entry(machine: Machine) -> None:
    for number in range(machine.changed):
        machine.copy_entry(number)


def _together(machine: Machine) -> None:
    machine.copy_changes()
    machine.launch_update()


def _launch(machine: Machine) -> None:
    machine.launch_update()


WAYS: dict[str, Callable[[Machine], None]] = {
    "nothing": _nothing,
    "every_layer": _every_layer,
    "once": _once,
    "each_entry": _each_entry,
    "together": _together,
    "launch": _launch,
}
COMPLETE = ("every_layer", "once", "each_entry", "together")
"""The ways that must leave the new table behind."""


def percentile(samples: Sequence[float], percent: int) -> float:
    """The smallest sample that at least `percent` (1 to 100) of a hundred samples do not exceed."""
    if not samples:
        raise ArgumentError("samples", "none", "there must be at least one; raise repeats")
    return sorted(samples)[-(-percent * len(samples) // 100) - 1]


def timing(samples: Sequence[float]) -> Timing:
    """Median and spread; raises ArgumentError where nothing was sampled."""
    median, low, high = (percentile(samples, percent) for percent in (50, 10, 90))
    return Timing(median, low, high, len(samples))


def measure(
    machine: Machine,
    *,
    clock: Callable[[], float] = time.perf_counter,
    repeats: int = REPEATS,
    warm_up: int = WARM_UP,
) -> CopyTimes:
    """Time every way `repeats` times after `warm_up` rounds; `clock` is in seconds. Raises ArgumentError for none."""
    samples: dict[str, list[float]] = {name: [] for name in WAYS}
    for number in range(-warm_up, repeats):
        # In turn, so that a change of clock rate half way meets all of them alike.
        for name, way in WAYS.items():
            machine.wait()
            start = clock()
            way(machine)
            machine.wait()
            spent = clock() - start
            if number >= 0:
                samples[name].append(spent * 1e6)
    return CopyTimes(**{name: timing(found) for name, found in samples.items()})


def wrong_ways(machine: Machine, table: Table) -> list[str]:
    """The ways after which the copy is not `table`; a way that is measured must do its work."""
    found = []
    for name in COMPLETE:
        machine.reset()
        WAYS[name](machine)
        machine.wait()
        if not np.array_equal(machine.read(), table.reshape(-1)):
            found.append(name)
    return found


def crossing() -> tuple[Table, Table, Changes]:
    """The table before and after a decode step in which one sequence starts its second block, and what changed."""
    blocks = Blocks()
    blocks.prefill(0, 16)
    before = blocks.table.copy()
    for layer in range(N_LAYERS):
        blocks.decode_layer(0, layer, 16)
    return before, blocks.table, blocks.changes()


def packed(changes: Changes) -> npt.NDArray[np.int32]:
    """The list to send, [2, entries] int32: places, then blocks."""
    return np.array(list(zip(*changes, strict=True)), np.int32)


class Gpu:
    """The `Machine` that is a GPU: its arrays are made here, once; the calls only copy, launch and wait."""

    def __init__(self, before: Table, after: Table, changes: Changes) -> None:
        """Put the table before the step on the GPU. Raises BackendUnavailable where none works."""
        if reason := cuda_unavailable():
            raise BackendUnavailable(f"the time of a copy: {reason}")
        from numba import cuda
        from numba.cuda.cudadrv.driver import driver

        self.changed = len(changes)
        self._places = [place for place, _ in changes]
        # Plain NumPy arrays: pageable memory, as the std::vector upstream is.
        self._before = before.reshape(-1)
        self._host = after.reshape(-1)
        self._list = packed(changes)
        self._table = cuda.to_device(self._before)
        self._sent = cuda.to_device(self._list)
        # The driver's call itself (cudaMemcpy is a shell around it): Numba's own copy does much more in Python.
        self._copy = driver.cuMemcpyHtoD
        self._to, self._from = _address(self._table), self._host.ctypes.data
        self._list_to, self._list_from = _address(self._sent), self._list.ctypes.data
        with quiet_occupancy():
            self._kernel = compile_cuda(update_table_kernel)[1, self.changed]
        self._arguments = (self._table, self._sent[0], self._sent[1])
        self._synchronize = cuda.synchronize

    def copy_table(self) -> None:
        """As Machine."""
        self._copy(self._to, self._from, self._host.nbytes)

    def copy_entry(self, number: int) -> None:
        """As Machine."""
        offset = self._places[number] * self._host.itemsize
        self._copy(self._to + offset, self._from + offset, self._host.itemsize)

    def copy_changes(self) -> None:
        """As Machine."""
        self._copy(self._list_to, self._list_from, self._list.nbytes)

    def launch_update(self) -> None:
        """As Machine."""
        self._kernel(*self._arguments)

    def wait(self) -> None:
        """As Machine."""
        self._synchronize()

    def reset(self) -> None:
        """As Machine."""
        self._table.copy_to_device(self._before)
        self._sent.copy_to_device(np.zeros_like(self._list))

    def read(self) -> Table:
        """As Machine."""
        found: Table = self._table.copy_to_host()
        return found


def _address(array: Any) -> int:
    """Where a device array lies on the GPU."""
    return int(array.device_ctypes_pointer.value)
