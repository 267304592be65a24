"""`block_sum`, `qk_dot` and the two `dot`s alone, in tiny kernels, to the bit where the order of additions is fixed."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numba import cuda, float32
from numba.types import float16

from kernels.kernel import Backend, kernel
from kernels.vllm.attention_utils import FLT_MAX, FULL_MASK, block_sum, dot_float, dot_half, qk_dot

# Template parameters.
NUM_WARPS = THREAD_GROUP_SIZE = NUM_VECS_PER_THREAD = VEC_SIZE = V_VEC_SIZE = GAP = 1
scalar_t = float32
SCHEDULES = ("in-order", "reversed", "random:3")
HALVES = st.floats(-8, 8, width=16)


@kernel()
def sum_kernel(out, a):
    red_smem = cuda.shared.array(32, float32)
    out[cuda.grid(1)] = block_sum(red_smem, a[cuda.grid(1)])


@kernel()
def two_sums_kernel(out, a):
    red_smem = cuda.shared.array(8, float32)
    t = cuda.threadIdx.x
    first = block_sum(red_smem, a[t])
    out[t] = first + block_sum(red_smem[GAP:], a[t] * a[t])


@kernel()
def lanes_kernel(butterfly, down):
    lane = cuda.threadIdx.x
    one = two = lane
    mask = 16
    while mask >= 1:
        one += cuda.shfl_xor_sync(FULL_MASK, one, mask)
        two += cuda.shfl_down_sync(FULL_MASK, two, mask)
        mask //= 2
    butterfly[lane] = one
    down[lane] = two


@kernel()
def qk_kernel(out, q, k):
    # One thread group a token: q is [group, vectors, VEC_SIZE], k is [tokens, group, vectors, VEC_SIZE], both flat.
    offset = cuda.threadIdx.x % THREAD_GROUP_SIZE
    q_vecs = cuda.shared.array((THREAD_GROUP_SIZE, NUM_VECS_PER_THREAD, VEC_SIZE), scalar_t)
    k_vecs = cuda.local.array((NUM_VECS_PER_THREAD, VEC_SIZE), scalar_t)
    for j in range(NUM_VECS_PER_THREAD):
        for e in range(VEC_SIZE):
            if cuda.threadIdx.x < THREAD_GROUP_SIZE:
                q_vecs[offset, j, e] = q[(offset * NUM_VECS_PER_THREAD + j) * VEC_SIZE + e]
            k_vecs[j, e] = k[(cuda.threadIdx.x * NUM_VECS_PER_THREAD + j) * VEC_SIZE + e]
    cuda.syncthreads()
    out[cuda.threadIdx.x] = qk_dot(q_vecs, offset, k_vecs)


@kernel()
def dot_half_kernel(out, a, b):
    left = cuda.local.array(V_VEC_SIZE, float16)
    right = cuda.local.array(V_VEC_SIZE, float16)
    for e in range(V_VEC_SIZE):
        left[e] = a[e]
        right[e] = b[e]
    out[0] = dot_half(left, right)


@kernel()
def dot_float_kernel(out, a, b):
    left = cuda.local.array(V_VEC_SIZE, float32)
    right = cuda.local.array(V_VEC_SIZE, float32)
    for e in range(V_VEC_SIZE):
        left[e] = a[e]
        right[e] = b[e]
    out[0] = dot_float(left, right)


def launch(chosen: Any, outputs: int, *arrays: Any, threads: int = 1, backend: str | Backend = "sim") -> Any:
    out = np.full(outputs, np.nan, np.float32)
    chosen.on(backend)[1, threads](out, *arrays)
    return out


# -- block_sum


@settings(max_examples=40)
@given(st.sampled_from([1, 2, 4, 8]), st.sampled_from(SCHEDULES), st.integers(0, 999))
def test_every_thread_gets_the_sum(warps: int, schedule: str, seed: int) -> None:
    # Whole numbers this small are added exactly, in any order.
    a = np.random.default_rng(seed).integers(-1000, 1000, 32 * warps).astype(np.float32)
    out = launch(sum_kernel.specialise(NUM_WARPS=warps), len(a), a, threads=len(a), backend=Backend("sim", schedule))
    assert out.tolist() == [a.sum()] * len(a)


@settings(max_examples=20)
@given(st.integers(0, 999))
def test_the_butterfly_adds_in_one_order_for_all(seed: int) -> None:
    a = np.random.default_rng(seed).standard_normal(128).astype(np.float32)
    found = {
        launch(sum_kernel, 128, a, threads=128, backend=Backend("sim", schedule)).tobytes() for schedule in SCHEDULES
    }
    (bits,) = found
    tree = a.reshape(4, 32)
    for _ in range(5):
        # Pairs that are half the width apart.
        tree = tree[:, : tree.shape[1] // 2] + tree[:, tree.shape[1] // 2 :]
    total = (tree[0, 0] + tree[2, 0]) + (tree[1, 0] + tree[3, 0])
    assert np.frombuffer(bits, np.float32).tolist() == [total] * 128


def test_k16_two_sums_need_two_halves_of_the_scratch() -> None:
    a = np.arange(128, dtype=np.float32)
    right = [a.sum() + (a * a).sum()] * 128

    def found(gap: int, schedule: str) -> list[float]:
        chosen = two_sums_kernel.specialise(NUM_WARPS=4, GAP=gap)
        return launch(chosen, 128, a, threads=128, backend=Backend("sim", schedule)).tolist()

    assert [found(4, schedule) == right for schedule in SCHEDULES] == [True] * 3
    # With one buffer for both, a fast warp writes its second sum over a first one that others have yet to read.
    assert not all(found(0, schedule) == right for schedule in SCHEDULES)


def test_l6_a_butterfly_serves_every_lane_and_a_slide_only_the_first() -> None:
    butterfly, down = np.zeros(32, np.int64), np.zeros(32, np.int64)
    lanes_kernel.on("sim")[1, 32](butterfly, down)
    assert butterfly.tolist() == [496] * 32
    assert [down[lane] for lane in (0, 1, 31)] == [496, 512, 992]


# -- qk_dot


def nearest(exact: Fraction) -> np.float32:
    """The nearest float32, ties to even: one rounding."""
    guess = np.float32(float(exact))
    around = [np.nextafter(guess, np.float32(side)) for side in (-np.inf, np.inf)]
    return min([guess, *around], key=lambda f: (abs(Fraction(float(f)) - exact), int(f.view(np.int32)) & 1))


def qk_by_hand(q: Any, k: Any) -> np.float32:
    """q, k: [group, vectors, VEC_SIZE]; a running sum for each element, then the elements, then the group."""
    parts = []
    for q_thread, k_thread in zip(q.astype(np.float32), k.astype(np.float32), strict=True):
        sums = [np.float32(x * y) for x, y in zip(q_thread[0], k_thread[0], strict=True)]
        for row in range(1, len(q_thread)):
            for e, (x, y) in enumerate(zip(q_thread[row], k_thread[row], strict=True)):
                sums[e] = nearest(Fraction(float(x)) * Fraction(float(y)) + Fraction(float(sums[e])))
        total = sums[0]
        for other in sums[1:]:
            total = np.float32(total + other)
        parts.append(total)
    while len(parts) > 1:
        parts = [np.float32(a + b) for a, b in zip(parts[: len(parts) // 2], parts[len(parts) // 2 :], strict=True)]
    return parts[0]


@settings(max_examples=40)
@given(
    st.sampled_from([(1, 8), (2, 4), (4, 2), (1, 4), (4, 1)]),
    st.integers(1, 5),
    st.sampled_from([(np.float16, float16), (np.float32, float32)]),
    st.integers(0, 999),
)
def test_qk_dot_to_the_bit(shape: tuple[int, int], vecs: int, types: tuple[Any, Any], seed: int) -> None:
    group, vec = shape
    rng = np.random.default_rng(seed)
    q = rng.standard_normal((group, vecs, vec)).astype(types[0])
    k = rng.standard_normal((32 // group, group, vecs, vec)).astype(types[0])
    chosen = qk_kernel.specialise(
        THREAD_GROUP_SIZE=group, NUM_VECS_PER_THREAD=vecs, VEC_SIZE=vec, scalar_t=types[1]
    )  # fmt: skip
    out = launch(chosen, 32, q.reshape(-1), k.reshape(-1), threads=32)
    expected = [qk_by_hand(q, row) for row in k for _ in range(group)]
    assert out.tolist() == [float(value) for value in expected]


# -- dot


def dot_half_by_hand(a: Any, b: Any) -> float:
    """Products and sums in half precision, even and odd elements apart; float32 only at the end."""
    even = odd = None
    for e in range(0, len(a), 2):
        left, right = np.float16(a[e] * b[e]), np.float16(a[e + 1] * b[e + 1])
        even = left if even is None else np.float16(even + left)
        odd = right if odd is None else np.float16(odd + right)
    return float(np.float32(even) + np.float32(odd))


@settings(max_examples=80)
@given(st.sampled_from([4, 8]).flatmap(lambda n: st.tuples(*[st.lists(HALVES, min_size=n, max_size=n)] * 2)))
def test_dot_half_to_the_bit(rows: tuple[list[float], list[float]]) -> None:
    a, b = (np.array(row, np.float16) for row in rows)
    out = launch(dot_half_kernel.specialise(V_VEC_SIZE=len(a)), 1, a, b)
    assert out[0] == dot_half_by_hand(a, b)


def test_dot_half_rounds_in_half_precision() -> None:
    a, b = np.array([2048, 1, 1, 1], np.float16), np.ones(4, np.float16)
    chosen = dot_half_kernel.specialise(V_VEC_SIZE=4)
    # 2048 + 1 is 2048 in half precision (ties to even); in float32 the sum would be 2051.
    assert launch(chosen, 1, a, b)[0] == 2048 + 2
    large = np.array([256, 0, 0, 0], np.float16)
    assert launch(chosen, 1, large, large)[0] == np.inf, "65536 is no half"


@settings(max_examples=60)
@given(st.sampled_from([2, 4]).flatmap(lambda n: st.tuples(*[st.lists(HALVES, min_size=n, max_size=n)] * 2)))
def test_dot_float_adds_from_the_left(rows: tuple[list[float], list[float]]) -> None:
    # A factor of a third: the products do not fit into float32 exactly.
    a, b = np.array(rows[0], np.float32) / np.float32(3), np.array(rows[1], np.float32)
    expected = a[0] * b[0]
    for x, y in zip(a[1:], b[1:], strict=True):
        expected = expected + x * y
    assert launch(dot_float_kernel.specialise(V_VEC_SIZE=len(a)), 1, a, b)[0] == expected


def test_the_smallest_float() -> None:
    assert np.float32(FLT_MAX) == np.finfo(np.float32).max
    assert FULL_MASK == 2**32 - 1


# -- the same on a GPU


@pytest.mark.gpu
def test_gpu_block_sum() -> None:
    a = np.random.default_rng(1).standard_normal(128).astype(np.float32)
    assert launch(sum_kernel, 128, a, threads=128, backend="cuda").tobytes() == (
        launch(sum_kernel, 128, a, threads=128).tobytes()
    )
    whole = np.arange(128, dtype=np.float32)
    chosen = two_sums_kernel.specialise(NUM_WARPS=4, GAP=4)
    assert launch(chosen, 128, whole, threads=128, backend="cuda").tolist() == [8128.0 + 690880.0] * 128


@pytest.mark.gpu
def test_gpu_dots() -> None:
    rng = np.random.default_rng(2)
    half = rng.standard_normal((2, 8)).astype(np.float16)
    # The compiler may fuse a half multiplication and addition: then one rounding is missing.
    found = launch(dot_half_kernel.specialise(V_VEC_SIZE=8), 1, *half, backend="cuda")[0]
    assert found == pytest.approx(dot_half_by_hand(*half), abs=8 * 2.0**-11 * float(np.abs(half[0] * half[1]).sum()))
    q, k = rng.standard_normal((2, 4, 4)).astype(np.float16), rng.standard_normal((16, 2, 4, 4)).astype(np.float16)
    chosen = qk_kernel.specialise(THREAD_GROUP_SIZE=2, NUM_VECS_PER_THREAD=4, VEC_SIZE=4, scalar_t=float16)
    out = launch(chosen, 32, q.reshape(-1), k.reshape(-1), threads=32, backend="cuda")
    assert out.tolist() == [float(qk_by_hand(q, row)) for row in k for _ in range(2)]
