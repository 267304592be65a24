"""Processes found by their mark or their session, counted and ended: real ones, of this test."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from walkthroughs import kin
from walkthroughs.kin import MARK, Kin, resident

WAIT = 30.0
SLEEP = "import sys, time; print(flush=True); time.sleep(600)"
# As the first process of a run: it starts another, in some way, says its number, and stays.
PARENT = """
import subprocess, sys, time
other = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]{how})
print(other.pid, flush=True)
time.sleep(600)
"""


@pytest.fixture
def run() -> Iterator[Any]:
    """Start a program as the first of a run's processes: (kin, process, the line that it said)."""
    started: list[tuple[Kin, subprocess.Popen[str]]] = []

    def start(code: str) -> tuple[Kin, subprocess.Popen[str], str]:
        found = Kin()
        process = subprocess.Popen(
            [sys.executable, "-c", code],
            env={**os.environ, **found.variables},
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        found.leader = process.pid
        started.append((found, process))
        assert process.stdout is not None
        return found, process, process.stdout.readline().strip()

    yield start
    for found, process in started:
        found.end()
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def gone(pid: int) -> bool:
    for _ in range(200):
        with contextlib.suppress(OSError):
            if Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z":
                time.sleep(0.02)
                continue
        return True
    return False


def test_two_runs_have_two_marks() -> None:
    one, two = Kin(), Kin()
    assert one.variables.keys() == two.variables.keys() == {MARK}
    assert one.mark != two.mark


def test_a_run_that_was_not_started_has_no_processes() -> None:
    assert Kin().processes() == []
    assert Kin().held() == (0, 0)
    assert Kin().end()


@pytest.mark.parametrize(
    "how",
    ["", ", start_new_session=True", ", process_group=0", ", env={}", ", env={}, process_group=0"],
)
def test_what_it_started_is_found_and_ended(run: Any, how: str) -> None:
    found, process, said = run(PARENT.format(how=how))
    assert sorted(found.processes()) == sorted([process.pid, int(said)])
    assert found.end()
    assert gone(process.pid)
    assert gone(int(said))
    assert found.processes() == []


def test_another_run_is_left_alone(run: Any) -> None:
    one, first, _ = run(SLEEP)
    two, second, _ = run(SLEEP)
    assert one.processes() == [first.pid]
    assert one.end()
    assert gone(first.pid)
    assert second.poll() is None
    assert two.processes() == [second.pid]


def test_this_process_is_never_one_of_them(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    found, process, _ = run(SLEEP)
    # As if this process had the mark itself.
    monkeypatch.setattr(kin, "_read", lambda pid, name: f"{MARK}={found.mark}\0".encode())
    monkeypatch.setattr(kin, "_numbers", lambda: [os.getpid(), process.pid])
    assert found.processes() == [process.pid]


def test_a_part_of_the_mark_is_no_mark(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    found = Kin()
    for text in (f"{MARK}={found.mark}1", f"X{MARK}={found.mark}", f"A={MARK}={found.mark}", found.mark):
        monkeypatch.setattr(kin, "_read", lambda pid, name, text=text: f"PATH=/\0{text}\0".encode())
        assert found.processes() == [], text


def test_a_name_with_parentheses_and_spaces_is_no_session(monkeypatch: pytest.MonkeyPatch) -> None:
    found = Kin(leader=4242)
    monkeypatch.setattr(kin, "_numbers", lambda: [7])

    def stat(name: str, state: str, session: int) -> list[int]:
        line = f"7 ({name}) {state} 1 7 {session} 0 -1".encode()
        monkeypatch.setattr(kin, "_read", lambda pid, what: line if what == "stat" else b"")
        return found.processes()

    assert stat("python", "S", 4242) == [7]
    assert stat("a) S 1 7 1 (b", "S", 4242) == [7]
    assert stat("a) S 1 7 4242 (b", "S", 1) == []
    assert stat("python", "Z", 4242) == [], "it has ended, and only waits to be asked how"
    assert stat("python", "S", 0) == []


def test_memory_and_number_are_those_of_all(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    code = "import os, time; os.fork(); held = bytearray(b'x' * (64 << 20)); print(flush=True); time.sleep(600)"
    found, process, _ = run(code)
    process.stdout.readline()  # the other one is as far, too
    count, held = found.held()
    assert count == 2
    assert held > 128 << 20
    assert resident(process.pid) > 64 << 20
    # What a process holds moves between two readings: with fixed numbers each counts once, and exactly.
    fixed = {pid: 1 << place for place, pid in enumerate(found.processes())}
    monkeypatch.setattr(kin, "resident", fixed.__getitem__)
    assert found.held() == (2, 3)


def test_resident_is_read_of_a_live_process_only() -> None:
    assert resident(os.getpid()) > 1 << 20
    assert resident(2**22 + 1) == 0


def test_what_cannot_be_ended_is_said(run: Any) -> None:
    found, process, _ = run(SLEEP)
    asked: list[int] = []
    assert not found.end(kill=lambda pid, number: asked.append(pid), patience=0.0)
    assert set(asked) == {process.pid}
    assert len(asked) == kin.ROUNDS

    def gone_already(pid: int, number: int) -> None:
        raise ProcessLookupError

    assert not found.end(kill=gone_already, patience=0.0)
    assert process.poll() is None


def test_one_that_takes_its_time_to_go_is_waited_for(run: Any) -> None:
    found, process, _ = run(SLEEP)
    began = time.monotonic()

    def slowly(pid: int, number: int) -> None:
        if time.monotonic() - began > 2.0:
            os.kill(pid, number)

    assert found.end(kill=slowly, patience=WAIT)
    assert process.wait(WAIT) == -signal.SIGKILL


def test_without_proc_nothing_is_found(run: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    found, _, _ = run(SLEEP)
    with monkeypatch.context() as patched:
        patched.setattr(kin, "PROC", tmp_path / "no such folder")
        assert found.processes() == []
        assert found.held() == (0, 0)
        assert found.end()
    assert len(found.processes()) == 1
