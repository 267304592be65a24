"""The text chart: each step's number of blocks is at its place, for few steps and for many."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from walkthroughs.lab.chart import BAND, BESIDE, HEIGHT, LINE, POINT, SERVER_KINDS, SIGNS, chart, server_chart
from walkthroughs.lab.phases import NOT_SENT, Outcome, Phase, Sample, phases
from walkthroughs.lab.scenarios import Ask

ONE = Phase("one", "", (Ask("a", (3,) * 30, 12),))
TWO = Phase("two", "", (Ask("b", (3,) * 64, 8), Ask("c", (4,) * 96, 8)))


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


def test_a_servers_line_is_known_beforehand_and_points_come_with_the_readings() -> None:
    """30 tokens of the prompt: one block for the first three tokens generated, then two, and none after the last."""
    outcome = Outcome(ONE)
    before = cells(server_chart(outcome, width=40))
    assert before == {0: f"{LINE}           {LINE}", 1: f" {LINE * 3}", 2: f"    {LINE * 8}"}
    outcome.samples += [Sample(0.1, 0, 0, 0, 0, (0,)), Sample(0.2, 2, 1, 1, 1, (1,))]
    lines = server_chart(outcome, width=40)
    assert cells(lines) == {0: f"{POINT}           {LINE}", 1: f" {LINE}{POINT}{LINE}", 2: f"    {LINE * 8}"}
    assert lines[-2].strip() == "A"
    assert lines[-1].strip() == "0 .. 12 tokens generated"
    outcome.left = 0
    lines = server_chart(outcome, width=40)
    assert cells(lines)[0] == f"{POINT}           {POINT}"
    assert lines[-2] == "    A  +       F"


def test_several_have_a_band_at_each_reading() -> None:
    samples = [Sample(0.1, 0, 0, 0, 0, (0, NOT_SENT)), Sample(0.2, 3, 3, 0, 6, (2, 0)), Sample(0.3, 7, 6, 6, 6, (3, 4))]
    found = cells(server_chart(Outcome(TWO, samples), width=40))
    assert [found[row][3:4] for row in range(7)] == [BAND] * 3 + [POINT] + [BAND] * 3
    assert [found[row][7:8].strip() for row in range(7)] == [""] * 6 + [POINT]
    assert found[0][:3] == f"{POINT}  "


def test_a_reading_that_does_not_fit_is_never_left_out() -> None:
    samples = [Sample(0.1, 5, 7, 2, 2, (5,)), Sample(0.2, 5, 2, 2, 2, (5,))]
    found = cells(server_chart(Outcome(ONE, samples), width=40))
    assert found[7][5] == BESIDE
    assert found[2][5] == LINE


@given(st.sampled_from(phases()), st.integers(60, 100), st.data())
def test_a_servers_chart_fits_the_terminal_and_keeps_its_size(phase: Phase, width: int, data: st.DataObject) -> None:
    """It grows by points alone: were its lines to move, a reader would see it flicker."""
    empty = server_chart(Outcome(phase), width=width)
    counts = sorted(data.draw(st.lists(st.integers(0, phase.generate), max_size=30)))
    blocks = [data.draw(st.integers(0, phase.most)) for _ in counts]
    samples = [
        Sample(0.0, n, used, 0, phase.most, (0,) * len(phase.asks)) for n, used in zip(counts, blocks, strict=True)
    ]
    lines = server_chart(Outcome(phase, samples), width=width)
    assert len(lines) == len(empty) <= HEIGHT + 5
    assert max(map(len, lines)) <= width
    assert list(cells(lines)) == list(cells(empty))
    assert sum(line.count(POINT) for line in lines) == len({_column(empty, phase, n) for n in counts})


def _column(lines: list[str], phase: Phase, tokens: int) -> int:
    """The column of a number of tokens, by counting the ground line's cells."""
    (ground,) = [line for line in lines if "└" in line]
    count = len(ground.partition("└")[2])
    places = phase.generate + 1
    return next(n for n in range(count) if tokens < (n + 1) * places // count)


def test_every_event_has_a_sign_of_its_own() -> None:
    assert len(set(SIGNS.values())) == len(SIGNS) == 5
    assert set(SIGNS) - set(SERVER_KINDS) == {"preempted"}
