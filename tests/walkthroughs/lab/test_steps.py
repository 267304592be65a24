"""The records of the steps that read the lab's record: written where it is, and only when every step passed."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from walkthroughs import digest, evidence
from walkthroughs.lab import record, steps
from walkthroughs.lab.predict import predict
from walkthroughs.lab.scenarios import scenarios
from walkthroughs.step import get

EDGES = "live-engine/edges"


def test_the_live_engine_reads_the_labs_record() -> None:
    assert [walkthrough.id for walkthrough in steps.reading()] == ["live-engine"]
    assert steps.reading("walkthroughs/lab/other.json") == []


def test_every_step_is_run_and_written(tmp_path: Path) -> None:
    assert steps.write_steps(tmp_path) == []
    found = evidence.read(tmp_path / "live-engine.json")
    assert [row.step for row in found] == [step.id for step in steps.reading()[0].steps]
    assert {(row.status, row.backend, row.device) for row in found} == {("passed", "sim", "SIMT machine")}
    assert all(evidence.fresh(row, get(row.step)) for row in found)


def test_an_engine_that_did_something_else_fails_the_step_and_no_file_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = record.load()
    assert made is not None
    growing = next(kept for kept in made.scenarios if kept.id == "growing-32")
    wrong = replace(growing, blocks={"a": (1, 2, 2, *growing.blocks["a"][3:])})
    changed = replace(made, scenarios=tuple(wrong if kept is growing else kept for kept in made.scenarios))
    monkeypatch.setattr(record, "load", lambda: changed)
    failed = steps.write_steps(tmp_path)
    assert [line.split()[:2] for line in failed] == [[EDGES, "failed"]]
    assert list(tmp_path.iterdir()) == []


def test_the_text_of_the_preempted_step_is_what_happened() -> None:
    """By two blocks and later by four; whoever asked was itself the last, so nobody took any."""
    made = record.load()
    assert made is not None
    used = next(kept.used for kept in made.scenarios if kept.id == "demand-32")
    moments = [m for m in predict(scenarios()["demand-32"]) if any(event.kind == "preempted" for event in m.events)]
    assert [(m.step, used[m.step - 2] - used[m.step - 1]) for m in moments] == [(28, 2), (41, 4)]
    assert [[event.kind for event in m.events] for m in moments] == [["preempted"], ["preempted"]]


def test_another_record_is_another_digest(tmp_path: Path) -> None:
    step = get(EDGES)
    data = json.loads((digest.ROOT / step.seen).read_text("utf-8"))
    data["scenarios"][0]["used"][0] += 1
    (tmp_path / "record.json").write_text(json.dumps(data))
    changed = digest.of_step(replace(step, seen=str(tmp_path / "record.json")))
    before = digest.of_step(step)
    assert {name for name in before if before[name] != changed[name]} == {"seen"}
    assert "seen" not in digest.of_step(replace(step, seen=""))
