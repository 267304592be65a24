"""The oracle of partitions: its parts make the whole, whatever the partition size."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels import cases, oracle, oracle_v2


@settings(max_examples=30)
@given(st.integers(0, 50), st.integers(1, 60), st.integers(0, 99), st.booleans())
def test_any_partition_gives_softmax(length: int, size: int, seed: int, alibi: bool) -> None:
    case = cases.decode_case((length, 3), 4, 2, 4, 4, "float64", seed=seed, alibi=alibi)
    np.testing.assert_allclose(oracle_v2.attention(case, size, eps=0), oracle.attention(case), atol=1e-12)
    parts = oracle_v2.parts(case, 0, 1, size)
    assert sum(len(scores) for scores, _ in parts) == length
    assert all(0 < len(scores) <= size for scores, _ in parts)
    assert len(oracle_v2.maxima(case, 0, 1, size)) == -(-length // size)


def test_one_partition_has_the_epsilon_once_and_more_have_it_twice() -> None:
    case = cases.decode_case((12,), 1, 1, 4, 4, "float64", seed=1)
    exact, eps = oracle.attention(case), 1e-3
    one, two = (oracle_v2.attention(case, size, eps) for size in (12, 6))
    np.testing.assert_allclose(one, oracle.attention(case, eps), rtol=1e-12)
    assert (np.abs(two) < np.abs(one)).all()
    assert (np.abs(one) < np.abs(exact)).all()


def test_k15() -> None:
    e = np.exp(-1.0)
    rows = [[(10 * e + 20) / (1 + e)], [30.0]]
    assert oracle_v2.merge([2, 5], [1 + e, 1], rows, 0)[0] == pytest.approx(29.190917, abs=1e-6)
    np.testing.assert_allclose(oracle_v2.rescaled([2, 5], [1 + e, 1]), [(1 + e) * np.exp(-3.0), 1])


def test_nothing_merges_to_zeros() -> None:
    assert oracle_v2.merge([], [], np.zeros((0, 3))).tolist() == [0, 0, 0]
    # An empty partition with the finite sentinel adds nothing.
    assert oracle_v2.rescaled([0.0, -3.4e38], [2.0, 5.0]).tolist() == [2.0, 0.0]
