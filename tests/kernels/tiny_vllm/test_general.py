"""The general form: every head size, every warp order, no report."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels import oracle
from kernels.cases import decode_case
from kernels.errors import ArgumentError
from kernels.kernel import Backend
from kernels.simt.sanitize import Sanitizer
from kernels.simt.widening import widenings
from kernels.tiny_vllm.attention import cache_of
from kernels.tiny_vllm.general import general_attention, general_attention_kernel

SIZES = (16, 32, 48, 64, 80, 96, 112, 120, 128, 192, 256)
SCHEDULES = ("in-order", "reversed", "random:3")


def run(case, schedule="in-order", observers=(), in_place=True, backend="sim"):
    q = case.q.copy()
    output = q if in_place else np.full(q.shape, np.nan, q.dtype)
    active = np.arange(case.num_seqs, dtype=np.int32)[::-1].copy()
    table = np.full((case.num_seqs, 2, case.block_tables.shape[1]), -1, np.int32)
    table[active, 1] = case.block_tables
    where = Backend(backend, schedule, observers=observers) if backend == "sim" else Backend(backend)
    general_attention(1, case.num_seqs, q, cache_of(case), table, case.seq_lens, active, output, backend=where)
    return output


def error(case, output):
    return float(np.abs(output.astype(np.float64) - oracle.attention(case)).max())


@pytest.mark.parametrize("head_size", SIZES)
def test_every_head_size_is_right(head_size):
    case = decode_case([19], 4, 1, head_size, 16, seed=head_size)
    assert error(case, run(case)) < 3e-6


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("head_size", [32, 64, 80, 128])
def test_no_warp_order_changes_a_bit_and_none_is_reported(head_size, schedule):
    case = decode_case([18, 3], 4, 1, head_size, 16, seed=1)
    watch = Sanitizer()
    with watch:
        output = run(case, schedule, (watch,))
    assert watch.clean
    assert np.array_equal(output, run(case, in_place=False))


@settings(max_examples=10)
@given(
    st.lists(st.integers(0, 20), min_size=1, max_size=2),
    st.sampled_from(SIZES[:6]),
    st.sampled_from((4, 8, 16, 32)),
    st.integers(0, 50),
)
def test_any_lengths_and_block_sizes_agree_with_the_oracle(lengths, head_size, block_size, seed):
    case = decode_case(lengths, 4, 1, head_size, block_size, seed=seed, garbage="minus-one")
    assert error(case, run(case, "random:1")) < 5e-6


def test_no_tokens_give_zeros_not_nan():
    case = decode_case([0], 4, 1, 32, 16, seed=2)
    assert not run(case, in_place=False).any()


def test_float16_rounds_its_output_only():
    case = decode_case([25], 8, 2, 64, 16, dtype="float16", seed=3)
    output = run(case)
    exact = oracle.attention(case)
    assert output.dtype == np.float16
    assert np.abs(output - exact).max() <= np.spacing(np.float16(np.abs(exact).max())) / 2 + 3e-6


def test_nothing_widens_to_float64():
    assert widenings(general_attention_kernel.fn) == []


def test_arguments_are_checked():
    case = decode_case([5], 4, 1, 32, 16, seed=4)
    bad = case.block_tables[:, None] * 0 + 99
    with pytest.raises(ArgumentError, match=r"block_table\[0, 0, 0\] = 99"):
        general_attention(
            0, 1, case.q, cache_of(case), bad.astype(np.int32), case.seq_lens, np.zeros(1, np.int32), case.q.copy()
        )


@pytest.mark.gpu
@pytest.mark.parametrize("head_size", SIZES)
def test_gpu_every_head_size_is_right(head_size):
    case = decode_case([19], 4, 1, head_size, 16, seed=head_size)
    assert error(case, run(case, backend="cuda")) < 3e-6
