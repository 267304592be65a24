"""Shuffle widths against PTX's own definition, matches, bit operations, lane masks."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernels.simt import BadOperand, ShuffleError, cuda, launch
from kernels.simt.bits import Int32

FULL = 0xFFFFFFFF
WIDTHS = (1, 2, 4, 8, 16, 32)


def run_warp(kernel, *args, lanes=32, dtype=np.int64, schedule="in-order"):
    out = np.full(lanes, -777, dtype)
    launch(kernel, 1, lanes, (*args, out), schedule=schedule)
    return out


# Widths.


def up(x, n, width, out):
    out[cuda.laneid] = cuda.shfl_up_sync(FULL, x[cuda.laneid], n, width)


def down(x, n, width, out):
    out[cuda.laneid] = cuda.shfl_down_sync(FULL, x[cuda.laneid], n, width)


def pick(x, n, width, out):
    out[cuda.laneid] = cuda.shfl_sync(FULL, x[cuda.laneid], n, width)


def xor(x, n, width, out):
    out[cuda.laneid] = cuda.shfl_xor_sync(FULL, x[cuda.laneid], n, width)


def ptx_source(mode, lane, b, width):
    """The lane read, as PTX defines `shfl.sync` with the operand c that CUDA C++ builds from the width."""
    clamp = 0 if mode == "up" else 0x1F
    mask = 32 - width & 0x1F
    low = lane & mask
    limit = low | (clamp & ~mask & 0x1F)
    b &= 0x1F
    source = {"up": lane - b, "down": lane + b, "xor": lane ^ b, "pick": low | (b & ~mask & 0x1F)}[mode]
    inside = source >= limit if mode == "up" else source <= limit
    return source if inside else lane


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("kernel", [up, down, pick, xor])
def test_every_width_and_operand_as_ptx_has_it(kernel, width):
    x = np.arange(32) * 10
    for n in range(35):
        expected = [10 * ptx_source(kernel.__name__, lane, n, width) for lane in range(32)]
        assert run_warp(kernel, x, n, width).tolist() == expected


def test_segment_edges_written_down():
    x = np.arange(32)
    assert run_warp(up, x, 3, 8)[:16].tolist() == [0, 1, 2, 0, 1, 2, 3, 4, 8, 9, 10, 8, 9, 10, 11, 12]
    assert run_warp(down, x, 3, 8)[:16].tolist() == [3, 4, 5, 6, 7, 5, 6, 7, 11, 12, 13, 14, 15, 13, 14, 15]
    assert run_warp(pick, x, 9, 8)[:16].tolist() == [1] * 8 + [9] * 8
    # A later segment is out of reach, an earlier one is not.
    assert run_warp(xor, x, 8, 8)[:16].tolist() == [*range(8), *range(8)]
    assert run_warp(xor, x, 3, 1)[:4].tolist() == [0, 1, 1, 0]


def test_the_width_may_be_named_and_left_out():
    def kernel(out):
        i = cuda.laneid
        out[i] = cuda.shfl_down_sync(FULL, i, 1, width=2) * 100 + cuda.shfl_down_sync(FULL, i, 1)

    assert run_warp(kernel)[:4].tolist() == [101, 102, 303, 304]


@given(st.lists(st.integers(-99, 99), min_size=32, max_size=32), st.sampled_from(WIDTHS))
def test_a_reduction_in_segments(values, width):
    def kernel(x, out):
        i = cuda.laneid
        v = x[i]
        delta = width // 2
        while delta > 0:
            v += cuda.shfl_down_sync(FULL, v, delta, width)
            delta //= 2
        out[i] = cuda.shfl_sync(FULL, v, 0, width)

    sums = [sum(values[i - i % width : i - i % width + width]) for i in range(32)]
    assert run_warp(kernel, np.array(values)).tolist() == sums


@pytest.mark.parametrize("kernel", [up, down, pick, xor])
@pytest.mark.parametrize("width", [0, 3, -8, 24, 64, 2.5])
def test_widths_without_a_meaning(kernel, width):
    with pytest.raises(BadOperand, match=rf"shuffle width = {width}: must be one of 1, 2, 4, 8, 16, 32") as e:
        run_warp(kernel, np.arange(32), 1, width)
    assert e.value.place.line == kernel.__code__.co_firstlineno + 1


def test_the_mask_counts_within_a_segment_too():
    def kernel(out):
        i = cuda.laneid
        if i < 3:
            out[i] = cuda.shfl_down_sync(0b111, np.int64(i), 1, 4)

    assert run_warp(kernel)[:3].tolist() == [1, 2, np.iinfo(np.int64).min]


# Matches.


@pytest.mark.parametrize("schedule", ["in-order", "reversed", "replay:lanes=down"])
@given(st.lists(st.sampled_from([0, 1, -5, 2**31 - 1]), min_size=32, max_size=32))
def test_match_any_is_who_has_the_same(schedule, values):
    def kernel(x, out):
        out[cuda.laneid] = cuda.match_any_sync(FULL, x[cuda.laneid])

    got = run_warp(kernel, np.array(values, np.int32), schedule=schedule)
    for lane in range(32):
        bits = sum(1 << i for i in range(32) if values[i] == values[lane])
        assert got[lane] == int(np.uint32(bits).astype(np.int32))


@given(st.lists(st.sampled_from([0.0, -0.0, np.nan, 1.5]), min_size=32, max_size=32))
def test_floats_match_by_their_bits(values):
    def kernel(x, out):
        out[cuda.laneid] = cuda.match_any_sync(FULL, x[cuda.laneid]) & FULL

    x = np.array(values, np.float32)
    raw = x.view(np.uint32)
    expected = [sum(1 << i for i in range(32) if raw[i] == raw[lane]) for lane in range(32)]
    assert run_warp(kernel, x).tolist() == expected


def test_match_all():
    def kernel(x, out):
        i = cuda.laneid
        if i < 8:
            bits, same = cuda.match_all_sync(0xFF, x[i])
        else:
            bits, same = cuda.match_all_sync(FULL - 0xFF, x[i])
        out[i] = bits * 10 + same

    x = np.array([7] * 8 + [1] * 23 + [2])
    assert run_warp(kernel, x).tolist() == [0xFF * 10 + 1] * 8 + [0] * 24
    x[31] = 1
    assert run_warp(kernel, x).tolist() == [0xFF * 10 + 1] * 8 + [-256 * 10 + 1] * 24


def test_match_ignores_lanes_outside_its_mask():
    def kernel(out):
        i = cuda.laneid
        cuda.match_any_sync(FULL, 3)
        if i < 4:
            out[i] = cuda.match_any_sync(0xF, 3)
        else:
            cuda.syncwarp(FULL - 0xF)

    assert run_warp(kernel)[:4].tolist() == [0xF] * 4


def test_a_match_that_names_a_lane_that_left():
    def kernel(out):
        if cuda.laneid == 5:
            return
        cuda.match_any_sync(FULL, 1)

    with pytest.raises(ShuffleError, match=r"match_any_sync with mask 0xffffffff .*\(5\)"):
        run_warp(kernel)


# Bits.


@given(st.integers(0, 2**64 - 1), st.sampled_from([np.int8, np.uint16, np.int32, np.uint32, np.int64, np.uint64]))
def test_bit_operations_by_width(number, kind):
    width = 8 * np.dtype(kind).itemsize
    x = np.array([number & (1 << width) - 1], np.uint64).astype(kind)[0]
    bits = f"{int(x) & (1 << width) - 1:0{width}b}"
    assert cuda.popc(x) == bits.count("1")
    assert cuda.clz(x) == (bits.index("1") if "1" in bits else width)
    assert cuda.ffs(x) == (bits[::-1].index("1") + 1 if "1" in bits else 0)
    if width >= 32:
        assert cuda.brev(x) == int(bits[::-1], 2)


def test_bit_operations_of_ints_and_masks():
    assert (cuda.clz(1), cuda.popc(-1), cuda.brev(1), cuda.ffs(0)) == (63, 64, 1 << 63, 0)
    assert (cuda.clz(Int32(1)), cuda.popc(Int32.signed(FULL)), cuda.brev(Int32(1))) == (31, 32, 1 << 31)
    assert cuda.brev(np.int8(-1)) == FULL  # widened with its sign
    assert type(Int32(3) + 1) is int
    with pytest.raises(TypeError, match="take integers"):
        cuda.popc(1.0)


def test_the_usual_idioms_on_masks():
    def kernel(p, out):
        i = cuda.laneid
        votes = cuda.ballot_sync(FULL, p[i])
        out[0, i] = cuda.popc(votes)
        out[1, i] = cuda.popc(votes & cuda.lanemask_lt())  # how many true lanes are below
        out[2, i] = cuda.ffs(votes) - 1  # the first of them
        out[3, i] = cuda.clz(cuda.activemask())
        out[4, i] = cuda.brev(np.uint32(votes & FULL))

    p = np.array([i % 3 == 1 or i == 31 for i in range(32)])
    out = np.zeros((5, 32), np.int64)
    launch(kernel, 1, 32, (p, out))
    assert set(out[0].tolist()) == {int(p.sum())}
    assert out[1].tolist() == [int(p[:i].sum()) for i in range(32)]
    assert set(out[2].tolist()) == {1}
    assert set(out[3].tolist()) == {0}
    assert set(out[4].tolist()) == {sum(1 << 31 - i for i in range(32) if p[i])}


def test_lanemask_counts_lanes_that_are_not_there():
    def kernel(out):
        if cuda.laneid >= 30:
            out[cuda.threadIdx.x] = cuda.lanemask_lt()

    got = run_warp(kernel, lanes=63)
    assert got[[30, 31, 62]].tolist() == [2**30 - 1, 2**31 - 1, 2**30 - 1]


def test_selp_fences_and_cube_roots():
    def kernel(out):
        i = cuda.laneid
        cuda.threadfence()
        cuda.threadfence_block()
        cuda.threadfence_system()
        out[i] = cuda.selp(i % 2 == 0, i, -i)
        assert type(cuda.cbrt(np.float32(27))) is np.float32
        assert cuda.cbrt(np.float64(-8)) == -2

    assert run_warp(kernel).tolist() == [i if i % 2 == 0 else -i for i in range(32)]
