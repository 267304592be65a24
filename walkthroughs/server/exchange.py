"""What every route has in common: a small JSON body read with care, a JSON answer, and a run's events as a stream."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Mapping
from typing import Any

from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse
from starlette.types import Receive, Scope, Send

from walkthroughs.server.pages import HEADERS
from walkthroughs.server.queue import Job, RunQueue

MOST_BODY = 4096


class Malformed(ValueError):
    """A request that is none; `status` is what it is answered with."""

    def __init__(self, message: str, status: int = 400) -> None:
        self.status = status
        super().__init__(message)


def answer(body: Mapping[str, Any], status: int = 200, **headers: str) -> JSONResponse:
    """A JSON answer that no cache keeps."""
    more = {name.replace("_", "-"): value for name, value in headers.items()}
    return JSONResponse(body, status, {**HEADERS, "Cache-Control": "no-store", **more})


async def body_of(request: Request, most: int = MOST_BODY) -> object:
    """The JSON of a request of at most so many bytes; raises Malformed."""
    if request.headers.get("content-type", "").split(";")[0].strip().lower() != "application/json":
        raise Malformed("Content-Type must be application/json", 415)
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > most:
            raise Malformed(f"the body is longer than {most} bytes", 413)
    try:
        return json.loads(body.decode("utf-8"), parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise Malformed("the body is no JSON in UTF-8") from error


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
            # Half of a surrogate pair is text in JSON, and none in UTF-8.
            line = json.dumps(event, ensure_ascii=False).encode(errors="replace") + b"\n"
            await send({"type": "http.response.body", "body": line, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
