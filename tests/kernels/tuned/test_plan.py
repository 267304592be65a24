"""How a launch is cut: every KV block once, pieces of one size, and the plans that were fastest when measured."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernels.errors import ArgumentError
from kernels.tuned.plan import SHARED_BYTES, Plan, as_words, balanced, choose

LENGTHS = st.lists(st.integers(0, 500), min_size=1, max_size=9)


@given(LENGTHS, st.sampled_from([16, 32]), st.integers(1, 40))
def test_a_list_has_every_block_once(lengths: list[int], block_size: int, pieces: int) -> None:
    items = balanced(lengths, block_size, pieces)
    covered = sorted((item.seq, block) for item in items for block in range(item.first, item.stop))
    want = [(seq, block) for seq, length in enumerate(lengths) for block in range(-(-length // block_size))]
    assert covered == want
    for seq in range(len(lengths)):
        mine = sorted((item for item in items if item.seq == seq), key=lambda item: item.split)
        assert [item.split for item in mine] == list(range(mine[0].parts))
        assert len({item.base for item in mine}) == 1
    places = sorted(item.base + item.split for item in items)
    assert places == list(range(len(items))), "a place of its own for each"
    sizes = [item.stop - item.first for item in items]
    assert sizes == sorted(sizes, reverse=True), "the longest first"


@given(LENGTHS, st.integers(1, 40))
def test_no_piece_is_larger_than_its_share(lengths: list[int], pieces: int) -> None:
    total = sum(-(-length // 16) for length in lengths)
    largest = max(item.stop - item.first for item in balanced(lengths, 16, pieces))
    assert largest <= max(1, -(-total // pieces))


def test_the_words_of_an_item() -> None:
    words = as_words(balanced([40, 8], 16, 2)).reshape(-1, 8)
    assert words.tolist() == [[0, 0, 2, 0, 2, 0, 0, 0], [0, 2, 3, 1, 2, 0, 0, 0], [1, 0, 1, 0, 1, 2, 0, 0]]


@pytest.mark.parametrize(
    ("shape", "plan"),
    [
        ((64, 4, 4096, 16, 8192), Plan(1, 4, 3)),
        ((64, 8, 4096, 16, 8192), Plan(1, 4, 3)),
        ((64, 8, 4096, 16, 4096), Plan(1, 4, 3)),
        ((1, 8, 32768, 16, 8192), Plan(16, 8, 2)),
        ((1, 8, 4096, 16, 8192), Plan(8, 8, 2)),
        ((8, 8, 8192, 16, 8192), Plan(2, 8, 2)),
        ((256, 8, 1024, 16, 8192), Plan(1, 4, 3)),
        ((16, 32, 8192, 16, 8192), Plan(1, 4, 3)),
        ((64, 8, 4096, 16, 16384), Plan(1, 2, 3)),
    ],
)
def test_what_was_fastest_is_chosen(shape: tuple[int, int, int, int, int], plan: Plan) -> None:
    assert choose(*shape) == plan


def test_mixed_lengths_are_balanced() -> None:
    assert choose(64, 8, 32768, 16, 8192, mixed=True) == Plan(2, 8, 2, balance=True)


@given(
    st.integers(1, 300), st.sampled_from([1, 4, 8, 32]), st.integers(1, 140_000), st.sampled_from([16, 32]),
    st.sampled_from([1024, 2048, 4096, 8192, 16384, 32768]), st.booleans(),
)  # fmt: skip
def test_any_plan_fits(
    num_seqs: int, kv_heads: int, longest: int, block_size: int, block_bytes: int, mixed: bool
) -> None:
    plan = choose(num_seqs, kv_heads, longest, block_size, block_bytes, mixed=mixed)
    assert plan.warps * plan.depth * (block_bytes + 8) <= SHARED_BYTES - 1024
    if plan.splits > 1 and not mixed:
        assert num_seqs * kv_heads * plan.splits <= 132, "one round"
        assert -(-longest // block_size) // plan.splits >= 4 * plan.warps


@pytest.mark.parametrize("wrong", [{"splits": 0}, {"warps": 17}, {"depth": 0}, {"splits": 70000}])
def test_a_plan_has_bounds(wrong: dict[str, int]) -> None:
    with pytest.raises(ArgumentError, match="must be from 1"):
        Plan(**wrong)


def test_no_pieces_are_refused() -> None:
    with pytest.raises(ArgumentError, match="pieces = 0"):
        balanced([5], 16, 0)
