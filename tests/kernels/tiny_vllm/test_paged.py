"""The whole kernel of tiny-vllm: addresses, table, race, output in place; against float64 and plain indexing."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels import oracle
from kernels.cases import decode_case
from kernels.errors import ArgumentError, KernelError
from kernels.kernel import Backend
from kernels.probe import Probed, Watch
from kernels.simt.report import SimtError, UninitialisedRead
from kernels.simt.sanitize import Sanitizer
from kernels.simt.widening import widenings
from kernels.tiny_vllm import attention, block_table, paged
from kernels.tiny_vllm.attention import cache_of
from kernels.tiny_vllm.paged import block_starts, tiny_attention, tiny_attention_kernel, walk_table

TOLERANCE = {"float32": 2e-6, "float16": 2e-3}
SCHEDULES = ("in-order", "reversed", "random:1", "random:2")
CASE = decode_case([33, 18], 4, 1, 64, 16, seed=1)


def arguments_of(case, slots=None, layer=0, layers=1):
    active = np.arange(case.num_seqs, dtype=np.int32) if slots is None else np.array(slots, np.int32)
    table = np.full((active.max() + 1, layers, case.block_tables.shape[1]), -1, np.int32)
    table[active, layer] = case.block_tables
    return [layer, case.num_seqs, case.q.copy(), cache_of(case), table, case.seq_lens, active]


def run(case, *, schedule="in-order", observers=(), slots=None, layer=0, layers=1, in_place=False, **options):
    given_ = arguments_of(case, slots, layer, layers)
    output = given_[2] if in_place else np.full(case.q.shape, np.nan, case.q.dtype)
    tiny_attention(*given_, output, backend=Backend("sim", schedule, observers=observers), **options)
    return output


def error(case, output):
    return float(np.abs(output.astype(np.float64) - oracle.attention(case)).max())


# -- against float64


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("in_place", [False, True])
def test_repaired_it_is_right_under_every_schedule(dtype, schedule, in_place):
    case = decode_case([1, 16, 37], 8, 2, 64, 16, dtype=dtype, seed=2)
    assert error(case, run(case, repaired=True, schedule=schedule, in_place=in_place)) < TOLERANCE[dtype]


@settings(max_examples=10)
@given(
    st.lists(st.integers(1, 40), min_size=1, max_size=2),
    st.sampled_from(((4, 1), (8, 2))),
    st.integers(0, 100),
    st.integers(0, 2),
)
def test_any_lengths_slots_and_layers_agree_with_the_oracle(lengths, heads, seed, layer):
    case = decode_case(lengths, *heads, 64, 16, seed=seed, garbage="minus-one")
    slots = np.random.default_rng(seed).permutation(5)[: len(lengths)]
    assert error(case, run(case, repaired=True, slots=slots, layer=layer, layers=3)) < 5e-6


def test_it_computes_what_the_loop_alone_computes_bit_for_bit():
    output = np.full(CASE.q.shape, np.nan, CASE.q.dtype)
    layer, _, q, cache, table, lengths, active = arguments_of(CASE, slots=[2, 0], layer=1, layers=2)
    attention.paged_attention(output, q, cache, table, lengths, active, layer, repaired=True)
    assert np.array_equal(output, run(CASE, repaired=True, slots=[2, 0], layer=1, layers=2))


def test_no_tokens_is_nothing_divided_by_nothing():
    case = decode_case([0, 3], 4, 1, 64, 16, seed=3)
    output = run(case, repaired=True)
    assert np.isnan(output[0]).all()
    assert error(decode_case([0, 3], 4, 1, 64, 16, seed=3), np.nan_to_num(output)) < 2e-6


# -- the race


def test_as_it_stands_the_order_of_the_warps_decides():
    assert error(CASE, run(CASE, schedule="replay:*=1")) < TOLERANCE["float32"]
    assert error(CASE, run(CASE, schedule="replay:*=0")) > 0.1


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_the_race_is_reported_under_every_schedule(schedule):
    watch = Sanitizer()
    with watch:
        run(CASE, schedule=schedule, observers=(watch,))
    (race,) = watch.races
    assert (race.hazard, race.element, race.threads) == (
        "write-after-read",
        "dot_products[0]",
        (set(range(32, 64)), {0}),
    )
    source = Path(race.first.file).read_text("utf-8").splitlines()
    assert source[race.first.line - 1].strip() == "dot_product = dot_products[0]"
    assert source[race.second.line - 1].strip() == "dot_products[0] = qk"
    assert watch.faults == []


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("in_place", [False, True])
def test_repaired_it_is_clean_in_place_or_not(schedule, in_place):
    watch = Sanitizer()
    with watch:
        run(CASE, repaired=True, schedule=schedule, observers=(watch,), in_place=in_place)
    assert watch.clean


def test_in_place_a_neighbours_query_would_be_lost_if_blocks_shared_rows():
    # What makes it safe: each element of the query is read by the one thread that writes it.
    lines = Path(paged.__file__).read_text("utf-8").splitlines()
    place = "active_slot * EMBEDDING_LENGTH + q_head_id * HEAD_DIM + thread_id"
    assert [line.split("[")[0].split()[-1] for line in lines if place in line] == ["q_proj", "output"]


# -- head sizes


def test_at_32_the_second_float_is_never_written():
    case = decode_case([5], 4, 1, 32, 16, seed=4)
    with pytest.raises(UninitialisedRead, match=r"\[1\] is read before anything was written"):
        run(case, repaired=True)
    assert np.isnan(run(case, repaired=True, marked=True)).all()


def test_at_64_the_mark_is_overwritten():
    assert error(CASE, run(CASE, repaired=True, marked=True)) < TOLERANCE["float32"]


def test_at_128_two_warps_are_dropped_and_the_scale_is_still_8():
    case = decode_case([21], 4, 1, 128, 16, seed=5)
    q, keys = case.q[0, :, :64].astype(np.float64), case.keys[0][:, 0, :64].astype(np.float64)
    scores = q @ keys.T / 8
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    expected = weights / weights.sum(axis=1, keepdims=True) @ case.values[0][:, 0]
    output = run(case, repaired=True)[0]
    np.testing.assert_allclose(output, expected, atol=3e-6)
    assert error(case, output[None]) > 0.1


# -- constants, table, address


def test_the_constants_stand_twice_and_agree():
    names = ("N_LAYERS", "KV_DIM", "BLOCK_SIZE", "V_OFFSET", "BLOCK_BYTES", "MAX_BLOCKS_PER_SEQ", "MAX_SEQ_LEN")
    assert [getattr(paged, name) for name in names] == [getattr(block_table, name) for name in names]
    assert (paged.KV_DIM, paged.V_OFFSET, paged.BLOCK_BYTES) == (512, 16384, 32768)
    derived = paged.constexpr()
    assert {name: getattr(paged, name) for name in derived} == derived


def test_constants_that_disagree_are_not_noticed_by_anything():
    case = decode_case([8], 4, 1, 64, 16, seed=6, order="identity")
    cache = cache_of(case)
    cache[0, 0, 8:] = 7.0  # what the kernel takes for values: rows 8 to 15 of the keys
    layer, active, q, _, table, lengths, slots = arguments_of(case)
    output = np.zeros_like(case.q)
    tiny_attention(layer, active, q, cache, table, lengths, slots, output, repaired=True, block_size=8)
    np.testing.assert_allclose(output, 7.0, atol=1e-5)


@pytest.mark.parametrize("shape", [(2, 16, 128), (1, 1, 1), (3, 2, 5)])
def test_every_entry_of_a_table_is_found_where_numpy_finds_it(shape):
    table = np.random.default_rng(7).permutation(65536)[: np.prod(shape)].reshape(shape).astype(np.int32)
    found, places = np.full_like(table, -9), np.full_like(table, -9)
    walk_table(table, found, places)
    assert np.array_equal(found, table)
    assert np.array_equal(places.reshape(-1), np.arange(table.size))


def test_one_column_too_far_is_the_next_layer():
    places = {
        (s, y, c): paged.table_index.fn(s, y, c) for s, y, c in itertools.product(range(2), range(16), range(129))
    }
    assert all(places[s, y, 128] == places[s, y + 1, 0] for s in range(2) for y in range(15))
    assert places[0, 15, 128] == places[1, 0, 0]
    assert places[1, 15, 128] == 4096  # past the table


@settings(max_examples=50)
@given(st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=20))
def test_block_starts_wrap_as_an_int_does(numbers):
    blocks = np.array(numbers, np.int32)
    starts, wide = np.zeros(len(blocks), np.int64), np.zeros(len(blocks), np.int64)
    block_starts(blocks, starts, wide)
    exact = [32768 * number for number in numbers]
    assert wide.tolist() == exact
    assert starts.tolist() == [(value + 2**31) % 2**32 - 2**31 for value in exact]


def test_the_last_block_ends_at_the_last_address_of_an_int():
    starts, wide = np.zeros(2, np.int64), np.zeros(2, np.int64)
    block_starts(np.array([65535, 65536], np.int32), starts, wide)
    assert starts.tolist() == [2_147_450_880, -(2**31)]
    assert starts[0] + 32767 == 2**31 - 1


@given(st.integers(0, 3), st.integers(0, 15), st.integers(0, 1), st.integers(0, 63))
@settings(max_examples=20)
def test_the_addresses_are_those_of_the_array(block, token, head, dim):
    constants = paged.constexpr(NUM_Q_HEADS=8, scalar_t=paged.float32)
    places = np.arange(4 * 2 * 16 * 2 * 64).reshape(4, 2, 16, 2, 64)
    row = token * constants["KV_DIM"] * 4 + head * 64 * 4 + dim * 4
    start = block * constants["BLOCK_BYTES"]
    assert (start + row) // 4 == places[block, 0, token, head, dim]
    assert (start + constants["V_OFFSET"] + row) // 4 == places[block, 1, token, head, dim]


# -- probes, types, nonsense


def test_probes_find_their_lines():
    watch = Watch("score", "dot_product", (1, 10_000), "dot_product", ("active_slot", "logical_block_idx", "token"))
    probed = Probed(tiny_attention_kernel, [watch])
    run(CASE, repaired=True, entry=probed)
    found = {r.keys: r.value for r in probed.readings("score") if r.block == 0 and r.thread == 40}
    expected = oracle.logits(CASE, 0, 0)
    assert sorted(found) == [(0, t // 16, t % 16) for t in range(33)]
    np.testing.assert_allclose([found[key] for key in sorted(found)], expected, atol=2e-6)


@pytest.mark.parametrize("kernel", [tiny_attention_kernel, paged.walk_table_kernel, paged.block_starts_kernel])
def test_nothing_widens_to_float64(kernel):
    assert widenings(kernel.fn) == []


def changed(**changes):
    names = ("layer", "num_active_slots", "q_proj", "kv_cache", "block_table", "seq_lens", "active_slots", "output")
    ones = np.ones(1, np.int32)
    base = (0, 1, np.zeros((1, 4, 64), np.float32), np.zeros((2, 2, 16, 1, 64), np.float32))
    base = (*base, np.zeros((1, 1, 2), np.int32), ones, ones * 0, np.zeros((1, 4, 64), np.float32))
    return {**dict(zip(names, base, strict=True)), **changes}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"q_proj": np.zeros((1, 4, 48), np.float32)}, r"output\.shape"),
        ({"q_proj": np.zeros((1, 6, 64), np.float32)}, "multiple of 4 query heads"),
        ({"q_proj": np.zeros((1, 4, 64))}, r"q_proj\.dtype = float64"),
        ({"num_active_slots": 2}, "num_active_slots = 2: must be the 1 rows"),
        ({"output": np.zeros((1, 4, 64), np.float16)}, r"output\.dtype"),
        ({"kv_cache": np.zeros((2, 1, 16, 1, 64), np.float32)}, r"kv_cache\.shape"),
        ({"block_table": np.zeros((1, 2), np.int32)}, r"block_table\.shape"),
        ({"seq_lens": np.full(1, 33, np.int32)}, r"seq_lens\[0\] = 33: must be from 0 to 32"),
        ({"seq_lens": np.full(1, -1, np.int32)}, r"seq_lens\[0\] = -1"),
        ({"active_slots": np.ones(1, np.int32)}, r"active_slots\[0\] = 1"),
        ({"layer": 1}, "layer = 1: must be from 0 to 0"),
        (
            {"block_table": np.full((1, 1, 2), -1, np.int32)},
            r"block_table\[0, 0, 0\] = -1: must be a block of the cache",
        ),
    ],
)
def test_nonsense_is_refused_before_anything_runs(changes, message):
    with pytest.raises(ArgumentError, match=message):
        tiny_attention(**changed(**changes))


def test_a_head_size_of_48_has_half_a_warp():
    wide = {"q_proj": np.zeros((1, 4, 48), np.float32), "output": np.zeros((1, 4, 48), np.float32)}
    with pytest.raises(ArgumentError, match=r"must end in a head size of \(32, 64, 128\)"):
        tiny_attention(**changed(**wide, kv_cache=np.zeros((2, 2, 16, 1, 48), np.float32)))


def test_the_small_kernels_check_their_arguments():
    table = np.zeros((1, 1, 2), np.int32)
    with pytest.raises(ArgumentError, match=r"places\.shape"):
        walk_table(table, table.copy(), np.zeros((1, 2), np.int32))
    with pytest.raises(ArgumentError, match=r"wide\.dtype"):
        block_starts(np.zeros(2, np.int32), np.zeros(2, np.int64), np.zeros(2, np.int32))
    assert issubclass(ArgumentError, KernelError)
    assert issubclass(UninitialisedRead, SimtError)


@pytest.mark.gpu
@pytest.mark.parametrize("in_place", [False, True])
def test_a_gpu_agrees_with_the_oracle(in_place):
    given_ = arguments_of(CASE)
    output = given_[2] if in_place else np.full(CASE.q.shape, np.nan, CASE.q.dtype)
    tiny_attention(*given_, output, repaired=True, backend=Backend("cuda"))
    assert error(CASE, output) < TOLERANCE["float32"]


@pytest.mark.gpu
def test_a_gpu_cuts_the_address_as_the_machine_does():
    blocks = np.array([0, 65535, 65536, 131071], np.int32)
    starts, wide = np.zeros(4, np.int64), np.zeros(4, np.int64)
    block_starts(blocks, starts, wide, backend=Backend("cuda"))
    assert starts.tolist() == [0, 2_147_450_880, -(2**31), -32768]
    assert wide.tolist() == [0, 2_147_450_880, 2**31, 131071 * 32768]
