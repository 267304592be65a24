"""Reserved room against a pool that really hands blocks out, and by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernels import fragmentation
from kernels.block_pool import BlockPool, BlockTable
from kernels.errors import ArgumentError
from kernels.fragmentation import MAX_LEN, Room, chat_lengths, contiguous, paged, power_of_two

some_lengths = st.lists(st.integers(0, 60), max_size=8)


@given(some_lengths, st.sampled_from([1, 4, 16]))
def test_paged_is_what_a_pool_hands_out(lengths: list[int], block_size: int) -> None:
    pool = BlockPool(len(lengths) * 60 + 1, block_size)
    for length in lengths:
        table = BlockTable(pool)
        for _ in range(length):
            table.append()
    assert paged(lengths, block_size) == Room(sum(lengths), pool.num_used * block_size)


@given(some_lengths, st.integers(1, 32))
def test_a_sequence_wastes_less_than_a_block(lengths: list[int], block_size: int) -> None:
    room = paged(lengths, block_size)
    assert room.used <= room.reserved <= room.used + len(lengths) * (block_size - 1)


@given(some_lengths)
def test_powers_of_two_by_counting(lengths: list[int]) -> None:
    expected = 0
    for length in lengths:
        run = 1
        while run < length:
            run *= 2
        expected += run if length else 0
    assert power_of_two(lengths) == Room(sum(lengths), expected)


def test_by_hand() -> None:
    assert contiguous([6, 10], 16) == Room(16, 32)
    assert paged([6, 10], 4) == Room(16, 20)
    assert power_of_two([6, 10]) == Room(16, 24)
    assert paged([], 4).share_used == 1
    assert contiguous([6, 10], 16).share_used == 0.5


def test_the_lengths_look_like_chat() -> None:
    lengths = sorted(chat_lengths(4001, seed=1))
    assert lengths[0] >= 1
    assert lengths[-1] == MAX_LEN, "a few reach the end"
    assert abs(lengths[2000] - fragmentation.MEDIAN) < 30
    mean = sum(lengths) / len(lengths)
    assert mean > 1.2 * lengths[2000], "a long tail"
    assert chat_lengths(50) == chat_lengths(50)
    assert chat_lengths(50) != chat_lengths(50, seed=1)
    assert chat_lengths(0) == []


def test_the_figures_order() -> None:
    shares = [room.share_used for _, room in fragmentation.ways(chat_lengths(200))]
    assert shares == sorted(shares)
    assert shares[0] < 0.3 < 0.9 < shares[-1]


def test_what_is_refused() -> None:
    with pytest.raises(ArgumentError, match=r"lengths\[1\] = 17"):
        contiguous([3, 17], 16)
    with pytest.raises(ArgumentError, match=r"lengths\[0\] = -1"):
        paged([-1], 16)
    with pytest.raises(ArgumentError, match="block_size = 0"):
        paged([1], 0)
    with pytest.raises(ArgumentError, match="count = -1"):
        chat_lengths(-1)
