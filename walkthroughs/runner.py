"""Runs steps: step + backend -> Evidence, from a cache while nothing that matters has changed."""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from datetime import UTC, datetime
from functools import cache
from importlib import metadata
from multiprocessing import get_context
from pathlib import Path

from kernels.errors import BackendUnavailable
from kernels.kernel import Backend, cuda_unavailable
from walkthroughs import digest, evidence
from walkthroughs.evidence import Evidence
from walkthroughs.step import Step, get
from walkthroughs.workbench import Bench, Workbench

SIM_DEVICE = "SIMT machine"


def choose(name: str = "auto") -> Backend:
    """The backend for `auto`, `cuda` or `sim`: a GPU if one works, else the SIMT machine.

    Raises BackendUnavailable for `cuda` where no GPU works, with the reason.
    """
    reason = None if name == "sim" else cuda_unavailable()
    if name == "cuda" and reason:
        raise BackendUnavailable(f"--backend cuda: {reason}")
    if name == "auto":
        return Backend("sim" if reason else "cuda")
    return Backend(name)


def run(step: Step, backend: Backend | Bench) -> Evidence:
    """Run one step and record what it saw; a step that raises has the status `error` and the message."""
    bench = backend if isinstance(backend, Bench) else Bench(backend)
    workbench = Workbench(step.port, bench)
    started, message = time.perf_counter(), ""
    try:
        step.run(workbench)
        status = "passed" if workbench.checks and all(c.passed for c in workbench.checks) else "failed"
        if not workbench.checks:
            message = "the step checked nothing"
    except Exception as error:
        status, message = "error", f"{type(error).__name__}: {error}"
    name, driver = device(bench.backend.name)
    return Evidence(
        step=step.id,
        status=status,
        backend=bench.backend.name,
        device=name,
        driver=driver,
        versions=versions(bench.backend.name),
        date=now(),
        seed=workbench.seed,
        digests=digest.of_step(step),
        checks=tuple(workbench.checks),
        seconds=round(time.perf_counter() - started, 3),
        message=message,
        measured=tuple(workbench.measurements),
    )


def run_many(
    steps: Sequence[Step], backend: Backend, *, jobs: int | None = None, use_cache: bool = True
) -> Iterator[Evidence]:
    """Run steps and yield their records in the given order; `jobs` processes on the SIMT machine, one on a GPU."""
    known = {step.id: cached(step, backend.name) for step in steps} if use_cache else {}
    todo = [step for step in steps if known.get(step.id) is None]
    workers = 1 if backend.name == "cuda" else min(jobs or os.cpu_count() or 1, len(todo))
    if workers <= 1:
        for step in steps:
            yield known.get(step.id) or _fresh(step.id, backend)
        return
    # Spawned, not forked: a fork would copy locks that other threads hold.
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        futures = {step.id: pool.submit(_fresh, step.id, backend) for step in todo}
        for step in steps:
            yield known.get(step.id) or futures[step.id].result()


def cached(step: Step, backend: str) -> Evidence | None:
    """The record of an earlier run that passed with the same digests and versions, or None."""
    path = _cache_path(step, backend)
    if not path.exists():
        return None
    try:
        record = Evidence.from_json(json.loads(path.read_text("utf-8")))
    except ValueError:
        return None
    same = record.versions == versions(backend) and evidence.fresh(record, step)
    return record if record.status == "passed" and same else None


def cache_dir() -> Path:
    """Where runs are kept: PAGEWALK_CACHE, or .cache in the checkout."""
    return Path(os.environ.get("PAGEWALK_CACHE") or digest.ROOT / ".cache")


def now() -> str:
    """The time of day in UTC, ISO 8601, to the second."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _fresh(step_id: str, backend: Backend) -> Evidence:
    step = get(step_id)
    record = run(step, backend)
    evidence.write_json(_cache_path(step, backend.name), record.to_json())
    return record


def _cache_path(step: Step, backend: str) -> Path:
    return cache_dir() / "evidence" / f"{backend}-{_machinery()}" / f"{step.id.replace('/', '--')}.json"


@cache
def _machinery() -> str:
    """A digest of what runs and watches kernels: no part of a record, yet a change of it makes cached runs useless."""
    machine = sorted((digest.ROOT / "kernels" / "simt").glob("*.py"))
    ours = ["kernels/kernel.py", "kernels/probe.py", "walkthroughs/runner.py"]
    return digest.of_files([*ours, *(path.relative_to(digest.ROOT).as_posix() for path in machine)])


@cache
def device(backend: str) -> tuple[str, str]:
    """The name of the device and the version of its driver."""
    if backend == "sim":
        return SIM_DEVICE, ""
    from cuda.bindings import driver
    from numba import cuda

    name = cuda.get_current_device().name
    code, version = driver.cuDriverGetVersion()
    api = f"CUDA {version // 1000}.{version % 1000 // 10}" if int(code) == 0 else "CUDA unknown"
    kernel_module = Path("/proc/driver/nvidia/version")
    words = kernel_module.read_text("utf-8").split() if kernel_module.exists() else []
    release = next((word for word in words if word[0].isdigit() and "." in word), "")
    return (name.decode() if isinstance(name, bytes) else str(name)), f"{release} ({api})".strip()


@cache
def versions(backend: str) -> dict[str, str]:
    """The versions a run on this backend depends on, by distribution name."""
    names = ("numpy", "numba", "numba-cuda") if backend == "cuda" else ("numpy", "greenlet")
    return {"python": platform.python_version(), **{name: metadata.version(name) for name in names}}
