"""Faults in the ports of what vLLM runs today: every barrier is missed, and so is every term of the softmax."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from kernels.kernel import Backend
from walkthroughs import mutations, runner
from walkthroughs.mutations import MUTATIONS, Mutation, benches, caught_by, mutant
from walkthroughs.step import get
from walkthroughs.workbench import Bench

ROOT = Path(__file__).resolve().parents[2]
# Without this barrier a GPU may read a block number that nobody wrote, and leave the cache: it is tried here only.
TABLE_BARRIER = Mutation(
    "live-table-barrier", "no barrier before the physical blocks are read", mutations.PAGED_2D, "paged-2d-table",
    mutations.BARRIER, "pass", ("vllm-live/k-address",),
)  # fmt: skip
NEW = [m for m in MUTATIONS if m.file in (mutations.PAGED_2D, mutations.SLOTS, mutations.LAYOUT, mutations.COPY)]


def test_each_port_has_its_faults() -> None:
    for file, least in ((mutations.PAGED_2D, 15), (mutations.SLOTS, 4), (mutations.LAYOUT, 4), (mutations.COPY, 3)):
        assert len([m for m in NEW if m.file == file]) >= least


def test_every_barrier_is_taken_out_once() -> None:
    taken = [m for m in (*NEW, TABLE_BARRIER) if m.old == mutations.BARRIER]
    assert len(taken) == (ROOT / mutations.PAGED_2D).read_text("utf-8").count(mutations.BARRIER)


def test_the_barrier_before_the_blocks_are_read() -> None:
    assert caught_by(TABLE_BARRIER, "sim") == ("vllm-live/k-address", "UninitialisedRead: shared array")


@pytest.mark.parametrize("mutation", [m for m in NEW if m.old == mutations.BARRIER], ids=lambda m: m.id)
def test_a_missing_barrier_shows_in_the_order_that_a_machine_may_choose(mutation: Mutation) -> None:
    orders = []
    for bench in benches("sim", mutant(mutation)):
        orders.append(runner.run(get(mutation.steps[0]), bench).status)
    assert "error" in orders


@pytest.mark.parametrize("step", sorted({step for m in NEW for step in m.steps}))
def test_the_sound_kernels_pass_in_every_order(step: str) -> None:
    for schedule in ("reversed", "random:1", "random:7"):
        record = runner.run(get(step), Bench(Backend("sim", schedule)))
        assert (record.status, record.message) == ("passed", "")


def test_a_fault_names_its_region() -> None:
    wrong = replace(NEW[0], region="slot-rank")
    with pytest.raises(mutations.MutationError, match="is not in region slot-rank"):
        mutant(wrong)
