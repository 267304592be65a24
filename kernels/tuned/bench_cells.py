"""Measures one cell: inputs made, every kernel held against float64, then timed, and a row for each, come what may."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any

import torch

from kernels.errors import KernelError
from kernels.tuned import bench_inputs, ceilings
from kernels.tuned.bench_inputs import Case
from kernels.tuned.bench_record import FAILED, LEFT, LIMIT, MEASURED, PEER, REFUSED, RUNG, WRONG, Cell, Row
from kernels.tuned.ladder import Rung
from kernels.tuned.peers import TITLES, Maker, Unsupported
from kernels.tuned.plan import Plan
from kernels.tuned.shapes import Shape
from kernels.tuned.timing import Machine, Ready, Time

BOUNDS = {"bfloat16": 1e-2, "float16": 2e-3}
"""The relative error, against float64, above which a kernel is wrong and is not timed."""
PEER_BYTES = 50_000_000_000
"""What a peer may keep on the GPU for all sets of inputs of a cell."""
TIME_WAS_UP = "the run's time was up"
READ_ONLY = "read-only"


class DeviceLost(RuntimeError):
    """The GPU's context answers no call any more, after what an earlier kernel did: nothing else can be measured."""


@dataclass
class Budget:
    """How long a run may take. `seconds`: None for as long as it takes."""

    seconds: float | None = None
    begun: float = field(default_factory=time.monotonic)

    @property
    def spent(self) -> float:
        """Seconds since the run began."""
        return time.monotonic() - self.begun

    @property
    def up(self) -> bool:
        """Whether the time is up."""
        return self.seconds is not None and self.spent >= self.seconds


@dataclass(frozen=True)
class Rivals:
    """What is measured on a cell, in order. `plans`: by rung, those to try in place of the rung's own."""

    rungs: tuple[Rung, ...]
    peers: Mapping[str, Maker]
    plans: Mapping[str, Sequence[Plan]] = field(default_factory=dict)
    titles: Mapping[str, str] = field(default_factory=dict)

    def blank(self, state: str, reason: str) -> tuple[Row, ...]:
        """A row for each, none of which was measured."""
        rows = [Row(rung.id, rung.title, RUNG, state, reason) for rung in self.rungs]
        return (*rows, *(Row(name, self.title(name), PEER, state, reason) for name in self.peers))

    def title(self, name: str) -> str:
        """A peer in words."""
        return self.titles.get(name) or TITLES.get(name, name)


Told = Callable[[Row], None]


def measure(shape: Shape, rivals: Rivals, machine: Machine, budget: Budget, told: Told, footprint: int) -> Cell:
    """A cell with a row for every rival. `told` hears of each row. Raises DeviceLost."""
    sets = bench_inputs.sets_for(shape.kv_bytes, footprint)
    blank = Cell(shape.id, shape.name, described(shape), shape.kv_bytes, sets, None, ())
    if budget.up:
        return replace(blank, rows=rivals.blank(LEFT, TIME_WAS_UP))
    try:
        shared: dict[str, Any] = {}
        cases = [bench_inputs.make(shape, seed, machine.device, shared) for seed in range(sets)]
        truths = [(seq, cases[0].truth(seq)) for seq in bench_inputs.checked_sequences(shape)]
        limit = read_only(cases, machine)
    except (RuntimeError, MemoryError) as error:
        still_there(machine, error)
        return replace(blank, rows=rivals.blank(FAILED, f"its inputs could not be made: {said(error)}"))
    told(limit)
    bench = _Bench(cases, truths, machine, limit)
    rows = []
    for row in bench.rows(rivals, budget):
        told(row)
        rows.append(row)
    return replace(blank, limit=limit, rows=tuple(rows))


def described(shape: Shape) -> dict[str, Any]:
    """A shape's fields for the record, its lengths counted."""
    lengths: dict[int, int] = {}
    for length in shape.context:
        lengths[length] = lengths.get(length, 0) + 1
    data = {key: value for key, value in asdict(shape).items() if key not in ("name", "context")}
    return {"context": [list(item) for item in lengths.items()], **data}


def read_only(cases: Sequence[Case], machine: Machine) -> Row:
    """Reading the caches of each set, 16 bytes a load: the best of several grids."""
    answer = torch.zeros(1, dtype=torch.int32, device=machine.device)
    best: tuple[Time, int, Ready] | None = None
    for blocks in ceilings.grids(machine.processors):
        calls = []
        for case in cases:
            words = case.memory.view(torch.uint8)[: case.shape.kv_bytes // 16 * 16].view(torch.int32)
            launch = ceilings.read_launch(bench_inputs.array(words), bench_inputs.array(answer), blocks)
            calls.append(machine.ready([launch]))
        taken = machine.time(calls)
        if best is None or taken.median < best[0].median:
            best = taken, blocks, calls[0]
    assert best is not None
    taken, blocks, first = best
    row = Row(
        READ_ONLY, "reading as many bytes, and nothing else", LIMIT, registers=first.registers,
        local_bytes=first.local_bytes, plan={"blocks": blocks, "threads": ceilings.THREADS}, **times(taken),
    )  # fmt: skip
    return replace(row, tbs=terabytes(cases[0].shape.kv_bytes, taken.median))


def terabytes(moved: int, us: float) -> float:
    """TB/s."""
    return moved / us / 1e6


def unfit(error: BaseException) -> bool:
    """Whether an error says that a kernel does not take the case or is not here. Other modules' Unsupported counts."""
    return isinstance(error, ImportError | KernelError) or type(error).__name__ == Unsupported.__name__


def said(error: BaseException) -> str:
    """An error in one line that fits a table."""
    text = " ".join(str(error).split())[:200] or "no message"
    return text if unfit(error) else f"{type(error).__name__}: {text}"


def times(taken: Time) -> dict[str, Any]:
    """The fields of a row."""
    return {"us": taken.median, "least": taken.least, "most": taken.most, "how": taken.how}


def still_there(machine: Machine, error: BaseException) -> None:
    """After an error: raises DeviceLost where the GPU answers no more."""
    try:
        machine.wait()
        machine.free()
    except RuntimeError as gone:
        raise DeviceLost(said(error)) from gone


@dataclass(frozen=True)
class _Bench:
    """The inputs of one cell, and what measures on them."""

    cases: list[Case]
    truths: list[tuple[int, torch.Tensor]]
    machine: Machine
    limit: Row

    def rows(self, rivals: Rivals, budget: Budget) -> Iterator[Row]:
        """A row for each rival; what a kernel held is given back before the next one."""
        for rung in rivals.rungs:
            blank = Row(rung.id, rung.title, RUNG, LEFT, TIME_WAS_UP)
            yield blank if budget.up else self._rung(rung, blank, rivals.plans.get(rung.id, ()), budget)
        for name, maker in rivals.peers.items():
            blank = Row(name, rivals.title(name), PEER, LEFT, TIME_WAS_UP)
            yield blank if budget.up else self._tried(blank, partial(self._peer, maker))

    def _rung(self, rung: Rung, blank: Row, plans: Sequence[Plan], budget: Budget) -> Row:
        """The rung by its own plan, or by each of `plans`: the fastest counts."""
        found: list[Row] = []
        for plan in plans or (None,):
            if found and budget.up:
                break
            row = self._tried(blank, partial(self._ready, rung, plan))
            found.append(replace(row, plan=asdict(plan) if plan else None))
        best = min(found, key=lambda row: math.inf if row.us is None else row.us)
        if not plans:
            return best
        tries = [
            {**(row.plan or {}), "us": row.us, "best": row is best, **({"reason": row.reason} if row.reason else {})}
            for row in found
        ]
        return replace(best, tries=tuple(tries))

    def _ready(self, rung: Rung, plan: Plan | None) -> list[Any]:
        zeros = bench_inputs.zeros_on(self.machine.device)
        calls = [rung.launches(bench_inputs.decode_call(case), zeros, plan) for case in self.cases]
        return [self.machine.ready(launches) for launches in calls]

    def _peer(self, maker: Maker) -> list[Any]:
        if self.cases[0].query_len > 1 and not getattr(maker, "query_lens", False):
            raise Unsupported("one query a sequence")
        before = self.machine.held()
        calls = [maker(self.cases[0])]
        # A peer may keep much for each set of inputs: then fewer sets take turns, and its row says how many.
        each = max(1, self.machine.held() - before)
        most = max(2, min(len(self.cases), PEER_BYTES // each))
        return [*calls, *(maker(case) for case in self.cases[1:most])]

    def _tried(self, blank: Row, build: Callable[[], list[Any]]) -> Row:
        """The row of what `build` makes, a call for each set: checked, then timed."""
        try:
            self.machine.free()
            calls = build()
            out = getattr(calls[0], "out", self.cases[0].out)
            bench_inputs.poison(out)
            calls[0]()
            self.machine.wait()
            error = bench_inputs.relative_error(out, self.cases[0], self.truths)
            bound = BOUNDS[self.cases[0].dtype]
            if not error <= bound:
                reason = f"a relative error of {error:.1e}, above {bound:.0e}"
                return replace(blank, state=WRONG, reason=reason, error=None if math.isnan(error) else error)
            taken, note = self._time(calls)
            fewer = len(calls) if len(calls) < len(self.cases) else None
        except Exception as failure:  # a peer may raise anything
            still_there(self.machine, failure)
            return replace(blank, state=REFUSED if unfit(failure) else FAILED, reason=said(failure))
        moved = self.cases[0].shape.kv_bytes
        share = self.limit.us / taken.median if self.limit.us else None
        return replace(
            blank, state=MEASURED, reason="", error=error, tbs=terabytes(moved, taken.median), share=share, sets=fewer,
            **note, **times(taken),
        )  # fmt: skip

    def _time(self, calls: list[Any]) -> tuple[Time, dict[str, Any]]:
        """By a graph, or between events where no graph can capture a peer; and what a rung's kernels take."""
        note: dict[str, Any] = {}
        if isinstance(calls[0], Ready):
            note = {"registers": calls[0].registers, "local_bytes": calls[0].local_bytes}
            return self.machine.time(calls), note
        if getattr(calls[0], "graph", True):
            try:
                return self.machine.time(calls), note
            except RuntimeError:
                self.machine.wait()
        return self.machine.time(calls, graph=False), note
