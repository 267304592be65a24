"""Errors leave nothing behind, and name what they are about."""

from __future__ import annotations

import gc
import traceback

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
    return sum(isinstance(o, greenlet.greenlet) for o in gc.get_objects())


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

    before = live_greenlets()
    with pytest.raises(OutOfBounds):
        launch(kernel, 2, 70, (np.zeros(4),))
    started = {"first lane": 1, "in the second block": 140}.get(where, 70)
    assert len(ended) == started
    assert live_greenlets() <= before
    assert not cuda.running


def test_a_good_launch_leaves_no_threads():
    before = live_greenlets()
    launch(lambda: cuda.syncthreads(), 2, 70, ())
    assert live_greenlets() <= before


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
