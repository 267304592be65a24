"""Measuring a cell: right before fast, a row for everything, whatever it does, and no second more than was given."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch

from kernels.errors import ArgumentError, LaunchError
from kernels.tuned import bench, bench_cells, bench_host, bench_inputs, bench_write, shapes, timing
from kernels.tuned.bench_cells import Budget, DeviceLost, Rivals
from kernels.tuned.bench_inputs import Case
from kernels.tuned.bench_record import FAILED, LEFT, MEASURED, REFUSED, WRONG, Row
from kernels.tuned.call import Decode, Launch, Zeros
from kernels.tuned.ladder import RUNGS, Rung
from kernels.tuned.peers import PeerCall
from kernels.tuned.plan import Plan
from kernels.tuned.shapes import Shape
from kernels.tuned.timing import Call, Sim, Time

SHAPE = Shape("small", (37, 16), 4, 1, 32)


class Clock(Sim):
    """Calls everything once and answers the next of some times; `after`: what to do at each wait."""

    def __init__(self, times: Sequence[float] = (), wait: Callable[[], None] = lambda: None) -> None:
        self.times, self.on_wait = list(times), wait

    def time(self, calls: Sequence[Call], *, graph: bool = True) -> Time:
        for call in calls:
            call()
        us = self.times.pop(0) if self.times else 10.0
        return Time(us, us - 1, us + 1, "graph" if graph else "events")

    def wait(self) -> None:
        self.on_wait()


def perfect(case: Case, spoil: Callable[[torch.Tensor], None] = lambda out: None) -> PeerCall:
    """A peer that gives the truth itself, or something near it."""
    out = torch.empty_like(case.query)

    def call() -> None:
        for seq in range(case.batch):
            out[seq * case.query_len : (seq + 1) * case.query_len] = case.truth(seq).to(out.dtype)
        spoil(out)

    return PeerCall(call, out)


def wrongly(spoil: Callable[[torch.Tensor], None]) -> Callable[[Case], PeerCall]:
    return lambda case: perfect(case, spoil)


def raises(error: Exception) -> Callable[[Case], Any]:
    def make(case: Case) -> Any:
        raise error

    return make


class Unsupported(Exception):
    """Of another module, by the same name."""


def rows_of(
    machine: Any, rungs: Sequence[Rung] = (), budget: Budget | None = None, shape: Shape = SHAPE, **peers: Any
) -> dict[str, Row]:
    told: list[Row] = []
    rivals = Rivals(tuple(rungs), peers)
    cell = bench_cells.measure(shape, rivals, machine, budget or Budget(), told.append, 1)
    assert cell.sets == 2
    assert [row.who for row in cell.rows] == [*(rung.id for rung in rungs), *peers]
    assert told == [row for row in (cell.limit, *cell.rows) if row] or budget
    return {row.who: row for row in cell.rows}


def zero_first(out: torch.Tensor) -> None:
    out[0, 0] = 0


def half_written(out: torch.Tensor) -> None:
    out[1, 3, 5] = math.nan


def test_only_what_is_right_is_timed() -> None:
    machine = Clock([5.0, 6.0, 7.0, 20.0])
    found = rows_of(machine, good=perfect, zeros=wrongly(zero_first), unwritten=wrongly(half_written))
    assert {who: row.state for who, row in found.items()} == {"good": MEASURED, "zeros": WRONG, "unwritten": WRONG}
    good = found["good"]
    assert (good.us, good.least, good.most, good.how) == (20.0, 19.0, 21.0, "graph")
    assert good.share == 5.0 / 20.0
    assert good.tbs == pytest.approx(SHAPE.kv_bytes / 20.0 / 1e6)
    assert good.error is not None
    assert 0 < good.error < 4e-3
    assert "above 1e-02" in found["zeros"].reason
    assert found["unwritten"].error is None


def test_a_stale_output_does_not_pass_for_an_answer() -> None:
    def lazy(case: Case) -> PeerCall:
        done = perfect(case)
        done()  # right once, and never again
        return PeerCall(lambda: None, done.out)

    assert rows_of(Clock(), lazy=lazy)["lazy"].state == WRONG


def test_whatever_a_peer_raises_is_its_row() -> None:
    errors = {
        "absent": ImportError("No module named 'x'"), "unfit": Unsupported("only\n group 4"),
        "ours": LaunchError("too much"), "breaks": KeyError("oh"), "memory": RuntimeError("out of memory"),
    }  # fmt: skip
    found = rows_of(Clock(), **{name: raises(error) for name, error in errors.items()})
    assert {who: row.state for who, row in found.items()} == {
        "absent": REFUSED, "unfit": REFUSED, "ours": REFUSED, "breaks": FAILED, "memory": FAILED,
    }  # fmt: skip
    assert found["unfit"].reason == "only group 4"
    assert found["breaks"].reason == "KeyError: 'oh'"


def test_what_no_graph_captures_is_timed_between_events() -> None:
    class Picky(Clock):
        def time(self, calls: Sequence[Call], *, graph: bool = True) -> Time:
            if graph and isinstance(calls[0], PeerCall):
                raise RuntimeError("operation not permitted when stream is capturing")
            return super().time(calls, graph=graph)

    def says_so(case: Case) -> PeerCall:
        made = perfect(case)
        made.graph = False
        return made

    assert rows_of(Picky(), good=perfect)["good"].how == "events"
    assert rows_of(Clock(), good=says_so)["good"].how == "events"


def test_a_peer_that_keeps_much_has_fewer_sets_and_its_row_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    class Full(Clock):
        kept = 0

        def held(self) -> int:
            return self.kept

    machine = Full()

    def greedy(case: Case) -> PeerCall:
        machine.kept += 10_000_000_000
        return perfect(case)

    monkeypatch.setattr(bench_inputs, "sets_for", lambda moved, footprint: 9)
    rivals = Rivals((), {"greedy": greedy, "modest": perfect})
    cell = bench_cells.measure(SHAPE, rivals, machine, Budget(), lambda row: None, 1)
    assert [(row.who, row.state, row.sets) for row in cell.rows] == [
        ("greedy", MEASURED, 5), ("modest", MEASURED, None),
    ]  # fmt: skip
    assert machine.kept == 5 * 10_000_000_000


def test_a_lost_gpu_ends_the_run() -> None:
    def gone() -> None:
        raise RuntimeError("an illegal memory access was encountered")

    machine = Clock()

    def breaks(case: Case) -> Any:
        machine.on_wait = gone
        raise RuntimeError("launch failed")

    with pytest.raises(DeviceLost, match="launch failed"):
        rows_of(machine, breaks=breaks)


def test_several_queries_reach_only_peers_that_take_them() -> None:
    def takes(case: Case) -> PeerCall:
        return perfect(case)

    takes.query_lens = True  # type: ignore[attr-defined]
    found = rows_of(Clock(), shape=Shape("", (37, 16), 4, 1, 32, query_len=2), one=perfect, several=takes)
    assert found["one"].state == REFUSED
    assert found["several"].state == MEASURED


def test_a_spent_budget_leaves_rows_with_a_reason() -> None:
    ring = RUNGS["ring"]
    found = rows_of(Clock(), [ring], Budget(seconds=0.0), good=perfect)
    assert {row.state for row in found.values()} == {LEFT}
    budget = Budget(seconds=100.0)

    def slow(case: Case) -> PeerCall:
        budget.seconds = 0.0
        return perfect(case)

    found = rows_of(Clock(), [], budget, first=slow, second=perfect)
    assert (found["first"].state, found["second"].state) == (MEASURED, LEFT)
    assert found["second"].reason == bench_cells.TIME_WAS_UP


def fake_rung(number: int = 9, fails: Callable[[Plan | None], bool] = lambda plan: False) -> Rung:
    def launches(call: Decode, zeros: Zeros, plan: Plan | None) -> tuple[Launch, ...]:
        if fails(plan):
            raise ArgumentError("splits", plan.splits if plan else 0, "too many")
        return RUNGS["tensor-cores"].launches(call, zeros, None)

    return Rung(number, "fake", "A fake", "none", launches)


def test_of_several_plans_the_fastest_counts_and_all_are_kept() -> None:
    plans = (Plan(1, 2, 2), Plan(2, 2, 2), Plan(3, 1, 2), Plan(9, 1, 2))
    rivals = Rivals((fake_rung(fails=lambda plan: bool(plan and plan.splits == 9)),), {}, {"fake": plans})
    cell = bench_cells.measure(SHAPE, rivals, Clock([5.0, 5.0, 5.0, 30.0, 10.0, 20.0]), Budget(), lambda row: None, 1)
    (row,) = cell.rows
    assert row.us == 10.0
    assert row.plan
    assert (row.plan["splits"], row.plan["warps"]) == (2, 2)
    assert [(each["splits"], each["us"], each["best"]) for each in row.tries] == [
        (1, 30.0, False), (2, 10.0, True), (3, 20.0, False), (9, None, False),
    ]  # fmt: skip
    assert "too many" in row.tries[3]["reason"]


def test_a_rung_on_the_machine_is_checked_and_timed() -> None:
    found = rows_of(Clock(), [fake_rung()])["fake"]
    assert found.state == MEASURED
    assert found.plan is None
    assert found.tries == ()


def test_inputs_that_cannot_be_made_are_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*args: Any) -> Case:
        raise RuntimeError("CUDA out of memory")

    monkeypatch.setattr(bench_inputs, "make", full)
    rivals = Rivals((fake_rung(),), {"good": perfect})
    cell = bench_cells.measure(SHAPE, rivals, Clock(), Budget(), lambda row: None, 1)  # type: ignore[arg-type]
    assert [row.state for row in cell.rows] == [FAILED] * 2
    assert "out of memory" in cell.rows[0].reason
    assert cell.limit is None


def test_the_limit_is_the_best_of_several_grids() -> None:
    class Three(Clock):
        processors = 2

    case = [bench_inputs.make(SHAPE, seed, "cpu") for seed in range(2)]
    # One time for each grid, of 4, 8 and 16 blocks a processor.
    row = bench_cells.read_only(case, Three([9.0, 7.0, 8.0]))  # type: ignore[arg-type]
    assert row.us == 7.0
    assert row.plan == {"blocks": 16, "threads": 256}
    assert row.tbs == pytest.approx(SHAPE.kv_bytes / 7.0 / 1e6)


def test_lengths_are_counted_in_the_record() -> None:
    data = bench_cells.described(Shape("x", (5, 9, 5), 4, 2, 32))
    assert data["context"] == [[5, 2], [9, 1]]
    assert "name" not in data


# Slow calls are launched less often, and quick ones so often that every set has its turn.


@pytest.mark.parametrize(
    ("us", "sets", "launches"), [(10.0, 2, 20), (10.0, 200, 200), (5_000.0, 2, 12), (200_000.0, 2, 2)]
)
def test_how_often(us: float, sets: int, launches: int) -> None:
    found, repeats = timing.counts(us, sets)
    assert found == launches
    assert 3 <= repeats <= timing.REPEATS
    assert us * found * repeats < 4e6, "no measurement takes longer than four seconds"


def test_a_median_its_least_and_its_most() -> None:
    assert Time.of([3.0, 1.0, 9.0], "graph") == Time(3.0, 1.0, 9.0, "graph")


# The writer and the host


def test_writers_are_checked_element_by_element(monkeypatch: pytest.MonkeyPatch) -> None:
    def idle(case: Any, machine: Any) -> Any:
        return lambda: None

    monkeypatch.setitem(bench_write.WRITERS, "idle", ("does nothing", "peer", idle))
    told: list[Row] = []
    cell = bench_write.measure(shapes.TINY_WRITES[0], Sim(), Budget(), told.append, 1)
    states = {row.who: row.state for row in cell.rows}
    assert states.pop("idle") == WRONG
    assert states == dict.fromkeys(("writer-port", "writer", "torch-index-put"), MEASURED)
    assert cell.limit
    assert told[0] == cell.limit
    left = bench_write.measure(shapes.TINY_WRITES[0], Sim(), Budget(0.0), told.append, 1)
    assert {row.state for row in left.rows} == {LEFT}


def test_the_host_is_timed_three_ways() -> None:
    cell = bench_host.measure(SHAPE, Sim(), Budget(), lambda row: None)
    assert [row.who for row in cell.rows] == ["bound", "numba", "torch-add"]
    assert {row.state for row in cell.rows} == {MEASURED}
    assert cell.id == "host"


# What is asked for


def test_a_wish_names_what_is_known() -> None:
    for given, said in (
        ({"set": "all"}, "facts"),
        ({"set": "facts", "rungs": ("x",)}, "ring"),
        ({"set": "facts", "peers": ("x",)}, "torch-sdpa"),
    ):
        with pytest.raises(ArgumentError, match=said):
            bench.Wish(**given)  # type: ignore[arg-type]
    mine = {"mine": perfect, "flashinfer-tc": perfect}
    every = bench.Wish("facts", extra=mine).rivals()
    assert [rung.number for rung in every.rungs] == list(range(9))
    assert list(every.peers) == [
        "torch-sdpa",
        "torch-flex",
        "flashinfer",
        "flashinfer-tc",
        "vllm-v1",
        "vllm-v2",
        "mine",
    ]
    assert every.peers["flashinfer-tc"] is perfect, "a module's peer takes the place of the one of its name"
    few = bench.Wish("matrix", extra=mine, without=("flashinfer",), plans=(Plan(),)).rivals()
    assert [rung.id for rung in few.rungs] == ["ring"]
    assert list(few.peers) == ["flashinfer-tc", "mine"]
    assert few.plans == {"ring": (Plan(),)}


def test_plans_are_read() -> None:
    assert bench.plans_of("1x4x3,16x8x2") == (Plan(1, 4, 3), Plan(16, 8, 2))
    assert bench.plans_of("4x4x3b")[0].balance
    assert len(bench.plans_of("all")) == len(set(bench.PLANS)) > 8
    for wrong in ("4x4", "axbxc", "", "1x4x3,"):
        with pytest.raises(ArgumentError, match="SPLITSxWARPSxDEPTH"):
            bench.plans_of(wrong)


@pytest.mark.parametrize("cache", ["auto", "fp8_e4m3"])
def test_everything_that_a_rung_launches_with_lies_where_the_inputs_lie(cache: str) -> None:
    """Bound launches copy nothing to the GPU: no argument may be an array that the rung made for itself on the host."""
    case = bench_inputs.make(Shape("", (37, 160), 8, 2, 64, kv_cache_dtype=cache), 1, "cpu")
    taken = 0
    for rung in RUNGS.values():
        made: list[Any] = []

        def zeros(size: int, dtype: Any, made: list[Any] = made) -> Any:
            made.append(np.zeros(size, dtype))
            return made[-1]

        call = bench_inputs.decode_call(case)
        known = [call.out, call.query, call.key_cache, call.value_cache, call.block_tables, call.seq_lens]
        try:
            launches = rung.launches(call, zeros, None)
        except ArgumentError:
            continue
        taken += 1
        for launch in launches:
            for argument in launch.args:
                homes = [*known, call.k_scale, call.v_scale, *made]
                assert not isinstance(argument, np.ndarray) or any(np.shares_memory(argument, home) for home in homes)
    assert taken == (9 if cache == "auto" else 1)


@pytest.mark.gpu
def test_on_a_gpu_a_cell_is_measured_by_graph_replay() -> None:
    machine = timing.Gpu()
    rivals = Rivals((RUNGS["ring"], RUNGS["tensor-cores"]), {"torch-sdpa": bench.peers.PEERS["torch-sdpa"]})
    shape = shapes.uniform("", 4, 512, 8, 2, 64)
    cell = bench_cells.measure(shape, rivals, machine, Budget(), lambda row: None, 10_000_000)
    assert [(row.state, row.how) for row in cell.rows] == [(MEASURED, "graph")] * 3
    assert cell.limit
    assert cell.limit.us
    assert cell.rows[0].registers
    host = bench_host.measure(shape, machine, Budget(), lambda row: None)
    assert {row.state for row in host.rows} == {MEASURED}
