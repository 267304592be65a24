"""What is recorded: small kernels, event by event, against lists written by hand."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

import numpy as np
import pytest

from kernels.simt import BarrierDivergence, OutOfBounds, UninitialisedRead, cuda, launch
from kernels.simt.record import Recorder
from kernels.simt.record_thread import source_lane
from kernels.simt.trace import TraceError, Value

FULL = 0xFFFFFFFF


def record(fn, grid, block, args, threads=(0,), blocks=(0,), *, limit=10_000, **options):
    recorder = Recorder(threads, blocks, limit=limit)
    launch(fn, grid, block, args, tracer=recorder, **options)
    return recorder.trace()


def told(trace, fn):
    """Every event as a short tuple, with lines counted from the kernel's `def`."""
    first = fn.__code__.co_firstlineno
    found = []
    for e in trace.events:
        changed = {name: None if value is None else value.data for name, value in e.changed}
        data = [None if item is None else item.data for item in (e.value, e.result)]
        line = e.line - first
        match e.kind:
            case "call" | "line":
                found.append((e.kind, line, changed))
            case "return":
                found.append(("return", line, data[0], changed))
            case "alloc":
                found.append(("alloc", trace.arrays[e.array].name))
            case "read" | "write":
                found.append((e.kind, trace.arrays[e.array].name, e.index, data[0]))
            case "atomic":
                found.append(("atomic", e.what, trace.arrays[e.array].name, e.index, *data))
            case "warp":
                found.append(("warp", e.what, e.source, *data))
            case "barrier":
                found.append(("barrier", e.what, e.interval, data[0]))
            case "end":
                found.append(("end", e.what, data[0]))
    return found


def test_lines_variables_and_accesses_of_one_thread():
    def kernel(a, n):
        total = 0
        for i in range(n):
            total += a[i]
        a[n] = total

    trace = record(kernel, 1, 4, (np.array([5, 6, 0], np.int32), 2), threads=[2])
    # Four threads run; the one traced is the third, after two that have each added 11 to the end.
    assert told(trace, kernel) == [
        ("call", 0, {"a": (0, 0, 3), "n": 2}),
        ("line", 1, {}),
        ("line", 2, {"total": 0}),
        ("line", 3, {"i": 0}),
        ("read", "a", 0, 5),
        ("line", 2, {"total": 5}),
        ("line", 3, {"i": 1}),
        ("read", "a", 1, 6),
        ("line", 2, {"total": 11}),
        ("line", 4, {}),
        ("write", "a", 2, 11),
        ("return", 4, None, {}),
        ("end", "returned", None),
    ]
    assert trace.threads[0].number == 2
    assert trace.events[6].changed == (("i", Value("int", 1)),)
    assert trace.events[5].changed == (("total", Value("int32", 5)),)


def test_shared_memory_barriers_and_two_threads_in_the_order_in_which_they_ran():
    def kernel(out):
        s = cuda.shared.array(2, np.float32)
        t = cuda.threadIdx.x
        s[t % 2] = t
        cuda.syncthreads()
        out[t] = s[1 - t % 2]

    trace = record(kernel, 1, 64, (np.zeros(64, np.float32),), threads=[0, 33])
    events = told(trace, kernel)
    own = [[e for e, event in zip(events, trace.events, strict=True) if event.thread == n] for n in (0, 1)]
    assert own[1] == [
        ("call", 0, {"out": (0, 0, 64)}),
        ("line", 1, {}),
        ("alloc", "s"),
        ("line", 2, {"s": (1, 0, 2)}),
        ("line", 3, {"t": 33}),
        ("write", "s", 1, 33.0),
        ("line", 4, {}),
        ("barrier", "syncthreads", 0, None),
        ("line", 5, {}),
        ("read", "s", 0, 62.0),
        ("write", "out", 33, 62.0),
        ("return", 5, None, {}),
        ("end", "returned", None),
    ]
    assert own[0][9] == ("read", "s", 1, 63.0)
    # Warp 0 goes to the barrier first; it is one shared array, and no thread passes before both are there.
    assert [e.thread for e in trace.events] == [0] * 8 + [1] * 8 + [0] * 5 + [1] * 5
    assert [a.name for a in trace.arrays] == ["out", "s"]
    assert trace.arrays[1].space == "shared"


def test_reversed_schedule_lets_the_last_warp_go_first():
    def kernel(out):
        out[cuda.threadIdx.x] = 1

    trace = record(kernel, 1, 64, (np.zeros(64),), threads=[0, 33], schedule="reversed")
    assert [trace.threads[e.thread].number for e in trace.events] == [33] * 5 + [0] * 5
    assert trace.schedule == "reversed"


def test_shuffles_and_votes_name_the_lane_and_both_values():
    def kernel(out):
        lane = cuda.laneid
        a = cuda.shfl_xor_sync(FULL, lane * 10, 1)
        b = cuda.shfl_sync(FULL, a, 7)
        c = cuda.shfl_up_sync(FULL, lane, 4)
        d = cuda.shfl_down_sync(FULL, lane, 4)
        e = cuda.any_sync(FULL, lane == 3)
        cuda.syncwarp()
        out[lane] = a + b + c + d + e

    trace = record(kernel, 1, 32, (np.zeros(32, np.int64),), threads=[3])
    assert [row for row in told(trace, kernel) if row[0] == "warp"] == [
        ("warp", "shfl_xor_sync", 2, 30, 20),
        ("warp", "shfl_sync", 7, 20, 60),
        ("warp", "shfl_up_sync", 3, 3, 3),
        ("warp", "shfl_down_sync", 7, 3, 7),
        ("warp", "any_sync", -1, True, True),
        ("warp", "syncwarp", -1, None, None),
    ]


@pytest.mark.parametrize("width", [4, 8, 16, 32])
@pytest.mark.parametrize("what", ["shfl_sync", "shfl_xor_sync", "shfl_up_sync", "shfl_down_sync"])
def test_the_source_lane_is_the_lane_whose_value_arrives(what, width):
    def kernel(out):
        lane = cuda.laneid
        for number in range(32):
            out[lane, number] = getattr(cuda, what)(FULL, lane, number, width)

    out = np.zeros((32, 32), np.int64)
    launch(kernel, 1, 32, (out,))
    assert [[source_lane(what, lane, n, width) for n in range(32)] for lane in range(32)] == out.tolist()


def test_block_votes_and_atomics():
    def kernel(a):
        t = cuda.threadIdx.x
        n = cuda.syncthreads_count(t < 3)
        cuda.atomic.add(a, 0, n)
        cuda.atomic.max(a, 1, t)

    trace = record(kernel, 1, 8, (np.array([100, 3], np.int32),), threads=[5])
    assert [row for row in told(trace, kernel) if row[0] in ("barrier", "warp", "atomic")] == [
        ("barrier", "syncthreads_count", 0, False),
        ("warp", "syncthreads_count", -1, False, 3),
        ("atomic", "add", "a", 0, 115, 118),
        ("atomic", "max", "a", 1, 4, 5),
    ]


def double(x):
    y = x * 2
    return y  # noqa: RET504


def test_device_functions_have_their_own_variables_and_a_depth():
    def kernel(a):
        y = double(a[0])
        a[0] = y + double(1)

    trace = record(kernel, 1, 1, (np.array([4], np.int64),))
    assert [f.name for f in trace.functions] == ["kernel", "double"]
    first = double.__code__.co_firstlineno - kernel.__code__.co_firstlineno
    assert told(trace, kernel) == [
        ("call", 0, {"a": (0, 0, 1)}),
        ("line", 1, {}),
        ("read", "a", 0, 4),
        ("call", first, {"x": 4}),
        ("line", first + 1, {}),
        ("line", first + 2, {"y": 8}),
        ("return", first + 2, 8, {}),
        ("line", 2, {"y": 8}),
        ("call", first, {"x": 1}),
        ("line", first + 1, {}),
        ("line", first + 2, {"y": 2}),
        ("return", first + 2, 2, {}),
        ("write", "a", 0, 10),
        ("return", 2, None, {}),
        ("end", "returned", None),
    ]
    assert [e.depth for e in trace.events] == [0] * 3 + [1] * 4 + [0] + [1] * 4 + [0] * 2 + [-1]


def test_a_statement_of_several_lines_is_one_step():
    def kernel(a):
        x = (
            a[0]
            + a[1]
        )  # fmt: skip
        if (
            x > 3
            and a[0] > 1
        ):  # fmt: skip
            a[2] = x

    trace = record(kernel, 1, 1, (np.array([2, 3, 0], np.int64),))
    assert [row[1] for row in told(trace, kernel) if row[0] == "line"] == [1, 5, 9]


def test_views_and_slices_count_elements_from_the_arrays_start():
    def kernel(a, b):
        row = a[1]
        b[2:4] = row[0]
        tail = b[3:]
        tail[1] = 9

    trace = record(kernel, 1, 1, (np.arange(6.0).reshape(2, 3), np.zeros(5)))
    rows = told(trace, kernel)
    assert [row for row in rows if row[0] in ("read", "write")] == [
        ("read", "a", 3, 3.0),
        ("write", "b", 2, 3.0),
        ("write", "b", 3, 3.0),
        ("write", "b", 4, 9.0),
    ]
    assert rows[2] == ("line", 2, {"row": (0, 3, 3)})
    assert {"tail": (1, 3, 2)} in [row[2] for row in rows if row[0] == "line"]


def test_local_arrays_are_new_each_time_and_called_by_their_variable():
    def kernel(out):
        for i in range(2):
            box = cuda.local.array(2, np.float32)
            box[i] = i
            out[i] = box[i]

    trace = record(kernel, 1, 1, (np.zeros(2),))
    (box,) = (n for n, array in enumerate(trace.arrays) if array.name == "box")
    assert trace.arrays[box].space == "local"
    assert [e.array for e in trace.events if e.kind == "alloc"] == [box, box]
    assert trace.state(len(trace)).threads[0].seen[box] == {1: (Value("float32", 1.0), len(trace) - 5)}


def test_blocks_have_shared_arrays_of_their_own_and_only_the_chosen_ones_are_recorded():
    def kernel(out):
        s = cuda.shared.array(1, np.int32)
        s[0] = cuda.blockIdx.x
        out[cuda.blockIdx.x] = s[0]

    trace = record(kernel, (2, 2), 1, (np.zeros(4),), blocks=[(1, 0), 2])
    assert [t.block for t in trace.threads] == [(1, 0, 0), (0, 1, 0)]
    assert [(a.name, a.owner) for a in trace.arrays] == [("out", -1), ("s", 1), ("s", 2)]
    assert trace.thread(0, (0, 1, 0)) == 1
    with pytest.raises(TraceError, match=r"0 of block \(1, 0, 0\)"):
        trace.thread(0)


def test_constants_and_small_arguments_are_kept_as_they_were_at_launch():
    table = np.array([7, 8], np.int32)

    def kernel(a, big):
        c = cuda.const.array_like(table)
        a[0] = c[1]

    trace = record(kernel, 1, 1, (np.array([1.5, np.nan]), np.zeros(300)))
    assert [(x.name, x.space) for x in trace.arrays] == [("a", "global"), ("big", "global"), ("c", "const")]
    assert trace.arrays[0].data[0] == 1.5
    assert np.isnan(trace.arrays[0].data[1])
    assert trace.arrays[1].data is None
    assert trace.arrays[2].data == (7, 8)


def test_deleted_variables_are_told():
    def kernel():
        x = 1
        del x
        y = 2  # noqa: F841

    assert told(record(kernel, 1, 1, ()), kernel)[3] == ("line", 3, {"x": None})


def test_the_source_is_known_by_its_digest():
    def kernel():
        pass

    (file,) = record(kernel, 1, 1, ()).files
    assert file.path == "tests/kernels/simt/test_trace_record.py"
    assert file.sha256 == hashlib.sha256(Path(__file__).read_bytes()).hexdigest()


# Errors.


def test_an_error_ends_the_trace_at_its_line_and_leaves_the_variables():
    def kernel(a):
        i = 5
        a[i] = 1

    recorder = Recorder([0])
    with pytest.raises(OutOfBounds) as caught:
        launch(kernel, 1, 1, (np.zeros(3),), tracer=recorder)
    trace = recorder.trace()
    rows = told(trace, kernel)
    assert rows[-1] == ("end", "error", f"OutOfBounds: {caught.value}")
    assert rows[-2] == ("line", 2, {"i": 5})
    state = trace.state(len(trace)).threads[0]
    assert (state.line - kernel.__code__.co_firstlineno, state.doing) == (2, "error")
    assert state.variables["i"] == Value("int", 5)
    assert sys.gettrace() is None


def test_a_refused_store_is_no_write():
    def kernel(a):
        s = cuda.shared.array(2, np.float32)
        s[0] = "text"

    recorder = Recorder([0])
    with pytest.raises(ValueError, match="text"):
        launch(kernel, 1, 1, (np.zeros(1),), tracer=recorder)
    assert "write" not in [e.kind for e in recorder.events]
    assert recorder.events[-1].what == "error"


def test_an_uninitialised_read_is_no_read():
    def kernel(a):
        s = cuda.shared.array(2, np.float32)
        a[0] = s[1]

    recorder = Recorder([0])
    with pytest.raises(UninitialisedRead):
        launch(kernel, 1, 1, (np.zeros(1),), tracer=recorder)
    assert [e.kind for e in recorder.events] == ["call", "line", "alloc", "line", "end"]


def test_threads_that_wait_when_another_fails_are_stopped():
    def kernel(a):
        if cuda.threadIdx.x < 32:
            cuda.syncthreads()
        a[cuda.threadIdx.x] = 1

    recorder = Recorder([0, 40])
    with pytest.raises(BarrierDivergence):
        launch(kernel, 1, 64, (np.zeros(64),), tracer=recorder)
    trace = recorder.trace()
    assert {trace.threads[e.thread].number: e.what for e in trace.events if e.kind == "end"} == {
        0: "stopped",
        40: "returned",
    }
    assert trace.state(len(trace)).threads[0].interval == 0
    assert sys.gettrace() is None
