"""What rungs 3 to 6 have in common: right over any shape and order of the warps, and no race."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.kernel import Backend
from kernels.tuned import grouped, online, split, wide_loads
from kernels.tuned.plan import Plan

sys.path.insert(0, str(Path(__file__).parent))
try:
    import rung_checks
finally:
    sys.path.pop(0)
from rung_checks import SCALARS, SHAPES, Shape, agrees, attend, sanitized

BACKENDS = ["sim", pytest.param("cuda", marks=pytest.mark.gpu)]
each_rung = pytest.mark.parametrize("rung", [wide_loads, grouped, online, split], ids=lambda rung: rung.__name__[14:])


@each_rung
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("scalar", SCALARS)
@pytest.mark.parametrize("shape", SHAPES)
def test_within_its_rounding(rung: Any, shape: Shape, scalar: str, backend: str) -> None:
    narrow = shape.case(scalar)
    assert agrees(attend(rung.launches, narrow, shape.plan, backend), narrow, scalar)


@each_rung
@pytest.mark.parametrize("schedule", ["reversed", "random:1"])
def test_any_order_of_the_warps_gives_the_same_bits_and_no_report(rung: Any, schedule: str) -> None:
    narrow = Shape((50, 20), 4, 2, 32, 16).case("bfloat16")
    plain = attend(rung.launches, narrow, Plan(2, 3))
    watch = sanitized(rung.launches, narrow, Plan(2, 3), schedule)
    assert watch.clean
    again = attend(rung.launches, narrow, Plan(2, 3), Backend("sim", schedule))
    np.testing.assert_array_equal(again, plain)


@each_rung
def test_what_is_wrong_fails(rung: Any) -> None:
    rung_checks.check_wrong_inputs_fail(rung.launches)


@each_rung
@settings(max_examples=8)
@given(
    st.lists(st.integers(0, 40), min_size=1, max_size=2),
    st.sampled_from([1, 2, 3, 7, 8]),
    st.sampled_from([8, 16, 24, 40]),
    st.sampled_from([8, 16, 32]),
    st.one_of(st.none(), st.builds(Plan, st.integers(1, 4), st.integers(1, 3))),
    st.booleans(),
    st.integers(0, 99),
)
def test_any_shape(
    rung: Any,
    lengths: list[int],
    group: int,
    head_size: int,
    block_size: int,
    plan: Plan | None,
    alibi: bool,
    seed: int,
) -> None:  # fmt: skip
    shape = Shape(tuple(lengths), group, 1, head_size, block_size, plan, alibi)
    narrow = shape.case("bfloat16", seed)
    assert agrees(attend(rung.launches, narrow, plan), narrow, "bfloat16")
