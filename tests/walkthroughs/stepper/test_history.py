"""A thread's history against the trace's own state, moment by moment, and lockstep against counting by hand."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernels.simt.trace import Trace, Value
from walkthroughs.stepper.history import History, in_lockstep
from walkthroughs.stepper.shots import Shot

from .conftest import QUICK  # isort: skip


def state_of(trace: Trace, thread: int, moment: int) -> Any:
    """A thread after its first `moment` events, from the trace's state."""
    numbers = trace.events_of(thread)
    return trace.state(numbers[moment - 1] + 1 if moment else 0).threads[thread]


@given(st.data())
def test_history_is_what_the_state_says(shots: dict[str, Shot], data: st.DataObject) -> None:
    shot = shots[data.draw(st.sampled_from(QUICK))]
    thread = data.draw(st.integers(0, len(shot.trace.threads) - 1))
    history = shot.histories[thread]
    moment = data.draw(st.integers(0, len(history)))
    truth = state_of(shot.trace, thread, moment)
    assert history.variables(moment) == truth.variables
    assert list(history.variables(moment)) == list(truth.variables)
    assert history.line(moment) == truth.line
    frames = history.stack(moment)
    assert [history.function(frame) for frame in frames] == [frame.function for frame in truth.frames][::-1]
    assert [history.line_of(frame, moment) for frame in frames] == [frame.line for frame in truth.frames][::-1]
    assert [history.variables(moment, frame) for frame in frames] == [f.variables for f in truth.frames][::-1]
    for array in range(len(shot.trace.arrays)):
        seen = {index: (number, value) for index, (value, number) in truth.seen.get(array, {}).items()}
        assert history.cells(moment, array) == seen


@given(st.data())
def test_a_name_means_the_innermost_function_that_has_it(shots: dict[str, Shot], data: st.DataObject) -> None:
    shot = shots[data.draw(st.sampled_from(QUICK))]
    history = shot.history
    moment = data.draw(st.integers(0, len(history)))
    frames = state_of(shot.trace, shot.thread, moment).frames
    names = {name for frame in frames for name in frame.variables}
    for name in names:
        expected = next(frame.variables[name] for frame in reversed(frames) if name in frame.variables)
        assert history.variable(moment, name) == expected
    assert history.variable(moment, "no_such_name") is None


def lockstep_by_hand(trace: Trace, focus: int, moment: int, other: int) -> int | None:
    """Count visits in the events themselves."""
    events = [trace.events[n] for n in trace.events_of(focus)][:moment]
    begins = [at for at, event in enumerate(events) if event.kind in ("line", "call")]
    if not begins:
        return 0
    last = events[begins[-1]]
    key = (last.kind, last.function, last.line)
    nth = sum((e.kind, e.function, e.line) == key for e in events)
    behind = moment - 1 - begins[-1]
    others = [trace.events[n] for n in trace.events_of(other)]
    found = [at for at, e in enumerate(others) if (e.kind, e.function, e.line) == key]
    if len(found) < nth:
        return None
    at = found[nth - 1] + 1
    while behind and at < len(others) and others[at].kind not in ("line", "call"):
        at, behind = at + 1, behind - 1
    return at


@given(st.data())
def test_lockstep_is_the_same_visit_of_the_same_line(shots: dict[str, Shot], data: st.DataObject) -> None:
    shot = shots[data.draw(st.sampled_from(QUICK))]
    moment = data.draw(st.integers(0, len(shot.history)))
    for other in shot.histories:
        expected = lockstep_by_hand(shot.trace, shot.thread, moment, other.thread)
        assert in_lockstep(shot.history, moment, other) == expected


@given(st.data())
def test_a_thread_is_in_lockstep_with_itself(classic: Shot, data: st.DataObject) -> None:
    moment = data.draw(st.integers(0, len(classic.history)))
    assert in_lockstep(classic.history, moment, classic.history) == moment


def test_a_lane_that_never_comes_is_masked_off(classic: Shot) -> None:
    """Only the first thread of a group keeps a score: the others never come to the line that stores it."""
    history = classic.history
    storing = [
        moment
        for moment in range(1, len(history) + 1)
        if (event := history.event(moment)) is not None and event.kind == "write" and "logits" in named(classic, event)
    ]
    lanes = [classic.histories[at] for at in classic.lanes]
    here = [in_lockstep(history, storing[0], other) is not None for other in lanes]
    assert here == [lane % 2 == 0 for lane in range(32)]


def named(shot: Shot, event: Any) -> str:
    return shot.trace.arrays[event.array].name


def test_changed_are_the_names_of_the_last_line(shots: dict[str, Shot]) -> None:
    history = shots["gather"].history
    for moment in range(1, len(history) + 1):
        event = history.event(moment)
        assert event is not None
        if event.kind in ("line", "call"):
            assert history.changed(moment) == tuple(name for name, value in event.changed if value is not None)
        elif event.kind not in ("return", "end"):
            assert history.changed(moment) == history.changed(moment - 1)


def test_what_told_orders_by_the_last_change(shots: dict[str, Shot]) -> None:
    history = shots["gather"].history
    for moment in range(1, len(history)):
        frames = history.stack(moment)
        event = history.event(moment)
        if frames and event is not None and event.kind == "line" and len(event.changed) == 1:
            assert history.told(frames[0], moment)[-1] == event.changed[0][0]


def test_local_arrays_that_are_made_anew_are_empty() -> None:
    """A hand-made trace: an array is filled, made again, and filled in another place."""
    from kernels.simt.trace import ArrayInfo, Event, File, Function, Thread

    one = Value("int", 1)
    spot = {"function": 0, "depth": 0, "line": 2}
    events = (
        Event("call", 0, function=0, depth=0, line=1),
        Event("line", 0, **spot),
        Event("alloc", 0, what="local", array=0, **spot),
        Event("write", 0, array=0, index=3, value=one, **spot),
        Event("line", 0, **spot),
        Event("alloc", 0, what="local", array=0, **spot),
        Event("write", 0, array=0, index=1, value=one, **spot),
        Event("end", 0, what="returned"),
    )
    trace = Trace(
        "k", "in-order", (1, 1, 1), (1, 1, 1), 0, (File("k.py", None),), (Function("k", 0, 1),),
        (Thread((0, 0, 0), (0, 0, 0), 0),), (ArrayInfo("a", "local", "int64", (4,), 0),), events,
    )  # fmt: skip
    history = History(trace, 0)
    assert [set(history.cells(moment, 0)) for moment in range(9)] == [
        set(), set(), set(), set(), {3}, {3}, set(), {1}, {1},
    ]  # fmt: skip
    assert [history.nth(moment) for moment in range(9)] == [0, 1, 1, 1, 1, 2, 2, 2, 2]
    assert history.visits(("line", 0, 2)) == 2


@pytest.mark.parametrize("name", QUICK)
def test_it_ends_where_the_thread_ends(shots: dict[str, Shot], name: str) -> None:
    history = shots[name].history
    assert history.variables(0) == {}
    assert history.event(0) is None
    last = history.event(len(history))
    assert last is not None
    assert last.kind == "end"
    assert history.stack(len(history)) == ()
