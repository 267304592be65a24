"""How places, groups and errors read."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from kernels.simt import BarrierDivergence, Group, OutOfBounds, Place, ShuffleError, SimtError, cuda, launch
from kernels.simt.report import line_of, show_line, show_ranges


@pytest.mark.parametrize(
    ("numbers", "text"),
    [
        ([], ""),
        ([5], "5"),
        ([1, 2, 3], "1-3"),
        ([3, 1, 2, 40], "1-3, 40"),
        ([0, 2, 4, 5], "0, 2, 4-5"),
        (range(64), "0-63"),
    ],
)
def test_ranges(numbers, text):
    assert show_ranges(list(numbers)) == text


def test_paths_are_relative_inside_the_checkout_and_whole_outside():
    assert show_line(__file__, 3) == "tests/kernels/simt/test_report.py:3"
    outside = str(Path("/elsewhere/kernel.py"))
    assert show_line(outside, 9) == f"{outside}:9"


def test_groups_read_as_a_sentence():
    assert str(Group("exited", (3,))) == "thread 3 exited"
    assert str(Group("exited", (3, 4))) == "threads 3-4 exited"
    here = "tests/kernels/simt/test_report.py:8"
    assert str(Group("syncthreads", (0,), __file__, 8)) == f"thread 0 waits in syncthreads at {here}"
    assert str(Group("shfl_sync", (0, 2), __file__, 8)) == f"threads 0, 2 wait in shfl_sync at {here}"


def test_a_place_reads_as_one():
    place = Place("k", __file__, 8, (1, 0, 0), (0, 2, 0))
    assert place.where == "tests/kernels/simt/test_report.py:8"
    assert str(place) == "tests/kernels/simt/test_report.py:8, thread (1, 0, 0), block (0, 2, 0) of k"


def test_an_index_error_shows_slices_and_tuples():
    place = Place("k", __file__, 8, (1, 0, 0), (0, 2, 0))
    assert "a[1, 2:, :3, ::2] is outside shape (4, 4)" in str(
        OutOfBounds("a", (1, slice(2, None), slice(None, 3), slice(None, None, 2)), (4, 4), place)
    )


def test_line_of_finds_the_line_of_each_instruction():
    def three():
        a = 1
        b = 2
        return a + b

    code = three.__code__
    lines = {line_of(code, offset) - code.co_firstlineno for offset in range(0, len(code.co_code), 2)}
    assert lines == {0, 1, 2, 3}


def test_errors_carry_their_facts():
    error = BarrierDivergence("p", [Group("exited", (1,))], (0, 0, 0), "k")
    assert (error.groups, error.block, error.kernel) == ((Group("exited", (1,)),), (0, 0, 0), "k")
    assert str(error) == "p, block (0, 0, 0) of k: thread 1 exited"
    assert issubclass(ShuffleError, SimtError)


def test_a_long_expression_is_named_by_its_own_line():
    def kernel(a):
        return (
            a[0]
            + a[1]
            + a[
                7  # the bracket opens a line above
            ]
        )

    with pytest.raises(OutOfBounds) as e:
        launch(kernel, 1, 1, (np.zeros(3),))
    assert e.value.place.line == kernel.__code__.co_firstlineno + 4


def test_the_thread_and_block_are_three_dimensional():
    def kernel(a):
        if (cuda.threadIdx.x, cuda.threadIdx.y, cuda.threadIdx.z) == (1, 2, 1) and cuda.blockIdx.z == 1:
            a[3] = 0

    with pytest.raises(OutOfBounds) as e:
        launch(kernel, (2, 1, 2), (2, 3, 2), (np.zeros(3),))
    assert (e.value.place.thread, e.value.place.block) == ((1, 2, 1), (0, 0, 1))
