"""The outer end of a lab process: starts it, hands its events on, and ends it, whatever happens.

The process leads a session of its own, so that it goes with one signal together with all that it started, and so that
Ctrl-C reaches us alone. Its stdin stays open while we want it: should this process be killed, it ends by itself.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import queue
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import IO, Any

from walkthroughs.kin import Kin
from walkthroughs.lab.environment import Lab
from walkthroughs.lab.errors import EngineDied, EngineFailed, TookTooLong, TookTooMuch

Event = dict[str, Any]
GIB = 2**30
TICK = 0.25
TAIL = 4000


@dataclass(frozen=True)
class Limits:
    """What a process may take: `seconds` that we wait for it, and bytes of `memory` with all that it started."""

    seconds: float = 300.0
    memory: float = 4 * GIB


def limits_for(lab: Lab, seconds: float) -> Limits:
    """What an engine may take: the lab's own is tiny, a reader's model or Python takes the memory that it takes."""
    return Limits(seconds) if lab.own and lab.made else Limits(seconds, math.inf)


class Running:
    """A lab process while it runs. `kin` finds all that it started; `said` is the end of what it wrote on stderr."""

    def __init__(self, command: Sequence[str], variables: Mapping[str, str], *, nice: int = 0) -> None:
        self.kin = Kin()
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115  # as long as the process
        before = ("nice", "-n", str(nice)) if nice else ()
        self.process = subprocess.Popen(
            [*before, *command],
            env={**variables, **self.kin.variables},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            start_new_session=True,
        )
        self.kin.leader = self.process.pid

    @property
    def said(self) -> str:
        """The end of what the process wrote on stderr."""
        size = self._stderr.seek(0, os.SEEK_END)
        self._stderr.seek(max(0, size - TAIL))
        return self._stderr.read().decode("utf-8", "replace")

    def end(self) -> None:
        """End the process and all that it started; safe to call twice."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if self.process.returncode is None:
                os.killpg(self.process.pid, signal.SIGKILL)
        self.kin.end()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()
        self._stderr.close()


@contextlib.contextmanager
def running(command: Sequence[str], variables: Mapping[str, str], *, nice: int = 0) -> Iterator[Running]:
    """Run a command, and end it and what it started on the way out, also when this process is asked to end."""
    with _asked_to_end(), contextlib.ExitStack() as stack:
        child = Running(command, variables, nice=nice)
        stack.callback(child.end)
        yield child


@contextlib.contextmanager
def _asked_to_end() -> Iterator[None]:
    """Turn SIGTERM and SIGHUP into SystemExit while a process runs, so that it is ended on the way out.

    What is ignored stays ignored: `nohup` says that a closed terminal is to end nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def leave(number: int, frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    heard = [number for number in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(number) != signal.SIG_IGN]
    before = {number: signal.signal(number, leave) for number in heard}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def events(
    python: Path, script: Path, request: Mapping[str, Any], variables: Mapping[str, str], limits: Limits
) -> Generator[Event, None, None]:
    """Run `script` on one request and give the events it writes, after `started`, to `done`, which is not given.

    Raises EngineFailed for an error that it tells of, EngineDied, TookTooLong, TookTooMuch. Whatever happens, and also
    when the iterator is closed before its end, no process is left.
    """
    with running([str(python), str(script)], variables) as child:
        assert child.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            child.process.stdin.write(json.dumps(request).encode() + b"\n")
            child.process.stdin.flush()
        yield {"event": "started"}
        for event in _told(child, limits):
            if event["event"] == "error":
                raise EngineFailed(str(event["kind"]), str(event["message"]))
            yield event


def _told(child: Running, limits: Limits) -> Iterator[Event]:
    """The events before `done`; watches time and memory while it waits for the next one."""
    lines: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
    assert child.process.stdout is not None
    threading.Thread(target=_read, args=(child.process.stdout, lines), daemon=True).start()
    waited = looked = 0.0
    doing = "it was starting"
    while True:
        since = time.monotonic()
        if since - looked > TICK:
            looked = since
            _, held = child.kin.held()
            if held > limits.memory:
                raise TookTooMuch(held, limits.memory)
        if waited > limits.seconds:
            raise TookTooLong(limits.seconds, doing)
        try:
            line = lines.get(timeout=TICK)
        except queue.Empty:
            continue
        finally:
            waited += time.monotonic() - since
        event = _event(line)
        if event is None:  # the end, or a line that the process's own end cut in two
            raise EngineDied(child.process.wait(), child.said)
        if event["event"] == "done":
            return
        doing = f"it had said {event['event']!r} last"
        yield event


def _read(stream: IO[bytes], lines: queue.SimpleQueue[bytes | None]) -> None:
    with contextlib.suppress(ValueError, OSError):
        for line in stream:
            lines.put(line)
    lines.put(None)


def _event(line: bytes | None) -> Event | None:
    with contextlib.suppress(ValueError):
        event = json.loads(line or b"")
        if isinstance(event, dict) and isinstance(event.get("event"), str):
            return event
    return None
