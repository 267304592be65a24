"""The cache writer against the oracle, exactly: it moves numbers, so there is nothing to tolerate."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels import cases, layout, oracle
from kernels.cases import WriteCase
from kernels.errors import ArgumentError
from kernels.kernel import Backend
from kernels.probe import Probed, Watch
from kernels.vllm.cache import reshape_and_cache, reshape_and_cache_kernel

SCHEDULES = ("in-order", "reversed", "random:11")


@st.composite
def write_cases(draw: st.DrawFn) -> WriteCase:
    num_tokens = draw(st.integers(1, 12))
    dtype = draw(st.sampled_from(["float16", "float32"]))
    return cases.write_case(
        num_tokens,
        draw(st.integers(1, 4)),
        8 * draw(st.integers(1, 4)),
        draw(st.sampled_from([1, 3, 8, 16, 32])),
        dtype,
        seed=draw(st.integers(0, 99)),
        order=draw(st.sampled_from(["shuffled", "reversed", "identity"])),
        padding=draw(st.integers(0, num_tokens)),
        extra_rows=draw(st.integers(0, 4)),
    )


def write(case: WriteCase, backend: str | Backend = "sim", entry: Any = reshape_and_cache_kernel) -> tuple[Any, Any]:
    """The caches after the write; the case keeps its own."""
    caches = case.k_cache.copy(), case.v_cache.copy()
    reshape_and_cache(case.key, case.value, *caches, case.slot_mapping, backend=backend, entry=entry)
    return caches


def same(found: tuple[Any, Any], expected: tuple[Any, Any]) -> None:
    """Equal to the bit: NaN where NaN is, too."""
    for got, want in zip(found, expected, strict=True):
        assert got.dtype == want.dtype
        np.testing.assert_array_equal(got, want)


@settings(max_examples=60)
@given(write_cases(), st.sampled_from(SCHEDULES))
def test_the_written_caches_are_the_oracles(case: WriteCase, schedule: str) -> None:
    same(write(case, Backend("sim", schedule)), oracle.written_caches(case))


@settings(max_examples=25)
@given(write_cases())
def test_a_token_reads_back_from_the_place_that_layout_names(case: WriteCase) -> None:
    k_cache, v_cache = (cache.reshape(-1) for cache in write(case))
    common = {"num_kv_heads": case.num_heads, "head_size": case.head_size, "block_size": case.block_size}
    for token, slot in enumerate(case.slot_mapping):
        if slot < 0:
            continue
        block, offset = layout.split_slot(int(slot), case.block_size)
        for head in range(case.num_heads):
            for dim in range(0, case.head_size, 5):
                k_at = layout.key_offset(block, head, dim, offset, **common, element_size=case.key.itemsize)
                assert k_cache[k_at] == case.key[token, head, dim]
                assert v_cache[layout.value_offset(block, head, dim, offset, **common)] == case.value[token, head, dim]


def test_rows_behind_the_mapping_are_not_even_looked_at() -> None:
    # K4: the launch counts slots, not rows. The slots behind the mapping are valid ones of the same buffer.
    case = cases.write_case(5, 2, 16, 8, "float16", extra_rows=3, order="identity")
    assert case.slot_buffer[5:].tolist() == [5, 6, 7]
    assert case.slot_mapping.base is case.slot_buffer
    probed = Probed(reshape_and_cache_kernel, [Watch("token", "token_idx", (1, 999), "slot_idx")])
    keys = cases.unpack_keys(write(case, entry=probed)[0]).reshape(-1, 2, 16)
    assert {reading.value for reading in probed.readings("token")} == {0, 1, 2, 3, 4}
    np.testing.assert_array_equal(keys[:5], case.key[:5])
    assert np.isnan(keys[5:]).all()


def test_padding_alone_writes_nothing_and_no_slots_launch_nothing() -> None:
    case = cases.write_case(4, 2, 16, 8, "float16", padding=4)
    assert all(np.isnan(cache).all() for cache in write(case))
    caches = case.k_cache.copy(), case.v_cache.copy()
    reshape_and_cache(case.key, case.value, *caches, case.slot_mapping[:0])
    assert all(np.isnan(cache).all() for cache in caches)


def test_every_negative_slot_is_padding() -> None:
    case = cases.write_case(3, 1, 8, 8, "float16", order="identity")
    case.slot_mapping[1] = -7
    keys = cases.unpack_keys(write(case)[0]).reshape(-1, 8)
    assert np.isfinite(keys[:, 0]).nonzero()[0].tolist() == [0, 2]


@pytest.mark.parametrize(
    ("num_heads", "head_size", "dtype", "first_unwritten"),
    [(40, 128, "float16", 32), (40, 128, "float32", 16), (32, 128, "float16", 32), (5, 120, "float16", 5)],
)
def test_heads_without_a_thread_stay_unwritten(
    num_heads: int, head_size: int, dtype: str, first_unwritten: int
) -> None:
    # At most 512 threads, one for 16 bytes, and no loop: as in vLLM.
    case = cases.write_case(2, num_heads, head_size, 8, dtype, spare_blocks=0, order="identity")
    expected = oracle.written_caches(case)
    for found, want in zip(write(case), expected, strict=True):
        np.testing.assert_array_equal(found[:, :first_unwritten], want[:, :first_unwritten])
        assert np.isnan(found[:, first_unwritten:]).all()


def test_threads_are_as_many_as_pieces_but_at_most_512() -> None:
    for num_heads, head_size, threads in ((2, 32, 8), (40, 128, 512), (1, 256, 32)):
        case = cases.write_case(1, num_heads, head_size, 8, "float16", spare_blocks=0)
        probed = Probed(reshape_and_cache_kernel, [Watch("t", "cuda.threadIdx.x", (1, 999), "h_block_count")])
        write(case, entry=probed)
        assert [reading.value for reading in probed.readings("t")] == list(range(threads))


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_rewriting_a_slot_replaces_it(dtype: str) -> None:
    first = cases.write_case(3, 2, 16, 8, dtype, seed=1, order="identity")
    second = cases.write_case(3, 2, 16, 8, dtype, seed=2, order="identity")
    caches = write(first)
    reshape_and_cache(second.key, second.value, *caches, second.slot_mapping)
    same(caches, oracle.written_caches(second))


def test_values_that_are_hard_to_copy_are_copied() -> None:
    odd = np.array([np.inf, -np.inf, np.nan, -0.0, 6e-8, 65504, 1 / 3, -1], np.float16)
    key = np.tile(odd, 2).reshape(1, 1, 16)
    caches = np.zeros((1, 1, 2, 8, 8), np.float16), np.zeros((1, 1, 16, 8), np.float16)
    reshape_and_cache(key, key, *caches, np.array([3]))
    assert cases.unpack_keys(caches[0])[0, 3, 0].tobytes() == key.tobytes()
    assert cases.unpack_values(caches[1])[0, 3, 0].tobytes() == key.tobytes()


CASE = cases.write_case(5, 2, 16, 8, "float16", order="identity")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"slot_mapping": np.array([0, 1, 24])}, r"slot_mapping\[2\] = 24: must be below the 24 slots of the cache"),
        ({"slot_mapping": np.arange(6)}, r"slot_mapping\.shape = \(6,\): must not exceed the 5 rows of key"),
        ({"value": CASE.value.astype(np.float32)}, r"value\.dtype = float32: must be float16"),
        ({"key": CASE.key[:, ::-1]}, r"key\.strides = \(64, -32, 2\): must be contiguous"),
        ({"key": np.zeros((5, 2, 46), np.float16)}, r"value\.shape|head_size = 46: must be a multiple of x = 8"),
        ({"key_cache": CASE.k_cache.astype(np.float32)}, r"key_cache\.dtype = float32"),
    ],
)
def test_a_bad_argument_is_named_and_the_caches_stay(changes: dict[str, Any], message: str) -> None:
    good = {"key": CASE.key, "value": CASE.value, "key_cache": np.full_like(CASE.k_cache, 7),
            "value_cache": np.full_like(CASE.v_cache, 7), "slot_mapping": CASE.slot_mapping}  # fmt: skip
    with pytest.raises(ArgumentError, match=message):
        reshape_and_cache(**(good | changes))
    assert (good["key_cache"] == 7).all()
    assert (good["value_cache"] == 7).all()


def test_a_head_of_46_is_not_made_of_whole_pieces_and_48_is() -> None:
    # K17: rows of 92 bytes start on 16-byte lines only now and then; vLLM's vectors need them always.
    assert [row for row in range(9) if layout.row_is_aligned(row, 1, 46, 2)] == [0, 4, 8]
    key = np.ones((1, 1, 46), np.float16)
    caches = np.zeros((1, 1, 5, 8, 8), np.float16), np.zeros((1, 1, 46, 8), np.float16)
    with pytest.raises(ArgumentError, match="head_size = 46: must be a multiple of x = 8"):
        reshape_and_cache(key, key, *caches, np.array([0]))
    same(write(case := cases.write_case(3, 1, 48, 8, "float16")), oracle.written_caches(case))


@pytest.mark.gpu
def test_gpu_writes_the_oracles_caches() -> None:
    for dtype in ("float16", "float32"):
        for heads, head_size, block_size in ((2, 16, 8), (3, 120, 16), (8, 128, 32)):
            case = cases.write_case(9, heads, head_size, block_size, dtype, seed=heads, padding=2, extra_rows=3)
            same(write(case, "cuda"), oracle.written_caches(case))
    wide = cases.write_case(1, 40, 128, 16, "float16", spare_blocks=0)
    assert np.isnan(write(wide, "cuda")[0][:, 32:]).all()
