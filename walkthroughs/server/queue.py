"""One run at a time, in the order in which they were asked for, and only so many waiting.

Every job has its own line of events: its place while it waits, then what its process tells, then how it ended. A job
can be cancelled at any time; so can all of them, when the server stops.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import deque
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

from walkthroughs.server.process import Child, Event

MOST_WAITING = 4
"""A browser has six connections to a host. Each open run takes one: some must be left, to cancel."""


class QueueFull(RuntimeError):
    """As many runs wait as may."""

    def __init__(self, waiting: int) -> None:
        super().__init__(f"{waiting} runs are waiting already, and no more may: try again when one of them has ended")


class QueueClosed(RuntimeError):
    """The server is stopping."""

    def __init__(self) -> None:
        super().__init__("the server is stopping: it takes no more runs")


@dataclass(eq=False)
class Job:
    """One run that was asked for. `events` gives everything that happens to it, and ends with it."""

    request: dict[str, Any]
    id: str = field(default_factory=lambda: secrets.token_urlsafe(16))
    child: Child | None = None
    ended: bool = False
    _events: asyncio.Queue[Event | None] = field(default_factory=asyncio.Queue)

    def tell(self, event: Event) -> None:
        """Add an event, marked with the job's id; `ended` is the last one that is taken."""
        if self.ended:
            return
        self._events.put_nowait({**event, "run": self.id})
        if event["event"] == "ended":
            self.ended = True
            self._events.put_nowait(None)

    async def events(self) -> AsyncIterator[Event]:
        """Everything from the first event to `ended`; for one reader."""
        while (event := await self._events.get()) is not None:
            yield event


class RunQueue:
    """The worker and those who wait. `start` makes the child of a job; `work` runs until it is cancelled."""

    def __init__(self, start: Callable[[Job], Child], most_waiting: int = MOST_WAITING) -> None:
        self.start = start
        self.most_waiting = most_waiting
        self.running: Job | None = None
        self._waiting: deque[Job] = deque()
        self._wake = asyncio.Event()
        self._closed = False

    @property
    def waiting(self) -> int:
        """How many wait."""
        return len(self._waiting)

    def submit(self, request: dict[str, Any]) -> Job:
        """Let a run wait for its turn; raises QueueFull or QueueClosed."""
        if self._closed:
            raise QueueClosed
        if len(self._waiting) >= self.most_waiting:
            raise QueueFull(len(self._waiting))
        job = Job(request)
        self._waiting.append(job)
        self._say_places()
        self._wake.set()
        return job

    def cancel(self, job_id: str, reason: str = "cancelled") -> bool:
        """End a job that waits or runs; False if there is none of that id."""
        if self.running is not None and self.running.id == job_id:
            if self.running.child is not None:
                self.running.child.kill(reason)
            return True
        for job in self._waiting:
            if job.id == job_id:
                self._waiting.remove(job)
                job.tell({"event": "ended", "reason": reason, "message": _why(reason)})
                self._say_places()
                return True
        return False

    def close(self) -> None:
        """Take no more runs and end all that there are."""
        self._closed = True
        for job in [*self._waiting, *([self.running] if self.running else [])]:
            self.cancel(job.id, "stopping")

    async def work(self) -> None:
        """Run jobs, one after the other, for ever."""
        while True:
            while not self._waiting:
                self._wake.clear()
                await self._wake.wait()
            job = self.running = self._waiting.popleft()
            self._say_places()
            try:
                await self._run(job)
            finally:
                self.running = None

    async def _run(self, job: Job) -> None:
        job.child = self.start(job)
        job.tell({"event": "started"})
        events = job.child.events()
        try:
            async for event in events:
                job.tell(event)
        except OSError as error:  # no process could be started
            job.tell({"event": "ended", "reason": "crashed", "message": f"The run could not be started: {error}"})
        except Exception as error:  # whatever it is: the next run has its turn
            job.tell({"event": "ended", "reason": "crashed", "message": f"The run broke off: {error}"})
        finally:
            job.child.kill("stopping")
            await events.aclose()  # type: ignore[attr-defined]
            job.tell({"event": "ended", "reason": "stopping", "message": _why("stopping")})

    def _say_places(self) -> None:
        for place, job in enumerate(self._waiting, start=1):
            job.tell({"event": "queued", "place": place, "of": len(self._waiting)})


def _why(reason: str) -> str:
    return "The server is stopping." if reason == "stopping" else "The run was cancelled before it began."
