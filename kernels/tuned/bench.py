"""The benchmark's driver: sets of cells, one after the other, printed row by row and kept cell by cell.

`python -m walkthroughs.bench` (or `pagewalk bench`) is the command; here is what it does, on a GPU, or on the SIMT
machine as a dry run whose times mean nothing.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch

from kernels.errors import ArgumentError
from kernels.tuned import bench_cells, bench_host, bench_inputs, bench_write, ceilings, peers, shapes
from kernels.tuned.bench_cells import Budget, DeviceLost, Rivals
from kernels.tuned.bench_record import LIMIT, Cell, Row, Set
from kernels.tuned.bench_text import line
from kernels.tuned.ladder import RUNGS
from kernels.tuned.peers import FLASHINFER, FLASHINFER_PLAIN, VLLM_V2, Maker
from kernels.tuned.plan import Plan
from kernels.tuned.timing import Gpu, Machine, Sim

HOST, WRITER = "host", "writer"
SETS = (*shapes.SETS, WRITER, HOST)
COPY_BYTES = 1 << 30
FEW = {"matrix": (FLASHINFER, FLASHINFER_PLAIN), "goals": (FLASHINFER, FLASHINFER_PLAIN, VLLM_V2)}
"""Peers of the large sets, where only the last rung runs."""
PLANS = tuple(Plan(splits, warps, depth) for warps, depth in ((4, 3), (8, 3)) for splits in (1, 2, 4, 8, 16, 32))
"""What `--plans` tries where no plans are named; those that share a compiled kernel stand together."""


@dataclass(frozen=True)
class Wish:
    """What to measure. Empty tuples: everything that belongs to a set. `only`: cells whose id contains one of these.

    `plans`: for the last rung, in place of its own. `extra`: peers of other modules, with `words` on what they are.
    """

    set: str
    rungs: tuple[str, ...] = ()
    peers: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    only: tuple[str, ...] = ()
    plans: tuple[Plan, ...] = ()
    extra: Mapping[str, Maker] = field(default_factory=dict)
    words: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, given, known in (
            ("set", (self.set,), SETS),
            ("rungs", self.rungs, RUNGS),
            ("peers", self.peers, (*peers.PEERS, *self.extra)),
        ):
            if wrong := [item for item in given if item not in known]:
                raise ArgumentError(name, wrong[0], f"must be one of {', '.join(known)}")

    def rivals(self) -> Rivals:
        """Rungs and peers of the set; peers of other modules always."""
        ladder = sorted(RUNGS.values(), key=lambda rung: rung.number)
        top = ladder[-1].id
        chosen = self.rungs or ((top,) if self.set in FEW else tuple(rung.id for rung in ladder))
        known = {**peers.PEERS, **self.extra}
        named = self.peers or (
            *FEW.get(self.set, peers.PEERS),
            *(name for name in self.extra if name not in peers.PEERS),
        )
        rungs = tuple(RUNGS[name] for name in chosen if name not in self.without)
        chosen_peers = {name: known[name] for name in named if name not in self.without}
        return Rivals(rungs, chosen_peers, {top: self.plans} if self.plans else {})

    def said(self) -> dict[str, str]:
        """What other modules say of the peers that are measured."""
        measured = {} if self.set in (HOST, WRITER) else self.rivals().peers
        return {who: words for who, words in self.words.items() if who in measured}


@dataclass(frozen=True)
class Where:
    """What a record says of the machine and the code."""

    device: str
    driver: str
    date: str
    digest: str
    versions: dict[str, str]


def machine_of(backend: str) -> Machine:
    """`cuda`: this GPU; `sim`: the SIMT machine, for a dry run."""
    return Gpu() if backend == "cuda" else Sim()


def run(
    wish: Wish,
    machine: Machine,
    where: Where,
    *,
    budget: Budget | None = None,
    say: Callable[[str], None] = print,
    keep: Callable[[Set], None] = lambda made: None,
    footprint: int = bench_inputs.FOOTPRINT,
) -> Set:
    """Measure one set; `keep` is given the set as far as it is, after every cell. Raises DeviceLost, then too."""
    budget = budget or Budget()
    begun = budget.spent
    copy, floor = device_copy(machine) if machine.backend == "cuda" else None, launch_floor(machine)
    for row in filter(None, (copy, floor)):
        say(line(row))
    made = Set(
        wish.set, machine.backend, where.device, where.driver, where.date, where.digest,
        {**where.versions, **peers.versions()}, 0.0, copy, (), wish.said(), floor,
    )  # fmt: skip
    for work in _cells(wish, machine, budget, say, footprint):
        lost: DeviceLost | None = None
        try:
            cell = work()
        except DeviceLost as error:
            lost, cell = error, None
        if cell is not None:
            made = dataclasses.replace(made, cells=(*made.cells, cell), seconds=round(budget.spent - begun, 1))
        keep(made)
        if lost is not None:
            raise lost
    return made


def _cells(
    wish: Wish, machine: Machine, budget: Budget, say: Callable[[str], None], footprint: int
) -> list[Callable[[], Cell]]:
    def told(row: Row) -> None:
        say(line(row))

    def headed(shape: Any, work: Callable[[], Cell]) -> Callable[[], Cell]:
        def begin() -> Cell:
            say(f"{shape.id}  {shape.name}  ({budget.spent:.0f} s)")
            return work()

        return begin

    if wish.set == HOST:
        small = shapes.ONE if machine.backend == "cuda" else shapes.TINY[0]
        return [headed(small, partial(bench_host.measure, small, machine, budget, told))]
    if wish.set == WRITER:
        writes = shapes.WRITES if machine.backend == "cuda" else shapes.TINY_WRITES
        return [
            headed(shape, partial(bench_write.measure, shape, machine, budget, told, footprint))
            for shape in writes
            if _wanted(wish, shape.id)
        ]
    rivals = wish.rivals()
    return [
        headed(shape, partial(bench_cells.measure, shape, rivals, machine, budget, told, footprint))
        for shape in shapes.SETS[wish.set]()
        if _wanted(wish, shape.id)
    ]


def _wanted(wish: Wish, cell: str) -> bool:
    return not wish.only or any(part in cell for part in wish.only)


def launch_floor(machine: Machine) -> Row:
    """Launches that do nothing: no kernel is faster."""
    answer = torch.zeros(1, dtype=torch.int32, device=machine.device)
    taken = machine.time([machine.ready([ceilings.empty_launch(bench_inputs.array(answer))])])
    return Row("floor", "a launch that does nothing", LIMIT, **bench_cells.times(taken))


def device_copy(machine: Machine) -> Row:
    """Copying a GiB, the better of two ways: bytes read plus written."""
    source = torch.ones(COPY_BYTES // 4, device=machine.device)
    ways = bench_inputs.copies(source, torch.empty_like(source))
    taken = min((machine.time([way]) for way in ways), key=lambda each: each.median)
    moved = 2 * COPY_BYTES
    return Row(
        "copy", "device copy, read plus written", LIMIT, us=taken.median, least=taken.least, most=taken.most,
        how=taken.how, tbs=bench_cells.terabytes(moved, taken.median),
    )  # fmt: skip


def plan_of(text: str) -> Plan:
    """`2x4x3` is 2 splits, 4 warps, depth 3; a `b` behind it: balanced. Raises ArgumentError."""
    balance = text.endswith("b")
    parts = text.removesuffix("b").split("x")
    if len(parts) != 3 or not all(part.isdigit() for part in parts):
        raise ArgumentError("plans", text, "must be SPLITSxWARPSxDEPTH, such as 2x4x3, with a b behind it to balance")
    splits, warps, depth = map(int, parts)
    return Plan(splits, warps, depth, **({"balance": True} if balance else {}))


def plans_of(text: str) -> tuple[Plan, ...]:
    """Plans with commas between; `all`: the usual ones. Raises ArgumentError."""
    return PLANS if text == "all" else tuple(plan_of(part) for part in text.split(","))


__all__ = ["SETS", "Budget", "DeviceLost", "Where", "Wish", "machine_of", "plans_of", "run"]
