"""The outer end of a run: starts the child process, hands its events on, and ends it when it must end.

The child has a session of its own, so that it and whatever it started can be killed together, and so that Ctrl-C in the
terminal reaches the server alone. Its limits: wall-clock time and memory held, watched from here; address space and
processor time, by the kernel.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
COMMAND = (sys.executable, "-m", "walkthroughs.server.child")
GIB = 2**30
MOST_EVENTS = 2000
MOST_LINE = 1 << 20
TAIL = 4000

Event = dict[str, Any]


@dataclass(frozen=True)
class Limits:
    """What one run may take. `address_space`: bytes, None without a bound, as CUDA maps more than any machine has."""

    seconds: float = 60.0
    memory: int = 2 * GIB
    address_space: int | None = 8 * GIB

    @staticmethod
    def of(backend: str) -> Limits:
        """The limits on a backend: on a GPU the first run compiles, and holds more memory."""
        return Limits(180.0, 8 * GIB, None) if backend == "cuda" else Limits()


class Child:
    """One run. `events()` is read once; `kill` may be called at any time."""

    def __init__(self, command: tuple[str, ...], request: Mapping[str, Any], limits: Limits) -> None:
        self.command = command
        self.request = {**request, "memory": limits.address_space, "seconds": int(limits.seconds) + 5}
        self.limits = limits
        self.reason = ""
        self._process: asyncio.subprocess.Process | None = None

    def kill(self, reason: str) -> None:
        """End the child and all that it started; the first reason counts."""
        self.reason = self.reason or reason
        if self._process is not None and self._process.returncode is None:
            # The group has the child's number: it leads its own session.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)

    async def events(self) -> AsyncIterator[Event]:
        """Start the child and give its events; the last one is always `ended`, with the reason and a message."""
        process = await asyncio.create_subprocess_exec(
            *self.command,
            cwd=ROOT,
            env={**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"},
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
            limit=MOST_LINE,
        )
        self._process = process
        assert process.stdin is not None
        watch = asyncio.create_task(self._watch(process.pid))
        tail = asyncio.create_task(_tail(process))
        try:
            if self.reason:  # cancelled while it started
                self.kill(self.reason)
            with contextlib.suppress(ConnectionError):
                process.stdin.write(json.dumps(self.request).encode() + b"\n")
                await process.stdin.drain()
            verdict = False
            async for event in self._lines(process):
                verdict = verdict or event.get("event") == "verdict"
                yield event
            code = await _patiently(process)
            yield self._ended(code, verdict, await tail)
        finally:
            watch.cancel()
            self.kill("cancelled")
            await process.wait()
            tail.cancel()

    async def _watch(self, pid: int) -> None:
        """Kill the child when its time is over, or when it holds more memory than it may."""
        loop = asyncio.get_running_loop()
        end = loop.time() + self.limits.seconds
        while loop.time() < end:
            await asyncio.sleep(0.1)
            if resident(pid) > self.limits.memory:
                self.kill("memory")
                return
        self.kill("time")

    async def _lines(self, process: asyncio.subprocess.Process) -> AsyncIterator[Event]:
        """The events that a child writes; what is no event ends the stream, and too much of it ends the child."""
        assert process.stdout is not None
        for _ in range(MOST_EVENTS):
            try:
                line = await process.stdout.readline()
            except ValueError:
                break
            try:
                event = json.loads(line)
            except ValueError:  # the end, or a line that the child's own end cut in two
                return
            if not isinstance(event, dict):
                return
            yield event
        self.kill("output")

    def _ended(self, code: int, verdict: bool, said: str) -> Event:
        reason = self.reason or ("time" if code == -signal.SIGXCPU else "finished" if verdict else "crashed")
        words = {
            "finished": "",
            "cancelled": "The run was cancelled.",
            "stopping": "The server is stopping.",
            "time": f"The run took longer than {self.limits.seconds:g} seconds and was ended.",
            "memory": f"The run held more than {self.limits.memory / GIB:g} GiB of memory and was ended.",
            "output": "The run told more than a page can show and was ended.",
            "crashed": f"The run's process {_how(code)}. The server goes on.{said and f' It said: {said}'}",
        }
        return {"event": "ended", "reason": reason, "message": words[reason]}


async def _tail(process: asyncio.subprocess.Process) -> str:
    """Read stderr to its end; the last line of it, shortened."""
    assert process.stderr is not None
    kept = b""
    while chunk := await process.stderr.read(TAIL):
        kept = (kept + chunk)[-TAIL:]
    lines = [line.strip() for line in kept.decode("utf-8", "replace").splitlines() if line.strip()]
    return lines[-1][:300] if lines else ""


async def _patiently(process: asyncio.subprocess.Process) -> int:
    """The exit code; a child that has closed its output has two more seconds to end."""
    with contextlib.suppress(TimeoutError):
        return await asyncio.wait_for(process.wait(), 2)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    return await process.wait()


def _how(code: int) -> str:
    if code >= 0:
        return f"ended with exit code {code} before its verdict"
    try:
        return f"was ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"was ended by signal {-code}"


def resident(pid: int) -> int:
    """Bytes of memory that a process holds, 0 where that is not known or it has ended."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text("ascii").split()[1])
    except (OSError, IndexError, ValueError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")
