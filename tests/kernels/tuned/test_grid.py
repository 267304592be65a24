"""The ladder's grid: every rung at every value, and what is refused is what the table says.

At the end the small grid runs on the SIMT machine and, where there is a GPU, each whole group on it.
"""

from __future__ import annotations

import itertools
import os
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from kernels.tuned import grid
from kernels.tuned.grid import SMALL, VLLM, WRITER
from kernels.tuned.grid_case import TunedCase
from kernels.tuned.grid_writer import TunedWriterCase
from kernels.tuned.ladder import RUNGS
from kernels.tuned.takes import AXES, TAKES
from kernels.vllm import ops_grid
from kernels.vllm.ops_writer_case import WriterCase

WHOLE = grid.groups()
LITTLE = grid.small_groups()
BOTH = {**WHOLE, **LITTLE}
LAST = list(RUNGS)[-1]
ON_GPU = 14


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Other tests run beside these, and torch's threads would wait for each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def rows(cases: list[Any]) -> list[dict[str, Any]]:
    return [case.row for case in cases if isinstance(case, TunedCase)]


# What is in the grids.


def test_every_rung_has_a_row_in_the_table_and_its_groups() -> None:
    assert set(TAKES) == set(RUNGS)
    assert set(WHOLE) == {*RUNGS, *(VLLM + rung for rung in RUNGS), WRITER, VLLM + WRITER}
    assert set(LITTLE) == {*(SMALL + rung for rung in RUNGS), SMALL + WRITER}
    assert set(grid.TITLES) == set(BOTH)
    assert all(takes.rounding.why for takes in TAKES.values())
    assert grid.all_groups(small=True).keys() == LITTLE.keys()


@pytest.mark.parametrize("name", BOTH)
def test_ids_are_unique_and_name_their_group(name: str) -> None:
    cases = BOTH[name]
    assert [word for word, count in Counter(case.id for case in cases).items() if count > 1] == []
    assert {(case.base if isinstance(case, TunedCase) else case).group for case in cases} == {name}


@pytest.mark.parametrize("rung", RUNGS)
def test_every_value_and_every_two_that_a_rung_takes_meet(rung: str) -> None:
    takes = TAKES[rung]
    found = [case for case in WHOLE[rung] if isinstance(case, TunedCase) and not case.base.longest]
    met = {two for row in rows(found) for two in itertools.combinations(row.items(), 2)}
    for one, two in itertools.combinations(AXES, 2):
        for a, b in itertools.product(AXES[one], AXES[two]):
            if takes.takes({one: a, two: b}) and (rung not in grid.THIN or {one, two} in grid.THIN_MEET):
                assert ((one, a), (two, b)) in met
    taken = [case.row for case in found if takes.takes(case.row) and not case.base.beyond]
    for name, values in AXES.items():
        assert {row[name] for row in taken} == {value for value in values if takes.takes({name: value})}
    refused = [row for row in rows(found) if takes.refused(row)]
    for name, values in AXES.items():
        for value in values:
            if not takes.takes({name: value}):
                assert any(row[name] == value for row in refused), f"{name} = {value} is never refused"
    for case in found:
        edges = {0, 1, case.base.block_size - 1, case.base.block_size, case.base.block_size + 1, 511, 512, 513}
        assert edges | {1023, 1024, 1025} == set(case.base.lengths) or case.base.beyond
    assert {case.cut for case in found} >= {"own", "1", "3", "12"}
    assert ("balanced" in {case.cut for case in found}) == takes.balance


@pytest.mark.parametrize("rung", RUNGS)
def test_long_sequences_and_far_blocks(rung: str) -> None:
    found = [case for case in WHOLE[rung] if isinstance(case, TunedCase)]
    longest = {case.base.longest for case in found}
    assert longest == ({0, 131_072, -1} if TAKES[rung].longest else {0, 131_072})
    beyond = [case for case in found if case.base.beyond]
    assert {case.base.kv_cache_dtype for case in beyond} == set(TAKES[rung].kind[:2])
    assert {case.unit for case in beyond} == {"beyond"}


@pytest.mark.parametrize("rung", RUNGS)
def test_vllms_parameters(rung: str) -> None:
    found = rows(WHOLE[VLLM + rung])
    every = set(itertools.product((32, 80, 128, 256), (16, 32), ("auto", "fp8"), ((40, 40), (64, 8)), (False, True)))
    names = ("head_size", "block_size", "kind", "heads", "alibi")
    here = {tuple(row[name] for name in names) for row in found}
    assert here <= every
    if rung == LAST:
        assert here == every, "the last rung has the whole product"
    for number, name in enumerate(names):
        assert {row[number] for row in here} == {row[number] for row in every}, name
    for case in WHOLE[VLLM + rung]:
        assert isinstance(case, TunedCase)
        assert case.base.tolerance == ops_grid.ATTENTION_TOLERANCE[case.base.kv_cache_dtype]
        assert (case.base.inputs, case.base.num_blocks, case.base.longest) == ("vllm", 4321, -1)
        assert (case.base.dtype, case.query_len) == ("bfloat16", 1)


def test_the_writer_has_the_cases_of_the_ops_and_more_heads() -> None:
    ours = [case for case in WHOLE[WRITER] if isinstance(case, TunedWriterCase)]
    theirs = [case for case in ops_grid.groups()["reshape"] if isinstance(case, WriterCase)]
    assert [case.id for case in ours if not case.beyond and not case.runs] == [case.id for case in theirs]
    assert [case.id for case in ours if case.runs] == [f"{case.id} runs" for case in theirs]
    assert all(case.heads == (1, 3, 40) for case in ours if not case.beyond)
    assert {case.kv_cache_dtype for case in ours if case.beyond} == {"auto", "fp8"}
    assert [case.id for case in WHOLE[VLLM + WRITER]] == [case.id for case in ops_grid.groups()["vllm-reshape"]]


def test_slots_come_in_runs_that_begin_anywhere() -> None:
    case = next(case for case in WHOLE[WRITER] if isinstance(case, TunedWriterCase) and case.runs)
    for block_size in (8, 16, 32):
        slots = case._in_runs(16, block_size).tolist()
        used = [slot for slot in slots if slot >= 0]
        assert len(set(used)) == len(used) > 30
        assert len(slots) <= case.tokens
        follows = [b == a + 1 for a, b in itertools.pairwise(slots) if a >= 0 and b >= 0]
        assert follows.count(True) > len(used) / 2
        assert False in follows, "a run that goes on in another block"
        begins = {b % block_size for a, b in itertools.pairwise([-1, *slots]) if a < 0}
        assert len(begins) > 2
        assert max(used) < 16 * block_size


def test_the_whole_grid_stays_small_enough_to_run() -> None:
    """A kernel that is written out takes seconds to compile: the fewest such rungs and cases that show every value."""
    units = {rung: {case.unit for case in [*WHOLE[rung], *WHOLE[VLLM + rung]]} for rung in RUNGS}
    assert {rung for rung, found in units.items() if len(found) > 30} == set(RUNGS) - set(grid.THIN)
    assert sum(map(len, units.values())) < 600


# The small grid on the SIMT machine.


def wrong(cases: list[Any], device: str) -> list[str]:
    """What is wrong with each case that did not pass, or that would have passed with a wrong output."""
    found = []
    for case in cases:
        seen = case.run(device)
        if not seen.passed or seen.zeros_pass or seen.shuffled_keys_pass:
            found.append(f"{case.id}: {seen}")
        refused = getattr(seen, "refused", "")
        if isinstance(case, TunedCase) and bool(refused) != bool(TAKES[case.rung].refused(case.row)):
            found.append(f"{case.id}: refused {refused!r}")
    return found


@pytest.mark.parametrize("rung", RUNGS)
def test_a_rung_on_the_simt_machine(rung: str) -> None:
    cases = LITTLE[SMALL + rung]
    taken = [row for row in rows(cases) if TAKES[rung].takes(row)]
    for name in AXES.keys() - {"heads"}:
        assert {row[name] for row in taken} == {value for value in AXES[name] if TAKES[rung].takes({name: value})}
    assert len(taken) >= 5
    assert wrong(cases, "cpu") == []


def test_the_writer_on_the_simt_machine() -> None:
    assert len(LITTLE[SMALL + WRITER]) == 24
    assert wrong(LITTLE[SMALL + WRITER], "cpu") == []


@pytest.mark.gpu
@pytest.mark.parametrize("group", BOTH)
def test_the_grid_on_the_gpu(group: str) -> None:
    from walkthroughs.grid_workers import PASSED, REFUSED, Plan, run_all

    plan = Plan("cuda", group in LITTLE, "kernels.tuned.grid")
    found = run_all(plan, plan.tasks([group]), max(1, min(ON_GPU, (os.cpu_count() or 1) - 2)))
    assert len(found) == len(BOTH[group])
    assert [row for row in found if row.result not in (PASSED, REFUSED)] == []
