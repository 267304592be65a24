"""The grid of the ladder: every rung over vLLM's test parameters and over our matrix, and the tuned writer.

Every rung meets every value of every axis, and any two values that it takes meet in one case; for three rungs, whose
kernels take longest to compile, only of some axes (THIN). The whole product would be tens of thousands of kernels. What
a rung does not take is a case as well: see `takes`.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Iterator

from kernels.tuned.covering import Axes, Row, covering
from kernels.tuned.grid_case import TunedCase, cell
from kernels.tuned.grid_writer import TunedWriterCase
from kernels.tuned.ladder import RUNGS
from kernels.tuned.plan import Plan
from kernels.tuned.takes import AXES, TAKES
from kernels.vllm import ops_grid
from kernels.vllm.ops_attention_case import AttentionCase

__all__ = ["TITLES", "Case", "all_groups", "groups", "small_groups"]

Case = TunedCase | TunedWriterCase
WRITER = "writer"
VLLM, SMALL = "vllm-", "small-"
"""What the names of groups begin with: vLLM's parameters and tolerances, and the grid for the SIMT machine."""
PLANS = {
    "own": None, "1": Plan(1, 2, 2), "3": Plan(3, 4, 1), "12": Plan(12, 1, 2), "balanced": Plan(2, 4, 1, balance=True),
}  # fmt: skip
"""How a launch is cut, by name: as the rung likes, or in so many splits. All fit with the largest blocks."""
LONG = 131_072
SMALL_PAIRS = ((1, 1), (2, 1), (4, 2), (7, 1), (8, 1), (16, 1))
VLLM_AXES: Axes = {
    "head_size": (32, 80, 128, 256), "block_size": (16, 32), "kind": ("auto", "fp8"), "heads": ((40, 40), (64, 8)),
    "alibi": (False, True), "query_len": (1,),
}  # fmt: skip
MEET = ({"dtype", "kind"}, {"kind", "block_size"}, {"dtype", "block_size"})
"""The axes whose values meet in the small grid."""
THIN = ("grouped", "online", "split")
"""Rungs whose straight-line kernels take many seconds to compile: all values, but fewer of them meet."""
THIN_MEET = (*MEET, {"block_size", "cut"}, {"block_size", "alibi"}, {"dtype", "alibi"})


def _titles() -> dict[str, str]:
    found = {}
    for rung in RUNGS.values():
        found[rung.id] = f"{rung.number}. {rung.title}: our matrix"
        found[VLLM + rung.id] = f"{rung.number}. {rung.title}: vLLM's parameters"
        found[SMALL + rung.id] = f"{rung.number}. {rung.title}: small shapes"
    return {
        **found,
        WRITER: "The writer: our matrix, bit for bit",
        VLLM + WRITER: "The writer: vLLM's parameters",
        SMALL + WRITER: "The writer: small shapes, bit for bit",
    }


TITLES = _titles()
"""What each group is, for the page."""


def groups() -> dict[str, list[Case]]:
    """The grids for a GPU."""
    last = next(reversed(RUNGS), "")
    found: dict[str, list[Case]] = {}
    for rung in RUNGS:
        found[rung] = [*_matrix(rung), *_long(rung), *_beyond(rung)]
        found[VLLM + rung] = list(_vllm(rung, whole=rung == last))
    return {**found, WRITER: list(_writer()), VLLM + WRITER: list(_vllm_writer())}


def small_groups() -> dict[str, list[Case]]:
    """The grid for the SIMT machine: every rung at every value of every axis."""
    found: dict[str, list[Case]] = {SMALL + rung: list(_small(rung)) for rung in RUNGS}
    return {**found, SMALL + WRITER: list(_small_writer())}


def all_groups(small: bool) -> dict[str, list[Case]]:
    """One or the other."""
    return small_groups() if small else groups()


def lengths_at(block_size: int) -> tuple[int, ...]:
    """The edges: of a block, of v2's partitions, and nothing at all."""
    return (0, 1, block_size - 1, block_size, block_size + 1, 511, 512, 513, 1023, 1024, 1025)


def _rows(rung: str, axes: Axes, apart: Iterable[Iterable[str]] = ()) -> Iterator[Row]:
    """Rows in which every two values meet that the rung takes; then each value, and each two, that it refuses."""
    takes = TAKES[rung]
    taken = {name: [value for value in values if takes.takes({name: value})] for name, values in axes.items()}
    rows = covering(taken, takes.takes, apart)
    yield from rows
    for name, values in axes.items():
        yield from ({**rows[0], name: value} for value in values if value not in taken[name])
    for first, second in itertools.combinations(taken, 2):
        for one, two in itertools.product(taken[first], taken[second]):
            if not takes.takes({first: one, second: two}):
                yield {**rows[0], first: one, second: two}


def _apart(axes: Axes, meet: Collection[set[str]]) -> list[tuple[str, str]]:
    """Every two axes but those."""
    return [two for two in itertools.combinations(axes, 2) if set(two) not in meet]


def _cuts(rung: str) -> tuple[str, ...]:
    return tuple(name for name, plan in PLANS.items() if TAKES[rung].balance or plan is None or not plan.balance)


def _case(rung: str, group: str, row: Row, lengths: tuple[int, ...]) -> TunedCase:
    cut = row.get("cut", "own")
    return TunedCase(rung, cell(group, rung, row, lengths=lengths), cut, PLANS[cut], row["query_len"])


def _matrix(rung: str) -> Iterator[Case]:
    axes = {**AXES, "cut": _cuts(rung)}
    for row in _rows(rung, axes, _apart(axes, THIN_MEET) if rung in THIN else ()):
        yield _case(rung, rung, row, lengths_at(row["block_size"]))


def _long(rung: str) -> Iterator[Case]:
    """131,072 tokens beside a short sequence; where all scores are kept, also as many as there is room for."""
    takes = TAKES[rung]
    dtypes = takes.dtype[:1] if rung in THIN else takes.dtype
    rows = [(dtype, "auto") for dtype in dtypes] + [("bfloat16", kind) for kind in takes.kind if kind != "auto"]
    for (dtype, kind), longest in itertools.product(rows, (LONG, -1) if takes.longest else (LONG,)):
        yield TunedCase(
            rung, AttentionCase(rung, rung, dtype, kind, 16, 128, ((8, 1),), lengths=(1000,), longest=longest)
        )  # fmt: skip


def _beyond(rung: str) -> Iterator[Case]:
    """Blocks whose elements lie beyond 2**31."""
    for kind in TAKES[rung].kind[:2]:
        base = AttentionCase(rung, rung, "bfloat16", kind, 16, 128, ((8, 8),), lengths=(1, 300, 1025), beyond=True)
        yield TunedCase(rung, base)


def _vllm(rung: str, *, whole: bool) -> Iterator[Case]:
    """vLLM's parameters: the whole product, or every two values of any two."""
    rows = (dict(zip(VLLM_AXES, row, strict=True)) for row in itertools.product(*VLLM_AXES.values()))
    for row in rows if whole else _rows(rung, VLLM_AXES):
        base = cell(
            VLLM + rung, rung, {**row, "dtype": "bfloat16"}, longest=-1, inputs="vllm",
            tolerance=ops_grid.ATTENTION_TOLERANCE[row["kind"]], num_blocks=4321,
        )  # fmt: skip
        yield TunedCase(rung, base)


def _small(rung: str) -> Iterator[Case]:
    """Every value once, with a second block begun; the axes that decide over loads meet."""
    axes = {**AXES, "heads": SMALL_PAIRS, "cut": _cuts(rung)}
    for row in _rows(rung, axes, _apart(axes, MEET)):
        yield _case(rung, SMALL + rung, row, (1, row["block_size"] + 1))


def _writer() -> Iterator[Case]:
    """Every dtype, cache dtype and head size, with more heads than vLLM's writer reaches; then beyond 2**31."""
    for case, runs in itertools.product(ops_grid.groups()["reshape"], (False, True)):
        yield TunedWriterCase.of(case, WRITER, heads=(1, 3, 40), runs=runs)
    for case in ops_grid.groups()["big"]:
        if getattr(case, "op", "") == "reshape":
            yield TunedWriterCase.of(case, WRITER)


def _vllm_writer() -> Iterator[Case]:
    for case in ops_grid.groups()["vllm-reshape"]:
        yield TunedWriterCase.of(case, VLLM + WRITER)


def _small_writer() -> Iterator[Case]:
    for case, runs in itertools.product(ops_grid.small_groups()["small-reshape"], (False, True)):
        yield TunedWriterCase.of(case, SMALL + WRITER, runs=runs)
    # Prompts of two runs and more, and heads that do not fill a warp's 32 elements.
    for dtype, block_size in itertools.product(("bfloat16", "float16"), ops_grid.BLOCK_SIZES):
        yield TunedWriterCase(
            SMALL + WRITER, "reshape", dtype, "auto", 40, (block_size,), (3,), num_blocks=16, runs=True
        )
