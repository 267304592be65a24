"""The kinds of checks that look at runs: steps, the hardware record, what no record has, arithmetic."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from walkthroughs import evidence
from walkthroughs.claims import context as context_module
from walkthroughs.claims.context import Context
from walkthroughs.claims.dispatch import carry_out
from walkthroughs.claims.model import CheckError
from walkthroughs.evidence import Check, Evidence

STEP = "vllm-classic/normalise"
HARDWARE = {
    "device": "a GPU",
    "date": "2026-01-02T03:04:05Z",
    "verdicts": [
        {"id": "k/small", "tool": "racecheck", "gpu": "race", "machine": "race", "result": "agree"},
        {"id": "k/large", "tool": "racecheck", "gpu": "race", "machine": "clean", "result": "disagree"},
    ],
    "memory": [{"id": "a", "gpu": {"ld_sectors": 5}}, {"id": "b", "gpu": {"ld_sectors": 9}}],
}


def record(*checks: Check, status: str = "passed") -> Evidence:
    return Evidence(STEP, status, "cuda", "a GPU", "", {}, "2026-01-02T03:04:05Z", 0, {}, checks, 0.1)


def check_of(name: str, observed: str, *, passed: bool = True) -> Check:
    return Check(name, passed, observed, observed, 0.0, 0.0)


@pytest.mark.parametrize(
    ("made", "params", "value"),
    [
        (record(check_of("sum", "3")), {"named": "sum"}, True),
        (record(check_of("sum", "3")), {"named": "sum", "observed": "3"}, True),
        (record(check_of("sum", "3")), {"named": "sum", "observed": "4"}, False),
        (record(check_of("sum", "3", passed=False)), {"named": "sum"}, False),
        (record(check_of("sum", "3"), status="error"), {"named": "sum"}, False),
        (record(check_of("a", "1"), check_of("b", "2", passed=False)), {"named": ["a", "b"]}, False),
    ],
)
def test_a_step_fact_is_what_its_record_saw(made: Evidence, params: dict[str, Any], value: bool) -> None:
    found = carry_out(Context(records={STEP: made}), "vllm@0.24.0", "step", {"step": STEP, **params})
    assert found.value is value
    assert [str(run) for run in found.runs] == [f"{STEP} on a GPU, 2026-01-02"]


@pytest.mark.parametrize(
    ("params", "said"),
    [({"step": STEP, "named": "none"}, "it has sum"), ({"step": "vllm-classic/normalize", "named": "x"}, STEP)],
)
def test_an_unknown_step_or_check_is_a_wrong_check(params: dict[str, Any], said: str) -> None:
    context = Context(records={STEP: record(check_of("sum", "3"))})
    with pytest.raises(CheckError, match=said):
        carry_out(context, "vllm@0.24.0", "step", params)


def test_a_stale_record_is_not_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    from walkthroughs import runner

    stale = replace(evidence.load_committed()[STEP], digests={"port": "of another day"})
    monkeypatch.setattr(context_module, "_committed", lambda: {STEP: stale})
    monkeypatch.setattr(runner, "cached", lambda step, backend: None)
    found = carry_out(Context(run=False), "vllm@0.24.0", "step", {"step": STEP, "named": "sum of the weights"})
    assert found.value is None
    assert f"pagewalk run {STEP}" in found.seen


def test_a_step_without_a_record_is_run_on_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    from walkthroughs import runner

    monkeypatch.setattr(context_module, "_committed", dict)
    monkeypatch.setattr(runner, "cached", lambda step, backend: None)
    found = carry_out(Context(), "", "step", {"step": STEP, "named": "a lone token's weight is below one"})
    assert found.value is True
    assert found.runs[0].device == "SIMT machine"


@pytest.mark.parametrize(
    ("row", "finds", "value"), [("k/small", "race", True), ("k/small", "clean", False), ("k/large", "race", False)]
)
def test_a_tool_fact_needs_both_the_gpu_and_the_machine(row: str, finds: str, value: bool) -> None:
    params = {"row": row, "tool": "racecheck", "finds": finds}
    found = carry_out(Context(hardware=HARDWARE), "", "tool", params)
    assert found.value is value
    assert found.runs[0].kind == "hardware"


def test_a_row_that_is_not_there_is_a_wrong_check() -> None:
    with pytest.raises(CheckError, match="no row"):
        carry_out(Context(hardware=HARDWARE), "", "tool", {"row": "k", "tool": "memcheck", "finds": "clean"})


def test_sectors_are_compared() -> None:
    context = Context(hardware=HARDWARE)
    assert carry_out(context, "", "sectors", {"row": "a", "fewer-than": "b"}).value is True
    assert carry_out(context, "", "sectors", {"row": "b", "fewer-than": "a"}).value is False


def test_an_old_hardware_record_is_not_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    from walkthroughs import hardware

    monkeypatch.setattr(hardware, "hardware_digest", lambda: "of another day")
    found = carry_out(Context(), "", "sectors", {"row": "a", "fewer-than": "b"})
    assert found.value is None
    assert "make hardware-record" in found.seen


def test_no_record_is_true_until_one_is_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(evidence, "EVIDENCE", tmp_path)
    (tmp_path / "a.json").write_text("{}", encoding="utf-8")
    assert carry_out(Context(), "", "no-record", {"of": ["occupancy"]}).value is True
    (tmp_path / "b.json").write_text('{"achieved_occupancy": 0.5}', encoding="utf-8")
    found = carry_out(Context(), "", "no-record", {"of": ["occupancy"]})
    assert (found.value, found.seen) == (False, "b.json has it")


@pytest.mark.parametrize(
    ("params", "value"),
    [
        ({"is": "1 + 1", "equals": 2}, True),
        ({"is": "1 + 1", "equals": 3}, False),
        ({"is": "2 > 1"}, True),
        ({"is": "2 < 1"}, False),
        ({"is": "0.1 + 0.2", "equals": 0.3}, True),
        ({"is": "0.1 + 0.2", "equals": 0.31}, False),
        ({"is": "[1, 2]", "equals": [1, 2]}, True),
    ],
)
def test_a_layout_fact_is_an_equation(params: dict[str, Any], value: bool) -> None:
    found = carry_out(Context(), "", "layout", params)
    assert found.value is value
    assert found.seen.startswith(params["is"])
