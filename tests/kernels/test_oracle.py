"""The oracle against torch, against sums in plain Python, and against values written down by hand."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels import cases, layout, oracle
from kernels.cases import DecodeCase
from kernels.errors import ArgumentError

LESSON_OUTPUT = (0.363083, 0.449897, 0.392487, 0.386499)


@st.composite
def decode_cases(draw: st.DrawFn, min_len: int = 0) -> DecodeCase:
    num_kv_heads = draw(st.integers(1, 3))
    return cases.decode_case(
        draw(st.lists(st.integers(min_len, 40), min_size=1, max_size=3)),
        num_kv_heads * draw(st.integers(1, 4)),
        num_kv_heads,
        8 * draw(st.integers(1, 3)),
        draw(st.sampled_from([1, 4, 8, 16])),
        dtype=draw(st.sampled_from(cases.DTYPES)),
        seed=draw(st.integers(0, 99)),
        alibi=draw(st.booleans()),
    )


def one_head(keys: list[float], values: list[float], slope: float | None = None) -> DecodeCase:
    """A case with head size 2 whose logits are `keys` and values `values` (the second element is 0)."""
    case = cases.decode_case([len(keys)], 1, 1, 2, 4, dtype="float64")
    rows = [np.stack([np.array(column), np.zeros(len(column))], axis=1)[:, None] for column in (keys, values)]
    return replace(
        case,
        q=np.array([[[1.0, 0.0]]]),
        keys=(rows[0],),
        values=(rows[1],),
        scale=1.0,
        alibi_slopes=None if slope is None else np.array([slope], dtype=np.float32),
    )


@settings(max_examples=60)
@given(decode_cases())
def test_attention_is_torchs_attention(case: DecodeCase) -> None:
    truth = oracle.attention(case)
    assert truth.shape == case.q.shape
    assert truth.dtype == np.float64
    np.testing.assert_allclose(truth, oracle.torch_sdpa(case), rtol=0, atol=1e-13)


def test_lesson_output() -> None:
    for dtype, digits in (("float64", 6), ("float32", 6)):
        output = oracle.attention(cases.lesson_case(dtype))[0, 0]
        assert tuple(round(float(value), digits) for value in output) == LESSON_OUTPUT
    np.testing.assert_allclose(oracle.torch_sdpa(cases.lesson_case("float64"))[0, 0], LESSON_OUTPUT, atol=5e-7)


@settings(max_examples=40)
@given(decode_cases(min_len=1))
def test_intermediates_against_plain_sums(case: DecodeCase) -> None:
    seq, head = case.num_seqs - 1, case.num_heads - 1
    length, kv_head = int(case.seq_lens[seq]), case.num_kv_heads - 1
    slope = 0.0 if case.alibi_slopes is None else float(case.alibi_slopes[head])
    scores = []
    for position in range(length):
        q, key = case.q[seq, head].tolist(), case.keys[seq][position, kv_head].tolist()
        products = math.fsum(a * b for a, b in zip(q, key, strict=True))
        scores.append(case.scale * products + slope * (position - length + 1))
    np.testing.assert_allclose(oracle.logits(case, seq, head), scores, rtol=1e-12, atol=1e-12)
    top = max(scores)
    total = math.fsum(math.exp(score - top) for score in scores)
    assert oracle.qk_max(case, seq, head) == pytest.approx(top, rel=1e-12)
    assert oracle.exp_sum(case, seq, head) == pytest.approx(total, rel=1e-12)
    weights = [math.exp(score - top) / (total + 1e-6) for score in scores]
    np.testing.assert_allclose(oracle.weights(case, seq, head), weights, rtol=1e-12)
    column = case.values[seq][:, kv_head, 0].tolist()
    output = math.fsum(w * v for w, v in zip(weights, column, strict=True))
    assert oracle.output(case, seq, head, eps=1e-6)[0] == pytest.approx(output, rel=1e-10, abs=1e-12)


@given(decode_cases(), st.sampled_from([1, 2, 4, 8]))
def test_warp_outputs_add_up_and_follow_the_blocks(case: DecodeCase, num_warps: int) -> None:
    partial = oracle.warp_outputs(case, 0, 0, num_warps)
    assert partial.shape == (num_warps, case.head_size)
    np.testing.assert_allclose(partial.sum(axis=0), oracle.output(case, 0, 0, eps=1e-6), atol=1e-13)
    by_token = np.zeros_like(partial)
    for position, weight in enumerate(oracle.weights(case, 0, 0)):
        by_token[position // case.block_size % num_warps] += weight * case.values[0][position, 0].astype(np.float64)
    np.testing.assert_allclose(partial, by_token, atol=1e-13)


def test_partial_output_of_some_blocks() -> None:
    case = one_head([0.0] * 6, [1.0, 2.0, 4.0, 8.0, 16.0, 32.0])
    assert oracle.partial_output(case, 0, 0, [1], eps=0.0)[0] == pytest.approx(48 / 6)
    assert oracle.partial_output(case, 0, 0, [0], eps=0.0)[0] == pytest.approx(15 / 6)
    assert oracle.partial_output(case, 0, 0, [], eps=0.0).tolist() == [0.0, 0.0]


def test_merged_partitions_of_k15() -> None:
    assert oracle.attention(one_head([1.0, 2.0, 5.0], [10.0, 20.0, 30.0]))[0, 0, 0] == pytest.approx(
        29.190917, abs=1e-6
    )


def test_alibi_offset_of_k18() -> None:
    case = one_head([0.0] * 4, [1.0] * 4, slope=0.5)
    assert oracle.logits(case, 0, 0).tolist() == [-1.5, -1.0, -0.5, 0.0]
    # The bias is added after the scale.
    assert oracle.logits(replace(case, scale=0.1), 0, 0).tolist() == [-1.5, -1.0, -0.5, 0.0]


def test_the_kernels_epsilon() -> None:
    one_token = one_head([3.0], [2.0])
    assert oracle.weights(one_token, 0, 0)[0] == 1 / (1 + 1e-6)
    assert oracle.output(one_token, 0, 0)[0] == 2.0
    assert oracle.output(one_token, 0, 0, eps=1e-6)[0] == pytest.approx(2.0 - 2e-6, abs=1e-11)


def test_a_sequence_without_tokens_gives_zeros() -> None:
    case = cases.decode_case([0, 3], 4, 2, 8, 4, alibi=True)
    assert not oracle.attention(case)[0].any()
    assert not oracle.torch_sdpa(case)[0].any()
    assert oracle.attention(case)[1].any()
    assert oracle.qk_max(case, 0, 0) == -math.inf
    assert oracle.exp_sum(case, 0, 0) == 0.0
    assert oracle.weights(case, 0, 0).shape == (0,)
    assert not oracle.warp_outputs(case, 0, 0).any()


def test_query_heads_share_kv_heads_in_order() -> None:
    case = cases.decode_case([7], 6, 2, 8, 4)
    alone = replace(case, q=case.q[:, 3:], keys=(case.keys[0][:, 1:],), values=(case.values[0][:, 1:],), num_kv_heads=1)
    np.testing.assert_allclose(oracle.attention(case)[:, 3:], oracle.attention(alone), atol=1e-15)


@settings(max_examples=30)
@given(decode_cases(min_len=1))
def test_the_oracle_never_looks_into_the_paged_cache(case: DecodeCase) -> None:
    blind = replace(case, k_cache=np.zeros_like(case.k_cache), v_cache=np.zeros_like(case.v_cache))
    np.testing.assert_array_equal(oracle.attention(blind), oracle.attention(case))


# -- slots and writes


@given(st.permutations(range(9)), st.integers(1, 9), st.data())
def test_slots_agree_with_layout(table: list[int], block_size: int, data: st.DataObject) -> None:
    seq_len = data.draw(st.integers(0, len(table) * block_size))
    found = oracle.slots(table, seq_len, block_size)
    assert found == [layout.slot(table[p // block_size], p % block_size, block_size) for p in range(seq_len)]
    assert len(set(found)) == seq_len


def test_slots_of_k6_and_a_table_too_short() -> None:
    assert oracle.slots([0, 1, 2], 16, 8) == list(range(16))
    assert oracle.slots([7, 1, 3], 20, 8) == [*range(56, 64), *range(8, 16), *range(24, 28)]
    assert oracle.slots(np.array([7, -1]), 8, 8) == list(range(56, 64))
    with pytest.raises(ArgumentError, match=r"block_table = \[7\]: must name enough blocks for 9 tokens"):
        oracle.slots([7], 9, 8)


@given(
    st.integers(1, 20),
    st.integers(0, 20),
    st.integers(0, 3),
    st.integers(1, 8),
    st.sampled_from(cases.DTYPES),
)
def test_written_caches_hold_each_token_at_its_slot(
    num_tokens: int, padding: int, extra_rows: int, block_size: int, dtype: str
) -> None:
    case = cases.write_case(
        num_tokens, 2, 8, block_size, dtype=dtype, padding=min(padding, num_tokens), extra_rows=extra_rows
    )
    k_cache, v_cache = oracle.written_caches(case)
    assert k_cache.dtype == v_cache.dtype == dtype
    k_rows = cases.unpack_keys(k_cache).reshape(-1, 2, 8)
    v_rows = cases.unpack_values(v_cache).reshape(-1, 2, 8)
    written = {int(number): token for token, number in enumerate(case.slot_mapping) if number >= 0}
    for number in range(case.num_blocks * block_size):
        if number in written:
            np.testing.assert_array_equal(k_rows[number], case.key[written[number]])
            np.testing.assert_array_equal(v_rows[number], case.value[written[number]])
        else:
            assert np.isnan(k_rows[number]).all()
            assert np.isnan(v_rows[number]).all()
    # The case itself keeps its poison.
    assert np.isnan(case.k_cache).all()
    assert np.isnan(case.v_cache).all()
