"""Measures the cache writer: the line-by-line port, the tuned one and torch's indexing, against a copy of as much."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, replace
from typing import Any

import torch

from kernels import layout
from kernels.tuned import bench_inputs, writer
from kernels.tuned.bench_cells import TIME_WAS_UP, Budget, Told, said, still_there, terabytes, times, unfit
from kernels.tuned.bench_inputs import WriteCase, array
from kernels.tuned.bench_record import FAILED, LEFT, LIMIT, MEASURED, PEER, REFUSED, RUNG, WRONG, Cell, Row
from kernels.tuned.call import Launch
from kernels.tuned.shapes import WriteShape
from kernels.tuned.timing import Machine
from kernels.vllm import cache
from kernels.vllm.strided import flat, strides

PORT, TUNED, INDEX_PUT = "writer-port", "writer", "torch-index-put"
Build = Callable[[WriteCase, Machine], Any]


def port(case: WriteCase, machine: Machine) -> Any:
    """The port of vLLM's writer, as its host code launches it."""
    key, value, keys, values = map(array, (case.key, case.value, case.key_cache, case.value_cache))
    one = torch.ones(1, device=case.key.device)
    x = int(keys.shape[4])
    made = cache.reshape_and_cache_kernel.specialise(dtype=str(key.dtype), kv_cache_dtype="auto")
    args = (
        flat(key), flat(value), flat(keys), flat(values), array(case.slots), strides(key)[0], strides(value)[0],
        case.shape.heads, case.shape.head_size, case.shape.block_size, x, array(one), array(one),
    )  # fmt: skip
    threads = layout.writer_threads(case.shape.heads, case.shape.head_size, x)
    return machine.ready([Launch(made, (case.shape.tokens, 1, 1), threads, args)])


def tuned(case: WriteCase, machine: Machine) -> Any:
    """The ladder's writer."""
    key, value, keys, values = map(array, (case.key, case.value, case.key_cache, case.value_cache))
    return machine.ready(writer.launches(key, value, keys, values, array(case.slots)))


def index_put(case: WriteCase, _machine: Machine) -> Any:
    """torch: `cache[block, :, :, offset] = ...`, twice."""
    block, offset = case.slots // case.shape.block_size, case.slots % case.shape.block_size
    keys = case.key.view(case.shape.tokens, case.shape.heads, -1, 8)

    def call() -> None:
        case.key_cache[block, :, :, offset] = keys
        case.value_cache[block, :, :, offset] = case.value

    return call


WRITERS: dict[str, tuple[str, str, Build]] = {
    PORT: ("vLLM's writer, line by line", RUNG, port),
    TUNED: ("a thread for each head and x-group, 16 bytes at once", RUNG, tuned),
    INDEX_PUT: ("torch: index_put", PEER, index_put),
}
"""By id: in words, what it is, and how a call is made."""


def measure(shape: WriteShape, machine: Machine, budget: Budget, told: Told, footprint: int) -> Cell:
    """A cell with a row for every writer; the limit is a copy of as many bytes. Raises DeviceLost."""
    sets = bench_inputs.sets_for(shape.moved_bytes, footprint)
    described = {key: value for key, value in asdict(shape).items() if key != "name"}
    blank = Cell(shape.id, shape.name, described, shape.moved_bytes, sets, None, ())
    if budget.up:
        left = tuple(Row(who, title, kind, LEFT, TIME_WAS_UP) for who, (title, kind, _) in WRITERS.items())
        return replace(blank, rows=left)
    cases = [bench_inputs.make_write(shape, seed, machine.device) for seed in range(sets)]
    limit = copy(cases, machine)
    told(limit)
    rows = []
    for row in _rows(cases, machine, limit, budget):
        told(row)
        rows.append(row)
    return replace(blank, limit=limit, rows=tuple(rows))


def copy(cases: Sequence[WriteCase], machine: Machine) -> Row:
    """Copying keys and values to memory of the same size, in one piece: the better of two ways."""
    sources = [torch.stack([case.key, case.value]) for case in cases]
    pairs = [bench_inputs.copies(source, torch.empty_like(source)) for source in sources]
    ways = [list(calls) for calls in zip(*pairs, strict=True)]
    taken = min((machine.time(calls) for calls in ways), key=lambda each: each.median)
    moved = cases[0].shape.moved_bytes
    return Row("copy", "copying as many bytes", LIMIT, tbs=terabytes(moved, taken.median), **times(taken))


def _rows(cases: Sequence[WriteCase], machine: Machine, limit: Row, budget: Budget) -> Iterator[Row]:
    moved = cases[0].shape.moved_bytes
    for who, (title, kind, build) in WRITERS.items():
        blank = Row(who, title, kind, LEFT, TIME_WAS_UP)
        if budget.up:
            yield blank
            continue
        try:
            calls = [build(case, machine) for case in cases]
            for cached in (cases[0].key_cache, cases[0].value_cache):
                bench_inputs.poison(cached)
            calls[0]()
            machine.wait()
            if wrong := cases[0].wrong():
                yield replace(blank, state=WRONG, reason=f"{wrong} elements of the caches are wrong")
                continue
            taken = machine.time(calls)
        except Exception as failure:
            still_there(machine, failure)
            yield replace(blank, state=REFUSED if unfit(failure) else FAILED, reason=said(failure))
            continue
        yield replace(
            blank, state=MEASURED, reason="", error=0.0, tbs=terabytes(moved, taken.median),
            share=limit.us / taken.median if limit.us else None, registers=getattr(calls[0], "registers", None),
            local_bytes=getattr(calls[0], "local_bytes", None), **times(taken),
        )  # fmt: skip
