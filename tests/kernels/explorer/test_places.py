"""Addresses against arrays that NumPy numbers, and against where the writers really put a number."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels import layout as formulas
from kernels.errors import ArgumentError
from kernels.explorer import DTYPES, KERNELS, LAYOUTS, Geometry, Place, cache_bytes, check_table, explain, locate
from kernels.numbers import encode
from kernels.tiny_vllm.block_table import Blocks
from kernels.tiny_vllm.scatter import write_prefill
from kernels.vllm import flash_layout
from kernels.vllm.cache import reshape_and_cache
from kernels.vllm.cache_flash import reshape_and_cache_flash

FIRST = "paged-2d"
"""A kernel that takes every block size."""


@st.composite
def questions(draw: st.DrawFn) -> tuple[Geometry, list[int], tuple[int, int, int]]:
    """A small cache, a block table of it, and a point (token, head, channel)."""
    dtype = draw(st.sampled_from(list(DTYPES)))
    kv_heads = draw(st.integers(1, 3))
    x = 16 // DTYPES[dtype][0]
    geometry = Geometry(
        draw(st.integers(1, 9)), x * draw(st.integers(1, 3)), kv_heads * draw(st.integers(1, 4)), kv_heads, dtype
    )
    table = draw(st.lists(st.integers(0, 6), min_size=1, max_size=4, unique=True))
    point = (
        draw(st.integers(0, len(table) * geometry.block_size - 1)),
        draw(st.integers(0, kv_heads - 1)),
        draw(st.integers(0, geometry.head_size - 1)),
    )
    return geometry, table, point


def numbered(layout: str, geometry: Geometry, blocks: int) -> Any:
    """The places of a layout, numbered in memory's order, and turned to [kind, block, token, head, channel]."""
    size, heads, width = geometry.block_size, geometry.num_kv_heads, geometry.head_size
    x = 16 // DTYPES[geometry.dtype][0]

    def count(*shape: int) -> Any:
        return np.arange(np.prod((blocks, *shape))).reshape(blocks, *shape)

    if layout == "classic-k":
        packed = count(heads, width // x, size, x)
        return packed.transpose(0, 3, 1, 2, 4).reshape(1, blocks, size, heads, width)
    if layout == "classic-v":
        return count(heads, width, size).transpose(0, 3, 1, 2)[None]
    if layout.startswith("nhd"):
        return count(size, heads, width)[None]
    if layout.startswith("hnd"):
        return count(heads, size, width).transpose(0, 2, 1, 3)[None]
    if layout == "side-nhd":
        return np.stack(np.split(count(size, heads, 2 * width), 2, axis=-1))
    if layout == "side-hnd":
        return np.stack(np.split(count(heads, size, 2 * width).transpose(0, 2, 1, 3), 2, axis=-1))
    return count(2, size, heads, width).transpose(1, 0, 2, 3, 4)


def at_kind(layout: str, kind: str) -> int:
    return LAYOUTS[layout].kinds.index(kind)


@given(questions())
def test_every_address_is_the_one_that_numpy_counts(asked: Any) -> None:
    geometry, table, (token, head, channel) = asked
    found = explain(FIRST, geometry, table, token, head, channel)
    assert [(p.layout, p.kind) for p in found.places] == [(n, k) for n, made in LAYOUTS.items() for k in made.kinds]
    for place in found.places:
        places = numbered(place.layout, geometry, 7)
        block, offset = table[token // geometry.block_size], token % geometry.block_size
        assert place.element == places[at_kind(place.layout, place.kind), block, offset, head, channel]
        assert sum(term.index * term.stride for term in place.terms) == place.element
        assert [term.product for term in place.terms] == [term.index * term.stride for term in place.terms]


@given(questions())
def test_the_classic_addresses_are_those_of_the_one_home_of_formulas(asked: Any) -> None:
    geometry, table, (token, head, channel) = asked
    found = explain(FIRST, geometry, table, token, head, channel)
    sizes = {"num_kv_heads": geometry.num_kv_heads, "head_size": geometry.head_size}
    where = (found.block, head, channel, found.offset)
    key = formulas.key_offset(*where, **sizes, block_size=geometry.block_size, element_size=geometry.itemsize)
    assert found.place("classic-k").element == key
    assert found.place("classic-v").element == formulas.value_offset(*where, **sizes, block_size=geometry.block_size)
    assert found.slot == formulas.slot(found.block, found.offset, geometry.block_size)


@given(questions())
def test_locate_is_the_inverse_for_every_byte_of_the_element(asked: Any) -> None:
    geometry, table, point = asked
    for place in explain(FIRST, geometry, table, *point).places:
        for byte in range(place.first, place.last + 1):
            back = locate(place.layout, geometry, table, byte)
            assert (back.token, back.head, back.channel, back.kind) == (*point, place.kind)
            assert back.inside == byte - place.first
            assert back.element == place.element


@settings(max_examples=12)
@given(questions(), st.sampled_from(list(LAYOUTS)))
def test_every_byte_of_a_cache_belongs_to_one_element_and_leads_back(asked: Any, layout: str) -> None:
    geometry, table, _ = asked
    seen = set()
    end = cache_bytes(layout, geometry, table)
    places = numbered(layout, geometry, max(table) + 1)
    assert end == places.size * geometry.itemsize
    for byte in range(end):
        back = locate(layout, geometry, table, byte)
        at = (at_kind(layout, back.kind), back.block, back.offset, back.head, back.channel)
        assert places[at] == byte // geometry.itemsize
        seen.add((*at, back.inside))
        if back.block in table:
            assert back.logical == table.index(back.block)
            assert back.token == back.logical * geometry.block_size + back.offset
        else:
            assert back.token is None
            assert back.logical is None
        rest = byte // geometry.itemsize
        for division in back.divisions:
            assert division.rest == rest
            assert division.index == rest // division.stride
            rest %= division.stride
        assert rest == 0
    assert len(seen) == end


@given(questions())
def test_sectors_lines_and_runs_are_those_of_the_bytes(asked: Any) -> None:
    geometry, table, (token, head, _) = asked
    whole = [explain(FIRST, geometry, table, token, head, channel) for channel in range(geometry.head_size)]
    for number, place in enumerate(whole[0].places):
        held = sorted(
            byte for found in whole for byte in range(found.places[number].first, found.places[number].last + 1)
        )
        starts = [byte for byte in held if byte - 1 not in held]
        run = place.run
        assert run.pieces == len(starts)
        assert run.pieces * run.size == len(held)
        assert run.apart == (starts[1] - starts[0] if len(starts) > 1 else 0)
        assert place.sector * 32 + place.in_sector == place.first
        assert place.line == place.first // 128


# -- where the writers put it


POINTS = [(0, 0, 0), (20, 1, 10), (47, 2, 31), (33, 1, 17), (16, 0, 15)]
TABLE = [5, 1, 3]
HEADS, WIDTH, SIZE = 3, 32, 16
NUMPY = {"float32": "float32", "float16": "float16", "bfloat16": "uint16", "fp8": "float16"}


def one_hot(dtype: str, point: tuple[int, int, int]) -> Any:
    """Keys of all tokens, zero but for a one at the point."""
    values = np.zeros((len(TABLE) * SIZE, HEADS, WIDTH), np.float32)
    values[point] = 1
    if dtype == "bfloat16":
        return encode(values, "bfloat16")
    return values.astype(NUMPY[dtype])


def slots() -> Any:
    return np.array([block * SIZE + offset for block in TABLE for offset in range(SIZE)], np.int64)


def written(memory: Any) -> list[int]:
    """The bytes from which on an array that was written in memory's order holds something, by element."""
    flat = np.ascontiguousarray(memory).reshape(-1)
    return [int(at) * flat.itemsize for at in np.flatnonzero(flat)]


def places_of(dtype: str, point: tuple[int, int, int]) -> dict[tuple[str, str], Place]:
    found = explain("paged-2d", Geometry(SIZE, WIDTH, HEADS, HEADS, dtype), TABLE, *point)
    return {(place.layout, place.kind): place for place in found.places}


@pytest.mark.parametrize("point", POINTS, ids=str)
@pytest.mark.parametrize("dtype", DTYPES)
def test_the_classic_writer_puts_it_there(dtype: str, point: tuple[int, int, int]) -> None:
    stored, kv_dtype = ("uint8", "fp8") if dtype == "fp8" else (NUMPY[dtype], "auto")
    x = 16 // np.dtype(stored).itemsize
    k_cache = np.zeros((6, HEADS, WIDTH // x, SIZE, x), stored)
    v_cache = np.zeros((6, HEADS, WIDTH, SIZE), stored)
    hot = one_hot(dtype, point)
    reshape_and_cache(hot, hot, k_cache, v_cache, slots(), kv_dtype)
    places = places_of(dtype, point)
    assert written(k_cache) == [places["classic-k", "K"].first]
    assert written(v_cache) == [places["classic-v", "V"].first]


@pytest.mark.parametrize("point", POINTS, ids=str)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("order", ["nhd", "hnd"])
def test_the_flash_writer_puts_it_there(dtype: str, point: tuple[int, int, int], order: str) -> None:
    stored, kv_dtype = ("uint8", "fp8") if dtype == "fp8" else (NUMPY[dtype], "auto")
    hot, places = one_hot(dtype, point), places_of(dtype, point)
    shape = (6, SIZE, HEADS, WIDTH) if order == "nhd" else (6, HEADS, SIZE, WIDTH)
    apart = [np.zeros(shape, stored) for _ in range(2)]
    views = apart if order == "nhd" else [cache.swapaxes(1, 2) for cache in apart]
    reshape_and_cache_flash(hot, hot, *views, slots(), kv_dtype)
    assert written(apart[0]) == [places[f"{order}-k", "K"].first]
    assert written(apart[1]) == [places[f"{order}-v", "V"].first]

    beside = np.zeros((*shape[:3], 2 * WIDTH), stored)
    both = beside if order == "nhd" else beside.swapaxes(1, 2)
    reshape_and_cache_flash(hot, hot, both[..., :WIDTH], both[..., WIDTH:], slots(), kv_dtype)
    assert written(beside) == [places[f"side-{order}", kind].first for kind in "KV"]


@pytest.mark.parametrize("memory", ["NHD", "HND"])
def test_the_side_by_side_strides_are_the_ports(memory: Any) -> None:
    cache = flash_layout.allocate(4, SIZE, HEADS, WIDTH, memory=memory)
    geometry = Geometry(SIZE, WIDTH, HEADS, HEADS)
    terms = {t.axis: t for t in explain(FIRST, geometry, [3], 5, 1, 9).place(f"side-{memory.lower()}").terms}
    assert [stride // 2 for stride in cache.strides] == [
        terms[axis].stride for axis in ("block", "head", "token", "channel")
    ]


@pytest.mark.parametrize("point", POINTS, ids=str)
@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_tiny_vllms_writer_puts_it_there(dtype: str, point: tuple[int, int, int]) -> None:
    cache = np.zeros((6, 2, SIZE, HEADS, WIDTH), dtype)
    state = Blocks(num_blocks=6, slots=1, layers=1, columns=4)
    hot = one_hot(dtype, point)
    table = write_prefill(state, 0, 0, hot, hot, cache)
    found = explain("tiny-vllm", Geometry(SIZE, WIDTH, 4 * HEADS, HEADS, dtype), table, *point)
    assert written(cache) == [found.place("tiny", kind).first for kind in "KV"]


# -- what is refused


def base(**changes: Any) -> Geometry:
    return Geometry(
        **{"block_size": 16, "head_size": 64, "num_heads": 8, "num_kv_heads": 2, "dtype": "float16"} | changes
    )


@pytest.mark.parametrize(
    ("changes", "argument", "must"),
    [
        ({"block_size": 0}, "block_size", "1 to 256"),
        ({"block_size": 257}, "block_size", "1 to 256"),
        ({"block_size": 16.0}, "block_size", "an integer"),
        ({"block_size": True}, "block_size", "an integer"),
        ({"head_size": 68}, "head_size", "divisible by x = 8"),
        ({"head_size": 24, "dtype": "fp8"}, "head_size", "divisible by x = 16"),
        ({"head_size": 1032}, "head_size", "1 to 1024"),
        ({"num_heads": 9}, "num_heads", "divisible by num_kv_heads = 2"),
        ({"num_kv_heads": 0}, "num_kv_heads", "1 to 1024"),
        ({"dtype": "float8"}, "dtype", "float32, float16, bfloat16, fp8"),
    ],
)
def test_a_geometry_that_cannot_be_is_refused(changes: dict[str, Any], argument: str, must: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        base(**changes)
    assert caught.value.argument == argument
    assert caught.value.value == changes[argument]
    assert must in caught.value.must


@pytest.mark.parametrize(
    ("table", "argument", "must"),
    [
        ([], "block_table", "1 to 4096"),
        (list(range(4097)), "block_table", "1 to 4096"),
        ([3, -1], "block_table[1]", "0 to 2147483647"),
        ([3, 2**31], "block_table[1]", "0 to 2147483647"),
        ([3, 1.5], "block_table[1]", "an integer"),
        ([3, 1, 3], "block_table[2]", "there already, as entry 0"),
    ],
)
def test_a_table_that_cannot_be_is_refused(table: list[Any], argument: str, must: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        check_table(table, base())
    assert caught.value.argument == argument
    assert must in caught.value.must


def test_a_cache_beyond_exact_numbers_is_refused_with_the_largest_block_that_is_not() -> None:
    large = Geometry(256, 1024, 1024, 1024, "float32")
    with pytest.raises(ArgumentError, match="must be at most 4194303") as caught:
        check_table([0, 4194304], large)
    assert caught.value.argument == "block_table[1]"
    assert check_table([0, 4194303], large) == (0, 4194303)
    assert cache_bytes("side-hnd", large, [4194303]) == 2**53


@pytest.mark.parametrize(
    ("token", "head", "channel", "argument", "must"),
    [
        (48, 0, 0, "token", "0 to 47: 3 blocks of 16 tokens"),
        (-1, 0, 0, "token", "0 to 47"),
        (0, 2, 0, "head", "0 to 1: a KV head"),
        (0, 0, 64, "channel", "0 to 63"),
        (0, 0, "1", "channel", "an integer"),
    ],
)
def test_a_point_outside_is_refused(token: int, head: int, channel: Any, argument: str, must: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        explain("classic-v1", base(), [7, 2, 5], token, head, channel)
    assert caught.value.argument == argument
    assert must in caught.value.must


def test_unknown_names_and_bytes_outside_are_refused() -> None:
    with pytest.raises(ArgumentError, match="kernel = v1: must be classic-v1, classic-v2"):
        explain("v1", base(), [0], 0, 0, 0)
    with pytest.raises(ArgumentError, match="layout = classic: must be classic-k"):
        locate("classic", base(), [0], 0)
    end = cache_bytes("nhd-k", base(), [2])
    assert locate("nhd-k", base(), [2], end - 1).block == 2
    with pytest.raises(ArgumentError, match=f"byte = {end}: must be an integer from 0 to {end - 1}: 3 blocks of 4096"):
        locate("nhd-k", base(), [2], end)
    with pytest.raises(ArgumentError, match="layout = classic-k V"):
        explain(next(iter(KERNELS)), base(), [0], 0, 0, 0).place("classic-k", "V")


def test_the_lessons_example_by_hand() -> None:
    """Token 20 of the table 7, 2, 5, with blocks of 16: block 2, offset 4, slot 36."""
    found = explain("classic-v1", Geometry(), [7, 2, 5], 20, 3, 10)
    assert (found.logical, found.block, found.offset, found.slot) == (1, 2, 4, 36)
    assert [(s.how, s.value) for s in found.steps] == [
        ("20 // 16", 1), ("20 % 16", 4), ("block_table[1]", 2), ("2 * 16 + 4", 36),
    ]  # fmt: skip
    assert (found.first_query_head, found.last_query_head) == (12, 15)
    key = found.place("classic-k")
    assert [(t.axis, t.how, t.index, t.factor, t.stride) for t in key.terms] == [
        ("block", "block_table[1]", 2, "kv_block_stride", 16384),
        ("head", "KV head 3", 3, "kv_head_stride", 2048),
        ("group", "10 // 8", 1, "block_size * x", 128),
        ("token", "20 % 16", 4, "x", 8),
        ("x", "10 % 8", 2, "1", 1),
    ]
    assert key.element == 2 * 16384 + 3 * 2048 + 128 + 4 * 8 + 2 == 39074
    assert (key.first, key.last, key.sector, key.in_sector, key.line) == (78148, 78149, 2442, 4, 610)
    assert (key.run.pieces, key.run.size, key.run.apart) == (16, 16, 256)
    assert found.place("tiny", "V").terms[1].how == "V second"
    assert found.place("side-nhd").terms[0].factor == "block_size * num_kv_heads * 2 * head_size"
