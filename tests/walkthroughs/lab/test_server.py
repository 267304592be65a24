"""A server as a child: ready, asked, read; and how it ends, with a stand-in that counts blocks as vLLM does."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from walkthroughs.lab import environment, server
from walkthroughs.lab.environment import Lab
from walkthroughs.lab.errors import EngineDied, EngineFailed, LabError, PortInUse, TookTooLong
from walkthroughs.lab.process import Limits
from walkthroughs.lab.scenarios import Ask
from walkthroughs.lab.server import Outcome, Phase, Sample, Server, free_port, phases, serving

# Counts tokens and blocks of 32 in a pool of 64, streams a token each few milliseconds, and finds no prefix.
SERVER = """
import json, math, os, signal, sys, threading, time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
lock, held, total = threading.Lock(), {}, 0
EXTRA, DIE_AFTER = int(os.environ.get("EXTRA", 0)), int(os.environ.get("DIE_AFTER", 0))
class Handler(BaseHTTPRequestHandler):
    def log_message(self, *args): pass
    def reply(self, text, status=200):
        self.send_response(status); self.end_headers(); self.wfile.write(text.encode())
    def do_GET(self):
        if self.path == "/health": return self.reply("")
        with lock:
            used = sum(held.values()) + (EXTRA if held else 0)
            text = f"vllm:kv_cache_usage_perc {used / 64}\\nvllm:generation_tokens_total {total}\\n"
        names = ("num_requests_running", "num_requests_waiting", "prefix_cache_hits_total", "num_preemptions_total")
        self.reply(text + "".join(f"vllm:{name} 0\\n" for name in names))
    def do_POST(self):
        global total
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if len(asked["prompt"]) > 400: return self.reply("too long", 400)
        self.send_response(200); self.end_headers()
        for n in range(1, asked["max_tokens"] + 1):
            with lock:
                total += 1
                held[id(self)] = math.ceil((len(asked["prompt"]) + n - 1) / 32)
                if n == asked["max_tokens"]: del held[id(self)]
                if DIE_AFTER and total >= DIE_AFTER: os.kill(os.getpid(), signal.SIGKILL)
            self.wfile.write(b"data: " + json.dumps({"choices": [{"token_ids": [7]}]}).encode() + b"\\n\\n")
            self.wfile.flush()
            time.sleep(0.003)
        self.wfile.write(b"data: [DONE]\\n\\n")
if "--refuse" in sys.argv: sys.exit("cannot start: no such model")
if "--hang" in sys.argv: time.sleep(600)
ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""
WAIT = 20.0
Make = Callable[..., "contextlib.AbstractContextManager[Server]"]


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Make:
    script = tmp_path / "stand_in.py"
    script.write_text(SERVER)

    def start(*more: str, port: int = 0, seconds: float = 30.0, **variables: str) -> object:
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        wanted = port or free_port()
        line = [sys.executable, str(script), str(wanted), *more]
        return serving(Lab(Path(sys.executable), tmp_path, tmp_path), wanted, Limits(seconds), line)

    return start  # type: ignore[return-value]


def runs(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def gone(pids: list[int]) -> bool:
    end = time.monotonic() + WAIT
    while any(map(runs, pids)):
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True


SINGLE = Phase("single", "", (Ask("a", tuple(range(3, 40)), 60),))
SEVERAL = Phase("several", "", tuple(Ask(str(n), tuple(range(3, 20 + 30 * n)), 40) for n in range(3)), apart=0.03)


@pytest.mark.parametrize("phase", [SINGLE, SEVERAL], ids=lambda phase: phase.id)
def test_every_reading_fits_a_server_that_counts_as_vllm_does(make: Make, phase: Phase) -> None:
    with make() as running:
        pids = running.child.kin.processes()
        outcome = running.run(phase)
    assert outcome.problems == []
    assert outcome.status == "passed"
    assert max(sample.used for sample in outcome.samples) >= 2
    if phase is SINGLE:
        assert all(sample.low == sample.high for sample in outcome.samples)
    assert len(pids) == 2
    assert gone(pids)


def test_a_server_that_counts_otherwise_is_found_out(make: Make) -> None:
    with make(EXTRA="1") as running:
        outcome = running.run(SINGLE)
    assert outcome.status == "failed"
    assert "blocks, expected" in outcome.problems[0]


def test_a_server_that_cannot_start_says_why(make: Make) -> None:
    with (
        pytest.raises(EngineDied, match=r"exit code 1 before it was done\. It last said: cannot start: no such"),
        make("--refuse"),
    ):
        pass


def test_a_server_that_never_answers_is_ended(make: Make) -> None:
    with pytest.raises(TookTooLong, match="while the server was starting"), make("--hang", seconds=1.0):
        pass


def test_a_server_that_is_killed_in_the_middle(make: Make) -> None:
    with make(DIE_AFTER="20") as running:
        pids = running.child.kin.processes()
        with pytest.raises(EngineDied, match="SIGKILL"):
            running.run(SINGLE)
    assert gone(pids)


def test_a_request_that_is_refused_is_an_error_and_not_a_result(make: Make) -> None:
    with make() as running, pytest.raises(EngineFailed, match="request x: HTTP 400: too long"):
        running.run(Phase("long", "", (Ask("x", tuple(range(3, 500)), 5),)))


@pytest.fixture
def neighbour() -> Iterator[int]:
    """A server of the reader's own."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"mine")

        def log_message(self, *args: object) -> None:
            """Say nothing."""

    mine = HTTPServer((server.HOST, 0), Handler)
    threading.Thread(target=mine.serve_forever, daemon=True).start()
    yield mine.server_address[1]
    mine.shutdown()
    mine.server_close()


def test_a_port_in_use_is_an_error_and_its_server_is_left_alone(make: Make, neighbour: int) -> None:
    with pytest.raises(PortInUse, match=f"port {neighbour} of 127.0.0.1 is in use") as caught, make(port=neighbour):
        pass
    assert caught.value.port == neighbour
    with make() as running:
        assert running.port != neighbour
        assert server.get(neighbour, "/") == (200, "mine")
    assert server.get(neighbour, "/") == (200, "mine")


def test_a_free_port_is_free_and_a_low_one_is_refused() -> None:
    port = free_port()
    with socket.socket() as own:
        own.bind((server.HOST, port))
        own.listen()
        with pytest.raises(PortInUse):
            free_port(port)
    assert free_port(port) == port
    if os.geteuid():
        with pytest.raises(LabError, match="above 1023"):
            free_port(80)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_when_we_are_ended_the_server_ends_as_well(tmp_path: Path, number: int) -> None:
    script, outer, port = tmp_path / "stand_in.py", tmp_path / "outer.py", free_port()
    script.write_text(SERVER)
    outer.write_text(
        "import sys, time\nfrom pathlib import Path\nfrom walkthroughs.lab.environment import Lab\n"
        "from walkthroughs.lab.server import serving\n"
        f"line = [sys.executable, {str(script)!r}, '{port}']\n"
        f"with serving(Lab(Path(), Path(), Path()), {port}, line=line) as server:\n"
        "    print(*server.child.kin.processes(), flush=True)\n    time.sleep(600)\n"
    )
    variables = {**os.environ, "PYTHONPATH": str(environment.ROOT)}
    process = subprocess.Popen(
        [sys.executable, str(outer)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=variables
    )
    assert process.stdout is not None
    pids = [int(word) for word in process.stdout.readline().split()]
    process.send_signal(number)
    process.wait(timeout=WAIT)
    process.stdout.close()
    assert len(pids) == 2
    assert gone(pids)
    assert free_port(port) == port


def test_problems_are_told_in_words() -> None:
    phase = Phase("p", "", SINGLE.asks, hits=96)
    outcome = Outcome(phase, [Sample(1.0, 5, 3, 2, 2), Sample(1.0, 5, 3, 1, 2), Sample(1.0, 5, 3, 3, 3)], 64, 1)
    assert outcome.problems == [
        "after 1.00 s and 5 tokens: 3 blocks, expected 2",
        "after 1.00 s and 5 tokens: 3 blocks, expected 1 to 2",
        "64 tokens found in the prefix cache, expected 96",
        "1 blocks in use after the end, expected 0",
    ]
    assert "not read while a request ran" in Outcome(phase, [], 96, 0).problems[0]


def test_the_command_keeps_to_loopback_and_to_the_pool(tmp_path: Path) -> None:
    lab = Lab(tmp_path / "python", tmp_path / "model", tmp_path)
    line = server.command(lab, 8123)
    assert line[line.index("--host") + 1] == "127.0.0.1"
    assert line[line.index("--port") + 1] == "8123"
    assert "--no-async-scheduling" in line
    for phase in phases():
        assert all(len(ask.prompt) + ask.generate <= server.MAX_LEN for ask in phase.asks)
