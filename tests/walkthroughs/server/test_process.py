"""Real children: their limits, their ends, and that nothing of them is left."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from walkthroughs.server.process import MOST_EVENTS, Child, Event, Limits, resident

HERE = Path(__file__).parent
COMMAND = (sys.executable, str(HERE / "steps.py"))


@pytest.fixture(autouse=True)
def path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(HERE.parents[2]))


def run(step: str, *, kill_at: str = "", command: tuple[str, ...] = COMMAND, **limits: Any) -> list[Event]:
    """Every event of a child; `kill_at` cancels it at the first event of that kind."""

    async def follow() -> list[Event]:
        child = Child(command, {"step": f"test/{step}", "values": None, "backend": "sim"}, Limits(**limits))
        found = []
        async for event in child.events():
            found.append(event)
            if event["event"] == kill_at:
                child.kill("cancelled")
        assert child._process is not None
        assert child._process.returncode is not None
        return found

    return asyncio.run(follow())


def last(events: list[Event]) -> tuple[str, str]:
    assert [event["event"] for event in events].count("ended") == 1
    return events[-1]["reason"], events[-1]["message"]


def test_a_sound_run_ends_with_its_verdict() -> None:
    events = run("sound")
    assert [event["event"] for event in events] == [
        "running",
        "launch",
        "check",
        "check",
        "measured",
        "verdict",
        "ended",
    ]
    assert last(events) == ("finished", "")


def test_an_abort_in_the_middle_is_an_end_with_words() -> None:
    """What a fault in native code does, and a CUDA context that is broken for good: the process is gone."""
    events = run("crash")
    assert [event["event"] for event in events] == ["running", "check", "ended"]
    assert last(events) == ("crashed", "The run's process was ended by SIGABRT. The server goes on.")


def test_what_a_dying_child_said_is_passed_on() -> None:
    reason, message = last(run("leaves"))
    assert reason == "crashed"
    assert "exit code 3 before its verdict" in message
    assert message.endswith("It said: something to remember")


def test_time_is_bounded() -> None:
    for step in ("stuck", "busy", "deaf"):
        events = run(step, seconds=1.5)
        assert last(events) == ("time", "The run took longer than 1.5 seconds and was ended.")


def test_memory_is_bounded() -> None:
    reason, message = last(run("hog", memory=700 << 20, address_space=None))
    assert reason == "memory"
    assert "GiB of memory" in message


def test_it_can_be_cancelled_at_any_time() -> None:
    for step in ("slow", "busy", "deaf"):
        events = run(step, kill_at="check")
        assert last(events) == ("cancelled", "The run was cancelled.")


def test_what_the_child_started_goes_with_it() -> None:
    events = run("parent", kill_at="check")
    pid = int(next(event["observed"] for event in events if event["event"] == "check"))
    for _ in range(100):
        if not alive(pid):
            break
        os.sched_yield()
        asyncio.run(asyncio.sleep(0.05))
    assert not alive(pid)


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def test_cancelled_before_it_starts_it_tells_nothing() -> None:
    async def follow() -> list[Event]:
        child = Child(COMMAND, {"step": "test/slow", "values": None, "backend": "sim"}, Limits())
        child.kill("cancelled")
        return [event async for event in child.events()]

    assert last(asyncio.run(follow())) == ("cancelled", "The run was cancelled.")


def test_a_reader_that_leaves_ends_the_child() -> None:
    async def follow() -> int | None:
        child = Child(COMMAND, {"step": "test/slow", "values": None, "backend": "sim"}, Limits())
        events = child.events()
        assert (await anext(events))["event"] == "running"
        await events.aclose()  # type: ignore[attr-defined]
        assert child._process is not None
        return child._process.returncode

    assert asyncio.run(follow()) == -9


def test_what_it_says_is_bounded() -> None:
    events = run("many")
    assert len(events) <= MOST_EVENTS + 1
    assert last(events)[0] == "output"
    assert last(run("long-line")) == ("output", "The run told more than a page can show and was ended.")


@pytest.mark.parametrize("said", ["no json", "[1, 2]", '{"event": "check"', "7", ""])
def test_what_is_no_event_ends_the_run(said: str) -> None:
    events = run("any", command=(sys.executable, "-c", f"print({said!r})"))
    assert [event["event"] for event in events] == ["ended"]
    assert last(events)[0] == "crashed"


def test_a_child_that_closes_its_output_and_stays_is_ended() -> None:
    code = "import os, time; os.close(1); os.close(2); time.sleep(600)"
    assert last(run("any", command=(sys.executable, "-c", code)))[0] == "crashed"


def test_limits_follow_the_backend() -> None:
    assert Limits.of("cuda").address_space is None
    assert Limits.of("cuda").seconds > Limits.of("sim").seconds
    assert Limits.of("sim").address_space is not None


def test_memory_held_is_read_of_a_live_process_only() -> None:
    assert resident(os.getpid()) > 1 << 20
    assert resident(2**22 + 1) == 0
