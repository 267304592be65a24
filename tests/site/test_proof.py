from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from walkthroughs.evidence import Check, Evidence, Measurement
from walkthroughs.lab import record as lab_record
from walkthroughs.site.errors import StepNotProven
from walkthroughs.site.proof import number, prove, seen_badge


def record(backend: str = "cuda", status: str = "passed", **changes: Any) -> Evidence:
    check = Check("sum", status == "passed", "1", "2", 0.00123, 0.01, "a note")
    values: dict[str, Any] = {
        "step": "w/s",
        "status": status,
        "backend": backend,
        "device": "NVIDIA H200" if backend == "cuda" else "SIMT machine",
        "driver": "580",
        "versions": {"numpy": "2.4.6"},
        "date": "2026-11-30T01:02:03Z",
        "seed": 7,
        "digests": {"port": "ab"},
        "checks": (check,),
        "seconds": 0.1,
    }
    return Evidence(**{**values, **changes})


GPU, SIM = record(), record("sim", device="SIMT machine")


def badges(*args: Any) -> list[tuple[str, str]]:
    return [(badge.kind, badge.text) for badge in prove("w/s", *args).badges]


def test_a_fresh_gpu_record_is_what_counts() -> None:
    assert badges(GPU, True, SIM, None) == [("gpu", "NVIDIA H200, 2026-11-30, max error 0.0012")]
    assert prove("w/s", GPU, True, SIM, None).rows_from == "Observed on NVIDIA H200, 2026-11-30"


def test_a_stale_record_gives_way_to_a_run_here_and_says_so() -> None:
    proof = prove("w/s", GPU, False, SIM, None)
    assert [badge.kind for badge in proof.badges] == ["stale", "sim"]
    assert "NVIDIA H200, 2026-11-30" in proof.badges[0].text
    assert proof.rows_from == "Observed on SIMT machine, 2026-11-30"
    assert [row.verdict for row in proof.rows] == ["passed"]


def test_a_stale_record_alone_is_shown_as_stale_in_every_row() -> None:
    proof = prove("w/s", GPU, False, None, None)
    assert [badge.kind for badge in proof.badges] == ["stale"]
    assert [row.verdict for row in proof.rows] == ["stale"]
    assert "before the code changed" in proof.rows_from


def test_a_pending_step_says_why() -> None:
    found = badges(None, False, SIM, {"reason": "no machine was free", "date": "2026-11-30"})
    assert found[0] == ("pending", "not yet validated on a GPU: no machine was free")
    assert found[1] == ("sim", "SIMT machine, 2026-11-30, max error 0.0012")


def test_without_a_record_or_a_reason_it_still_says_that_no_gpu_has_run_it() -> None:
    assert badges(None, False, SIM, None)[0] == ("pending", "not yet validated on a GPU")


def test_a_run_on_this_machines_gpu_is_a_gpu_badge() -> None:
    assert [kind for kind, _ in badges(None, False, record(device="NVIDIA L4"), None)] == ["gpu"]


def test_a_committed_record_of_the_simt_machine_counts_until_a_gpu_here_has_run_the_step() -> None:
    assert [kind for kind, _ in badges(SIM, True, None, None)] == ["sim"]
    assert [kind for kind, _ in badges(SIM, True, SIM, None)] == ["sim"]
    assert [kind for kind, _ in badges(SIM, True, record(device="NVIDIA L4"), None)] == ["gpu"]
    assert badges(GPU, True, record(device="NVIDIA L4"), None)[0][1].startswith("NVIDIA H200")


def test_what_another_machine_saw_has_a_badge_of_its_own(tmp_path: Path) -> None:
    assert seen_badge("") == ()
    (badge,) = seen_badge("walkthroughs/lab/record.json")
    assert badge.kind == "cpu"
    assert badge.text.startswith("seen on a CPU, vLLM 0.32.0, torch 2.13.0")
    made = lab_record.load()
    assert made is not None
    for change, kind, said in (
        ({"device": "NVIDIA H200"}, "gpu", "seen on NVIDIA H200, vLLM"),
        ({"digest": "0"}, "stale", "stale: the lab has changed"),
    ):
        lab_record.write(replace(made, **change), tmp_path / "record.json")
        (badge,) = seen_badge(str(tmp_path / "record.json"))
        assert badge.kind == kind
        assert badge.text.startswith(said)
    (badge,) = seen_badge(str(tmp_path / "none.json"))
    assert badge.kind == "pending"


def test_no_evidence_at_all_stops_the_build_and_says_what_to_run() -> None:
    with pytest.raises(StepNotProven, match=r"step w/s: .*pagewalk run w/s"):
        prove("w/s", None, False, None, None)


def test_pending_is_no_excuse_for_never_having_run() -> None:
    with pytest.raises(StepNotProven):
        prove("w/s", None, False, None, {"reason": "none free"})


@pytest.mark.parametrize("status", ["failed", "error"])
def test_a_failed_record_stops_the_build(status: str) -> None:
    with pytest.raises(StepNotProven, match="NVIDIA H200"):
        prove("w/s", record(status=status, message="boom" if status == "error" else ""), True, SIM, None)
    with pytest.raises(StepNotProven, match="SIMT machine"):
        prove("w/s", GPU, True, record("sim", status=status), None)


def test_a_stale_record_that_failed_is_not_shown_as_if_it_proved_anything() -> None:
    proof = prove("w/s", record(status="failed"), False, None, None)
    assert [row.verdict for row in proof.rows] == ["stale"]


def test_the_failed_checks_are_named() -> None:
    with pytest.raises(StepNotProven, match=r"failed \(sum\)"):
        prove("w/s", record(status="failed"), True, None, None)


def test_a_row_has_everything_that_the_check_has() -> None:
    row = prove("w/s", GPU, True, None, None).rows[0]
    assert (row.name, row.observed, row.expected, row.error, row.tolerance, row.note) == (
        "sum",
        "1",
        "2",
        "0.0012",
        "0.01",
        "a note",
    )


def test_a_measured_value_stands_below_the_checks_with_its_unit_and_no_expectation() -> None:
    measured = Measurement("a copy", 12.34, "µs", 11.0, 13.0, "16 of them")
    proof = prove("w/s", record(measured=(measured,)), True, None, None)
    assert [row.name for row in proof.rows] == ["sum", "a copy"]
    row = proof.rows[1]
    assert (row.observed, row.verdict) == ("12.3 µs (10th to 90th percentile: 11 to 13)", "measured")
    assert {row.expected, row.error, row.tolerance} == {"–"}
    assert row.note == "16 of them"
    assert proof.rows_from == "Observed on NVIDIA H200, 2026-11-30"
    stale = prove("w/s", record(measured=(measured,)), False, None, None)
    assert [row.verdict for row in stale.rows] == ["stale", "stale"]


def test_a_measured_value_proves_nothing() -> None:
    measured = Measurement("a copy", 1.0, "µs")
    with pytest.raises(StepNotProven):
        prove("w/s", record(status="failed", measured=(measured,)), True, None, None)


def test_what_could_not_be_measured_is_said() -> None:
    rows = prove("w/s", None, False, record("sim", measured=(Measurement("a copy", None, "µs"),)), None).rows
    assert (rows[-1].observed, rows[-1].verdict) == ("not measured", "measured")


def test_the_record_leaves_out_what_is_empty() -> None:
    facts = dict(prove("w/s", None, False, record("sim", driver=""), None).record)
    assert "Driver" not in facts
    assert facts["Versions"] == "numpy 2.4.6"
    assert facts["Seed"] == "7"


@pytest.mark.parametrize(
    ("value", "shown"), [(0.0, "0"), (0.0029, "0.0029"), (1.234e-7, "1.2e-07"), (float("inf"), "inf")]
)
def test_numbers_are_short(value: float, shown: str) -> None:
    assert number(value) == shown
