"""Which numbers a step or a claim vouches for: its code with what it uses, its record, its facts; and no others."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kernels import layout
from walkthroughs.claims import vouching
from walkthroughs.evidence import Check, Evidence, Measurement
from walkthroughs.step import Step, StepFunction, get, steps
from walkthroughs.workbench import Workbench

SIZE = 4711
CASE = (4712, "a case of 4713 tokens")


def helper(bench: Workbench) -> None:
    bench.check("in a helper", 4714, CASE[0])


def never_used() -> int:
    return 4715


def a_step(run: StepFunction) -> Step:
    return replace(get("vllm-classic/normalise"), run=run)


def record(*checks: Check, measured: tuple[Measurement, ...] = ()) -> Evidence:
    return Evidence("s", "passed", "cuda", "a GPU", "", {}, "2026-01-02", 0, {}, checks, 0.1, measured=measured)


def test_a_steps_code_and_all_it_uses() -> None:
    def run(bench: Workbench) -> None:
        """Prose with 4716 and 4717."""
        helper(bench)
        bench.check("of 4718 tokens", SIZE, 2 * 2360 - 1 + 0x10)
        bench.check("a shift", 1 << 20, layout.WARP_SIZE + 4719)
        bench.check("a range", list(range(4720, 4730)), 48 * 1024)

    found = vouching.in_code(run)
    assert {4711, 4712, 4713, 4714, 4718, 4719, 2360, 4735, 2**20, 32, 4720, 4729, 49152} <= found
    # Neither prose, nor what nobody calls, nor the inside of a range.
    assert found.isdisjoint({4715, 4716, 4717, 4725})


def test_titles_and_other_steps_do_not_vouch() -> None:
    here = vouching.in_code(get("vllm-classic/padded-rows").run)
    # Its own case of nine tokens is in, the case of 70 that other steps of the file use is not.
    assert 9 in here
    assert 70 not in here
    assert 70 in vouching.in_code(get("vllm-classic/block-ranges").run), (
        "a case from an earlier part of the walkthrough"
    )


def test_a_record_vouches_for_what_it_saw() -> None:
    seen = record(
        Check("of lane 31", True, "[0.25, 1, 7.5]", "[0.25, 1, 7.5]", 0.0, 0.0, "48 KiB"),
        Check("long", True, "[1, 2, … (64 values)]", "3e-06", 0.0, 0.0),
        measured=(Measurement("a copy of 12 bytes", 812.0, "µs"),),
    )
    found = vouching.in_record(seen)
    assert {31, 0.25, 7.5, 49152, 64, 3e-6, 12, 812} <= found
    assert 3 in found, "the list has three values"
    assert 48 not in found


def test_a_step_without_a_record_has_its_code_alone() -> None:
    step = a_step(helper)
    assert vouching.of_step(step, None) == vouching.in_code(helper)
    check = Check("n", True, "99", "99", 0.0, 0.0)
    assert vouching.of_step(step, record(check)) - vouching.of_step(step, None) == {99}


def test_a_claim_vouches_for_its_facts() -> None:
    assert {8, 16, 4, 32} <= vouching.of_claim("L1-18")
    assert 8192 in vouching.of_claim("C-04")
    assert 37 not in vouching.of_claim("L1-18")
    with pytest.raises(KeyError):
        vouching.of_claim("L1-99")


def test_a_step_that_checks_nothing_is_found() -> None:
    def nothing(bench: Workbench) -> None:
        bench.note = 1  # type: ignore[attr-defined]

    def outside(bench: Workbench) -> None:
        helper(bench)

    assert not vouching.checks(a_step(nothing))
    assert vouching.checks(a_step(outside))
    assert all(vouching.checks(step) for step in steps().values())
