"""tiny-vllm's writes: pure data movement, compared exactly with plain indexing."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels import oracle
from kernels.cases import decode_case
from kernels.errors import ArgumentError
from kernels.kernel import Backend
from kernels.simt.sanitize import Sanitizer
from kernels.tiny_vllm.attention import cache_of
from kernels.tiny_vllm.block_table import BlockNotFree, Blocks
from kernels.tiny_vllm.paged import tiny_attention
from kernels.tiny_vllm.scatter import write_decode, write_prefill

SCHEDULES = ("in-order", "reversed", "random:1")


def rows_of(count, heads=1, head_size=64, dtype="float16", seed=0):
    rng = np.random.default_rng(seed)
    return [rng.standard_normal((count, heads, head_size)).astype(dtype) for _ in range(2)]


def empty(blocks=8, heads=1, head_size=64, dtype="float16"):
    return np.full((blocks, 2, 16, heads, head_size), np.nan, dtype)


def small(num_blocks=8, slots=2, layers=2):
    return Blocks(num_blocks=num_blocks, slots=slots, layers=layers, columns=4)


def expected(cache, tokens):
    """The cache after (block, place, key, value) of each token, by plain indexing."""
    cache = cache.copy()
    for block, place, key, value in tokens:
        cache[block, 0, place], cache[block, 1, place] = key, value
    return cache


@pytest.mark.parametrize("length", [1, 15, 16, 17, 32, 33])
@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_a_prompt_lands_block_by_block_and_nothing_else_is_touched(length, dtype):
    keys, values = rows_of(length, 2, 32, dtype, seed=length)
    state, cache = small(), empty(heads=2, head_size=32, dtype=dtype)
    blocks = write_prefill(state, 1, 0, keys, values, cache)
    assert blocks == [7 - n for n in range(-(-length // 16))]
    tokens = [(blocks[t // 16], t % 16, keys[t], values[t]) for t in range(length)]
    np.testing.assert_array_equal(cache, expected(empty(heads=2, head_size=32, dtype=dtype), tokens))


@settings(max_examples=15)
@given(st.integers(1, 30), st.integers(1, 20), st.integers(0, 100))
def test_prompt_and_decode_together_hold_the_sequence_in_order(prompt, more, seed):
    keys, values = rows_of(prompt + more, seed=seed)
    state, cache = small(), empty()
    write_prefill(state, 0, 1, keys[:prompt], values[:prompt], cache)
    for position in range(prompt, prompt + more):
        write_decode(state, [0], [position], 1, keys[[position]], values[[position]], cache)
    table = state.table[0, 1]
    tokens = [(table[t // 16], t % 16, keys[t], values[t]) for t in range(prompt + more)]
    np.testing.assert_array_equal(cache, expected(empty(), tokens))


def test_row_i_belongs_to_the_slot_that_active_slots_names():
    keys, values = rows_of(2, seed=5)
    state, cache = small(), empty()
    state.prefill_layer(0, 0, 3)
    state.prefill_layer(1, 0, 16)
    write_decode(state, [1, 0], [16, 3], 0, keys, values, cache)
    assert state.table[1, 0, 1] == 5  # the third block that was taken
    tokens = [(5, 0, keys[0], values[0]), (state.table[0, 0, 0], 3, keys[1], values[1])]
    np.testing.assert_array_equal(cache, expected(empty(), tokens))


def test_what_was_written_is_what_the_attention_kernel_reads():
    case = decode_case([21], 4, 1, 64, 16, seed=6)
    keys, values = case.keys[0], case.values[0]
    state, cache = small(), empty(dtype="float32")
    write_prefill(state, 1, 1, keys[:20].copy(), values[:20].copy(), cache)
    write_decode(state, [1], [20], 1, keys[20:].copy(), values[20:].copy(), cache)
    assert not np.array_equal(cache.shape, cache_of(case).shape)
    q = case.q.copy()
    tiny_attention(1, 1, q, cache, state.table, case.seq_lens, np.ones(1, np.int32), q, repaired=True)
    assert np.abs(q - oracle.attention(case)).max() < 2e-6


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_both_are_clean_under_every_schedule(schedule):
    keys, values = rows_of(18, seed=7)
    state, cache = small(), empty()
    watch = Sanitizer()
    backend = Backend("sim", schedule, observers=(watch,))
    with watch:
        write_prefill(state, 0, 0, keys, values, cache, backend=backend)
        write_prefill(state, 1, 0, keys[:16], values[:16], cache, backend=backend)
        write_decode(state, [0, 1], [18, 16], 0, keys[:2], values[:2], cache, backend=backend)
    assert watch.clean


def test_nonsense_is_refused():
    keys, values = rows_of(2)
    cases = [
        (lambda: write_prefill(small(), 0, 0, keys.astype(np.float64), values, empty()), r"k_proj\.dtype"),
        (lambda: write_prefill(small(), 0, 0, keys, values[:1], empty()), r"v_proj\.shape"),
        (lambda: write_prefill(small(), 0, 0, keys[:0], values[:0], empty()), "at least one row"),
        (lambda: write_prefill(small(), 0, 0, keys, values, empty(heads=2)), r"kv_cache\.shape"),
        (lambda: write_prefill(small(), 0, 0, keys, values, empty(blocks=7)), r"= 7: must be a block of the cache"),
        (lambda: write_decode(small(), [0], [0, 1], 0, keys, values, empty()), "active_slots"),
        (lambda: write_decode(small(), [0, 1], [0, 64], 0, keys, values, empty()), r"position \+ 1 = 65"),
        (lambda: write_decode(small(), [0, 1], [3, 3], 0, keys, values, empty()), "block of row 0 = -1"),
    ]
    for call, message in cases:
        with pytest.raises(ArgumentError, match=message):
            call()


def test_a_slot_in_use_is_not_overwritten():
    keys, values = rows_of(2)
    state, cache = small(), empty()
    write_prefill(state, 0, 0, keys, values, cache)
    before = cache.copy()
    with pytest.raises(BlockNotFree):
        write_prefill(state, 0, 0, keys, values, cache)
    np.testing.assert_array_equal(cache, before)


@pytest.mark.gpu
def test_gpu_writes_the_same_bytes():
    keys, values = rows_of(18, seed=8)
    caches = []
    for backend in ("sim", "cuda"):
        state, cache = small(), empty()
        write_prefill(state, 0, 0, keys, values, cache, backend=backend)
        write_decode(state, [0], [18], 0, keys[:1], values[:1], cache, backend=backend)
        caches.append(cache)
    np.testing.assert_array_equal(*caches)
