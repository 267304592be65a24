"""What a step function is handed: a backend, launches with probes, and `check`.

A step says which lines it watches by concept; the workbench turns that into line numbers through the
regions of the port, launches, and keeps every comparison for the record.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from annotate.regions import regions
from kernels import gather as gather_port
from kernels.cases import DecodeCase, WriteCase
from kernels.errors import ProbeError
from kernels.kernel import Backend, Kernel
from kernels.probe import Probed, Reading, Watch, delayed
from kernels.vllm import cache, classic_v1
from walkthroughs.digest import port_files
from walkthroughs.evidence import Check, Measurement

ROOT = Path(__file__).resolve().parent.parent
SHOWN = 8


@dataclass(frozen=True)
class Bench:
    """Where a step runs, and what is changed on the way: warp order or delay, and (for mutation tests) the kernels."""

    backend: Backend
    sleepy_warp: int | None = None
    kernels: tuple[tuple[str, Kernel], ...] = ()

    def entry(self, kernel: Kernel) -> Kernel:
        """The kernel to launch in place of `kernel`."""
        chosen = dict(self.kernels).get(kernel.name, kernel)
        return chosen if self.sleepy_warp is None else delayed(chosen, self.sleepy_warp)


@dataclass(frozen=True)
class Run:
    """The result of one launch: the arrays it wrote, and what the probes recorded."""

    out: tuple[npt.NDArray[Any], ...]
    probed: Probed | None

    def readings(self, name: str) -> list[Reading]:
        """Every reading of a watch, by block, thread and program order; raises ProbeError without watches."""
        if self.probed is None:
            raise ProbeError(f"no readings of {name!r}: this launch had no watches")
        return self.probed.readings(name)

    def last(self, name: str, *, block: int | None = None, by_thread: bool = False) -> dict[tuple[int, ...], float]:
        """The last value for each key (with the thread in front if `by_thread`), of one thread block or of all."""
        found: dict[tuple[int, ...], float] = {}
        for reading in self.readings(name):
            if block is None or reading.block == block:
                key = (reading.thread, *reading.keys) if by_thread else reading.keys
                found[key] = reading.value
        return found

    def series(self, name: str, *, block: int | None = None) -> list[float]:
        """The last value for each key, ordered by key."""
        found = self.last(name, block=block)
        return [found[key] for key in sorted(found)]

    def by_thread(self, name: str, *, block: int = 0) -> dict[int, list[float]]:
        """All values of each thread of one block, in program order."""
        found: dict[int, list[float]] = defaultdict(list)
        for reading in self.readings(name):
            if reading.block == block:
                found[reading.thread].append(reading.value)
        return dict(found)


class Workbench:
    """Launches the ports for one step and collects its checks."""

    def __init__(self, port: str, bench: Bench) -> None:
        self.port = port
        self.bench = bench
        self.checks: list[Check] = []
        self.measurements: list[Measurement] = []
        self.seed = 0

    def watch(
        self,
        name: str,
        value: str | None = None,
        *,
        at: str,
        after: str | None = None,
        by: Sequence[str] = (),
        when: str | None = None,
        part: int = -1,
    ) -> Watch:
        """Watch `value` (by default the variable `name`) in region `at` of the port or of what it imports.

        See kernels.probe.Watch for `after`, `by` and `when`. Where a region stands in several places, `part`
        says which of them is meant; the last, if not given.
        """
        places = [(place, file) for file in port_files(self.port) for place in regions(ROOT / file).get(at, [])]
        if not places:
            raise ProbeError(f"watch {name!r}: neither {self.port} nor what it imports has a region {at!r}")
        place, file = places[part]
        return Watch(name, value or name, (place.first, place.last), after, tuple(by), when, str(ROOT / file))

    def attend(self, case: DecodeCase, *watches: Watch, dtype: str | None = None) -> Run:
        """Run the classic v1 kernel on a case. `out[0]`: [num_seqs, num_heads, head_size]; it starts as NaN."""
        self.seed = case.seed
        out = np.full(case.q.shape, np.nan, dtype or case.q.dtype)
        return self.launch(
            classic_v1.paged_attention_v1_kernel,
            watches,
            lambda entry: classic_v1.paged_attention_v1(
                out,
                case.q,
                case.k_cache,
                case.v_cache,
                case.num_kv_heads,
                case.scale,
                case.block_tables,
                case.seq_lens,
                case.block_size,
                max(case.max_seq_len, 1),
                case.alibi_slopes,
                backend=self.bench.backend,
                entry=entry,
            ),
            (out,),
        )

    def write(self, case: WriteCase, *watches: Watch) -> Run:
        """Run `reshape_and_cache` on a case. `out`: (key cache, value cache), copies of the case's poisoned ones."""
        self.seed = case.seed
        caches = case.k_cache.copy(), case.v_cache.copy()
        return self.launch(
            cache.reshape_and_cache_kernel,
            watches,
            lambda entry: cache.reshape_and_cache(
                case.key, case.value, *caches, case.slot_mapping, backend=self.bench.backend, entry=entry
            ),
            caches,
        )

    def scatter(self, key: Any, value: Any, pools: tuple[Any, Any], table: Any, *watches: Watch) -> Run:
        """Run the small scatter kernel. `out`: (k_pool, v_pool), copies of `pools` with the tokens written."""
        written = pools[0].copy(), pools[1].copy()
        return self.launch(
            gather_port.scatter_kernel,
            watches,
            lambda entry: gather_port.scatter(*written, key, value, table, backend=self.bench.backend, entry=entry),
            written,
        )

    def gather(self, q: Any, pools: tuple[Any, Any], table: Any, seq_len: int, scale: float, *watches: Watch) -> Run:
        """Run the small gather kernel. `out[0]`: [head_size] float64; it starts as NaN."""
        out = np.full(len(q), np.nan)
        return self.launch(
            gather_port.gather_kernel,
            watches,
            lambda entry: gather_port.gather(
                out, q, *pools, table, seq_len, scale, backend=self.bench.backend, entry=entry
            ),
            (out,),
        )

    @property
    def backend(self) -> Backend:
        """Where launches run; hand it to the host function of a port."""
        return self.bench.backend

    def launch(
        self,
        kernel: Kernel,
        watches: Sequence[Watch],
        launch: Callable[[Any], None],
        out: tuple[Any, ...],
        *,
        seed: int | None = None,
    ) -> Run:
        """Call `launch(entry)` with the kernel to run, watched where there are watches; `out`: the arrays it writes.

        For ports without a method of their own here: `launch` calls the port's host function with `entry=entry`
        and `backend=bench.backend`. `seed` is the case's, for the record.
        """
        self.seed = self.seed if seed is None else seed
        entry = self.bench.entry(kernel)
        probed = Probed(entry, watches) if watches else None
        launch(probed or entry)
        return Run(out, probed)

    def check(self, name: str, observed: Any, expected: Any, *, tolerance: float = 0.0, note: str = "") -> None:
        """Compare numbers (scalars or arrays), or anything by equality, and keep the comparison.

        NaN equals NaN only where both stand in the same place; a shape that differs is a failed check.
        `tolerance` is absolute, in the unit of the values.
        """
        error = distance(observed, expected)
        self.checks.append(
            Check(name, bool(error <= tolerance), show(observed), show(expected), error, tolerance, note)
        )

    def measured(
        self,
        name: str,
        value: float | None,
        unit: str,
        *,
        spread: tuple[float, float] | None = None,
        note: str = "",
    ) -> None:
        """Keep a value that has no expectation, such as a time: it is shown, and no step passes or fails by it.

        `spread`: its 10th and 90th percentile. None, NaN and infinity stand for what cannot be measured here.
        """
        low, high = spread or (None, None)
        numbers = (None if item is None or not math.isfinite(item) else float(item) for item in (value, low, high))
        value, low, high = numbers
        self.measurements.append(Measurement(name, value, unit, low, high, note))


def distance(observed: Any, expected: Any) -> float:
    """The largest absolute difference, in float64; infinite where shapes, NaNs or non-numbers differ."""
    try:
        a, b = np.asarray(observed, np.float64), np.asarray(expected, np.float64)
    except (TypeError, ValueError):
        return 0.0 if observed == expected else float("inf")
    if a.shape != b.shape or (np.isnan(a) != np.isnan(b)).any():
        return float("inf")
    same = (a == b) | np.isnan(a)
    with np.errstate(invalid="ignore"):
        return float(np.where(same, 0.0, np.abs(a - b)).max(initial=0.0))


def show(value: Any) -> str:
    """A value as a table cell: six digits, at most eight elements, then how many there are."""
    if isinstance(value, str | bool | np.bool_):
        return str(value)
    try:
        array = np.asarray(value)
    except ValueError:  # rows of different lengths
        return str(value)
    if array.dtype.kind not in "fiub":
        return str(value)
    digits = str if array.dtype.kind == "b" else _digits
    flat = [digits(item) for item in array.reshape(-1)[:SHOWN]]
    if array.ndim == 0:
        return flat[0]
    rest = f", … ({array.size} values)" if array.size > SHOWN else ""
    return f"[{', '.join(flat)}{rest}]"


def _digits(item: Any) -> str:
    number = float(item)
    return str(int(number)) if number.is_integer() and abs(number) < 2**53 else f"{number:.6g}"
