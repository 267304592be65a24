"""Looking for a schedule under which a kernel goes wrong: every answer is one that a GPU may give too.

The launch is repeated under other orders of its warps: each warp first, each last, each stopped after some of its warp
operations while the others pass it, in all barrier intervals and in one alone, and then at random. The first
order that changes an output, or raises, is cut down to the few intervals that matter and written as a replay.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from kernels.simt.report import LaunchReport, SimtError, show_line
from kernels.simt.schedule import RUNS, Key, Order, Plan, Schedule, Turn, wrapping

if TYPE_CHECKING:
    from kernels.simt.warp import Warp

Outputs = Mapping[str, np.ndarray[Any, Any]]
Run = Callable[[Schedule], Outputs]
STOPS = 6
"""So many places to stop a warp at are tried in one interval, spread over its warp operations."""
SHOWN = 8
"""So many intervals are printed."""


@dataclass
class Interval:
    """What ran between two barriers of a block: turns of warps, and the barrier's line that it began after."""

    block: int
    number: int
    after: str
    turns: list[list[int]]  # warp, its warp operations, 1 if the schedule ended the turn

    def plan(self) -> tuple[Turn, ...]:
        """The turns as a replay plan has them."""
        return tuple((warp, count if cut else 0) for warp, count, cut in self.turns)

    def __str__(self) -> str:
        return ", ".join(f"warp {warp} ({count})" for warp, count, _ in self.turns)


class RecordingOrder(Order):
    """Another order, with a record of who ran when."""

    preempts = True  # so that it is asked

    def __init__(self, inner: Order, record: list[Interval]) -> None:
        self.inner = inner
        self.lanes_down = inner.lanes_down
        self.record = record
        self._block = 0
        self._number = -1

    def blocks(self, count: int) -> Iterator[int]:
        """As the other; notes which block runs."""
        for block in self.inner.blocks(count):
            self._block, self._number = block, -1
            yield block

    def warps(self, live: Sequence[int]) -> Sequence[int]:
        """As the other; a new interval."""
        self._number += 1
        self.record.append(Interval(self._block, self._number, "", []))
        return self.inner.warps(live)

    def stay(self) -> bool:
        """As the other."""
        stays = self.inner.stay() if self.inner.preempts else True
        self.record[-1].turns[-1][1:] = [self.record[-1].turns[-1][1] + 1, int(not stays)]
        return stays

    def pick(self, queue: Sequence[Warp]) -> int:
        """As the other."""
        found = self.inner.pick(queue) if self.inner.preempts else 0
        interval, warp = self.record[-1], queue[found]
        opened = warp.machine.opened
        if self._number and not interval.turns and opened is not None:
            interval.after = show_line(*opened.spot)
        if interval.turns and interval.turns[-1][0] == warp.number:
            interval.turns[-1][2] = 0
        else:
            interval.turns.append([warp.number, 0, 0])
        return found


@contextmanager
def recording() -> Iterator[list[Interval]]:
    """Collect what every launch inside does, interval by interval."""
    record: list[Interval] = []
    token = wrapping.set(lambda order: RecordingOrder(order, record))
    try:
        yield record
    finally:
        wrapping.reset(token)


@dataclass(frozen=True)
class Difference:
    """The first element that two runs disagree about, and how many there are."""

    output: str
    index: tuple[int, ...]
    baseline: Any
    offending: Any
    count: int

    def __str__(self) -> str:
        where = f"{self.output}[{', '.join(map(str, self.index))}]"
        return f"{where} = {self.baseline} against {self.offending} ({self.count} elements differ)"


@dataclass(frozen=True)
class Finding:
    """Two legal schedules of one launch that do not agree; both can be replayed."""

    baseline: Schedule
    offending: Schedule
    difference: Difference | None
    error: Exception | None
    records: tuple[tuple[Interval, ...], tuple[Interval, ...]]

    def render(self) -> str:
        """Both side by side: which warp ran when, in the intervals where they differ, and what came of it."""
        rows = [("", str(self.baseline), str(self.offending))]
        left, right = ({(i.block, i.number): i for i in record} for record in self.records)
        differ = [key for key in left if key in right and left[key].plan() != right[key].plan()]
        for key in differ[:SHOWN]:
            begin = f"after {left[key].after}" if left[key].after else "from the start"
            rows.append((f"block {key[0]}, interval {key[1]}, {begin}", str(left[key]), str(right[key])))
        widths = [max(len(row[column]) for row in rows) for column in range(3)]
        lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
        if len(differ) > SHOWN:
            lines.append(f"... and {len(differ) - SHOWN} more intervals in which the order differs")
        lines.append("warp W (n): warp W ran, over n warp operations; each interval ends at a barrier")
        lines.append(f"first difference: {self.difference}" if self.difference else f"it raises: {self.error}")
        return "\n".join(lines)


@dataclass(frozen=True)
class Verdict:
    """What a search came to: `finding` is None where every order that was tried agreed."""

    finding: Finding | None
    launches: int
    exhausted: bool
    """Whether there was nothing left to try, rather than no budget."""

    def __str__(self) -> str:
        if self.finding:
            return self.finding.render()
        why = "there are no others to try" if self.exhausted else "the budget is spent"
        return f"{self.launches} launches under different schedules agree; {why}"


class ScheduleDependent(SimtError):
    """A legal order of warps changes what the launch writes, or makes it fail; `finding` holds both schedules."""

    def __init__(self, kernel: str, finding: Finding) -> None:
        self.kernel = kernel
        self.finding = finding
        super().__init__(f"{kernel} depends on the order of its warps:\n{finding.render()}")


def search(
    run: Run, *, budget: int = RUNS, tolerance: float | None = None, baseline: str | Schedule = "in-order"
) -> Verdict:
    """Look for a schedule under which `run` writes something else than under `baseline`, or raises.

    `run` launches under the schedule it is given, on inputs that are the same each time, and returns what was
    written, by name. `budget`: how many times it may be called; cutting a finding down may take half as many again.
    `tolerance`: how far an element may move, absolutely; None: not a bit. An error of the baseline is raised as it
    is.
    """
    first = Schedule.parse(baseline)
    with recording() as record:
        expected = {name: np.array(value) for name, value in run(first).items()}
    launches = 1

    def offends(schedule: Schedule) -> tuple[Difference | None, Exception | None] | None:
        nonlocal launches
        launches += 1
        try:
            got = run(schedule)
        except Exception as error:  # whatever it is, the baseline did not raise it
            return None, error
        found = _difference(expected, got, tolerance)
        return (found, None) if found else None

    for schedule in candidates(record):
        if launches >= budget:
            return Verdict(None, launches, False)
        if offends(schedule):
            shorter = _shorten(schedule, run, lambda plan: offends(plan) is not None, max(4, budget // 2))
            with recording() as other:
                outcome = offends(shorter)
            assert outcome is not None, "a replay gives the same run again"
            return Verdict(Finding(first, shorter, *outcome, (tuple(record), tuple(other))), launches, False)
    return Verdict(None, launches, True)


def candidates(record: Sequence[Interval]) -> Iterator[Schedule]:
    """Schedules to try, the likeliest first; ends only where there is a single warp, or one plain order."""
    seen = {Plan()}
    blocks = len({interval.block for interval in record})
    plans = itertools.chain(_everywhere(record), _one_by_one(record)) if _warps(record) > 1 else iter(())
    simple = [Plan(lanes_down=True)] + [Plan(blocks_down=True)] * (blocks > 1)
    chance = (Schedule("random", seed) for seed in itertools.count()) if blocks * _warps(record) > 1 else iter(())
    for pair in itertools.zip_longest(itertools.chain(simple, plans), _late(chance)):
        plan, lucky = pair
        if plan is not None and plan not in seen:
            seen.add(plan)
            yield Schedule("replay", plan=plan)
        if lucky is not None:
            yield lucky


def _late(chance: Iterator[Schedule]) -> Iterator[Schedule | None]:
    """Random orders, but only once the plain orders have been tried."""
    return itertools.chain(itertools.repeat(None, 24), chance)


def _warps(record: Sequence[Interval]) -> int:
    return max((turn[0] + 1 for interval in record for turn in interval.turns), default=1)


def _everywhere(record: Sequence[Interval]) -> Iterator[Plan]:
    """The same order in every interval: all warps turned round, each first, each last, each stopped on its way."""
    count = _warps(record)
    everywhere: Key = (None, None)

    def plan(turns: Sequence[Turn], down: bool = False) -> Plan:
        return Plan({everywhere: tuple(turns)}, down)

    backwards = [(warp, 0) for warp in reversed(range(count))]
    yield plan(backwards)
    for warp in range(count):
        yield plan(_ahead(warp))
        yield plan(_behind(warp, count))
    yield plan(backwards, down=True)
    operations = max((turn[1] for interval in record for turn in interval.turns), default=0)
    for stop in _stops(operations):
        for warp in range(count):
            yield plan([(warp, stop), *_behind(warp, count)])


def _one_by_one(record: Sequence[Interval]) -> Iterator[Plan]:
    """Another order in a single interval: a warp first or last there, then a warp stopped on its way."""
    shapes: dict[int, list[Interval]] = {}
    for interval in record:
        shapes.setdefault(interval.number, []).append(interval)
    for number, those in shapes.items():
        count = _warps(those)
        for warp in range(count):
            yield Plan({(None, number): tuple(_behind(warp, count))})
            yield Plan({(None, number): tuple(_ahead(warp))})
    for number, those in shapes.items():
        count = _warps(those)
        for stop in _stops(max((turn[1] for interval in those for turn in interval.turns), default=0)):
            for warp in range(count):
                yield Plan({(None, number): ((warp, stop), *_behind(warp, count))})


def _ahead(warp: int) -> list[Turn]:
    return [(warp, 0)]


def _behind(warp: int, count: int) -> list[Turn]:
    return [(other, 0) for other in range(count) if other != warp]


def _stops(operations: int) -> list[int]:
    return sorted({1 + step * (operations - 1) // (STOPS - 1) for step in range(STOPS)}) if operations else []


def _difference(expected: Outputs, got: Outputs, tolerance: float | None) -> Difference | None:
    """The first element that differs, by name and then by index."""
    for name, left in expected.items():
        right = np.asarray(got[name])
        if tolerance is None:
            shape = (left.size, left.dtype.itemsize)
            a, b = (np.frombuffer(side.tobytes(), np.uint8).reshape(shape) for side in (left, right))
            apart = (a != b).any(axis=1).reshape(left.shape)
        else:
            apart = ~np.isclose(right, left, rtol=0, atol=tolerance, equal_nan=True)
        if apart.any():
            index = tuple(int(part) for part in np.argwhere(apart)[0])
            return Difference(name, index, left[index], right[index], int(apart.sum()))
    return None


def _shorten(schedule: Schedule, run: Run, offends: Callable[[Schedule], bool], budget: int) -> Schedule:
    """The same fault with as few intervals out of order as `budget` launches find; the schedule itself if none."""
    with recording() as record, suppress(Exception):  # an exception may be what it was found for
        run(schedule)
    down = schedule.kind == "replay" and schedule.plan.lanes_down
    backwards = [interval.block for interval in record if not interval.number]
    blocks_down = backwards == sorted(backwards, reverse=True) and len(backwards) > 1
    kept = {(i.block, i.number): i.plan() for i in record if i.plan() != tuple(sorted(set(i.plan())))}
    best = schedule

    def attempt(turns: Mapping[Key, tuple[Turn, ...]], down: bool) -> bool:
        nonlocal best, budget
        plan = Plan(dict(turns), down, blocks_down)
        candidate = Schedule("replay", plan=plan) if str(plan) else Schedule()
        if budget <= 0:
            return False
        budget -= 1
        if not offends(candidate):
            return False
        best = candidate
        return True

    turns: dict[Any, tuple[Turn, ...]] = dict(kept)
    if not attempt(turns, down):
        return best
    if down and attempt(turns, False):
        down = False
    size = max(1, len(turns) // 2)
    while True:
        for start in reversed(range(0, len(turns), size)):  # so that the earliest interval is what stays
            left_out = set(list(turns)[start : start + size])
            fewer = {key: value for key, value in turns.items() if key not in left_out}
            if attempt(fewer, down):
                turns = fewer
                break
        else:
            if size == 1 or budget <= 0:
                return best
            size = max(1, size // 2)
            continue
        size = max(1, min(size, len(turns) // 2))


def launch_searching(
    fn: Callable[..., None],
    grid: int | Sequence[int],
    block: int | Sequence[int],
    args: Sequence[Any],
    how: Mapping[str, Any],
    watch: Mapping[str, Any],
    budget: int,
) -> LaunchReport:
    """The schedule `adversarial` of `launch`: one launch in order, and a search for an order that makes a difference.

    `how`: the other arguments of `launch`. `watch`: its observers and tracer, who see the launch in order alone.
    Raises ScheduleDependent where the search finds something: before the launch, unless there is somebody to see it.
    """
    from kernels.simt.machine import launch  # which calls this function

    code = getattr(fn, "__code__", None)
    names = code.co_varnames[: code.co_argcount] if code is not None else ()

    def run(schedule: Schedule) -> Outputs:
        copies = {id(arg): arg.copy() for arg in args if isinstance(arg, np.ndarray)}  # one array twice stays one
        launch(fn, grid, block, [copies.get(id(arg), arg) for arg in args], schedule=schedule, **how)
        return {
            names[i] if i < len(names) else f"argument {i}": copies[id(arg)]
            for i, arg in enumerate(args)
            if isinstance(arg, np.ndarray) and arg.flags.writeable
        }

    finding = search(run, budget=budget).finding
    fault = ScheduleDependent(how["name"] or fn.__name__, finding) if finding else None
    if fault and not any(watch.values()):
        raise fault
    report = launch(fn, grid, block, args, **how, **watch)
    if fault:
        raise fault
    return report
