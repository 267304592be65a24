"""The SIMT machine: runs a Numba CUDA kernel thread by thread, on a laptop, and always the same way.

Each thread is a greenlet. The 32 lanes of a warp take turns, each as far as its next warp operation, barrier
or return, so that a warp is in step wherever its lanes meet; warps are free between barriers, in an order
that a schedule chooses. What a GPU does in silence is an error here: an index out of bounds, a read of shared
memory that nobody wrote, a shuffle that names a lane which is not there, a barrier that some threads never
reach.

Where to read on: `machine` runs blocks and barriers, `warp` takes the turns, `facade` is the `cuda` object,
`memory` and `cells` check accesses, `schedule` orders warps and `search` looks for an order that shows a fault,
`report` holds every error.

Between two meeting points the lanes of a warp run one after another, lane 0 first. That is an order a GPU may take
since Volta, so a kernel that needs its lanes in step and does not say so (`syncwarp`, a shuffle) is wrong here too.

Not modelled: time; caches and the order in which other threads see writes, except at barriers; a thread that spins
on memory without `nanosleep` (it never lets the others run); more than one block at a time.
"""

from kernels.simt import libdevice
from kernels.simt.facade import cuda
from kernels.simt.machine import launch
from kernels.simt.report import (
    BadLaunch,
    BadOperand,
    BarrierDivergence,
    Deadlock,
    Group,
    LaunchReport,
    Misaligned,
    NotModelled,
    OutOfBounds,
    OutsideLaunch,
    Place,
    ShuffleError,
    SimtError,
    UninitialisedRead,
)
from kernels.simt.scalars import ScalarType, scalar_type, stand_in
from kernels.simt.schedule import Plan, Schedule
from kernels.simt.search import Finding, ScheduleDependent, Verdict, search
from kernels.simt.vector import vector_load
from kernels.simt.widening import Widening, widenings

__all__ = [
    "BadLaunch",
    "BadOperand",
    "BarrierDivergence",
    "Deadlock",
    "Finding",
    "Group",
    "LaunchReport",
    "Misaligned",
    "NotModelled",
    "OutOfBounds",
    "OutsideLaunch",
    "Place",
    "Plan",
    "ScalarType",
    "Schedule",
    "ScheduleDependent",
    "ShuffleError",
    "SimtError",
    "UninitialisedRead",
    "Verdict",
    "Widening",
    "cuda",
    "launch",
    "libdevice",
    "scalar_type",
    "search",
    "stand_in",
    "vector_load",
    "widenings",
]
