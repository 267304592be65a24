"""`pagewalk site serve --allow-code`: off unless asked for, and what it says. The build is a page of the test's own."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

ROOT = Path(__file__).resolve().parents[3]
RunCli = Callable[..., "subprocess.CompletedProcess[str]"]
# The command itself, but for what takes minutes: fetching and building.
PROGRAM = """
import sys
from pathlib import Path
from walkthroughs.commands import site

folder = sys.argv.pop(1)
site.missing = list
site.Builds.build = lambda self, stop=None: {"path": folder, "backend": "sim", "device": "SIMT machine"}
site.serve_command()
"""
PAGE = "<!doctype html><html><head><title>A page</title></head><body>Hello</body></html>"
FIX = {"drill": "fix/kv-head", "text": "____"}


@dataclass
class Served:
    """A server, what it printed, and a page of it."""

    row: dict[str, Any]
    log: Path
    process: subprocess.Popen[str]

    @property
    def url(self) -> str:
        return str(self.row["url"])

    def client(self) -> httpx.Client:
        with httpx.Client(base_url=self.url, trust_env=False) as reader:
            found = re.search(r'name="pagewalk-live" content="([^"]+)"', reader.get("").text)
        assert found
        headers = {"Origin": self.url.rstrip("/"), "X-Pagewalk-Token": found[1]}
        return httpx.Client(base_url=self.url, headers=headers, trust_env=False, timeout=60)


@contextmanager
def served(tmp_path: Path, *options: str) -> Iterator[Served]:
    folder = tmp_path / "site"
    folder.mkdir()
    (folder / "index.html").write_text(PAGE, "utf-8")
    log = tmp_path / "log"
    with log.open("w") as stream:
        process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, str(folder), "--json", "--port", str(free()), *options],
            cwd=ROOT, stdout=subprocess.PIPE, stderr=stream, text=True,
        )  # fmt: skip
    assert process.stdout is not None
    try:
        answer = json.loads(process.stdout.readline() or "null")
        assert answer, log.read_text()
        yield Served(answer["sites"][0], log, process)
    finally:
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=60) == 0
        assert process.stdout.read() == ""
        process.stdout.close()


def free() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


def test_without_the_option_there_is_no_key_and_no_code(tmp_path: Path) -> None:
    with served(tmp_path) as server:
        assert set(server.row) == {"id", "status", "url"}
        with server.client() as client:
            assert client.get("-/live/code").json()["allowed"] is False
            assert client.post("-/live/code", json=FIX).status_code == 403
    assert "code" not in server.log.read_text().lower()


def test_with_it_the_terminal_is_told_what_that_means_and_where_to_go(tmp_path: Path) -> None:
    with served(tmp_path, "--allow-code") as server:
        address = server.row["code"]
        found = re.fullmatch(re.escape(server.url) + r"drills/fix/#code=([\w-]{40,})", address)
        assert found
        with server.client() as client:
            assert client.post("-/live/code", json=FIX).status_code == 403
            client.headers["X-Pagewalk-Key"] = found[1]
            about = client.get("-/live/code").json()
            assert (about["allowed"], about["key"]) == (True, True)
            # For real: the blank of a real drill is seen by the program that judges.
            with client.stream("POST", "-/live/code", json=FIX) as response:
                events = [json.loads(line) for line in response.iter_lines()]
    assert events[-1]["reason"] == "finished"
    verdict = next(event for event in events if event["event"] == "verdict")
    assert (verdict["status"], verdict["failure"]["what"]) == ("failed", "blank")
    said = " ".join(server.log.read_text().split())
    for words in ("with your rights", "read, change and delete whatever you can", "keep it to yourself", address):
        assert words in said


def test_the_help_says_it_plainly(run_cli: RunCli) -> None:
    text = " ".join(run_cli("site", "serve", "--help", env={"COLUMNS": "80"}).stdout.split())
    says = ("--allow-code", "runs on this machine with your rights", "whatever you can", "Off unless you ask for it")
    for words in says:
        assert words in text


@pytest.mark.parametrize("words", [["--allow-code=yes"], ["--code"], ["--allow-code", "fix/kv-head"]])
def test_it_takes_no_value(run_cli: RunCli, words: list[str]) -> None:
    done = run_cli("site", "serve", *words)
    assert done.returncode == 2


def test_make_serve_does_not_allow_code() -> None:
    assert "allow-code" not in (ROOT / "Makefile").read_text("utf-8")
