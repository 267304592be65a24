"""The built cases: packing against `layout` (neither knows of the other), poison wherever no token is."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels import cases, layout, oracle
from kernels.errors import ArgumentError

orders = st.sampled_from(["shuffled", "reversed", "identity"])


@st.composite
def decode_cases(draw: st.DrawFn) -> cases.DecodeCase:
    """A small case of any shape that can be."""
    dtype = draw(st.sampled_from(cases.DTYPES))
    x = 16 // np.dtype(dtype).itemsize
    num_kv_heads = draw(st.integers(1, 3))
    return cases.decode_case(
        draw(st.lists(st.integers(0, 20), min_size=1, max_size=4)),
        num_kv_heads * draw(st.integers(1, 3)),
        num_kv_heads,
        x * draw(st.integers(1, 2)),
        draw(st.integers(1, 8)),
        dtype=dtype,
        seed=draw(st.integers(0, 99)),
        order=draw(orders),
        alibi=draw(st.booleans()),
        spare_blocks=draw(st.integers(0, 3)),
        extra_columns=draw(st.integers(0, 2)),
        garbage=draw(st.sampled_from(["valid", "minus-one"])),
    )


@settings(max_examples=60)
@given(decode_cases())
def test_packing_agrees_with_layout_element_by_element(case: cases.DecodeCase) -> None:
    element_size = case.k_cache.itemsize
    shape = {"num_kv_heads": case.num_kv_heads, "head_size": case.head_size, "block_size": case.block_size}
    assert case.k_cache.shape == layout.key_cache_shape(case.num_blocks, element_size=element_size, **shape)
    assert case.v_cache.shape == layout.value_cache_shape(case.num_blocks, **shape)
    flat_k, flat_v = case.k_cache.ravel(), case.v_cache.ravel()
    owned: set[int] = set()
    for seq, (keys, values) in enumerate(zip(case.keys, case.values, strict=True)):
        for position, head, dim in product(range(len(keys)), range(case.num_kv_heads), range(case.head_size)):
            block = int(case.block_tables[seq, position // case.block_size])
            place = (block, head, dim, position % case.block_size)
            k_place = layout.key_offset(*place, element_size=element_size, **shape)
            assert flat_k[k_place] == keys[position, head, dim]
            assert flat_v[layout.value_offset(*place, **shape)] == values[position, head, dim]
            owned.add(k_place)
    # Every place that no token owns is poisoned, in both caches.
    assert set(np.flatnonzero(~np.isnan(flat_k))) == owned
    assert np.count_nonzero(~np.isnan(flat_v)) == len(owned)


@given(decode_cases())
def test_no_block_has_two_owners_and_tables_stay_inside_the_pool(case: cases.DecodeCase) -> None:
    used = [block for seq in range(case.num_seqs) for block in case.blocks_of(seq)]
    assert len(used) == len(set(used)) == sum(layout.blocks_for(int(n), case.block_size) for n in case.seq_lens)
    assert all(0 <= block < case.num_blocks for block in used)
    assert case.block_tables.min() >= -1
    assert case.block_tables.max() < case.num_blocks
    assert case.block_tables.dtype == case.seq_lens.dtype == np.int32
    assert [len(keys) for keys in case.keys] == [len(values) for values in case.values] == list(case.seq_lens)


def test_garbage_is_wrong_on_purpose() -> None:
    case = cases.decode_case([20, 3], 2, 1, 4, 4, extra_columns=2)
    owned = {block for seq in range(2) for block in case.blocks_of(seq)}
    garbage = [int(b) for seq in range(2) for b in case.block_tables[seq, len(case.blocks_of(seq)) :]]
    assert len(garbage) == 2 + 6
    assert not owned & set(garbage)
    assert np.isnan(case.k_cache[garbage]).all()
    minus = cases.decode_case([20, 3], 2, 1, 4, 4, garbage="minus-one")
    assert list(minus.block_tables[1, 1:]) == [-1] * 5
    # Without spare blocks the garbage of one sequence is a block of another one.
    tight = cases.decode_case([20, 3], 2, 1, 4, 4, spare_blocks=0)
    assert set(tight.block_tables[1, 1:]) == {tight.block_tables[0, 0]}
    assert tight.num_blocks == 6


def test_orders() -> None:
    def table(order: cases.Order) -> list[int]:
        case = cases.decode_case([32], 1, 1, 4, 4, order=order, spare_blocks=0, extra_columns=0)
        return [int(block) for block in case.block_tables[0]]

    assert table("identity") == [0, 1, 2, 3, 4, 5, 6, 7]
    assert table("reversed") == [7, 6, 5, 4, 3, 2, 1, 0]
    assert sorted(table("shuffled")) == table("identity")
    assert table("shuffled") not in (table("identity"), table("reversed"))


def test_the_seed_decides_everything() -> None:
    one, same, other = (cases.decode_case([9, 5], 4, 2, 8, 4, seed=seed) for seed in (7, 7, 8))
    for name in ("q", "block_tables", "k_cache", "v_cache"):
        np.testing.assert_array_equal(getattr(one, name), getattr(same, name))
    assert not np.array_equal(one.q, other.q)
    # The order of the blocks does not change the numbers.
    np.testing.assert_array_equal(one.keys[0], cases.decode_case([9, 5], 4, 2, 8, 4, seed=7, order="identity").keys[0])


def test_alibi_slopes_and_scale() -> None:
    case = cases.decode_case([3], 8, 2, 16, 4, alibi=True)
    assert case.alibi_slopes is not None
    assert case.alibi_slopes.dtype == np.float32
    np.testing.assert_array_equal(case.alibi_slopes, [2.0**-i for i in range(1, 9)])
    assert case.scale == 0.25
    assert cases.decode_case([3], 8, 2, 16, 4).alibi_slopes is None
    assert (case.max_seq_len, case.num_seqs, case.num_heads) == (3, 1, 8)


def test_another_poison_shows_as_itself() -> None:
    case = cases.decode_case([15], 1, 1, 4, 16, poison=1e4)
    assert (case.k_cache == 1e4).sum() == 4 + 3 * 64
    assert not np.isnan(case.v_cache).any()


def test_lesson_case_is_the_lesson() -> None:
    case = cases.lesson_case()
    assert (case.block_size, case.head_size, case.max_seq_len, case.scale) == (4, 4, 6, 0.5)
    assert case.block_tables.tolist() == [[3, 1]]
    assert case.blocks_of(0) == (3, 1)
    np.testing.assert_allclose(case.keys[0][4, 0], [0.8, 0.8, -0.8, 0.2])
    np.testing.assert_array_equal(case.values[0][:, 0], [*np.eye(4), [0.5] * 4, [1.0] * 4])
    np.testing.assert_array_equal(cases.unpack_keys(case.k_cache)[3], case.keys[0][:4])
    np.testing.assert_array_equal(cases.unpack_values(case.v_cache)[1, :2], case.values[0][4:])
    assert np.isnan(case.k_cache[[0, 2]]).all()
    assert np.isnan(cases.unpack_values(case.v_cache)[1, 2:]).all()
    assert cases.lesson_case("float64").k_cache.dtype == np.float64


@given(st.integers(1, 3), st.integers(1, 5), st.integers(1, 3), st.integers(1, 3))
def test_unpacking_undoes_packing(num_blocks: int, block_size: int, heads: int, groups: int) -> None:
    shape = (num_blocks, block_size, heads, 4 * groups)
    pool = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    np.testing.assert_array_equal(cases.unpack_keys(cases.pack_keys(pool)), pool)
    np.testing.assert_array_equal(cases.unpack_values(cases.pack_values(pool)), pool)
    assert cases.pack_keys(pool).flags.c_contiguous
    assert cases.pack_values(pool).flags.c_contiguous


@given(st.integers(1, 25), st.integers(0, 25), st.integers(0, 4), st.integers(1, 8), orders, st.integers(0, 50))
def test_write_cases(
    num_tokens: int, padding: int, extra_rows: int, block_size: int, order: cases.Order, seed: int
) -> None:
    padding = min(padding, num_tokens)
    case = cases.write_case(
        num_tokens, 2, 8, block_size, order=order, seed=seed, padding=padding, extra_rows=extra_rows
    )
    assert case.key.shape == case.value.shape == (num_tokens + extra_rows, 2, 8)
    assert case.num_tokens == num_tokens
    assert case.slot_mapping.dtype == np.int64
    assert np.count_nonzero(case.slot_mapping < 0) == padding
    real = case.slot_buffer[case.slot_buffer >= 0]
    assert len(real) == len(set(real)) == num_tokens - padding + extra_rows
    assert (real < case.num_blocks * block_size).all()
    assert (case.slot_buffer[num_tokens:] >= 0).all()
    np.testing.assert_array_equal(case.slot_buffer[:num_tokens], case.slot_mapping)
    assert np.isnan(case.k_cache).all()
    assert np.isnan(case.v_cache).all()
    assert case.k_cache.shape == layout.key_cache_shape(case.num_blocks, case.num_heads, case.head_size, block_size, 4)


def test_more_rows_than_slots_k4() -> None:
    case = cases.write_case(5, 2, 16, 4, dtype="float16", extra_rows=3)
    assert case.key.shape == (8, 2, 16)
    assert len(case.slot_mapping) == 5
    k_cache, _ = oracle.written_caches(case)
    assert np.count_nonzero(~np.isnan(cases.unpack_keys(k_cache)).any(axis=(2, 3))) == 5


@pytest.mark.parametrize(
    ("arguments", "argument"),
    [
        ({"seq_lens": []}, "seq_lens"),
        ({"seq_lens": [3, -1]}, "seq_lens"),
        ({"num_heads": 3}, "num_heads"),
        ({"num_heads": 0}, "num_heads"),
        ({"num_kv_heads": 0}, "num_kv_heads"),
        ({"head_size": 6}, "head_size"),
        ({"block_size": 0}, "block_size"),
        ({"dtype": "int8"}, "dtype"),
        ({"order": "random"}, "order"),
        ({"garbage": "nan"}, "garbage"),
        ({"spare_blocks": -1}, "spare_blocks"),
        ({"extra_columns": -1}, "extra_columns"),
    ],
)
def test_impossible_decode_cases(arguments: dict[str, object], argument: str) -> None:
    usual = {"seq_lens": [5], "num_heads": 4, "num_kv_heads": 2, "head_size": 8, "block_size": 4}
    with pytest.raises(ArgumentError) as caught:
        cases.decode_case(**{**usual, **arguments})  # type: ignore[arg-type]
    assert caught.value.argument == argument


@pytest.mark.parametrize(
    ("arguments", "argument"),
    [
        ({"num_tokens": 0}, "num_tokens"),
        ({"padding": 6}, "padding"),
        ({"padding": -1}, "padding"),
        ({"extra_rows": -1}, "extra_rows"),
        ({"head_size": 6}, "head_size"),
        ({"num_heads": 0}, "num_kv_heads"),
    ],
)
def test_impossible_write_cases(arguments: dict[str, int], argument: str) -> None:
    usual = {"num_tokens": 5, "num_heads": 2, "head_size": 8, "block_size": 4}
    with pytest.raises(ArgumentError) as caught:
        cases.write_case(**{**usual, **arguments})
    assert caught.value.argument == argument
