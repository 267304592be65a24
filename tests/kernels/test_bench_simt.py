"""The benchmark of the SIMT machine: that its kernels compute what they should, and that each part prints. No times."""

from __future__ import annotations

import re

import numpy as np

from kernels import bench_simt


def test_the_kernels_are_right():
    total, values = bench_simt.reduction_input()
    bench_simt.tree_reduction.on("sim")[2, bench_simt.THREADS](total, values)
    assert total[0] == values.sum()
    out = np.zeros(64, np.float32)
    bench_simt.shuffles.on("sim")[1, 64](out, 3)
    assert out.tolist() == [i ^ 1 for i in range(64)]
    bench_simt.barriers.on("sim")[1, 64](out, 3)
    assert out.tolist() == [3] * 64


def test_memory_is_looked_at_while_all_threads_are_there():
    seen = []
    out = np.zeros(96, np.float32)
    bench_simt.resident.on("sim")[2, 96](out, lambda: seen.append(bench_simt._resident_bytes()))
    assert len(seen) == 2
    assert min(seen) > 1 << 20
    assert out.tolist() == [31] * 96


def test_the_best_of_several_runs():
    calls = []
    assert bench_simt.best(lambda: calls.append(1), 3) >= 0
    assert len(calls) == 4


def test_numbas_simulator_runs_in_a_process_of_its_own(capsys):
    bench_simt._against_the_simulator()
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2
    for line, grid in zip(lines, bench_simt.GRIDS, strict=True):
        assert re.fullmatch(
            rf"  tree reduction, {grid} x 64 threads, 7 barriers: [\d.]+ ms; Numba's simulator \d+ ms: \d+ times .*",
            line,
        )


def test_a_child_that_fails_is_said_so(monkeypatch, capsys):
    monkeypatch.setattr(bench_simt.sys, "executable", "/bin/false")
    bench_simt._against_the_simulator()
    assert capsys.readouterr().out == "  Numba's simulator: not measured: exit 1\n"


def test_a_profile_names_where_the_time_went(capsys):
    bench_simt._profile(lambda: bench_simt.shuffles.on("sim")[1, 32](np.zeros(32, np.float32), 50))
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 5
    assert any("shfl_xor_sync (facade.py:" in line for line in lines)


def test_attention_with_and_without_observers(capsys):
    bench_simt._attention(20)
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0].strip() for line in lines][1:] == [
        "with a schedule that preempts (random", "with an observer that does nothing", "with all sanitizers",
    ]  # fmt: skip
