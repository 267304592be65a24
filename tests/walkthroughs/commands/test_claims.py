"""`pagewalk claims`: the table, one claim in full, JSON, and the exit codes."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from click.testing import CliRunner

from annotate.sourcetree import SourceTree
from walkthroughs.claims import compute as compute_module
from walkthroughs.claims.compute import compute
from walkthroughs.claims.context import Context
from walkthroughs.claims.ledger import claims
from walkthroughs.claims.model import Claim, Finding, Result, Verdict
from walkthroughs.commands.claims import claims_command

RunCli = Callable[..., "subprocess.CompletedProcess[str]"]
Rows = Callable[..., list[dict[str, Any]]]


def made(claim: Claim, verdict: Verdict | None, status: str, message: str = "") -> Result:
    return Result(claim, tuple(Finding(True, "seen") for _ in claim.facts), verdict, status, message)


@pytest.fixture
def everything_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    def quickly(context: Any = None, chosen: Any = None) -> dict[str, Result]:
        return {claim.id: made(claim, claim.expected, "passed") for claim in chosen}

    monkeypatch.setattr(compute_module, "compute_all", quickly)


@pytest.mark.source
def test_json_has_every_claim_with_its_facts(
    json_rows: Rows, run_cli: RunCli, vllm_024: SourceTree, vllm_026: SourceTree
) -> None:
    done = run_cli("claims", "--json")
    assert done.returncode == 0, done.stderr
    rows = {row["id"]: row for row in json_rows(done, "claims")}
    assert list(rows) == list(claims())
    row = rows["L1-11"]
    assert (row["status"], row["verdict"], row["expected"]) == ("passed", "wrong", "wrong")
    assert row["facts"][0]["role"] == "refutes"
    assert row["facts"][0]["true"] is True
    assert row["facts"][0]["places"][0]["first"] < row["facts"][0]["places"][1]["first"]
    assert rows["L1-10"]["facts"][2]["runs"][0]["id"] == "vllm-live/one-pass"
    assert {row["status"] for row in rows.values()} <= {"passed", "unavailable"}
    for row in rows.values():
        assert (row["verdict"] is None) == (row["status"] == "unavailable")


@pytest.mark.source
def test_one_claim_is_shown_in_full(run_cli: RunCli, vllm_024: SourceTree) -> None:
    done = run_cli("claims", "--id", "l1-40")
    assert done.returncode == 0, done.stderr
    assert "L1-40" in done.stdout
    assert "attention_kernels.cuh:333-338" in done.stdout
    assert "/blob/v0.24.0/" in done.stdout
    assert "vllm-classic/normalise on NVIDIA H200" in done.stdout
    assert "1 claims: 1 wrong" in done.stderr


@pytest.mark.usefixtures("everything_passes")
def test_the_table_has_a_heading_for_each_group() -> None:
    done = CliRunner().invoke(claims_command, [])
    assert done.exit_code == 0
    for group in {claim.group for claim in claims().values()}:
        assert f"\n{group}\n" in f"\n{done.stdout}"
    assert all(name in done.stdout for name in claims())
    assert f"{len(claims())} claims: " in done.stderr


@pytest.mark.usefixtures("everything_passes")
def test_only_the_wrong_ones() -> None:
    done = CliRunner().invoke(claims_command, ["--wrong"])
    shown = {name for name in claims() if name in done.stdout}
    assert shown == {claim.id for claim in claims().values() if claim.expected is Verdict.WRONG}


@pytest.mark.parametrize(("status", "code"), [("failed", 1), ("error", 1), ("unavailable", 0), ("passed", 0)])
def test_exit_codes(monkeypatch: pytest.MonkeyPatch, status: str, code: int) -> None:
    def one(context: Any = None, chosen: Any = None) -> dict[str, Result]:
        verdict = None if status in ("error", "unavailable") else claims()["L1-16"].expected
        return {"L1-16": made(claims()["L1-16"], verdict, status, "why it is so")}

    monkeypatch.setattr(compute_module, "compute_all", one)
    done = CliRunner().invoke(claims_command, ["--id", "L1-16"])
    assert done.exit_code == code
    if status != "passed":
        assert "why it is so" in done.stdout + done.stderr


def test_an_unknown_id_is_answered_with_the_nearest(run_cli: RunCli) -> None:
    done = run_cli("claims", "--id", "L1-999")
    assert done.returncode == 2
    assert "L1-" in done.stderr
    assert "`pagewalk claims` lists them" in done.stderr


def test_a_claim_whose_source_is_missing_says_how_to_get_it(run_cli: RunCli, empty_cache: dict[str, str]) -> None:
    done = run_cli("claims", "--id", "L1-11", env=empty_cache)
    assert done.returncode == 0
    assert "unavailable" in done.stdout
    assert "pagewalk fetch vllm@0.24.0" in done.stdout
    # The lines are known all the same.
    assert "attention_kernels.cuh:372-426" in done.stdout


def test_a_false_fact_is_marked(monkeypatch: pytest.MonkeyPatch) -> None:
    claim = claims()["D-05"]
    doctored = replace(claim.facts[0], params={**claim.facts[0].params, "equals": 255})
    broken = replace(claim, facts=(doctored, *claim.facts[1:]))
    result = compute(broken, Context())
    monkeypatch.setattr(compute_module, "compute_all", lambda context=None, chosen=None: {claim.id: result})
    done = CliRunner().invoke(claims_command, ["--id", "D-05"])
    assert done.exit_code == 1
    assert "NO  for it: 32 lanes fetch 8 values each" in done.stdout
    assert "the ledger expects 'holds'" in done.stderr
