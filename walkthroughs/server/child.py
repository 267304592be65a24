"""The inner end of a run: a process that reads one request on stdin, runs it, and writes what happens, a JSON a line.

It runs one step and exits. So a crash, a step that never ends or a CUDA context that is broken for good takes this
process with it and nothing else. When its stdin closes, the server is gone or wants no more of it: it exits at once.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TextIO

from kernels.kernel import Kernel
from kernels.probe import Watch
from walkthroughs import runner
from walkthroughs.server.cases import RUNS
from walkthroughs.server.offers import offer_of
from walkthroughs.step import Step, get
from walkthroughs.workbench import Bench, Run, Workbench

Tell = Callable[[dict[str, Any]], None]


class StreamingBench(Workbench):
    """A workbench that tells of each launch, check and measurement as it is made."""

    def __init__(self, port: str, bench: Bench, tell: Tell) -> None:
        super().__init__(port, bench)
        self.tell = tell
        self.launches = 0

    def launch(
        self,
        kernel: Kernel,
        watches: Sequence[Watch],
        launch: Callable[[Any], None],
        out: tuple[Any, ...],
        *,
        seed: int | None = None,
    ) -> Run:
        """As Workbench.launch."""
        self.launches += 1
        self.tell({"event": "launch", "kernel": kernel.name, "number": self.launches})
        return super().launch(kernel, watches, launch, out, seed=seed)

    def check(self, name: str, observed: Any, expected: Any, *, tolerance: float = 0.0, note: str = "") -> None:
        """As Workbench.check."""
        super().check(name, observed, expected, tolerance=tolerance, note=note)
        self.tell({"event": "check", **self.checks[-1].to_json()})

    def measured(
        self,
        name: str,
        value: float | None,
        unit: str,
        *,
        spread: tuple[float, float] | None = None,
        note: str = "",
    ) -> None:
        """As Workbench.measured."""
        super().measured(name, value, unit, spread=spread, note=note)
        row = self.measurements[-1]
        self.tell({"event": "measured", "name": row.name, "text": row.text, "note": row.note})


def perform(step: Step, values: object, backend: str, tell: Tell) -> str:
    """Run a step as it is (`values` None) or its kernel on a changed case; tell of everything; answer the status.

    The verdict is `runner.run`'s: passed only if there were checks and all of them held.
    """
    bench = StreamingBench(step.port, Bench(runner.choose(backend)), tell)
    device, driver = runner.device(backend)
    tell({"event": "running", "backend": backend, "device": device, "driver": driver})
    started, message = time.perf_counter(), ""
    try:
        if values is None:
            step.run(bench)
        else:
            offer = offer_of(step.port)
            assert offer is not None, "the server asks only for what is offered"
            RUNS[offer.run](bench, offer.read(values))
        status = "passed" if bench.checks and all(check.passed for check in bench.checks) else "failed"
        if not bench.checks:
            message = "nothing was checked"
    except Exception as error:
        status, message = "error", f"{type(error).__name__}: {error}"[:2000]
    held = sum(check.passed for check in bench.checks)
    tell({"event": "verdict", "status": status, "message": message, "checks": len(bench.checks), "held": held,
          "seed": bench.seed, "seconds": round(time.perf_counter() - started, 3)})  # fmt: skip
    return status


def limit(memory: int | None, seconds: int) -> None:
    """Let this process have so many bytes of address space (None: any) and seconds of processor time, and no core."""
    import resource

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    wanted = {resource.RLIMIT_CPU: seconds, **({resource.RLIMIT_AS: memory} if memory else {})}
    for kind, value in wanted.items():
        _, hard = resource.getrlimit(kind)
        most = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(kind, (most, hard))


def exit_with(stdin: TextIO) -> None:
    """Exit at once when `stdin` ends: nobody listens any more."""

    def wait() -> None:
        stdin.read()
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


def main(find: Callable[[str], Step] = get) -> None:
    """Serve one request: `{"step", "values", "backend", "memory", "seconds"}`. `find` looks the step up by its id."""
    request: Mapping[str, Any] = json.loads(sys.stdin.readline())
    limit(request["memory"], request["seconds"])
    exit_with(sys.stdin)
    # Whatever a library prints must not stand among the events.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)

    def tell(event: dict[str, Any]) -> None:
        answers.write(json.dumps(event, ensure_ascii=False, allow_nan=False) + "\n")
        answers.flush()

    perform(find(request["step"]), request["values"], request["backend"], tell)
    answers.close()
    # A thread or a GPU library may have more to do at exit; nobody waits for it.
    os._exit(0)


if __name__ == "__main__":
    main()
