"""What a request must bring before anything is done with it: the right Host, no foreign Origin, and the page's token.

The server listens on 127.0.0.1 only, but a browser will carry any web site's requests there. Host: a foreign name that
was made to point at 127.0.0.1 would let a site read our pages, and with them the token. Origin: a site may not send us
anything. Token: what runs something must have read one of our pages.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

TOKEN_HEADER = "X-Pagewalk-Token"
PREFIX = "/-/"
SAFE = ("GET", "HEAD")


def hosts_of(port: int) -> tuple[str, ...]:
    """The Host headers that mean this server."""
    return tuple(f"{name}:{port}" for name in ("127.0.0.1", "localhost"))


class Guard:
    """ASGI middleware: answers 403 with words, or hands the request on. No other scope than http comes through."""

    def __init__(self, app: ASGIApp, *, hosts: Iterable[str], token: str) -> None:
        self.app = app
        self.hosts = frozenset(hosts)
        self.origins = frozenset(f"http://{host}" for host in self.hosts)
        self.token = token.encode("latin-1")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Check and pass on."""
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
        elif scope["type"] == "http":
            problem = self.problem(scope)
            if problem:
                await JSONResponse({"error": problem}, 403, {"Cache-Control": "no-store"})(scope, receive, send)
            else:
                await self.app(scope, receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})

    def problem(self, scope: Scope) -> str:
        """Why the request is refused, or the empty string."""
        sent: dict[str, list[bytes]] = {}
        for name, value in scope["headers"]:
            sent.setdefault(name.decode("latin-1").lower(), []).append(value)

        def only(name: str) -> str | None:
            values = sent.get(name, [])
            return values[0].decode("latin-1") if len(values) == 1 else None

        if only("host") not in self.hosts:
            return f"Host {_said(sent.get('host'))}: this server answers to {' and '.join(sorted(self.hosts))} only"
        if "origin" in sent and only("origin") not in self.origins:
            return f"Origin {_said(sent['origin'])}: pages of other sites may not use this server"
        if not scope["path"].startswith(PREFIX):
            return ""
        if scope["method"] not in SAFE and "origin" not in sent:
            return "no Origin: a page of this server sends one"
        if only("sec-fetch-site") not in (None, "same-origin") or len(sent.get("sec-fetch-site", [])) > 1:
            return "Sec-Fetch-Site: only pages of this server may ask for this"
        token = only(TOKEN_HEADER.lower())
        if token is None or not secrets.compare_digest(token.encode("latin-1"), self.token):
            return f"{TOKEN_HEADER}: missing, or not the one of this server; reload the page"
        return ""


def _said(values: list[bytes] | None) -> str:
    return ", ".join(value.decode("latin-1")[:80] for value in values or []) or "is missing"
