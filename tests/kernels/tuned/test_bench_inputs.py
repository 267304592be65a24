"""A benchmark's inputs: numbers in the right places, a truth that shares no code with a kernel, real poison."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.numbers import decode
from kernels.tuned import bench_inputs, shapes
from kernels.tuned.bench_inputs import Case
from kernels.tuned.shapes import Shape, WriteShape

KINDS = [("bfloat16", "auto"), ("float16", "auto"), ("bfloat16", "fp8_e4m3"), ("float16", "fp8_e5m2")]


def gathered(case: Case, seq: int) -> tuple[np.ndarray, np.ndarray]:
    """Keys and values of a sequence, token by token, from the bytes: no indexing by torch."""
    keys, values = (bench_inputs.array(cache) for cache in (case.key_cache, case.value_cache))
    kind = {"auto": "bfloat16" if case.dtype == "bfloat16" else ""}.get(case.kv_cache_dtype, case.kv_cache_dtype)

    def number(code: np.ndarray) -> np.ndarray:
        return decode(code, kind).astype(np.float64) if kind else code.astype(np.float64)

    rows = []
    for token in range(case.context[seq]):
        block = int(case.block_tables[seq, token // case.block_size])
        key = np.stack([keys[block, :, d // keys.shape[4], token % case.block_size, d % keys.shape[4]]
                        for d in range(case.head_size)], 1)  # fmt: skip
        rows.append((number(key), number(values[block, :, :, token % case.block_size])))
    return np.stack([key for key, _ in rows]), np.stack([value for _, value in rows])


@pytest.mark.parametrize(("dtype", "cache"), KINDS)
def test_the_truth_is_attention_over_the_blocks_of_the_table(dtype: str, cache: str) -> None:
    case = bench_inputs.make(Shape("", (37, 5), 6, 2, 32, 16, dtype, cache), 3, "cpu")
    for seq in range(2):
        keys, values = gathered(case, seq)
        want = np.empty((6, 32))
        for head in range(6):
            query = case.query[seq, head].double().numpy()
            want[head] = _attend(query, keys[:, head // 3], values[:, head // 3], 1 / math.sqrt(32))
        np.testing.assert_allclose(case.truth(seq)[0].numpy(), want, rtol=1e-9)


def test_earlier_queries_do_not_see_later_tokens() -> None:
    shape = Shape("", (20, 9), 4, 2, 32, query_len=3)
    case = bench_inputs.make(shape, 5, "cpu")
    for seq, length in enumerate(shape.context):
        keys, values = (part.numpy() for part in case.tokens_of(seq))
        for number in range(3):
            seen = length - 2 + number
            query = case.query[3 * seq + number].double().numpy()
            heads = ((query[head], keys[:seen, head // 2], values[:seen, head // 2]) for head in range(4))
            want = np.stack([_attend(*parts, case.scale) for parts in heads])
            np.testing.assert_allclose(case.truth(seq)[number].numpy(), want, rtol=1e-9)


def _attend(query: np.ndarray, keys: np.ndarray, values: np.ndarray, scale: float) -> np.ndarray:
    scores = keys @ query * scale
    weights = np.exp(scores - scores.max())
    result: np.ndarray = weights @ values / weights.sum()
    return result


@settings(max_examples=30)
@given(
    st.lists(st.integers(1, 70), min_size=1, max_size=5),
    st.sampled_from([16, 32]),
    st.sampled_from(["auto", "fp8_e4m3"]),
    st.integers(0, 9),
)
def test_tables_name_each_block_once_and_nan_lies_behind_each_end(
    lengths: list[int], block_size: int, cache: str, seed: int
) -> None:
    case = bench_inputs.make(Shape("", tuple(lengths), 2, 1, 16, block_size, "bfloat16", cache), seed, "cpu")
    used = []
    for seq, length in enumerate(lengths):
        count = -(-length // block_size)
        used += case.block_tables[seq, :count].tolist()
        if behind := length % block_size:
            last = int(case.block_tables[seq, count - 1])
            for cached in (case.key_cache[last][:, :, behind:], case.value_cache[last][..., behind:]):
                spoilt = cached == 0x7F if cache != "auto" else torch.isnan(cached)
                assert bool(spoilt.all())
    assert sorted(used) == list(range(case.shape.blocks)), "every block of the memory belongs to one sequence"
    assert bool(torch.isfinite(case.truth(0)).all())
    assert bool(torch.isnan(case.out).all())


def test_the_caches_are_one_piece_of_memory_of_the_bytes_that_must_be_read() -> None:
    case = bench_inputs.make(Shape("", (64, 32), 4, 2, 32), 1, "cpu")
    assert case.memory.nbytes == case.shape.kv_bytes
    assert case.key_cache.data_ptr() == case.memory.data_ptr()
    assert case.value_cache.data_ptr() == case.memory.data_ptr() + case.memory.nbytes // 2
    again, other = (bench_inputs.make(case.shape, seed, "cpu") for seed in (1, 2))
    assert torch.equal(case.memory, again.memory)
    assert not torch.equal(case.memory, other.memory)


def test_an_error_is_relative_and_anything_unwritten_is_no_number() -> None:
    case = bench_inputs.make(Shape("", (37, 5, 9), 4, 2, 32), 1, "cpu")
    truths = [(seq, case.truth(seq)) for seq in (0, 2)]
    out = torch.stack([case.truth(seq)[0] for seq in range(3)])
    assert bench_inputs.relative_error(out, case, truths) == 0
    assert bench_inputs.relative_error(out * 1.01, case, truths) == pytest.approx(0.01)
    assert bench_inputs.relative_error(out.roll(1, 1), case, truths) > 0.5
    half = out.clone()
    half[1, 3, 7] = math.nan  # of a sequence that is not compared
    assert math.isnan(bench_inputs.relative_error(half, case, truths))
    bench_inputs.poison(half)
    assert bool(torch.isnan(half).all())


def test_sets_hold_more_than_a_cache() -> None:
    for moved in (500_000, 4_000_000, 100_000_000, 1_000_000_000):
        sets = bench_inputs.sets_for(moved)
        assert sets >= 2
        assert sets * moved >= 150_000_000, "two and a half times the cache of an H200"
    assert bench_inputs.sets_for(10_000_000_000) == 2
    assert bench_inputs.sets_for(1) == bench_inputs.MOST_SETS
    smallest = min(shape.kv_bytes for shape in shapes.matrix())
    assert bench_inputs.sets_for(smallest) * smallest > 60_000_000


def test_the_longest_and_the_shortest_are_held_against_the_truth() -> None:
    assert bench_inputs.checked_sequences(Shape("", (5, 9, 2, 7, 5), 1, 1, 16)) == (0, 1, 2, 4)
    assert bench_inputs.checked_sequences(Shape("", (5,), 1, 1, 16)) == (0,)


def test_a_rung_is_handed_the_same_memory() -> None:
    case = bench_inputs.make(Shape("", (37,), 4, 1, 32), 1, "cpu")
    call = bench_inputs.decode_call(case)
    assert (call.scalar, call.group, call.lengths, call.max_seq_len) == ("bfloat16", 4, (37,), 37)
    call.out[:] = 0x3F80  # one
    assert bool((case.out == 1).all())
    wide = bench_inputs.make(Shape("", (37,), 4, 1, 32, dtype="float16", kv_cache_dtype="fp8_e4m3"), 1, "cpu")
    narrow = bench_inputs.decode_call(wide)
    assert (str(narrow.key_cache.dtype), narrow.key_cache.shape[-1], narrow.k_scale[0]) == ("uint8", 16, 1.0)


def test_a_prompts_tokens_fill_block_after_block_and_scattered_ones_do_not() -> None:
    prompt = bench_inputs.make_write(WriteShape("", 40, 2, 16), 4, "cpu").slots
    assert len(set(prompt.tolist())) == 40
    assert {slot // 16 for slot in prompt[:16].tolist()} == {int(prompt[0]) // 16}
    assert (prompt[:16] % 16).tolist() == list(range(16))
    assert {slot // 16 for slot in prompt[32:].tolist()} == {int(prompt[32]) // 16}
    anywhere = bench_inputs.make_write(WriteShape("", 40, 2, 16, scattered=True), 4, "cpu").slots
    assert len(set(anywhere.tolist())) == 40
    assert len({slot // 16 for slot in anywhere[:16].tolist()}) == 3


def test_two_ways_copy_the_same() -> None:
    source = torch.randn(2, 6, 4, 16).to(torch.bfloat16)
    for number in (0, 1):
        target = torch.zeros_like(source)
        bench_inputs.copies(source, target)[number]()
        assert torch.equal(source, target)


@pytest.mark.parametrize("scattered", [False, True])
def test_what_a_writer_left_wrong_is_counted(scattered: bool) -> None:
    case = bench_inputs.make_write(WriteShape("", 20, 2, 16, scattered=scattered), 4, "cpu")
    assert case.wrong() == 2 * case.key.numel(), "the caches hold NaN"
    assert len(set(case.slots.tolist())) == 20
    for token, slot in enumerate(case.slots.tolist()):
        block, offset = divmod(slot, 16)
        case.key_cache[block, :, :, offset, :] = case.key[token].reshape(2, 2, 8)
        case.value_cache[block, :, :, offset] = case.value[token]
    assert case.wrong() == 0
    case.value_cache[int(case.slots[3]) // 16, 1, 2, int(case.slots[3]) % 16] += 1
    assert case.wrong() == 1
