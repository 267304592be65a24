"""Global arrays behind bounds checks: what comes out, what goes in, and what a wrong index is told."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernels.simt import OutOfBounds, cuda, launch
from kernels.simt.memory import converter, dtype_of

DTYPES = ("float16", "float32", "float64", "int8", "uint8", "int32", "int64", "uint16")
INTEGERS = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")


def run(kernel, *args, threads=1, grid=1):
    return launch(kernel, grid, threads, args)


@pytest.mark.parametrize("name", DTYPES)
def test_reads_are_numpy_scalars_of_the_dtype(name):
    kind = np.dtype(name).type

    def kernel(flat, cube):
        assert type(flat[1]) is kind
        assert type(cube[0, 1, 0]) is kind
        assert flat[1] == cube[0, 1, 0] == 3

    run(kernel, np.array([1, 3], name), np.array([[[1], [3]]], name))


@given(st.integers(1, 4), st.data())
def test_every_index_of_every_rank_reads_and_writes_the_callers_element(rank, data):
    shape = tuple(data.draw(st.integers(1, 4)) for _ in range(rank))
    array = np.arange(np.prod(shape)).reshape(shape)
    before = array.copy()
    index = tuple(data.draw(st.integers(0, size - 1)) for size in shape)
    kind = data.draw(st.sampled_from([int, np.int32, np.int64, np.uint8]))
    where = tuple(kind(i) for i in index) if rank > 1 else kind(index[0])

    def kernel(a):
        a[where] = a[where] * 2 + 1

    run(kernel, array)
    before[index] = before[index] * 2 + 1
    assert np.array_equal(array, before)


@given(st.integers(1, 4), st.data())
def test_every_index_outside_is_refused_by_reads_and_writes(rank, data):
    shape = tuple(data.draw(st.integers(1, 4)) for _ in range(rank))
    index = [data.draw(st.integers(0, size - 1)) for size in shape]
    axis = data.draw(st.integers(0, rank - 1))
    index[axis] = data.draw(st.sampled_from([-1, -shape[axis], -99, shape[axis], 99]))
    where = tuple(index) if rank > 1 else index[0]
    array = np.zeros(shape)

    def read(a):
        a[where]

    def write(a):
        a[where] = 1

    for kernel in (read, write):
        with pytest.raises(OutOfBounds) as e:
            run(kernel, array)
        assert (e.value.array, e.value.index, e.value.shape) == ("a", where, shape)
    assert not array.any()


def test_the_error_names_argument_index_shape_thread_block_and_line():
    def kernel(key_cache, n):
        key_cache[cuda.grid(1) - n, 0]

    with pytest.raises(OutOfBounds) as e:
        launch(kernel, (3, 2), 4, (np.zeros((8, 2)), 5), name="writer")
    line = kernel.__code__.co_firstlineno + 1
    assert str(e.value) == (
        "key_cache[-5, 0] is outside shape (8, 2) "
        f"(tests/kernels/simt/test_memory.py:{line}, thread (0, 0, 0), block (0, 0, 0) of writer)"
    )
    assert isinstance(e.value, IndexError)
    place = e.value.place
    assert (place.line, place.thread, place.block, place.kernel) == (line, (0, 0, 0), (0, 0, 0), "writer")


def inner(anything, i):
    return anything[i]


def test_the_line_is_that_of_the_device_function_and_the_name_that_of_the_argument():
    def kernel(tables):
        inner(tables, cuda.threadIdx.x + 10)

    with pytest.raises(OutOfBounds, match=r"tables\[12\]") as e:
        run(kernel, np.zeros(12), threads=5)
    assert e.value.place.line == inner.__code__.co_firstlineno + 1
    assert e.value.place.thread == (2, 0, 0)


def test_a_tuple_with_a_negative_part_is_not_wrapped_around():
    def kernel(a):
        a[1, -1] = 5

    with pytest.raises(OutOfBounds, match=r"a\[1, -1\]"):
        run(kernel, np.zeros((2, 2)))


def test_partial_indices_and_slices_are_checked_views():
    def kernel(a, out):
        row = a[1]
        out[0] = row[2]
        middle = a[1:, 1]
        out[1] = middle[0]
        middle[0] = 77
        out[2] = len(row) + row.size + row.ndim
        out[3] = sum(row)
        tail = out[4:]
        tail[1] = 9
        tail[1] += 1

    a = np.arange(8).reshape(2, 4)
    out = np.zeros(6, np.int64)
    run(kernel, a, out)
    assert out.tolist() == [6, 5, 4 + 4 + 1, 4 + 77 + 6 + 7, 0, 10]
    assert a[1, 1] == 77


def test_a_view_has_its_own_bounds():
    def kernel(a):
        a[2:5][3]

    with pytest.raises(OutOfBounds, match=r"a\[3\] is outside shape \(3,\)"):
        run(kernel, np.zeros(8))


def test_a_slice_can_be_filled():
    def kernel(a, b):
        a[1:3] = 4
        a[3:] = b[:2]
        b[:, :] = 2 if b.ndim == 2 else 0

    def fill_rows(b):
        b[1] = 7

    a, b = np.zeros(5), np.array([5.0, 6.0])
    with pytest.raises(IndexError, match="b has 1 axes, 2 indices were given"):
        run(kernel, a, b)
    assert a.tolist() == [0, 4, 4, 5, 6]
    c = np.zeros((2, 2))
    run(fill_rows, c)
    assert c.tolist() == [[0, 0], [7, 7]]


def test_a_slice_of_the_wrong_length_cannot_be_filled():
    def kernel(a, b):
        a[:2] = b

    with pytest.raises(ValueError, match=r"a: shape \(3,\) does not fit \(2,\)"):
        run(kernel, np.zeros(4), np.zeros(3))


def test_reshape_is_the_same_memory():
    def kernel(a):
        b = a.reshape(2, 3)
        b[1, 0] = 5
        a.reshape((6,))[5] = b.shape[1]

    a = np.zeros((3, 2), np.int32)
    run(kernel, a)
    assert a.reshape(-1).tolist() == [0, 0, 0, 5, 0, 3]


def test_what_kernels_ask_of_an_array():
    def kernel(a):
        assert a.shape == (2, 3)
        assert (a.ndim, a.size, len(a), a.itemsize) == (2, 6, 2, 2)
        assert a.dtype == np.float16
        assert a.strides == (6, 2)
        assert repr(a) == "<a: float16[2, 3]>"

    run(kernel, np.zeros((2, 3), np.float16))


def test_arrays_that_are_not_contiguous_and_arrays_without_axes():
    def kernel(a, scalar):
        a[1, 0] = 8
        scalar[()] = a[1, 0] + 1

    base, scalar = np.zeros((4, 6)), np.zeros(())
    run(kernel, base[::2, ::3], scalar)
    assert base[2, 0] == 8
    assert scalar == 9


def test_a_float_is_no_index():
    def kernel(a, i):
        a[i]

    with pytest.raises(TypeError, match="an index must be an integer or a slice"):
        run(kernel, np.zeros(4), 1.0)
    with pytest.raises(TypeError, match="an index must be an integer or a slice"):
        run(kernel, np.zeros((4, 2)), (0, 1.0))


def test_a_read_only_argument_cannot_be_written():
    def kernel(a):
        a[0] = 1

    a = np.zeros(4)
    a.flags.writeable = False
    with pytest.raises(ValueError, match="read-only"):
        run(kernel, a)


# Conversions of a store.


def test_half_precision_rounds_to_nearest_even():
    def kernel(x, out):
        out[cuda.threadIdx.x] = x[cuda.threadIdx.x]

    # 2048 to 4096 hold even integers only: ties go to the multiple of four.
    x = np.array([2049, 2051, 2050.9, 65519.99, 65520, 2.0**-25, 2.0**-24 * 1.5, np.nan], np.float32)
    out = np.zeros(8, np.float16)
    run(kernel, x, out, threads=8)
    assert out[:7].tolist() == [2048, 2052, 2050, 65504, np.inf, 0, 2.0**-23]
    assert np.isnan(out[7])


@given(st.floats(-7e4, 7e4, width=32))
def test_half_precision_rounding_is_the_nearest_of_its_neighbours(value):
    x = np.float32(value)
    got = converter(np.dtype(np.float16))(x) if abs(x) < 65504 else np.float16(0)
    if abs(x) < 65504:
        near = [got, np.nextafter(got, np.float16(np.inf)), np.nextafter(got, np.float16(-np.inf))]
        distance = [abs(float(h) - float(x)) for h in near]
        assert distance[0] == min(distance)
        if distance.count(distance[0]) == 2:
            assert got.view(np.uint16) % 2 == 0


@given(st.integers(-(2**70), 2**70), st.sampled_from(["int8", "uint8", "int32", "uint32", "int64"]))
def test_integers_wrap_around(value, name):
    dtype = np.dtype(name)
    bits = 8 * dtype.itemsize
    wrapped = value % 2**bits
    if dtype.kind == "i" and wrapped >= 2 ** (bits - 1):
        wrapped -= 2**bits

    def kernel(flat, grid):
        flat[0] = value
        grid[0, 0] = value

    flat, grid = np.zeros(1, dtype), np.zeros((1, 1), dtype)
    run(kernel, flat, grid)
    assert flat[0] == grid[0, 0] == wrapped


@given(st.sampled_from(INTEGERS), st.sampled_from(INTEGERS), st.data())
def test_a_numpy_integer_of_any_width_is_cast_as_numpy_casts_it(given_name, name, data):
    limits = np.iinfo(given_name)
    value = np.dtype(given_name).type(data.draw(st.integers(int(limits.min), int(limits.max))))
    got = converter(np.dtype(name))(value)
    assert type(got) is np.dtype(name).type
    assert got == value.astype(name)


@given(st.floats(-1e6, 1e6))
def test_floats_stored_to_integers_are_cut_off(value):
    def kernel(a):
        a[0] = np.float32(value)

    a = np.zeros(1, np.int32)
    run(kernel, a)
    assert a[0] == int(np.float32(value))


class Named:
    name = "float16"


def test_a_dtype_may_be_anything_with_a_numpy_name():
    assert dtype_of(Named()) == np.float16
    assert dtype_of(np.dtype("int32")) == np.int32
    assert dtype_of(np.float32) == np.float32
    assert dtype_of("uint8") == np.uint8
