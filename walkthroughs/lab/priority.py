"""Lets a server answer while its engine computes: on a busy machine it would read out its metrics only afterwards.

The engine's processes get less of the processor than the one that answers. Nothing comes of it where `/proc` is not.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from walkthroughs.kin import Kin

PROC = Path("/proc")


def hold_back(kin: Kin, by: int) -> list[int]:
    """Raise the niceness of all that the server started by so much, threads and all; return their numbers.

    The leader runs the server, and both are left as they are.
    """
    held = [pid for pid in kin.processes() if pid != kin.leader and _parent(pid) != kin.leader]
    for pid in held:
        with contextlib.suppress(OSError):
            for thread in (PROC / str(pid) / "task").iterdir():
                number = int(thread.name)
                os.setpriority(os.PRIO_PROCESS, number, os.getpriority(os.PRIO_PROCESS, number) + by)
    return held


def _parent(pid: int) -> int:
    try:
        stat = (PROC / str(pid) / "stat").read_text("utf-8", "replace")
    except OSError:
        return 0
    return int(stat.rpartition(")")[2].split()[1])
