"""What is committed under docs/evidence/: every step ran on a GPU, passed, and still is what it was."""

from __future__ import annotations

import json
import re
from datetime import date
from typing import Any

import pytest

from walkthroughs import bench, evidence, grid, hardware, machine_record, records, tuned_sanitizers
from walkthroughs.evidence import Evidence
from walkthroughs.lab import record as lab_record
from walkthroughs.mutations import MUTATIONS
from walkthroughs.step import Step, registry, steps

STEPS = list(steps().values())
# What these steps show happened on a CPU, in a real engine; the lab's record says on which, and with what.
SEEN_ELSEWHERE = {"live-engine": "walkthroughs/lab/record.json"}
DATE = re.compile(r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ")
RECORD_IT = "run `make gpu-records` on a machine with a GPU"


@pytest.fixture(scope="module")
def committed() -> dict[str, Evidence]:
    return evidence.load_committed()


@pytest.fixture(scope="module")
def waiting() -> dict[str, dict[str, str]]:
    return evidence.pending()


@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.id)
def test_every_step_has_a_good_record_or_stands_in_pending(
    step: Step, committed: dict[str, Evidence], waiting: dict[str, dict[str, str]]
) -> None:
    record = committed.get(step.id)
    if record is None:
        assert step.id in waiting, f"{step.id} has no GPU record: {RECORD_IT}"
        return
    assert record.status == "passed"
    assert evidence.fresh(record, step), f"{step.id}: the record is stale: {RECORD_IT}"
    if record.backend == "cuda":
        assert record.device
        assert record.device != "SIMT machine"
        assert record.driver
        assert {"python", "numpy", "numba", "numba-cuda"} <= set(record.versions)
    else:
        assert step.walkthrough in SEEN_ELSEWHERE, "docs/evidence holds GPU records only"
        assert record.device == "SIMT machine"
        assert {"python", "numpy", "greenlet"} <= set(record.versions)
    assert all(record.versions.values())
    assert DATE.fullmatch(record.date)
    assert record.message == ""
    assert len(record.checks) >= 2
    for check in record.checks:
        assert check.passed
        assert 0 <= check.max_error <= check.tolerance


def test_only_the_live_engines_steps_read_what_another_machine_saw() -> None:
    assert {name: one.seen for name, one in registry().items() if one.seen} == SEEN_ELSEWHERE
    assert {step.walkthrough: step.seen for step in STEPS if step.seen} == SEEN_ELSEWHERE
    made = lab_record.load()
    assert made is not None
    assert lab_record.fresh(made), "the lab's record is stale: run `pagewalk lab run --record`"
    assert made.device == "CPU"
    assert {"python", "vllm", "torch"} <= set(made.versions)
    assert DATE.fullmatch(made.date)


def test_no_record_of_a_step_that_is_gone(committed: dict[str, Evidence]) -> None:
    assert set(committed) - set(steps()) == set()
    for walkthrough in registry().values():
        path = evidence.EVIDENCE / f"{walkthrough.id}.json"
        if path.exists():
            names = [record.step for record in evidence.read(path)]
            assert len(set(names)) == len(names)
            assert all(name.split("/")[0] == walkthrough.id for name in names)


def test_no_file_beside_the_records() -> None:
    others = {records.MUTATIONS_FILE, hardware.FILE, grid.FILE, grid.TUNED_FILE, bench.FILE, tuned_sanitizers.FILE}
    known = {f"{name}.json" for name in registry()} | others | {"pending.toml"}
    # Of the folder there is more in test_committed_machine.py.
    assert {path.name for path in evidence.EVIDENCE.glob("*")} - known - {machine_record.FOLDER.name} == set()


def test_nothing_is_pending(waiting: dict[str, dict[str, str]], committed: dict[str, Evidence]) -> None:
    print(f"{len(waiting)} steps wait for a GPU")
    for name, entry in waiting.items():
        assert name in steps(), f"{name}: no such step"
        assert name not in committed, f"{name}: has a record"
        assert entry.get("reason")
        assert date.fromisoformat(entry["date"])
    assert waiting == {}, f"{len(waiting)} steps wait for a GPU: {RECORD_IT}"


@pytest.fixture(scope="module")
def mutation_record() -> dict[str, Any]:
    path = evidence.EVIDENCE / records.MUTATIONS_FILE
    assert path.exists(), f"no record of the mutations: {RECORD_IT}"
    found: dict[str, Any] = json.loads(path.read_text("utf-8"))
    return found


def test_the_mutation_record_is_of_a_gpu_and_of_these_mutations(mutation_record: dict[str, Any]) -> None:
    assert mutation_record["schema"] == evidence.SCHEMA
    assert mutation_record["backend"] == "cuda"
    assert mutation_record["device"]
    assert mutation_record["driver"]
    assert {"python", "numpy", "numba", "numba-cuda"} <= set(mutation_record["versions"])
    assert DATE.fullmatch(mutation_record["date"])
    assert mutation_record["digest"] == records.mutations_digest(), f"the record is stale: {RECORD_IT}"


def test_every_mutation_was_caught_on_the_gpu(mutation_record: dict[str, Any]) -> None:
    rows = mutation_record["mutations"]
    assert len(rows) >= 12
    assert [row["id"] for row in rows] == [mutation.id for mutation in MUTATIONS]
    for row, mutation in zip(rows, MUTATIONS, strict=True):
        assert row["caught_by"] in mutation.steps, f"{row['id']} survived"
        assert row["said"]


def test_the_grid_record_is_whole_and_of_a_gpu() -> None:
    from kernels.vllm import ops_grid

    record = grid.load()
    assert record is not None, "no record of the ops' grids: run `make grid-record` on a machine with a GPU"
    assert record["backend"] == "cuda"
    assert record["device"]
    assert record["driver"]
    assert {"python", "numpy", "numba", "numba-cuda", "torch"} <= set(record["versions"])
    assert DATE.fullmatch(record["date"])
    assert grid.fresh(record), "the record is stale: run `make grid-record` on a machine with a GPU"
    found = {group["id"]: [row[0] for row in group["rows"]] for group in record["groups"]}
    assert found == {name: [case.id for case in cases] for name, cases in ops_grid.groups().items()}
    bad = [(group["id"], row[0]) for group in record["groups"] for row in group["rows"] if row[3] != "passed"]
    assert bad == []
    for group in record["groups"]:
        for row in group["rows"]:
            assert row[1] >= 0
            assert (row[1] <= row[2]) == (row[3] == "passed")
            assert group["id"].startswith("vllm") or not (row[4] or row[5])
    assert (evidence.EVIDENCE / grid.FILE).stat().st_size < 150_000
