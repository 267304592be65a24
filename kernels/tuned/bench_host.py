"""Measures the host's side of a call: a bound launch, Numba's own dispatch of the same kernel, and torch.add.

The GPU is faster than the host here, so what a loop of calls takes is the host's time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from kernels.tuned import bench_inputs
from kernels.tuned.bench_cells import TIME_WAS_UP, Budget, Told, described, said, still_there, times, unfit
from kernels.tuned.bench_record import FAILED, LEFT, MEASURED, PEER, REFUSED, RUNG, Cell, Row
from kernels.tuned.ladder import RUNGS
from kernels.tuned.shapes import Shape
from kernels.tuned.timing import Machine

BOUND, DISPATCH, TORCH_ADD = "bound", "numba", "torch-add"


def measure(shape: Shape, machine: Machine, budget: Budget, told: Told) -> Cell:
    """One cell, `host`: microseconds of the host for a call on a small shape. Raises DeviceLost."""
    case = bench_inputs.make(shape, 0, machine.device)
    rung = max(RUNGS.values(), key=lambda each: each.number)
    zeros = bench_inputs.zeros_on(machine.device)

    def bound() -> Callable[[], Any]:
        # A caller knows its stream: asking torch for it would take as long as the launch.
        return machine.ready(rung.launches(bench_inputs.decode_call(case), zeros, None), stream=0)

    def dispatch() -> Callable[[], Any]:
        return machine.dispatch(rung.launches(bench_inputs.decode_call(case), zeros, None))

    def add() -> Callable[[], Any]:
        one = torch.ones(1024, device=machine.device)
        return lambda: torch.add(one, one)

    ways = (
        (BOUND, f"{rung.id}: bound once, then launched", RUNG, bound),
        (DISPATCH, f"{rung.id}: Numba's dispatch at every call", RUNG, dispatch),
        (TORCH_ADD, "torch.add of 1,024 numbers", PEER, add),
    )
    rows = []
    for who, title, kind, make in ways:
        blank = Row(who, title, kind, LEFT, TIME_WAS_UP)
        row = blank if budget.up else _tried(blank, make, machine)
        told(row)
        rows.append(row)
    return Cell("host", "the host's time for a call", described(shape), 0, 1, None, tuple(rows))


def _tried(blank: Row, make: Callable[[], Callable[[], Any]], machine: Machine) -> Row:
    try:
        call = make()
        call()
        machine.wait()
        taken = machine.host(call)
    except Exception as failure:
        still_there(machine, failure)
        return replace(blank, state=REFUSED if unfit(failure) else FAILED, reason=said(failure))
    return replace(blank, state=MEASURED, reason="", **times(taken))
