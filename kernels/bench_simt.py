"""The SIMT machine's part of the benchmark: against Numba's simulator, switches, memory, a real launch, observers.

`python -m kernels.bench` prints it; `python -m kernels.bench_simt --simulator` is the child process in which Numba's
simulator runs (it is chosen by an environment variable, before Numba is imported).
"""

from __future__ import annotations

import cProfile
import os
import pstats
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numba import cuda, float32

from kernels.kernel import Backend, kernel

THREADS = 64
GRIDS = (1, 8)
GOAL_RATIO = 100
GOAL_SWITCHES = 1e6


@kernel()
def tree_reduction(out, values):
    """Sum of 64 float32 values through shared memory, a barrier a round; the machine's standard exercise."""
    shared = cuda.shared.array(64, float32)
    i = cuda.threadIdx.x
    shared[i] = values[i]
    cuda.syncthreads()
    width = 32
    while width > 0:
        if i < width:
            shared[i] += shared[i + width]
        cuda.syncthreads()
        width //= 2
    if i == 0:
        out[0] = shared[0]


@kernel()
def shuffles(out, rounds):
    """`rounds` exchanges: nothing but thread switches."""
    value = float32(cuda.threadIdx.x)
    for _ in range(rounds):
        value = cuda.shfl_xor_sync(0xFFFFFFFF, value, 1)
    out[cuda.threadIdx.x] = value


@kernel()
def barriers(out, rounds):
    """`rounds` block-wide barriers: a switch a thread and the barrier's own work."""
    for _ in range(rounds):
        cuda.syncthreads()
    out[cuda.threadIdx.x] = rounds


@kernel()
def resident(out, seen):
    """Every thread keeps a local array alive at a barrier; `seen` is called while all are there."""
    mine = cuda.local.array(32, float32)
    for e in range(32):
        mine[e] = float32(e)
    cuda.syncthreads()
    if cuda.threadIdx.x == 0:
        seen()
    cuda.syncthreads()
    out[cuda.threadIdx.x] = mine[31]


def report() -> None:
    """Print everything, with the machine's load, as these numbers are worth little on a busy one."""
    print(f"SIMT machine, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    _memory()  # first: greenlets stay for later launches
    _against_the_simulator()
    _switches()
    _attention()


def best(run: Callable[[], Any], times: int = 5) -> float:
    """Seconds of the fastest of several runs, after one that does not count."""
    run()
    found = []
    for _ in range(times):
        started = time.perf_counter()
        run()
        found.append(time.perf_counter() - started)
    return min(found)


def reduction_input() -> tuple[Any, Any]:
    """`out` and `values` of the tree reduction."""
    return np.zeros(1, np.float32), np.arange(THREADS, dtype=np.float32)


def _against_the_simulator() -> None:
    total, values = reduction_input()
    ours = []
    for grid in GRIDS:
        ours.append(best(lambda grid=grid: tree_reduction.on("sim")[grid, THREADS](total, values), 20))  # type: ignore[misc]
        assert total[0] == values.sum()
    environment = {**os.environ, "NUMBA_ENABLE_CUDASIM": "1"}
    child = subprocess.run(
        [sys.executable, "-m", "kernels.bench_simt", "--simulator"],
        cwd=Path(__file__).resolve().parent.parent, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if child.returncode:
        reason = (child.stderr.strip() or f"exit {child.returncode}").splitlines()[-1]
        print(f"  Numba's simulator: not measured: {reason}")
        return
    for grid, our, their in zip(GRIDS, ours, map(float, child.stdout.split()), strict=True):
        print(
            f"  tree reduction, {grid} x {THREADS} threads, 7 barriers: {our * 1e3:.2f} ms; Numba's simulator "
            f"{their * 1e3:.0f} ms: {their / our:.0f} times (goal {GOAL_RATIO})"
        )


def simulator() -> None:
    """Run the tree reduction under Numba's simulator and print the seconds of a launch, for each grid."""
    total, values = reduction_input()
    compiled = cuda.jit(tree_reduction.fn)
    for grid in GRIDS:
        print(best(lambda grid=grid: compiled[grid, THREADS](total, values), 3))  # type: ignore[misc]


def _switches() -> None:
    for name, chosen, threads, rounds in (
        ("shuffles, 1 warp", shuffles, 32, 2000),
        ("shuffles, 4 warps", shuffles, 128, 500),
        ("barriers, 1 warp", barriers, 32, 2000),
        ("barriers, 8 warps", barriers, 256, 250),
    ):
        out = np.zeros(threads, np.float32)

        def run(chosen: Any = chosen, threads: int = threads, rounds: int = rounds, out: Any = out) -> None:
            chosen.on("sim")[1, threads](out, rounds)

        rate = threads * rounds / best(run)
        print(f"  {name}: {rate / 1e6:.2f} million thread switches a second (goal {GOAL_SWITCHES / 1e6:.0f})")
        if rate < GOAL_SWITCHES:
            _profile(run)


def _profile(run: Callable[[], Any]) -> None:
    """Where the time goes, the five functions that take most."""
    profile = cProfile.Profile()
    profile.runcall(run)
    found = sorted(pstats.Stats(profile).stats.items(), key=lambda item: -item[1][2])  # type: ignore[attr-defined]
    for (file, line, name), (calls, _, own, *_) in found[:5]:
        print(f"    {own:.3f} s in {name} ({Path(file).name}:{line}), {calls} calls")


def _memory() -> None:
    """Resident memory while all threads of a block are alive: more threads, more blocks, more threads."""
    rows = []
    idle = _resident_bytes()
    for blocks, threads in ((1, 32), (1, 256), (16, 256), (1, 1024)):
        levels: list[int] = []
        out = np.zeros(threads, np.float32)
        resident.on("sim")[blocks, threads](out, lambda levels=levels: levels.append(_resident_bytes()))
        rows.append(f"{blocks} x {threads}: {(max(levels) - idle) / 1024:.0f} KiB")
    print(f"  memory above idle, blocks x threads: {'; '.join(rows)}")


def _resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _attention(tokens: int = 200) -> None:
    """The classic v1 port on 2 sequences of 200 tokens with 8 heads: plain, and with each observer."""
    from kernels.cases import decode_case
    from kernels.vllm.classic_v1 import paged_attention_v1

    case = decode_case([tokens, tokens], 8, 8, 64, 16, dtype="float16", seed=1)

    def run(**how: Any) -> float:
        started = time.perf_counter()
        paged_attention_v1(
            np.zeros_like(case.q), case.q, case.k_cache, case.v_cache, case.num_kv_heads, case.scale,
            case.block_tables, case.seq_lens, case.block_size, case.max_seq_len, case.alibi_slopes,
            backend=Backend("sim", **how),
        )  # fmt: skip
        return time.perf_counter() - started

    run()
    plain = min(run() for _ in range(3))
    print(f"  classic v1, 2 sequences of {tokens} tokens, 8 heads of 64, float16: {plain:.2f} s (goal under 20)")
    for name, how in (
        ("a schedule that preempts (random:1)", {"schedule": "random:1"}),
        ("an observer that does nothing", {"observers": (_observer("access", "Observer"),)}),
        ("all sanitizers", {"observers": (_observer("sanitize", "Sanitizer"),)}),
    ):
        spent = run(**how)
        print(f"    with {name}: {spent:.2f} s, {spent / plain:.1f} times")


def _observer(module: str, name: str) -> Any:
    from importlib import import_module

    return getattr(import_module(f"kernels.simt.{module}"), name)()


if __name__ == "__main__":
    simulator() if "--simulator" in sys.argv else report()
