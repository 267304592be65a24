"""`pagewalk run --against` as a reader types it: what is missing is said, and wrong use names what would be right."""

from __future__ import annotations

import importlib.util
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

RunCli = Callable[..., "subprocess.CompletedProcess[str]"]
Rows = Callable[..., list[dict[str, Any]]]
STEP = "findings/unwritten-heads"
here = importlib.util.find_spec("vllm") is not None
without_vllm = pytest.mark.skipif(here, reason="vLLM is installed here")


@without_vllm
def test_without_vllm_the_command_says_so_and_exits_2(run_cli: RunCli) -> None:
    done = run_cli("run", STEP, "--backend", "sim", "--against", "vllm")
    assert done.returncode == 2
    assert f"passed   {STEP} " in done.stdout, "ours ran all the same"
    assert f"unavailable  {STEP}@vllm" in done.stdout
    assert "vLLM is not installed" in done.stdout
    assert "What to do: " in done.stdout
    assert "--against-python PATH" in done.stdout
    assert "1 passed, 0 failed, 1 unavailable" in done.stderr
    assert "Traceback" not in done.stderr


@without_vllm
def test_without_vllm_in_json(json_rows: Rows, run_cli: RunCli) -> None:
    done = run_cli("run", STEP, "--backend", "sim", "--against", "vllm", "--json")
    assert done.returncode == 2
    ours, theirs = json_rows(done, "steps")
    assert (ours["id"], ours["status"]) == (STEP, "passed")
    assert (theirs["id"], theirs["status"], theirs["checks"]) == (f"{STEP}@vllm", "unavailable", [])
    assert "vLLM is not installed" in theirs["message"]
    assert "vLLM is not installed" in done.stderr


def test_a_made_up_vllm_on_the_path_is_asked_and_the_gpu_is_missed(run_cli: RunCli, tmp_path: Path) -> None:
    """The command asks for CUDA: a vLLM without a GPU is not enough."""
    import torch

    if torch.cuda.is_available():
        pytest.skip("PyTorch has a GPU here")
    (tmp_path / "vllm").mkdir()
    (tmp_path / "vllm" / "__init__.py").write_text("raise RuntimeError('must not be imported')")
    root = str(Path(__file__).resolve().parents[3])
    env = {"PYTHONPATH": f"{tmp_path}:{root}"}
    done = run_cli("run", STEP, "--backend", "sim", "--against", "vllm", env=env)
    assert done.returncode == 2
    assert f"PyTorch {torch.__version__}" in done.stdout
    assert "vLLM is not installed" not in done.stdout


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["vllm-writers/one-run", "--against", "vllm"], STEP),
        (["vllm-writers", STEP, "--against", "vllm"], "vllm-writers/slots and 6 more of the chosen steps have"),
        (["--all", "--against", "vllm"], STEP),
        ([STEP, "--against", "flashinfer"], "vllm"),
        ([STEP, "--against-python", "python3"], "--against"),
        ([STEP, "--against", "vllm", "--against-python", "no-such-python"], "no-such-python: no such program"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_wrong_use(run_cli: RunCli, args: list[str], said: str) -> None:
    done = run_cli("run", *args)
    assert done.returncode == 2
    assert said in done.stderr
    assert done.stdout == ""
    assert "Traceback" not in done.stderr


def test_a_step_without_a_comparison_is_named_with_those_that_have_one(run_cli: RunCli) -> None:
    done = run_cli("run", "paged-reference/dense", "--against", "vllm", "--json")
    assert (done.returncode, done.stdout) == (2, "")
    assert "paged-reference/dense has no comparison with it. Steps that have one: " + STEP in done.stderr
