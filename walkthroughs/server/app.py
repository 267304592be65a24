"""The routes: the site, what can be run, a run as a stream of events, and its end.

A run is asked for by POST with the step's id and, perhaps, parameters; the answer is a stream of JSON objects, one a
line. When the reader goes away, the run ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Mount, Route
from starlette.types import Receive, Scope, Send

from walkthroughs.server.guards import Guard
from walkthroughs.server.offers import offer_of
from walkthroughs.server.pages import HEADERS, Pages
from walkthroughs.server.parameters import Refused
from walkthroughs.server.process import COMMAND, Child, Limits
from walkthroughs.server.queue import MOST_WAITING, Job, QueueClosed, QueueFull, RunQueue

MOST_BODY = 4096


@dataclass(frozen=True)
class Registry:
    """What may be run: the port of each step by its id, and the program that runs one of them.

    Ids come from here and nowhere else; `command` is fixed when the server starts. Tests bring their own.
    """

    ports: Mapping[str, str]
    command: tuple[str, ...] = COMMAND

    @staticmethod
    def of_catalog() -> Registry:
        """Every step of the catalog."""
        from walkthroughs.step import steps

        return Registry({step.id: step.port for step in steps().values()})


@dataclass(frozen=True)
class Settings:
    """Where the server stands. `hosts`: the Host headers that mean it; `device`: what the page calls the backend."""

    site: Path
    token: str
    hosts: tuple[str, ...]
    backend: str
    device: str
    registry: Registry
    limits: Limits = field(default_factory=Limits)
    most_waiting: int = MOST_WAITING
    rebuilds: bool = False


class Live(Starlette):
    """The app, with its pages and its queue at hand for the server that runs it."""

    pages: Pages
    runs: RunQueue


def create_app(settings: Settings) -> Live:
    """Put the app together."""

    def start(job: Job) -> Child:
        return Child(settings.registry.command, {**job.request, "backend": settings.backend}, settings.limits)

    runs = RunQueue(start, settings.most_waiting)
    pages = Pages(settings.site, settings.token, rebuilds=settings.rebuilds)
    handlers = _Handlers(settings, runs, pages)

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        worker = asyncio.create_task(runs.work())
        yield
        runs.close()
        worker.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await worker

    app = Live(
        routes=[
            Route("/-/live/steps", handlers.steps, methods=["GET"]),
            Route("/-/live/build", handlers.build, methods=["GET"]),
            Route("/-/live/runs", handlers.run, methods=["POST"]),
            Route("/-/live/runs/{run}", handlers.cancel, methods=["DELETE"]),
            Mount("/", pages),
        ],
        middleware=[Middleware(Guard, hosts=settings.hosts, token=settings.token)],
        lifespan=lifespan,
    )
    app.pages, app.runs = pages, runs
    return app


def answer(body: Mapping[str, Any], status: int = 200, **headers: str) -> JSONResponse:
    """A JSON answer that no cache keeps."""
    more = {name.replace("_", "-"): value for name, value in headers.items()}
    return JSONResponse(body, status, {**HEADERS, "Cache-Control": "no-store", **more})


class _Handlers:
    def __init__(self, settings: Settings, runs: RunQueue, pages: Pages) -> None:
        self.settings = settings
        self.runs = runs
        self.pages = pages

    async def steps(self, request: Request) -> Response:
        """What can be run here, and what can be changed about it."""
        ports = self.settings.registry.ports
        offers = {port: offer for port in dict.fromkeys(ports.values()) if (offer := offer_of(port))}
        return answer(
            {
                "backend": self.settings.backend,
                "device": self.settings.device,
                "steps": {name: port if port in offers else None for name, port in ports.items()},
                "offers": {port: offer.to_json() for port, offer in offers.items()},
            }
        )

    async def build(self, request: Request) -> Response:
        """The number of the present build: it grows when pages were built again."""
        return answer({"build": self.pages.build})

    async def run(self, request: Request) -> Any:
        """Check what was asked for, and let it wait for its turn; the answer streams everything that happens."""
        try:
            asked = self._asked(await _body(request))
            job = self.runs.submit(asked)
        except _Malformed as problem:
            return answer({"error": str(problem)}, problem.status)
        except _UnknownStep as problem:
            return answer({"error": str(problem)}, 404)
        except Refused as problem:
            return answer({"error": str(problem), "field": problem.field}, 422)
        except QueueFull as problem:
            return answer({"error": str(problem)}, 429, Retry_After="5")
        except QueueClosed as problem:
            return answer({"error": str(problem)}, 503)
        return EventStream(job, self.runs)

    async def cancel(self, request: Request) -> Response:
        """End a run that waits or runs."""
        if self.runs.cancel(request.path_params["run"]):
            return answer({"cancelled": True})
        return answer({"error": "no run of that id waits or runs: it has ended"}, 404)

    def _asked(self, body: object) -> dict[str, Any]:
        """The request for the child, out of what was sent."""
        if not isinstance(body, dict) or not {"step"} <= set(body) <= {"step", "parameters"}:
            raise _Malformed("the body must be an object with step and, perhaps, parameters")
        step, given = body["step"], body.get("parameters")
        port = self.settings.registry.ports.get(step) if isinstance(step, str) else None
        if port is None:
            raise _UnknownStep(f"{str(step)[:60]!r}: there is no such step")
        if given is None:
            return {"step": step, "values": None}
        offer = offer_of(port)
        if offer is None:
            raise Refused("this step has no parameters: it can only be run as it is")
        return {"step": step, "values": offer.read(given)}


class _Malformed(ValueError):
    def __init__(self, message: str, status: int = 400) -> None:
        self.status = status
        super().__init__(message)


class _UnknownStep(LookupError):
    pass


async def _body(request: Request) -> object:
    """The JSON of a small request; raises _Malformed."""
    if request.headers.get("content-type", "").split(";")[0].strip().lower() != "application/json":
        raise _Malformed("Content-Type must be application/json", 415)
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > MOST_BODY:
            raise _Malformed(f"the body is longer than {MOST_BODY} bytes", 413)
    try:
        return json.loads(body, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise _Malformed("the body is no JSON") from error


def _no_constant(name: str) -> object:
    raise ValueError(f"{name} is no number in JSON")


class EventStream:
    """The answer to a run: its events, one JSON object a line, until it ends or the reader goes away."""

    def __init__(self, job: Job, runs: RunQueue) -> None:
        self.job = job
        self.runs = runs

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send events while somebody listens; cancel the run when nobody does."""
        sending = asyncio.create_task(self._send(send))
        leaving = asyncio.create_task(_gone(receive))
        try:
            await asyncio.wait({sending, leaving}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (sending, leaving):
                task.cancel()
            self.runs.cancel(self.job.id)
        with contextlib.suppress(asyncio.CancelledError, OSError, ClientDisconnect):
            await sending

    async def _send(self, send: Send) -> None:
        kind = "application/x-ndjson; charset=utf-8"
        headers = {**HEADERS, "Content-Type": kind, "Cache-Control": "no-store"}
        lines = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
        await send({"type": "http.response.start", "status": 200, "headers": lines})
        async for event in self.job.events():
            line = json.dumps(event, ensure_ascii=False).encode() + b"\n"
            await send({"type": "http.response.body", "body": line, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
