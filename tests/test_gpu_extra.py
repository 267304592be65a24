"""The choice of numba-cuda's extra by the driver: the table, odd answers of nvidia-smi, the script."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernels import gpu_extra

ROOT = Path(__file__).resolve().parent.parent
SCRIPT = ROOT / "kernels" / "gpu_extra.py"


def fake_smi(folder: Path, body: str) -> Path:
    """Put an executable ``nvidia-smi`` into a folder."""
    program = folder / "nvidia-smi"
    program.write_text(f"#!/bin/sh\n{body}\n")
    program.chmod(0o755)
    return program


def run_script(path: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-I", str(SCRIPT)],
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize(
    ("version", "extra"),
    [
        ("580.65.06", "cu13"),
        ("580.0", "cu13"),
        ("600.1.2", "cu13"),
        ("579.99.99", "cu12"),
        ("535.104.05", "cu12"),
        ("525.60.13", "cu12"),
        ("524.99", None),
        ("470.57.02", None),
        (None, None),
    ],
)
def test_table(version: str | None, extra: str | None) -> None:
    assert gpu_extra.extra_for(version) == extra


@given(st.integers(300, 999), st.integers(0, 999))
def test_a_newer_driver_never_gets_an_older_extra(branch: int, more: int) -> None:
    order = [None, "cu12", "cu13"]
    here = order.index(gpu_extra.extra_for(f"{branch}.1"))
    newer = order.index(gpu_extra.extra_for(f"{branch + more}.1"))
    assert newer >= here


def test_requirement() -> None:
    assert gpu_extra.requirement("cu13") == "numba-cuda[cu13]==0.30.4"
    assert gpu_extra.requirement(None) == ""


def test_the_version_is_the_locked_one() -> None:
    locked = (ROOT / "requirements.lock").read_text().split()
    assert f"numba-cuda=={gpu_extra.NUMBA_CUDA}" in locked
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert f"numba-cuda=={gpu_extra.NUMBA_CUDA}" in project["dependencies"]


@pytest.mark.parametrize(
    ("body", "version"),
    [
        ("echo 580.65.06", "580.65.06"),
        ("echo 535.104.05; echo 535.104.05", "535.104.05"),  # two GPUs, one driver
        ("echo ' 535.104.05 '", "535.104.05"),
        ("echo 'NVIDIA-SMI has failed because it could not talk to the driver 1.2.'; exit 9", None),
        ("echo 'No devices were found'", None),
        ("echo 580.65.06; exit 1", None),
        ("true", None),
    ],
)
def test_answers_of_the_driver(tmp_path: Path, body: str, version: str | None) -> None:
    program = fake_smi(tmp_path, body)
    assert gpu_extra.driver_version((str(program),)) == version


def test_no_program_means_no_driver(tmp_path: Path) -> None:
    assert gpu_extra.driver_version((str(tmp_path / "absent"),)) is None


def test_asks_for_the_driver_version_only(tmp_path: Path) -> None:
    program = fake_smi(tmp_path, 'echo "$@" > "$0.args"; echo 580.1')
    assert gpu_extra.driver_version((str(program), *gpu_extra.QUERY[1:])) == "580.1"
    asked = (tmp_path / "nvidia-smi.args").read_text().split()
    assert asked == ["--query-gpu=driver_version", "--format=csv,noheader"]


@pytest.mark.parametrize(
    ("body", "stdout"),
    [
        ("echo 580.65.06", "numba-cuda[cu13]==0.30.4\n"),
        ("echo 550.54.14", "numba-cuda[cu12]==0.30.4\n"),
        ("exit 9", ""),
    ],
)
def test_as_make_runs_it(tmp_path: Path, body: str, stdout: str) -> None:
    fake_smi(tmp_path, body)
    done = run_script(f"{tmp_path}:{os.environ['PATH']}")
    assert (done.returncode, done.stdout, done.stderr) == (0, stdout, "")


def test_an_old_driver_is_said_and_installs_nothing(tmp_path: Path) -> None:
    fake_smi(tmp_path, "echo 470.57.02")
    done = run_script(f"{tmp_path}:{os.environ['PATH']}")
    assert (done.returncode, done.stdout) == (0, "")
    assert "470.57.02" in done.stderr
    assert "525" in done.stderr


def test_without_a_driver_it_prints_nothing(tmp_path: Path) -> None:
    done = run_script(str(tmp_path))
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
