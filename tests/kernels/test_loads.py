"""The loads on their own: they read each element once, and x is what makes a warp's key load one run of bytes."""

from __future__ import annotations

import re
from math import ceil
from pathlib import Path

import numpy as np
import pytest

from kernels import layout, loads
from kernels.kernel import Backend
from kernels.simt.sanitize import Sanitizer

SIZES = (8, 16, 32)
TOTAL = loads.BLOCKS * loads.HEADS * loads.HEAD


def watched(name):
    watch = Sanitizer()
    with watch:
        loads.memory_cases()[name](Backend("sim", observers=(watch,)))
    assert watch.clean
    return watch.memory


def row_of(name, array, kind="read"):
    return next(row for row in watched(name).rows if (row.array, row.kind) == (array, kind))


@pytest.mark.parametrize("size", SIZES)
def test_x_makes_the_key_load_one_run_of_bytes(size):
    packed, naive = row_of(f"k-load-x-{size}", "k_cache"), row_of(f"k-load-naive-{size}", "k_cache")
    width = 16 // layout.thread_group_size(size)
    tokens = min(size, 32)
    # With x the 32 lanes read one run: as many 32-byte sectors as their bytes need, and no byte for nothing.
    assert packed.sizes == naive.sizes == {width}
    assert packed.sectors_per_request == ceil(32 * width / 32)
    assert packed.lines_per_request == ceil(32 * width / 128)
    assert packed.efficiency == 1.0
    # Without it a token's 16 bytes stand alone: half a sector, and a line of its own for every token.
    assert naive.sectors_per_request == tokens
    assert naive.lines_per_request == tokens
    assert naive.efficiency == 0.5
    assert naive.requests == packed.requests


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("packed", [True, False])
def test_the_key_load_reads_every_element_once_on_either_layout(size, packed):
    out = loads.run_k_load(size, packed, Backend("sim"))
    pool = np.random.default_rng(1).standard_normal(TOTAL * size).astype(np.float16)
    assert out.sum(dtype=np.float64) == pytest.approx(pool.sum(dtype=np.float64), abs=1e-3)
    row = row_of(f"k-load-{'x' if packed else 'naive'}-{size}", "k_cache")
    assert row.bytes == 2 * TOTAL * size


@pytest.mark.parametrize("size", SIZES)
def test_the_value_load_reads_every_element_once_in_whole_sectors(size):
    out = loads.run_v_load(size, Backend("sim"))
    pool = np.random.default_rng(1).standard_normal(TOTAL * size).astype(np.float16)
    assert out.sum(dtype=np.float64) == pytest.approx(pool.sum(dtype=np.float64), abs=1e-3)
    row = row_of(f"v-load-{size}", "v_cache")
    assert (row.bytes, row.efficiency, row.sizes) == (2 * TOTAL * size, 1.0, {16})


def test_the_flash_writer_puts_every_token_into_its_slot_and_nothing_elsewhere():
    case, keys, values = loads.run_flash_writer(Backend("sim"))
    width = loads.HEADS * loads.HEAD
    for cache, rows in ((keys, case.key), (values, case.value)):
        expected = np.zeros((case.num_blocks * 16, width), np.float16)
        for token, slot in enumerate(case.slot_mapping):
            if slot >= 0:
                expected[slot] = rows[token].reshape(-1)
        np.testing.assert_array_equal(cache.reshape(-1, width), expected)


def test_the_flash_layout_is_written_in_whole_sectors_and_the_classic_one_scattered():
    assert row_of("flash-writer", "key_cache", "write").efficiency == 1.0
    for array in ("key_cache", "value_cache"):
        # One 2-byte element a sector: neighbouring threads write 16 tokens' places apart.
        assert row_of("reshape-and-cache", array, "write").efficiency == pytest.approx(2 / 32)


def test_the_page_on_the_machine_shows_these_numbers():
    page = (Path(__file__).resolve().parents[2] / "docs" / "simt-machine.md").read_text("utf-8")
    shown = [[int(cell) for cell in row] for row in re.findall(r"^\| (\d+)" + r" \| (\d+)" * 4 + r" \|$", page, re.M)]
    expected = []
    for size in SIZES:
        packed, naive = row_of(f"k-load-x-{size}", "k_cache"), row_of(f"k-load-naive-{size}", "k_cache")
        pairs = (
            packed.sectors_per_request,
            naive.sectors_per_request,
            packed.lines_per_request,
            naive.lines_per_request,
        )
        expected.append([size, *pairs])
    assert shown == expected


@pytest.mark.gpu
@pytest.mark.parametrize("name", loads.memory_cases())
def test_the_loads_run_on_a_gpu(name):
    loads.memory_cases()[name](Backend("cuda"))


@pytest.mark.gpu
@pytest.mark.parametrize("size", SIZES)
def test_a_gpu_sums_the_same(size):
    sim, gpu = (loads.run_k_load(size, True, Backend(name)) for name in ("sim", "cuda"))
    np.testing.assert_allclose(gpu, sim, atol=1e-3)
