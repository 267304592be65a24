"""A real server in a process of its own, and a client that talks to it as a page does."""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
PAGE = "<!doctype html><html><head><title>A page</title><script>var a = 1;</script></head><body>Hello</body></html>"
Event = dict[str, Any]


@dataclass
class Reader:
    """A page of the site, in a browser: it sends what a browser would."""

    url: str
    token: str
    process: subprocess.Popen[str] | None = None
    key: str = ""
    mark: bytes = b""

    def left(self) -> list[int]:
        """Processes that this server started, and that these started, wherever they are now."""
        return [pid for pid in _numbers() if pid != self.process.pid and self.mark in _variables(pid)]

    @property
    def headers(self) -> dict[str, str]:
        key = {"X-Pagewalk-Key": self.key} if self.key else {}
        return {"Origin": self.url.rstrip("/"), "X-Pagewalk-Token": self.token, **key}

    def client(self, **more: Any) -> httpx.Client:
        return httpx.Client(base_url=self.url, headers=self.headers, timeout=60, trust_env=False, **more)

    @contextmanager
    def open(self, step: str, parameters: Any = None) -> Iterator[tuple[httpx.Response, Iterator[Event]]]:
        """Ask for a run; the events come as they happen."""
        body = {"step": step, **({} if parameters is None else {"parameters": parameters})}
        with self._stream("-/live/runs", body) as found:
            yield found

    @contextmanager
    def open_code(self, text: str, drill: str = "fix/one") -> Iterator[tuple[httpx.Response, Iterator[Event]]]:
        """Send code; the events come as they happen."""
        with self._stream("-/live/code", {"drill": drill, "text": text}) as found:
            yield found

    @contextmanager
    def _stream(self, path: str, body: Any) -> Iterator[tuple[httpx.Response, Iterator[Event]]]:
        with self.client() as client, client.stream("POST", path, json=body) as response:
            if response.status_code != 200:
                response.read()
            yield response, (json.loads(line) for line in response.iter_lines())

    def code(self, text: str, drill: str = "fix/one") -> list[Event]:
        """Run code to the end."""
        with self.open_code(text, drill) as (response, events):
            assert response.status_code == 200, response.text
            return list(events)

    def run(self, step: str, parameters: Any = None) -> list[Event]:
        """Run to the end."""
        with self.open(step, parameters) as (response, events):
            assert response.status_code == 200, response.text
            return list(events)

    def cancel(self, run: str) -> httpx.Response:
        with self.client() as client:
            return client.delete(f"-/live/runs/{run}")


Start = Callable[..., Reader]


def kinds(events: list[Event]) -> list[str]:
    return [event["event"] for event in events]


def _numbers() -> list[int]:
    return [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()]


def _variables(pid: int) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return []


def alive(pid: int) -> bool:
    """Whether a process runs; one that has ended and was not yet waited for does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def children_of(pid: int) -> list[int]:
    found = subprocess.run(["ps", "-o", "pid=", "--ppid", str(pid)], capture_output=True, text=True, check=False)
    return [int(word) for word in found.stdout.split()]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    (folder / "index.html").write_text(PAGE, "utf-8")
    (folder / "deep").mkdir()
    (folder / "deep" / "index.html").write_text(PAGE, "utf-8")
    (folder / "404.html").write_text(PAGE.replace("Hello", "Not here"), "utf-8")
    (folder / "a.js").write_text("'use strict';\n", "utf-8")
    return folder


@contextmanager
def started(site: Path, *settings: str) -> Iterator[Reader]:
    mark = f"PAGEWALK_TEST_SERVER={secrets.token_hex(8)}"
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **dict([mark.split("=")])}
    process = subprocess.Popen(
        [sys.executable, str(HERE / "serving.py"), str(site), *settings],
        cwd=ROOT, stdout=subprocess.PIPE, text=True, env=environment,
    )  # fmt: skip
    assert process.stdout is not None
    try:
        said = json.loads(process.stdout.readline() or "null")
        assert said, "the server did not start"
        yield Reader(said["url"], said["token"], process, said["key"], mark.encode())
    finally:
        process.terminate()
        process.wait(timeout=30)
        process.stdout.close()


@pytest.fixture(scope="module")
def server(site: Path) -> Iterator[Reader]:
    """One server for a module's tests."""
    with started(site) as reader:
        yield reader


@pytest.fixture
def start(site: Path) -> Iterator[Start]:
    """Start servers with other settings."""
    from contextlib import ExitStack

    with ExitStack() as stack:
        yield lambda *settings: stack.enter_context(started(site, *settings))
