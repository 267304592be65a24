"""The way of a decode step: metadata, update, forward; with the block table followed all along."""

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
from kernels.vllm import flash_layout
from kernels.vllm.flash_forward import (
    FORWARD_INCLUDES_KV_CACHE_UPDATE,
    CommonAttentionMetadata,
    build,
    do_kv_cache_update,
    flash_attn_varlen_func,
    forward,
)
from kernels.vllm.flash_layout import Memory


def metadata(case: DecodeCase, slots: Any = None) -> CommonAttentionMetadata:
    count = case.num_seqs
    return CommonAttentionMetadata(
        num_actual_tokens=count,
        max_query_len=1,
        query_start_loc=np.arange(count + 1, dtype=np.int32),
        max_seq_len=case.max_seq_len,
        seq_lens=case.seq_lens,
        block_table_tensor=case.block_tables,
        slot_mapping=np.full(count, -1) if slots is None else slots,
    )


def cached(case: DecodeCase, memory: Memory) -> Any:
    """A cache with all of the case's tokens but the newest of each sequence, and the newest ones' slots."""
    cache = flash_layout.allocate(case.num_blocks, 16, case.num_kv_heads, case.head_size, str(case.q.dtype), memory)
    slots = []
    for seq, (keys, values) in enumerate(zip(case.keys, case.values, strict=True)):
        places = oracle.slots(case.block_tables[seq], int(case.seq_lens[seq]), 16)
        for token, slot in enumerate(places[:-1]):
            cache[slot // 16, :, slot % 16] = np.concatenate([keys[token], values[token]], axis=1)
        slots.append(places[-1])
    return cache, np.array(slots, np.int64)


@settings(max_examples=20, deadline=None)
@given(
    st.lists(st.sampled_from([1, 15, 16, 17, 40]), min_size=1, max_size=3),
    st.sampled_from([(1, 1), (2, 1), (4, 2), (3, 3)]),
    st.sampled_from(["NHD", "HND"]),
    st.sampled_from(["float16", "float32"]),
    st.sampled_from([None, 1, 16, 20]),
    st.integers(0, 2),
)
def test_update_then_forward_is_attention(
    lens: list[int], heads: tuple[int, int], memory: Memory, dtype: str, window: int | None, padding: int
) -> None:
    case = cases.decode_case(lens, *heads, 32, 16, dtype, seed=3)
    cache, slots = cached(case, memory)
    rows = len(lens) + padding
    key, value = (np.full((rows, heads[1], 32), np.nan, dtype) for _ in range(2))
    key[: len(lens)] = [keys[-1] for keys in case.keys]
    value[: len(lens)] = [values[-1] for values in case.values]
    do_kv_cache_update(key, value, cache, slots)

    query = np.full((rows, *case.q.shape[1:]), np.nan, dtype)
    query[: len(lens)] = case.q
    output = np.full(query.shape, np.nan, dtype)
    # Keys and values handed to forward are not read.
    found = forward(query, None, None, cache, build(metadata(case, slots)), output, sliding_window=window)
    assert found is output
    truth = oracle_2d.attention(case, window or 0, eps=0)
    assert np.allclose(output[: len(lens)], truth, atol=2e-3 if dtype == "float16" else 1e-5)
    assert np.isnan(output[len(lens) :]).all(), "padding stays as it was"


def test_forward_does_not_write_the_newest_token() -> None:
    case = cases.decode_case((5,), 1, 1, 32, 16, "float32", seed=4)
    cache, slots = cached(case, "NHD")
    before = cache.copy()
    output = np.zeros_like(case.q)
    forward(case.q, case.keys[0][-1:], case.values[0][-1:], cache, build(metadata(case, slots)), output)
    assert np.array_equal(cache, before, equal_nan=True)
    assert np.isnan(output).all(), "the newest token's place holds NaN until the update"
    assert not FORWARD_INCLUDES_KV_CACHE_UPDATE


def test_the_metadata_carries_the_same_block_table() -> None:
    case = cases.decode_case((5, 20), 1, 1, 32, 16, seed=5)
    common = metadata(case)
    found = build(common)
    assert found.block_table is common.block_table_tensor
    for name in ("num_actual_tokens", "max_query_len", "query_start_loc", "max_seq_len", "seq_lens", "slot_mapping"):
        assert getattr(found, name) is getattr(common, name)


def test_a_profiling_run_gives_zeros() -> None:
    output = np.full((2, 1, 32), np.nan, np.float32)
    forward(output, None, None, None, None, output)
    assert not output.any()


def test_what_the_stand_in_refuses() -> None:
    case = cases.decode_case((5, 20), 1, 1, 32, 16, "float32", seed=6)
    cache, _ = cached(case, "NHD")
    ready = build(metadata(case))
    for change, message in (
        ({"max_query_len": 2}, "decodes only"),
        ({"max_seq_len": 19}, "at least the longest length, 20"),
    ):
        with pytest.raises(ArgumentError, match=message):
            forward(case.q, None, None, cache, replace(ready, **change), np.zeros_like(case.q))  # type: ignore[arg-type]
    key, value = flash_layout.split(cache, 32)
    with pytest.raises(ArgumentError, match="does not know its own length"):
        flash_attn_varlen_func(
            q=case.q, k=key, v=value, out=np.zeros_like(case.q), cu_seqlens_q=ready.query_start_loc, max_seqlen_q=1,
            seqused_k=None, max_seqlen_k=20, block_table=case.block_tables,
        )  # fmt: skip


@pytest.mark.gpu
@pytest.mark.parametrize("memory", ["NHD", "HND"])
def test_gpu_update_then_forward(memory: Memory) -> None:
    case = cases.decode_case((300, 17, 1), 8, 2, 128, 16, "float16", seed=7)
    cache, slots = cached(case, memory)
    key, value = (np.array([rows[-1] for rows in side]) for side in (case.keys, case.values))
    do_kv_cache_update(key, value, cache, slots, backend="cuda")
    output = np.full(case.q.shape, np.nan, np.float16)
    forward(case.q, None, None, cache, build(metadata(case, slots)), output, backend="cuda")
    assert np.allclose(output, oracle.attention(case), atol=2e-3)
