"""Processes of the lab: what they tell, how they end, and that none is left, whatever happens."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from walkthroughs.lab import environment
from walkthroughs.lab.environment import Lab
from walkthroughs.lab.errors import EngineDied, EngineFailed, TookTooLong, TookTooMuch
from walkthroughs.lab.process import Limits, events, limits_for, running

# A stand-in for the engine: it has its beginning and its end, and between them what a test wants.
SCRIPT = """
import importlib.util, json, os, signal, subprocess, sys, time
spec = importlib.util.spec_from_file_location("engine", {engine!r})
engine = importlib.util.module_from_spec(spec)
spec.loader.exec_module(engine)
request = json.loads(sys.stdin.readline())
engine.exit_with(sys.stdin)
def tell(**event):
    print(json.dumps(event), flush=True)
tell(event="pid", pid=os.getpid())
"""
SLEEPER = "other = subprocess.Popen(['sleep', '600'])\ntell(event='pid', pid=other.pid)\n"
WAIT = 20.0


@pytest.fixture
def script(tmp_path: Path) -> Any:
    def make(text: str) -> Path:
        path = tmp_path / "script.py"
        path.write_text(SCRIPT.format(engine=str(environment.ENGINE)) + text)
        return path

    return make


def told(path: Path, limits: Limits | None = None) -> Iterator[dict[str, Any]]:
    return events(Path(sys.executable), path, {"n": 3}, dict(os.environ), limits or Limits(30.0))


def runs(pid: int) -> bool:
    with contextlib.suppress(OSError):
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        return state != "Z"
    return False


def gone(*pids: int) -> bool:
    """True once none of them runs; waits for it."""
    end = time.monotonic() + WAIT
    while any(map(runs, pids)):
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True


def test_events_come_as_told_and_end_with_done(script: Any) -> None:
    path = script("for n in range(request['n']): tell(event='step', n=n)\ntell(event='done')\ntell(event='late')\n")
    found = list(told(path))
    assert [event["event"] for event in found] == ["started", "pid", "step", "step", "step"]
    assert [event["n"] for event in found[2:]] == [0, 1, 2]
    assert gone(found[1]["pid"])


def test_an_error_that_it_tells_of_has_its_class_and_words(script: Any) -> None:
    with pytest.raises(EngineFailed, match="the engine raised ValueError: no such model") as caught:
        list(told(script("tell(event='error', kind='ValueError', message='no such model')\n")))
    assert caught.value.kind == "ValueError"


def test_a_process_that_ends_early_is_told_of_with_its_last_words(script: Any) -> None:
    with pytest.raises(EngineDied, match=r"exit code 3 before it was done\. It last said: help me") as caught:
        list(told(script("print('help me', file=sys.stderr)\nsys.exit(3)\n")))
    assert caught.value.code == 3


def test_a_kill_is_told_of_by_its_signal(script: Any) -> None:
    with pytest.raises(EngineDied, match="SIGKILL before it was done; a machine that runs out of memory") as caught:
        list(told(script("os.kill(os.getpid(), signal.SIGKILL)\n")))
    assert caught.value.code == -signal.SIGKILL


def test_half_a_line_and_what_is_no_event_end_the_run(script: Any) -> None:
    for text in ('print(\'{"event": "st\', flush=True)', "print('[1]', flush=True)", "print('hello', flush=True)"):
        with pytest.raises(EngineDied):
            list(told(script(f"{text}\n")))


def test_time_is_limited_and_says_what_was_last_done(script: Any) -> None:
    source = told(script("time.sleep(600)\n"), Limits(seconds=1.5))
    next(source)
    pid = next(source)["pid"]
    with pytest.raises(TookTooLong, match=r"after 1\.5 seconds, while it had said 'pid' last"):
        next(source)
    assert gone(pid)


def test_the_readers_own_time_does_not_count(script: Any) -> None:
    source = told(script("for n in range(3): tell(event='step')\ntell(event='done')\n"), Limits(seconds=5.0))
    assert next(source)["event"] == "started"
    before = time.monotonic
    try:
        time.monotonic = lambda: before() + 1000.0  # as if the reader had thought for a while
        assert [event["event"] for event in source] == ["pid", "step", "step", "step"]
    finally:
        time.monotonic = before


def test_memory_is_limited(script: Any) -> None:
    hungry = "held = bytearray(200 << 20)\nheld[::4096] = bytes(len(held[::4096]))\ntime.sleep(600)\n"
    with pytest.raises(TookTooMuch, match=r"more than the 0\.1 GiB that it may"):
        list(told(script(hungry), Limits(30.0, 100 << 20)))


def test_leaving_early_leaves_no_process(script: Any) -> None:
    source = told(
        script("other = subprocess.Popen(['sleep', '600'])\ntell(event='pid', pid=other.pid)\ntime.sleep(600)")
    )
    pids = [event["pid"] for event in (next(source), next(source), next(source)) if "pid" in event]
    assert all(map(runs, pids))
    source.close()
    assert gone(*pids)


def test_one_that_left_the_session_is_ended_too(script: Any) -> None:
    text = "other = subprocess.Popen(['sleep', '600'], start_new_session=True)\ntell(event='pid', pid=other.pid)\n"
    found = list(told(script(text + "tell(event='done')\n")))
    assert gone(*(event["pid"] for event in found if "pid" in event))


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_when_we_are_ended_it_ends_as_well(script: Any, tmp_path: Path, number: int) -> None:
    path = script(f"{SLEEPER}time.sleep(600)\n")
    outer = tmp_path / "outer.py"
    outer.write_text(
        "import os, signal, sys\nfrom pathlib import Path\nfrom walkthroughs.lab.process import Limits, events\n"
        # Whoever runs the tests in the background has them ignored.
        "signal.signal(signal.SIGINT, signal.default_int_handler)\nsignal.signal(signal.SIGHUP, signal.SIG_DFL)\n"
        f"for event in events(Path(sys.executable), Path({str(path)!r}), {{}}, dict(os.environ), Limits(60.0)):\n"
        "    if 'pid' in event: print(event['pid'], flush=True)\n"
    )
    variables = {**os.environ, "PYTHONPATH": str(environment.ROOT)}
    process = subprocess.Popen(
        [sys.executable, str(outer)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=variables
    )
    assert process.stdout is not None
    pids = [int(process.stdout.readline()), int(process.stdout.readline())]
    process.send_signal(number)
    process.wait(timeout=WAIT)
    process.stdout.close()
    assert gone(*pids)


def test_signals_are_ours_only_while_something_runs() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with running(["sleep", "600"], dict(os.environ)) as child:
        assert signal.getsignal(signal.SIGTERM) is not before
    assert signal.getsignal(signal.SIGTERM) is before
    assert gone(child.process.pid)


def test_a_signal_that_is_ignored_stays_ignored() -> None:
    """As under `nohup`, where a closed terminal is to end nothing."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with running(["sleep", "600"], dict(os.environ)):
            signal.raise_signal(signal.SIGHUP)
            assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_readers_own_model_or_python_may_be_large_and_ours_may_not(tmp_path: Path) -> None:
    ours = Lab(Path(sys.executable), tmp_path, tmp_path)
    assert limits_for(ours, 7.0) == Limits(7.0, 4 << 30)
    for theirs in (replace(ours, own=False), replace(ours, made=False)):
        assert limits_for(theirs, 7.0) == Limits(7.0, float("inf"))
