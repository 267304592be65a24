"""Steps held against somebody else's compiled op: `pagewalk run STEP --against vllm`.

A catalog module registers a comparison for a step: the inputs, and a judge of what came back. The op runs in a process
of its own, under a Python that may be named. Nothing of it is cached or committed: it is the reader's own evidence.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from kernels.cases import Array, WriteCase
from kernels.kernel import Backend
from kernels.vllm import theirs
from walkthroughs import digest, runner
from walkthroughs.evidence import Evidence
from walkthroughs.step import get, registry
from walkthroughs.workbench import Bench, Workbench

Caches = tuple[Array, Array]
"""Key cache and value cache, as an op left them."""
Judge = Callable[[Workbench, Sequence[Caches], str], str]
"""Checks what came back, one pair a case, against what the step says; returns the verdict in a sentence."""
DEVICE = "cuda"
SECONDS = 600
REMEDIES = {
    "vllm": f"put a vLLM release from {theirs.LIKE} into an environment of its own, on a machine with a GPU (it brings "
    "its own PyTorch), and name that environment's Python: --against-python PATH",
    "torch": "name a Python whose PyTorch is built for CUDA: --against-python PATH",
    "gpu": "run this on a machine with a GPU, and a driver that this PyTorch can use",
    "op": f"take a vLLM release from {theirs.LIKE}, built for this GPU",
}
"""What to do where something is missing, by its kind."""


@dataclass(frozen=True)
class Comparison:
    """A step whose inputs also go through an op of `against` (vllm): its cases, and who judges what comes back."""

    step: str
    against: str
    cases: Callable[[], Sequence[WriteCase]]
    judge: Judge


@dataclass(frozen=True)
class Answer:
    """What the other process said: `status` ran, unavailable or error; `about` has vllm, torch and device if it ran."""

    status: str
    message: str = ""
    about: dict[str, str] = field(default_factory=dict)
    caches: tuple[Caches, ...] = ()


_COMPARISONS: dict[tuple[str, str], Comparison] = {}


def compares(step: str, against: str, *, cases: Callable[[], Sequence[WriteCase]]) -> Callable[[Judge], Judge]:
    """Register the decorated judge as the comparison of a step; `cases` builds the inputs of the calls."""

    def register(judge: Judge) -> Judge:
        _COMPARISONS[against, step] = Comparison(step, against, cases, judge)
        return judge

    return register


def comparisons(against: str) -> dict[str, Comparison]:
    """The comparisons with `against` by the id of their step, in reading order."""
    order = [step.id for walkthrough in registry().values() for step in walkthrough.steps]
    return {step: _COMPARISONS[against, step] for step in order if (against, step) in _COMPARISONS}


def run(comparison: Comparison, *, python: str | None = None, device: str | None = None) -> Evidence:
    """Run the cases of a comparison through the other op, and have them judged.

    `python`: the interpreter that has it, by default this one. `device`: a PyTorch device, by default CUDA. The status
    is passed, failed, unavailable (something is missing: the message says what, and what to do) or error.
    """
    step = get(comparison.step)
    started = time.perf_counter()
    given = comparison.cases()
    answer = ask(given, python or sys.executable, device or DEVICE)
    bench = Workbench(step.port, Bench(Backend("sim")))  # for its checks: nothing is launched
    status, message = answer.status, answer.message
    if status == "ran":
        message = comparison.judge(bench, answer.caches, f"vLLM {answer.about['vllm']}")
        status = "passed" if bench.checks and all(check.passed for check in bench.checks) else "failed"
    return Evidence(
        step=f"{step.id}@{comparison.against}",
        status=status,
        backend=comparison.against,
        device=answer.about.get("device", ""),
        driver="",
        versions={name: answer.about[name] for name in ("vllm", "torch") if name in answer.about},
        date=runner.now(),
        seed=given[0].seed,
        digests={"step": digest.of_step(step)["step"]},
        checks=tuple(bench.checks),
        seconds=round(time.perf_counter() - started, 3),
        message=message,
    )


def ask(cases: Sequence[WriteCase], python: str, device: str) -> Answer:
    """Hand the cases to `kernels/vllm/theirs.py` under `python`, and read what it left."""
    with TemporaryDirectory(prefix="pagewalk-") as name:
        folder = Path(name)
        arrays = {
            f"{name}{number}": array
            for number, case in enumerate(cases)
            for name, array in zip(theirs.ARRAYS, _arguments(case), strict=True)
        }
        np.savez(folder / theirs.INPUT, **arrays)  # type: ignore[arg-type]
        # Safe path: the script's own folder must not stand before the libraries that vLLM imports.
        environment = {**os.environ, "PYTHONSAFEPATH": "1"}
        try:
            done = subprocess.run(
                [python, theirs.__file__, name, device],
                env=environment,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=SECONDS,
                check=False,
            )
        except OSError as error:
            return Answer("error", f"{python} could not be started: {error}")
        except subprocess.TimeoutExpired:
            return Answer("error", f"{python} gave no answer in {SECONDS} s")
        return _read(folder, python, done)


def _arguments(case: WriteCase) -> tuple[Array, ...]:
    return case.key, case.value, case.k_cache, case.v_cache, case.slot_mapping


def _read(folder: Path, python: str, done: subprocess.CompletedProcess[str]) -> Answer:
    path = folder / theirs.ANSWER
    if not path.exists():
        said = next((line for line in reversed(done.stderr.splitlines()) if line.strip()), "it said nothing")
        return Answer("error", f"{python} ended with code {done.returncode} before it answered: {said.strip()}")
    answer: dict[str, Any] = json.loads(path.read_text("utf-8"))
    if answer["status"] == "unavailable":
        lacking: dict[str, str] = answer["lacking"]
        # Whoever installs vLLM gets its PyTorch, too.
        kinds = [kind for kind in lacking if kind != "torch" or "vllm" not in lacking]
        remedies = "; ".join(REMEDIES[kind] for kind in kinds)
        return Answer("unavailable", f"{', and '.join(lacking.values())} (under {python}). What to do: {remedies}.")
    if answer["status"] == "error":
        return Answer("error", f"{answer['message']} (under {python})")
    with np.load(folder / theirs.OUTPUT) as found:
        caches = tuple((found[f"k{number}"], found[f"v{number}"]) for number in range(len(found) // 2))
    return Answer("ran", about={name: answer[name] for name in ("vllm", "torch", "device")}, caches=caches)
