"""The processes of one run: its own, and what it started, as far as that can be found.

A process group is left with one call, and a session with another. A mark in the environment is inherited by all of
them; so they are found again, counted, and ended. What leaves the session and drops its environment, too, is not found.
Without `/proc` nothing is: the group is all that can be ended, by whoever started it.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

MARK = "PAGEWALK_RUN"
ROUNDS = 50
PATIENCE, TICK = 5.0, 0.01
PROC = Path("/proc")


@dataclass
class Kin:
    """A run's processes. `leader`: the number of the first, which leads a session of its own; 0 before it starts."""

    mark: str = field(default_factory=lambda: secrets.token_hex(16))
    leader: int = 0

    @property
    def variables(self) -> dict[str, str]:
        """What the first process must have in its environment."""
        return {MARK: self.mark}

    def processes(self) -> list[int]:
        """The numbers of those that run: with the mark, or in the leader's session. Never this process."""
        wanted = f"{MARK}={self.mark}".encode()
        mine = os.getpid()
        return [
            pid
            for pid in _numbers()
            if pid != mine and (wanted in _read(pid, "environ").split(b"\0") or self._in_session(pid))
        ]

    def _in_session(self, pid: int) -> bool:
        # A process's name may hold anything; what follows the last parenthesis are numbers, after one letter.
        words = _read(pid, "stat").rpartition(b")")[2].split()
        return bool(self.leader) and len(words) > 3 and words[0] != b"Z" and int(words[3]) == self.leader

    def held(self) -> tuple[int, int]:
        """How many there are, and the bytes of memory that they hold together."""
        found = self.processes()
        return len(found), sum(map(resident, found))

    def end(self, kill: Callable[[int, int], None] = os.kill, patience: float = PATIENCE) -> bool:
        """End all that are found, again until none is; False if some still are after many rounds.

        `patience`: seconds that those killed may take to go. A process gives back its memory first.
        """
        rounds, until, before = 0, time.monotonic() + patience, [0]
        while (found := self.processes()) and rounds < ROUNDS:
            for pid in found:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    kill(pid, signal.SIGKILL)
            if found == before and time.monotonic() < until:
                time.sleep(TICK)
            else:
                rounds += 1
            before = found
        return not found


def resident(pid: int) -> int:
    """Bytes of memory that a process holds, 0 where that is not known or it has ended."""
    words = _read(pid, "statm").split()
    return int(words[1]) * os.sysconf("SC_PAGE_SIZE") if len(words) > 1 else 0


def _numbers() -> list[int]:
    try:
        return [int(path.name) for path in PROC.iterdir() if path.name.isdigit()]
    except OSError:
        return []


def _read(pid: int, name: str) -> bytes:
    """A file about a process; empty where it has ended or belongs to somebody else."""
    try:
        return (PROC / str(pid) / name).read_bytes()
    except OSError:
        return b""
