"""Shared and local arrays: who shares what, what is initialised, dynamic memory seen through several dtypes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernels.simt import BadLaunch, OutOfBounds, UninitialisedRead, cuda, launch

FILE = "tests/kernels/simt/test_cells.py"


def run(kernel, *args, threads=1, grid=1, shared_bytes=0, schedule="in-order"):
    return launch(kernel, grid, threads, args, shared_bytes=shared_bytes, schedule=schedule)


def line(kernel, offset):
    return kernel.__code__.co_firstlineno + offset


# Who shares what.


def test_every_thread_of_a_block_has_the_same_shared_array_and_each_block_a_new_one():
    def kernel(out):
        s = cuda.shared.array(40, np.int32)
        s[cuda.threadIdx.x] = cuda.grid(1)
        cuda.syncthreads()
        out[cuda.grid(1)] = s[39 - cuda.threadIdx.x]

    out = np.zeros(120, np.int32)
    report = run(kernel, out, threads=40, grid=3)
    expected = np.arange(120).reshape(3, 40)[:, ::-1].reshape(-1)
    assert out.tolist() == expected.tolist()
    assert report.shared_bytes == 160


def test_nothing_is_left_of_the_block_before():
    def kernel(out):
        s = cuda.shared.array(1, np.int32)
        if cuda.blockIdx.x == 0:
            s[0] = 1
        out[0] = s[0]

    with pytest.raises(UninitialisedRead) as e:
        run(kernel, np.zeros(1), grid=2)
    assert e.value.place.block == (1, 0, 0)


def test_two_declarations_are_two_arrays_and_one_in_a_loop_is_one():
    def kernel(out):
        a = cuda.shared.array(1, np.int32)
        b = cuda.shared.array(1, np.int32)
        a[0] = 1
        b[0] = 2
        out[0] = a[0]
        for turn in range(3):
            c = cuda.shared.array(1, np.int32)
            if turn == 0:
                c[0] = 10
            c[0] += 1
            out[1] = c[0]

    out = np.zeros(2, np.int32)
    assert run(kernel, out).shared_bytes == 12
    assert out.tolist() == [1, 13]


def declare():
    return cuda.shared.array(1, np.int32)


def test_a_device_function_declares_one_array_however_often_it_is_called():
    def kernel(out):
        declare()[0] = 5
        out[0] = declare()[0]

    out = np.zeros(1, np.int32)
    run(kernel, out)
    assert out[0] == 5


def test_local_arrays_are_each_threads_own():
    def kernel(out):
        mine = cuda.local.array(2, np.int64)
        mine[0] = cuda.threadIdx.x
        cuda.syncthreads()
        mine[1] = mine[0] * 2
        cuda.syncthreads()
        out[cuda.threadIdx.x] = mine[1]

    out = np.zeros(64, np.int64)
    run(kernel, out, threads=64)
    assert out.tolist() == list(range(0, 128, 2))


# Elements.


@pytest.mark.parametrize("where", ["shared", "local"])
@given(st.integers(1, 4), st.data())
def test_all_ranks_behave_as_an_array_does(where, rank, data):
    shape = tuple(data.draw(st.integers(1, 3)) for _ in range(rank))
    index = st.tuples(*(st.integers(0, size - 1) for size in shape))
    writes = data.draw(st.lists(st.tuples(index, st.integers(-50, 50)), max_size=8))
    model = np.full(shape, -1)
    for spot, value in writes:
        model[spot] = value

    def kernel(out):
        a = getattr(cuda, where).array(shape if rank > 1 else shape[0], np.int32)
        assert a.shape == shape
        for spot in np.ndindex(*shape):
            a[spot] = -1
        for spot, value in writes:
            a[spot if rank > 1 else spot[0]] = value
        for spot in np.ndindex(*shape):
            out[spot] = a[spot]
            assert type(a[spot]) is np.int32

    out = np.zeros(shape, np.int64)
    run(kernel, out)
    assert np.array_equal(out, model)


@pytest.mark.parametrize("where", ["shared", "local"])
@given(st.integers(1, 4), st.data())
def test_every_index_outside_is_refused(where, rank, data):
    shape = tuple(data.draw(st.integers(1, 3)) for _ in range(rank))
    index = [data.draw(st.integers(0, size - 1)) for size in shape]
    axis = data.draw(st.integers(0, rank - 1))
    index[axis] = data.draw(st.sampled_from([-1, -shape[axis], shape[axis], 50]))
    spot = tuple(index) if rank > 1 else index[0]

    def filled():
        a = getattr(cuda, where).array(shape, np.float32)
        for inside in np.ndindex(*shape):
            a[inside] = 1
        return a

    def read():
        filled()[spot]

    def write():
        filled()[spot] = 1

    for kernel in (read, write):
        with pytest.raises(OutOfBounds) as e:
            run(kernel)
        assert (e.value.index, e.value.shape) == (spot, shape)


def test_an_error_names_the_declaration_the_line_the_thread_and_the_block():
    def kernel():
        red_smem = cuda.shared.array(8, np.float32)
        red_smem[cuda.threadIdx.x] = 0

    with pytest.raises(OutOfBounds) as e:
        launch(kernel, 2, 9, (), name="block_sum")
    assert str(e.value) == (
        f"shared array ({FILE}:{line(kernel, 1)})[8] is outside shape (8,) "
        f"({FILE}:{line(kernel, 2)}, thread (8, 0, 0), block (0, 0, 0) of block_sum)"
    )


def test_values_are_converted_as_a_store_does():
    def kernel(out):
        half = cuda.local.array(3, np.float16)
        half[0] = np.float32(2049)
        half[1] = 0.1
        half[2] = 70000.0
        out[0], out[1], out[2] = half[0], half[1], half[2]
        small = cuda.local.array((1, 1), np.int8)
        small[0, 0] = 200
        out[3] = small[0, 0]
        cube = cuda.shared.array((1, 1, 2), np.int32)
        cube[0, 0, 1] = -2.75
        out[4] = cube[0, 0, 1]

    out = np.zeros(5)
    run(kernel, out)
    assert out.tolist() == [2048, float(np.float16(0.1)), np.inf, -56, -2]


# Initialisation.


@pytest.mark.parametrize("shape", [4, (2, 2), (2, 1, 2), (1, 2, 1, 2)])
@pytest.mark.parametrize("where", ["shared", "local"])
def test_reading_what_nobody_wrote(where, shape):
    last = tuple(n - 1 for n in shape) if isinstance(shape, tuple) else 3
    first = (0,) * len(shape) if isinstance(shape, tuple) else 0

    def kernel():
        a = getattr(cuda, where).array(shape, np.float32)
        a[first] = 1
        a[first]
        a[last]

    with pytest.raises(UninitialisedRead, match=f"{where} array") as e:
        run(kernel)
    assert e.value.index == last
    assert e.value.place.line == line(kernel, 4)


def test_an_update_in_place_reads_first():
    def kernel():
        acc = cuda.local.array(4, np.float32)
        acc[2] += 1

    with pytest.raises(
        UninitialisedRead, match=rf"local array \({FILE}:\d+\)\[2\] is read before anything was written"
    ):
        run(kernel)


def test_a_local_array_in_a_loop_is_new_each_time():
    def kernel():
        for turn in range(2):
            a = cuda.local.array(1, np.float32)
            if turn == 0:
                a[0] = 1
            a[0]

    with pytest.raises(UninitialisedRead):
        run(kernel)


def test_one_declaration_may_have_several_shapes_and_types():
    def kernel(seen):
        for size, kind in ((1, np.float32), (2, np.float32), ((2, 3), np.float32), ((2, 3), np.int16)):
            a = cuda.local.array(size, kind)
            seen.append((a.shape, a.dtype.name))

    seen: list[tuple[tuple[int, ...], str]] = []
    run(kernel, seen)
    assert seen == [((1,), "float32"), ((2,), "float32"), ((2, 3), "float32"), ((2, 3), "int16")]


def test_what_another_thread_wrote_is_initialised():
    def kernel(out):
        s = cuda.shared.array(64, np.int32)
        if cuda.threadIdx.x == 63:
            for i in range(64):
                s[i] = i
        cuda.syncthreads()
        out[cuda.threadIdx.x] = s[cuda.threadIdx.x]

    out = np.zeros(64, np.int32)
    run(kernel, out, threads=64)
    assert out.tolist() == list(range(64))


def test_the_barrier_that_is_missing_shows_as_an_uninitialised_read():
    def kernel(out):
        s = cuda.shared.array(64, np.int32)
        s[cuda.threadIdx.x] = 1
        out[cuda.threadIdx.x] = s[63 - cuda.threadIdx.x]

    with pytest.raises(UninitialisedRead):
        run(kernel, np.zeros(64), threads=64)


# Views.


def test_a_slice_shares_elements_and_what_is_initialised():
    def kernel(out):
        s = cuda.shared.array(8, np.int32)
        upper = s[4:]
        s[5] = 50
        upper[2] = 60
        out[0] = upper[1]
        out[1] = s[6]
        out[2] = len(upper)
        out[3] = upper[1:][0]
        every_other = s[1:8:2]
        out[4] = every_other[2]
        every_other[3] = 7
        out[5] = s[7]

    out = np.zeros(6, np.int32)
    run(kernel, out)
    assert out.tolist() == [50, 60, 4, 50, 50, 7]


def test_a_view_is_checked_itself():
    def past():
        cuda.shared.array(8, np.int32)[4:][4]

    def below():
        cuda.shared.array(8, np.int32)[4:][-1]

    def unwritten():
        s = cuda.shared.array(8, np.int32)
        s[0] = 1
        s[4:][0]

    for kernel, kind in ((past, OutOfBounds), (below, OutOfBounds), (unwritten, UninitialisedRead)):
        with pytest.raises(kind):
            run(kernel)


@given(st.data())
def test_views_of_views_agree_with_numpy(data):
    shape = tuple(data.draw(st.integers(1, 4)) for _ in range(data.draw(st.integers(1, 3))))
    parts = [st.integers(0, size - 1) | st.slices(size) for size in shape]
    index = tuple(data.draw(part) for part in parts[: data.draw(st.integers(1, len(shape)))])
    model = np.arange(np.prod(shape)).reshape(shape)

    def kernel(found):
        a = cuda.shared.array(shape, np.int64)
        for spot in np.ndindex(*shape):
            a[spot] = model[spot]
        view = a[index]
        expected = model[index]
        if isinstance(expected, np.ndarray):
            assert view.shape == expected.shape
            found.append([int(view[spot]) for spot in np.ndindex(*view.shape)] == expected.reshape(-1).tolist())
        else:
            found.append(int(view) == expected)

    found: list[bool] = []
    run(kernel, found)
    assert found == [True]


def test_a_row_and_a_fill():
    def kernel(out):
        a = cuda.local.array((2, 3), np.float32)
        a[0] = 2
        a[1, 1:] = a[0, :2]
        a[1, 0] = 5
        out[:] = a[1]

    out = np.zeros(3)
    run(kernel, out)
    assert out.tolist() == [5, 2, 2]


# Dynamic shared memory.


def test_dynamic_memory_has_the_launched_size():
    def kernel(out):
        s = cuda.shared.array(0, np.float32)
        out[0] = s.shape[0]
        s[s.shape[0]] = 1

    out = np.zeros(1)
    with pytest.raises(OutOfBounds, match=r"shared array .*\[5\] is outside shape \(5,\)"):
        run(kernel, out, shared_bytes=22)
    assert out[0] == 5


def test_dynamic_memory_reads_and_writes_and_knows_what_is_initialised():
    def kernel(out):
        s = cuda.shared.array(0, np.float32)
        s[1] = 2.5
        s[3:][1] = 1.5
        out[0] = s[1] + s[4]
        assert type(s[1]) is np.float32
        s[2]

    out = np.zeros(1)
    with pytest.raises(UninitialisedRead) as e:
        run(kernel, out, shared_bytes=64)
    assert e.value.place.line == line(kernel, 6)
    assert out[0] == 4


def test_dynamic_arrays_share_their_bytes():
    def kernel(out):
        words = cuda.shared.array(0, np.uint32)
        floats = cuda.shared.array(0, np.float32)
        halves = cuda.shared.array(0, np.uint16)
        words[1] = 0x3F800000
        out[0] = floats[1]
        out[1] = halves[3]
        halves[4] = 1
        out[2] = words.shape[0] * 100 + halves.shape[0]
        words[2]

    out = np.zeros(3)
    with pytest.raises(UninitialisedRead) as e:  # one half of the word was written, not the other
        run(kernel, out, shared_bytes=16)
    assert e.value.index == 2
    assert out.tolist() == [1, 0x3F80, 408]


def test_dynamic_memory_is_new_in_each_block():
    def kernel():
        s = cuda.shared.array(0, np.float32)
        if cuda.blockIdx.x == 0:
            s[0] = 1
        s[0]

    with pytest.raises(UninitialisedRead) as e:
        run(kernel, grid=2, shared_bytes=16)
    assert e.value.place.block == (1, 0, 0)


@pytest.mark.parametrize("shape", [-1, (2, 0), (), (3, -2)])
def test_shapes_that_no_array_has(shape):
    def shared():
        cuda.shared.array(shape, np.float32)

    def local():
        cuda.local.array(shape, np.float32)

    for kernel in (shared, local):
        with pytest.raises(BadLaunch, match="sizes must be positive"):
            run(kernel)


def test_a_local_array_is_never_dynamic():
    with pytest.raises(BadLaunch, match=r"local\.array shape"):
        run(lambda: cuda.local.array(0, np.float32))
