"""Where a benchmark runs and how it is timed: a GPU by graph replay, or the SIMT machine, whose times mean nothing.

On a GPU the calls of several input sets are captured into one CUDA graph, in turn, and the graph is replayed: what is
measured is the GPU's time and not the host's. A call that no graph can capture is timed between two events.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from kernels.kernel import compile_cuda
from kernels.tuned.bound import bind
from kernels.tuned.call import Launch

LAUNCHES, REPEATS = 20, 9
LONG_US = 60_000.0
"""A replay that would take longer than this has fewer launches."""
Call = Callable[[], Any]


@dataclass(frozen=True)
class Time:
    """Microseconds a call: the median of the replays, the least and the most; `how`: graph, events, host or sim."""

    median: float
    least: float
    most: float
    how: str

    @staticmethod
    def of(samples: Sequence[float], how: str) -> Time:
        """From microseconds a call, one for each repetition."""
        return Time(statistics.median(samples), min(samples), max(samples), how)


@dataclass(frozen=True)
class Ready:
    """Launches as one call, and what their kernels take a thread: the most of any."""

    call: Call
    registers: int | None
    local_bytes: int | None

    def __call__(self) -> None:
        """Launch."""
        self.call()


class Gpu:
    """The current CUDA device, through torch's current stream."""

    device = "cuda"
    backend = "cuda"

    @property
    def processors(self) -> int:
        """Multiprocessors."""
        return int(torch.cuda.get_device_properties(0).multi_processor_count)

    def ready(self, launches: Sequence[Launch], stream: int | None = None) -> Ready:
        """Compile and pack; raises LaunchError and what the compiler raises. `stream`: torch's current one if None."""
        bound = bind(launches)

        def call() -> None:
            where = torch.cuda.current_stream().cuda_stream if stream is None else stream
            for each in bound:
                each(where)

        return Ready(call, max(each.registers for each in bound), max(each.local_bytes for each in bound))

    def dispatch(self, launches: Sequence[Launch]) -> Call:
        """The same launches by Numba's own dispatch, which looks at every argument at every call."""
        from numba import cuda

        # Bound once as well: that gives the kernel the shared memory that Numba has no word for.
        kept = bind(launches)
        stream = cuda.external_stream(torch.cuda.current_stream().cuda_stream)
        ready = [
            (compile_cuda(each.kernel)[each.grid, each.threads, stream, each.shared], each.args) for each in launches
        ]

        def call() -> None:
            for launch, args in ready:
                launch(*args)

        call.kept = kept  # type: ignore[attr-defined]
        return call

    def wait(self) -> None:
        """Until everything has run; raises RuntimeError for what went wrong meanwhile."""
        torch.cuda.synchronize()

    def held(self) -> int:
        """Bytes of torch's tensors on the GPU."""
        return int(torch.cuda.memory_allocated())

    def free(self) -> None:
        """Give back what torch keeps for later."""
        torch.cuda.empty_cache()

    def time(self, calls: Sequence[Call], *, graph: bool = True) -> Time:
        """Time calls that take turns. `graph`: False for calls that no graph can capture."""
        side: Any = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            # Not only a warm-up: what is built on a first call must not be built inside the capture.
            for call in calls:
                call()
            one = _between_events(side, lambda: calls[0]())
        torch.cuda.synchronize()
        launches, repeats = counts(one, len(calls))
        turns = [calls[number % len(calls)] for number in range(launches)]
        if not graph:
            with torch.cuda.stream(side):
                found = [_between_events(side, lambda: _all(turns)) / launches for _ in range(repeats)]
            return Time.of(found, "events")
        captured = torch.cuda.CUDAGraph()
        with torch.cuda.stream(side):
            # Not `torch.cuda.graph`: it collects garbage first, which a thousand captures would pay for.
            captured.capture_begin(capture_error_mode="thread_local")
            try:
                _all(turns)
            finally:
                captured.capture_end()
            captured.replay()
            found = [_between_events(side, captured.replay) / launches for _ in range(repeats)]
        torch.cuda.synchronize()
        return Time.of(found, "graph")

    def host(self, call: Call, count: int = 200, repeats: int = REPEATS) -> Time:
        """Microseconds of the host's own time a call, the GPU kept busy only so far that it never holds the host up."""
        found = []
        for _ in range(repeats + 1):
            torch.cuda.synchronize()
            begin = time.perf_counter()
            for _ in range(count):
                call()
            found.append((time.perf_counter() - begin) / count * 1e6)
        torch.cuda.synchronize()
        return Time.of(found[1:], "host")


class Sim:
    """The SIMT machine: everything but the times is real. For a dry run."""

    device = "cpu"
    backend = "sim"
    processors = 1

    def ready(self, launches: Sequence[Launch], stream: int | None = None) -> Ready:
        """As launches on the SIMT machine, which has no streams."""

        def call() -> None:
            for launch in launches:
                launch.run("sim")

        return Ready(call, None, None)

    def dispatch(self, launches: Sequence[Launch]) -> Call:
        """The same."""
        return self.ready(launches).call

    def wait(self) -> None:
        """Nothing runs behind the host's back."""

    def held(self) -> int:
        """Nothing that counts."""
        return 0

    def free(self) -> None:
        """NumPy keeps nothing."""

    def time(self, calls: Sequence[Call], *, graph: bool = True) -> Time:
        """One call of each, by the host's clock."""
        found = []
        for call in calls:
            begin = time.perf_counter()
            call()
            found.append((time.perf_counter() - begin) * 1e6)
        return Time.of(found, "sim")

    def host(self, call: Call, count: int = 1, repeats: int = 2) -> Time:
        """The same."""
        return self.time([call] * repeats)


Machine = Gpu | Sim


def counts(one_us: float, sets: int) -> tuple[int, int]:
    """How many launches a replay has and how often it is replayed, for a call of so many microseconds.

    Every set has its turn in a replay unless calls are so slow that two must do.
    """
    launches = max(LAUNCHES, sets)
    if one_us * launches > LONG_US:
        launches = max(2, min(launches, int(LONG_US / one_us)))
        return launches, 7 if one_us * launches < 2 * LONG_US else 3
    return launches, REPEATS


def _all(calls: Sequence[Call]) -> None:
    for call in calls:
        call()


def _between_events(stream: Any, work: Call) -> float:
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
    begin.record(stream)
    work()
    end.record(stream)
    end.synchronize()
    return float(begin.elapsed_time(end) * 1000)
