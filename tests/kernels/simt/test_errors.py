"""Errors leave nothing behind, and name what they are about."""

from __future__ import annotations

import gc
import threading
import traceback
import weakref

import greenlet
import numpy as np
import pytest

from kernels.simt import (
    BadLaunch,
    BarrierDivergence,
    Deadlock,
    NotModelled,
    OutOfBounds,
    OutsideLaunch,
    ShuffleError,
    SimtError,
    UninitialisedRead,
    cuda,
    launch,
)


def live_greenlets():
    gc.collect()
    # By type: isinstance would ask every object for its class, and some of torch warn at that.
    return sum(issubclass(type(o), greenlet.greenlet) for o in gc.get_objects())


@pytest.mark.parametrize("where", ["first lane", "last lane", "after a barrier", "in the second block"])
def test_an_error_ends_every_thread(where):
    ended = []

    def kernel(x):
        i = cuda.threadIdx.x
        try:
            if where == "first lane" and i == 0:
                x[99]
            if where == "last lane" and i == 69:
                x[99]
            cuda.syncthreads()
            if where == "after a barrier" and i == 33:
                x[99]
            if where == "in the second block" and cuda.blockIdx.x == 1 and i == 40:
                x[99]
            cuda.syncthreads()
        finally:
            ended.append(i)

    launch(lambda: None, 1, 70, ())  # the greenlets of a clean launch stay for the next one
    before = live_greenlets()
    with pytest.raises(OutOfBounds):
        launch(kernel, 2, 70, (np.zeros(4),))
    started = {"first lane": 1, "in the second block": 140}.get(where, 70)
    assert len(ended) == started
    assert live_greenlets() <= before
    assert not cuda.running


def test_good_launches_leave_as_many_threads_as_the_largest_block_has():
    launch(lambda: cuda.syncthreads(), 2, 70, ())
    before = live_greenlets()
    for threads in (70, 1, 64):
        launch(lambda: cuda.syncthreads(), 2, threads, ())
        assert live_greenlets() == before


@pytest.mark.parametrize("before", [0, 32, 96])
def test_waiting_threads_hold_nothing_of_the_launch(before):
    class Token:
        pass

    held = []

    def work():
        # An OS thread of its own has no waiting threads yet but those of the launch before.
        if before:
            launch(lambda: cuda.syncthreads(), 1, before, ())
        token, array = Token(), np.zeros(70)
        held.extend([weakref.ref(token), weakref.ref(array)])
        launch(lambda token, array: cuda.syncthreads(), 1, 70, (token, array))
        del token, array
        gc.collect()
        held.append([ref() for ref in held])

    worker = threading.Thread(target=work)
    worker.start()
    worker.join()
    assert held[-1] == [None, None]


def test_each_os_thread_has_its_own_waiting_threads():
    found = []

    def work():
        for _ in range(2):
            out = np.zeros(40, np.int32)
            launch(lambda out: out.__setitem__(cuda.threadIdx.x, cuda.syncthreads_count(1)), 1, 40, (out,))
            found.append(out.tolist())

    workers = [threading.Thread(target=work) for _ in range(2)]
    for worker in workers:
        worker.start()
    work()
    for worker in workers:
        worker.join()
    assert found == [[40] * 40] * 6


def test_a_thread_that_died_by_an_error_is_replaced():
    def kernel(out, fail):
        cuda.syncthreads()
        if fail and cuda.threadIdx.x == 3:
            raise ValueError
        out[cuda.threadIdx.x] += 1

    out = np.zeros(64, np.int32)
    for fail in (False, True, False, True, True, False):
        before = out.copy()
        if fail:
            with pytest.raises(ValueError, match=r"thread \(3, 0, 0\)"):
                launch(kernel, 1, 64, (out, True))
        else:
            launch(kernel, 1, 64, (out, False))
            assert (out - before).tolist() == [1] * 64


def test_an_exception_of_the_kernel_keeps_its_type_and_names_the_thread():
    def kernel(x):
        if cuda.grid(1) == 37:
            return 1 // x
        return None

    with pytest.raises(ZeroDivisionError) as e:
        launch(kernel, 2, 32, (0,), name="divide")
    line = kernel.__code__.co_firstlineno + 2
    where = f"tests/kernels/simt/test_errors.py:{line}, thread (5, 0, 0), block (1, 0, 0) of divide"
    assert e.value.__notes__ == [f"raised in kernel {where}"]
    assert any(frame.name == "kernel" for frame in traceback.extract_tb(e.value.__traceback__))


def test_the_note_names_the_kernel_line_also_where_the_machine_raised():
    def kernel(a):
        a[0]
        a[0.5]

    with pytest.raises(TypeError) as e:
        launch(kernel, 1, 1, (np.zeros(3),))
    assert f"test_errors.py:{kernel.__code__.co_firstlineno + 2}, thread" in e.value.__notes__[0]


def test_what_is_not_modelled_says_so():
    def kernel():
        cuda.no_such_thing(1)

    with pytest.raises(NotModelled, match=r"cuda\.no_such_thing is not modelled .*test_errors\.py"):
        launch(kernel, 1, 1, ())

    def another(x):
        x.cumsum()

    with pytest.raises(NotModelled, match=r"cumsum"):
        launch(another, 1, 1, (np.zeros(3),))


def test_every_error_is_a_simt_error():
    for kind in (
        BadLaunch,
        BarrierDivergence,
        Deadlock,
        NotModelled,
        OutOfBounds,
        OutsideLaunch,
        ShuffleError,
        UninitialisedRead,
    ):
        assert issubclass(kind, SimtError)
