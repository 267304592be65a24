"""The lab's record: written and read back, stale when the code has changed, and refused when it is none."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from walkthroughs.lab import record
from walkthroughs.lab.predict import predict
from walkthroughs.lab.scenarios import scenarios
from walkthroughs.lab.watch import About, Held, Result, Seen

ABOUT = About({"vllm": "0.32.0", "torch": "2.13.0"}, "CPU", 1.0, 2.0)


def sample() -> record.Record:
    scenario = scenarios()["growing-128"]
    result = Result(scenario, predict(scenario))
    for moment in result.predicted:
        rows = {row.name: Held(row.status, tuple(range(1, row.blocks + 1)), row.generated, 0) for row in moment.rows}
        result.add(Seen(scenario.id, moment.step, moment.used, rows))
    return record.made([result], ABOUT, "2026-01-01T00:00:00Z", 3.21)


def test_it_reads_back_as_written(tmp_path: Path) -> None:
    made = sample()
    record.write(made, tmp_path / "record.json")
    assert record.load(tmp_path / "record.json") == made
    assert record.load(tmp_path / "none.json") is None


def test_it_says_where_and_what() -> None:
    made = sample()
    assert made.badge == "CPU, vLLM 0.32.0, torch 2.13.0"
    (kept,) = made.scenarios
    assert (kept.status, kept.steps, kept.mismatches) == ("passed", 60, ())
    assert kept.tables == {"a": (1, 2)}
    assert kept.used[-2:] == (2, 0)


def test_a_change_makes_it_stale() -> None:
    assert record.fresh(sample())
    assert not record.fresh(replace(sample(), digest="0"))


def test_what_is_no_record_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    for data in ({"schema": 9}, {"schema": 1}, {"schema": 1, "scenarios": [{"id": "x"}]}):
        path.write_text(json.dumps(data))
        with pytest.raises(ValueError, match=r"record\.json"):
            record.load(path)


def test_the_committed_record_is_whole_and_fresh() -> None:
    made = record.load()
    assert made is not None
    assert made.device == "CPU"
    assert made.versions["vllm"] == "0.32.0"
    assert record.fresh(made)
    assert {kept.id for kept in made.scenarios} == set(scenarios())
    assert sum(kept.steps for kept in made.scenarios) >= 200
    for kept in made.scenarios:
        assert (kept.status, kept.mismatches) == ("passed", ())
        predicted = predict(scenarios()[kept.id])
        assert kept.used == tuple(moment.used for moment in predicted)
        for row in predicted[0].rows:
            assert kept.blocks[row.name][0] == row.blocks
