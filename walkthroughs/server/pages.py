"""The built site, as files; into each HTML page the token is put, and a policy that names every script it may run.

The files themselves stay as they were built: a copy of the site on any other server has no token, and shows recorded
values only.
"""

from __future__ import annotations

import base64
import hashlib
import re
from functools import lru_cache
from html import escape
from pathlib import Path

from starlette.responses import FileResponse, HTMLResponse, Response
from starlette.staticfiles import StaticFiles
from starlette.types import Receive, Scope, Send

_INLINE = re.compile(r"<script\b(?P<attributes>[^>]*)>(?P<text>.*?)</script\s*>", re.DOTALL | re.IGNORECASE)
_HEAD = re.compile(r"<head\b[^>]*>", re.IGNORECASE)
# Every answer: no other site may frame, embed or read it, and no type is guessed.
HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}


def with_token(html: str, token: str, build: int | None = None) -> str:
    """The page with the token in its head, and, where pages are built again, the number of this build."""
    tags = f'<meta name="pagewalk-live" content="{escape(token)}">'
    if build is not None:
        tags += f'<meta name="pagewalk-build" content="{build}">'
    return _HEAD.sub(lambda match: match[0] + tags, html, count=1)


def policy(html: str) -> str:
    """The Content-Security-Policy of one page.

    Scripts: our own files, and the page's inline ones by their digest, never just any inline script. The theme writes
    four of them into each page, and they differ from folder to folder. Styles may be inline: the theme's and the
    drawings' are, and they can neither run nor fetch anything.
    """
    digests = sorted({_digest(match["text"]) for match in _INLINE.finditer(html) if _runs(match["attributes"])})
    return "; ".join(
        [
            "default-src 'none'",
            " ".join(["script-src 'self'", *digests]),
            "style-src 'self' 'unsafe-inline'",
            "img-src 'self' data:",
            "font-src 'self' data:",
            "media-src 'self'",
            "connect-src 'self'",
            "worker-src 'self'",
            "manifest-src 'self'",
            "base-uri 'self'",
            "form-action 'self'",
            "frame-ancestors 'none'",
        ]
    )


def _runs(attributes: str) -> bool:
    """Whether an inline script is run: it has no source, and its type is no data block's."""
    kind = re.search(r"\btype\s*=\s*[\"']?([^\"'\s>]+)", attributes)
    return not re.search(r"\bsrc\s*=", attributes) and (kind is None or "javascript" in kind[1] or kind[1] == "module")


def _digest(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


class Pages:
    """The site as an ASGI app. `replace` puts a newer build in its place while pages are being served."""

    def __init__(self, folder: Path, token: str, *, rebuilds: bool = False) -> None:
        self.token = token
        self.rebuilds = rebuilds
        self.build = 0
        self._files = _Files(folder, self)

    def replace(self, folder: Path) -> None:
        """Serve another folder from now on."""
        self._files, self.build = _Files(folder, self), self.build + 1

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer with a file of the present build."""
        await self._files(scope, receive, send)

    def page(self, path: Path, status: int) -> Response:
        """One HTML file as it is served."""
        text, rules = _read(path, path.stat().st_mtime_ns)
        html = with_token(text, self.token, self.build if self.rebuilds else None)
        headers = {**HEADERS, "Cache-Control": "no-store", "Content-Security-Policy": rules}
        return HTMLResponse(html, status, headers)


class _Files(StaticFiles):
    def __init__(self, folder: Path, pages: Pages) -> None:
        super().__init__(directory=folder, html=True)
        self.pages = pages

    async def get_response(self, path: str, scope: Scope) -> Response:
        response = await super().get_response(path, scope)
        if isinstance(response, FileResponse) and Path(response.path).suffix == ".html":
            return self.pages.page(Path(response.path), response.status_code)
        response.headers.update({**HEADERS, "Cache-Control": "no-cache"})
        return response


@lru_cache(maxsize=64)
def _read(path: Path, changed: int) -> tuple[str, str]:
    """A page's text and policy; `changed` is in the key, so that a file built again is read again."""
    text = path.read_text("utf-8")
    return text, policy(text)
