"""What the tests of `annotate` share: trees from text, archives as hostile as wanted, a server that misbehaves."""

from __future__ import annotations

import contextlib
import hashlib
import io
import tarfile
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest


@dataclass
class TextFiles:
    """A source tree made of strings; counts how often each file is read."""

    texts: dict[str, str | bytes]
    reads: list[str] = field(default_factory=list)

    def paths(self) -> Sequence[str]:
        return sorted(self.texts)

    def read(self, path: str) -> bytes:
        self.reads.append(path)
        text = self.texts[path]
        return text.encode() if isinstance(text, str) else text


@pytest.fixture
def files() -> Callable[..., TextFiles]:
    """Make a source tree of keyword arguments or a dict: path -> text."""

    def make(texts: dict[str, str | bytes]) -> TextFiles:
        return TextFiles(texts)

    return make


Member = tuple[str, bytes] | tarfile.TarInfo


@pytest.fixture
def pack() -> Callable[..., bytes]:
    """Make a gzipped tar of (name, bytes) pairs and bare headers."""

    def make(*members: Member) -> bytes:
        out = io.BytesIO()
        with tarfile.open(fileobj=out, mode="w:gz") as tar:
            for entry in members:
                if isinstance(entry, tarfile.TarInfo):
                    tar.addfile(entry)
                else:
                    info = tarfile.TarInfo(entry[0])
                    info.size = len(entry[1])
                    tar.addfile(info, io.BytesIO(entry[1]))
        return out.getvalue()

    return make


@dataclass
class Server:
    """A web server on this machine. `files` is what it serves; the other fields are how it misbehaves."""

    url: str = ""
    files: dict[str, bytes] = field(default_factory=dict)
    cut_after: list[int] = field(default_factory=list)  # the next responses end after so many bytes
    ignore_range: bool = False
    wrong_range: bool = False
    status: int = 0
    requests: list[tuple[str, str | None]] = field(default_factory=list)  # path, Range

    def index_of(self, project: str, filename: str, data: bytes, sha256: str | None = None) -> str:
        """Serve a package index with one file, as the simple repository API has it; return the index's address."""
        digest = sha256 or hashlib.sha256(data).hexdigest()
        link = f'<a href="/files/{filename}#sha256={digest}">{filename}</a>'
        self.files[f"/simple/{project}/"] = f"<!DOCTYPE html><html><body>{link}</body></html>".encode()
        self.files[f"/files/{filename}"] = data
        return f"{self.url}/simple/"


@pytest.fixture
def server() -> Iterator[Server]:
    state = Server()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.0"

        def log_message(self, *args: object) -> None:
            """Say nothing."""

        def do_GET(self) -> None:
            asked = self.headers.get("Range")
            state.requests.append((self.path, asked))
            if state.status or self.path not in state.files:
                self.send_error(state.status or 404)
                return
            data = state.files[self.path]
            start = 0
            if asked and not state.ignore_range:
                start = int(asked.removeprefix("bytes=").split("-")[0])
                if start >= len(data):
                    self.send_error(416)
                    return
                self.send_response(206)
                shown = start + 1 if state.wrong_range else start
                self.send_header("Content-Range", f"bytes {shown}-{len(data) - 1}/{len(data)}")
            else:
                self.send_response(200)
            body = data[start:]
            kind = "text/html" if self.path.startswith("/simple/") else "application/octet-stream"
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if state.cut_after and kind != "text/html":
                body = body[: state.cut_after.pop(0)]
            # A client that had enough hangs up; that is its right.
            with contextlib.suppress(ConnectionError):
                self.wfile.write(body)

    httpd = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    state.url = f"http://127.0.0.1:{httpd.server_address[1]}"
    thread = threading.Thread(target=httpd.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    yield state
    httpd.shutdown()
    thread.join()
    httpd.server_close()


@pytest.fixture
def tree_of(tmp_path: Path) -> Callable[[], dict[str, bytes]]:
    """Everything below the test's folder, path -> bytes, to prove that nothing changed."""

    def snapshot() -> dict[str, bytes]:
        return {str(path.relative_to(tmp_path)): path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}

    return snapshot
