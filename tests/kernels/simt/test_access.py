"""The observer: what it hears of a launch, in which order, and that nothing else changes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kernels.errors import BackendUnavailable
from kernels.kernel import Backend
from kernels.simt import UninitialisedRead, cuda, launch
from kernels.simt.access import ATOMIC, READ, WRITE, Memory, Observer
from kernels.simt.report import line_of
from kernels.variants import writes_past_the_end

FULL = 0xFFFFFFFF


class Log(Observer):
    def __init__(self, local: bool = False) -> None:
        self.local = local
        self.heard: list[tuple[Any, ...]] = []

    def launch_start(self, machine):
        self.heard.append(("start", machine.name))

    def block_start(self, number):
        self.heard.append(("block", number))

    def access(self, kind, memory, index, count, value, lane, code, lasti):
        self.heard.append((kind, memory.name, int(index), value, lane.number, line_of(code, lasti)))

    def collective(self, warp, what, lanes):
        self.heard.append((what, warp.number, lanes))

    def barrier(self, epoch):
        self.heard.append(("barrier", epoch))

    def launch_end(self, error):
        self.heard.append(("end", type(error).__name__ if error else None))

    def accesses(self):
        return [found for found in self.heard if found[0] in (READ, WRITE, ATOMIC)]


def watched(kernel, args, block=1, grid=1, local=False, schedule="in-order"):
    log = Log(local)
    launch(kernel, grid, block, args, observers=[log], schedule=schedule)
    return log


def test_a_launch_is_heard_from_start_to_end():
    def kernel(out):
        row = cuda.shared.array(2, np.float32)
        row[cuda.threadIdx.x] = 1
        cuda.syncthreads()
        out[cuda.blockIdx.x, cuda.threadIdx.x] = row[0]

    log = watched(kernel, (np.zeros((2, 2), np.float32),), block=2, grid=2)
    line = kernel.__code__.co_firstlineno
    block = [
        (WRITE, "row", 0, 1.0, 0, line + 2),
        (WRITE, "row", 1, 1.0, 1, line + 2),
        ("barrier", 1),
    ]
    read = [(READ, "row", 0, 1.0, lane, line + 4) for lane in (0, 1)]
    written = [[(WRITE, "out", 2 * number + lane, 1.0, lane, line + 4) for lane in (0, 1)] for number in (0, 1)]
    expected = [("start", "kernel")]
    for number in (0, 1):
        expected += [("block", number), *block, read[0], written[number][0], read[1], written[number][1]]
    assert log.heard == [*expected, ("end", None)]


def test_warp_operations_are_heard_with_their_lanes():
    def kernel(out):
        lane = cuda.threadIdx.x
        value = cuda.shfl_xor_sync(FULL, lane, 1)
        if lane < 16:
            cuda.syncwarp(0xFFFF)
        else:
            value = cuda.shfl_sync(0xFFFF0000, value, 16)
        cuda.ballot_sync(FULL, lane)
        out[lane] = value

    log = watched(kernel, (np.zeros(32, np.int32),), block=32)
    heard = [found for found in log.heard if found[0] not in (WRITE, "start", "block", "end")]
    assert heard[0] == ("shfl_xor_sync", 0, FULL)
    assert sorted(heard[1:3]) == [("shfl_sync", 0, 0xFFFF0000), ("syncwarp", 0, 0xFFFF)]
    assert heard[3:] == [("ballot_sync", 0, FULL)]


def test_a_second_warp_has_its_own_number_and_only_its_lanes():
    def kernel(out):
        cuda.syncwarp()
        out[cuda.threadIdx.x] = 1

    log = watched(kernel, (np.zeros(40, np.int32),), block=40)
    assert [found for found in log.heard if found[0] == "syncwarp"] == [("syncwarp", 0, FULL), ("syncwarp", 1, 0xFF)]


def test_an_atomic_is_one_access_with_the_old_value():
    def kernel(out):
        row = cuda.shared.array(1, np.int32)
        row[0] = 5
        cuda.atomic.add(row, 0, 2)
        cuda.atomic.max(out, (1, 2), 9)

    out = np.zeros((2, 3), np.int32)
    log = watched(kernel, (out,))
    assert [found[:4] for found in log.accesses()[1:]] == [(ATOMIC, "row", 0, 5), (ATOMIC, "out", 5, 0)]
    assert out[1, 2] == 9


def test_views_reshapes_and_slices_count_from_the_start_of_their_memory():
    def kernel(out, cube):
        tail = cube[1]
        tail[0, 1] = 7
        half = out[4:]
        half[1] = half[0]
        out.reshape(2, 4)[1, 3] = 1
        out[2:4] = 8

    log = watched(kernel, (np.zeros(8, np.float32), np.zeros((2, 2, 2), np.float32)))
    assert [found[:3] for found in log.accesses()] == [
        (WRITE, "cube", 5), (READ, "out", 4), (WRITE, "out", 5),
        (WRITE, "out", 7), (WRITE, "out", 2), (WRITE, "out", 3),
    ]  # fmt: skip
    assert len({found[5] for found in log.accesses()}) == 4  # each on the kernel's own line


def test_views_of_shared_memory_and_the_cube_shapes_report_flat_cells():
    def kernel(out):
        flat = cuda.shared.array(6, np.float32)
        square = cuda.shared.array((2, 3), np.float32)
        cube = cuda.shared.array((2, 2, 2), np.int32)
        deep = cuda.shared.array((1, 2, 1, 2), np.int32)
        flat[2:4] = 1
        square[1, 2] = 2
        square[0][1] = 3
        cube[1, 0, 1] = 4
        deep[0, 1, 0, 1] = 5
        out[0] = flat[2:][1] + square[1, 2] + square[0, 1] + cube[1, 0, 1] + deep[0, 1, 0, 1]

    out = np.zeros(1, np.float32)
    log = watched(kernel, (out,))
    written = [found[1:3] for found in log.accesses() if found[0] == WRITE]
    assert written == [("flat", 2), ("flat", 3), ("square", 5), ("square", 1), ("cube", 5), ("deep", 3), ("out", 0)]
    assert [found[1:3] for found in log.accesses() if found[0] == READ] == [
        ("flat", 3), ("square", 5), ("square", 1), ("cube", 5), ("deep", 3),
    ]  # fmt: skip
    assert out[0] == 15


def test_an_array_without_a_variable_of_its_own_is_named_by_its_line():
    def kernel(out):
        one, two = cuda.shared.array(1, np.int32), cuda.shared.array(1, np.int32)
        one[0] = two[0] = 1
        cuda.shared.array(2, np.int32)[1] = 1

    log = watched(kernel, (np.zeros(1),))
    names = [name for _, name, *_ in log.accesses()]
    assert sorted("test_access.py:" in name for name in names) == [False, True, True]
    assert "two" in names


def test_local_arrays_are_heard_only_on_request():
    def kernel(out):
        own = cuda.local.array(2, np.float32)
        own[1] = 4
        out[0] = own[1]

    assert [found[1] for found in watched(kernel, (np.zeros(1),)).accesses()] == ["out"]
    assert [found[:3] for found in watched(kernel, (np.zeros(1),), local=True).accesses()] == [
        (WRITE, "own", 1), (READ, "own", 1), (WRITE, "out", 0),
    ]  # fmt: skip


def test_several_observers_hear_the_same_except_for_local_memory():
    def kernel(out):
        own = cuda.local.array(1, np.float32)
        own[0] = 1
        out[0] = own[0]
        cuda.syncthreads()

    one, two = Log(), Log(local=True)
    launch(kernel, 1, 1, (np.zeros(1),), observers=[one, two])
    assert one.heard == [found for found in two.heard if found[1] != "own"]
    assert len(two.heard) == len(one.heard) + 2


def test_an_error_is_heard_and_raised_and_leaves_plain_atomics_behind():
    def kernel(out):
        out[1] = 0

    log = Log()
    plain = cuda.atomic
    with pytest.raises(IndexError, match="outside shape"):
        launch(kernel, 1, 1, (np.zeros(1),), observers=[log])
    assert log.heard[-1] == ("end", "OutOfBounds")
    assert cuda.atomic is plain
    assert not cuda.running


def test_an_uninitialised_read_is_an_error_unless_the_observer_goes_on():
    def kernel(out):
        row = cuda.shared.array(1, np.float32)
        out[0] = row[0]

    with pytest.raises(UninitialisedRead, match="read before anything"):
        watched(kernel, (np.zeros(1),))

    class GoesOn(Observer):
        def uninitialised(self, memory, index, shown, lane, code, lasti):
            return np.float32(3)

    out = np.zeros(1)
    launch(kernel, 1, 1, (out,), observers=[GoesOn()])
    assert out[0] == 3
    launch(kernel, 1, 1, (out,), observers=[GoesOn(), GoesOn()])


def test_a_watched_launch_computes_the_same_under_every_schedule():
    def tree(out, values):
        row = cuda.shared.array(64, np.float32)
        i = cuda.threadIdx.x
        row[i] = values[i]
        cuda.syncthreads()
        width = 32
        while width > 0:
            if i < width:
                row[i] += row[i + width]
            cuda.syncthreads()
            width //= 2
        if i == 0:
            out[0] = row[0]

    values = np.random.default_rng(0).standard_normal(64).astype(np.float32)
    plain, seen = np.zeros(1, np.float32), np.zeros(1, np.float32)
    for schedule in ("in-order", "reversed", "random:5"):
        launch(tree, 1, 64, (plain, values), schedule=schedule)
        launch(tree, 1, 64, (seen, values), schedule=schedule, observers=[Observer()])
        assert plain[0] == seen[0] != 0


def test_a_kernels_backend_hands_observers_on():
    log = Log()
    writes_past_the_end.on(Backend("sim", observers=(log,)))[1, 32](np.zeros(32), np.ones(32))
    assert len(log.accesses()) == 2 * 32


def test_errors_of_plain_arrays_stay_errors_of_watched_ones():
    def shared_index(out):
        cuda.shared.array(2, np.float32)[2] = 1

    def shared_square(out):
        out[0] = cuda.shared.array((2, 2), np.float32)[0, -1]

    def shared_cube(out):
        out[0] = cuda.shared.array((2, 2, 2), np.float32)[2, 0, 0]

    def word(out):
        out["a"] = 1

    for kernel in (shared_index, shared_square, shared_cube):
        with pytest.raises(IndexError, match="outside shape"):
            watched(kernel, (np.zeros(1),))
    with pytest.raises(TypeError, match="integer or a slice"):
        watched(word, (np.zeros(1),))


def test_a_memory_shows_its_elements_as_the_kernel_indexes_them():
    flat = Memory("global", "a", (4,), np.dtype(np.float32), "global")
    square = Memory("shared", "b", (2, 3), np.dtype(np.float16), 0)
    assert (flat.element(3), square.element(5)) == ("a[3]", "b[1, 2]")
    assert (flat.itemsize, square.itemsize) == (4, 2)


def test_a_gpu_cannot_be_observed():
    with pytest.raises(BackendUnavailable, match="only the SIMT machine"):
        Backend("cuda", observers=(Observer(),))
    assert Backend("sim", observers=(Observer(),)) == Backend("sim")
