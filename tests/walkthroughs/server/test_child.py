"""The child: what it tells of a step is what `runner.run` records, and it ends with its stdin."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kernels.kernel import Backend
from walkthroughs import runner
from walkthroughs.server.child import perform
from walkthroughs.server.offers import OFFERS
from walkthroughs.step import Step, get
from walkthroughs.workbench import Workbench

ROOT = Path(__file__).resolve().parents[3]
COMMAND = [sys.executable, "-m", "walkthroughs.server.child"]
HERE = Path(__file__).parent


def told(step: Step, values: Any = None) -> list[dict[str, Any]]:
    events: list[dict[str, Any]] = []
    perform(step, values, "sim", events.append)
    return [json.loads(json.dumps(event, allow_nan=False)) for event in events]


def ask(request: dict[str, Any], *command: str) -> subprocess.CompletedProcess[str]:
    """Run a child to its end; its stdin stays open meanwhile, as the server's does."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        command or COMMAND, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env=environment,
    ) as process:  # fmt: skip
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdin.write(
            json.dumps({"backend": "sim", "memory": None, "seconds": 60, "values": None, **request}) + "\n"
        )
        process.stdin.flush()
        out, err = process.stdout.read(), process.stderr.read()
        return subprocess.CompletedProcess([], process.wait(), out, err)


@pytest.mark.parametrize("step_id", ["vllm-classic/slots", "paged-reference/online-softmax", "tiny-vllm/divide"])
def test_a_plain_run_tells_what_the_runner_records(step_id: str) -> None:
    record = runner.run(get(step_id), Backend("sim"))
    events = told(get(step_id))
    checks = [{k: v for k, v in event.items() if k != "event"} for event in events if event["event"] == "check"]
    assert checks == [json.loads(json.dumps(check.to_json())) for check in record.checks]
    assert events[0] == {"event": "running", "backend": "sim", "device": "SIMT machine", "driver": ""}
    verdict = events[-1]
    assert (verdict["status"], verdict["seed"], verdict["held"]) == (record.status, record.seed, len(record.checks))
    assert any(event["event"] == "launch" for event in events)


def test_checks_come_as_they_are_made() -> None:
    """After each launch come its checks: nothing is kept back to the end."""
    events = [event["event"] for event in told(get("vllm-classic/writer-threads"))]
    assert events == ["running", "launch", "check", "check", "launch", "check", "verdict"]


def test_measured_values_are_told_too() -> None:
    def run(bench: Workbench) -> None:
        bench.measured("a time", 12.5, "us", spread=(12.0, 13.0), note="ten runs")
        bench.check("one", 1, 1)

    measured = told(Step("t/m", "m", (), "", "kernels/none.py", run))[1]
    assert measured == {
        "event": "measured", "name": "a time", "note": "ten runs",
        "text": "12.5 us (10th to 90th percentile: 12 to 13)",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("name", "status", "message"),
    [
        ("fails", "failed", ""),
        ("nothing", "failed", "nothing was checked"),
        ("raises", "error", "ValueError: no such luck"),
    ],
)
def test_a_step_that_does_not_pass_says_so(name: str, status: str, message: str) -> None:
    sys.path.insert(0, str(HERE))
    try:
        import steps
    finally:
        sys.path.remove(str(HERE))
    events = told(steps.find(f"test/{name}"))
    assert (events[-1]["status"], events[-1]["message"]) == (status, message)
    if name == "fails":
        assert [event["max_error"] for event in events if event["event"] == "check"] == [1.0, None]


def test_a_changed_run_reads_its_values_once_more() -> None:
    step = get("vllm-classic/qk-max")
    values = {**OFFERS[step.port].defaults(), "seq_lens": [33]}
    names = [event["name"] for event in told(step, values) if event["event"] == "check"]
    assert names == ["physical blocks walked", "largest score of each row", "sum of exponentials of each row", "output"]
    events = told(step, {**values, "heads": 3})
    assert events[-1]["status"] == "error"
    assert "must be one of" in events[-1]["message"]


def test_the_program_answers_with_events_alone() -> None:
    done = ask({"step": "test/prints"}, sys.executable, str(HERE / "steps.py"))
    assert done.returncode == 0
    events = [json.loads(line) for line in done.stdout.splitlines()]
    assert [event["event"] for event in events] == ["running", "check", "verdict"]
    assert events[1]["name"] == "after"
    assert "straight to the descriptor" in done.stderr


def test_the_program_runs_a_step_of_the_catalog() -> None:
    done = ask({"step": "vllm-writers/slots", "memory": 8 << 30})
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1])["status"] == "passed"


def test_the_program_knows_the_catalog_only() -> None:
    for step in ("os.system", "../../etc/passwd", "vllm-classic", "test/sound"):
        done = ask({"step": step})
        assert done.returncode != 0
        assert done.stdout == ""
        assert "UnknownStep" in done.stderr


def test_address_space_is_bounded_where_it_can_be() -> None:
    done = ask({"step": "test/hog", "memory": 3 << 30}, sys.executable, str(HERE / "steps.py"))
    last = json.loads(done.stdout.splitlines()[-1])
    assert last["event"] == "verdict"
    assert last["status"] == "error"
    assert "MemoryError" in last["message"]


def test_processor_time_is_bounded() -> None:
    done = ask({"step": "test/busy", "seconds": 2}, sys.executable, str(HERE / "steps.py"))
    assert done.returncode < 0
    assert "verdict" not in done.stdout


def test_when_the_server_is_gone_the_child_goes_too() -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(
        [sys.executable, str(HERE / "steps.py")], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        env=environment,
    )  # fmt: skip
    assert process.stdin is not None
    assert process.stdout is not None
    request = {"step": "test/busy", "values": None, "backend": "sim", "memory": None, "seconds": 100}
    process.stdin.write(json.dumps(request) + "\n")
    process.stdin.flush()
    assert json.loads(process.stdout.readline())["event"] == "running"
    process.stdin.close()
    assert process.wait(timeout=30) == 1
    process.stdout.close()
