"""Who is running: the thread, thread block and sizes that the `cuda` object shows to a kernel.

One slot store a thread switch keeps it right, so a kernel reads `cuda.threadIdx.x` at the price of two
attributes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NoReturn

from kernels.simt.report import OutsideLaunch

if TYPE_CHECKING:
    from kernels.simt.machine import Machine
    from kernels.simt.warp import Lane


class Dim3:
    """Three sizes or coordinates, as CUDA's `dim3`: plain ints `x`, `y`, `z`."""

    __slots__ = ("x", "y", "z")

    def __init__(self, x: int = 1, y: int = 1, z: int = 1) -> None:
        self.x = x
        self.y = y
        self.z = z

    def __iter__(self) -> Iterator[int]:
        return iter((self.x, self.y, self.z))

    def __repr__(self) -> str:
        return f"({self.x}, {self.y}, {self.z})"


class Outside:
    """Stands in every slot while no launch runs: any use of it is an `OutsideLaunch` error."""

    __slots__ = ()

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):  # Python's own questions, not a kernel's
            raise AttributeError(name)
        raise OutsideLaunch


class Position:
    """The thread that runs now (`threadIdx` is its lane), its block, the sizes, and the running machine."""

    __slots__ = ("blockDim", "blockIdx", "gridDim", "machine", "threadIdx")

    # CUDA spells these so. They are the lane and three Dim3, or Outside while no launch runs.
    threadIdx: Lane  # noqa: N815
    blockIdx: Dim3  # noqa: N815
    blockDim: Dim3  # noqa: N815
    gridDim: Dim3  # noqa: N815
    machine: Machine

    def __init__(self) -> None:
        self.leave()

    def leave(self) -> None:
        """Forget the launch: from here on every use is an `OutsideLaunch` error."""
        outside: Any = Outside()
        self.threadIdx = self.blockIdx = self.blockDim = self.gridDim = self.machine = outside

    @property
    def running(self) -> bool:
        """Whether a launch is under way."""
        return not isinstance(self.machine, Outside)
