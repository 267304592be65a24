"""The smallest kernels against the plain Python reference and the float64 oracle, and what they refuse."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels import cases, oracle, reference
from kernels.cases import DecodeCase
from kernels.errors import ArgumentError
from kernels.gather import gather, scatter

LESSON_OUTPUT = (0.363083, 0.449897, 0.392487, 0.386499)
ROUNDING = 1e-13


@st.composite
def single_cases(draw: st.DrawFn) -> DecodeCase:
    """One sequence, one head, float64: what the small kernels take."""
    block_size = draw(st.sampled_from([1, 2, 3, 4, 8]))
    edge = block_size * draw(st.integers(1, 3))
    return cases.decode_case(
        [draw(st.one_of(st.integers(1, 25), st.sampled_from([edge, edge + 1, max(edge - 1, 1)])))],
        1,
        1,
        2 * draw(st.integers(1, 4)),
        block_size,
        "float64",
        seed=draw(st.integers(0, 99)),
        order=draw(st.sampled_from(["shuffled", "reversed", "identity"])),
        garbage=draw(st.sampled_from(["valid", "minus-one"])),
        extra_columns=draw(st.integers(0, 2)),
    )


def pools(case: DecodeCase) -> tuple[Any, Any]:
    """The paged caches as plain pools, [blocks, block size, head size]; NaN where no token is."""
    return (
        np.ascontiguousarray(cases.unpack_keys(case.k_cache)[:, :, 0]),
        np.ascontiguousarray(cases.unpack_values(case.v_cache)[:, :, 0]),
    )


def run(case: DecodeCase, backend: str = "sim") -> Any:
    out = np.full(case.head_size, np.nan)
    gather(
        out, case.q[0, 0].copy(), *pools(case), case.block_tables[0].copy(), case.max_seq_len, case.scale,
        backend=backend,
    )  # fmt: skip
    return out


@settings(max_examples=40)
@given(single_cases())
def test_gather_is_the_reference_and_the_oracle(case: DecodeCase) -> None:
    out = run(case)
    np.testing.assert_allclose(out, oracle.attention(case)[0, 0], rtol=0, atol=ROUNDING)
    dense = reference.dense_attention(case.q[0, 0].tolist(), case.keys[0][:, 0].tolist(), case.values[0][:, 0].tolist())
    np.testing.assert_allclose(out, dense, rtol=0, atol=ROUNDING)


@settings(max_examples=40)
@given(single_cases())
def test_scatter_writes_each_token_to_its_slot_and_nothing_else(case: DecodeCase) -> None:
    k_pool, v_pool = (np.full_like(pool, np.nan) for pool in pools(case))
    key, value = (np.ascontiguousarray(rows[0][:, 0]) for rows in (case.keys, case.values))
    scatter(k_pool, v_pool, key, value, case.block_tables[0])
    np.testing.assert_array_equal(k_pool, pools(case)[0])
    np.testing.assert_array_equal(v_pool, pools(case)[1])
    flat = k_pool.reshape(-1, case.head_size)
    slots = oracle.slots(case.block_tables[0], case.max_seq_len, case.block_size)
    np.testing.assert_array_equal(flat[slots], key)
    assert len(slots) == np.isfinite(flat[:, 0]).sum()


def test_the_lesson_to_six_digits() -> None:
    assert tuple(run(cases.lesson_case("float64")).round(6)) == LESSON_OUTPUT


def test_the_order_of_the_blocks_does_not_change_a_bit() -> None:
    found = {
        run(cases.decode_case([11], 1, 1, 4, 4, "float64", seed=3, order=order)).tobytes()
        for order in ("shuffled", "reversed", "identity")
    }
    assert len(found) == 1


def test_scores_far_apart_neither_overflow_nor_vanish() -> None:
    # exp(1000) alone is infinite: only the differences may be taken to the exponent.
    keys, values = np.array([[1000.0, 0], [0, 0], [999, 0]]), np.array([[1.0, 8], [2, 8], [3, 8]])
    out = np.full(2, np.nan)
    k_pool, v_pool = np.zeros((2, 2, 2)), np.zeros((2, 2, 2))
    table = np.array([1, 0], np.int32)
    scatter(k_pool, v_pool, keys, values, table)
    gather(out, np.array([1.0, 0]), k_pool, v_pool, table, 3, 1.0)
    weight = np.exp(-1.0)
    np.testing.assert_allclose(out, [(1 + 3 * weight) / (1 + weight), 8], rtol=1e-14)


# -- what is refused

CASE = cases.decode_case([6], 1, 1, 4, 4, "float64", order="identity")
TABLE = np.array([1, 0], np.int32)
GATHER_REFUSED = [
    ({"seq_len": 0}, r"seq_len = 0: must be at least 1: an empty sequence has no softmax"),
    ({"seq_len": -3}, r"seq_len = -3"),
    ({"seq_len": 9}, r"block_table\.shape = \(2,\): must hold the 3 blocks of 9 tokens"),
    ({"block_table": np.array([1, 5], np.int32)}, r"block_table\[1\] = 5: must be a block of the pool, 0 to 4"),
    ({"block_table": np.array([-1, 0], np.int32)}, r"block_table\[0\] = -1"),
    ({"block_table": TABLE.astype(np.int64)}, r"block_table\.dtype = int64: must be int32"),
    ({"block_table": np.array([[1, 0]], np.int32)}, r"block_table\.shape = \(1, 2\)"),
    ({"block_table": np.array([1, 9, 0], np.int32)[::2]}, r"block_table\.strides = \(8,\): must be contiguous"),
    ({"k_pool": np.zeros((5, 4, 4), np.float32)}, r"k_pool\.dtype = float32: must be float64"),
    ({"v_pool": np.zeros((5, 4, 3))}, r"v_pool\.shape = \(5, 4, 3\): must be \(5, 4, 4\)"),
    ({"k_pool": np.zeros((5, 4, 8))[:, :, ::2]}, r"k_pool\.strides"),
    ({"q": np.zeros(8)[::2]}, r"q\.strides = \(16,\)"),
    ({"q": np.zeros(4, np.float32)}, r"q\.dtype = float32: must be float64"),
    ({"out": np.zeros(5)}, r"out\.shape = \(5,\): must be \(4\)"),
    ({"out": np.zeros(4, np.float32)}, r"out\.dtype = float32: must be float64"),
]


def gather_arguments() -> dict[str, Any]:
    k_pool, v_pool = np.zeros((5, 4, 4)), np.zeros((5, 4, 4))
    return {
        "out": np.full(4, 7.0), "q": CASE.q[0, 0].copy(), "k_pool": k_pool, "v_pool": v_pool,
        "block_table": TABLE, "seq_len": 6, "scale": 0.5,
    }  # fmt: skip


def test_the_arguments_below_are_good_but_for_one() -> None:
    arguments = gather_arguments()
    gather(**arguments)
    assert arguments["out"].tolist() == [0] * 4


@pytest.mark.parametrize(("changes", "message"), GATHER_REFUSED)
def test_gather_names_a_bad_argument_and_writes_nothing(changes: dict[str, Any], message: str) -> None:
    arguments = gather_arguments() | changes
    before = arguments["out"].copy()
    with pytest.raises(ArgumentError, match=message):
        gather(**arguments)
    np.testing.assert_array_equal(arguments["out"], before)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"block_table": np.array([1, 5], np.int32)}, r"block_table\[1\] = 5: must be a block of the pool, 0 to 4"),
        ({"block_table": TABLE[:1]}, r"block_table\.shape = \(1,\): must hold the 2 blocks of 6 tokens"),
        ({"value": np.ones((5, 4))}, r"value\.shape = \(5, 4\): must be \(6, 4\)"),
        ({"key": np.ones(6)}, r"key\.shape = \(6,\): must be \(any, any\)"),
        ({"key": np.ones((6, 4), np.float16)}, r"key\.dtype = float16: must be float64"),
        ({"key": np.ones((12, 4))[::2]}, r"key\.strides = \(64, 8\): must be contiguous"),
        ({"v_pool": np.zeros((4, 4, 4))}, r"v_pool\.shape = \(4, 4, 4\): must be \(5, 4, 4\)"),
    ],
)
def test_scatter_names_a_bad_argument_and_writes_nothing(changes: dict[str, Any], message: str) -> None:
    good = {"k_pool": np.full((5, 4, 4), 7.0), "v_pool": np.full((5, 4, 4), 7.0), "key": np.ones((6, 4)),
            "value": np.ones((6, 4)), "block_table": TABLE}  # fmt: skip
    arguments = good | changes
    with pytest.raises(ArgumentError, match=message):
        scatter(**arguments)
    assert (good["k_pool"] == 7).all()
    assert (good["v_pool"] == 7).all()


def test_garbage_behind_the_used_part_of_the_table_is_no_error() -> None:
    arguments = gather_arguments() | {"block_table": np.array([1, 0, -1, 99], np.int32)}
    gather(**arguments)
    assert arguments["out"].tolist() == [0] * 4


def test_a_probe_stands_in_for_the_kernel() -> None:
    from kernels.gather import gather_kernel
    from kernels.probe import Probed, Watch

    probed = Probed(gather_kernel, [Watch("slot", "slot", (1, 999), "slot", by=("token_idx",))])
    out = np.full(4, np.nan)
    k_pool, v_pool = pools(CASE)
    gather(out, CASE.q[0, 0].copy(), k_pool, v_pool, CASE.block_tables[0].copy(), 6, CASE.scale, entry=probed)
    np.testing.assert_array_equal(out, run(CASE))
    assert [r.value for r in probed.readings("slot")] == oracle.slots(CASE.block_tables[0], 6, 4)


@pytest.mark.gpu
def test_gpu_gathers_and_scatters() -> None:
    for seq_len, block_size in ((1, 4), (16, 4), (17, 8)):
        case = cases.decode_case([seq_len], 1, 1, 8, block_size, "float64", seed=seq_len)
        np.testing.assert_allclose(run(case, "cuda"), oracle.attention(case)[0, 0], rtol=0, atol=ROUNDING)
        k_pool, v_pool = (np.full_like(pool, np.nan) for pool in pools(case))
        key, value = (np.ascontiguousarray(rows[0][:, 0]) for rows in (case.keys, case.values))
        scatter(k_pool, v_pool, key, value, case.block_tables[0], backend="cuda")
        np.testing.assert_array_equal(k_pool, pools(case)[0])
        np.testing.assert_array_equal(v_pool, pools(case)[1])
