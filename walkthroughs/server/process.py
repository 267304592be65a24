"""The outer end of a run: starts the child process, hands its events on, and ends it when it must end.

The child has a session of its own, so that it and whatever it started can be killed together, and so that Ctrl-C in the
terminal reaches the server alone. Its limits: wall-clock time and memory held, watched from here; address space and
processor time, by the kernel. A child that runs a reader's code is kept apart: it works in a folder of its own, what it
starts counts as its own, and is ended with it as far as `walkthroughs.kin` finds it. What got away holds up the end of
a run for a few seconds, no more.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from walkthroughs.kin import Kin, resident

ROOT = Path(__file__).resolve().parents[2]
COMMAND = (sys.executable, "-m", "walkthroughs.server.child")
GIB = 2**30
MOST_EVENTS = 2000
MOST_LINE = 1 << 20
MOST_PROCESSES = 64
TAIL = 4000
PATIENCE = 2.0
"""Seconds that the end of a run waits: for its process, then for who else holds its streams open."""
TOLD = frozenset({"running", "launch", "check", "measured", "verdict"})
"""What a child may tell. The rest is the server's own to say."""

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
    """One run. `events()` is read once; `kill` may be called at any time. `apart`: it runs a reader's code."""

    def __init__(
        self, command: tuple[str, ...], request: Mapping[str, Any], limits: Limits, *, apart: bool = False
    ) -> None:
        self.command = command
        self.request = {**request, "memory": limits.address_space, "seconds": int(limits.seconds) + 5}
        self.limits = limits
        self.reason = ""
        self.kin = Kin() if apart else None
        self._process: asyncio.subprocess.Process | None = None

    def kill(self, reason: str) -> None:
        """End the child and what can be found of all that it started; the first reason counts."""
        self.reason = self.reason or reason
        if self._process is not None:
            self._end_all(self._process)

    def _end_all(self, process: asyncio.subprocess.Process) -> None:
        _end_group(process)
        if self.kin is not None:
            self.kin.end()

    async def events(self) -> AsyncIterator[Event]:
        """Start the child and give its events; the last one is always `ended`, with the reason and a message."""
        with self._folder() as folder:
            process = await self._start(folder)
            watch = asyncio.create_task(self._watch(process))
            tail = asyncio.create_task(_tail(process))
            try:
                verdict = False
                async for event in self._told(process):
                    verdict = verdict or event["event"] == "verdict"
                    yield event
                code = await _patiently(process)
                await asyncio.wait({tail}, timeout=PATIENCE)
                _let_go(process)
                yield self._ended(code, verdict, await tail)
            finally:
                watch.cancel()
                self.kill("cancelled")
                await _patiently(process)
                _let_go(process)
                tail.cancel()

    @contextlib.contextmanager
    def _folder(self) -> Iterator[str]:
        """Where the child works: the checkout, or for a reader's code a folder that goes with it."""
        if self.kin is None:
            yield str(ROOT)
            return
        with tempfile.TemporaryDirectory(prefix="pagewalk-run-", ignore_cleanup_errors=True) as made:
            yield made

    async def _start(self, folder: str) -> asyncio.subprocess.Process:
        own = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", **(self.kin.variables if self.kin else {})}
        variables = {**os.environ, **own}
        if self.kin:  # elsewhere than in the checkout, our packages must be found
            variables["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), variables.get("PYTHONPATH")]))
        process = await asyncio.create_subprocess_exec(
            *self.command,
            cwd=folder,
            env=variables,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
            limit=MOST_LINE,
        )
        self._process = process
        if self.kin:
            self.kin.leader = process.pid
        return process

    async def _told(self, process: asyncio.subprocess.Process) -> AsyncIterator[Event]:
        """Send the request, and give what the child tells."""
        assert process.stdin is not None
        if self.reason:  # cancelled while it started
            self.kill(self.reason)
        with contextlib.suppress(ConnectionError):
            process.stdin.write(json.dumps(self.request).encode() + b"\n")
            await process.stdin.drain()
        async for event in self._lines(process):
            yield event

    async def _watch(self, process: asyncio.subprocess.Process) -> None:
        """Kill the child when its time is over, or when it holds more than it may; then, what outlives it."""
        loop = asyncio.get_running_loop()
        end = loop.time() + self.limits.seconds
        while True:
            await asyncio.sleep(0.25 if self.kin else 0.1)
            if process.returncode is not None:
                break
            count, held = self.kin.held() if self.kin else (1, resident(process.pid))
            if held > self.limits.memory or count > MOST_PROCESSES:
                self.kill("memory" if held > self.limits.memory else "processes")
            elif loop.time() >= end:
                self.kill("time")
        await asyncio.sleep(1)
        self._end_all(process)
        await asyncio.sleep(1)
        _let_go(process)

    async def _lines(self, process: asyncio.subprocess.Process) -> AsyncIterator[Event]:
        """The events that a child writes; what is no event ends the stream, and too much of it ends the child."""
        assert process.stdout is not None
        for _ in range(MOST_EVENTS):
            try:
                line = await process.stdout.readline()
            except ValueError:
                break
            event = _event(line)
            if event is None:  # the end, or a line that the child's own end cut in two
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
            "processes": f"The run started more than {MOST_PROCESSES} processes and was ended.",
            "output": "The run told more than a page can show and was ended.",
            "crashed": f"The run's process {_how(code)}. The server goes on.{said and f' It said: {said}'}",
        }
        return {"event": "ended", "reason": reason, "message": words[reason]}


def _event(line: bytes) -> Event | None:
    """A line as an event; None for what is none. What a reader's code writes there may be anything at all."""
    try:
        event = json.loads(line, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        return None
    told = isinstance(event, dict) and isinstance(event.get("event"), str) and event["event"] in TOLD
    return event if told else None


def _no_constant(name: str) -> object:
    raise ValueError(f"{name} is no number in JSON")


async def _tail(process: asyncio.subprocess.Process) -> str:
    """Read stderr to its end; the last line of it, shortened."""
    assert process.stderr is not None
    kept = b""
    while chunk := await process.stderr.read(TAIL):
        kept = (kept + chunk)[-TAIL:]
    lines = [line.strip() for line in kept.decode("utf-8", "replace").splitlines() if line.strip()]
    return lines[-1][:300] if lines else ""


async def _patiently(process: asyncio.subprocess.Process) -> int:
    """The exit code; a child that has closed its output has two more seconds to end.

    In some versions of Python `wait` also waits for the streams, which others may hold: so it has a bound, until our
    ends of them are closed.
    """
    for _ in range(2):
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE):  # not wait_for, which may swallow a cancel
                return await process.wait()
        _end_group(process)
    _let_go(process)
    return await process.wait()


def _end_group(process: asyncio.subprocess.Process) -> None:
    """End the child and its group, which may outlive it; it has the child's number, as the child leads it."""
    if process.returncode is not None and _runs(process.pid):
        return  # a stranger: no number is given again while a group has it
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)


def _runs(pid: int) -> bool:
    try:
        os.getpgid(pid)
    except ProcessLookupError:
        return False
    return True


def _let_go(process: asyncio.subprocess.Process) -> None:
    """Close our ends of a child's streams, whoever holds the other ends: who reads from them comes to the end."""
    process._transport.close()  # type: ignore[attr-defined]  # asyncio has no public way


def _how(code: int) -> str:
    if code >= 0:
        return f"ended with exit code {code} before its verdict"
    try:
        return f"was ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"was ended by signal {-code}"
