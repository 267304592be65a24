"""Every broken kernel gets its verdict, under every schedule, and at the line that is broken."""

from __future__ import annotations

import inspect

import pytest

from kernels.kernel import Backend
from kernels.simt.sanitize import Sanitizer
from kernels.variants import VARIANTS

SCHEDULES = ("in-order", "reversed", "random:2")
# What a race is called, between whom, and how far below the `def` its two lines stand.
RACES = {
    "reduction-without-barriers": ("read-after-write", "between warps", 9, 9),
    "reduction-without-first-barrier": ("read-after-write", "between warps", 4, 8),
    "neighbour-without-barrier": ("read-after-write", "between warps", 4, 5),
    "one-slot-for-all-warps": ("write/write", "between warps", 5, 5),
    "lanes-of-one-warp-store-to-one-slot": ("write/write", "in one instruction", 5, 5),
    "scratch-used-twice": ("write-after-read", "between warps", 15, 12),
    "broadcast-in-a-loop": ("write-after-read", "between warps", 9, 7),
    "counter-without-atomic": ("write-after-read", "between warps", 7, 7),
    "warp-without-syncwarp": ("read-after-write", "within a warp", 4, 5),
    "output-shared-by-blocks": ("write/write", "between blocks", 3, 3),
    "partial-results-read-at-once": ("read/write", "between blocks", 8, 4),
    "global-exchange-without-barrier": ("read-after-write", "between warps", 3, 4),
}


def sanitized(name: str, schedule: str = "in-order") -> Sanitizer:
    watch = Sanitizer()
    with watch:
        VARIANTS[name].launch(Backend("sim", schedule, observers=(watch,)))
    return watch


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("name", VARIANTS)
def test_a_broken_kernel_gets_its_verdict_under_every_schedule(name, schedule):
    assert sanitized(name, schedule).verdict == (VARIANTS[name].verdict,)


@pytest.mark.parametrize("name", RACES)
def test_a_race_is_told_with_its_lines(name):
    hazard, scope, first, second = RACES[name]
    fn = VARIANTS[name].kernel.fn
    start = next(n for n, line in enumerate(open_lines(fn), 1) if line.startswith(f"def {fn.__name__}("))
    found = {(r.hazard, r.scope, r.first.line - start, r.second.line - start) for r in sanitized(name).races}
    assert (hazard, scope, first, second) in found


def open_lines(fn):
    return inspect.getsource(inspect.getmodule(fn)).splitlines()


def test_every_variant_says_which_tool_sees_it_or_why_none_does():
    assert set(RACES) == {name for name, variant in VARIANTS.items() if variant.verdict == "race"}
    for name, variant in VARIANTS.items():
        assert variant.id == name
        assert variant.what.endswith(".")
        assert variant.tool in ("racecheck", "memcheck", "")
        assert bool(variant.why) == (variant.tool == "")
    assert sum(variant.tool != "" for variant in VARIANTS.values()) >= 10


@pytest.mark.parametrize("name", ["one-slot-for-all-warps", "broadcast-in-a-loop", "scratch-used-twice"])
def test_a_racy_kernel_runs_to_its_end_without_complaint_when_nobody_watches(name):
    VARIANTS[name].launch(Backend("sim"))


def test_rows_of_46_elements_are_misaligned_at_every_odd_row():
    # 92 bytes a row: row r starts at 92 r, and 92 r mod 8 is 4 for odd r.
    (fault,) = sanitized("odd-head-size").faults
    assert fault.place is not None
    assert fault.place.thread == (1, 0, 0)
    assert "starts at byte 92" in fault.message
    assert [92 * r % 8 for r in range(4)] == [0, 4, 0, 4]
    assert [92 * r % 16 for r in range(4)] == [0, 12, 8, 4]


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["broadcast-in-a-loop", "one-slot-for-all-warps"])
def test_a_broken_kernel_compiles_and_runs_on_a_gpu(name):
    VARIANTS[name].launch(Backend("cuda"))
