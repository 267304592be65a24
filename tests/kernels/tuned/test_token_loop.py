"""Rung 0: each token costs two barriers; with one of them it races."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.cases_narrow import narrow_decode_case
from kernels.errors import ArgumentError
from kernels.kernel import Backend
from kernels.tuned import token_loop
from kernels.tuned.plan import Plan

sys.path.insert(0, str(Path(__file__).parent))
try:
    import rung_checks
finally:
    sys.path.pop(0)
from rung_checks import SCALARS, SHAPES, Shape, agrees, attend, sanitized, spoilt, watched

BACKENDS = ["sim", pytest.param("cuda", marks=pytest.mark.gpu)]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("scalar", SCALARS)
@pytest.mark.parametrize("shape", SHAPES)
def test_within_its_rounding(shape: Shape, scalar: str, backend: str) -> None:
    narrow = shape.case(scalar)
    assert agrees(attend(token_loop.launches, narrow, shape.plan, backend), narrow, scalar)


@pytest.mark.parametrize("schedule", ["reversed", "random:1"])
def test_any_order_of_the_warps_gives_the_same_bits_and_no_report(schedule: str) -> None:
    narrow = Shape((18, 3), 2, 1, 80, 16).case("bfloat16")
    plain = attend(token_loop.launches, narrow, None)
    watch = sanitized(token_loop.launches, narrow, None, schedule)
    assert watch.clean
    again = attend(token_loop.launches, narrow, None, Backend("sim", schedule))
    np.testing.assert_array_equal(again, plain)


def test_what_is_wrong_fails() -> None:
    rung_checks.check_wrong_inputs_fail(token_loop.launches)


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
    lengths: list[int], group: int, head_size: int, block_size: int, plan: Plan | None, alibi: bool, seed: int
) -> None:
    shape = Shape(tuple(lengths), group, 1, head_size, block_size, plan, alibi)
    narrow = shape.case("bfloat16", seed)
    assert agrees(attend(token_loop.launches, narrow, plan), narrow, "bfloat16")


def test_a_token_costs_two_barriers_and_an_element_is_read_by_itself() -> None:
    narrow = Shape((11, 20), 2, 1, 64, 16).case("bfloat16")
    seen = watched(token_loop.launches, narrow)
    assert seen.barriers == 2 * 2 * (11 + 20), "two for each token of each query head"
    for name in ("k_cache", "v_cache"):
        assert seen.widths[name, "read"] == {2}
        assert seen.accesses[name, "read"] == 2 * 64 * (11 + 20)


@pytest.mark.parametrize("which", [0, 1])
def test_one_barrier_a_token_is_a_race(which: int, tmp_path: Path) -> None:
    barriers = (
        "                dot_products[warp] = s\n            cuda.syncthreads()\n",
        "written over these.\n            cuda.syncthreads()\n",
    )
    changed = spoilt(token_loop, [(barriers[which], barriers[which].replace("cuda.syncthreads()", "pass"))], tmp_path)
    narrow = Shape((6,), 1, 1, 64, 16).case("bfloat16")
    assert "race" in sanitized(changed.launches, narrow).verdict


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"query_len": 2}, "query_len = 2: must be 1"),
        ({"block_size": 8}, "key_cache.shape"),
        ({"num_kv_heads": 3}, "must divide"),
        ({"alibi_slopes": np.zeros(3, np.float32)}, "alibi_slopes"),
    ],
)
def test_what_no_launch_could_use_is_refused(changes: dict[str, Any], said: str) -> None:
    narrow = Shape((20, 20), 2, 1, 32, 16).case("bfloat16")
    if "query_len" in changes:
        changes = changes | {"block_tables": narrow.case.block_tables[:1], "seq_lens": narrow.case.seq_lens[:1]}
    with pytest.raises(ArgumentError, match=said):
        attend(token_loop.launches, narrow, **changes)


@pytest.mark.parametrize("shape", [Shape((5,), 1, 1, 264, 16), Shape((5,), 1, 1, 32, 4)])
def test_sizes_that_the_lanes_cannot_share_out_are_refused(shape: Shape) -> None:
    with pytest.raises(ArgumentError, match=r"multiple of 8 up to 256|must be 8, 16 or 32"):
        attend(token_loop.launches, shape.case("bfloat16"))


def test_an_fp8_cache_is_refused() -> None:
    narrow = narrow_decode_case((5,), 1, 1, 32, 16, "bfloat16", "fp8")
    with pytest.raises(ArgumentError, match="kv_cache_dtype"):
        attend(token_loop.launches, narrow, kv_cache_dtype="fp8")
