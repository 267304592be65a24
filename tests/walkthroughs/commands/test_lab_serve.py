"""`pagewalk lab serve`: questions, chart, verdict and record, with a stand-in server; and that nothing outlives it."""

from __future__ import annotations

import contextlib
import io
import json
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pexpect
import pytest
from click.testing import CliRunner, Result
from rich.console import Console

from walkthroughs.commands.lab import lab_command
from walkthroughs.commands.lab_serve_sitting import ServeSitting
from walkthroughs.lab import environment, serve_record, server
from walkthroughs.lab.environment import Lab
from walkthroughs.lab.phases import Outcome, Phase, Sample, phases
from walkthroughs.lab.questions import questions

STAND_IN = Path(__file__).parents[1] / "lab" / "stand_in.py"
WAIT = 30
# As in the foreground, also where the tests run behind `nohup` or in the background.
PROGRAM = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)
from pathlib import Path
from walkthroughs.lab import environment, server
environment.find = lambda **own: environment.Lab(Path(sys.executable), Path(), Path())
server.command = lambda lab, port, name: [sys.executable, {stand_in!r}, str(port), *{more!r}]
from walkthroughs.commands.lab import lab_command
lab_command(['serve'])
"""


@pytest.fixture
def say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """Run the command with the stand-in in the server's place, quickly."""
    monkeypatch.setattr(environment, "find", lambda **own: Lab(Path(sys.executable), tmp_path, tmp_path))
    monkeypatch.setattr(server, "command", lambda lab, port, name: [sys.executable, str(STAND_IN), str(port)])
    monkeypatch.setenv("PACE", "0.0005")
    return lambda *args: CliRunner().invoke(lab_command, ["serve", *args])


@pytest.fixture
def terminal(tmp_path: Path) -> Callable[..., Any]:
    """The command in a terminal of its own; the stand-in leaves its processes' numbers in `pids`."""

    def start(*more: str, width: int = 80, **variables: str) -> Any:
        program = tmp_path / "program.py"
        program.write_text(PROGRAM.format(stand_in=str(STAND_IN), more=list(more)))
        given = {"PYTHONPATH": str(environment.ROOT), "TERM": "xterm", "NO_COLOR": "1", "PIDS": str(tmp_path / "pids")}
        return pexpect.spawn(
            sys.executable, [str(program)], env={**os.environ, **given, **variables}, encoding="utf-8", timeout=WAIT,
            dimensions=(40, width),
        )  # fmt: skip

    return start


def gone(path: Path) -> bool:
    """True once none of the processes that the file names runs; waits for it."""
    pids = [int(word) for word in path.read_text().split()]
    assert len(pids) == 3
    end = time.monotonic() + WAIT
    while any(map(runs, pids)):
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True


def runs(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def test_without_a_terminal_nothing_is_asked_and_each_phase_has_its_chart(say: Any) -> None:
    done = say()
    assert done.exit_code == 0, done.output
    for phase in phases():
        part = done.stdout.partition(phase.title)[2]
        for question in questions(phase):
            assert f"{question.text} {question.answer}\n    {question.why}; " in part
    assert done.stdout.count("●, ") == 0
    assert done.stdout.count("tokens generated") == done.stdout.count("prefix hit") == len(phases())
    assert "\x1b" not in done.stdout
    assert "problems: 0" in done.stderr
    assert "You predicted" not in done.stderr


def test_json_is_one_object_with_every_reading(say: Any) -> None:
    done = say("--json")
    assert done.exit_code == 0, done.output
    rows = json.loads(done.stdout)["phases"]
    assert [(row["id"], row["status"]) for row in rows] == [(phase.id, "passed") for phase in phases()]
    assert all(row["samples"] and row["left"] == 0 for row in rows)
    assert [row["hits"] for row in rows] == [phase.hits for phase in phases()]


def test_a_server_that_counts_otherwise_exits_1_and_is_shown(say: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EXTRA", "7")
    done = say("--no-ask")
    assert done.exit_code == 1
    assert "MISMATCH after" in done.stdout
    assert "✗ read and not as predicted" in done.stdout


def test_a_record_is_written_where_the_site_reads_it(say: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "serve.json"
    monkeypatch.setattr(serve_record, "RECORD", path)
    monkeypatch.setattr(serve_record, "about", lambda lab: ({"vllm": "1.2.3"}, "CPU"))
    done = say("--record", "--json")
    assert done.exit_code == 0, done.output
    made = serve_record.load(path)
    assert made is not None
    assert (made.device, made.versions, serve_record.fresh(made)) == ("CPU", {"vllm": "1.2.3"}, True)
    rows = {row["id"]: row for row in json.loads(done.stdout)["phases"]}
    assert {kept.id: kept.readings for kept in made.phases} == {name: len(row["samples"]) for name, row in rows.items()}
    assert "wrote serve.json" in done.stderr


def test_a_port_in_use_is_wrong_use(say: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def taken(wanted: int) -> int:
        raise server.PortInUse(wanted)

    monkeypatch.setattr(server, "free_port", taken)
    done = say("--port", "8123")
    assert done.exit_code == 2
    assert "port 8123 of 127.0.0.1 is in use by another program, which was left alone" in done.stderr


def test_a_reader_is_asked_before_anything_is_shown(terminal: Any) -> None:
    """The first questions come while the server starts; each phase's come before its chart, the sums after it."""
    child = terminal(PACE="0.001")
    wrong = 0
    for phase in phases():
        for question in questions(phase):
            child.expect_exact(question.text)
            assert "●" not in child.before.rpartition("A admitted")[2]
            wrong += question.answer == 0
            child.sendline("1" if question.answer == 0 else str(question.answer))
        if phase is phases()[0]:
            child.expect("It answers on")
        for question in questions(phase):
            child.expect_exact(f"{question.text} {question.answer}, ")
            child.expect("you said 1" if question.answer == 0 else "as you said")
            assert "●" in child.before or question is not questions(phase)[0]
    asked = sum(len(questions(phase)) for phase in phases())
    child.expect(f"You predicted {asked - wrong} of {asked} numbers")
    child.expect(pexpect.EOF)
    child.close()
    assert child.exitstatus == 0


@pytest.mark.parametrize("width", [60, 80, 100])
def test_nothing_is_wider_than_the_terminal_nor_cut_within_a_word(width: int) -> None:
    screen = Console(file=io.StringIO(), width=width, color_system=None)
    sitting = ServeSitting(screen, asks=False)
    sitting.run(phases(), Untroubled())  # type: ignore[arg-type]
    assert isinstance(screen.file, io.StringIO)
    lines = screen.file.getvalue().splitlines()
    assert max(map(len, lines)) <= width
    text = " ".join(" ".join(lines).split())
    for outcome in sitting.outcomes:
        for question in questions(outcome.phase):
            assert f"{question.text} {question.answer} {question.why}; {question.read(outcome)}" in text
    assert len([line for line in lines if line.endswith("tokens generated")]) == len(phases())


class Untroubled:
    """A server whose every reading fits; one reading a token."""

    def run(self, phase: Phase, seen: Callable[[Outcome], None]) -> Outcome:
        outcome = Outcome(phase, [], phase.hits, 0)
        for n in range(phase.generate):
            received, left = [], n
            for ask in phase.asks:
                received.append(min(left, ask.generate))
                left -= received[-1]
            low, high = phase.expected(n, received)
            outcome.samples.append(Sample(n / 100, n, high, low, high, tuple(received)))
        seen(outcome)
        return outcome


def answer_all(child: Any) -> None:
    """Leave the first phase's questions open."""
    for question in questions(phases()[0]):
        child.expect_exact(question.text)
        child.sendline("")


def test_ctrl_c_in_the_middle_ends_the_server(terminal: Any, tmp_path: Path) -> None:
    child = terminal("--engine")
    answer_all(child)
    child.expect("●")
    child.sendintr()
    child.expect("Aborted!")
    child.expect(pexpect.EOF)
    child.close()
    assert child.exitstatus == 1
    assert gone(tmp_path / "pids")


@pytest.mark.parametrize("while_asked", [True, False], ids=["while asked", "while it runs"])
def test_a_closed_terminal_ends_the_server(terminal: Any, tmp_path: Path, while_asked: bool) -> None:
    child = terminal("--engine", PACE="0.02")
    if while_asked:
        child.expect_exact(questions(phases()[0])[0].text)
        end = time.monotonic() + WAIT
        while not (tmp_path / "pids").exists() and time.monotonic() < end:
            time.sleep(0.05)
    else:
        answer_all(child)
        child.expect("●")
    time.sleep(0.2)
    child.close(force=False)  # the terminal hangs up: SIGHUP
    assert gone(tmp_path / "pids")
    assert not child.isalive()


def test_a_kill_ends_the_server_as_well(terminal: Any, tmp_path: Path) -> None:
    child = terminal("--engine", PACE="0.02")
    answer_all(child)
    child.expect("●")
    child.kill(signal.SIGKILL)
    child.wait()
    assert gone(tmp_path / "pids")
    child.close()


def test_a_server_that_cannot_start_is_told_of_while_asking(terminal: Any) -> None:
    child = terminal("--refuse")
    child.expect_exact(questions(phases()[0])[0].text)
    time.sleep(1.0)
    child.sendline("1")
    child.expect("exit code 1 before it was done")
    child.expect("cannot start: no such model")
    child.expect(pexpect.EOF)
    child.close()
    assert child.exitstatus == 1
