"""A made-up benchmark record: numbers of the right size, from a formula, for tests and for looking at the page."""

from __future__ import annotations

import math

from kernels.tuned import shapes
from kernels.tuned.bench_cells import described
from kernels.tuned.bench_record import LIMIT, PEER, REFUSED, RUNG, Cell, Record, Row, Set
from kernels.tuned.peers import TITLES
from kernels.tuned.shapes import Shape

# Times as long as reading alone, and what each launch costs beside.
RUNGS = {
    "token-loop": (0, "One token at a time", 78.0),
    "classic-v1": (1, "vLLM's v1, line by line", 5.6),
    "classic-v2": (2, "vLLM's v2, in partitions", 4.7),
    "wide-loads": (3, "16 bytes a load", 3.9),
    "grouped": (4, "A KV head once for its group", 2.1),
    "online": (5, "One pass", 1.75),
    "split": (6, "Splits and a merge", 1.45),
    "tensor-cores": (7, "Tensor cores", 1.09),
    "ring": (8, "A ring of bulk copies", 1.033),
}
PEERS = {
    "torch-sdpa": 10.6, "torch-flex": 2.9, "flashinfer": 1.77, "flashinfer-tc": 1.062, "vllm-v1": 4.8, "vllm-v2": 3.85,
}  # fmt: skip


def timed(who: str, title: str, kind: str, us: float, moved: int, limit: float | None) -> Row:
    share = limit / us if limit else None
    return Row(
        who, title, kind, us=us, least=us * 0.99, most=us * 1.02, how="graph", tbs=moved / us / 1e6 if moved else None,
        share=share, error=None if kind == LIMIT else 2.2e-3, registers=128 if kind == RUNG else None,
        local_bytes=0 if kind == RUNG else None,
    )  # fmt: skip


def cell(shape: Shape, rungs: tuple[str, ...], peers: tuple[str, ...]) -> Cell:
    moved = shape.kv_bytes
    reading = 2.4 + moved / 4.55e6
    rows = []
    for name in rungs:
        _, title, factor = RUNGS[name]
        spare = (1.5 if name == "ring" else 5.0) if shape.batch < 16 else 0.5
        rows.append(timed(name, title, RUNG, reading * factor + spare * (1 + len(name) % 3), moved, reading))
    for name in peers:
        if name == "flashinfer" and shape.group == 7:
            rows.append(Row(name, TITLES[name], PEER, REFUSED, "a group of 7"))
            continue
        wobble = 1 + 0.05 * math.sin(shape.tokens + shape.group)
        us = reading * PEERS[name] * wobble + (4.0 if shape.batch < 16 else 2.0)
        rows.append(timed(name, TITLES[name], PEER, us, moved, reading))
    limit = timed("read-only", "reading as many bytes, and nothing else", LIMIT, reading, moved, None)
    return Cell(shape.id, shape.name, described(shape), moved, 2, limit, tuple(rows))


def made(name: str, cells: list[Cell], digest: str) -> Set:
    copy = timed("copy", "device copy, read plus written", LIMIT, 518.0, 1 << 31, None)
    floor = timed("floor", "a launch that does nothing", LIMIT, 1.9, 0, None)
    versions = {"python": "3.12.3", "torch": "2.11.0", "numba-cuda": "0.30.4"}
    return Set(
        name, "cuda", "Some <GPU>", "580.1", "2026-01-02T03:04:05Z", digest, versions, 99.0, copy, tuple(cells),
        {"flashinfer-tc": "FlashInfer, built here"}, floor,
    )  # fmt: skip


def record(digest: str = "old") -> Record:
    few = ("flashinfer", "flashinfer-tc")
    facts = [cell(shape, tuple(RUNGS), tuple(PEERS)) for shape in shapes.FACTS]
    matrix = [cell(shape, ("ring",), few) for shape in shapes.matrix()]
    goals = [cell(shape, ("ring",), (*few, "vllm-v2")) for shape in shapes.extra()]
    writer = []
    for shape in shapes.WRITES:
        limit = timed("copy", "copying as many bytes", LIMIT, 17.0, shape.moved_bytes, None)
        rows = [
            timed("writer-port", "vLLM's writer, line by line", RUNG, 40.0, shape.moved_bytes, 17.0),
            timed("writer", "16 bytes at once", RUNG, 19.0, shape.moved_bytes, 17.0),
            timed("torch-index-put", "torch: index_put", PEER, 60.0, shape.moved_bytes, 17.0),
        ]
        described_ = {
            name: getattr(shape, name) for name in ("tokens", "heads", "head_size", "block_size", "dtype", "scattered")
        }
        writer.append(Cell(shape.id, shape.name, described_, shape.moved_bytes, 4, limit, tuple(rows)))
    host = Cell("host", "the host's time for a call", described(shapes.ONE), 0, 1, None, (
        timed("bound", "bound once", RUNG, 4.2, 0, None), timed("numba", "Numba's dispatch", RUNG, 31.0, 0, None),
        timed("torch-add", "torch.add", PEER, 5.9, 0, None),
    ))  # fmt: skip
    sets = {"facts": facts, "matrix": matrix, "goals": goals, "writer": writer, "host": [host]}
    return Record({name: made(name, cells, digest) for name, cells in sets.items()})
