"""What the tests of rungs 0 to 6 share: a call made of a case, the bound, what a launch read, a spoilt copy."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from kernels import oracle
from kernels.cases_narrow import NarrowCase, narrow_decode_case, unpack
from kernels.kernel import Backend
from kernels.simt.access import Memory, Observer
from kernels.simt.sanitize import Sanitizer
from kernels.simt.warp import Lane
from kernels.tuned.call import Decode
from kernels.tuned.plan import Plan

# Half a unit in the last place, relative.
ROUNDING = {"bfloat16": 2.0**-8, "float16": 2.0**-11}
SCALARS = tuple(ROUNDING)


@dataclass(frozen=True)
class Shape:
    """Lengths, query heads, KV heads, head size, block size, plan, ALiBi."""

    lengths: tuple[int, ...]
    heads: int
    kv_heads: int
    head_size: int
    block_size: int
    plan: Plan | None = None
    alibi: bool = False

    def case(self, scalar: str, seed: int = 3) -> NarrowCase:
        """A case whose tables hold -1 and whose unowned places hold NaN."""
        return narrow_decode_case(
            self.lengths, self.heads, self.kv_heads, self.head_size, self.block_size, scalar, seed=seed,
            garbage="minus-one", alibi=self.alibi,
        )  # fmt: skip


SHAPES = (
    Shape((37,), 4, 1, 64, 16),
    Shape((33, 1, 16), 14, 2, 32, 32, Plan(1, 2)),
    Shape((40, 0, 15), 3, 1, 80, 16, Plan(3, 2), alibi=True),
    Shape((19,), 8, 1, 120, 8, Plan(2, 1)),
    Shape((5, 24), 2, 2, 8, 8, Plan(1, 4), alibi=True),
    Shape((35,), 1, 1, 256, 32, Plan(2, 4)),
    Shape((17,), 5, 1, 192, 16),
)
"""Lengths at block edges and none, groups 1 to 8, every block size, pieces that do not come out even over lanes."""


def call_of(narrow: NarrowCase, **changes: Any) -> Decode:
    """A call whose output holds NaN before."""
    case = narrow.case
    given = {
        "out": np.full(narrow.q.shape, 0x7FFF, np.uint16).view(narrow.q.dtype), "query": narrow.q,
        "key_cache": narrow.k_cache, "value_cache": narrow.v_cache, "num_kv_heads": case.num_kv_heads,
        "scale": case.scale, "block_tables": case.block_tables, "seq_lens": case.seq_lens,
        "block_size": case.block_size, "max_seq_len": max(1, case.max_seq_len), "alibi_slopes": case.alibi_slopes,
    } | changes  # fmt: skip
    return Decode(**given)


def not_zeros(size: int, dtype: Any) -> np.ndarray:
    """Scratch memory that holds NaN: our own rungs do not count on zeros."""
    return np.frombuffer(b"\xff" * (size * np.dtype(dtype).itemsize), dtype).copy()


def attend(
    launches: Any, narrow: NarrowCase, plan: Plan | None = None, backend: Any = "sim", zeros: Any = not_zeros,
    **changes: Any,
) -> Any:  # fmt: skip
    """A rung's output codes."""
    call = call_of(narrow, **changes)
    for launch in launches(call, zeros, plan):
        launch.run(backend)
    return call.out


def agrees(out: Any, narrow: NarrowCase, scalar: str) -> bool:
    """Whether every element is within its one rounding to 16 bits, and what float32 does before."""
    exact = oracle.attention(narrow.case)
    sizes = oracle.attention(replace(narrow.case, values=tuple(np.abs(rows) for rows in narrow.case.values)))
    error = np.abs(unpack(out, scalar).astype(np.float64) - exact)
    return bool((error <= ROUNDING[scalar] * np.abs(exact) + 2e-6 * sizes).all())


def check_wrong_inputs_fail(launches: Any) -> None:
    """A lost token, one too many, other heads, no output, half the scale: each is outside the bound."""
    narrow = narrow_decode_case((40,), 2, 1, 32, 16, "bfloat16", seed=2)
    case = narrow.case
    out = attend(launches, narrow)
    assert agrees(out, narrow, "bfloat16")
    for change in (lambda rows: rows[:-1], lambda rows: np.concatenate([rows, rows[:1]])):
        wrong = replace(case, keys=tuple(map(change, case.keys)), values=tuple(map(change, case.values)))
        assert not agrees(out, replace(narrow, case=wrong), "bfloat16")
    for other in (np.roll(out, 1, axis=1), np.zeros_like(out), attend(launches, narrow, scale=case.scale / 2)):
        assert not agrees(other, narrow, "bfloat16")


class Reads(Observer):
    """What a launch asks of memory: accesses of lanes and elements by array and kind; and barriers of all blocks."""

    def __init__(self) -> None:
        self.accesses: dict[tuple[str, str], int] = {}
        self.elements: dict[tuple[str, str], int] = {}
        self.widths: dict[tuple[str, str], set[int]] = {}
        self.barriers = 0

    def access(
        self, kind: str, memory: Memory, index: int, count: int, value: Any, lane: Lane, code: Any, lasti: int
    ) -> None:
        key = ("shared" if memory.space == "shared" else memory.name, kind)
        self.accesses[key] = self.accesses.get(key, 0) + 1
        self.elements[key] = self.elements.get(key, 0) + count
        self.widths.setdefault(key, set()).add(count * memory.itemsize)

    def barrier(self, epoch: int) -> None:
        self.barriers += 1


def watched(launches: Any, narrow: NarrowCase, plan: Plan | None = None) -> Reads:
    """What a rung's launches did."""
    reads = Reads()
    attend(launches, narrow, plan, Backend("sim", observers=(reads,)))
    return reads


def cache_bytes(reads: Reads, narrow: NarrowCase) -> int:
    """Bytes that lanes read of both caches."""
    total = 0
    for name in ("k_cache", "v_cache"):
        (width,) = reads.widths[name, "read"]
        total += width * reads.accesses[name, "read"]
    return total


def sanitized(launches: Any, narrow: NarrowCase, plan: Plan | None = None, schedule: str = "in-order") -> Sanitizer:
    """The sanitizers' finding over a rung's launches."""
    watch = Sanitizer()
    with watch:
        attend(launches, narrow, plan, Backend("sim", schedule, observers=(watch,)))
    return watch


def spoilt(module: ModuleType, changes: Sequence[tuple[str, str]], folder: Path) -> ModuleType:
    """A copy of a rung with some of its text changed; each text must stand there once, marks of regions left out."""
    assert module.__file__
    text = re.sub(r"^ *# (region: .*|endregion)\n", "", Path(module.__file__).read_text("utf-8"), flags=re.M)
    for old, new in changes:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    path = folder / f"{module.__name__.rpartition('.')[2]}_spoilt.py"
    path.write_text(text, "utf-8")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec
    assert spec.loader
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made
