"""The side-by-side cache: shape against strides, both memory orders, and the gather against plain indexing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels import cases
from kernels.cases import DecodeCase
from kernels.errors import ArgumentError
from kernels.kernel import Backend
from kernels.vllm import flash_layout
from kernels.vllm.flash_layout import Memory

ORDERS: tuple[Memory, Memory] = ("NHD", "HND")


def filled(case: DecodeCase, memory: Memory = "NHD") -> Any:
    """The case's tokens in a side-by-side cache, placed through the logical shape; the rest is NaN."""
    cache = flash_layout.allocate(
        case.num_blocks, case.block_size, case.num_kv_heads, case.head_size, str(case.q.dtype), memory
    )
    for seq in range(case.num_seqs):
        for token in range(case.seq_lens[seq]):
            block = case.block_tables[seq, token // case.block_size]
            place = cache[block, :, token % case.block_size]
            place[:, : case.head_size] = case.keys[seq][token]
            place[:, case.head_size :] = case.values[seq][token]
    return cache


# -- shape and memory


@pytest.mark.parametrize("memory", ORDERS)
def test_strides_are_numpys(memory: Memory) -> None:
    shape = flash_layout.kv_cache_shape(7, 16, 4, 128)
    cache = flash_layout.allocate(7, 16, 4, 128, "float16", memory)
    assert cache.shape == shape == (7, 4, 16, 256)
    assert tuple(step // 2 for step in cache.strides) == flash_layout.kv_cache_strides(shape, memory)
    assert np.isnan(cache).all()


def test_strides_by_hand() -> None:
    """Four KV heads of 128, blocks of 16: NHD puts the heads of a token next to each other."""
    shape = flash_layout.kv_cache_shape(7, 16, 4, 128)
    assert flash_layout.kv_cache_strides(shape, "NHD") == (16384, 256, 1024, 1)
    assert flash_layout.kv_cache_strides(shape, "HND") == (16384, 4096, 256, 1)


@pytest.mark.parametrize("memory", ORDERS)
def test_the_halves_are_views_with_rows_two_heads_apart(memory: Memory) -> None:
    cache = flash_layout.allocate(3, 16, 2, 32, "float32", memory)
    key, value = flash_layout.split(cache, 32)
    assert key.shape == value.shape == (3, 16, 2, 32)
    assert np.shares_memory(key, cache)
    assert not np.shares_memory(key, value)
    assert not key.flags.c_contiguous
    assert value.__array_interface__["data"][0] - key.__array_interface__["data"][0] == 32 * 4
    key[1, 5, 1] = 1
    value[1, 5, 1] = 2
    assert cache[1, 1, 5].tolist() == [1] * 32 + [2] * 32


@pytest.mark.parametrize("memory", ORDERS)
def test_memory_holds_what_its_letters_say(memory: Memory) -> None:
    cache = flash_layout.allocate(2, 16, 3, 8, "float32", memory)
    flash_layout.split(cache, 8)[0][1, 9, 2, 4] = 5
    order = np.ascontiguousarray(cache.transpose(flash_layout.stride_order(memory)))
    at = (1, 9, 2, 4) if memory == "NHD" else (1, 2, 9, 4)
    assert order[at] == 5


def test_what_is_refused() -> None:
    with pytest.raises(ArgumentError, match="block_size = 24"):
        flash_layout.kv_cache_shape(1, 24, 1, 8)
    with pytest.raises(ArgumentError, match="block_size = 0"):
        flash_layout.kv_cache_shape(1, 0, 1, 8)
    with pytest.raises(ArgumentError, match="num_kv_heads = 0"):
        flash_layout.kv_cache_shape(1, 16, 0, 8)
    with pytest.raises(ArgumentError, match="memory = NDH"):
        flash_layout.stride_order("NDH")  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="dtype = int8"):
        flash_layout.allocate(1, 16, 1, 8, "int8")
    with pytest.raises(ArgumentError, match=r"kv_cache\.shape"):
        flash_layout.split(flash_layout.allocate(1, 16, 1, 8), 16)


# -- gather


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.sampled_from([1, 5, 15, 16, 17, 33]), min_size=1, max_size=2),
    st.integers(1, 3),
    st.sampled_from([8, 32, 80]),
    st.sampled_from(ORDERS),
    st.sampled_from(["float16", "float32"]),
    st.sampled_from(["valid", "minus-one"]),
    st.sampled_from(["in-order", "reversed", "random:3"]),
)
def test_gather_gives_the_tokens_back(
    lens: list[int], heads: int, head_size: int, memory: Memory, dtype: str, garbage: Any, schedule: str
) -> None:
    case = cases.decode_case(lens, heads, heads, head_size, 16, dtype, seed=1, garbage=garbage)
    cache = filled(case, memory)
    for seq in range(case.num_seqs):
        key, value = (np.full(rows[seq].shape, np.nan, dtype) for rows in (case.keys, case.values))
        flash_layout.gather_kv(key, value, cache, case.block_tables[seq], backend=Backend("sim", schedule))
        assert np.array_equal(key, case.keys[seq])
        assert np.array_equal(value, case.values[seq])


def test_nothing_to_gather() -> None:
    empty = np.zeros((0, 1, 8), np.float32)
    flash_layout.gather_kv(empty, empty, flash_layout.allocate(1, 16, 1, 8, "float32"), np.zeros(0, np.int32))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"value": np.zeros((5, 2, 16), np.float32)}, "value.shape"),
        ({"key": np.zeros((5, 2, 8), np.float16)}, "value.dtype"),
        ({"kv_cache": flash_layout.allocate(3, 16, 1, 8, "float32")}, "kv_cache.shape"),
        ({"block_table": np.array([3], np.int32)}, r"block_table\[0, 0\] = 3"),
        ({"block_table": np.array([], np.int32)}, "needs 1 blocks"),
        ({"block_table": np.array([0])}, "block_table.dtype"),
        ({"kv_cache": np.zeros((3, 2, 16, 32), np.float32)[..., ::2]}, "in one piece"),
    ],
)
def test_wrong_arguments_are_named(change: dict[str, Any], message: str) -> None:
    valid = {
        "key": np.zeros((5, 2, 8), np.float32),
        "value": np.zeros((5, 2, 8), np.float32),
        "kv_cache": flash_layout.allocate(3, 16, 2, 8, "float32"),
        "block_table": np.array([1], np.int32),
    }
    flash_layout.gather_kv(**valid)
    with pytest.raises(ArgumentError, match=message):
        flash_layout.gather_kv(**{**valid, **change})


def test_a_head_that_is_too_wide_is_refused() -> None:
    wide = np.zeros((1, 1, 264), np.float32)
    with pytest.raises(ArgumentError, match="head size must be 1 to 256"):
        flash_layout.gather_kv(
            wide, wide.copy(), flash_layout.allocate(1, 16, 1, 264, "float32"), np.zeros(1, np.int32)
        )


@pytest.mark.gpu
@pytest.mark.parametrize("memory", ORDERS)
def test_gpu_gathers(memory: Memory) -> None:
    case = cases.decode_case((300, 17), 4, 4, 128, 16, "float16", seed=2)
    cache = filled(case, memory)
    for seq in range(2):
        key, value = (np.full(rows[seq].shape, np.nan, np.float16) for rows in (case.keys, case.values))
        flash_layout.gather_kv(key, value, cache, case.block_tables[seq], backend="cuda")
        assert np.array_equal(key, case.keys[seq])
        assert np.array_equal(value, case.values[seq])
