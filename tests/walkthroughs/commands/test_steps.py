"""`pagewalk list` and `run`: what runs, what is printed, and the exit codes."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from typing import Any

import pytest

RunCli = Callable[..., "subprocess.CompletedProcess[str]"]
Rows = Callable[..., list[dict[str, Any]]]


def test_list_names_every_step(json_rows: Rows, run_cli: RunCli) -> None:
    from walkthroughs.step import steps

    done = run_cli("list", "--json")
    assert done.returncode == 0
    assert [row["id"] for row in json_rows(done, "steps")] == list(steps())
    plain = run_cli("list").stdout
    assert all(step in plain for step in steps())


def test_run_one_step_on_the_machine(json_rows: Rows, run_cli: RunCli) -> None:
    from walkthroughs.step import registry

    step = registry()["paged-reference"].steps[0]
    done = run_cli("run", step.id, "--backend", "sim", "--json")
    assert done.returncode == 0, done.stderr
    (row,) = json_rows(done, "steps")
    assert (row["id"], row["status"], row["backend"]) == (step.id, "passed", "sim")
    assert row["checks"]
    assert all(check["passed"] for check in row["checks"])
    assert "backend: sim" in done.stderr


def test_run_prints_a_line_for_each_step(run_cli: RunCli) -> None:
    from walkthroughs.step import registry

    steps = registry()["paged-reference"].steps
    done = run_cli("run", "paged-reference", "--backend", "sim")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert [line.split()[:2] for line in lines] == [["passed", step.id] for step in steps]
    assert f"{len(steps)} passed, 0 failed" in done.stderr


def test_a_step_named_twice_runs_once(json_rows: Rows, run_cli: RunCli) -> None:
    from walkthroughs.step import registry

    step = registry()["paged-reference"].steps[0]
    done = run_cli("run", step.id, step.id, "--backend", "sim", "--json")
    assert [row["id"] for row in json_rows(done, "steps")] == [step.id]


def test_a_failing_check_is_shown_and_exits_1(monkeypatch: pytest.MonkeyPatch) -> None:
    from click.testing import CliRunner

    from walkthroughs import runner
    from walkthroughs.commands.steps import run_command
    from walkthroughs.evidence import Check, Evidence
    from walkthroughs.step import registry

    step = registry()["paged-reference"].steps[0]
    check = Check("slot", False, "17", "71", 54.0, 0.0)
    record = Evidence(step.id, "failed", "sim", "SIMT machine", "", {}, "2026-01-01", 0, {}, (check,), 0.1)
    monkeypatch.setattr(runner, "run_many", lambda *args, **kwargs: iter([record]))
    plain = CliRunner().invoke(run_command, [step.id, "--backend", "sim"])
    assert plain.exit_code == 1
    assert "observed 17, expected 71" in plain.stdout
    as_json = CliRunner().invoke(run_command, [step.id, "--backend", "sim", "--json"])
    assert as_json.exit_code == 1
    assert json.loads(as_json.stdout)["steps"][0]["status"] == "failed"
    assert "observed 17, expected 71" in as_json.stderr
