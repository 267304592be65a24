"""How a run of a reader's code ends: with what it wrote, with what it started, and with the server as it was before."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from walkthroughs import kin
from walkthroughs.server import process
from walkthroughs.server.process import MOST_PROCESSES, Child, Limits
from walkthroughs.server.queue import Job, RunQueue

HERE = Path(__file__).parent
FINE = "check('sum', 3, 3)"
Reader = Any
# Starts a process and says its number; the process is then let go in some way.
START = """
import subprocess, sys, time
other = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]{how})
check("pid", other.pid, 0)
"""
AWAY = {
    "beside it": "",
    "in a session of its own": ", start_new_session=True",
    "in a session of its own, with no stream of ours": ", start_new_session=True, stdout=-3, stderr=-3, stdin=-3",
    "with nothing in its environment": ", env={}",
    "in a group of its own, with nothing in its environment": ", env={}, process_group=0",
}


def _helpers() -> Any:
    """The names of conftest.py; the tests are no package."""
    return next(
        module for module in sys.modules.values() if getattr(module, "__file__", "") == str(HERE / "conftest.py")
    )


def until(true: Callable[[], bool]) -> None:
    for _ in range(600):
        if true():
            return
        time.sleep(0.05)
    raise AssertionError("it never came")


def ends(events: list[dict[str, Any]]) -> tuple[str, str]:
    assert [event["event"] for event in events].count("ended") == 1
    return events[-1]["reason"], events[-1]["message"]


def checks(events: list[dict[str, Any]]) -> dict[str, str]:
    return {event["name"]: event["observed"] for event in events if event["event"] == "check"}


def nothing_is_left(reader: Reader) -> None:
    """Of any run of this server."""
    until(lambda: not reader.left())
    assert ends(reader.code(FINE)) == ("finished", "")


@pytest.fixture(scope="module")
def desk(site: Path) -> Iterator[Reader]:
    with _helpers().started(site, "code=stand-in") as reader:
        yield reader


@pytest.fixture(scope="module")
def hasty(site: Path) -> Iterator[Reader]:
    """A server that gives a run a second and a half."""
    with _helpers().started(site, "code=stand-in", "seconds=1.5") as reader:
        yield reader


@pytest.fixture(scope="module")
def small(site: Path) -> Iterator[Reader]:
    """A server that gives a run 300 MiB."""
    with _helpers().started(site, "code=stand-in", f"memory={300 << 20}") as reader:
        yield reader


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("import os; os.abort()", "SIGABRT"),
        ("import os; os._exit(3)", "exit code 3"),
        ("raise ValueError('no such luck')", "ValueError: no such luck"),
        ("raise SystemExit('gone')", "gone"),
        ("this is no python", "SyntaxError"),
        ("import ctypes; ctypes.string_at(0)", "SIGSEGV"),
    ],
)
def test_a_crash_takes_nothing_with_it(desk: Reader, text: str, words: str) -> None:
    reason, message = ends(desk.code(f"check('begun', 1, 1)\n{text}"))
    assert reason == "crashed"
    assert words in message
    assert "The server goes on." in message
    nothing_is_left(desk)


WRITTEN = {
    "no event": """'{"x": 1}'""",
    "a number for its kind": """'{"event": 7}'""",
    "a list for its kind": """'{"event": ["check"]}'""",
    "the end, which only the server tells": """'{"event": "ended", "reason": "finished", "message": ""}'""",
    "no number of JSON": """'{"event": "check", "max_error": NaN}'""",
    "a number": """'7'""",
    "deeper than a parser goes": """'[' * 200_000""",
    "longer than a line may be": """'"' + 'x' * 2_000_000""",
}


@pytest.mark.parametrize("line", WRITTEN.values(), ids=WRITTEN.keys())
def test_what_it_writes_into_the_events_is_no_event(desk: Reader, line: str) -> None:
    """A reader's own code can write there: it ends its own run, and reaches neither the page nor the queue."""
    text = f"check('begun', 1, 1)\nanswers.write({line} + chr(10)); answers.flush()"
    events = desk.code(text)
    assert [event["event"] for event in events] == ["queued", "started", "running", "check", "ended"]
    assert ends(events)[0] in ("crashed", "output")
    nothing_is_left(desk)


def test_it_is_ended_though_it_would_go_on(desk: Reader) -> None:
    events = desk.code("answers.write('no event' + chr(10)); answers.flush(); import time; time.sleep(600)")
    assert ends(events)[0] == "crashed"
    nothing_is_left(desk)


def test_what_it_says_stays_its_own_run(desk: Reader) -> None:
    events = desk.code("tell('check', run='another', name='\\ud800 half', observed='', expected='', passed=True)")
    assert len({event["run"] for event in events}) == 1
    assert next(event["name"] for event in events if event["event"] == "check") == "? half"
    assert ends(events)[0] == "finished"


def test_too_much_of_it_ends_it(desk: Reader) -> None:
    assert ends(desk.code("while True: check('again', 1, 1)"))[0] == "output"
    assert ends(desk.code("import sys\nfor _ in range(200): print('x' * 100_000, file=sys.stderr)"))[0] == "finished"
    nothing_is_left(desk)


@pytest.mark.parametrize("deaf", ["", "import signal; [signal.signal(n, signal.SIG_IGN) for n in (1, 2, 15)]\n"])
def test_time_is_over(hasty: Reader, deaf: str) -> None:
    reason, message = ends(hasty.code(f"{deaf}while True: pass"))
    assert (reason, message) == ("time", "The run took longer than 1.5 seconds and was ended.")
    nothing_is_left(hasty)


def test_memory_is_counted_over_all_that_it_started(small: Reader) -> None:
    """Each of six holds much less than the bound."""
    text = """
import os, time
for _ in range(6):
    if not os.fork():
        held = bytearray(b"x" * (70 << 20))
        time.sleep(600)
time.sleep(600)
"""
    assert ends(small.code(text))[0] == "memory"
    nothing_is_left(small)


def test_memory_of_one_alone(small: Reader) -> None:
    reason, message = ends(small.code("held = []\nwhile True: held.append(bytearray(b'x' * (1 << 24)))"))
    assert reason == "memory"
    assert "GiB of memory" in message
    nothing_is_left(small)


@pytest.mark.parametrize("away", ["", "os.setsid()", "os.setpgid(0, 0)"])
def test_processes_are_counted(desk: Reader, away: str) -> None:
    """As a loop that forks would: bounded here, so that a failure of this test does no harm."""
    text = f"""
import os, time
for _ in range({MOST_PROCESSES + 20}):
    if not os.fork():
        {away or "pass"}
        time.sleep(600)
time.sleep(600)
"""
    reason, message = ends(desk.code(text))
    assert (reason, message) == ("processes", f"The run started more than {MOST_PROCESSES} processes and was ended.")
    nothing_is_left(desk)


@pytest.mark.parametrize("how", AWAY.values(), ids=AWAY.keys())
def test_what_it_started_ends_with_it_when_it_is_cancelled(desk: Reader, how: str) -> None:
    with desk.open_code(START.format(how=how) + "time.sleep(600)") as (_, events):
        event = next(event for event in events if event["event"] == "check")
        pid = int(event["observed"])
        assert _helpers().alive(pid)
        assert desk.cancel(event["run"]).status_code == 200
        assert list(events)[-1]["reason"] == "cancelled"
    until(lambda: not _helpers().alive(pid))
    nothing_is_left(desk)


@pytest.mark.parametrize("how", AWAY.values(), ids=AWAY.keys())
def test_what_it_started_ends_with_it_when_it_is_done(desk: Reader, how: str) -> None:
    """Nor does the run wait for it, though it may hold our streams open."""
    events = desk.code(START.format(how=how))
    assert ends(events) == ("finished", "")
    until(lambda: not _helpers().alive(int(checks(events)["pid"])))
    nothing_is_left(desk)


def test_a_process_that_holds_the_events_open_does_not_hold_up_the_queue(desk: Reader) -> None:
    text = """
import os, time
os.set_inheritable(answers.fileno(), True)
if not os.fork():
    os.setsid()
    time.sleep(600)
check("left behind", 1, 1)
"""
    events = desk.code(text)
    assert checks(events) == {"left behind": "1"}
    assert ends(events)[0] == "finished"
    nothing_is_left(desk)


# Nothing of the run is on it: no mark, no session, no group. It ends by itself, in case nobody ends it.
AWAY_FOR_GOOD = """
import os, subprocess
os.set_inheritable(answers.fileno(), {events})
other = subprocess.Popen(["sleep", "120"], env={{}}, start_new_session=True, close_fds=False)
check("pid", other.pid, 0)
"""


@pytest.fixture
def strays() -> Iterator[list[int]]:
    """Numbers of processes that only the test can end, since a run cannot find them."""
    found: list[int] = []
    yield found
    for pid in found:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("events_too", [False, True])
def test_what_got_away_does_not_hold_up_the_queue(hasty: Reader, strays: list[int], events_too: bool) -> None:
    """It holds the run's streams open, perhaps the events too; the verdict was told before the time was over."""
    events = hasty.code(AWAY_FOR_GOOD.format(events=events_too))
    strays.append(int(checks(events)["pid"]))
    assert _helpers().alive(strays[0]), "otherwise this test shows nothing"
    assert [event["event"] for event in events[-2:]] == ["verdict", "ended"]
    assert ends(events) == ("finished", "")
    assert ends(hasty.code(FINE)) == ("finished", "")
    assert _helpers().alive(strays[0])


def test_what_got_away_does_not_outlast_a_cancel(desk: Reader, strays: list[int]) -> None:
    with desk.open_code(AWAY_FOR_GOOD.format(events=True) + "import time; time.sleep(600)") as (_, events):
        event = next(event for event in events if event["event"] == "check")
        strays.append(int(event["observed"]))
        assert desk.cancel(event["run"]).status_code == 200
        assert list(events)[-1]["reason"] == "cancelled"
    assert ends(desk.code(FINE)) == ("finished", "")
    assert _helpers().alive(strays[0])


def test_what_got_away_does_not_hold_up_who_lets_go_of_a_run(strays: list[int]) -> None:
    async def follow() -> int | None:
        request = {"text": AWAY_FOR_GOOD.format(events=True) + "import time; time.sleep(600)"}
        command = (sys.executable, str(HERE / "coding.py"))
        child = Child(command, {**request, "drill": "fix/one", "backend": "sim", "seeds": []}, Limits(), apart=True)
        events = child.events()
        async for event in events:
            if event["event"] == "check":
                strays.append(int(event["observed"]))
                break
        await events.aclose()  # type: ignore[attr-defined]
        assert child._process is not None
        return child._process.returncode

    assert asyncio.run(follow()) == -signal.SIGKILL
    assert _helpers().alive(strays[0])


def in_a_queue(*texts: str) -> list[list[dict[str, Any]]]:
    """The events of runs that wait for each other, in this process, so that it can be changed."""

    def start(job: Job) -> Child:
        request = {**job.request, "drill": "fix/one", "backend": "sim", "seeds": []}
        return Child((sys.executable, str(HERE / "coding.py")), request, Limits(seconds=60), apart=True)

    async def told(job: Job) -> list[dict[str, Any]]:
        return [event async for event in job.events()]

    async def follow() -> list[list[dict[str, Any]]]:
        queue = RunQueue(start)
        worker = asyncio.create_task(queue.work())
        found = await asyncio.gather(*(told(queue.submit({"text": text})) for text in texts))
        worker.cancel()
        await asyncio.gather(worker, return_exceptions=True)
        return found

    return asyncio.run(follow())


HOLDING = {
    "our streams": "",
    "no stream of ours": ", stdout=-3, stderr=-3, stdin=-3",
    "the events": ", pass_fds=[answers.fileno()]",
}


@pytest.mark.parametrize("how", HOLDING.values(), ids=HOLDING.keys())
def test_without_proc_the_group_is_ended(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, strays: list[int], how: str
) -> None:
    """As on a system that has none: there, nothing is found, and the child's group may outlive the child."""
    monkeypatch.setattr(kin, "PROC", tmp_path / "no such folder")
    left, fine = in_a_queue(START.format(how=how), FINE)
    strays.append(int(checks(left)["pid"]))
    assert ends(left) == ends(fine) == ("finished", "")
    until(lambda: not _helpers().alive(strays[0]))


def test_without_proc_the_queue_goes_on(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, strays: list[int]) -> None:
    monkeypatch.setattr(kin, "PROC", tmp_path / "no such folder")
    left, fine = in_a_queue(AWAY_FOR_GOOD.format(events=True), FINE)
    strays.append(int(checks(left)["pid"]))
    assert ends(left) == ends(fine) == ("finished", "")
    assert _helpers().alive(strays[0])


def test_a_number_that_was_given_again_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A child that has ended, and a stranger with its number: nothing is sent to that group."""

    class Ended:
        pid = os.getpid()  # one that surely runs
        returncode = 0

    asked: list[int] = []
    monkeypatch.setattr(os, "killpg", lambda group, number: asked.append(group))
    process._end_group(Ended())  # type: ignore[arg-type]
    assert asked == []
    Ended.returncode = None  # type: ignore[assignment]
    process._end_group(Ended())  # type: ignore[arg-type]
    assert asked == [Ended.pid]


def test_a_reader_who_leaves_ends_it(desk: Reader) -> None:
    with desk.open_code(START.format(how=", start_new_session=True") + "time.sleep(600)") as (_, events):
        pid = int(next(event["observed"] for event in events if event["event"] == "check"))
    until(lambda: not _helpers().alive(pid))
    nothing_is_left(desk)


def test_a_server_that_lets_go_of_a_run_lets_nothing_of_it_go_on() -> None:
    """As when it is stopped in the middle: nobody asks for the next event any more."""

    async def follow() -> int:
        request = {"drill": "fix/one", "text": START.format(how=", start_new_session=True") + "time.sleep(600)"}
        command = (sys.executable, str(HERE / "coding.py"))
        child = Child(command, {**request, "backend": "sim", "seeds": []}, Limits(), apart=True)
        events = child.events()
        async for event in events:
            if event["event"] == "check":
                break
        await events.aclose()  # type: ignore[attr-defined]
        return int(event["observed"])

    pid = asyncio.run(follow())
    until(lambda: not _helpers().alive(pid))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_end_of_the_server_ends_all_of_it(site: Path, number: signal.Signals) -> None:
    with _helpers().started(site, "code=stand-in") as reader:
        with reader.open_code(START.format(how=", start_new_session=True") + "time.sleep(600)") as (_, events):
            pid = int(next(event["observed"] for event in events if event["event"] == "check"))
            os.kill(reader.process.pid, number)
            assert list(events)[-1]["reason"] == "stopping"
        assert reader.process.wait(timeout=30) == 0
        until(lambda: not _helpers().alive(pid) and not reader.left())
        with pytest.raises(httpx.ConnectError), reader.client() as client:
            client.get("")
