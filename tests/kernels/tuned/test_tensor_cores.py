"""Rung 7 against float64: every element within what its roundings allow, over shapes, splits, warps and schedules."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels import oracle
from kernels.cases import DecodeCase
from kernels.cases_narrow import NarrowCase, narrow_decode_case, unpack
from kernels.errors import ArgumentError
from kernels.kernel import Backend, Kernel
from kernels.simt import SimtError
from kernels.simt.sanitize import Sanitizer
from kernels.tuned import tensor_cores
from kernels.tuned.call import Decode
from kernels.tuned.ladder import RUNGS
from kernels.tuned.plan import Plan
from kernels.unroll import source

# Half a unit in the last place, relative.
ROUNDING = {"bfloat16": 2.0**-8, "float16": 2.0**-11}
BACKENDS = ["sim", pytest.param("cuda", marks=pytest.mark.gpu)]


def poisoned(size: int, dtype: Any) -> np.ndarray[Any, Any]:
    """Scratch memory that holds NaN: nobody may read what nobody wrote."""
    return np.full(size, np.nan, dtype)


def call_of(narrow: NarrowCase, **changes: Any) -> Decode:
    """The call of a case; its output holds NaN."""
    case = narrow.case
    given: dict[str, Any] = {
        "out": np.full(narrow.q.shape, 0x7FFF, np.uint16).view(narrow.q.dtype), "query": narrow.q,
        "key_cache": narrow.k_cache, "value_cache": narrow.v_cache, "num_kv_heads": case.num_kv_heads,
        "scale": case.scale, "block_tables": case.block_tables, "seq_lens": case.seq_lens,
        "block_size": case.block_size, "max_seq_len": max(1, case.max_seq_len), "alibi_slopes": case.alibi_slopes,
    } | changes  # fmt: skip
    return Decode(**given)


def attend(
    narrow: NarrowCase, plan: Plan | None, backend: str | Backend = "sim", **changes: Any
) -> np.ndarray[Any, Any]:
    """The output's codes."""
    call = call_of(narrow, **changes)
    for launch in tensor_cores.launches(call, poisoned, plan):
        launch.run(backend)
    out: np.ndarray[Any, Any] = call.out
    return out


def allowed(case: DecodeCase, scalar: str) -> np.ndarray[Any, Any]:
    """Each weight is rounded once, and so is the output; float32 does the rest."""
    sizes = replace(case, values=tuple(np.abs(rows) for rows in case.values))
    total = oracle.attention(sizes)
    return ROUNDING[scalar] * (total + np.abs(oracle.attention(case))) + 2e-6 * total


def agrees(out: np.ndarray[Any, Any], narrow: NarrowCase, scalar: str, truth: DecodeCase | None = None) -> bool:
    error = np.abs(unpack(out, scalar).astype(np.float64) - oracle.attention(truth or narrow.case))
    return bool((error <= allowed(narrow.case, scalar)).all())


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("scalar", ["bfloat16", "float16"])
@pytest.mark.parametrize(
    ("lengths", "heads", "head_size", "block_size", "plan"),
    [
        ((37,), (8, 1), 128, 16, Plan(1, 1)),
        ((70, 1, 16), (14, 2), 64, 16, Plan(1, 2)),
        ((133, 0, 15), (8, 2), 64, 16, Plan(3, 2)),
        ((65,), (2, 2), 32, 16, Plan(2, 4)),
        ((33, 49), (4, 1), 256, 16, Plan(1, 2)),
        ((77, 33), (8, 2), 96, 32, Plan(2, 2)),
        ((47,), (16, 1), 128, 32, Plan(2, 1)),
        ((20, 100), (9, 1), 160, 16, Plan(5, 3)),
        ((40,), (28, 2), 64, 16, None),
    ],
)
def test_within_its_roundings(
    lengths: tuple[int, ...], heads: tuple[int, int], head_size: int, block_size: int, plan: Plan | None, scalar: str,
    backend: str,
) -> None:  # fmt: skip
    narrow = narrow_decode_case(lengths, *heads, head_size, block_size, scalar, seed=3, garbage="minus-one")
    assert agrees(attend(narrow, plan, backend), narrow, scalar)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("heads", [(3, 1), (24, 2)])
def test_alibi(heads: tuple[int, int], backend: str) -> None:
    narrow = narrow_decode_case((75, 18), *heads, 64, 16, "bfloat16", seed=4, alibi=True)
    out = attend(narrow, Plan(2, 2), backend)
    assert agrees(out, narrow, "bfloat16")
    assert not agrees(attend(narrow, Plan(2, 2), backend, alibi_slopes=None), narrow, "bfloat16")


@pytest.mark.parametrize("block_size", [16, 32])
def test_the_next_32_entries_of_the_table_are_loaded_in_time(block_size: int) -> None:
    # One warp, or two where a block has two pieces, walks 71 blocks: the entries come in three loads.
    narrow = narrow_decode_case((block_size * 70 + 3,), 2, 1, 32, block_size, "bfloat16", seed=5)
    assert agrees(attend(narrow, Plan(1, 1)), narrow, "bfloat16")


@settings(max_examples=20)
@given(
    st.lists(st.integers(0, 70), min_size=1, max_size=2),
    st.sampled_from([1, 2, 3, 7, 8, 9, 16]),
    st.sampled_from([1, 2]),
    st.sampled_from([32, 64]),
    st.sampled_from([16, 32]),
    st.builds(Plan, st.integers(1, 3), st.integers(1, 3)),
    st.booleans(),
    st.integers(0, 99),
)
def test_any_shape(
    lengths: list[int], group: int, kv_heads: int, head_size: int, block_size: int, plan: Plan, alibi: bool, seed: int
) -> None:
    narrow = narrow_decode_case(
        lengths, group * kv_heads, kv_heads, head_size, block_size, "bfloat16", seed=seed, alibi=alibi
    )
    assert agrees(attend(narrow, plan), narrow, "bfloat16")


@pytest.mark.parametrize("schedule", ["reversed", "random:1", "random:2"])
def test_any_order_of_the_warps(schedule: str) -> None:
    narrow = narrow_decode_case((90, 40), 4, 2, 32, 16, "bfloat16", seed=9)
    first = attend(narrow, Plan(2, 3))
    np.testing.assert_array_equal(attend(narrow, Plan(2, 3), Backend("sim", schedule)), first)


@pytest.mark.parametrize(("heads", "block_size", "plan"), [((8, 1), 16, Plan(1, 2)), ((12, 1), 32, Plan(2, 2))])
def test_the_sanitizers_find_nothing(heads: tuple[int, int], block_size: int, plan: Plan) -> None:
    watch = Sanitizer()
    narrow = narrow_decode_case((70,), *heads, 32, block_size, "bfloat16", seed=6, garbage="minus-one")
    with watch:
        attend(narrow, plan, Backend("sim", observers=(watch,)))
    assert watch.clean, [*map(str, watch.races), *map(str, watch.faults)]
    # The cache in the widths that the scheme wants, and each of its sectors once: 70 tokens are 5 pieces of 16.
    rows = [row for row in watch.memory.rows if row.array in ("k_cache", "v_cache")]
    moved = {name: sum(row.sectors for row in rows if row.array == name) * 32 for name in ("k_cache", "v_cache")}
    assert moved == {"k_cache": 5 * 16 * 32 * 2, "v_cache": 5 * 16 * 32 * 2}
    assert {(row.array, *row.sizes) for row in rows} == {("k_cache", 16), ("v_cache", 8)}


def test_an_empty_sequence_gives_zeros() -> None:
    narrow = narrow_decode_case((0, 5), 2, 1, 32, 16, "bfloat16")
    for plan in (Plan(1), Plan(3)):
        assert not attend(narrow, plan)[0].any()


def test_a_nan_of_the_sequence_itself_is_not_hidden() -> None:
    narrow = narrow_decode_case((20, 20), 2, 1, 32, 16, "bfloat16", order="identity")
    for cache in (narrow.k_cache, narrow.v_cache):
        spoilt = cache.copy()
        changes: dict[str, Any]
        # Token 3 of the first sequence, in one head element.
        if spoilt.ndim == 5:
            spoilt[0, 0, 1, 3, 2] = 0x7FC0
            changes = {"key_cache": spoilt}
        else:
            spoilt[0, 0, 10, 3] = 0x7FC0
            changes = {"value_cache": spoilt}
        found = unpack(attend(narrow, Plan(1, 2), **changes), "bfloat16")
        assert np.isnan(found[0]).any()
        assert np.isfinite(found[1]).all()


def test_what_is_wrong_fails() -> None:
    narrow = narrow_decode_case((40,), 2, 1, 32, 16, "bfloat16", seed=2)
    out = attend(narrow, Plan(1, 2))
    case = narrow.case
    for change in (lambda rows: rows[:-1], lambda rows: np.concatenate([rows, rows[:1]])):
        wrong = replace(case, keys=tuple(map(change, case.keys)), values=tuple(map(change, case.values)))
        assert not agrees(out, narrow, "bfloat16", truth=wrong)
    assert not agrees(np.roll(out, 1, axis=1), narrow, "bfloat16")
    assert not agrees(np.zeros_like(out), narrow, "bfloat16")
    assert not agrees(attend(narrow, Plan(1, 2), scale=case.scale / 2), narrow, "bfloat16")


SIZES = {"HEAD_SIZE": 64, "BLOCK_SIZE": 16, "GROUP": 2, "FORMAT": "bfloat16", "WARPS": 2}


def mutant(old: str, new: str) -> Kernel:
    """The kernel as it is written out, with one piece of its text replaced wherever it stands."""
    kern = tensor_cores.paged_decode_tensor_cores
    text = source(kern, **SIZES)
    assert old in text
    scope = dict(kern.fn.__globals__)
    exec(text.replace(old, new), scope)
    return Kernel(scope[kern.name], None, kern.specialise(**SIZES).constants)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("g = int32", "g = int32"),  # nothing
        ("if left < TOKENS", "if left < 0"),  # the tail is not masked
        ("v_0 &= low", "v_0 &= high"),
        ("mine <= 3", "mine <= 2"),
        ("4 * (g // 2) + g % 2", "2 * (g // 2) + g % 2"),  # the order of the tokens
        ("v_lane = int32(g * 16 + 4 * t", "v_lane = int32(g * 16 + 2 * t"),
        ("keep0 = cuda.shfl_sync(FULL, keep, 8 * t)", "keep0 = keep"),
        ("acc_3 * keep1", "acc_3 * keep0"),
        ("cuda.shfl_xor_sync(FULL, top, 2)", "top"),  # the maximum of half a row
        ("cuda.shfl_xor_sync(FULL, total_0, 1)", "total_0"),
        ("row + lane * 2", "row + lane"),
        ("left = int32(left - TOKENS * 2)", "left = int32(left - TOKENS)"),
        ("q_low_0, q_low_1,", "q_low_1, q_low_0,"),
        ("shares[1088 + other", "shares[1104 + other"),
    ],
)
def test_a_kernel_with_one_thing_wrong_is_wrong(old: str, new: str) -> None:
    narrow = narrow_decode_case((91,), 2, 1, 64, 16, "bfloat16", seed=2, spare_blocks=20, extra_columns=20)
    call = call_of(narrow)
    (launch,) = tensor_cores.launches(call, poisoned, Plan(1, 2))
    try:
        replace(launch, kernel=mutant(old, new)).run()
    except SimtError:
        assert old != new
        return
    assert agrees(call.out, narrow, "bfloat16") == (old == new)


# What is refused


@pytest.mark.parametrize(
    ("shape", "changes", "said"),
    [
        ((17, 1, 32, 16), {}, "makes groups above 16"),
        ((2, 1, 48, 16), {}, "head_size = 48: must be a multiple of 32"),
        ((2, 1, 288, 16), {}, "head_size = 288: must be a multiple of 32, at most 256"),
        ((2, 1, 32, 8), {}, "block_size = 8: must be 16 or 32"),
        ((2, 1, 32, 16), {"query_len": 2, "seq_lens": np.array([5], np.int32)}, "query_len = 2: must be 1"),
    ],
)
def test_sizes_that_the_fragments_do_not_fit_are_refused(
    shape: tuple[int, int, int, int], changes: dict[str, Any], said: str
) -> None:
    narrow = narrow_decode_case((5, 5) if changes else (5,), *shape, "bfloat16")
    if changes:
        changes = {**changes, "block_tables": narrow.case.block_tables[:1]}
    with pytest.raises(ArgumentError, match=said):
        attend(narrow, None, **changes)


def test_an_fp8_cache_and_a_plan_that_is_not_for_it_are_refused() -> None:
    narrow = narrow_decode_case((5,), 2, 1, 32, 16, "bfloat16", "fp8")
    with pytest.raises(ArgumentError, match="kv_cache_dtype = fp8: must be auto"):
        attend(narrow, None, kv_cache_dtype="fp8")
    narrow = narrow_decode_case((5,), 2, 1, 32, 16, "bfloat16")
    with pytest.raises(ArgumentError, match="warps = 9: must be at most 8"):
        attend(narrow, Plan(1, 9))
    with pytest.raises(ArgumentError, match="balance"):
        attend(narrow, Plan(1, 4, balance=True))


# How it is cut, and what is written out


@pytest.mark.parametrize(
    ("seqs", "heads", "head_size", "length", "plan"),
    [
        (64, (28, 4), 128, 4096, (1, 4)),
        (64, (32, 8), 128, 4096, (2, 4)),
        (64, (32, 8), 64, 4096, (1, 4)),
        (1, (32, 8), 128, 32768, (16, 8)),
        (256, (32, 8), 128, 1024, (1, 4)),
        (1, (32, 8), 128, 100, (1, 8)),
    ],
)
def test_splits_fill_the_multiprocessors(
    seqs: int, heads: tuple[int, int], head_size: int, length: int, plan: tuple[int, int]
) -> None:
    narrow = narrow_decode_case((1,), *heads, head_size, 16, "bfloat16")
    one = call_of(narrow, max_seq_len=length)
    rows: dict[str, Any] = {
        name: np.repeat(getattr(one, name), seqs, axis=0) for name in ("out", "query", "block_tables", "seq_lens")
    }
    chosen = tensor_cores.plan_for(replace(one, **rows), 132)
    assert (chosen.splits, chosen.warps) == plan


def test_splits_are_merged_by_a_second_launch() -> None:
    narrow = narrow_decode_case((90,), 6, 2, 32, 32, "bfloat16")
    (alone,) = tensor_cores.launches(call_of(narrow), np.zeros, Plan(1, 4))
    assert (alone.grid, alone.threads) == ((1, 2, 1), 128)
    first, second = tensor_cores.launches(call_of(narrow), np.zeros, Plan(3, 3))
    # Three warps become four: a warp keeps to one half of its blocks.
    assert (first.grid, first.threads, second.grid) == ((3, 2, 1), 128, (6, 1, 1))


def test_what_is_written_out_keeps_its_fragments_in_variables() -> None:
    text = source(tensor_cores.paged_decode_tensor_cores, **SIZES)
    assert "acc_15" in text
    assert "acc_16" not in text
    # Keys and values before the loop and in it; 4 steps of two tiles, and 4 of head elements.
    assert text.count("load_words_x4(k_cache") == text.count("load_words_x2(v_cache") // 2 == 2 * 4
    assert text.count("mma(") == 4 * 2 + 4


def test_it_is_a_rung_of_the_ladder() -> None:
    assert RUNGS["tensor-cores"].launches is tensor_cores.launches
    assert RUNGS["tensor-cores"].number == 7
