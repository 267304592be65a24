"""Steps that only tests can run, as a child program of a test's own registry: slow ones, crashing ones, a sound one.

Run as the child of a run: `python steps.py` reads one request, like `python -m walkthroughs.server.child`.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from walkthroughs.server import child
from walkthroughs.step import Step
from walkthroughs.workbench import Workbench

GATHER = "kernels/gather.py"
COMMAND = (sys.executable, str(Path(__file__)))


def sound(bench: Workbench) -> None:
    from kernels.cases import lesson_case, unpack_keys, unpack_values

    case = lesson_case("float64")
    pools = unpack_keys(case.k_cache)[:, :, 0].copy(), unpack_values(case.v_cache)[:, :, 0].copy()
    run = bench.gather(case.q[0, 0], pools, case.block_tables[0], 6, case.scale)
    bench.check("output", run.out[0], [0.363083, 0.449897, 0.392487, 0.386499], tolerance=5e-7, note="six digits")
    bench.check("a <b>word</b>", "same", "same")
    bench.measured("a time", 12.5, "us", spread=(12.0, 13.0))


def slow(bench: Workbench) -> None:
    for second in range(600):
        bench.check(f"round {second}", second, second)
        time.sleep(0.1)


def stuck(bench: Workbench) -> None:
    bench.check("begun", 1, 1)
    time.sleep(600)


def busy(bench: Workbench) -> None:
    bench.check("begun", 1, 1)
    while True:
        pass


def parent(bench: Workbench) -> None:
    """Starts a process of its own, as a compiler would be, and says its number."""
    other = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    bench.check("pid", other.pid, other.pid)
    time.sleep(600)


def crash(bench: Workbench) -> None:
    """As a broken CUDA context or a fault in native code: the process is gone, in the middle of a step."""
    bench.check("before", 1, 1)
    os.abort()


def leaves(bench: Workbench) -> None:
    bench.check("before", 1, 1)
    print("something to remember", file=sys.stderr, flush=True)
    os._exit(3)


def hog(bench: Workbench) -> None:
    held = []
    bench.check("begun", 1, 1)
    while True:
        held.append(np.ones(1 << 23))
        time.sleep(0.02)


def raises(bench: Workbench) -> None:
    bench.check("before", 1, 1)
    raise ValueError("no such luck")


def fails(bench: Workbench) -> None:
    bench.check("sum", 3, 4, tolerance=0.5)
    bench.check("shape", [1, 2], [1])


def nothing(bench: Workbench) -> None:
    pass


def prints(bench: Workbench) -> None:
    print('{"event": "verdict", "status": "passed"}', flush=True)
    os.write(1, b"and straight to the descriptor\n")
    bench.check("after", 1, 1)


def long_line(bench: Workbench) -> None:
    bench.check("before", 1, 1)
    bench.check("long", "x" * (2 << 20), "")


def many(bench: Workbench) -> None:
    for number in range(5000):
        bench.check(f"check {number}", 1, 1)


def deaf(bench: Workbench) -> None:
    """Does not mind being asked to stop."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    slow(bench)


RUNS: dict[str, Callable[[Workbench], None]] = {
    function.__name__.replace("_", "-"): function
    for function in (
        sound, slow, stuck, busy, parent, crash, leaves, hog, raises, fails, nothing, prints, long_line, many, deaf,
    )
}  # fmt: skip
# The made-up site's steps, too.
SAMPLE = {"alpha/loop": sound, "alpha/write": slow, "beta/again": crash}
PORTS = {f"test/{name}": GATHER if name == "sound" else "kernels/none.py" for name in RUNS}
SAMPLE_PORTS = {"alpha/loop": GATHER, "alpha/write": "kernels/vllm/cache.py", "beta/again": "kernels/none.py"}


def find(step_id: str) -> Step:
    port = {**PORTS, **SAMPLE_PORTS}[step_id]
    run = SAMPLE.get(step_id) or RUNS[step_id.split("/")[1]]
    return Step(step_id, step_id, (), "", port, run)


if __name__ == "__main__":
    child.main(find)
