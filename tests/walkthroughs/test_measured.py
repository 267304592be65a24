"""Measured values on their way: workbench, runner, record, JSON, terminal. They are shown; nothing passes by them."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from kernels.kernel import Backend
from kernels.tiny_vllm import table_copy
from kernels.tiny_vllm.table_copy import CopyTimes, Timing
from walkthroughs import evidence, records, runner
from walkthroughs.evidence import Evidence, EvidenceError, Measurement
from walkthroughs.step import Step, Walkthrough, get
from walkthroughs.workbench import Bench, Workbench

SIM = Backend("sim")
numbers = st.none() | st.floats(allow_nan=True, allow_infinity=True)


def checked(bench: Workbench) -> None:
    bench.check("fine", 1, 1)
    bench.measured("a copy", 12.34, "µs", spread=(11.0, 1234.5), note="why")


def wrong(bench: Workbench) -> None:
    bench.check("wrong", 1, 2)
    bench.measured("a copy", 0.0, "µs")


def only_measured(bench: Workbench) -> None:
    bench.measured("a copy", 1.0, "µs")


def as_step(run: Any) -> Step:
    return Step(f"tests/{run.__name__}", "T", (), "kernels/reference.py", "kernels/gather.py", run)


# -- workbench and runner


def test_a_measured_value_is_kept_as_it_is() -> None:
    record = runner.run(as_step(checked), SIM)
    assert (record.status, len(record.checks)) == ("passed", 1)
    assert record.measured == (Measurement("a copy", 12.34, "µs", 11.0, 1234.5, "why"),)


def test_no_step_passes_or_fails_by_it() -> None:
    assert runner.run(as_step(wrong), SIM).status == "failed"
    alone = runner.run(as_step(only_measured), SIM)
    assert (alone.status, alone.message) == ("failed", "the step checked nothing")
    assert len(alone.measured) == 1
    assert alone.max_error == 0


@given(numbers, st.none() | st.tuples(numbers, numbers))
def test_what_is_no_number_is_not_measured(value: Any, spread: Any) -> None:
    bench = Workbench("kernels/gather.py", Bench(SIM))
    bench.measured("x", value, "µs", spread=spread)
    (found,) = bench.measurements
    for kept, given_value in zip((found.value, found.low, found.high), (value, *(spread or (None, None))), strict=True):
        assert kept == (given_value if given_value is not None and math.isfinite(given_value) else None)
    json.dumps(replace(runner.run(as_step(checked), SIM), measured=(found,)).to_json(), allow_nan=False)


# -- the record


@pytest.mark.parametrize(
    ("value", "spread", "shown"),
    [
        (None, (None, None), "not measured"),
        (None, (1.0, 2.0), "not measured"),
        (0.0, (None, None), "0 µs"),
        (1.23456, (None, None), "1.23 µs"),
        (98.76, (None, 99.0), "98.8 µs"),
        (99.96, (97.0, 101.4), "100 µs (10th to 90th percentile: 97 to 101)"),
        (12345.6, (100.0, 1e6), "12,346 µs (10th to 90th percentile: 100 to 1,000,000)"),
    ],
)
def test_text(value: float | None, spread: tuple[float | None, float | None], shown: str) -> None:
    assert Measurement("x", value, "µs", *spread).text == shown


def test_a_record_without_measured_values_looks_as_it_always_did() -> None:
    data = replace(runner.run(as_step(checked), SIM), measured=()).to_json()
    assert "measured" not in data
    assert Evidence.from_json(data).measured == ()


def test_json_round_trip_and_file_round_trip(tmp_path: Path) -> None:
    record = runner.run(as_step(checked), SIM)
    data = json.loads(json.dumps(record.to_json(), allow_nan=False))
    assert data["measured"] == [
        {"name": "a copy", "value": 12.34, "unit": "µs", "low": 11.0, "high": 1234.5, "note": "why"}
    ]
    assert Evidence.from_json(data) == record
    evidence.write(tmp_path / "x.json", [record])
    assert evidence.read(tmp_path / "x.json") == [record]


@pytest.mark.parametrize("rows", [[{"name": "x"}], [{"name": "x", "value": 1, "unit": "s", "more": 2}], [3], 3])
def test_what_is_no_measured_row_is_no_record(rows: Any) -> None:
    data = runner.run(as_step(checked), SIM).to_json() | {"measured": rows}
    with pytest.raises(EvidenceError, match="not a record"):
        Evidence.from_json(data)


# -- records of a whole machine: never timed beside other steps


@pytest.mark.parametrize(("jobs", "runs"), [(1, ["plain", "checked"]), (2, ["plain", "checked", "checked"])])
def test_what_measures_runs_again_alone(
    jobs: int, runs: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def plain(bench: Workbench) -> None:
        bench.check("fine", 1, 1)

    seen = []

    def run_step(backend: str, step: Step) -> Evidence:
        seen.append(step.slug)
        return replace(runner.run(step, Backend(backend)), seconds=float(len(seen)))

    tour = Walkthrough("one", "One", "", source="kernels/reference.py", port="kernels/gather.py")
    tour.step("plain", title="T", reads=())(plain)
    tour.step("checked", title="T", reads=())(checked)
    monkeypatch.setattr(records, "registry", lambda: {"one": tour})
    monkeypatch.setattr(records, "_run_step", run_step)
    monkeypatch.setattr(records, "_each", lambda work, items, jobs: map(work, items))
    assert records.record_steps(SIM, tmp_path, jobs)
    assert seen == runs
    found = evidence.read(tmp_path / "one.json")
    assert [record.seconds for record in found] == [1.0, float(len(runs))]


# -- the terminal


def test_the_terminal_shows_measured_values_of_a_step_that_passed(monkeypatch: pytest.MonkeyPatch) -> None:
    from walkthroughs.commands.steps import run_command

    record = replace(runner.run(as_step(checked), SIM), step="tiny-vllm/table-copies")
    monkeypatch.setattr(runner, "run_many", lambda *args, **kwargs: iter([record]))
    plain = CliRunner().invoke(run_command, [record.step, "--backend", "sim"])
    assert plain.exit_code == 0
    assert "a copy: 12.3 µs (10th to 90th percentile: 11 to 1,234); why\n" in plain.stdout
    as_json = CliRunner().invoke(run_command, [record.step, "--backend", "sim", "--json"])
    assert json.loads(as_json.stdout)["steps"][0]["measured"][0]["value"] == 12.34


# -- the step that measures


def test_on_the_machine_the_step_says_that_time_is_not_modelled() -> None:
    record = runner.run(get("tiny-vllm/table-copies"), SIM)
    assert (record.status, record.message) == ("passed", "")
    (row,) = record.measured
    assert (row.value, row.text, row.note) == (None, "not measured", "the SIMT machine does not model time")
    shown = {check.name: check.observed for check in record.checks}
    assert (shown["steps that need a copy"], shown["bytes a decode step"]) == ("40", "262144")
    assert shown["bytes of the list that is sent"] == "128"


def test_the_rows_are_the_times_with_their_spread_and_two_averages() -> None:
    timings = [Timing(float(10 * n), float(10 * n - 1), float(10 * n + 2), 500) for n in range(1, 7)]
    times = CopyTimes(*timings)
    # Not imported above: the parts of a walkthrough register their steps in the order in which they are imported.
    show_times = get("tiny-vllm/table-copies").run.__globals__["show_times"]
    bench = Workbench("kernels/gather.py", Bench(SIM))
    show_times(bench, times, 40, 320)
    rows = {row.name: row for row in bench.measurements}
    assert len(rows) == len(bench.measurements) == 8
    assert {row.unit for row in rows.values()} == {"µs a decode step"}
    kept = [(row.value, row.low, row.high) for row in bench.measurements[:6]]
    assert sorted(kept) == [(timing.median, timing.low, timing.high) for timing in timings]
    whole = rows["whole table, once a layer"]
    assert (whole.value, whole.low, whole.high) == (20.0, 19.0, 22.0)  # `every_layer` is the second field
    assert rows["no copy"].value == 10.0
    averages = bench.measurements[6:]
    assert [(row.value, row.low, row.note) for row in averages] == [
        (30.0 / 8, None, "40 of 320 steps"), (50.0 / 8, None, "40 of 320 steps"),
    ]  # fmt: skip
    assert bench.checks == []


@pytest.mark.parametrize(("broken", "status"), [(False, "passed"), (True, "failed")])
def test_with_a_gpu_the_step_measures_and_checks_that_each_way_works(
    monkeypatch: pytest.MonkeyPatch, broken: bool, status: str
) -> None:
    class Played:
        """A GPU in name: one object that keeps the table."""

        def __init__(self, before: Any, after: Any, changes: Any) -> None:
            self.before, self.after, self.changes = before.reshape(-1), after.reshape(-1), changes
            self.changed = len(changes)
            self.reset()

        def reset(self) -> None:
            self.table, self.list = self.before.copy(), []  # type: ignore[var-annotated]

        def copy_table(self) -> None:
            self.table[:] = self.after

        def copy_entry(self, number: int) -> None:
            place, block = self.changes[number]
            self.table[place] = -1 if broken else block

        def copy_changes(self) -> None:
            self.list = self.changes

        def launch_update(self) -> None:
            for place, block in self.list:
                self.table[place] = block

        def wait(self) -> None:
            pass

        def read(self) -> Any:
            return self.table

    # The launches of the step itself stay on the machine; only the question where it runs says "cuda".
    class Here(Workbench):
        asked = 0

        @property
        def backend(self) -> Backend:
            Here.asked += 1
            return Backend("cuda") if Here.asked > 34 else SIM

    monkeypatch.setattr(table_copy, "Gpu", Played)
    bench = Here("kernels/tiny_vllm/block_table.py", Bench(SIM))
    get("tiny-vllm/table-copies").run(bench)
    assert len(bench.measurements) == 8
    assert all(row.value is not None and row.value >= 0 for row in bench.measurements)
    last = bench.checks[-1]
    assert (last.name, last.observed) == ("ways that leave another table on the GPU", str(int(broken)))
    assert ("passed" if all(check.passed for check in bench.checks) else "failed") == status
