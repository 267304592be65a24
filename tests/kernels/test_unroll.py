"""Unrolled loops: written out as often as they say, on the lines they stand on, and never run by themselves."""

from __future__ import annotations

import ast

import numpy as np
import pytest
from numba import cuda, float32

from kernels.kernel import kernel
from kernels.unroll import UnrollError, registers, source, unroll, unrolled

WIDTH = 4
COUNT = 4


@kernel(lambda WIDTH: {"COUNT": 2 * WIDTH})
def add_up(out, values):
    parts = registers(COUNT)
    for number in unrolled(COUNT):
        parts[number] = float32(0)
    for at in range(cuda.threadIdx.x, 32, 4):
        for number in unrolled(WIDTH):
            parts[2 * number + 1] += values[at] * number
    if cuda.threadIdx.x >= 0:
        for number in unrolled(WIDTH):
            out[cuda.threadIdx.x * WIDTH + number] = parts[2 * number + 1] + parts[number - number]


def expected(values: np.ndarray, width: int) -> np.ndarray:
    sums = [sum(values[thread::4]) for thread in range(4)]
    return np.array([total * number for total in sums for number in range(width)], np.float32)


@pytest.mark.parametrize("width", [1, 2, 5])
def test_an_unrolled_kernel_computes_what_its_loops_say(width: int) -> None:
    values = np.arange(32, dtype=np.float32)
    out = np.full(4 * width, np.nan, np.float32)
    unroll(add_up, WIDTH=width).on("sim")[1, 4](out, values)
    np.testing.assert_array_equal(out, expected(values, width))


def test_what_is_written_out_has_no_loop_and_no_array_left() -> None:
    text = source(add_up, WIDTH=3)
    assert "unrolled" not in text
    assert "registers" not in text
    assert text.count("float32(0)") == 6
    names = {node.id for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Name)}
    assert {f"parts_{number}" for number in range(6)} <= names
    assert "for at in range" in text, "a plain loop stays one"


def test_the_same_parameters_give_the_same_kernel() -> None:
    assert unroll(add_up, WIDTH=2) is unroll(add_up, WIDTH=2)
    assert unroll(add_up, WIDTH=2) is not unroll(add_up, WIDTH=3)


def test_lines_stay_where_they_are() -> None:
    made = unroll(add_up, WIDTH=3)
    assert made.fn.__code__.co_filename == add_up.fn.__code__.co_filename
    lines = {line for _, _, line in made.fn.__code__.co_lines() if line}
    wanted = {line for _, _, line in add_up.fn.__code__.co_lines() if line}
    assert lines - {made.fn.__code__.co_firstlineno} <= wanted
    # The declaration leaves nothing behind, and the heads of the three unrolled loops neither.
    assert len(wanted - lines - {add_up.fn.__code__.co_firstlineno}) == 4


@kernel()
def nested(out):
    grid = registers(6)
    for row in unrolled(2):
        for column in unrolled(3):
            grid[3 * row + column] = 10 * row + column
    while out[6] < 1:
        for row in unrolled(2):
            out[6] += row
    for row in unrolled(2):
        for column in unrolled(3):
            if row != 1:
                out[column] = grid[3 * row + column]
            else:
                out[3 + column] = grid[3 + column]


def test_loops_in_loops_branches_and_whiles() -> None:
    out = np.zeros(7, np.int64)
    unroll(nested).on("sim")[1, 1](out)
    assert out.tolist() == [0, 1, 2, 10, 11, 12, 1]


def test_a_kernel_that_was_not_unrolled_says_what_to_do() -> None:
    with pytest.raises(UnrollError, match="launch unroll"):
        add_up.specialise(WIDTH=1).on("sim")[1, 4](np.zeros(4, np.float32), np.zeros(32, np.float32))
    with pytest.raises(UnrollError, match="launch unroll"):
        unrolled(3)


@kernel()
def beyond(out):
    two = registers(2)
    for number in unrolled(3):
        two[number] = number


@kernel()
def moving(out):
    two = registers(2)
    for number in range(2):
        two[number] = number


@kernel()
def unknown(out):
    for number in unrolled(out.size):
        out[number] = 0


@kernel()
def pair(out):
    for a, b in unrolled(2):
        out[a] = b


@kernel()
def many(out):
    a = b = registers(2)
    a[0] = b[0] = 1


@kernel()
def sizes(out):
    for number in unrolled(2, 3):
        out[number] = 0


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (beyond, r"two\[2\]: registers\(2\) end at 1"),
        (moving, "two: number is no constant"),
        (unknown, "out.size is no constant"),
        (pair, "one name and no else"),
        (many, "given to one name"),
        (sizes, "takes one size"),
    ],
)
def test_what_cannot_be_written_out_is_refused(wrong: object, said: str) -> None:
    with pytest.raises(UnrollError, match=said):
        unroll(wrong)
