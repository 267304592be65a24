"""Views against the trace's state, computed by brute force; and that going there and back changes nothing."""

from __future__ import annotations

from math import prod
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernels.simt.trace import Value
from walkthroughs.stepper.films import join
from walkthroughs.stepper.narrate import brief, number
from walkthroughs.stepper.picture import Stage
from walkthroughs.stepper.player import Player
from walkthroughs.stepper.shots import Shot
from walkthroughs.stepper.view import NOTHING, SHOWN, Camera, flat_index, is_watchable

from .conftest import QUICK  # isort: skip
from .test_history import lockstep_by_hand, state_of  # isort: skip


def camera(shot: Shot, moment: int = 0) -> Camera:
    return Camera(Player(shot, moment), join(shot.film), Stage(shot))


def lanes_by_hand(shot: Shot, moment: int) -> dict[int, Any]:
    """Thread number -> its state in lockstep, or None."""
    found = {}
    for at, thread in enumerate(shot.trace.threads):
        if thread.number // 32 == shot.focus // 32:
            there = lockstep_by_hand(shot.trace, shot.thread, moment, at)
            found[at] = None if there is None else state_of(shot.trace, at, there)
    return found


def text_by_hand(shot: Shot, value: Value, states: dict[int, Any]) -> str:
    """A value as the panel should show it, from the threads' states."""
    if not isinstance(value.data, tuple):
        return number(value)
    array, first, *shape = value.data
    info = shot.trace.arrays[array]
    head = f"{info.space} {info.dtype}[{', '.join(map(str, shape))}]"
    latest: dict[int, tuple[int, Value]] = {}
    for at, state in states.items():
        if state is not None and (info.space != "local" or at == info.owner):
            for index, (seen, event) in state.seen.get(array, {}).items():
                latest[index] = max(latest.get(index, (-1, seen)), (event, seen), key=lambda pair: pair[0])
    elements = [latest.get(index) for index in range(first, first + prod(shape))]
    if info.space == "global" or not any(elements):
        return head
    cells = [NOTHING if element is None else number(element[1]) for element in elements[:SHOWN]]
    return f"{head}  {' '.join(cells)}{' …' if len(elements) > SHOWN else ''}"


@given(st.data())
def test_a_view_is_what_the_state_says(shots: dict[str, Shot], classic: Shot, data: st.DataObject) -> None:
    shot = data.draw(st.sampled_from([*shots.values(), classic]))
    moment = data.draw(st.integers(0, len(shot.history)))
    view = camera(shot, moment).view()
    truth = state_of(shot.trace, shot.thread, moment)
    states = lanes_by_hand(shot, moment)
    assert [(v.name, v.text) for v in view.variables] == [
        (name, text_by_hand(shot, value, states)) for name, value in truth.variables.items()
    ]
    files, functions = shot.trace.files, shot.trace.functions
    assert [(call.function, call.file, call.line) for call in view.stack] == [
        (functions[f.function].name, files[functions[f.function].file].path, f.line) for f in reversed(truth.frames)
    ]
    assert (view.interval, view.waits) == (truth.interval, truth.waits)
    assert [lane.active for lane in view.lanes.cells] == [state is not None for state in states.values()]
    for name, variable in zip(shot.film.scene.running, view.running, strict=True):
        holders = [frame.variables[name] for frame in reversed(truth.frames) if name in frame.variables]
        assert variable.text == (text_by_hand(shot, holders[0], states) if holders else NOTHING)


@given(st.data())
def test_step_then_back_is_the_same_view(shots: dict[str, Shot], classic: Shot, data: st.DataObject) -> None:
    shot = data.draw(st.sampled_from([*shots.values(), classic]))
    made = camera(shot, data.draw(st.integers(0, len(shot.history) - 1)))
    before = made.view(["i"], "")
    made.player.forward()
    assert made.view(["i"], "").moment == before.moment + 1
    made.player.backward()
    assert made.view(["i"], "") == before


@given(st.data())
def test_a_view_does_not_depend_on_the_way_there(shots: dict[str, Shot], data: st.DataObject) -> None:
    shot = shots[data.draw(st.sampled_from(QUICK))]
    made = camera(shot)
    moments = data.draw(st.lists(st.integers(0, len(shot.history)), min_size=1, max_size=5))
    for moment in moments:
        made.player.go(moment)
        made.view()
    assert made.view() == camera(shot, moments[-1]).view()


@given(st.data())
def test_the_lanes_show_a_chosen_variable(classic: Shot, data: st.DataObject) -> None:
    moment = data.draw(st.integers(0, len(classic.history)))
    name = data.draw(st.sampled_from(["qk_max", "token_idx", "thread_idx", "lane", "nobody"]))
    lanes = camera(classic, moment).view(subject=name).lanes
    assert lanes.title == name
    for cell, state in zip(lanes.cells, lanes_by_hand(classic, moment).values(), strict=True):
        frames = [] if state is None else [f.variables for f in reversed(state.frames) if name in f.variables]
        assert cell.text == (brief(frames[0][name]) if frames else NOTHING)


def test_the_lanes_show_the_elements_that_they_read(classic: Shot) -> None:
    """A warp reads 32 pieces of a key in one breath: each lane its own, none twice."""
    reads = moments(classic, "read", "k_cache")
    lanes = camera(classic, reads[0]).view().lanes
    assert lanes.title == "element of k_cache"
    elements = [int(cell.text) for cell in lanes.cells]
    assert len(set(elements)) == lanes.active == 32
    # Two threads share a token: 2 elements of 4 bytes each, side by side; 16 tokens make one run.
    assert sorted(elements) == list(range(min(elements), min(elements) + 64, 2))


def test_the_lanes_show_what_a_shuffle_gives(classic: Shot) -> None:
    shuffles = [m for m in moments(classic, "warp") if "shfl_xor" in classic.history.event(m).what]  # type: ignore[union-attr]
    view = camera(classic, shuffles[0]).view()
    assert view.lanes.title == "what shfl_xor_sync gives"
    given_now = [brief(classic.trace.events[h.numbers[m - 1]].result) for h, m in in_step(classic, shuffles[0])]
    assert [cell.text for cell in view.lanes.cells] == given_now


def in_step(shot: Shot, moment: int) -> list[tuple[Any, int]]:
    found = []
    for at in shot.lanes:
        there = lockstep_by_hand(shot.trace, shot.thread, moment, at)
        assert there is not None
        found.append((shot.histories[at], there))
    return found


def moments(shot: Shot, kind: str, array: str = "") -> list[int]:
    found = []
    for moment in range(1, len(shot.history) + 1):
        event = shot.history.event(moment)
        assert event is not None
        if event.kind == kind and (not array or shot.trace.arrays[event.array].name == array):
            found.append(moment)
    return found


def test_what_changed_is_marked_with_what_it_was(shots: dict[str, Shot]) -> None:
    shot = shots["gather"]
    made = camera(shot)
    marked = 0
    for moment in range(1, len(shot.history)):
        made.player.go(moment)
        event = shot.history.event(moment)
        assert event is not None
        if event.kind != "line":
            continue
        changed = {v.name: v for v in made.view().variables if v.changed}
        assert set(changed) == {name for name, _ in event.changed}
        before = state_of(shot.trace, shot.thread, moment - 1).variables
        for name, variable in changed.items():
            assert variable.was == (number(before[name]) if name in before else "")
            marked += bool(variable.was)
    assert marked > 20


def test_watched_elements(classic: Shot) -> None:
    writes = moments(classic, "write", "logits")
    moment = writes[0]
    event = classic.history.event(moment)
    assert event is not None
    view = camera(classic, moment).view([f"logits[{event.index}]", "logits[99999]", "qk_max[0]", "not here"])
    assert [v.text for v in view.watched] == [number(event.value), NOTHING, NOTHING, NOTHING]


def test_elements_of_small_global_arrays_are_known_before_they_are_read(classic: Shot) -> None:
    first = camera(classic, 2).view(["block_tables[6]", "block_tables[7]"])
    data = classic.trace.arrays[[a.name for a in classic.trace.arrays].index("block_tables")].data
    assert data is not None
    assert [v.text for v in first.watched] == [str(data[6]), str(data[7])]


@pytest.mark.parametrize(
    ("index", "flat"),
    [((0,), 8), ((5,), 13), ((6,), None), ((0, 0), 8), ((1, 2), 13), ((2, 0), None), ((0, 3), None), ((0, 0, 0), None)],
)
def test_flat_index(index: tuple[int, ...], flat: int | None) -> None:
    assert flat_index(Value("array", (4, 8, 2, 3)), index) == flat


def test_what_is_no_array_has_no_elements() -> None:
    assert flat_index(Value("int", 3), (0,)) is None


@pytest.mark.parametrize("name", ["qk", "accs[3]", " q_vecs[0, 1,2] ", "_x9"])
def test_watchable(name: str) -> None:
    assert is_watchable(name)


@pytest.mark.parametrize("name", ["", "1x", "a b", "a[", "a[-1]", "a[i]", "a.b", "a[0]; b"])
def test_not_watchable(name: str) -> None:
    assert not is_watchable(name)
