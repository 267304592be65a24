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
from walkthroughs.lab.errors import EngineDied, EngineFailed, LabError, PortInUse, TookTooLong, TookTooMuch
from walkthroughs.lab.phases import MAX_LEN, NOT_SENT, Phase, phases
from walkthroughs.lab.process import Limits
from walkthroughs.lab.scenarios import Ask
from walkthroughs.lab.server import Server, free_port, serving

STAND_IN = Path(__file__).with_name("stand_in.py")
WAIT = 20.0
Make = Callable[..., "contextlib.AbstractContextManager[Server]"]


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Make:
    def start(
        *more: str,
        port: int = 0,
        seconds: float = 30.0,
        meanwhile: Callable[[Server], None] = lambda starting: None,
        **variables: str,
    ) -> object:
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        wanted = port or free_port()
        line = [sys.executable, str(STAND_IN), str(wanted), *more]
        return serving(Lab(Path(sys.executable), tmp_path, tmp_path), wanted, Limits(seconds), line, meanwhile)

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
SEVERAL = Phase(
    "several", "", tuple(Ask(str(n), tuple(range(3 + 99 * n, 20 + 129 * n)), 40) for n in range(3)), apart=0.03
)


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


LONG = Phase("long", "", (Ask("a", tuple(range(3, 40)), 4000),))


@pytest.mark.parametrize(
    ("limits", "error", "said"),
    [(Limits(0.2), TookTooLong, "long ran"), (Limits(60.0, memory=1 << 20), TookTooMuch, "more than the 0.0 GiB")],
    ids=["time", "memory"],
)
def test_a_phase_that_takes_too_much_is_ended(make: Make, limits: Limits, error: type[LabError], said: str) -> None:
    with make() as running:
        pids = running.child.kin.processes()
        running.limits = limits
        with pytest.raises(error, match=said):
            running.run(LONG)
    assert len(pids) == 2
    assert gone(pids)


def test_whoever_watches_sees_each_reading_and_the_end(make: Make) -> None:
    seen: list[tuple[int, int]] = []
    with make() as running:
        outcome = running.run(SEVERAL, lambda now: seen.append((len(now.samples), now.left)))
    readings = len(outcome.samples)
    assert seen == [*((n, -1) for n in range(1, readings + 1)), (readings, 0)]
    for sample in outcome.samples:
        assert (sample.low, sample.high) == SEVERAL.expected(sample.generated, sample.received)
    last = outcome.samples[-1].received
    assert all(NOT_SENT < count <= ask.generate for count, ask in zip(last, SEVERAL.asks, strict=True))


def test_what_is_done_meanwhile_takes_no_time_of_the_servers(make: Make) -> None:
    """A reader thinks while it starts, for longer than it may take."""
    asked: list[Server] = []

    def think(starting: Server) -> None:
        asked.append(starting)
        time.sleep(1.2)

    with make(seconds=1.0, meanwhile=think) as running:
        assert asked == [running]


def test_a_server_that_dies_meanwhile_is_told_of_at_the_next_look(make: Make) -> None:
    def look(starting: Server) -> None:
        end = time.monotonic() + WAIT
        while time.monotonic() < end:
            starting.check()
            time.sleep(0.05)

    with pytest.raises(EngineDied, match="cannot start"), make("--refuse", meanwhile=look):
        pass


def test_the_engine_is_held_back_behind_the_part_that_answers(make: Make) -> None:
    with make("--engine") as running:
        guard = running.child.process.pid
        (parent,) = [pid for pid in running.child.kin.processes() if parent_of(pid) == guard]
        (engine,) = [pid for pid in running.child.kin.processes() if parent_of(pid) == parent]
        ours, theirs, engines = (os.getpriority(os.PRIO_PROCESS, pid) for pid in (0, parent, engine))
        assert theirs == min(ours + server.NICE, 19)
        assert engines == min(theirs + server.ENGINE_NICE, 19)
    assert gone([guard, parent, engine])


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


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

        def do_POST(self) -> None:
            pytest.fail("a request of the lab reached somebody else's server")

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


def test_a_server_that_was_quicker_to_the_port_is_not_taken_for_ours(
    make: Make, neighbour: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The port was free when we looked; it answers as healthy, and has not our model."""
    monkeypatch.setattr(server, "free_port", lambda wanted: neighbour)
    with pytest.raises(PortInUse, match=f"port {neighbour}"), make(port=neighbour):
        pass
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


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_when_we_are_ended_the_server_ends_as_well(tmp_path: Path, number: int) -> None:
    outer, port = tmp_path / "outer.py", free_port()
    outer.write_text(
        "import signal, sys, time\nfrom pathlib import Path\nfrom walkthroughs.lab.environment import Lab\n"
        "from walkthroughs.lab.server import serving\n"
        # Whoever runs the tests in the background has them ignored.
        "signal.signal(signal.SIGINT, signal.default_int_handler)\nsignal.signal(signal.SIGHUP, signal.SIG_DFL)\n"
        f"line = [sys.executable, {str(STAND_IN)!r}, '{port}']\n"
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


def test_the_command_keeps_to_loopback_and_to_the_pool(tmp_path: Path) -> None:
    lab = Lab(tmp_path / "python", tmp_path / "model", tmp_path)
    line = server.command(lab, 8123, "lab-1")
    assert line[line.index("--host") + 1] == "127.0.0.1"
    assert line[line.index("--port") + 1] == "8123"
    assert line[line.index("--served-model-name") + 1] == "lab-1"
    assert "--no-async-scheduling" in line
    for phase in phases():
        assert all(len(ask.prompt) + ask.generate <= MAX_LEN for ask in phase.asks)
