"""The corrected writer: everything that vLLM's writes, and the heads that it leaves out."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels import cases, oracle
from kernels.kernel import Backend
from kernels.vllm.cache import reshape_and_cache
from kernels.vllm.cache_fixed import reshape_and_cache_fixed, reshape_and_cache_fixed_kernel


def both(case: cases.WriteCase, backend: str | Backend = "sim") -> tuple[tuple[object, object], tuple[object, object]]:
    """The caches as the faithful and as the corrected kernel leave them."""
    found = []
    for write in (reshape_and_cache, reshape_and_cache_fixed):
        caches = case.k_cache.copy(), case.v_cache.copy()
        write(case.key, case.value, *caches, case.slot_mapping, backend=backend)
        found.append(caches)
    return found[0], found[1]


@settings(max_examples=40)
@given(
    st.integers(1, 6), st.integers(1, 4), st.integers(1, 4), st.sampled_from([3, 8, 16]),
    st.sampled_from(["float16", "float32"]), st.sampled_from(["in-order", "reversed", "random:3"]), st.data(),
)  # fmt: skip
def test_where_512_threads_are_enough_both_write_the_oracles_caches(
    tokens: int, heads: int, size: int, block_size: int, dtype: str, schedule: str, data: st.DataObject
) -> None:
    case = cases.write_case(
        tokens, heads, 8 * size, block_size, dtype, padding=data.draw(st.integers(0, tokens)), extra_rows=2
    )
    for found in both(case, Backend("sim", schedule)):
        for got, want in zip(found, oracle.written_caches(case), strict=True):
            np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize(
    ("heads", "head_size", "dtype", "left"),
    [
        (40, 128, "float16", 8), (64, 128, "float16", 32), (32, 256, "float16", 16), (40, 128, "float32", 24),
        (33, 128, "float16", 1),
    ],
)  # fmt: skip
def test_the_heads_beyond_512_pieces_are_written_by_the_loop_alone(
    heads: int, head_size: int, dtype: str, left: int
) -> None:
    case = cases.write_case(2, heads, head_size, 8, dtype, spare_blocks=0)
    expected = oracle.written_caches(case)
    faithful, fixed = both(case)
    for got, want in zip(fixed, expected, strict=True):
        np.testing.assert_array_equal(got, want)
    for got, want in zip(faithful, expected, strict=True):
        np.testing.assert_array_equal(got[:, : heads - left], want[:, : heads - left])  # type: ignore[index]
        assert np.isnan(got[:, heads - left :]).all()  # type: ignore[index]


@pytest.mark.parametrize("threads", [1, 7, 33, 512])
def test_any_number_of_threads_writes_everything(threads: int) -> None:
    case = cases.write_case(2, 3, 32, 8, "float16", order="identity")
    caches = case.k_cache.copy(), case.v_cache.copy()
    one = np.ones(1, np.float32)
    chosen = reshape_and_cache_fixed_kernel.specialise(dtype="float16", kv_cache_dtype="auto")
    chosen.on("sim")[2, threads](
        case.key.reshape(-1), case.value.reshape(-1), *(cache.reshape(-1) for cache in caches), case.slot_mapping,
        96, 96, 3, 32, 8, 8, one, one,
    )  # fmt: skip
    for got, want in zip(caches, oracle.written_caches(case), strict=True):
        np.testing.assert_array_equal(got, want)


@pytest.mark.gpu
def test_gpu_writes_every_head() -> None:
    for heads, head_size in ((40, 128), (64, 128), (32, 256), (2, 32)):
        case = cases.write_case(3, heads, head_size, 16, "float16", spare_blocks=0, padding=1)
        for got, want in zip(both(case, "cuda")[1], oracle.written_caches(case), strict=True):
            np.testing.assert_array_equal(got, want)
