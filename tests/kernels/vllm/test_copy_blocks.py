"""Copied blocks against NumPy's assignment, every other place untouched, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels import cases
from kernels.errors import ArgumentError
from kernels.kernel import Backend
from kernels.vllm.copy_blocks import copy_blocks


def pairs_of(numbers: list[int], count: int) -> Any:
    return np.array(numbers[: 2 * count], np.int64).reshape(-1, 2)


@settings(max_examples=25, deadline=None)
@given(
    st.permutations(range(6)), st.integers(0, 3), st.sampled_from(["float16", "float32", "float64"]),
    st.sampled_from(["in-order", "reversed", "random:2"]),
)  # fmt: skip
def test_copies_are_numpys(numbers: list[int], count: int, dtype: str, schedule: str) -> None:
    rng = np.random.default_rng(1)
    pool = rng.standard_normal((2, 6, 8, 2, 8)).astype(dtype)
    k_cache, v_cache = cases.pack_keys(pool[0]), cases.pack_values(pool[1])
    expected = k_cache.copy(), v_cache.copy()
    mapping = pairs_of(numbers, count)
    for source, target in mapping:
        for cache in expected:
            cache[target] = cache[source]
    copy_blocks(k_cache, v_cache, mapping, backend=Backend("sim", schedule))
    assert np.array_equal(k_cache, expected[0])
    assert np.array_equal(v_cache, expected[1])


def test_a_block_of_more_elements_than_threads() -> None:
    pool = np.arange(2 * 1500, dtype=np.float32).reshape(2, 1500)
    values = -pool
    copy_blocks(pool, values, np.array([[1, 0]]))
    assert np.array_equal(pool[0], np.arange(1500, 3000))
    assert np.array_equal(values[0], pool[0] * -1)


def test_one_source_may_have_several_targets() -> None:
    pool = np.arange(6, dtype=np.float64).reshape(3, 2)
    copy_blocks(pool, pool.copy(), np.array([[0, 1], [0, 2]]))
    assert pool.tolist() == [[0, 1]] * 3


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"block_mapping": np.array([[0, 3]])}, r"block_mapping\[0\] = 3"),
        ({"block_mapping": np.array([[-1, 0]])}, r"block_mapping\[0\] = -1"),
        ({"block_mapping": np.array([[0, 1], [1, 2]])}, "nor one it reads"),
        ({"block_mapping": np.array([[0, 1], [2, 1]])}, "must not write a block twice"),
        ({"block_mapping": np.array([[0, 0]])}, "nor one it reads"),
        ({"block_mapping": np.array([[0, 1]], np.int32)}, "block_mapping.dtype"),
        ({"value_cache": np.zeros((3, 5), np.float32)}, "must have a block as large"),
        ({"value_cache": np.zeros((2, 6), np.float32)}, "value_cache.shape"),
        ({"value_cache": np.zeros((3, 4))}, "value_cache.dtype"),
        ({"key_cache": np.zeros((3, 4), np.int32)}, "key_cache.dtype"),
    ],
)
def test_wrong_arguments_are_named(change: dict[str, Any], message: str) -> None:
    valid = {
        "key_cache": np.zeros((3, 4), np.float32),
        "value_cache": np.zeros((3, 4), np.float32),
        "block_mapping": np.array([[0, 1]]),
    }
    copy_blocks(**valid)
    with pytest.raises(ArgumentError, match=message):
        copy_blocks(**{**valid, **change})


@pytest.mark.gpu
def test_gpu_copies() -> None:
    pool = np.random.default_rng(2).standard_normal((40, 16, 8, 128)).astype(np.float16)
    k_cache, v_cache = cases.pack_keys(pool), cases.pack_values(pool)
    copy_blocks(k_cache, v_cache, np.array([[3, 7], [3, 39], [0, 1]]), backend="cuda")
    for cache in (k_cache, v_cache):
        assert np.array_equal(cache[7], cache[3])
        assert np.array_equal(cache[39], cache[3])
        assert np.array_equal(cache[1], cache[0])
