"""Deliberate faults in the rungs: each is noticed by its step, every step has one, and sound code has none."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from kernels.kernel import Backend
from walkthroughs import runner
from walkthroughs.mutations import MUTATIONS, Mutation, caught_by, mutant
from walkthroughs.step import get, registry

FILE = Path(__file__).resolve().parents[2] / "walkthroughs" / "mutations_ladder.toml"


def load() -> tuple[Mutation, ...]:
    rows: list[dict[str, Any]] = tomllib.loads(FILE.read_text("utf-8"))["mutation"]
    for row in rows:
        row.update({name: tuple(row[name]) for name in ("steps", "through") if name in row})
    return tuple(Mutation(**row) for row in rows)


LADDER = load()


@pytest.mark.parametrize("mutation", LADDER, ids=lambda mutation: mutation.id)
def test_a_fault_in_a_rung_is_noticed(mutation: Mutation) -> None:
    caught = caught_by(mutation, "sim")
    assert caught is not None, f"{mutation.what}: nobody noticed"
    assert caught[0] in mutation.steps


def test_every_step_has_a_fault_that_it_must_notice() -> None:
    assert {step for mutation in LADDER for step in mutation.steps} == {step.id for step in registry()["ladder"].steps}
    ids = [mutation.id for mutation in (*MUTATIONS, *LADDER)]
    assert len(set(ids)) == len(ids)
    places = [(mutation.file, mutation.region, mutation.old, mutation.nth) for mutation in LADDER]
    assert len(set(places)) == len(places)


def test_there_are_faults_of_every_kind() -> None:
    assert len([mutation for mutation in LADDER if mutation.old == "cuda.syncthreads()"]) >= 4
    assert len([mutation for mutation in LADDER if mutation.region == "tail-guard"]) >= 3


@pytest.mark.parametrize("name", sorted({step for mutation in LADDER for step in mutation.steps}))
def test_a_sound_rung_passes_under_another_order_of_warps(name: str) -> None:
    record = runner.run(get(name), Backend("sim", "reversed"))
    bad = [f"{check.name}: {check.observed} instead of {check.expected}" for check in record.checks if not check.passed]
    assert (record.status, record.message, bad) == ("passed", "", [])


def test_a_mutant_is_written_out_from_its_own_text() -> None:
    fault = LADDER[0]
    made = mutant(fault)
    assert made.name == fault.entry
    assert made.fn.__code__.co_filename.endswith(f"#{fault.id}")


@pytest.mark.gpu
@pytest.mark.parametrize("mutation", LADDER, ids=lambda mutation: mutation.id)
def test_gpu_a_fault_in_a_rung_is_noticed(mutation: Mutation) -> None:
    assert caught_by(mutation, "cuda") is not None, f"{mutation.what}: nobody noticed"
