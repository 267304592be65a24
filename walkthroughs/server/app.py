"""The routes: the site, what can be run, a run as a stream of events, and its end.

A run is asked for by POST with the step's id and, perhaps, parameters; the answer is a stream of JSON objects, one a
line. When the reader goes away, the run ends.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount, Route

from walkthroughs.server import code
from walkthroughs.server.code import Code
from walkthroughs.server.exchange import MOST_BODY, EventStream, Malformed, answer, body_of
from walkthroughs.server.guards import Guard
from walkthroughs.server.offers import offer_of
from walkthroughs.server.pages import Pages
from walkthroughs.server.parameters import Refused
from walkthroughs.server.process import COMMAND, Child, Limits
from walkthroughs.server.queue import MOST_WAITING, Job, QueueClosed, QueueFull, RunQueue


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
    """Where the server stands. `hosts`: the Host headers that mean it; `device`: what the page calls the backend.

    `code`: None unless the reader allowed that code typed into a page is run.
    """

    site: Path
    token: str
    hosts: tuple[str, ...]
    backend: str
    device: str
    registry: Registry
    limits: Limits = field(default_factory=Limits)
    most_waiting: int = MOST_WAITING
    rebuilds: bool = False
    code: Code | None = None


class Live(Starlette):
    """The app, with its pages and its queue at hand for the server that runs it."""

    pages: Pages
    runs: RunQueue


def create_app(settings: Settings) -> Live:
    """Put the app together."""

    def start(job: Job) -> Child:
        request = {**job.request, "backend": settings.backend}
        if settings.code is not None and "drill" in request:
            return Child(settings.code.command, request, settings.limits, apart=True)
        return Child(settings.registry.command, request, settings.limits)

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
            Route("/-/live/code", handlers.code, methods=["GET"]),
            Route("/-/live/code", handlers.run_code, methods=["POST"]),
            Route("/-/live/runs/{run}", handlers.cancel, methods=["DELETE"]),
            Mount("/", pages),
        ],
        middleware=[Middleware(Guard, hosts=settings.hosts, token=settings.token)],
        lifespan=lifespan,
    )
    app.pages, app.runs = pages, runs
    return app


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
        body = await _read(request)
        return body if isinstance(body, Response) else self._submit(lambda: self._asked(body))

    async def code(self, request: Request) -> Response:
        """Whether this page may send code, and why not; it asks before it shows an editor."""
        try:
            code.check(self.settings.code, request.headers.getlist(code.KEY_HEADER))
            why = ""
        except code.Forbidden as problem:
            why = str(problem)
        about = {"backend": self.settings.backend, "device": self.settings.device, "most": code.MOST_TEXT}
        return answer({"allowed": self.settings.code is not None, "key": not why, "why": why, **about})

    async def run_code(self, request: Request) -> Any:
        """As `run`, of a kernel's text; nothing of the request is looked at before it is known who sends it."""
        try:
            allowed = code.check(self.settings.code, request.headers.getlist(code.KEY_HEADER))
        except code.Forbidden as problem:
            return answer({"error": str(problem)}, 403)
        body = await _read(request, code.MOST_BODY)
        return body if isinstance(body, Response) else self._submit(lambda: code.read(allowed, body))

    async def cancel(self, request: Request) -> Response:
        """End a run that waits or runs."""
        if self.runs.cancel(request.path_params["run"]):
            return answer({"cancelled": True})
        return answer({"error": "no run of that id waits or runs: it has ended"}, 404)

    def _submit(self, asked: Callable[[], dict[str, Any]]) -> Any:
        """Queue a run, if what was asked for can be met; its events, or why not."""
        try:
            return EventStream(self.runs.submit(asked()), self.runs)
        except Malformed as problem:
            return answer({"error": str(problem)}, problem.status)
        except (_UnknownStep, code.UnknownDrill) as problem:
            return answer({"error": str(problem)}, 404)
        except Refused as problem:
            return answer({"error": str(problem), "field": problem.field}, 422)
        except QueueFull as problem:
            return answer({"error": str(problem)}, 429, Retry_After="5")
        except QueueClosed as problem:
            return answer({"error": str(problem)}, 503)

    def _asked(self, body: object) -> dict[str, Any]:
        """The request for the child, out of what was sent."""
        if not isinstance(body, dict) or not {"step"} <= set(body) <= {"step", "parameters"}:
            raise Malformed("the body must be an object with step and, perhaps, parameters")
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


class _UnknownStep(LookupError):
    pass


async def _read(request: Request, most: int = MOST_BODY) -> object:
    """The body of a request, or the answer that says what is wrong with it."""
    try:
        return await body_of(request, most)
    except Malformed as problem:
        return answer({"error": str(problem)}, problem.status)
