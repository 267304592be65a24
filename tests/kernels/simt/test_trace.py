"""States and moves in a recorded trace, against a replay that keeps every state and knows no keyframes."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernels.simt import cuda, launch
from kernels.simt.cursor import Cursor
from kernels.simt.record import Recorder
from kernels.simt.trace import KEYFRAMES, KINDS, State, ThreadState, Trace, TraceError, Value

FULL = 0xFFFFFFFF
ROUNDS = 8


def helper(x, i):
    half = x / 2
    return half + i


def kernel(out, a):
    t = cuda.threadIdx.x
    s = cuda.shared.array(64, np.float32)
    total = np.float32(0)
    for i in range(ROUNDS):
        s[t] = helper(a[t], i)
        cuda.syncthreads()
        total += s[63 - t]
        cuda.syncthreads()
    for n in (16, 8, 4, 2, 1):
        total += cuda.shfl_xor_sync(FULL, total, n)
    out[t] = total


LINE = kernel.__code__.co_firstlineno
STORE, AFTER, SHUFFLE = LINE + 5, LINE + 7, LINE + 10


@cache
def traced(threads=(0, 33), limit=100_000):
    recorder = Recorder(threads, limit=limit)
    a = np.arange(64, dtype=np.float32)
    launch(kernel, 1, 64, (np.zeros(64, np.float32), a), tracer=recorder)
    return recorder.trace("case")


@cache
def every_state():
    """All states, one after another: no keyframe, no jump."""
    trace = traced()
    state = State(0, [ThreadState() for _ in trace.threads])
    found = [state.copy()]
    for _ in trace.events:
        trace.step(state)
        found.append(state.copy())
    return found


PLACES = st.integers(0, len(traced()))


def test_the_trace_is_long_enough_for_keyframes_to_matter():
    assert len(traced()) > 3 * KEYFRAMES
    assert len({letter for letter, kind in KINDS.items() if kind in {e.kind for e in traced().events}}) >= 8


@given(PLACES)
def test_a_jump_gives_the_state_that_walking_there_gives(at):
    assert traced().state(at) == every_state()[at]


@given(st.lists(PLACES, min_size=1, max_size=8))
def test_jumps_and_steps_never_change_what_a_place_holds(places):
    cursor = Cursor(traced())
    for at in places:
        cursor.to(at)
        assert cursor.state == every_state()[at]
        cursor.forward()
        assert cursor.state == every_state()[min(at + 1, len(traced()))]


@given(PLACES, st.integers(1, 100))
def test_forward_then_backward_comes_back_to_an_equal_state(at, steps):
    cursor = Cursor(traced())
    cursor.to(at)
    steps = min(steps, len(traced()) - at)
    for _ in range(steps):
        assert cursor.forward()
    assert cursor.at == at + steps
    for _ in range(steps):
        assert cursor.backward()
    assert cursor.at == at
    assert cursor.state == every_state()[at]


@given(st.integers(0, 1))
def test_one_threads_stops_are_its_events_in_both_directions(thread):
    trace = traced()
    cursor = Cursor(trace, thread)
    there = []
    while cursor.forward():
        there.append(cursor.at)
    assert there == [n + 1 for n, e in enumerate(trace.events) if e.thread == thread]
    back = []
    while cursor.backward():
        back.append(cursor.at)
    assert back == [*reversed(there[:-1]), 0]
    assert not cursor.backward()
    assert cursor.event is None


@given(st.integers(0, 1), PLACES)
def test_a_cursor_between_two_stops_steps_to_the_nearest_on_each_side(thread, at):
    trace = traced()
    stops = [n + 1 for n, e in enumerate(trace.events) if e.thread == thread]
    for move, wanted in (
        (Cursor.forward, min((s for s in stops if s > at), default=None)),
        (Cursor.backward, max((s for s in stops if s < at), default=0 if at else None)),
    ):
        cursor = Cursor(trace, thread)
        cursor.to(at)
        assert move(cursor) == (wanted is not None)
        assert cursor.at == (at if wanted is None else wanted)


@pytest.mark.parametrize("nth", range(1, ROUNDS + 1))
def test_to_the_nth_time_of_a_line(nth):
    cursor = Cursor(traced(), 1)
    assert cursor.to_line(STORE, nth)
    event = cursor.event
    assert event is not None
    assert (event.kind, event.line, event.thread) == ("line", STORE, 1)
    assert cursor.state.threads[1].variables["i"] == Value("int", nth - 1)
    assert cursor.state.threads[1].line == STORE


def test_a_time_or_line_that_never_comes_moves_nothing():
    cursor = Cursor(traced(), 0)
    cursor.to(10)
    assert not cursor.to_line(STORE, ROUNDS + 1)
    assert not cursor.to_line(LINE - 1)
    assert not cursor.to_line(STORE, file="elsewhere.py")
    assert not cursor.to_barrier(2 * ROUNDS)
    assert cursor.at == 10
    assert cursor.state == every_state()[10]


def test_next_time_and_last_time_of_the_line_here():
    cursor = Cursor(traced(), 0)
    cursor.to_line(SHUFFLE, 2)
    assert cursor.next_time()
    assert cursor.state.threads[0].variables["n"] == Value("int", 4)
    assert cursor.next_time(back=True)
    assert cursor.next_time(back=True)
    assert cursor.state.threads[0].variables["n"] == Value("int", 16)
    assert not cursor.next_time(back=True)


@pytest.mark.parametrize("interval", range(2 * ROUNDS))
def test_to_a_barrier(interval):
    cursor = Cursor(traced(), 1)
    assert cursor.to_barrier(interval)
    thread = cursor.state.threads[1]
    assert (thread.interval, thread.doing, thread.waits) == (interval, "waits in syncthreads", True)
    assert thread.line == (STORE + 1 if interval % 2 == 0 else AFTER + 1)
    cursor.forward()
    thread = cursor.state.threads[1]
    assert (thread.interval, thread.doing, thread.waits) == (interval + 1, "running", False)


def test_next_barrier_visits_them_all():
    cursor = Cursor(traced(), 0)
    found = []
    while cursor.next_barrier():
        assert cursor.event is not None
        found.append(cursor.event.interval)
    assert found == list(range(2 * ROUNDS))


def test_stepping_by_lines_into_and_over_a_call():
    cursor = Cursor(traced(), 0)
    cursor.to_line(STORE)
    assert cursor.next_line()
    assert len(cursor.state.threads[0].frames) == 2
    assert cursor.previous_line()
    assert cursor.event is not None
    assert cursor.event.line == STORE
    assert cursor.next_line(over=True)
    assert cursor.event.line == STORE + 1
    assert cursor.previous_line(over=True)
    assert cursor.event.line == STORE


def test_cells_are_the_last_that_any_traced_thread_saw():
    trace = traced()
    (s,) = (n for n, a in enumerate(trace.arrays) if a.name == "s")
    end = trace.state(len(trace))
    # The last round: s[t] = t / 2 + 7; thread 0 read s[63], thread 33 read s[30].
    assert end.cells(s) == {n: Value("float32", n / 2 + 7) for n in (0, 30, 33, 63)}
    assert set(end.threads[0].seen[s]) == {0, 63}
    cursor = Cursor(trace, 0)
    cursor.to_line(AFTER)
    assert cursor.state.cells(s)[0] == Value("float32", 0.0)
    assert 63 not in cursor.state.cells(s)


def test_the_last_access_is_known():
    trace = traced()
    end = trace.state(len(trace)).threads[1]
    last = trace.events[end.last_access]
    assert (last.kind, trace.arrays[last.array].name, last.index) == ("write", "out", 33)


def test_effects_are_what_a_line_changed_also_across_a_call():
    def caller(out):
        x = helper(np.float64(3), 1)
        out[0] = x

    recorder = Recorder([0])
    launch(caller, 1, 1, (np.zeros(1),), tracer=recorder)
    trace = recorder.trace()
    (at,) = trace.visits(0, caller.__code__.co_firstlineno + 1)
    assert trace.effects(at) == (("x", Value("float64", 2.5)),)
    (last,) = trace.visits(0, caller.__code__.co_firstlineno + 2)
    assert trace.effects(last) == ()


def test_a_cut_trace_can_be_walked_to_its_end():
    trace = traced(limit=50)
    assert trace.truncated is not None
    assert trace.state(50) == every_state()[50]
    assert str(trace.truncated).startswith("cut at 50 events: 50 of ")


def test_wrong_use():
    trace = traced()
    for at in (-1, len(trace) + 1):
        with pytest.raises(TraceError, match="at = "):
            trace.state(at)
        with pytest.raises(TraceError, match="at = "):
            Cursor(trace).to(at)
    with pytest.raises(TraceError, match="times count from 1"):
        Cursor(trace).to_line(STORE, 0)
    with pytest.raises(TraceError, match="has 2 threads"):
        Cursor(trace, 2)


def test_an_empty_trace_has_one_state():
    trace = Trace("k", "in-order", (1, 1, 1), (1, 1, 1), 0, (), (), (), (), ())
    assert trace.state(0) == State(0, [])
    assert not Cursor(trace).forward()
    assert not Cursor(trace).backward()
