"""`python -m walkthroughs.grid`: the record, its digest, the command line, and what is committed."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kernels.vllm import ops_grid, ops_reference
from walkthroughs import digest, evidence, grid
from walkthroughs.grid_workers import BLIND, ERROR, FAILED, PASSED, REFUSED, Plan, Row, Task

ROWS = [
    Row("vllm-attention", "one", PASSED, 1e-4, 1e-3, True, False, 1),
    Row("vllm-attention", "two", PASSED, 1.23456e-4, 1e-2, True, True, 1),
    Row("vllm-attention", "three", FAILED, 2.0, 1.0, False, False, 1),
    Row("flash", "four", PASSED, 0.0, 0.0, None, None, 24),
    Row("flash", "five", ERROR, message="ValueError: why"),
    Row("attention", "six", BLIND, 1e-4, 1e-3, True, False, 10),
]


def record_of(rows: list[Row]) -> dict[str, Any]:
    return {
        "schema": evidence.SCHEMA, "device": "a GPU", "date": "2026-01-02T03:04:05Z", "seconds": 9.0,
        "digest": grid.grid_digest(), "columns": grid.COLUMNS, "bounds": grid.bounds(), "groups": grid.summaries(rows),
    }  # fmt: skip


def test_a_group_has_its_counts_and_its_worst_case() -> None:
    first, second, third = grid.summaries(ROWS)
    assert (first["id"], first["title"]) == ("vllm-attention", ops_grid.TITLES["vllm-attention"])
    assert [first[key] for key in ("cases", PASSED, FAILED, BLIND, ERROR, "runs")] == [3, 2, 1, 0, 0, 3]
    assert [first[key] for key in ("compared", "zeros_pass", "shuffled_keys_pass")] == [3, 2, 1]
    assert first["worst"] == {"case": "three", "error": 2.0, "tolerance": 1.0}
    assert first["rows"][1] == ["two", 1.23e-4, 1e-2, PASSED, True, True, 1]
    assert [second[key] for key in ("cases", PASSED, ERROR, "compared", "runs")] == [2, 1, 1, 0, 24]
    assert second["worst"] == {"case": "five", "error": None, "tolerance": 0.0}
    assert second["rows"] == [
        ["four", 0.0, 0.0, PASSED, None, None, 24],
        ["five", None, 0.0, ERROR, None, None, 0, "ValueError: why"],
    ]
    assert [third[key] for key in (PASSED, BLIND)] == [0, 1]


def test_a_record_survives_its_file_a_case_a_line(tmp_path: Path) -> None:
    record = record_of(ROWS)
    text = grid.dump(record)
    assert json.loads(text) == json.loads(json.dumps(record))
    for name in ("one", "four", "five"):
        assert sum(f'["{name}", ' in line for line in text.splitlines()) == 1
    (tmp_path / grid.FILE).write_text(text, "utf-8")
    found = grid.load(tmp_path)
    assert found is not None
    assert found["groups"] == record["groups"]
    assert grid.fresh(found)


def test_the_whole_record_is_small() -> None:
    rows = [
        Row(group, case.id, PASSED, 1.2345e-07, 1.2345e-07, False, False, 10)
        for group, cases in ops_grid.groups().items()
        for case in cases
    ]
    assert len(rows) > 1000
    assert len(grid.dump(record_of(rows)).encode()) < 150_000


def test_no_record_and_no_good_record(tmp_path: Path) -> None:
    assert grid.load(tmp_path) is None
    for text in ("{", "[]", '{"schema": 0, "groups": [1]}', '{"schema": 1, "groups": []}', '{"groups": [1]}'):
        (tmp_path / grid.FILE).write_text(text, "utf-8")
        with pytest.raises(evidence.EvidenceError, match=grid.FILE):
            grid.load(tmp_path)


def test_the_digest_is_of_the_ports_the_grids_and_the_truth(monkeypatch: pytest.MonkeyPatch) -> None:
    files = set(digest.port_files(grid.GRID))
    assert {
        "kernels/vllm/ops.py", "kernels/vllm/ops_grid.py", "kernels/vllm/ops_reference.py", "kernels/numbers.py",
        "kernels/vllm/ops_attention_case.py", "kernels/vllm/ops_writer_case.py", "kernels/vllm/classic_v1.py",
        "kernels/vllm/classic_v2.py", "kernels/vllm/attention_kernels.py", "kernels/vllm/cache.py",
        "kernels/vllm/cache_flash.py", "kernels/layout.py",
    } <= files  # fmt: skip
    before = grid.grid_digest()
    assert grid.fresh({"digest": before})
    real = digest._module
    monkeypatch.setattr(digest, "_module", lambda path: "x" if path.endswith("/cache.py") else real(path))
    assert grid.grid_digest() != before
    assert not grid.fresh({"digest": before})


def test_the_bounds_are_those_of_the_reference() -> None:
    found = {bound["dtype"]: bound for bound in grid.bounds()}
    assert set(found) == set(ops_reference.BOUNDS)
    assert (found["bfloat16"]["unit"], found["bfloat16"]["roundings"]) == (2**-8, 2)
    assert (found["float16"]["unit"], found["float16"]["grain"]) == (2**-11, 2**-25)
    assert all(
        bound["float32_share"] == 1e-5 and bound["one_token"] == 5e-7 and bound["why"] for bound in found.values()
    )


# The ladder's record.


def test_the_ladders_record_has_its_own_file_digest_and_titles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [
        Row("ring", "one", PASSED, 1e-4, 1e-3, False, False, 1),
        Row("ring", "two", REFUSED, 0.0, 0.0, message="head_size = 120: must be a multiple of 16"),
    ]
    (group,) = grid.summaries(rows, grid.TUNED)
    assert "our matrix" in group["title"]
    assert [group[key] for key in ("cases", PASSED, REFUSED, FAILED, "runs")] == [2, 1, 1, 0, 1]
    assert group["rows"][1][3] == REFUSED
    assert group["rows"][1][-1] == "head_size = 120: must be a multiple of 16"
    record = {**record_of(rows), "groups": [group], "digest": grid.grid_digest(grid.TUNED)}
    (tmp_path / grid.TUNED_FILE).write_text(grid.dump(record), "utf-8")
    found = grid.load(tmp_path, grid.TUNED)
    assert found is not None
    assert grid.fresh(found, grid.TUNED)
    assert not grid.fresh(found)
    assert grid.load(tmp_path) is None
    files = set(digest.port_files(grid.TUNED.path))
    assert {
        "kernels/tuned/grid.py", "kernels/tuned/grid_case.py", "kernels/tuned/takes.py", "kernels/tuned/ladder.py",
        "kernels/tuned/ring.py", "kernels/tuned/writer.py", "kernels/vllm/ops_reference.py",
        "kernels/tuned/covering.py",
    } <= files  # fmt: skip
    real = digest._module
    monkeypatch.setattr(digest, "_module", lambda path: "x" if path.endswith("/ring.py") else real(path))
    assert not grid.fresh(found, grid.TUNED)


def test_a_refusal_does_not_fail_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    def made_up(plan: Plan, tasks: list[Task], jobs: int, told: Any) -> list[Row]:
        assert plan.source == "kernels.tuned.grid"
        rows = [Row(task.group, task.id, REFUSED, 0.0, 0.0, message="no") for task in tasks]
        for row in rows:
            told(row)
        return rows

    monkeypatch.setattr(grid, "run_all", made_up)
    command = ["--tuned", "--device", "cpu", "--small", "--only", "small-ring", "--out", str(tmp_path)]
    assert grid.main(command) == 0
    assert "refused" not in capsys.readouterr().out
    found = grid.load(tmp_path, grid.TUNED)
    assert found is not None
    assert found["groups"][0][REFUSED] == found["groups"][0]["cases"] > 10


def test_the_ladders_writer_in_a_process_of_its_own(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "walkthroughs.grid", "--tuned", "--device", "cpu", "--small"]
    done = subprocess.run(
        [*command, "--only", "small-writer", "--out", str(tmp_path)], cwd=digest.ROOT,
        env={**os.environ, "PYTHONPATH": str(digest.ROOT)}, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    record = grid.load(tmp_path, grid.TUNED)
    assert record is not None
    assert record["groups"][0][PASSED] == record["groups"][0]["cases"] == 24
    assert record["bounds"] == json.loads(json.dumps(grid.bounds(grid.TUNED)))


# The command.


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--device", "cpu", "--out", "x"], "needs --small"),
        (["--device", "cpu", "--small"], "name another folder with --out"),
        (["--small"], "name another folder with --out"),
        (["--only", "flash"], "name another folder with --out"),
        (["--device", "cpu", "--small", "--out", "x", "--only", "nothing"], "must be one of small-attention, small-"),
        (["--device", "cpu", "--small", "--out", "x", "--jobs", "0"], "--jobs 0: must be 1 or more"),
    ],
)
def test_wrong_use_exits_2_and_says_what_to_do(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert grid.main(words) == 2
    assert said in capsys.readouterr().err


def test_without_a_gpu_there_is_no_grid(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    from walkthroughs import runner

    monkeypatch.setattr(runner, "cuda_unavailable", lambda: "no GPU here")
    assert grid.main(["--out", str(tmp_path)]) == 2
    assert "no GPU here" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_case_that_does_not_pass_fails_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    def made_up(plan: Plan, tasks: list[Task], jobs: int, told: Any) -> list[Row]:
        rows = [Row(task.group, task.id, PASSED, 0.0, 0.0, None, None, 1) for task in tasks]
        rows[2] = Row(rows[2].group, rows[2].id, FAILED, math.inf, 0.0, None, None, 1)
        for row in rows:
            told(row)
        return rows

    monkeypatch.setattr(grid, "run_all", made_up)
    assert grid.main(["--device", "cpu", "--small", "--only", "small-reshape", "--out", str(tmp_path)]) == 1
    said = capsys.readouterr().out
    assert "failed  small-reshape: " in said
    assert "9 of 9" in said
    assert "9 cases in" in said
    assert "1 of them not passed" in said
    found = grid.load(tmp_path)
    assert found is not None
    assert found["groups"][0][FAILED] == 1


def test_the_small_writer_grids_in_a_process_of_their_own(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "walkthroughs.grid", "--device", "cpu", "--small", "--jobs", "2"]
    only = ["--only", "small-reshape", "--only", "small-flash", "--out", str(tmp_path)]
    done = subprocess.run(
        [*command, *only], cwd=digest.ROOT, env={**os.environ, "PYTHONPATH": str(digest.ROOT)}, capture_output=True,
        text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "18 cases in" in done.stdout
    assert "0 of them not passed" in done.stdout
    record = grid.load(tmp_path)
    assert record is not None
    assert (record["backend"], record["device"], record["driver"]) == ("sim", "SIMT machine", "")
    assert {"python", "numpy", "torch"} <= set(record["versions"])
    assert record["digest"] == grid.grid_digest()
    assert [(group["id"], group["cases"], group[PASSED]) for group in record["groups"]] == [
        ("small-reshape", 9, 9),
        ("small-flash", 9, 9),
    ]
    want = [case.id for case in ops_grid.small_groups()["small-flash"]]
    assert [row[0] for row in record["groups"][1]["rows"]] == want
    assert all(row[1] == 0 for group in record["groups"] for row in group["rows"])
