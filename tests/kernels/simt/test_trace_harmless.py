"""Recording leaves no mark on a launch, refuses what it cannot record, and says when it was cut."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernels.errors import BackendUnavailable
from kernels.kernel import Backend
from kernels.simt import cuda, launch
from kernels.simt.access import Observer
from kernels.simt.record import Recorder, value_of
from kernels.simt.record_thread import TracedLane, linear
from kernels.simt.trace import TraceError, Value
from kernels.simt.warp import Lane

FULL = 0xFFFFFFFF


def record(fn, grid, block, args, threads=(0,), blocks=(0,), *, limit=10_000, **options):
    recorder = Recorder(threads, blocks, limit=limit)
    launch(fn, grid, block, args, tracer=recorder, **options)
    return recorder.trace()


def mixed(out, a):
    t = cuda.threadIdx.x
    s = cuda.shared.array(64, np.float32)
    s[t] = a[t]
    cuda.syncthreads()
    x = s[63 - t]
    for n in (16, 8, 4, 2, 1):
        x += cuda.shfl_xor_sync(FULL, x, n)
    cuda.atomic.add(out, 64, x)
    out[t] = x + t


@given(
    st.sets(st.integers(0, 63), min_size=1, max_size=4),
    st.sampled_from(["in-order", "reversed", "random:1", "random:2"]),
    st.integers(1, 60),
)
def test_outputs_and_reports_are_the_same_with_and_without(threads, schedule, limit):
    a = np.random.default_rng(0).standard_normal(64).astype(np.float32)
    plain, traced = np.zeros(65, np.float32), np.zeros(65, np.float32)
    recorder = Recorder(threads, limit=limit)
    reports = [
        launch(mixed, 1, 64, (plain, a), schedule=schedule),
        launch(mixed, 1, 64, (traced, a), schedule=schedule, tracer=recorder),
    ]
    assert (plain == traced).all()
    assert reports[0] == reports[1]
    assert sys.gettrace() is None
    whole = Recorder(threads)
    launch(mixed, 1, 64, (np.zeros(65, np.float32), a), schedule=schedule, tracer=whole)
    assert recorder.total == whole.total
    assert recorder.events == whole.events[:limit]


def test_a_trace_function_that_was_there_is_there_again():
    seen = []

    def outer(frame, event, arg):
        seen.append(event)

    def kernel(a):
        cuda.syncwarp()
        a[0] = 1

    before = sys.gettrace()
    recorder = Recorder([0])
    sys.settrace(outer)
    try:
        launch(kernel, 1, 2, (np.zeros(1),), tracer=recorder)
        after = sys.gettrace()
    finally:
        sys.settrace(before)
    assert after is outer
    assert seen
    assert "warp" in [e.kind for e in recorder.events]


def test_other_threads_run_without_a_trace_function():
    def kernel(out):
        out[cuda.threadIdx.x] = sys.gettrace() is not None
        cuda.syncwarp()
        out[cuda.threadIdx.x] += 10 * (sys.gettrace() is not None)

    out = np.zeros(40, np.int32)
    recorder = Recorder([1, 35])
    launch(kernel, 1, 40, (out,), tracer=recorder)
    assert np.flatnonzero(out).tolist() == [1, 35]
    assert out[1] == out[35] == 11


def test_without_a_recorder_lanes_are_the_plain_ones():
    kinds = []

    def kernel():
        kinds.append(type(cuda.threadIdx))

    launch(kernel, 1, 2, ())
    launch(kernel, 1, 2, (), tracer=Recorder([1]))
    assert kinds == [Lane, Lane, Lane, TracedLane]


def test_an_observer_beside_the_recorder_sees_the_same_accesses_as_without():
    class Counts(Observer):
        def __init__(self):
            self.seen = []

        def access(self, kind, memory, index, count, value, lane, code, lasti):
            self.seen.append((kind, memory.name, index, lane.number))

    a = np.zeros(64, np.float32)
    alone, beside = Counts(), Counts()
    recorder = Recorder([0])
    launch(mixed, 1, 64, (np.zeros(65, np.float32), a), observers=[alone])
    launch(mixed, 1, 64, (np.zeros(65, np.float32), a), observers=[beside], tracer=recorder)
    assert alone.seen == beside.seen
    plain = Recorder([0])
    launch(mixed, 1, 64, (np.zeros(65, np.float32), a), tracer=plain)
    assert [e.kind for e in plain.events] == [e.kind for e in recorder.events]
    assert [e.index for e in plain.events] == [e.index for e in recorder.events]


# Wrong use and limits.


@pytest.mark.parametrize(
    ("threads", "blocks", "said"),
    [
        ([8], [0], r"thread 8: there are 8, 0 to 7"),
        ([(0, 2)], [0], r"thread 0,2: .* below 4,2,1"),
        ([-1], [0], r"thread -1"),
        ([0], [3], r"block 3: there are 3, 0 to 2"),
        ([(0, 0, 0, 0)], [0], r"thread 0,0,0,0"),
    ],
)
def test_a_thread_outside_the_launch_is_refused_with_the_range(threads, blocks, said):
    with pytest.raises(TraceError, match=said):
        record(lambda: None, 3, (4, 2), (), threads, blocks)
    assert not cuda.running


def test_what_no_trace_can_be():
    with pytest.raises(TraceError, match="limit = 0"):
        Recorder([0], limit=0)
    with pytest.raises(TraceError, match="at least one"):
        Recorder([])
    with pytest.raises(TraceError, match="nothing was recorded"):
        Recorder([0]).trace()


def test_a_run_past_the_limit_is_cut_with_the_counts():
    def kernel(a, n):
        for i in range(n):
            a[0] = i

    whole = record(kernel, 1, 1, (np.zeros(1), 10))
    cut = record(kernel, 1, 1, (np.zeros(1), 10), limit=7)
    assert whole.truncated is None
    assert cut.events == whole.events[:7]
    assert cut.truncated is not None
    assert (cut.truncated.by, cut.truncated.limit) == ("events", 7)
    assert (cut.truncated.kept, cut.truncated.total) == (7, len(whole))


def test_the_first_of_several_launches_is_recorded_and_the_others_are_counted():
    def kernel(a):
        a[0] += 1

    recorder = Recorder([0])
    a = np.zeros(1)
    for _ in range(3):
        launch(kernel, 1, 1, (a,), tracer=recorder)
    assert a[0] == 3
    assert recorder.trace().launches == 3
    assert len(recorder.trace()) == 6


@pytest.mark.parametrize("nth", [1, 2, 3])
def test_another_launch_can_be_recorded_instead(nth):
    def kernel(a):
        a[0] += 1

    recorder = Recorder([0], nth=nth)
    a = np.zeros(1)
    for _ in range(3):
        launch(kernel, 1, 1, (a,), tracer=recorder)
    assert a[0] == 3
    trace = recorder.trace()
    assert trace.launches == 3
    assert [event.value.data for event in trace.events if event.kind == "write"] == [nth]


def test_a_launch_that_was_not_made_is_named():
    with pytest.raises(TraceError, match="nth = 0: launches count from 1"):
        Recorder([0], nth=0)
    recorder = Recorder([0], nth=2)
    launch(lambda a: None, 1, 1, (np.zeros(1),), tracer=recorder)
    with pytest.raises(TraceError, match="nth = 2: the run made 1 launch"):
        recorder.trace()


def test_only_the_machine_can_be_traced():
    with pytest.raises(BackendUnavailable, match="only the SIMT machine"):
        Backend("cuda", tracer=Recorder([0]))
    assert Backend("sim", tracer=Recorder([0])) == Backend("sim")


@pytest.mark.parametrize(
    ("item", "type_", "data"),
    [
        (np.float32(0.1), "float32", float(np.float32(0.1))),
        (np.int16(-3), "int16", -3),
        (np.bool_(True), "bool", True),
        (True, "bool", True),
        (2**70, "int", 2**70),
        (1.5, "float", 1.5),
        (None, "none", None),
        ((1, 2), "text", "(1, 2)"),
        (object(), "text", "<object>"),
        ("x" * 200, "text", "'" + "x" * 79),
    ],
)
def test_values(item, type_, data):
    assert value_of(item) == Value(type_, data)


def test_nan_equals_itself_and_shows():
    assert value_of(np.float32("nan")) == value_of(np.float32("nan"))
    assert str(value_of(np.float32(0.1))) == "0.1"
    assert str(value_of(0.1)) == "0.1"


@given(st.tuples(st.integers(1, 5), st.integers(1, 5), st.integers(1, 5)), st.data())
def test_linear_numbers(sizes, data):
    x, y, z = sizes
    number = data.draw(st.integers(0, x * y * z - 1))
    assert linear((number % x, number // x % y, number // (x * y)), sizes) == number


def test_a_launch_without_a_recorder_does_not_even_load_one():
    code = "import sys, kernels.simt as s; s.launch(lambda: None, 1, 1, ()); print(sorted(sys.modules))"
    root = Path(__file__).resolve().parents[3]
    done = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True)
    assert "'kernels.simt.machine'" in done.stdout
    assert "kernels.simt.record" not in done.stdout
    assert "kernels.simt.trace" not in done.stdout
