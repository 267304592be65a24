"""The server's frame: its socket, its signals, and what --watch does when something changes."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from walkthroughs.server.guards import hosts_of
from walkthroughs.server.serve import HOST, Stopped, bind, new_token, stoppable
from walkthroughs.server.watch import snapshot, watch

ROOT = Path(__file__).resolve().parents[3]


def test_a_taken_port_is_left_alone() -> None:
    with socket.socket() as taken:
        taken.bind((HOST, 0))
        taken.listen()
        port = taken.getsockname()[1]
        with bind(port) as other:
            assert other.getsockname() == (HOST, other.getsockname()[1])
            assert other.getsockname()[1] != port
    with bind(port) as same:
        assert same.getsockname() == (HOST, port)


def test_a_bound_port_answers_at_once() -> None:
    """A browser that comes while the site is built waits in line."""
    with bind(0) as listening, socket.create_connection(listening.getsockname(), timeout=5) as early:
        early.sendall(b"GET / HTTP/1.1\r\n")
        accepted, _ = listening.accept()
        with accepted:
            assert accepted.recv(100).startswith(b"GET /")


def test_tokens_are_long_and_never_the_same() -> None:
    tokens = {new_token() for _ in range(100)}
    assert len(tokens) == 100
    assert min(map(len, tokens)) >= 40
    assert all(token.isascii() and not set(token) & set("\"'<>& ") for token in tokens)


def test_hosts_are_loopback_names_with_the_port() -> None:
    assert hosts_of(8001) == ("127.0.0.1:8001", "localhost:8001")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("serving", [False, True])
def test_a_signal_unwinds_the_stack(number: signal.Signals, serving: bool) -> None:
    before = signal.getsignal(number)
    cleaned = []

    def serve() -> None:
        with stoppable() as stop:
            stop.serving = serving
            try:
                os.kill(os.getpid(), number)
                signal.sigtimedwait([], 5)  # it comes before this is over
            finally:
                cleaned.append(number)

    with pytest.raises(Stopped) as caught:
        serve()
    assert cleaned == [number]
    assert caught.value.code == (0 if serving else 128 + number)
    assert signal.getsignal(number) is before


# -- watching


def test_a_snapshot_sees_what_pages_are_made_of(tmp_path: Path) -> None:
    (tmp_path / "docs" / "deep").mkdir(parents=True)
    page, picture = tmp_path / "docs" / "deep" / "page.md", tmp_path / "docs" / "picture.png"
    single = tmp_path / "mkdocs.yml"
    for path in (page, picture, single):
        path.write_text("one", "utf-8")
    places = [tmp_path / "docs", single, tmp_path / "not-there"]
    first = snapshot(places)
    assert set(first) == {page, single}
    page.write_text("three", "utf-8")
    assert snapshot(places) != first
    page.unlink()
    assert set(snapshot(places)) == {single}


def test_each_change_is_built_once(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("0", "utf-8")
    stop, built = threading.Event(), threading.Semaphore(0)
    counts: list[str] = []

    def rebuild() -> None:
        counts.append(page.read_text("utf-8"))
        built.release()

    thread = threading.Thread(
        target=watch, args=([tmp_path], snapshot([tmp_path]), rebuild, stop), kwargs={"pause": 0.05}
    )
    thread.start()
    try:
        for text in ("first change", "second, longer change"):
            page.write_text(text, "utf-8")
            assert built.acquire(timeout=20)
        assert not built.acquire(timeout=0.5)
    finally:
        stop.set()
        thread.join(10)
    assert counts == ["first change", "second, longer change"]


def test_a_change_during_a_build_is_built_after_it(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("0", "utf-8")
    stop, built = threading.Event(), threading.Semaphore(0)

    def rebuild() -> None:
        if page.read_text("utf-8") == "first":
            page.write_text("second, in the middle", "utf-8")
        built.release()

    thread = threading.Thread(
        target=watch, args=([tmp_path], snapshot([tmp_path]), rebuild, stop), kwargs={"pause": 0.05}
    )
    thread.start()
    try:
        page.write_text("first", "utf-8")
        assert built.acquire(timeout=20)
        assert built.acquire(timeout=20)
    finally:
        stop.set()
        thread.join(10)
    assert not thread.is_alive()


def test_importing_the_command_does_not_import_the_server() -> None:
    """`pagewalk --help` and `site build` need no server."""
    code = "import sys, walkthroughs.commands.site; print([m for m in ('starlette', 'uvicorn') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
