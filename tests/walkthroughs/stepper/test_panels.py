"""The panes beside the code, as text: nothing wider than its pane, nothing told by colour alone."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from walkthroughs.evidence import Check, Evidence, Measurement
from walkthroughs.stepper import panels
from walkthroughs.stepper.opening import Proof
from walkthroughs.stepper.palette import DARK, LIGHT, code_style
from walkthroughs.stepper.picture import FREE, LANE, MINE, NOW, SEEN, Block, Entry, PoolPicture, Table
from walkthroughs.stepper.shots import Shot
from walkthroughs.stepper.view import Lane, Lanes

from .test_view import camera, moments  # isort: skip

WIDTHS = st.integers(38, 160)


@given(st.data())
def test_values_fit_and_lose_nothing(shots: dict[str, Shot], classic: Shot, data: st.DataObject) -> None:
    shot = data.draw(st.sampled_from([*shots.values(), classic]))
    moment = data.draw(st.integers(0, len(shot.history)))
    width = data.draw(WIDTHS)
    view = camera(shot, moment).view(["i", "accs"])
    text = panels.values(view, width, DARK).plain
    for variable in [*view.variables, *view.running, *view.watched]:
        assert f"{variable.name} = " in text
    for variable in view.variables:
        if variable.changed:
            assert re.search(rf"● {variable.name} = ", text)
    for call in view.stack:
        assert call.function in text
    # The functions that run may fold; the values' lines may not.
    assert all(len(line) <= width for line in text.split("\n")[1:])


@given(st.data())
def test_lanes_fit_and_are_all_there(classic: Shot, data: st.DataObject) -> None:
    moment = data.draw(st.integers(0, len(classic.history)))
    width = data.draw(WIDTHS)
    view = camera(classic, moment).view(subject=data.draw(st.sampled_from(["", "qk_max", "lane", "k_offset"])))
    lines = panels.lanes(view.lanes, view.thread, width, DARK).plain.split("\n")
    assert f"{view.lanes.active} of 32 in step" in lines[0]
    cells = [cell for line in lines[1:] for cell in line[3:].replace("▸", " ").split()]
    assert cells == [cell.text for cell in view.lanes.cells]
    assert sum(line.count("▸") for line in lines) == 1
    assert all(len(line) <= width for line in lines[1:])


def test_eight_lanes_a_line_at_eighty_columns() -> None:
    cells = tuple(Lane(lane, lane, True, "-3.4e+38") for lane in range(32))
    lines = panels.lanes(Lanes(0, "qk_max", cells), 0, 77, DARK).plain.split("\n")
    assert len(lines) == 1 + 4


TABLE = Table(
    "block_tables",
    "blocks",
    (
        Entry(6, 0, "7", used=True, seen=True, now=False),
        Entry(7, 1, "10", used=True, seen=False, now=True),
        Entry(8, 2, "3", used=False, seen=False, now=False),
    ),
)
SIGNS = f"{NOW}{LANE}{SEEN}{MINE}{FREE}"
POOLS = (
    PoolPicture("k_cache", (Block(0, None, FREE * 5), Block(1, 1, SIGNS)), now=True, latest=True),
    PoolPicture("v_cache", (Block(0, 0, MINE * 5), Block(1, None, FREE * 5)), now=False),
)


def test_the_table_and_the_pools() -> None:
    lines = panels.memory(TABLE, POOLS, 77, DARK).plain.split("\n")
    assert lines == [
        "block_tables  logical    0    1    2",
        "              physical   7  [10]   3",
        "k_cache  2 blocks                v_cache  2 blocks",
        "  0 ·····  1→1 █▓▒░·             0→0 ░░░░░    1 ·····",
        "█ thread  ▓ warp  ▒ before  ░ used  · free",
    ]


def test_pools_stand_below_each_other_where_it_is_narrow() -> None:
    lines = panels.memory(None, POOLS, 20, DARK).plain.split("\n")
    assert [line for line in lines if "cache" in line] == ["k_cache  2 blocks", "v_cache  2 blocks"]
    assert max(map(len, lines[:-1])) <= 20


def test_only_the_latest_pool_where_it_is_low() -> None:
    text = panels.memory(TABLE, POOLS, 20, DARK, height=5).plain
    assert "k_cache" in text
    assert "v_cache" not in text
    assert "v_cache" in panels.memory(TABLE, POOLS, 20, DARK, height=50).plain


def test_a_slot_mapping_is_called_so() -> None:
    text = panels.memory(replace(TABLE, kind="slots"), (), 77, DARK).plain
    assert "token" in text
    assert "slot" in text


def test_no_memory_is_said() -> None:
    assert "no block table" in panels.memory(None, (), 40, DARK).plain


@pytest.mark.parametrize("width", [38, 43, 50, 77])
def test_the_pool_of_a_real_film_fits(classic: Shot, width: int) -> None:
    view = camera(classic, moments(classic, "read", "k_cache")[0]).view()
    lines = panels.memory(view.table, view.pools, width, DARK).plain.split("\n")
    assert max(map(len, lines)) <= width
    text = "\n".join(lines)
    # One slot is this thread's, fifteen are its warp's: sixteen tokens in one breath.
    assert text.count("█") - ("█ thread" in text) == 1
    assert text.count("▓") - ("▓ warp" in text) == 15


RECORD = Evidence(
    "a/x", "failed", "cuda", "a GPU", "1", {}, "2026-01-02T03:04:05Z", 0, {},
    (Check("first", True, "[1]", "[1]", 0.0, 0.0, "by hand"), Check("second", False, "2", "3", 1.0, 0.0)), 0.1,
    measured=(Measurement("time", 2.0, "us"),),
)  # fmt: skip


def test_the_proof_of_a_step() -> None:
    lines = panels.proof(Proof(RECORD, "failed", "a GPU, 2026-01-02"), DARK).plain.split("\n")
    assert lines == [
        "Failed  a GPU, 2026-01-02",
        "✓ first: [1]  by hand",
        "✗ second: 2  expected 3",
        "· time: 2 us",
    ]


def test_no_record() -> None:
    assert panels.proof(Proof(None, "unavailable", "not yet"), DARK).plain == "Unavailable  not yet"


@pytest.mark.parametrize("palette", [DARK, LIGHT])
def test_the_longest_prefix_colours_code(palette: object) -> None:
    table = (("k", "bold"), ("kt", "italic"))
    assert str(code_style(table, "kd")) == "bold"
    assert str(code_style(table, "kt")) == "italic"
    assert str(code_style(table, "x")) == "none"


def test_both_palettes_know_the_same() -> None:
    assert DARK.code.keys() == LIGHT.code.keys()


@given(st.text("ab cd", max_size=90), st.text("123", max_size=20), st.integers(40, 100))
def test_a_line_with_two_ends(left: str, right: str, width: int) -> None:
    line = panels.apart(left, right, width).plain
    assert len(line) == width
    assert line.endswith(right)
    assert line.startswith(left) or "…" in line


@given(st.text("path/", max_size=90), st.integers(30, 100))
def test_tabs(caption: str, width: int) -> None:
    line = panels.tabs({"1 Story": True, "2 Upstream": False}, caption, width, DARK)
    assert len(line.plain) <= width
    assert line.plain.startswith(" 1 Story   2 Upstream"[: width - 1])
    assert "reverse" in str(line.spans[0].style)
    assert "reverse" not in str(line.spans[2].style)
