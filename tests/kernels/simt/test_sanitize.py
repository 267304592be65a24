"""The sanitizers together: faults, what stops a launch and what does not, verdicts, and several launches."""

from __future__ import annotations

import numpy as np
import pytest

from kernels.simt import BadLaunch, NotModelled, cuda, launch
from kernels.simt.sanitize import Fault, Sanitizer

FULL = 0xFFFFFFFF


def sanitized(kernel, args=(), block=1, grid=1, schedule="in-order"):
    watch = Sanitizer()
    with watch:
        launch(kernel, grid, block, args, observers=[watch], schedule=schedule)
    return watch


def test_a_clean_kernel_is_clean():
    def kernel(out):
        out[cuda.threadIdx.x] = 1

    watch = sanitized(kernel, (np.zeros(64),), 64)
    assert watch.clean
    assert (watch.verdict, watch.races, watch.faults, watch.bank_conflicts) == ((), [], [], [])


def test_out_of_bounds_is_a_fault_with_its_place():
    def kernel(out):
        out[cuda.threadIdx.x] = 1

    (fault,) = sanitized(kernel, (np.zeros(3),), 5).faults
    assert fault.kind == "out of bounds"
    assert "out[3] is outside shape (3,)" in fault.message
    assert fault.place is not None
    assert (fault.place.thread, fault.place.line) == ((3, 0, 0), kernel.__code__.co_firstlineno + 1)


def test_barrier_divergence_warp_errors_and_deadlock_are_faults_without_one_place():
    def barrier():
        if cuda.threadIdx.x < 32:
            cuda.syncthreads()

    def absent():
        if cuda.threadIdx.x > 0:
            cuda.shfl_sync(FULL, 1, 0)

    def asleep():
        while True:
            cuda.nanosleep(1)

    for kernel, kind in ((barrier, "barrier divergence"), (absent, "shuffle error"), (asleep, "deadlock")):
        (fault,) = sanitized(kernel, (), 64).faults
        assert (fault.kind, fault.place) == (kind, None)


@pytest.mark.parametrize("schedule", ["in-order", "reversed", "random:4"])
def test_an_unwritten_shared_element_is_a_fault_and_ends_the_launch_at_the_barrier(schedule):
    def kernel(out):
        row = cuda.shared.array(2, np.float32)
        out[0] = row[1]
        cuda.syncthreads()
        out[1] = 1

    out = np.ones(2)
    watch = sanitized(kernel, (out,), 1, schedule=schedule)
    assert watch.verdict == ("uninitialised read",)
    (fault,) = watch.faults
    assert "row[1] is read before anything was written" in fault.message
    assert fault.place is not None
    assert fault.place.line == kernel.__code__.co_firstlineno + 2
    assert out.tolist() == [0, 1]  # went on with zero, to the barrier and no further: the second store never came


def test_an_unwritten_shared_element_without_a_barrier_behind_is_still_a_fault():
    def kernel(out):
        out[0] = cuda.shared.array(1, np.float32)[0]

    assert sanitized(kernel, (np.zeros(1),)).verdict == ("uninitialised read",)


def test_an_element_that_another_thread_was_about_to_write_is_a_race_and_no_fault():
    def kernel(out):
        row = cuda.shared.array(64, np.float32)
        i = cuda.threadIdx.x
        row[i] = i
        out[i] = row[63 - i]
        cuda.syncthreads()
        out[i] += 1

    out = np.zeros(64)
    watch = sanitized(kernel, (out,), 64)
    assert watch.verdict == ("race",)
    assert (out >= 1).all()  # and the launch went to its end


def test_the_threads_own_local_memory_is_an_error_at_once():
    def kernel(out):
        out[0] = cuda.local.array(1, np.float32)[0]

    watch = sanitized(kernel, (np.zeros(1),))
    assert watch.verdict == ("uninitialised read",)


def test_wrong_use_and_what_is_not_modelled_are_raised():
    def kernel():
        cuda.no_such_thing()

    with pytest.raises(NotModelled):
        sanitized(kernel)
    with pytest.raises(BadLaunch):
        sanitized(kernel, block=2000)

    def broken():
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        sanitized(broken)


def test_several_launches_add_up_and_stay_apart():
    def store(out, place):
        if cuda.threadIdx.x == 0:
            out[place] = 1

    def load(out):
        out[cuda.threadIdx.x]

    out = np.zeros(64)
    watch = Sanitizer()
    with watch:
        launch(store, 1, 32, (out, 3), observers=[watch])
        launch(load, 2, 64, (out,), observers=[watch])
    assert watch.clean  # launches are in order
    assert [(row.kind, row.requests) for row in watch.memory.rows] == [("write", 1), ("read", 4)]


def test_bank_conflicts_are_told_and_are_no_fault():
    def kernel(out):
        row = cuda.shared.array(64, np.float32)
        row[cuda.threadIdx.x * 2] = 1
        out[cuda.threadIdx.x] = row[cuda.threadIdx.x * 2]

    watch = sanitized(kernel, (np.zeros(32),), 32)
    assert watch.clean
    assert [(row.kind, row.degree) for row in watch.bank_conflicts] == [("write", 2), ("read", 2)]


def test_long_intervals_are_taken_in_parts():
    def kernel(out):
        for turn in range(3000):
            out[cuda.threadIdx.x] = turn
            if turn % 10 == 0:
                cuda.syncwarp()

    watch = sanitized(kernel, (np.zeros(48),), 48)
    assert watch.clean
    (row,) = watch.memory.rows
    assert (row.requests, row.lanes) == (6000, 3000 * 48)


def test_a_fault_is_named_after_its_error():
    from kernels.simt.report import Misaligned, OutOfBounds, Place, UninitialisedRead

    place = Place("k", "f.py", 3, (0, 0, 0), (0, 0, 0))
    errors = {
        "out of bounds": OutOfBounds("a", 1, (1,), place),
        "misaligned": Misaligned("a", 1, 4, 16, place),
        "uninitialised read": UninitialisedRead("a", 1, place),
    }
    for kind, error in errors.items():
        assert Fault.of(error) == Fault(kind, str(error), place)
