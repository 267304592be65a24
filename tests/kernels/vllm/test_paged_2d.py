"""The 2d port against the float64 oracle over random shapes and schedules, and what its launcher refuses."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels import cases, oracle, oracle_2d
from kernels.cases import DecodeCase
from kernels.errors import ArgumentError
from kernels.kernel import Backend
from kernels.vllm.paged_2d import constexpr, paged_attention_2d, tile_size

SCHEDULES = ("in-order", "reversed", "random:1", "random:2")
HEAD_SIZES = (32, 64, 80, 96, 112, 120, 128)


@st.composite
def decode_cases(draw: st.DrawFn) -> DecodeCase:
    """Lengths at and around block edges, groups of up to eight, few thread blocks."""
    block_size = draw(st.sampled_from([8, 16, 32, 24]))
    edges = [block_size * turn + step for turn in (1, 2) for step in (-1, 0, 1)]
    num_kv_heads, group = draw(st.sampled_from([(1, 1), (1, 2), (2, 1), (1, 3), (1, 5), (1, 8), (2, 2)]))
    return cases.decode_case(
        draw(st.lists(st.one_of(st.sampled_from([0, 1, *edges]), st.integers(0, 50)), min_size=1, max_size=2)),
        num_kv_heads * group,
        num_kv_heads,
        draw(st.sampled_from((32, 64, 80))),
        block_size,
        draw(st.sampled_from(["float16", "float32"])),
        seed=draw(st.integers(0, 999)),
        order=draw(st.sampled_from(["shuffled", "reversed", "identity"])),
        alibi=draw(st.booleans()),
        garbage=draw(st.sampled_from(["valid", "minus-one"])),
        spare_blocks=draw(st.integers(0, 2)),
        extra_columns=draw(st.integers(0, 2)),
        poison=draw(st.sampled_from([float("nan"), 6e4, -6e4, float("inf")])),
    )


def attend(case: DecodeCase, backend: str | Backend = "sim", **options: Any) -> Any:
    """The port's output; it starts as NaN."""
    out = np.full(case.q.shape, np.nan, case.q.dtype)
    paged_attention_2d(
        out, case.q, case.k_cache, case.v_cache, case.block_tables, case.seq_lens, sm_scale=case.scale,
        alibi_slopes=case.alibi_slopes, backend=backend, **options,
    )  # fmt: skip
    return out


def tolerance(case: DecodeCase, window: int = 0) -> Any:
    """The largest error that rounding alone can make of each output element."""
    mass = oracle_2d.attention(replace(case, values=tuple(np.abs(rows) for rows in case.values)), window)
    if case.q.dtype == np.float32:
        return 4e-6 * (1 + mass)
    # A weight and the output each round to 11 bits; small weights lose up to 3e-8 each, before the division.
    return 2 * 2.0**-11 * mass + 2.0**-24 * case.max_seq_len + 1e-5 * (1 + mass)


def agrees(out: Any, truth: Any, case: DecodeCase, window: int = 0) -> bool:
    assert out.dtype == case.q.dtype
    # NaN is not below anything.
    return bool((np.abs(out.astype(np.float64) - truth) <= tolerance(case, window)).all())


# -- against the oracle


@settings(max_examples=40, deadline=None)
@given(decode_cases(), st.sampled_from(SCHEDULES), st.sampled_from([None, 1, 7, 16, 1000]))
def test_it_is_attention_inside_the_window(case: DecodeCase, schedule: str, window: int | None) -> None:
    out = attend(case, Backend("sim", schedule), sliding_window=window)
    assert agrees(out, oracle_2d.attention(case, window or 0), case, window or 0)
    for seq in np.flatnonzero(case.seq_lens == 0):
        assert not out[seq].any(), "no tokens: zeros"


@settings(max_examples=25, deadline=None)
@given(decode_cases(), st.sampled_from(SCHEDULES), st.sampled_from([None, 1, 7, 16]))
def test_the_unified_step_gives_the_same_without_an_epsilon(
    case: DecodeCase, schedule: str, window: int | None
) -> None:
    if not case.seq_lens.all():
        with pytest.raises(ArgumentError, match="must be at least 1"):
            attend(case, unified=True)
        return
    out = attend(case, Backend("sim", schedule), unified=True, sliding_window=window)
    assert agrees(out, oracle_2d.attention(case, window or 0, eps=0), case, window or 0)


@pytest.mark.parametrize("head_size", HEAD_SIZES)
@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_every_head_size_with_both_block_sizes_against_torch(head_size: int, dtype: str) -> None:
    for block_size in (16, 32):
        case = cases.decode_case((block_size + 3,), 2, 1, head_size, block_size, dtype, seed=head_size, alibi=True)
        assert agrees(attend(case), oracle.torch_sdpa(case), case)


@pytest.mark.parametrize("num_threads", [32, 64, 128, 256, 96])
def test_any_whole_number_of_warps_gives_the_same(num_threads: int) -> None:
    case = cases.decode_case((37,), 5, 1, 32, 16, seed=5)
    assert agrees(attend(case, num_threads=num_threads), oracle_2d.attention(case), case)


def test_blocks_that_are_no_power_of_two_share_tiles() -> None:
    assert [tile_size(size) for size in (8, 16, 32, 64, 48, 544)] == [8, 16, 32, 32, 32, 32]
    case = cases.decode_case((100, 48, 49), 2, 1, 32, 48, seed=6, extra_columns=0, garbage="minus-one")
    assert agrees(attend(case), oracle_2d.attention(case), case)


def test_a_full_last_row_of_the_table_is_not_read_past_its_end() -> None:
    # 40 tokens in one block of 48: the second tile of 32 reaches to token 63, which would be in column 1.
    case = cases.decode_case((40,), 1, 1, 32, 48, seed=7, extra_columns=0)
    assert case.block_tables.shape == (1, 1)
    assert agrees(attend(case), oracle_2d.attention(case), case)


# -- epsilon, window, filter


def test_the_epsilon_is_lost_in_float32() -> None:
    """L is at least 1, so that 1e-10 rounds away: the output is plain attention, unlike the classic kernel's."""
    case = cases.decode_case((1,), 1, 1, 32, 16, seed=8)
    assert np.array_equal(attend(case)[0, 0], case.values[0][0, 0])
    assert np.float32(1) + np.float32(1e-10) == np.float32(1)
    assert np.float32(1) + np.float32(1e-6) != np.float32(1)


def test_a_window_of_one_gives_the_newest_value() -> None:
    case = cases.decode_case((40, 16, 17), 2, 2, 32, 16, seed=9)
    out = attend(case, sliding_window=1)
    for seq in range(3):
        assert np.array_equal(out[seq], case.values[seq][-1])


def test_the_2d_kernel_reads_blocks_before_the_window_and_the_unified_kernel_does_not() -> None:
    case = cases.decode_case((40,), 1, 1, 32, 16, seed=10)
    k_cache, v_cache = case.k_cache.copy(), case.v_cache.copy()
    k_cache[case.block_tables[0, 0]] = v_cache[case.block_tables[0, 0]] = np.nan
    spoilt = replace(case, k_cache=k_cache, v_cache=v_cache)
    assert np.isnan(attend(spoilt, sliding_window=8)).all()
    assert agrees(attend(spoilt, sliding_window=8, unified=True), oracle_2d.attention(case, 8, 0), case, 8)


def test_sequences_in_prefill_are_left_alone() -> None:
    case = cases.decode_case((20, 9, 33), 4, 2, 32, 16, seed=11)
    rows = np.concatenate([case.q[:1], case.q[1:2], case.q[1:2], case.q[2:]])
    out = np.full(rows.shape, np.nan, rows.dtype)
    paged_attention_2d(
        out, rows, case.k_cache, case.v_cache, case.block_tables, case.seq_lens,
        query_start_loc=np.array([0, 1, 3, 4], np.int32),
    )  # fmt: skip
    assert np.isnan(out[1:3]).all()
    assert agrees(out[[0, 3]], oracle_2d.attention(case)[[0, 2]], cases_of(case, [0, 2]))


def cases_of(case: DecodeCase, seqs: list[int]) -> DecodeCase:
    """Some of the sequences of a case."""
    return replace(
        case, q=case.q[seqs], keys=tuple(case.keys[s] for s in seqs), values=tuple(case.values[s] for s in seqs),
        block_tables=case.block_tables[seqs], seq_lens=case.seq_lens[seqs],
    )  # fmt: skip


def test_loud_scores_do_not_overflow() -> None:
    case = cases.decode_case((40,), 1, 1, 32, 16, seed=12)
    loud = replace(case, q=case.q * np.float32(200))
    assert agrees(attend(loud), oracle_2d.attention(loud), loud)


def test_strides_may_be_anything() -> None:
    case = cases.decode_case((40, 3), 4, 2, 32, 16, seed=13)
    k_wide = np.full((*case.k_cache.shape[:-1], 8), np.nan, np.float32)
    k_wide[..., :4] = case.k_cache
    v_swapped = np.ascontiguousarray(case.v_cache.transpose(1, 0, 3, 2)).transpose(1, 0, 3, 2)
    assert not v_swapped.flags.c_contiguous
    strided = replace(case, k_cache=k_wide[..., :4], v_cache=v_swapped)
    assert np.array_equal(attend(strided), attend(case))


# -- what is refused


def valid() -> dict[str, Any]:
    case = cases.decode_case((20, 9), 4, 2, 32, 16, seed=14)
    return {
        "output": np.zeros_like(case.q), "query": case.q, "key_cache": case.k_cache, "value_cache": case.v_cache,
        "block_table": case.block_tables, "seq_lens": case.seq_lens,
    }  # fmt: skip


def test_the_valid_arguments_are_accepted() -> None:
    paged_attention_2d(**valid())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"output": np.zeros((2, 4, 64), np.float32)}, "output.shape"),
        ({"output": np.zeros((2, 4, 32), np.float16)}, "output.dtype"),
        ({"output": np.zeros((2, 4, 64), np.float32)[..., ::2]}, "output.strides"),
        ({"query": np.zeros((2, 4, 32))}, "query.dtype"),
        ({"query": np.zeros((2, 4, 32), np.uint16)}, "query.dtype"),
        ({"query": np.zeros((2, 3, 32), np.float32), "output": np.zeros((2, 3, 32), np.float32)}, "3 heads"),
        ({"key_cache": np.zeros((6, 2, 8, 8, 4), np.float32)}, "key_cache.shape"),
        ({"key_cache": np.zeros((6, 2, 4, 16, 4), np.float32)}, "must make the head size, 32"),
        ({"value_cache": np.zeros((6, 2, 16, 16), np.float32)}, "value_cache.shape"),
        ({"seq_lens": np.array([20, 9])}, "seq_lens.dtype"),
        ({"seq_lens": np.array([-1, 9], np.int32)}, r"seq_lens\[0\] = -1"),
        ({"seq_lens": np.array([20, 999], np.int32)}, r"needs 63 blocks"),
        ({"block_table": np.array([[0, 1], [6, 0]], np.int32)}, r"block_table\[1, 0\] = 6"),
        ({"block_table": np.array([[0, -1], [2, 0]], np.int32)}, r"block_table\[0, 1\] = -1"),
        ({"block_table": np.array([[0, 1]], np.int32)}, "block_table.shape"),
        ({"query_start_loc": np.array([0, 1], np.int32)}, "query_start_loc.shape"),
        ({"query_start_loc": np.array([0, 2, 2], np.int32)}, r"query_start_loc\[2\] = 2"),
        ({"query_start_loc": np.array([0, 1, 3], np.int32)}, "within the 2 query rows"),
        ({"query_start_loc": np.array([1, 2, 2], np.int32)}, "must start at 0"),
        ({"sliding_window": -1}, "sliding_window = -1"),
        ({"alibi_slopes": np.zeros(3, np.float32)}, "alibi_slopes.shape"),
        ({"num_threads": 48}, "num_threads = 48"),
        ({"num_threads": 0}, "num_threads = 0"),
        ({"unified": True, "seq_lens": np.array([20, 0], np.int32)}, r"seq_lens\[1\] = 0"),
    ],
)
def test_wrong_arguments_are_named(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        paged_attention_2d(**{**valid(), **change})


def test_tiles_that_do_not_fit_are_refused() -> None:
    case = cases.decode_case((3,), 8, 1, 256, 32, seed=15)
    with pytest.raises(ArgumentError, match="bytes of tiles, a block has 49152"):
        attend(case)
    half = cases.decode_case((3,), 2, 1, 256, 32, "float16", seed=15)
    assert agrees(attend(half), oracle_2d.attention(half), half)


def test_the_dealing_covers_every_row_and_element() -> None:
    for group in range(1, 20):
        for block_size, head_size in ((16, 32), (32, 80), (8, 128)):
            found = constexpr(num_queries_per_kv=group, BLOCK_SIZE=block_size, HEAD_SIZE=head_size)
            assert 0 <= found["NUM_ROWS"] * found["NUM_ROWS_PER_THREAD"] - group < found["NUM_ROWS"]
            assert 0 <= 128 * found["NUM_ACCS_PER_THREAD"] - group * head_size < 128


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize("window", [None, 20])
@pytest.mark.parametrize("unified", [False, True])
def test_gpu_agrees(dtype: str, window: int | None, unified: bool) -> None:
    for head_size in HEAD_SIZES:
        for block_size in (16, 32, 48):
            case = cases.decode_case((70, 9, 1000, 16), 6, 2, head_size, block_size, dtype, seed=16, alibi=True)
            out = attend(case, "cuda", sliding_window=window, unified=unified)
            assert agrees(out, oracle_2d.attention(case, window or 0, 0.0 if unified else 1e-10), case, window or 0)
