"""Comparisons with a vLLM: a made-up one on the CPU stands for the real one, in each state a reader may meet."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

from kernels import cases
from walkthroughs import against
from walkthroughs.against import Comparison
from walkthroughs.commands.steps import run_command
from walkthroughs.evidence import Evidence
from walkthroughs.step import steps

STEP = "findings/unwritten-heads"
HEAD = (
    "def reshape_and_cache(key, value, key_cache, value_cache, slot_mapping, kv_cache_dtype, k_scale, v_scale{more}):\n"
)
# Piece by piece, as threads would: at most so many of them.
BODY = """
    import torch
    assert kv_cache_dtype == "auto" and slot_mapping.dtype == torch.int64
    assert k_scale.dtype == v_scale.dtype == torch.float32 and float(k_scale) == float(v_scale) == 1.0
    _, heads, groups, block_size, x = key_cache.shape
    print("a library that talks on stdout")
    for token, slot in enumerate(slot_mapping.tolist()):
        block, offset = slot // block_size, slot % block_size
        for piece in range(min(heads * groups, {limit})):
            head, group = piece // groups, piece % groups
            part = slice(group * x, group * x + x)
            key_cache[block, head, group, offset] = key[token, head, part]
            value_cache[block, head, part, offset] = value[token, head, part]
"""
OPS = {
    "limited": HEAD.format(more="") + BODY.format(limit=512),
    "complete": HEAD.format(more="") + BODY.format(limit="10**9"),
    "one more": HEAD.format(more=", interleaved_v") + BODY.format(limit=512),
    "not compiled": HEAD.format(more="") + "    import torch\n    torch.ops._C_cache_ops.reshape_and_cache(key)\n",
    "raises": HEAD.format(more="") + "    raise RuntimeError('an illegal access')\n",
    "dies": HEAD.format(more="") + "    import os, signal\n    os.kill(os.getpid(), signal.SIGKILL)\n",
    "broken": "raise ImportError('libcudart.so.13: no such file')\n",
}
Install = Callable[[str], None]


@pytest.fixture
def vllm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Put a vLLM 0.99.0 with one of `OPS` before everything else, for processes started from here on."""

    def install(op: str) -> None:
        package = tmp_path / "site" / "vllm"
        package.mkdir(parents=True)
        (package / "__init__.py").write_text("__version__ = '0.99.0'\n")
        (package / "_custom_ops.py").write_text(OPS[op])
        monkeypatch.syspath_prepend(str(package.parent))  # for the tests in this process
        old = [path for path in [os.environ.get("PYTHONPATH")] if path]
        monkeypatch.setenv("PYTHONPATH", ":".join([str(package.parent), *old]))

    return install


@pytest.fixture
def comparison() -> Comparison:
    return against.comparisons("vllm")[STEP]


def run(comparison: Comparison, device: str = "cpu") -> Evidence:
    return against.run(comparison, device=device)


def test_the_step_of_the_finding_is_registered(comparison: Comparison) -> None:
    assert list(against.comparisons("vllm")) == [STEP]
    assert (comparison.step, comparison.against) == (STEP, "vllm")
    assert set(against.comparisons("vllm")) <= set(steps())
    assert against.comparisons("somebody") == {}


def test_an_op_with_the_limit_passes(vllm: Install, comparison: Comparison) -> None:
    vllm("limited")
    record = run(comparison)
    assert (record.step, record.status) == (f"{STEP}@vllm", "passed")
    assert record.message == "vLLM 0.99.0 leaves the same heads unwritten as our port"
    assert (record.backend, record.device) == ("vllm", "CPU")
    assert record.versions.keys() == {"vllm", "torch"}
    assert record.versions["vllm"] == "0.99.0"
    seen = {check.name: check.observed for check in record.checks}
    assert seen["40 heads of 128, float16: heads untouched"] == "32 to 39"
    assert record.seed == 41
    assert Evidence.from_json(json.loads(json.dumps(record.to_json()))) == record


def test_an_op_that_writes_everything_is_told_apart(vllm: Install, comparison: Comparison) -> None:
    vllm("complete")
    record = run(comparison)
    assert record.status == "failed"
    assert record.message == "theirs writes all heads: the finding does not apply to vLLM 0.99.0"
    seen = {check.name: (check.observed, check.passed) for check in record.checks}
    assert seen["40 heads of 128, float16: heads written"] == ("0 to 39", False)
    assert seen["8 heads of 128, float16: heads written"] == ("0 to 7", True)


def test_the_inputs_stay_as_they_are(vllm: Install) -> None:
    vllm("complete")
    case = cases.write_case(3, 2, 32, 8, "float16", padding=0)
    answer = against.ask([case, case], sys.executable, "cpu")
    assert answer.status == "ran"
    assert len(answer.caches) == 2
    assert np.isnan(case.k_cache).all()
    for one, other in zip(*answer.caches, strict=True):
        assert one.dtype == np.float16
        assert not np.isnan(one).all()
        np.testing.assert_array_equal(one, other)


# -- what may be missing


@pytest.mark.parametrize(
    ("op", "said", "to_do"),
    [
        ("one more", "interleaved_v", "0.24.0 to 0.32.0"),
        ("not compiled", "vLLM 0.99.0 has no compiled reshape_and_cache here", "built for this GPU"),
        ("broken", "libcudart.so.13", "--against-python"),
    ],
)
def test_an_op_that_cannot_be_called_is_unavailable(
    vllm: Install, comparison: Comparison, op: str, said: str, to_do: str
) -> None:
    vllm(op)
    record = run(comparison)
    assert record.status == "unavailable"
    assert said in record.message
    assert to_do in record.message.split("What to do: ")[1]
    assert record.checks == ()


def test_without_vllm(comparison: Comparison) -> None:
    record = run(comparison)
    assert record.status == "unavailable"
    assert record.message.startswith("vLLM is not installed (under ")
    assert "0.24.0 to 0.32.0" in record.message
    assert "PyTorch is" not in record.message


@pytest.mark.parametrize(
    ("build", "said", "to_do"),
    [
        ("cuda, hip = None, None", "PyTorch 9.9 is a build without CUDA", "built for CUDA"),
        ("cuda, hip = '13.0', None", "PyTorch 9.9 finds no GPU", "on a machine with a GPU"),
        ("cuda, hip = None, '7.0'", "PyTorch 9.9 finds no GPU", "on a machine with a GPU"),
    ],
)
def test_without_cuda_or_a_gpu(
    vllm: Install, comparison: Comparison, tmp_path: Path, build: str, said: str, to_do: str
) -> None:
    vllm("limited")
    torch = tmp_path / "site" / "torch"
    torch.mkdir()
    (torch / "__init__.py").write_text("__version__ = '9.9'\nfrom . import cuda, version\n")
    (torch / "version.py").write_text(build)
    (torch / "cuda.py").write_text("def is_available():\n    return False\n")
    record = run(comparison, "cuda")
    assert record.status == "unavailable"
    assert record.message.startswith(said)
    assert to_do in record.message
    assert "vLLM is not installed" not in record.message


def test_an_op_that_raises_is_an_error(vllm: Install, comparison: Comparison) -> None:
    vllm("raises")
    record = run(comparison)
    assert (record.status, record.checks) == ("error", ())
    assert "RuntimeError: an illegal access" in record.message


def test_a_crash_there_is_no_crash_here(vllm: Install, comparison: Comparison) -> None:
    vllm("dies")
    record = run(comparison)
    assert record.status == "error"
    assert "ended with code -9 before it answered" in record.message


def test_something_that_is_no_python(comparison: Comparison, tmp_path: Path) -> None:
    fake = tmp_path / "python"
    fake.write_text("#!/bin/sh\necho who am I >&2\nexit 3\n")
    fake.chmod(0o755)
    record = against.run(comparison, python=str(fake), device="cpu")
    assert record.status == "error"
    assert "ended with code 3 before it answered: who am I" in record.message
    gone = against.run(comparison, python=str(tmp_path / "none"), device="cpu")
    assert gone.status == "error"
    assert "could not be started" in gone.message


# -- the command


def invoke(monkeypatch: pytest.MonkeyPatch, *args: str) -> Result:
    """`pagewalk run` in this process, with the CPU in the place of the GPU that the command asks for."""
    monkeypatch.setattr(against, "DEVICE", "cpu")
    return CliRunner().invoke(run_command, [STEP, "--backend", "sim", "--against", "vllm", *args])


def test_the_command_asks_for_cuda() -> None:
    assert against.DEVICE == "cuda"


def test_the_command_shows_what_theirs_wrote(vllm: Install, monkeypatch: pytest.MonkeyPatch) -> None:
    vllm("limited")
    done = invoke(monkeypatch)
    assert done.exit_code == 0, done.output
    lines = done.stdout.splitlines()
    assert lines[0].startswith(f"passed   {STEP}  ")
    assert lines[1].startswith(f"passed   {STEP}@vllm  vllm 0.99.0, torch ")
    assert lines[1].endswith(", CPU")
    assert "          40 heads of 128, float16: heads untouched: 32 to 39" in lines
    assert lines[-1].strip() == "vLLM 0.99.0 leaves the same heads unwritten as our port"
    assert "2 passed, 0 failed" in done.stderr


def test_the_command_says_that_theirs_is_repaired(vllm: Install, monkeypatch: pytest.MonkeyPatch) -> None:
    vllm("complete")
    done = invoke(monkeypatch)
    assert done.exit_code == 1
    assert "theirs writes all heads: the finding does not apply to vLLM 0.99.0" in done.stdout
    assert "40 heads of 128, float16: heads written: 0 to 39, expected 0 to 31" in done.stdout
    assert "1 passed, 1 failed" in done.stderr


def test_the_commands_json_has_both_rows(vllm: Install, monkeypatch: pytest.MonkeyPatch) -> None:
    vllm("limited")
    done = invoke(monkeypatch, "--json")
    assert done.exit_code == 0, done.output
    ours, theirs = json.loads(done.stdout)["steps"]
    assert (ours["id"], ours["status"], ours["backend"]) == (STEP, "passed", "sim")
    assert (theirs["id"], theirs["status"], theirs["backend"]) == (f"{STEP}@vllm", "passed", "vllm")
    assert theirs["versions"]["vllm"] == "0.99.0"
    assert all(check["passed"] for check in theirs["checks"])


def test_the_command_hands_the_python_on(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fake = tmp_path / "python"
    fake.write_text("#!/bin/sh\nexit 3\n")
    fake.chmod(0o755)
    done = invoke(monkeypatch, "--against-python", str(fake))
    assert done.exit_code == 1
    assert f"{fake} ended with code 3" in done.stdout


def test_a_failure_of_ours_outweighs_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    from walkthroughs import runner

    broken = Evidence(STEP, "error", "sim", "SIMT machine", "", {}, "2026-01-01", 0, {}, (), 0.1, "broke")
    monkeypatch.setattr(runner, "run_many", lambda *args, **kwargs: iter([broken]))
    done = invoke(monkeypatch)
    assert done.exit_code == 1
    assert "0 passed, 1 failed, 1 unavailable" in done.stderr
