"""Slots of a batch against tokens counted one by one, on one rank and on several."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.errors import ArgumentError
from kernels.kernel import Backend
from kernels.vllm.slot_mapping import compute_slot_mapping


def int32(numbers: Any) -> Any:
    return np.array(numbers, np.int32)


def slots(starts: Any, positions: Any, table: Any, block_size: int, room: int, **options: Any) -> list[int]:
    """The mapping, in a buffer that starts with a number nobody would write."""
    found = np.full(room, -77, np.int64)
    compute_slot_mapping(found, int32(starts), np.array(positions, np.int64), int32(table), block_size, **options)
    return [int(slot) for slot in found]


def test_by_hand() -> None:
    found = slots([0, 3, 7], [14, 15, 16, 0, 1, 2, 3], [[5, 2], [1, 7]], 16, 9)
    assert found == [94, 95, 32, 16, 17, 18, 19, -1, -1]


def test_one_slot_a_token_and_not_one_a_block() -> None:
    """A learner's mistake made 48 overlapping slots of 16 tokens in three blocks of 8."""
    assert slots([0, 16], range(16), [[0, 1, 2]], 8, 16) == list(range(16))
    found = slots([0, 20], range(20), [[7, 1, 3]], 8, 20)
    assert found == [*range(56, 64), *range(8, 16), *range(24, 28)]


@st.composite
def batches(draw: st.DrawFn) -> tuple[list[int], list[int], list[list[int]], int]:
    """(query starts, positions, block tables, block size): each request a run of new tokens somewhere."""
    block_size = draw(st.sampled_from([1, 4, 16]))
    firsts = draw(st.lists(st.integers(0, 40), min_size=1, max_size=4))
    counts = [draw(st.integers(0, 70)) for _ in firsts]
    positions = [first + n for first, count in zip(firsts, counts, strict=True) for n in range(count)]
    columns = -(-max(f + c for f, c in zip(firsts, counts, strict=True)) // block_size) or 1
    numbers = draw(st.permutations(range(columns * len(firsts))))
    tables = [list(numbers[row * columns : (row + 1) * columns]) for row in range(len(firsts))]
    return [0, *np.cumsum(counts).tolist()], positions, tables, block_size


@settings(max_examples=40, deadline=None)
@given(batches(), st.integers(0, 100), st.sampled_from(["in-order", "reversed", "random:1"]))
def test_every_token_has_the_slot_that_counting_gives(
    batch: tuple[list[int], list[int], list[list[int]], int], padding: int, schedule: str
) -> None:
    starts, positions, tables, block_size = batch
    expected = []
    for request, table in enumerate(tables):
        street = [block * block_size + offset for block in table for offset in range(block_size)]
        expected += [street[position] for position in positions[starts[request] : starts[request + 1]]]
    found = slots(
        starts, positions, tables, block_size, len(positions) + padding, backend=Backend("sim", schedule)
    )  # fmt: skip
    assert found == expected + [-1] * padding
    assert len(set(expected)) == len(expected)


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 4), st.sampled_from([1, 2, 4]), st.integers(1, 60), st.integers(0, 9))
def test_the_ranks_share_the_tokens_out(world_size: int, interleave: int, length: int, seed: int) -> None:
    """Each token lives on one rank, the ranks take turns, and what a rank holds fills its blocks from the front."""
    block_size = 4
    table = np.random.default_rng(seed).permutation(20)[None]
    found = [
        slots([0, length], range(length), table, block_size, length, world_size=world_size, rank=rank,
              interleave=interleave)
        for rank in range(world_size)
    ]  # fmt: skip
    for position in range(length):
        owners = [rank for rank in range(world_size) if found[rank][position] >= 0]
        assert owners == [position // interleave % world_size]
    for mine in found:
        kept = [slot for slot in mine if slot >= 0]
        street = [int(block) * block_size + offset for block in table[0] for offset in range(block_size)]
        full = length // (block_size * world_size) * block_size
        assert kept[:full] == street[:full]
        assert len(set(kept)) == len(kept)


def test_a_large_allocator_block_is_several_kernel_blocks() -> None:
    found = slots([0, 6], range(30, 36), [[9, 8, 7, 6]], 16, 6, kv_cache_block_size=32)
    assert found == [8 * 16 + 14, 8 * 16 + 15, 7 * 16, 7 * 16 + 1, 7 * 16 + 2, 7 * 16 + 3]


def test_large_block_numbers_do_not_overflow() -> None:
    assert slots([0, 1], [17], [[0, 2**31 - 1]], 16, 1) == [(2**31 - 1) * 16 + 1]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"room": 2}, "must hold the 3 tokens"),
        ({"starts": [0, 2]}, "must rise from 0 to the 3 tokens"),
        ({"starts": [1, 3]}, "must rise from 0"),
        ({"starts": [0, 1, 3]}, "query_start_loc.shape"),
        ({"positions": [0, 1, 32]}, r"positions\[2\] = 32"),
        ({"positions": [0, -1, 2]}, r"positions\[1\] = -1"),
        ({"world_size": 2, "rank": 2}, "rank = 2"),
        ({"interleave": 3}, "interleave = 3"),
        ({"kv_cache_block_size": 24}, "kv_cache_block_size = 24"),
        ({"block_size": 0}, "must be a multiple of block_size = 0"),
    ],
)
def test_wrong_arguments_are_named(change: dict[str, Any], message: str) -> None:
    valid: dict[str, Any] = {"starts": [0, 3], "positions": [0, 1, 2], "table": [[4, 5]], "block_size": 16, "room": 3}
    slots(**valid)
    with pytest.raises(ArgumentError, match=message):
        slots(**{**valid, **change})


@pytest.mark.gpu
def test_gpu_agrees_with_the_machine() -> None:
    rng = np.random.default_rng(0)
    counts = [700, 0, 1, 129]
    positions = np.concatenate([np.arange(count) for count in counts])
    tables = rng.permutation(4 * 64).reshape(4, 64)
    starts = [0, *np.cumsum(counts)]
    assert slots(starts, positions, tables, 16, 1000, backend="cuda") == slots(starts, positions, tables, 16, 1000)
