"""Pieces: lanes read every one of a tile once, and what is made of their words is what NumPy makes of them."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from kernels.cases_narrow import unpack
from kernels.errors import ArgumentError
from kernels.kernel import kernel
from kernels.tuned import piece
from kernels.tuned.piece import keep, widen
from kernels.vector import vector_load4


@pytest.mark.parametrize("head_size", [8, 40, 64, 80, 120, 128, 256])
@pytest.mark.parametrize("block_size", [8, 16, 32])
def test_lanes_read_every_piece_of_a_block_once(head_size: int, block_size: int) -> None:
    sizes = SimpleNamespace(**piece.lanes(head_size, block_size))
    keys, values = [], []
    for tile in range(sizes.TILES):
        for lane in range(32):
            k_token, k_piece = lane % sizes.TILE, lane // sizes.TILE
            for j in range(sizes.K_LOADS):
                if j < sizes.K_WHOLE or k_piece < sizes.K_REST:
                    at = (k_piece * block_size + k_token) * 4 + tile * sizes.TILE * 4 + j * sizes.K_STEP
                    keys.append(at // 4)
                    assert (at // 4) // block_size == k_piece + sizes.K_LANES * j, "the piece that the query is read at"
            v_piece, v_row = lane % sizes.V_LANES, lane // sizes.V_LANES
            for i in range(sizes.V_LOADS):
                if i < sizes.V_WHOLE or v_row < sizes.V_REST:
                    at = v_row * (block_size // 2) + v_piece * 4 + tile * (sizes.TILE // 2) + i * sizes.V_STEP
                    values.append(at // 4)
    assert sorted(keys) == sorted(values) == list(range(head_size * block_size // 8))


@kernel(lambda FORMAT: piece.FORMATS[FORMAT])
def widen_kept(out, words, counts):  # type: ignore[no-untyped-def]
    eight = widen(keep(vector_load4(words, 0), counts[0]))
    for e in range(8):
        out[e] = eight[e]


@pytest.mark.parametrize("backend", ["sim", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize("scalar", ["bfloat16", "float16"])
@pytest.mark.parametrize("count", [-3, 0, 1, 2, 5, 7, 8, 16])
def test_the_first_numbers_stay_and_zeros_are_behind_them(scalar: str, count: int, backend: str) -> None:
    codes = np.array([0x3F80, 0xBF81, 0x0001, 0x8000, 0x7B12, 0x1234, 0xC400, 0x4711], np.uint16)
    codes[max(count, 0) :] = 0x7FFF  # NaN in both formats
    out = np.full(8, np.nan, np.float32)
    widen_kept.specialise(FORMAT=scalar).on(backend)[1, 1](out, codes.view(np.uint32), np.array([count], np.int32))
    expected = unpack(codes if scalar == "bfloat16" else codes.view(np.float16), scalar)
    expected[max(count, 0) :] = 0
    np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize(("group", "most", "heads"), [(8, 8, 8), (8, 7, 4), (7, 6, 1), (12, 8, 6), (5, 0, 1)])
def test_heads_at_once_divide_the_group(group: int, most: int, heads: int) -> None:
    assert piece.heads_at_once(group, most) == heads


def test_an_array_that_no_wide_load_can_read_is_refused() -> None:
    array = SimpleNamespace(__cuda_array_interface__={"data": (0x1008, False)})
    with pytest.raises(ArgumentError, match="key_cache = 0x1008: must begin on a multiple of 16 bytes"):
        piece.words("key_cache", array)
