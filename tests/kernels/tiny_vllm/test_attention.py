"""tiny-vllm's kernel: right where its race does not show, wrong where it does, right everywhere once repaired."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels import oracle
from kernels.cases import decode_case
from kernels.errors import ArgumentError
from kernels.kernel import Backend
from kernels.simt.sanitize import Sanitizer
from kernels.tiny_vllm.attention import HEAD_DIM, cache_of, paged_attention

TOLERANCE = {"float32": 2e-6, "float16": 2e-3}
SCHEDULES = ("in-order", "reversed", "random:1", "random:2")


def run(case, *, repaired, schedule="in-order", observers=(), slots=None, layer=0, layers=1):
    output = np.full(case.q.shape, np.nan, case.q.dtype)
    active = np.arange(case.num_seqs, dtype=np.int32) if slots is None else np.array(slots, np.int32)
    table = np.full((active.max() + 1, layers, case.block_tables.shape[1]), -1, np.int32)
    table[active, layer] = case.block_tables
    backend = Backend("sim", schedule, observers=observers)
    paged_attention(
        output, case.q, cache_of(case), table, case.seq_lens, active, layer, repaired=repaired, backend=backend
    )
    return output


def error(case, output):
    return float(np.abs(output.astype(np.float64) - oracle.attention(case)).max())


CASE = decode_case([33], 4, 1, HEAD_DIM, 16, seed=1)


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("dtype", TOLERANCE)
def test_repaired_it_is_right_under_every_schedule(dtype, schedule):
    case = decode_case([1, 16, 37], 8, 2, HEAD_DIM, 16, dtype=dtype, seed=2)
    assert error(case, run(case, repaired=True, schedule=schedule)) < TOLERANCE[dtype]


def test_as_it_stands_it_is_right_when_the_second_warp_keeps_ahead():
    assert error(CASE, run(CASE, repaired=False, schedule="reversed")) < TOLERANCE["float32"]


def test_as_it_stands_it_is_wrong_when_the_first_warp_runs_ahead():
    # A legal order: nothing makes warp 0 wait for warp 1's read.
    assert error(CASE, run(CASE, repaired=False, schedule="in-order")) > 0.1


def test_one_token_has_no_next_one_to_race_with():
    case = decode_case([1], 4, 1, HEAD_DIM, 16, seed=3)
    watch = Sanitizer()
    assert error(case, run(case, repaired=False, observers=(watch,))) < TOLERANCE["float32"]
    assert watch.clean


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_the_race_is_reported_under_every_schedule_right_output_or_not(schedule):
    watch = Sanitizer()
    with watch:
        run(CASE, repaired=False, schedule=schedule, observers=(watch,))
    assert watch.faults == []
    (race,) = watch.races
    assert (race.scope, race.hazard, race.space) == ("between warps", "write-after-read", "shared")
    assert race.element == "dot_products[0]"  # never slot 1: two barriers stand between its read and its next write
    assert race.threads == (set(range(32, 64)), {0})
    # 32 readers at each step from one token to the next, four heads.
    assert race.pairs == 32 * 32 * 4
    source = Path(race.first.file).read_text("utf-8").splitlines()
    assert source[race.first.line - 1].strip() == "dot_product = dot_products[0]"
    assert source[race.second.line - 1].strip() == "dot_products[0] = qk"


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_repaired_it_is_clean(schedule):
    watch = Sanitizer()
    with watch:
        run(CASE, repaired=True, schedule=schedule, observers=(watch,))
    assert watch.clean


@settings(max_examples=10)
@given(
    st.lists(st.integers(1, 40), min_size=1, max_size=2),
    st.sampled_from(((4, 1), (8, 2))),
    st.integers(0, 100),
    st.integers(0, 2),
)
def test_any_lengths_slots_and_layers_agree_with_the_oracle(lengths, heads, seed, layer):
    case = decode_case(lengths, *heads, HEAD_DIM, 16, seed=seed)
    slots = np.random.default_rng(seed).permutation(5)[: len(lengths)]
    assert error(case, run(case, repaired=True, slots=slots, layer=layer, layers=3)) < 5e-6


def test_the_cache_holds_keys_then_values_of_each_block():
    cache = cache_of(CASE)
    assert cache.shape == (CASE.num_blocks, 2, 16, 1, HEAD_DIM)
    block, offset = CASE.block_tables[0, 20 // 16], 20 % 16
    np.testing.assert_array_equal(cache[block, 0, offset], CASE.keys[0][20])
    np.testing.assert_array_equal(cache[block, 1, offset], CASE.values[0][20])


def arguments(**changed):
    given_ = {
        "output": np.zeros((1, 4, 64), np.float32),
        "q_proj": np.zeros((1, 4, 64), np.float32),
        "kv_cache": np.zeros((2, 2, 16, 1, 64), np.float32),
        "block_table": np.zeros((1, 1, 2), np.int32),
        "seq_lens": np.ones(1, np.int32),
        "active_slots": np.zeros(1, np.int32),
        "layer": 0,
    }
    return {**given_, **changed}


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"q_proj": np.zeros((1, 4, 32), np.float32)}, r"q_proj\.shape"),
        ({"q_proj": np.zeros((1, 6, 64), np.float32)}, "multiple of 4 query heads"),
        ({"q_proj": np.zeros((1, 4, 64))}, r"q_proj\.dtype = float64"),
        ({"output": np.zeros((1, 4, 64), np.float16)}, r"output\.dtype"),
        ({"kv_cache": np.zeros((2, 2, 8, 1, 64), np.float32)}, r"kv_cache\.shape"),
        ({"block_table": np.zeros((1, 2), np.int32)}, r"block_table\.shape"),
        ({"seq_lens": np.zeros(1, np.int32)}, r"seq_lens\[0\] = 0: must be from 1 to 32"),
        ({"seq_lens": np.full(1, 33, np.int32)}, r"seq_lens\[0\] = 33"),
        ({"seq_lens": np.ones(1)}, r"seq_lens\.dtype"),
        ({"active_slots": np.ones(1, np.int32)}, r"active_slots\[0\] = 1"),
        ({"layer": 1}, "layer = 1: must be from 0 to 0"),
        ({"block_table": np.full((1, 1, 2), 2, np.int32)}, r"block_table\[0, 0\] = 2: must name blocks 0 to 1"),
    ],
)
def test_nonsense_is_refused_before_anything_runs(changed, message):
    with pytest.raises(ArgumentError, match=message):
        paged_attention(**arguments(**changed))


@pytest.mark.gpu
def test_a_gpu_agrees_with_the_oracle_once_it_is_repaired():
    # As upstream, without the barrier, an H200 gave a wrong answer in this very case.
    output = np.full(CASE.q.shape, np.nan, CASE.q.dtype)
    table, active = CASE.block_tables[:, None].copy(), np.zeros(1, np.int32)
    paged_attention(
        output, CASE.q, cache_of(CASE), table, CASE.seq_lens, active, repaired=True, backend=Backend("cuda")
    )
    assert error(CASE, output) < TOLERANCE["float32"]
