"""The server itself: one process, one port on 127.0.0.1, ended by Ctrl-C or SIGTERM together with what it started."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import NoReturn

import uvicorn

from walkthroughs.server.app import Live, Settings, create_app

HOST = "127.0.0.1"
MOST_CONNECTIONS = 64


def new_token() -> str:
    """A token for one server's life; nothing keeps it."""
    return secrets.token_urlsafe(32)


def bind(port: int) -> socket.socket:
    """A listening socket on 127.0.0.1: on `port` if it is free, else on one that the system picks; raises OSError.

    It listens at once: a browser that comes while the site is still being built waits, and is not turned away.
    """
    try:
        return _listen(port)
    except OSError:
        return _listen(0)


def _listen(port: int) -> socket.socket:
    made = socket.socket()
    try:
        # A port whose last connections are still closing counts as free.
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind((HOST, port))
        made.listen()
    except OSError:
        made.close()
        raise
    return made


class Server(uvicorn.Server):
    """uvicorn, with the runs ended first when it stops: their streams would keep it open otherwise."""

    def __init__(self, app: Live) -> None:
        config = uvicorn.Config(
            app,
            lifespan="on",
            ws="none",
            log_config=None,
            access_log=False,
            # Nobody stands between a reader's browser and this server.
            proxy_headers=False,
            server_header=False,
            limit_concurrency=MOST_CONNECTIONS,
            timeout_graceful_shutdown=3,
        )
        super().__init__(config)
        self.live = app

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End every run, then do what uvicorn does."""
        self.live.runs.close()
        await super().shutdown(sockets)


def serve(listening: socket.socket, settings: Settings, watch: Callable[[Live, threading.Event], None] | None) -> None:
    """Serve until a signal comes. `watch` is called in a thread of its own, and must return once the event is set."""
    app = create_app(settings)
    stop = threading.Event()
    watcher = threading.Thread(target=watch, args=(app, stop)) if watch else None
    if watcher:
        watcher.start()
    try:
        asyncio.run(Server(app).serve(sockets=[listening]))
    finally:
        stop.set()
        if watcher:
            watcher.join()


class Stopped(SystemExit):
    """A signal asked this process to end; its code is 0 once pages are served, else 128 and the signal's number."""


class Stop:
    """Whether the server is up: from then on, being told to stop is no failure."""

    serving = False


@contextlib.contextmanager
def stoppable() -> Iterator[Stop]:
    """Turn SIGINT and SIGTERM into `Stopped`, so that everything on the way is cleaned up."""
    state = Stop()

    def stop(number: int, frame: FrameType | None) -> NoReturn:
        raise Stopped(0 if state.serving else 128 + number)

    before = {kind: signal.signal(kind, stop) for kind in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield state
    finally:
        for kind, handler in before.items():
            signal.signal(kind, handler)
