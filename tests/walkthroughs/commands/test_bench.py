"""`pagewalk bench`: the record in words and as JSON, and what it says where nothing can be measured."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from click.testing import CliRunner, Result

from kernels.tuned import bench_record, shapes
from walkthroughs import bench
from walkthroughs.commands.bench import bench_command


def _sample() -> ModuleType:
    name = "pagewalk_bench_sample"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, Path(__file__).parents[2] / "bench_sample.py")
        assert spec
        assert spec.loader
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]


sample = _sample()


def run(*args: str) -> Result:
    return CliRunner().invoke(bench_command, list(args))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("record")
    bench_record.write(path / bench.FILE, sample.record(bench.bench_digest()))
    return path


def test_the_record_is_shown_and_said_to_be_one(folder: Path) -> None:
    found = run("--out", str(folder), "--recorded", "--set", "facts")
    assert found.exit_code == 0
    assert "facts: Some <GPU>, 580.1, 2026-01-02, 8 cells\n" in found.stdout
    assert "Qwen2.5-7B:  64 x 4096, 28/4, 128  537 MB, 2 sets" in found.stdout
    assert "refused: a group of 7" in found.stdout
    assert "matrix: Some <GPU>" not in found.stdout
    assert "fp8 cache at batch 64: at least 1.7 times as fast as bf16: 1.9" in found.stdout


def test_json_has_the_envelope(folder: Path) -> None:
    found = run("--out", str(folder), "--recorded", "--json")
    data = json.loads(found.stdout)
    assert data["schema"] == 1
    cells: dict[str, Any] = {cell["id"]: cell for cell in data["cells"]}
    assert len(cells) == sum(len(made.cells) for made in sample.record().sets.values())
    qwen = cells[f"facts/{shapes.QWEN_7B.id}"]
    assert qwen["status"] == "passed"
    assert {row["who"]: row["state"] for row in qwen["rows"]}["flashinfer"] == "refused"


def test_an_old_record_is_stale(tmp_path: Path) -> None:
    bench_record.write(tmp_path / bench.FILE, sample.record("old"))
    assert "STALE: the code has changed since" in run("--out", str(tmp_path), "--recorded").stdout
    data = json.loads(run("--out", str(tmp_path), "--recorded", "--json").stdout)
    assert {cell["status"] for cell in data["cells"]} == {"stale"}


def test_without_a_record_it_says_how_to_make_one(tmp_path: Path) -> None:
    found = run("--out", str(tmp_path), "--recorded")
    assert found.exit_code == 0
    assert "`make bench`, on a machine with a GPU" in found.stdout
    assert json.loads(run("--out", str(tmp_path), "--recorded", "--json").stdout) == {"schema": 1, "cells": []}
    assert "no set called x" in run("--out", str(tmp_path), "--recorded", "--set", "x").stderr


def test_without_a_gpu_the_reason_is_said(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kernels.kernel.cuda_unavailable", lambda: "no GPU of a test")
    found = run("--out", str(folder), "--set", "host")
    assert "not measured here: no GPU of a test" in found.stderr
    assert "host: Some <GPU>" in found.stdout


def test_with_a_gpu_it_measures(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[list[str]] = []

    def measure(arguments: list[str], say: Any) -> int:
        given.append(arguments)
        say("a row as it comes")
        return 1

    monkeypatch.setattr("kernels.kernel.cuda_unavailable", lambda: None)
    monkeypatch.setattr(bench, "main", measure)
    found = run("--out", str(folder), "--set", "facts", "--rung", "ring", "--without", "torch-flex", "--plans", "all",
                "--seconds", "9", "--also", "mine")  # fmt: skip
    assert given == [[
        "--set", "facts", "--rung", "ring", "--without", "torch-flex", "--also", "mine", "--plans", "all",
        "--seconds", "9.0", "--out", str(folder),
    ]]  # fmt: skip
    assert found.exit_code == 1
    assert "a row as it comes" in found.stderr
    assert "facts: Some <GPU>" in found.stdout


def test_a_damaged_record_is_said(tmp_path: Path) -> None:
    (tmp_path / bench.FILE).write_text("[]")
    found = run("--out", str(tmp_path), "--recorded")
    assert found.exit_code == 1
    assert "bench.json" in found.stderr
