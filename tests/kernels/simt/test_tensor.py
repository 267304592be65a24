"""Models of tensor-core and copy-engine instructions, held against NumPy and against what PTX says of its fragments."""

from __future__ import annotations

import numpy as np
import pytest
from numba import cuda, float32, int32, int64, uint16

from kernels import ptx
from kernels.kernel import kernel
from kernels.ptx import (
    bulk_load,
    exp2,
    ldmatrix_x4,
    load_word,
    mbarrier_expect,
    mbarrier_fence,
    mbarrier_init,
    mbarrier_passed,
    mma_bf16,
    mma_f16,
    pack_bf16,
    pack_f16,
    transpose_8x8,
)
from kernels.simt import BadOperand, Deadlock, Misaligned, OutOfBounds, UninitialisedRead
from kernels.simt.tensor import MODELS

RNG = np.random.default_rng(7)


def bf16(values: np.ndarray) -> np.ndarray:
    """Codes of values that bfloat16 holds exactly."""
    bits = np.asarray(values, np.float32).view(np.uint32)
    assert not (bits & 0xFFFF).any()
    return (bits >> 16).astype(np.uint16)


def words(codes: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(codes).view(np.int32)


def fragments(matrix: np.ndarray) -> np.ndarray:
    """[32, quarters] words: as PTX deals out a matrix of 16-bit codes, 8 by 8 quarters down, then right."""
    found = []
    for column in range(0, matrix.shape[1], 8):
        for row in range(0, matrix.shape[0], 8):
            quarter = matrix[row : row + 8, column : column + 8]
            found.append([quarter[lane // 4, 2 * (lane % 4) : 2 * (lane % 4) + 2] for lane in range(32)])
    return np.ascontiguousarray(words(np.array(found)).reshape(len(found), 32).T)


def test_every_instruction_has_a_model_and_every_model_an_instruction() -> None:
    made = {value.vector_count for value in vars(ptx).values() if isinstance(getattr(value, "vector_count", None), str)}
    assert made == set(MODELS)


# Products


@kernel()
def multiply_bf16(out, a, b, c):
    i = cuda.laneid
    d0, d1, d2, d3 = mma_bf16(a[i, 0], a[i, 1], a[i, 2], a[i, 3], b[i, 0], b[i, 1], c[i, 0], c[i, 1], c[i, 2], c[i, 3])
    out[i, 0] = d0
    out[i, 1] = d1
    out[i, 2] = d2
    out[i, 3] = d3


@kernel()
def multiply_f16(out, a, b, c):
    i = cuda.laneid
    d0, d1, d2, d3 = mma_f16(a[i, 0], a[i, 1], a[i, 2], a[i, 3], b[i, 0], b[i, 1], c[i, 0], c[i, 1], c[i, 2], c[i, 3])
    out[i, 0] = d0
    out[i, 1] = d1
    out[i, 2] = d2
    out[i, 3] = d3


@pytest.mark.parametrize("backend", ["sim", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize("kind", ["bf16", "f16"])
@pytest.mark.parametrize("seed", range(3))
def test_a_product_is_numpys(kind: str, seed: int, backend: str) -> None:
    rng = np.random.default_rng(seed)
    # Whole numbers: both formats hold them and their products exactly.
    a, b, c = (rng.integers(-9, 10, shape).astype(np.float32) for shape in ((16, 16), (16, 8), (16, 8)))
    code = bf16 if kind == "bf16" else lambda x: x.astype(np.float16).view(np.uint16)
    out = np.full((32, 4), np.nan, np.float32)
    sums = np.array([[c[i // 4 + 8 * (n // 2), 2 * (i % 4) + n % 2] for n in range(4)] for i in range(32)])
    launched = multiply_bf16 if kind == "bf16" else multiply_f16
    launched.on(backend)[1, 32](out, fragments(code(a)), fragments(np.ascontiguousarray(code(b).T)), sums)
    want = a @ b + c
    for lane in range(32):
        for n in range(4):
            assert out[lane, n] == want[lane // 4 + 8 * (n // 2), 2 * (lane % 4) + n % 2]


@kernel()
def turn(out, values):
    out[cuda.laneid] = transpose_8x8(values[cuda.laneid])


@pytest.mark.parametrize("backend", ["sim", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_a_transpose_is_one(backend: str) -> None:
    matrix = RNG.integers(0, 1 << 16, (8, 8)).astype(np.uint16)
    out = np.zeros(32, np.int32)
    turn.on(backend)[1, 32](out, fragments(matrix)[:, 0].copy())
    np.testing.assert_array_equal(out, fragments(np.ascontiguousarray(matrix.T))[:, 0])


@kernel()
def gather(out, values, rows):
    shared = cuda.shared.array(512, uint16)
    for number in range(cuda.laneid, 512, 32):
        shared[number] = values[number]
    cuda.syncwarp()
    a0, a1, a2, a3 = ldmatrix_x4(shared, rows[cuda.laneid])
    out[cuda.laneid, 0] = a0
    out[cuda.laneid, 1] = a1
    out[cuda.laneid, 2] = a2
    out[cuda.laneid, 3] = a3


@pytest.mark.parametrize("backend", ["sim", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_ldmatrix_deals_out_the_rows_that_lanes_name(backend: str) -> None:
    values = RNG.integers(0, 1 << 16, 512).astype(np.uint16)
    rows = 8 * RNG.permutation(64)[:32]
    out = np.zeros((32, 4), np.int32)
    gather.on(backend)[1, 32](out, values, rows)
    for matrix in range(4):
        want = np.array([values[rows[8 * matrix + r] : rows[8 * matrix + r] + 8] for r in range(8)])
        np.testing.assert_array_equal(out[:, matrix], fragments(want)[:, 0])


def test_ldmatrix_wants_rows_inside_and_on_16_bytes() -> None:
    values, out = np.zeros(512, np.uint16), np.zeros((32, 4), np.int32)
    for row, error in ((504 + 8, OutOfBounds), (-8, OutOfBounds), (12, Misaligned)):
        with pytest.raises(error):
            gather.on("sim")[1, 32](out, values, np.full(32, row))


# Numbers


@kernel()
def round_both(out, values):
    i = cuda.laneid
    out[i, 0] = pack_bf16(values[i], values[(i + 1) % 32])
    out[i, 1] = pack_f16(values[i], values[(i + 1) % 32])


@pytest.mark.parametrize("backend", ["sim", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_packing_rounds_to_nearest_even(backend: str) -> None:
    import torch

    values = RNG.standard_normal(32).astype(np.float32) * 100
    # Ties of bfloat16, and of float16.
    values[:6] = [1 + 2**-8, 1 + 3 * 2**-8, -1 - 2**-8, 1 + 2**-11, 1 + 3 * 2**-11, 0.0]
    out = np.zeros((32, 2), np.int32)
    round_both.on(backend)[1, 32](out, values)
    codes = out.view(np.uint16).reshape(32, 2, 2)
    for column, kind in enumerate((torch.bfloat16, torch.float16)):
        want = torch.from_numpy(values).to(kind).view(torch.uint16).numpy()
        np.testing.assert_array_equal(codes[:, column, 0], want)
        np.testing.assert_array_equal(codes[:, column, 1], np.roll(want, -1))


@kernel()
def powers(out, values):
    out[cuda.laneid] = exp2(values[cuda.laneid])


@pytest.mark.parametrize("backend", ["sim", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_powers_of_two(backend: str) -> None:
    values = np.concatenate([RNG.uniform(-30, 5, 28), [0, -np.inf, -200, 1]]).astype(np.float32)
    out = np.zeros(32, np.float32)
    powers.on(backend)[1, 32](out, values)
    np.testing.assert_allclose(out, np.exp2(values.astype(np.float64)), rtol=4e-7, atol=1.2e-38)
    assert out[29:31].tolist() == [0, 0]


@kernel()
def two_codes(out, values, where):
    out[0] = load_word(values, where)


@pytest.mark.parametrize("backend", ["sim", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_a_word_is_two_codes(backend: str) -> None:
    out = np.zeros(1, np.int32)
    two_codes.on(backend)[1, 1](out, np.array([9, 8, 0x1234, 0x8765], np.uint16), 2)
    assert out.view(np.uint32)[0] == 0x87651234


def test_a_word_lies_on_four_bytes() -> None:
    with pytest.raises(Misaligned):
        two_codes.on("sim")[1, 1](np.zeros(1, np.int32), np.zeros(4, np.uint16), 1)


# Bulk copies


@kernel()
def fetch(out, source, rounds, wait):
    target = cuda.shared.array(16, float32)
    bars = cuda.shared.array(1, int64)
    if cuda.laneid == 0:
        mbarrier_init(bars, 0, 1)
        mbarrier_fence()
    cuda.syncwarp()
    for turn in range(rounds):
        if cuda.laneid == 0:
            mbarrier_expect(bars, 0, 64)
            bulk_load(target, 0, source, 16 * turn, 64, bars, 0)
        if wait:
            while mbarrier_passed(bars, 0, int32(turn % 2)) == 0:
                pass
        if cuda.laneid < 16:
            out[16 * turn + cuda.laneid] = target[cuda.laneid]
        cuda.syncwarp()


@pytest.mark.parametrize("backend", ["sim", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_copies_come_round_after_round(backend: str) -> None:
    source = RNG.standard_normal(80).astype(np.float32)
    out = np.full(80, np.nan, np.float32)
    fetch.on(backend)[1, 32](out, source, 5, True)
    np.testing.assert_array_equal(out, source)


def test_who_does_not_wait_reads_nothing() -> None:
    with pytest.raises(UninitialisedRead):
        fetch.on("sim")[1, 32](np.zeros(16, np.float32), np.ones(16, np.float32), 1, False)


@kernel()
def misuse(source, count, to, first, announced, arrivals, parity):
    target = cuda.shared.array(32, float32)
    bars = cuda.shared.array(2, int64)
    mbarrier_init(bars, 0, arrivals)
    mbarrier_expect(bars, 0, announced)
    bulk_load(target, to, source, first, count, bars, 0)
    while mbarrier_passed(bars, 0, parity) == 0:
        pass


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"count": 24}, BadOperand),
        ({"count": 0}, BadOperand),
        ({"to": 20}, OutOfBounds),
        ({"to": 2}, Misaligned),
        ({"first": 20}, OutOfBounds),
        ({"first": -4}, OutOfBounds),
        ({"first": 1}, Misaligned),
        ({"arrivals": 0}, BadOperand),
        ({"arrivals": 2}, Deadlock),
        ({"announced": 80}, Deadlock),
    ],
)
def test_what_a_gpu_would_break_on_or_hang_in_is_reported(change: dict[str, int], error: type[Exception]) -> None:
    right = {"count": 64, "to": 0, "first": 0, "announced": 64, "arrivals": 1, "parity": 0}
    misuse.on("sim")[1, 1](np.ones(32, np.float32), *right.values())
    with pytest.raises(error):
        misuse.on("sim")[1, 1](np.ones(32, np.float32), *(right | change).values())


@kernel()
def forgotten(out):
    bars = cuda.shared.array(2, int64)
    out[0] = mbarrier_passed(bars, 1, 0)


def test_a_barrier_must_be_initialised() -> None:
    with pytest.raises(UninitialisedRead):
        forgotten.on("sim")[1, 1](np.zeros(1, np.int32))


@kernel()
def arrive_twice():
    bars = cuda.shared.array(1, int64)
    mbarrier_init(bars, 0, 1)
    mbarrier_expect(bars, 0, 16)
    mbarrier_expect(bars, 0, 16)


def test_one_arrival_too_many_is_reported() -> None:
    with pytest.raises(BadOperand, match="arrivals"):
        arrive_twice.on("sim")[1, 1]()
