"""Expressions of the ledger: what they may do, and the helpers against brute force over addresses."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernels import layout
from walkthroughs.claims import arithmetic
from walkthroughs.claims.arithmetic import evaluate
from walkthroughs.claims.model import CheckError


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1 + 2 * 3", 7),
        ("blocks_for(17, 16)", 2),
        ("[x_of(e) for e in [4, 2, 1]]", [4, 8, 16]),
        ("all([slot(b, 0, 16) == 16 * b for b in range(4)])", True),
        ("2 ** 31 // 32768", 65536),
        ("(1, 2)[1]", 2),
    ],
)
def test_expressions_have_their_value(text: str, value: object) -> None:
    assert evaluate(text) == value


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os')",
        "layout.x_of(2)",
        "open('x')",
        "(lambda: 1)()",
        "x",
        "[].append(1)",
        "1 +",
        "f'{1}'",
        "a := 1",
    ],
)
def test_nothing_else_can_be_said(text: str) -> None:
    with pytest.raises(CheckError, match="expression"):
        evaluate(text)


def test_names_can_be_handed_in() -> None:
    assert evaluate("BLOCK * 2", {"BLOCK": 16}) == 32


@given(st.integers(-(2**70), 2**70))
def test_int32_wraps_as_numpy_does(value: int) -> None:
    assert arithmetic.int32(value) == int(np.array([value % 2**64], np.uint64).astype(np.uint32).view(np.int32)[0])


@given(st.sampled_from([8, 16, 32]), st.sampled_from([64, 80, 96, 128, 256]), st.sampled_from([2, 4]))
def test_a_threads_elements_are_dealt_out_without_gap_or_repeat(block: int, head: int, size: int) -> None:
    group = layout.thread_group_size(block)
    if head % (group * layout.vec_size(group, size)):
        return
    dealt = [arithmetic.key_elements(head, block, size, thread) for thread in range(group)]
    assert sorted(element for hand in dealt for element in hand) == list(range(head))
    width = arithmetic.thread_key_bytes(block, size) // size
    for hand in dealt:
        pieces = [hand[at : at + width] for at in range(0, len(hand), width)]
        assert all(piece == list(range(piece[0], piece[0] + width)) for piece in pieces)


@given(st.sampled_from([8, 16, 32]), st.sampled_from([64, 128]), st.sampled_from([2, 4]))
def test_a_warps_rows_cover_the_head_once_for_each_share_of_a_row(block: int, head: int, size: int) -> None:
    shares = layout.num_v_vecs_per_row(block, size)
    rows = [row for lane in range(layout.WARP_SIZE) for row in arithmetic.value_rows(head, block, size, lane)]
    assert sorted(rows) == sorted(list(range(head)) * shares)


def test_runs_are_recognised_and_so_are_gaps() -> None:
    assert arithmetic._warp_run([8, 0, 16], 8) == 24
    assert arithmetic._warp_run([8, 0, 24], 8) == 0
    assert arithmetic._warp_run([8, 8, 16], 8) == 0
    assert arithmetic.warp_key_run(16, 128, 2) == 256
    assert arithmetic.warp_value_run(16, 128, 2) == 512
