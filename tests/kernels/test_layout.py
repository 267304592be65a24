"""`layout` against brute force: arrays that NumPy numbers, loops that count, values worked out by hand."""

from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernels import layout
from kernels.errors import ArgumentError

element_sizes = st.sampled_from([1, 2, 4, 8, 16])
kernel_block_sizes = st.sampled_from([8, 16, 32])


@st.composite
def cache_shapes(draw: st.DrawFn) -> tuple[int, int, int, int, int]:
    """(num_blocks, num_kv_heads, head_size, block_size, element_size) of a small cache."""
    element_size = draw(element_sizes)
    head_size = draw(st.integers(1, 3)) * (16 // element_size)
    return (
        draw(st.integers(1, 3)),
        draw(st.integers(1, 3)),
        head_size,
        draw(st.integers(1, 9)),
        element_size,
    )


# -- slots and blocks


@given(st.integers(1, 40), st.integers(1, 12))
def test_slots_number_every_place_once_in_order(num_blocks: int, block_size: int) -> None:
    found = [layout.slot(block, offset, block_size) for block in range(num_blocks) for offset in range(block_size)]
    assert found == list(range(num_blocks * block_size))


@given(st.integers(0, 2**40), st.integers(1, 300))
def test_split_slot_is_the_inverse_of_slot(number: int, block_size: int) -> None:
    block, offset = layout.split_slot(number, block_size)
    assert 0 <= offset < block_size
    assert layout.slot(block, offset, block_size) == number


def test_slots_of_the_lesson_and_of_k6() -> None:
    assert [layout.slot([3, 1][p // 4], p % 4, 4) for p in range(6)] == [12, 13, 14, 15, 4, 5]
    assert [layout.slot(block, o, 8) for block in (0, 1) for o in range(8)] == list(range(16))
    tokens = [layout.slot([7, 1, 3][p // 8], p % 8, 8) for p in range(20)]
    assert tokens == [*range(56, 64), *range(8, 16), *range(24, 28)]


def test_slots_do_not_wrap_as_int32_would() -> None:
    assert layout.slot(np.int32(2**30), np.int32(15), np.int32(16)) == 2**34 + 15
    stride = layout.kv_block_stride(np.int32(8), np.int32(128), np.int32(16))
    shape = {"num_kv_heads": np.int32(8), "head_size": np.int32(128), "block_size": np.int32(16)}
    assert layout.key_offset(np.int32(2**20), 0, 0, 0, element_size=2, **shape) == 2**20 * 16384
    assert layout.value_offset(np.int32(2**20), 7, 127, 15, **shape) == 2**20 * 16384 + 16383
    assert stride == 16384


@given(st.integers(0, 200), st.integers(1, 20))
def test_blocks_and_last_block_hold_exactly_the_tokens(tokens: int, block_size: int) -> None:
    blocks, in_last = [], 0
    for token in range(tokens):
        if token % block_size == 0:
            blocks.append(0)
        blocks[-1] += 1
        in_last = blocks[-1]
    assert layout.blocks_for(tokens, block_size) == len(blocks)
    assert layout.last_block_tokens(tokens, block_size) == in_last
    assert layout.partitions_for(tokens, block_size) == len(blocks)


@pytest.mark.parametrize(
    ("tokens", "blocks", "last"), [(0, 0, 0), (1, 1, 1), (15, 1, 15), (16, 1, 16), (17, 2, 1), (32, 2, 16)]
)
def test_no_page_too_many_at_a_boundary_k8(tokens: int, blocks: int, last: int) -> None:
    assert layout.blocks_for(tokens, 16) == blocks
    assert layout.last_block_tokens(tokens, 16) == last
    assert max(blocks - 1, 0) * 16 + last == tokens


@pytest.mark.parametrize(("tokens", "partitions"), [(0, 0), (1, 1), (512, 1), (513, 2), (600, 2), (1025, 3)])
def test_partitions(tokens: int, partitions: int) -> None:
    assert layout.partitions_for(tokens) == partitions


# -- the caches


@given(cache_shapes())
def test_key_offset_numbers_the_cache_as_numpy_does(shape: tuple[int, int, int, int, int]) -> None:
    num_blocks, heads, head_size, block_size, element_size = shape
    cache_shape = layout.key_cache_shape(*shape)
    x = cache_shape[-1]
    numbered = np.arange(np.prod(cache_shape)).reshape(cache_shape)
    seen = set()
    for block, head, dim, offset in product(range(num_blocks), range(heads), range(head_size), range(block_size)):
        place = layout.key_offset(
            block,
            head,
            dim,
            offset,
            num_kv_heads=heads,
            head_size=head_size,
            block_size=block_size,
            element_size=element_size,
        )
        assert place == numbered[block, head, dim // x, offset, dim % x]
        seen.add(place)
    assert seen == set(range(num_blocks * heads * head_size * block_size))


@given(cache_shapes())
def test_value_offset_numbers_the_cache_as_numpy_does(shape: tuple[int, int, int, int, int]) -> None:
    num_blocks, heads, head_size, block_size, _ = shape
    cache_shape = layout.value_cache_shape(num_blocks, heads, head_size, block_size)
    numbered = np.arange(np.prod(cache_shape)).reshape(cache_shape)
    seen = set()
    for block, head, dim, offset in product(range(num_blocks), range(heads), range(head_size), range(block_size)):
        place = layout.value_offset(
            block, head, dim, offset, num_kv_heads=heads, head_size=head_size, block_size=block_size
        )
        assert place == numbered[block, head, dim, offset]
        seen.add(place)
    assert seen == set(range(num_blocks * heads * head_size * block_size))


@given(cache_shapes())
def test_strides_are_numpys_strides_of_both_caches(shape: tuple[int, int, int, int, int]) -> None:
    _, heads, head_size, block_size, _ = shape
    for cache_shape in (layout.key_cache_shape(*shape), layout.value_cache_shape(*shape[:4])):
        cache = np.zeros(cache_shape, dtype=np.int8)
        assert layout.kv_block_stride(heads, head_size, block_size) == cache.strides[0]
        assert layout.kv_head_stride(head_size, block_size) == cache.strides[1]


@given(cache_shapes(), st.data())
def test_neighbouring_tokens_of_a_key_are_16_bytes_apart(
    shape: tuple[int, int, int, int, int], data: st.DataObject
) -> None:
    _, heads, head_size, block_size, element_size = shape
    dim = data.draw(st.integers(0, head_size - 1))
    places = [
        layout.key_offset(
            0,
            0,
            dim,
            offset,
            num_kv_heads=heads,
            head_size=head_size,
            block_size=block_size,
            element_size=element_size,
        )
        for offset in range(block_size)
    ]
    assert set(np.diff(places) * element_size) <= {16}


def test_the_shape_that_people_ask_about_l1() -> None:
    assert layout.key_cache_shape(34652, 12, 64, 16, 2) == (34652, 12, 8, 16, 8)
    assert layout.value_cache_shape(34652, 12, 64, 16) == (34652, 12, 64, 16)
    assert layout.slot(34652 - 1, 15, 16) + 1 == 554_432
    assert layout.kv_block_bytes(12, 64, 16, 2) == 49_152


def test_x_for_each_element_size() -> None:
    assert {size: layout.x_of(size) for size in (1, 2, 4, 8, 16)} == {1: 16, 2: 8, 4: 4, 8: 2, 16: 1}


def test_bytes_of_a_70b_model_l7() -> None:
    token = layout.kv_bytes_per_token(8, 128, 2, num_layers=80)
    assert token == 327_680 == 320 * 1024
    assert token * 8192 == 2.5 * 2**30
    assert round(token * 8192 / 1e9, 2) == 2.68
    assert layout.kv_bytes_per_token(64, 128, 2, num_layers=80) == 2.5 * 2**20


def test_alignment_of_odd_heads_k17() -> None:
    assert [row for row in range(20) if layout.row_is_aligned(row, 1, 46, 2)] == [0, 4, 8, 12, 16]
    assert all(layout.row_is_aligned(row, heads, head, 2) for row, heads, head in product(range(9), (1, 3), (48, 64)))
    assert layout.row_is_aligned(1, 1, 46, 2, alignment=4)


@given(st.integers(0, 50), st.integers(1, 4), st.integers(1, 70), element_sizes)
def test_alignment_is_that_of_the_rows_address(row: int, heads: int, head_size: int, element_size: int) -> None:
    rows = np.zeros((row + 1, heads, head_size), dtype=f"V{element_size}")
    address = rows[row:].__array_interface__["data"][0] - rows.__array_interface__["data"][0]
    assert layout.row_is_aligned(row, heads, head_size, element_size) == (address % 16 == 0)


# -- the classic kernel's division of work


@given(st.integers(1, 8), st.integers(1, 8))
def test_kv_heads_are_shared_by_neighbours(num_kv_heads: int, group: int) -> None:
    expected = [kv_head for kv_head in range(num_kv_heads) for _ in range(group)]
    heads = num_kv_heads * group
    assert [layout.kv_head_of(head, heads, num_kv_heads) for head in range(heads)] == expected
    assert layout.num_queries_per_kv(heads, num_kv_heads) == group


@pytest.mark.parametrize(
    ("block_size", "group", "vec", "elements", "vectors"),
    [(8, 4, 2, 32, 16), (16, 2, 4, 64, 16), (32, 1, 8, 128, 16)],
)
def test_thread_groups_of_l2(block_size: int, group: int, vec: int, elements: int, vectors: int) -> None:
    assert layout.thread_group_size(block_size) == group
    assert layout.num_tokens_per_thread_group(block_size) == 1
    assert layout.vec_size(group, 2) == vec
    assert layout.num_elems_per_thread(128, group) == elements
    assert layout.num_vecs_per_thread(128, group, 2) == vectors
    assert group * vec == layout.x_of(2) == 8
    assert layout.num_warps() == 4


@given(kernel_block_sizes, st.sampled_from([2, 4]), st.integers(1, 16))
def test_a_group_reads_each_element_of_a_key_once(block_size: int, element_size: int, multiple: int) -> None:
    head_size = 16 * multiple
    group = layout.thread_group_size(block_size)
    vec = layout.vec_size(group, element_size)
    assert group * vec == layout.x_of(element_size)
    read = [
        (lane + j * group) * vec + i
        for lane in range(group)
        for j in range(layout.num_vecs_per_thread(head_size, group, element_size))
        for i in range(vec)
    ]
    assert sorted(read) == list(range(head_size))
    assert len(read) == group * layout.num_elems_per_thread(head_size, group)


@given(st.sampled_from([1, 2, 4, 8, 16, 32, 64, 96]))
def test_a_warp_covers_each_token_of_a_block_once(block_size: int) -> None:
    group = layout.thread_group_size(block_size)
    tokens = {
        (lane // group + i * 32) % block_size
        for lane in range(32)
        for i in range(layout.num_tokens_per_thread_group(block_size))
    }
    assert tokens == set(range(block_size))


@given(kernel_block_sizes, st.sampled_from([1, 2, 4]), st.integers(1, 40))
def test_a_warp_reads_each_value_of_a_block_once(block_size: int, element_size: int, multiple: int) -> None:
    head_size = 8 * multiple
    vecs = layout.num_v_vecs_per_row(block_size, element_size)
    vec = layout.v_vec_size(block_size, element_size)
    rows_per_iter = layout.num_rows_per_iter(block_size, element_size)
    read = [
        (row, lane % vecs * vec + j)
        for lane in range(32)
        for i in range(layout.num_rows_per_thread(head_size, block_size, element_size))
        for j in range(vec)
        if (row := lane // vecs + i * rows_per_iter) < head_size
    ]
    assert sorted(read) == list(product(range(head_size), range(block_size)))


def test_value_sizes_of_the_design_document() -> None:
    assert layout.v_vec_size(16, 2) == 8
    assert layout.num_v_vecs_per_row(16, 2) == 2
    assert layout.num_rows_per_iter(16, 2) == 16
    assert layout.num_rows_per_thread(128, 16, 2) == 8
    assert layout.num_rows_per_thread(120, 16, 2) == 8
    assert layout.v_vec_size(8, 1) == 8


# -- launches


@pytest.mark.parametrize(
    ("kib", "logits_only", "with_static"),
    [
        (48, 12_288, 12_208),
        (64, 16_384, 16_304),
        (99, 25_344, 25_264),
        (163, 41_728, 41_648),
        (227, 58_112, 58_032),
    ],
)
def test_token_limits_of_k10(kib: int, logits_only: int, with_static: int) -> None:
    static = layout.v1_static_shared_bytes(128, 2)
    assert static == 256 + 32
    assert layout.v1_max_tokens(kib * 1024, 16) == logits_only
    assert layout.v1_max_tokens(kib * 1024, 16, static) == with_static
    assert layout.v1_shared_bytes(with_static, 16, 128) + static <= kib * 1024
    assert layout.v1_shared_bytes(with_static + 1, 16, 128) + static > kib * 1024
    assert layout.v1_max_tokens(100, 16, 200) == 0


@given(st.integers(0, 3000), kernel_block_sizes, st.integers(1, 256), st.sampled_from([32, 64, 128, 256]))
def test_shared_memory_holds_the_padded_logits_and_half_of_the_warps_outputs(
    tokens: int, block_size: int, head_size: int, num_threads: int
) -> None:
    padded = next(n for n in range(tokens, tokens + block_size) if n % block_size == 0)
    outputs = len(range(num_threads // 32 // 2)) * head_size
    assert layout.v1_shared_bytes(tokens, block_size, head_size, num_threads) == 4 * max(padded, outputs)


@pytest.mark.parametrize(
    ("max_seq_len", "num_seqs", "num_heads", "v1"),
    [
        (512, 1, 32, True),
        (513, 1, 32, False),
        (8192, 16, 32, False),
        (8192, 17, 32, True),
        (8193, 17, 32, False),
    ],
)
def test_the_old_choice_between_v1_and_v2(max_seq_len: int, num_seqs: int, num_heads: int, v1: bool) -> None:
    assert layout.use_v1(max_seq_len, num_seqs, num_heads) is v1


@pytest.mark.parametrize(
    ("num_heads", "head_size", "x", "threads"),
    [
        (8, 128, 8, 128),
        (32, 128, 8, 512),
        (40, 128, 8, 512),
        (64, 128, 8, 512),
        (32, 256, 8, 512),
        (2, 64, 4, 32),
    ],
)
def test_writer_threads_stop_at_512(num_heads: int, head_size: int, x: int, threads: int) -> None:
    assert layout.writer_threads(num_heads, head_size, x) == threads
    # What the facts measured: so many heads of each are written.
    written = {(40, 128): 32, (64, 128): 32, (32, 256): 16}.get((num_heads, head_size), num_heads)
    assert threads // (head_size // x) == written


# -- what is refused

CACHE = {"num_kv_heads": 2, "head_size": 8, "block_size": 4}


@pytest.mark.parametrize(
    ("call", "argument", "value"),
    [
        (lambda: layout.slot(-1, 0, 16), "block_number", -1),
        (lambda: layout.slot(0, 16, 16), "offset", 16),
        (lambda: layout.slot(0, 0, 0), "block_size", 0),
        (lambda: layout.slot(1.0, 0, 16), "block_number", 1.0),  # type: ignore[arg-type]
        (lambda: layout.split_slot(-1, 16), "slot_number", -1),
        (lambda: layout.split_slot(1, 0), "block_size", 0),
        (lambda: layout.blocks_for(-1, 16), "tokens", -1),
        (lambda: layout.last_block_tokens(3, -4), "block_size", -4),
        (lambda: layout.partitions_for(3, 0), "partition_size", 0),
        (lambda: layout.x_of(3), "element_size", 3),
        (lambda: layout.x_of(0), "element_size", 0),
        (lambda: layout.key_cache_shape(1, 1, 12, 16, 2), "head_size", 12),
        (lambda: layout.key_cache_shape(0, 1, 16, 16, 2), "num_blocks", 0),
        (lambda: layout.value_cache_shape(1, 0, 16, 16), "num_kv_heads", 0),
        (lambda: layout.key_offset(0, 2, 0, 0, element_size=4, **CACHE), "head", 2),
        (lambda: layout.key_offset(0, 0, 8, 0, element_size=4, **CACHE), "dim", 8),
        (lambda: layout.key_offset(0, 0, 0, 4, element_size=4, **CACHE), "offset", 4),
        (lambda: layout.key_offset(-1, 0, 0, 0, element_size=4, **CACHE), "block", -1),
        (lambda: layout.key_offset(0, 0, 0, 0, element_size=1, **CACHE), "head_size", 8),
        (lambda: layout.value_offset(0, 2, 0, 0, **CACHE), "head", 2),
        (lambda: layout.value_offset(0, 0, 8, 0, **CACHE), "dim", 8),
        (lambda: layout.value_offset(0, 0, 0, 4, **CACHE), "offset", 4),
        (lambda: layout.kv_bytes_per_token(1, 1, 1, 0), "num_layers", 0),
        (lambda: layout.row_is_aligned(-1, 1, 1, 1), "row", -1),
        (lambda: layout.kv_head_of(0, 32, 5), "num_heads", 32),
        (lambda: layout.kv_head_of(32, 32, 8), "query_head", 32),
        (lambda: layout.thread_group_size(24), "block_size", 24),
        (lambda: layout.num_tokens_per_thread_group(24), "block_size", 24),
        (lambda: layout.num_elems_per_thread(7, 2), "head_size", 7),
        (lambda: layout.num_vecs_per_thread(12, 2, 2), "head_size", 12),
        (lambda: layout.v_vec_size(12, 2), "block_size", 12),
        (lambda: layout.num_rows_per_iter(24, 2), "block_size", 24),
        (lambda: layout.num_rows_per_thread(0, 16, 2), "head_size", 0),
        (lambda: layout.num_warps(100), "num_threads", 100),
        (lambda: layout.v1_shared_bytes(1, 16, 0), "head_size", 0),
        (lambda: layout.v1_max_tokens(-1, 16), "shared_bytes", -1),
        (lambda: layout.use_v1(1, 0, 1), "num_seqs", 0),
        (lambda: layout.writer_threads(1, 12, 8), "head_size", 12),
        (lambda: layout.writer_threads(0, 16, 8), "num_heads", 0),
    ],
)
def test_bad_arguments_are_named_with_their_value(call: Callable[[], Any], argument: str, value: object) -> None:
    with pytest.raises(ArgumentError, match=rf"^{argument} = {value}: must ") as caught:
        call()
    assert (caught.value.argument, caught.value.value) == (argument, value)
