"""Running steps: what a record says, which backend is chosen, and when an earlier run is good enough."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kernels.errors import ArgumentError, BackendUnavailable
from kernels.kernel import Backend
from walkthroughs import digest, evidence, runner
from walkthroughs.evidence import Evidence
from walkthroughs.runner import cached, choose, run, run_many
from walkthroughs.step import Step, get, select
from walkthroughs.workbench import Bench, Workbench

SIM = Backend("sim")
NAMES = ["paged-reference/slots", "paged-reference/dense", "paged-reference/tail"]


def passing(bench: Workbench) -> None:
    bench.seed = 7
    bench.check("one", 1.0, 1.25, tolerance=0.5, note="near")
    bench.check("two", [1, 2], [1, 2])


def failing(bench: Workbench) -> None:
    bench.check("good", 1, 1)
    bench.check("bad", 1, 2)


def silent(bench: Workbench) -> None:
    pass


def raising(bench: Workbench) -> None:
    bench.check("before", 1, 1)
    raise ArgumentError("head_size", 7, "must be even")


def as_step(function: Callable[[Workbench], None]) -> Step:
    name = function.__name__
    return Step(f"tests/{name}", name, ("tail-guard",), "kernels/reference.py", "kernels/gather.py", function)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache of our own."""
    monkeypatch.setenv("PAGEWALK_CACHE", str(tmp_path))
    return tmp_path


def files(cache: Path) -> list[Path]:
    return sorted(path for path in cache.rglob("*") if path.is_file())


# -- one run


def test_the_record_of_a_run() -> None:
    step = as_step(passing)
    record = run(step, SIM)
    assert (record.step, record.status, record.backend, record.message) == ("tests/passing", "passed", "sim", "")
    assert (record.device, record.driver, record.seed) == ("SIMT machine", "", 7)
    assert set(record.versions) == {"python", "numpy", "greenlet"}
    assert record.digests == digest.of_step(step)
    assert [(check.name, check.passed, check.note) for check in record.checks] == [
        ("one", True, "near"), ("two", True, ""),
    ]  # fmt: skip
    assert record.max_error == 0.25
    assert record.seconds >= 0
    assert re.fullmatch(r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ", record.date)
    assert evidence.fresh(record, step)
    assert Evidence.from_json(json.loads(json.dumps(record.to_json()))) == record


@pytest.mark.parametrize(
    ("function", "status", "message", "checks"),
    [
        (failing, "failed", "", [True, False]),
        (silent, "failed", "the step checked nothing", []),
        (raising, "error", "ArgumentError: head_size = 7: must be even", [True]),
    ],
)
def test_what_does_not_pass_says_why(function: Any, status: str, message: str, checks: list[bool]) -> None:
    record = run(as_step(function), SIM)
    assert (record.status, record.message) == (status, message)
    assert [check.passed for check in record.checks] == checks


def test_an_interrupt_is_no_failed_step() -> None:
    def interrupted(bench: Workbench) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(as_step(interrupted), SIM)


def test_a_bench_sets_the_order_of_warps() -> None:
    seen: list[Bench] = []
    bench = Bench(Backend("sim", "reversed"), sleepy_warp=0)
    run(as_step(lambda work: seen.append(work.bench)), bench)
    assert seen == [bench]
    for schedule in ("in-order", "reversed", "random:4"):
        assert run(get("paged-reference/divide"), Backend("sim", schedule)).status == "passed"


# -- which backend


def test_choose(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "cuda_unavailable", lambda: None)
    assert [choose(name).name for name in ("auto", "cuda", "sim")] == ["cuda", "cuda", "sim"]
    assert choose().name == "cuda"
    monkeypatch.setattr(runner, "cuda_unavailable", lambda: "no GPU here")
    assert [choose(name).name for name in ("auto", "sim")] == ["sim", "sim"]
    with pytest.raises(BackendUnavailable, match="--backend cuda: no GPU here"):
        choose("cuda")
    with pytest.raises(BackendUnavailable, match="backend = 'tpu'"):
        choose("tpu")


def test_choosing_sim_does_not_ask_the_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    def asked() -> str:
        raise AssertionError

    monkeypatch.setattr(runner, "cuda_unavailable", asked)
    assert choose("sim") == SIM


# -- many runs, and the cache


@pytest.mark.parametrize("jobs", [1, 2])
def test_records_come_in_the_given_order_whatever_the_jobs(jobs: int, cache: Path) -> None:
    steps = [get(name) for name in NAMES]
    found = list(run_many(steps, SIM, jobs=jobs))
    assert [record.step for record in found] == NAMES
    assert {record.status for record in found} == {"passed"}
    assert len(files(cache)) == 3


def test_no_steps() -> None:
    assert list(run_many([], SIM)) == []


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The ids of the steps that really ran, in this process."""
    ran: list[str] = []
    real = runner.run

    def counting(step: Step, backend: Any) -> Evidence:
        ran.append(step.id)
        return real(step, backend)

    monkeypatch.setattr(runner, "run", counting)
    return ran


def test_a_step_runs_again_only_when_something_changed(counted: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    steps = select(NAMES)
    names = [step.id for step in steps]
    first = list(run_many(steps, SIM, jobs=1))
    assert counted == names
    assert list(run_many(steps, SIM, jobs=1)) == first
    assert list(run_many(steps, SIM, jobs=2)) == first
    assert counted == names, "nothing ran again"
    assert len(list(run_many(steps[:1], SIM, jobs=1, use_cache=False))) == 1
    assert counted == [*names, names[0]]
    real = digest.of_step
    monkeypatch.setattr(digest, "of_step", lambda step: real(step) | ({"port": "new"} if step.id == names[1] else {}))
    list(run_many(steps, SIM, jobs=1))
    assert counted == [*names, names[0], names[1]], "one port changed"


def only_file(cache: Path) -> Path:
    (path,) = files(cache)
    return path


@pytest.mark.parametrize("content", [b"", b"{", b"null", b"[]", b"5", b'"x"', b'{"schema": 1}', b"\xff"])
def test_a_broken_cache_file_is_no_record(cache: Path, content: bytes, counted: list[str]) -> None:
    step = get(NAMES[0])
    list(run_many([step], SIM, jobs=1))
    only_file(cache).write_bytes(content)
    assert cached(step, "sim") is None
    assert [record.status for record in run_many([step], SIM, jobs=1)] == ["passed"]
    assert counted == [NAMES[0]] * 2
    assert cached(step, "sim") is not None, "and it is mended"


@pytest.mark.parametrize(
    "changes",
    [{"status": "failed"}, {"status": "error"}, {"digests": {}}, {"schema": 2}, {"versions": {"numpy": "1.0"}}],
)
def test_a_cached_run_counts_only_if_it_passed_here_and_now(cache: Path, changes: dict[str, Any]) -> None:
    step = get(NAMES[0])
    (record,) = run_many([step], SIM, jobs=1)
    assert cached(step, "sim") == record
    path = only_file(cache)
    path.write_text(json.dumps(record.to_json() | changes))
    assert cached(step, "sim") is None


def test_backends_and_the_machine_do_not_share_a_cache(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    step = get(NAMES[0])
    (record,) = run_many([step], SIM, jobs=1)
    assert cached(step, "cuda") is None
    assert cached(step, "sim") == record
    monkeypatch.setattr(runner, "_machinery", lambda: "another")
    assert cached(step, "sim") is None


def test_the_machinery_is_what_runs_a_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[list[str]] = []
    monkeypatch.setattr(digest, "of_files", lambda paths: seen.append(list(paths)) or "x")
    assert runner._machinery.__wrapped__() == "x"
    assert {"kernels/kernel.py", "kernels/probe.py", "kernels/simt/machine.py", "kernels/simt/warp.py"} <= set(seen[0])


def test_failures_are_yielded_and_not_kept(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    step = as_step(failing)
    monkeypatch.setattr(runner, "get", lambda name: step)
    assert [record.status for record in run_many([step, replace(step)], SIM, jobs=1)] == ["failed", "failed"]
    assert cached(step, "sim") is None


def test_the_cache_lies_where_the_environment_says(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert runner.cache_dir() == cache
    monkeypatch.delenv("PAGEWALK_CACHE")
    assert runner.cache_dir().is_absolute()
    assert runner.cache_dir() != cache


# -- on a GPU


@pytest.mark.gpu
def test_gpu_record() -> None:
    record = run(get("vllm-classic/qk-dot"), choose("cuda"))
    assert (record.status, record.backend, record.message) == ("passed", "cuda", "")
    assert record.device
    assert record.device != "SIMT machine"
    assert "CUDA" in record.driver
    assert set(record.versions) == {"python", "numpy", "numba", "numba-cuda"}
