"""The plain-Python reference: the lesson's numbers, dense against paged, the running state token by token."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernels import cases, layout, oracle, reference
from kernels.errors import ArgumentError

Q = (0.5, -0.3, 0.8, 0.1)
K = [
    (0.2, 0.1, -0.4, 0.6),
    (0.9, -0.2, 0.3, 0.0),
    (-0.5, 0.4, 0.7, -0.1),
    (0.1, 0.1, 0.1, 0.1),
    (0.8, 0.8, -0.8, 0.2),
    (-0.3, 0.5, 0.2, 0.9),
]
V = [(1, 0, 0, 0), (0, 1, 0, 0), (0, 0, 1, 0), (0, 0, 0, 1), (0.5, 0.5, 0.5, 0.5), (1, 1, 1, 1)]
TABLE = [3, 1]
OUTPUT = (0.363083, 0.449897, 0.392487, 0.386499)


def pools(
    keys: list[tuple[float, ...]], values: list[tuple[float, ...]], table: list[int], block_size: int
) -> tuple[reference.Pool, reference.Pool]:
    """Two pools with the rows at the places that the table names and NaN everywhere else."""
    found = []
    for rows in (keys, values):
        pool = reference.empty_pool(max(table) + 2, block_size, len(rows[0]))
        reference.scatter(rows, pool, table, block_size)
        found.append(pool)
    return found[0], found[1]


@st.composite
def sequences(
    draw: st.DrawFn,
) -> tuple[tuple[float, ...], list[tuple[float, ...]], list[tuple[float, ...]], list[int], int]:
    """q, keys, values, a scattered block table (perhaps longer than needed), block size."""
    head_size, block_size, tokens = draw(st.integers(1, 4)), draw(st.integers(1, 5)), draw(st.integers(1, 12))
    row = st.tuples(*[st.floats(-4, 4, allow_subnormal=False)] * head_size)
    table = draw(st.permutations(range(13)))[: layout.blocks_for(tokens, block_size) + draw(st.integers(0, 1))]
    rows = st.lists(row, min_size=tokens, max_size=tokens)
    return draw(row), draw(rows), draw(rows), table, block_size


def test_lesson_values_to_six_digits() -> None:
    k_pool, v_pool = pools(K, V, TABLE, 4)
    paged = reference.paged_attention(Q, k_pool, v_pool, TABLE, 6, 4)
    dense = reference.dense_attention(Q, K, V)
    assert tuple(round(value, 6) for value in paged) == OUTPUT
    assert tuple(round(value, 6) for value in dense) == OUTPUT
    # Not zero on every Python: the two add in another order.
    assert max(abs(a - b) for a, b in zip(paged, dense, strict=True)) <= 2.3e-16


def test_lesson_pool_is_the_lesson_case() -> None:
    case = cases.lesson_case("float64")
    k_pool, v_pool = pools(K, V, TABLE, 4)
    for pool, cache in (
        (k_pool, cases.unpack_keys(case.k_cache)),
        (v_pool, cases.unpack_values(case.v_cache)),
    ):
        np.testing.assert_array_equal(np.array(pool)[:4], cache[:, :, 0])
    assert case.q[0, 0].tolist() == list(Q)


def test_scatter_writes_the_tokens_and_nothing_else() -> None:
    k_pool, _ = pools(K, V, TABLE, 4)
    assert k_pool[3] == [list(row) for row in K[:4]]
    assert k_pool[1][:2] == [list(row) for row in K[4:]]
    untouched = [*k_pool[0], *k_pool[2], *k_pool[1][2:], *k_pool[4]]
    assert all(math.isnan(number) for row in untouched for number in row)


@given(st.permutations(range(7)), st.integers(1, 6))
def test_slots_agree_with_the_oracle_and_layout(table: list[int], block_size: int) -> None:
    tokens = len(table) * block_size
    found = [reference.slot_of_token(position, table, block_size) for position in range(tokens)]
    assert found == oracle.slots(table, tokens, block_size)
    assert sorted(found) == list(range(tokens))
    assert [layout.split_slot(number, block_size) for number in found] == [
        (block, offset) for block in table for offset in range(block_size)
    ]


@given(sequences(), st.sampled_from([None, 0.25, 1.0]))
def test_paging_does_not_change_the_answer(
    sequence: tuple[tuple[float, ...], list[tuple[float, ...]], list[tuple[float, ...]], list[int], int],
    scale: float | None,
) -> None:
    q, keys, values, table, block_size = sequence
    k_pool, v_pool = pools(keys, values, table, block_size)
    paged = reference.paged_attention(q, k_pool, v_pool, table, len(keys), block_size, scale)
    dense = reference.dense_attention(q, keys, values, scale)
    assert paged == pytest.approx(dense, rel=1e-12, abs=1e-12)


@given(st.integers(1, 30), st.sampled_from([1, 4, 16]), st.integers(0, 99))
def test_reference_agrees_with_the_oracle(seq_len: int, block_size: int, seed: int) -> None:
    case = cases.decode_case([seq_len], 4, 2, 8, block_size, dtype="float64", seed=seed)
    k_pool, v_pool = cases.unpack_keys(case.k_cache), cases.unpack_values(case.v_cache)
    for head in range(4):
        out = reference.paged_attention(
            case.q[0, head].tolist(),
            k_pool[:, :, head // 2].tolist(),
            v_pool[:, :, head // 2].tolist(),
            case.block_tables[0].tolist(),
            seq_len,
            block_size,
        )
        np.testing.assert_allclose(out, oracle.output(case, 0, head), rtol=0, atol=1e-13)


@given(sequences())
def test_trace_holds_the_prefix_softmax_after_each_token(
    sequence: tuple[tuple[float, ...], list[tuple[float, ...]], list[tuple[float, ...]], list[int], int],
) -> None:
    q, keys, values, table, block_size = sequence
    k_pool, v_pool = pools(keys, values, table, block_size)
    out, steps = reference.paged_attention_trace(q, k_pool, v_pool, table, len(keys), block_size)
    assert [step.position for step in steps] == list(range(len(keys)))
    scores = [sum(a * b for a, b in zip(q, key, strict=True)) / math.sqrt(len(q)) for key in keys]
    for step in steps:
        seen = scores[: step.position + 1]
        assert (step.block, step.offset) == divmod(step.position, block_size)
        assert step.physical == table[step.block]
        assert step.score == pytest.approx(scores[step.position], rel=1e-12, abs=1e-12)
        assert step.running_max == max(previous.score for previous in steps[: step.position + 1])
        exponentials = [math.exp(score - max(seen)) for score in seen]
        assert step.running_sum == pytest.approx(sum(exponentials), rel=1e-11)
        expected = [
            sum(e * v for e, v in zip(exponentials, column, strict=True))
            for column in zip(*values[: len(seen)], strict=True)
        ]
        assert step.accumulator == pytest.approx(expected, rel=1e-11, abs=1e-11)
    assert out == [a / steps[-1].running_sum for a in steps[-1].accumulator]


def test_lesson_trace_walks_the_table() -> None:
    k_pool, v_pool = pools(K, V, TABLE, 4)
    _, steps = reference.paged_attention_trace(Q, k_pool, v_pool, TABLE, 6, 4)
    assert [(step.block, step.physical, step.offset) for step in steps] == [
        *[(0, 3, offset) for offset in range(4)],
        *[(1, 1, offset) for offset in range(2)],
    ]
    assert steps[0].running_sum == 1.0
    assert steps[0].accumulator == (1.0, 0.0, 0.0, 0.0)
    assert steps[0].score == pytest.approx(0.5 * (0.10 - 0.03 - 0.32 + 0.06))


def test_an_extra_page_would_show_k8() -> None:
    # 16 tokens fill one block of 16 exactly; the block named after it holds NaN and must not be read.
    keys, values = [(1.0, float(i)) for i in range(16)], [(float(i), 1.0) for i in range(16)]
    k_pool, v_pool = pools(keys, values, [0, 1], 16)
    out, steps = reference.paged_attention_trace((0.1, 0.2), k_pool, v_pool, [0, 1], 16, 16)
    assert len(steps) == 16
    assert out == pytest.approx(reference.dense_attention((0.1, 0.2), keys, values))


def test_large_scores_do_not_overflow() -> None:
    keys, values = [(1000.0,), (999.0,)], [(1.0,), (0.0,)]
    k_pool, v_pool = pools(keys, values, [0], 2)
    expected = 1 / (1 + math.exp(-1))
    assert reference.paged_attention((1.0,), k_pool, v_pool, [0], 2, 2) == pytest.approx([expected])
    assert reference.dense_attention((1.0,), keys, values) == pytest.approx([expected])


def test_what_is_refused() -> None:
    k_pool, v_pool = pools(K, V, TABLE, 4)
    with pytest.raises(ArgumentError, match=r"^seq_len = 0: must be at least 1"):
        reference.paged_attention(Q, k_pool, v_pool, TABLE, 0, 4)
    with pytest.raises(ArgumentError, match=r"^block_table = \[3, 1\]: must name enough blocks for 9 tokens"):
        reference.paged_attention(Q, k_pool, v_pool, TABLE, 9, 4)
    for table, message in (
        ([3, -1], r"^block_table\[1\] = -1: must be a block of the pool: 0 \.\. 4"),
        ([5, 1], r"^block_table\[0\] = 5: must be a block of the pool: 0 \.\. 4"),
    ):
        with pytest.raises(ArgumentError, match=message):
            reference.paged_attention(Q, k_pool, v_pool, table, 6, 4)
        with pytest.raises(ArgumentError, match=message):
            reference.scatter(K, k_pool, table, 4)
    # Past the tokens a table may hold anything.
    assert reference.paged_attention(Q, k_pool, v_pool, [3, -1], 4, 4) == pytest.approx(
        reference.dense_attention(Q, K[:4], V[:4])
    )
