"""The text chart: each step's number of blocks is at its place, for few steps and for many."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from walkthroughs.lab.chart import HEIGHT, LINE, POINT, SIGNS, chart


def cells(lines: list[str]) -> dict[int, str]:
    """Number at the left -> what stands in that row."""
    rows = [line.split("│") for line in lines if "│" in line]
    return {int(left): right for left, right in rows}


def test_line_and_points() -> None:
    lines = chart([1, 2, 2, 0], [1, 2], [["admitted"], ["edge"], [], ["freed"]], width=20)
    assert cells(lines) == {0: f"   {LINE}", 1: POINT, 2: f" {POINT}{LINE}"}
    assert lines[-2].strip() == "A+"
    assert lines[-1].strip() == "step 1 .. 4"


def test_a_difference_shows_both() -> None:
    found = cells(chart([3], [1], width=20))
    assert (found[3], found[1]) == (LINE, POINT)


def test_events_come_with_the_steps_and_the_gravest_is_shown() -> None:
    kinds = [["admitted"], ["edge", "preempted"], ["freed"]]
    assert chart([1, 1, 1], [], kinds, width=20)[-2].strip() == ""
    assert chart([1, 1, 1], [1, 1], kinds, width=20)[-2].strip() == "AP"


@given(st.lists(st.integers(0, 300), min_size=1, max_size=200), st.integers(20, 120))
def test_any_chart_fits_and_every_column_has_its_value(values: list[int], width: int) -> None:
    lines = chart(values, values, [[] for _ in values], width=width)
    assert max(map(len, lines)) <= width
    assert len(lines) <= HEIGHT + 5
    found = cells(lines)
    columns = max(map(len, found.values()))
    assert columns <= len(values)
    step = sorted(found)[1] if len(found) > 1 else 1
    for place in range(columns):
        (row,) = [number for number, text in found.items() if text[place : place + 1] == POINT]
        assert any(row - step < value <= row for value in values)
    assert found[-(-values[-1] // step) * step][columns - 1] == POINT


def test_every_event_has_a_sign_of_its_own() -> None:
    assert len(set(SIGNS.values())) == len(SIGNS) == 5
