"""The tuned writer, bit for bit: whatever the slots are, every element lies where the oracle's loops put it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels import cases, oracle
from kernels.cases import WriteCase
from kernels.cases_narrow import narrow_write_case, stored
from kernels.errors import ArgumentError
from kernels.kernel import Backend, Kernel
from kernels.simt.memview import Traffic
from kernels.simt.sanitize import Sanitizer
from kernels.tuned.writer import countable, launches, reshape_and_cache, reshape_and_cache_turned
from kernels.unroll import source, unroll

SCHEDULES = ("in-order", "reversed", "random:11")
BACKENDS = ["sim", pytest.param("cuda", marks=pytest.mark.gpu)]
TURNED, PLAIN = "reshape_and_cache_turned", "reshape_and_cache_plain"


def given_slots(slots: Sequence[int], heads: int, head_size: int, block_size: int, seed: int = 0) -> WriteCase:
    """Random codes of 16 bits, all of them, for these slots; the cache ends with the block of the last one."""
    rng = np.random.default_rng(seed)
    shape = (len(slots), heads, head_size)
    key, value = (rng.integers(0, 1 << 16, shape).astype(np.uint16) for _ in range(2))
    case = narrow_write_case(1, heads, head_size, block_size)
    blocks = max([0, *slots]) // block_size + 1
    k_cache, v_cache = (
        np.full((blocks, *cache.shape[1:]), 0xAAAA, np.uint16) for cache in (case.k_cache, case.v_cache)
    )
    mapping = np.array(slots, np.int64)
    return replace(
        case, key=key, value=value, k_cache=k_cache, v_cache=v_cache, slot_mapping=mapping, slot_buffer=mapping
    )  # fmt: skip


def write(case: WriteCase, backend: str | Backend = "sim", **changes: Any) -> tuple[Any, Any]:
    """The caches after the write; the case keeps its own."""
    caches = case.k_cache.copy(), case.v_cache.copy()
    rows = {"key": case.key, "value": case.value, "slot_mapping": case.slot_mapping} | changes
    reshape_and_cache(rows["key"], rows["value"], *caches, rows["slot_mapping"], backend=backend)
    return caches


def equal(found: tuple[Any, Any], want: tuple[Any, Any]) -> bool:
    """To the bit."""
    return all(
        got.dtype == exact.dtype and bool((got.view(np.uint8) == exact.view(np.uint8)).all())
        for got, exact in zip(found, want, strict=True)
    )


def right(case: WriteCase, backend: str | Backend = "sim") -> bool:
    return equal(write(case, backend), oracle.written_caches(case))


def prefill(lengths: Sequence[int], offset: int, block_size: int, seed: int) -> list[int]:
    """Sequences one after another, each in blocks of its own in random order, the first of them begun at `offset`."""
    rng = np.random.default_rng(seed)
    needed = [-(-(length + offset) // block_size) for length in lengths]
    blocks = iter(rng.permutation(sum(needed) + 3).tolist())
    slots: list[int] = []
    for length, count in zip(lengths, needed, strict=True):
        own = [block * block_size + place for block in islice(blocks, count) for place in range(block_size)]
        slots += own[offset : offset + length]
    return slots


def chosen(case: WriteCase) -> list[str]:
    return [
        launch.kernel.name for launch in launches(case.key, case.value, case.k_cache, case.v_cache, case.slot_mapping)
    ]


# Where everything lies


@settings(max_examples=25)
@given(
    st.lists(st.integers(1, 40), min_size=1, max_size=3),
    st.integers(0, 20),
    st.sampled_from([4, 8, 12, 16, 32]),
    st.sampled_from([(1, 8), (3, 24), (2, 40)]),
    st.sampled_from(SCHEDULES),
    st.integers(0, 99),
)
def test_prefill(
    lengths: list[int], offset: int, block_size: int, heads: tuple[int, int], schedule: str, seed: int
) -> None:
    case = given_slots(prefill(lengths, offset, block_size, seed), *heads, block_size, seed)
    assert chosen(case) == [TURNED]
    assert right(case, Backend("sim", schedule))


@settings(max_examples=25)
@given(st.data(), st.integers(1, 50), st.sampled_from([4, 8, 16, 32]), st.integers(0, 99))
def test_any_slots(data: st.DataObject, tokens: int, block_size: int, seed: int) -> None:
    # Pieces of neighbours, strangers and padding in any order, all different.
    pool = np.random.default_rng(seed).permutation(tokens + 9)
    cuts = data.draw(st.lists(st.integers(0, tokens), max_size=4))
    slots = np.where(np.arange(tokens) % 7 == data.draw(st.integers(0, 9)), -1, pool[:tokens])
    for cut in cuts:
        part = slots[cut : cut + data.draw(st.integers(1, 20))]
        part[:] = np.sort(part)
    assert right(given_slots(slots.tolist(), 1, 40, block_size, seed))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("block_size", [8, 16, 32])
@pytest.mark.parametrize("heads", [(1, 32), (5, 120), (40, 128)])
def test_every_head_is_written(heads: tuple[int, int], block_size: int, backend: str) -> None:
    case = given_slots(prefill([9, 2], 3, block_size, 1), *heads, block_size)
    assert right(case, backend)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("first", range(17))
def test_a_window_that_begins_anywhere_in_a_block(first: int, backend: str) -> None:
    assert right(given_slots(list(range(first, first + 37)), 1, 32, 16, first), backend)


@pytest.mark.parametrize("backend", BACKENDS)
def test_rows_at_any_distance_are_read_where_they_lie(backend: str) -> None:
    # A fused projection: rows 5 * 48 elements apart, and 5 * 48 + 4, which is no multiple of 16 bytes.
    for gap, kernel in ((0, TURNED), (4, PLAIN)):
        case = given_slots(prefill([23], 1, 16, 2), 2, 24, 16)
        whole = np.full((23, 5 * 48 + gap), 0x7FC0, np.uint16)
        whole[:, 48:96], whole[:, 144:192] = case.key.reshape(23, 48), case.value.reshape(23, 48)
        steps = (whole.strides[0], 48, 2)
        key, value = (
            np.lib.stride_tricks.as_strided(whole[:, at:], (23, 2, 24), steps, writeable=False) for at in (48, 144)
        )
        assert [one.kernel.name for one in launches(key, value, case.k_cache, case.v_cache, case.slot_mapping)] == [
            kernel
        ]
        assert equal(write(case, backend, key=key, value=value), oracle.written_caches(case))


def test_padding_of_any_kind_writes_nothing() -> None:
    case = given_slots([-1, 5, -(2**40), 6, -7, 7, -1, -1, 40, *[-1] * 20, 41], 1, 32, 16)
    assert right(case)
    none = given_slots([-1] * 20, 1, 32, 16)
    assert equal(write(none), (none.k_cache, none.v_cache))
    assert launches(none.key, none.value, none.k_cache, none.v_cache, none.slot_mapping[:0]) == ()


def test_rows_behind_the_mapping_are_not_written() -> None:
    case = given_slots(list(range(30)), 1, 32, 16)
    short = replace(case, slot_mapping=case.slot_mapping[:13])
    assert right(short)


def test_of_two_tokens_with_one_slot_each_element_is_one_of_theirs() -> None:
    case = given_slots([3, 9, 3, 4, 5, 6], 1, 32, 16)
    for cache, rows in zip(write(case), (case.key, case.value), strict=True):
        unpack = cases.unpack_keys if cache.ndim == 5 else cases.unpack_values
        found = unpack(cache)[0, :, 0]
        assert ((found[3] == rows[0, 0]) | (found[3] == rows[2, 0])).all()
        np.testing.assert_array_equal(found[[9, 4, 5, 6]], rows[[1, 3, 4, 5], 0])


# What is not copied as it is, or not 16 bits wide


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("kind", ["auto", "fp8", "fp8_e4m3", "fp8_e5m2"])
@pytest.mark.parametrize("scalar", ["float32", "float16", "bfloat16"])
def test_every_format(scalar: str, kind: str, backend: str) -> None:
    case = narrow_write_case(19, 3, 48, 16, scalar, kind, seed=4, padding=3)
    caches = case.k_cache.copy(), case.v_cache.copy()
    scales = (0.37, 3.0)
    reshape_and_cache(
        case.key, case.value, *caches, case.slot_mapping, kind, *(np.full(1, one, np.float32) for one in scales),
        backend=backend,
    )  # fmt: skip
    key, value = (stored(rows, scalar, kind, one) for rows, one in zip((case.key, case.value), scales, strict=True))
    assert equal(caches, oracle.written_caches(replace(case, key=key, value=value)))


def test_a_block_that_is_no_multiple_of_four_and_too_many_slots_for_32_bits() -> None:
    case = cases.write_case(20, 2, 24, 3, "float16")
    assert chosen(case) == [PLAIN]
    assert right(case)
    assert [countable(2**27 - 1, 16), countable(2**27, 16), countable(5, 6)] == [True, False, False]


# How it is done


def traffic(case: WriteCase) -> dict[tuple[str, str], Traffic]:
    """Reads and writes of each array, of one watched launch without a fault or a race."""
    watch = Sanitizer()
    with watch:
        write(case, Backend("sim", observers=(watch,)))
    assert watch.clean, [*map(str, watch.races), *map(str, watch.faults)]
    found: dict[tuple[str, str], Traffic] = {}
    for row in watch.memory.rows:
        one = found.setdefault((row.array, row.kind), Traffic(row.space, row.array, row.kind, "", 0))
        one.sizes |= row.sizes
        one.bytes += row.bytes
        one.sectors += row.sectors
    return found


def test_whole_blocks_move_in_whole_sectors() -> None:
    case = given_slots(prefill([48], 0, 16, 3), 2, 64, 16)
    seen = traffic(case)
    moved = 48 * 2 * 64 * 2
    for array, kind, size in (
        ("key", "read", 16), ("value", "read", 16), ("key_cache", "write", 16), ("value_cache", "write", 8)
    ):  # fmt: skip
        row = seen[array, kind]
        assert (row.sizes, row.bytes, row.sectors) == ({size}, moved, moved // 32), (array, kind)


def test_strangers_are_written_one_by_one_and_without_a_race() -> None:
    slots = np.random.default_rng(5).permutation(64)[:21]
    seen = traffic(given_slots(slots.tolist(), 1, 40, 16))
    assert seen["value_cache", "write"].sizes == {2}
    assert seen["value_cache", "write"].bytes == 21 * 40 * 2
    assert seen["key_cache", "write"].sizes == {16}


def test_a_sequence_that_begins_in_a_block_still_goes_block_by_block() -> None:
    # 5 tokens to the end of a block, two whole ones, 3 tokens. Only the places beside a cut are written alone.
    seen = traffic(given_slots([*range(11, 51)], 1, 32, 16))
    assert seen["value_cache", "write"].bytes == 40 * 32 * 2
    # Sectors: one a row for each of the four blocks, but that of single places, which go one place at a time.
    assert seen["value_cache", "write"].sectors == 32 * (2 + 2 + 3)


def test_two_tokens_with_one_slot_are_a_race() -> None:
    # vLLM's writer has it too; the sanitizer knows.
    case = given_slots([3, 3], 1, 32, 16)
    watch = Sanitizer()
    with watch:
        write(case, Backend("sim", observers=(watch,)))
    assert watch.verdict == ("race",)


def test_what_is_wrong_fails() -> None:
    case = given_slots(prefill([40], 3, 16, 6), 1, 32, 16)
    truth = oracle.written_caches(case)
    assert equal(write(case), truth)
    for change in (
        {"slot_mapping": np.roll(case.slot_mapping, 1)},
        {"key": np.roll(case.key, 1, axis=2)},
        {"value": case.key},
        {"slot_mapping": np.where(np.arange(40) == 39, -1, case.slot_mapping)},
    ):
        assert not equal(write(case, **change), truth), change


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("min(num_tokens - start, 32)", "min(num_tokens - start, 32)"),  # nothing
        ("min(num_tokens - start, 32)", "min(num_tokens - start, 16)"),  # a run that ends in the next window
        ("TOKENS - 1), inside)", "TOKENS - 2), inside)"),
        ("start > 0", "start > 16"),
        ("slot & 16 - 1 != 0", "True"),  # runs that go on into the next block
        ("slots_0 & 3 == 0", "True"),
        ("slots_3 == slots_0 + 2 + 1", "True"),
        ("first + 2 >= count", "first + 2 > count"),
        ("apart = not together", "apart = together"),
        ("home >= 0", "True"),
        ("element < elements", "True"),
        ("begin >= elements", "begin > 0"),
        ("transpose_8x8(words_12)", "words_12"),
        ("words_12 >> 16 * (2 % 2)", "words_8 >> 16 * (2 % 2)"),
    ],
)
def test_a_kernel_with_one_thing_wrong_is_wrong(old: str, new: str) -> None:
    text = source(reshape_and_cache_turned, BLOCK_SIZE=16)
    assert old in text
    scope = dict(reshape_and_cache_turned.fn.__globals__)
    exec(text.replace(old, new), scope)
    made = Kernel(scope[reshape_and_cache_turned.name], None, unroll(reshape_and_cache_turned, BLOCK_SIZE=16).constants)
    # A begun block, whole ones, strangers, padding before slot 0, and five pieces of 8 elements for four lanes.
    slots = [*range(37, 70), 5, 99, 7, -1, 0, 1, 2, 100, 101, 102, 103, 104, -1, *range(112, 123), 125, 126]
    slots += range(200, 290, 10)
    case = given_slots(slots, 5, 40, 16, 8)
    caches = case.k_cache.copy(), case.v_cache.copy()
    (launch,) = launches(case.key, case.value, *caches, case.slot_mapping)
    # What is written twice is a race, if it is not wrong.
    watch = Sanitizer()
    with watch:
        replace(launch, kernel=made).run(Backend("sim", observers=(watch,)))
    assert (watch.clean and equal(caches, oracle.written_caches(case))) == (old == new)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"slot_mapping": np.array([0, 16])}, r"slot_mapping\[1\] = 16: must be below the 16 slots"),
        ({"slot_mapping": np.arange(4)}, r"slot_mapping\.shape = \(4,\): must not exceed the 3 rows"),
        ({"value": np.zeros((3, 1, 32), np.float32)}, r"value\.dtype = float32: must be uint16"),
        ({"kv_cache_dtype": "fp4"}, r"kv_cache_dtype = "),
    ],
)
def test_a_bad_argument_is_named_and_the_caches_stay(changes: dict[str, Any], message: str) -> None:
    case = given_slots([0, 1, 2], 1, 32, 16)
    good = {"key": case.key, "value": case.value, "key_cache": case.k_cache, "value_cache": case.v_cache,
            "slot_mapping": case.slot_mapping}  # fmt: skip
    with pytest.raises(ArgumentError, match=message):
        reshape_and_cache(**(good | changes))
    assert (case.k_cache == 0xAAAA).all()
    assert (case.v_cache == 0xAAAA).all()
