"""The classic v2 port: partitions and their merge against the float64 oracle, and what its launcher refuses."""

from __future__ import annotations

import inspect
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numba import float32
from numba.types import float16

from kernels import cases, layout, oracle, oracle_v2
from kernels.cases import DecodeCase
from kernels.errors import ArgumentError, KernelError, LaunchError
from kernels.kernel import Backend, Kernel
from kernels.probe import Probed, Watch
from kernels.simt.sanitize import Sanitizer
from kernels.vllm.classic_v1 import paged_attention_v1
from kernels.vllm.classic_v2 import (
    buffers,
    paged_attention_v2,
    paged_attention_v2_kernel,
    paged_attention_v2_reduce_kernel,
    reduce_constexpr,
)

SCHEDULES = ("in-order", "reversed", "random:1", "random:2")
POISONS = (float("nan"), float("inf"), 1e30, -1e30, 0.0)


def fresh(case: DecodeCase, size: int = 512, max_seq_len: int | None = None, fill: float = np.nan) -> Any:
    """The three buffers for a case, every element `fill` (clipped to what the dtype holds)."""
    length = case.max_seq_len if max_seq_len is None else max_seq_len
    made = buffers(case.num_seqs, case.num_heads, case.head_size, length, np.float32, size, fill)
    largest = float(np.finfo(case.q.dtype).max)
    return *made[:2], np.clip(made[2], -largest, largest).astype(case.q.dtype)


def attend(
    case: DecodeCase, size: int = 512, backend: str | Backend = "sim", max_seq_len: int | None = None,
    notes: Any = None, **options: Any,
) -> Any:  # fmt: skip
    """The port's output; it starts as NaN, and so do the buffers unless given."""
    out = np.full(case.q.shape, np.nan, case.q.dtype)
    paged_attention_v2(
        out, *(notes or fresh(case, size, max_seq_len)), case.q, case.k_cache, case.v_cache, case.num_kv_heads,
        case.scale, case.block_tables, case.seq_lens, case.block_size, max_seq_len or case.max_seq_len,
        case.alibi_slopes, backend=backend, partition_size=size, **options,
    )  # fmt: skip
    return out


def tolerance(case: DecodeCase) -> Any:
    """The largest error that rounding alone can make of each output element."""
    mass = oracle.attention(replace(case, values=tuple(np.abs(rows) for rows in case.values)))
    if case.q.dtype == np.float32:
        return 5e-6 * (1 + mass)
    # As in v1, and one rounding more: the partial outputs are float16.
    return 8 * 2.0**-11 * mass + 5 * 2.0**-24 * case.max_seq_len + 1e-5 * (1 + mass)


def agrees(out: Any, truth: Any, case: DecodeCase) -> bool:
    assert out.dtype == case.q.dtype
    # NaN is not below anything.
    return bool((np.abs(out.astype(np.float64) - truth) <= tolerance(case)).all())


@st.composite
def partitioned(draw: st.DrawFn) -> tuple[DecodeCase, int]:
    """Small partitions, lengths at and around block and partition edges, and few thread blocks."""
    block_size = draw(st.sampled_from([8, 16, 32]))
    size = block_size * draw(st.integers(1, 3))
    edges = [edge * turn + step for edge in (block_size, size) for turn in (1, 2, 3) for step in (-1, 0, 1)]
    num_kv_heads, group = draw(st.sampled_from([(1, 1), (1, 2), (2, 1)]))
    case = cases.decode_case(
        draw(st.lists(st.sampled_from([0, 1, *edges]), min_size=1, max_size=2).filter(any)),
        num_kv_heads * group,
        num_kv_heads,
        draw(st.sampled_from([32, 64, 80, 120])),
        block_size,
        draw(st.sampled_from(["float16", "float32"])),
        seed=draw(st.integers(0, 999)),
        alibi=draw(st.booleans()),
        garbage=draw(st.sampled_from(["valid", "minus-one"])),
        poison=draw(st.sampled_from([float("nan"), 6e4, -6e4])),
    )
    return case, size


# -- against the oracle


@settings(max_examples=40)
@given(partitioned(), st.sampled_from(SCHEDULES), st.sampled_from(POISONS))
def test_v2_is_attention(drawn: tuple[DecodeCase, int], schedule: str, fill: float) -> None:
    case, size = drawn
    out = attend(case, size, Backend("sim", schedule), notes=fresh(case, size, fill=fill))
    assert agrees(out, oracle_v2.attention(case, size), case)
    assert agrees(out, oracle.attention(case), case)
    for seq in np.flatnonzero(case.seq_lens == 0):
        assert not out[seq].any(), "no tokens: zeros"


@settings(max_examples=20)
@given(partitioned(), st.sampled_from(POISONS))
def test_the_buffers_hold_each_partitions_own_softmax_and_nothing_else(
    drawn: tuple[DecodeCase, int], fill: float
) -> None:
    case, size = drawn
    notes = fresh(case, size, fill=fill)
    poison = [note.copy() for note in notes]
    attend(case, size, notes=notes)
    for seq, length in enumerate(case.seq_lens):
        used = -(-int(length) // size)
        for note, before in zip(notes, poison, strict=True):
            np.testing.assert_array_equal(note[seq, :, used:], before[seq, :, used:])
        for head in range(case.num_heads):
            loose = 2e-5 * (1 + np.abs(oracle_v2.maxima(case, seq, head, size)))
            assert (np.abs(notes[1][seq, head, :used] - oracle_v2.maxima(case, seq, head, size)) <= loose).all()
            np.testing.assert_allclose(notes[0][seq, head, :used], oracle_v2.sums(case, seq, head, size), rtol=1e-4)
            rows = oracle_v2.outputs(case, seq, head, size)
            np.testing.assert_allclose(notes[2][seq, head, :used], rows, atol=6e-3, rtol=4e-3)


@pytest.mark.parametrize("length", [1, 15, 16, 17, 511, 512, 513, 528, 600, 1024, 1025])
def test_vllms_own_partition_size_at_block_and_partition_edges(length: int) -> None:
    for dtype in ("float16", "float32"):
        case = cases.decode_case((length,), 1, 1, 32, 16, dtype, seed=length)
        assert agrees(attend(case), oracle_v2.attention(case, 512), case)
        assert agrees(attend(case), oracle.torch_sdpa(case), case)


def test_one_partition_is_v1_to_the_bit() -> None:
    for dtype in ("float16", "float32"):
        case = cases.decode_case((512, 70), 2, 1, 32, 16, dtype, seed=6)
        v1 = np.full(case.q.shape, np.nan, case.q.dtype)
        paged_attention_v1(
            v1, case.q, case.k_cache, case.v_cache, 1, case.scale, case.block_tables, case.seq_lens, 16, 512
        )
        assert attend(case).tobytes() == v1.tobytes()


@settings(max_examples=6)
@given(partitioned())
def test_the_order_of_warps_and_blocks_changes_no_bit(drawn: tuple[DecodeCase, int]) -> None:
    case, size = drawn
    assert len({attend(case, size, Backend("sim", schedule)).tobytes() for schedule in SCHEDULES}) == 1


@pytest.mark.parametrize("num_threads", [32, 64, 256])
def test_other_numbers_of_warps(num_threads: int) -> None:
    case = cases.decode_case((70, 9), 2, 1, 64, 8, "float32", seed=num_threads, alibi=True)
    assert agrees(attend(case, 16, num_threads=num_threads), oracle_v2.attention(case, 16), case)


def test_more_partitions_than_threads() -> None:
    # 150 partitions for 128 threads: both loops over partitions must come back.
    case = cases.decode_case((1200,), 1, 1, 32, 8, "float32", seed=9)
    assert agrees(attend(case, 8), oracle_v2.attention(case, 8), case)


def test_the_tolerance_would_notice_a_partition_without_its_factor() -> None:
    for dtype in ("float16", "float32"):
        case = cases.decode_case((40,), 1, 1, 32, 8, dtype, seed=4)
        rows = oracle_v2.outputs(case, 0, 0, 16)
        totals = oracle_v2.sums(case, 0, 0, 16)
        unscaled = (totals @ rows / totals.sum())[None, None]
        assert not agrees(attend(case, 16), unscaled, case)
        assert not agrees(attend(case, 16), rows.mean(0)[None, None], case)


# -- values written down


def reduce(maxima: list[float], sums: list[float], rows: list[float], seq_len: int, size: int = 2) -> Any:
    """The reduce kernel alone, on notes of one head; element 0 of the output."""
    out = np.full(32, np.nan, np.float32)
    count = len(maxima)
    tmp_out = np.zeros((count, 32), np.float32)
    tmp_out[:, 0] = rows
    chosen = paged_attention_v2_reduce_kernel.specialise(
        HEAD_SIZE=32, NUM_THREADS=128, PARTITION_SIZE=size, scalar_t=float32
    )
    chosen.on("sim")[(1, 1), 128, 0, 8 * count](
        out, np.array(sums, np.float32), np.array(maxima, np.float32), tmp_out.reshape(-1),
        np.array([seq_len], np.int32), count,
    )  # fmt: skip
    return out[0]


def test_k15_one_two_and_five() -> None:
    e = float(np.exp(-1.0))
    rows = [(10 * e + 20) / (1 + e), 30.0]
    assert reduce([2, 5], [1 + e, 1], rows, 3) == pytest.approx(29.190917, abs=3e-5)
    # Forgetting the factor, and the plain mean, are far away.
    assert oracle_v2.merge([0, 0], [1 + e, 1], rows, 0) == pytest.approx(22.669564)
    assert np.mean(rows) == pytest.approx(23.655293)


def test_k15_the_same_through_both_kernels() -> None:
    # A partition has at least one KV block of 8: six tokens fill it, too small to be heard.
    keys, values = np.zeros((9, 1, 32), np.float32), np.zeros((9, 1, 32), np.float32)
    keys[:, 0, 0], values[:, 0, 0] = [1, 2, *[-1000] * 6, 5], [10, 20, *[500] * 6, 30]
    case = cases.decode_case((9,), 1, 1, 32, 8)
    blocks = case.blocks_of(0)
    for cache, rows in ((cases.unpack_keys(case.k_cache), keys), (cases.unpack_values(case.v_cache), values)):
        for token in range(9):
            cache[blocks[token // 8], token % 8] = rows[token]
        packed = cases.pack_keys(cache) if rows is keys else cases.pack_values(cache)
        (case.k_cache if rows is keys else case.v_cache)[:] = packed
    q = np.zeros((1, 1, 32), np.float32)
    q[0, 0, 0] = 1
    out = attend(replace(case, q=q, scale=1.0), 8)
    assert out[0, 0, 0] == pytest.approx(29.190917, abs=6e-5)


def test_k15_an_empty_partition_weighs_nothing() -> None:
    # vLLM's sentinel is a finite number: all tokens skipped leave their count as the sum.
    lowest = -3.4028234663852886e38
    assert reduce([1.5, lowest], [2.0, 7.0], [4.0, 1e30], 3) == pytest.approx(4.0, abs=1e-5)


@pytest.mark.parametrize("fill", POISONS)
def test_k15_length_600_with_room_for_four_partitions(fill: float) -> None:
    case = cases.decode_case((600,), 1, 1, 32, 16, "float32", seed=15)
    notes = fresh(case, max_seq_len=2048, fill=fill)
    assert [note.shape[2] for note in notes] == [4, 4, 4]
    before = [note.copy() for note in notes]
    out = attend(case, max_seq_len=2048, notes=notes)
    assert agrees(out, oracle_v2.attention(case, 512), case)
    for note, old in zip(notes, before, strict=True):
        np.testing.assert_array_equal(note[:, :, 2:], old[:, :, 2:])
        assert not np.array_equal(note[:, :, 1], old[:, :, 1])
    assert notes[0][0, 0, 1] <= 88, "88 tokens in the second"


def test_k15_length_513_has_a_partition_of_one_token() -> None:
    case = cases.decode_case((513,), 1, 1, 32, 16, "float32", seed=16)
    notes = fresh(case)
    out = attend(case, notes=notes)
    assert notes[0][0, 0].tolist()[1] == 1.0
    np.testing.assert_allclose(notes[2][0, 0, 1], case.values[0][512, 0] * np.float32(0.99999905), rtol=1e-6)
    assert agrees(out, oracle.attention(case), case)


def test_k15_no_tokens_give_zeros_and_do_not_copy() -> None:
    case = cases.decode_case((0, 3), 1, 1, 32, 16, "float32")
    out = attend(case, notes=fresh(case, fill=7))
    assert not out[0].any()
    assert out[1].any()


def test_the_epsilon_counts_twice_with_two_partitions() -> None:
    # Equal scores of one token a partition: every sum is exactly 1, every weight of the merge one half.
    found = reduce([0, 0], [1, 1], [1 / (1 + 1e-6)] * 2, 3)
    assert found < np.float32(1 / (1 + 1e-6)) < 1
    assert found == pytest.approx(1 - 1.5e-6, abs=2e-7)
    assert reduce([0], [1], [1 / (1 + 1e-6)], 1) == np.float32(1 / (1 + 1e-6)), "one partition: copied"


# -- launches


def test_k10_v1_or_v2() -> None:
    table = [
        (512, 1, 32, True),
        (513, 1, 32, False),
        (8192, 16, 32, False),
        (8192, 17, 32, True),
        (8193, 17, 32, False),
    ]
    for max_len, seqs, heads, v1 in table:
        assert layout.use_v1(max_len, seqs, heads) is v1


@pytest.mark.parametrize(("max_seq_len", "partitions"), [(512, 1), (513, 2), (1024, 2), (2048, 4)])
def test_the_grid_has_a_layer_for_each_partition_of_the_longest(max_seq_len: int, partitions: int) -> None:
    case = cases.decode_case((9,), 2, 1, 32, 16, "float32")
    watch = Watch("z", "cuda.blockIdx.z", (1, 999), "max_num_partitions", (), "cuda.threadIdx.x == 0")
    probed = Probed(paged_attention_v2_kernel, [watch])
    attend(case, max_seq_len=max_seq_len, entry=probed)
    assert sorted(r.value for r in probed.readings("z")) == sorted([*range(partitions)] * 2)


def test_the_reduce_kernel_reads_only_the_partitions_that_exist() -> None:
    case = cases.decode_case((40, 9, 17), 1, 1, 32, 8, "float32", seed=3)
    lines, first = inspect.getsourcelines(paged_attention_v2_reduce_kernel.fn)
    line = first + next(number for number, text in enumerate(lines) if "acc +=" in text)
    watch = Watch("j", "j", (line, line), "acc", ("seq_idx",), "cuda.threadIdx.x == 0")
    probed = Probed(paged_attention_v2_reduce_kernel, [watch])
    attend(case, 16, reduce_entry=probed)
    seen = [(reading.keys[0], reading.value) for reading in probed.readings("j")]
    # Sequence 1 has a single partition and takes the copy path.
    assert set(seen) == {(0, 0), (0, 1), (0, 2), (2, 0), (2, 1)}


def without_barrier(which: int) -> Kernel:
    """The reduce kernel without its barrier number `which`."""
    text = Path(inspect.getfile(paged_attention_v2_reduce_kernel.fn)).read_text("utf-8")
    head, body = text.split("def paged_attention_v2_reduce_kernel(")
    parts = body.split("cuda.syncthreads()")
    assert len(parts) == 4, "three barriers"
    joined = "".join(
        part + ("" if turn == 3 else "pass" if turn == which else "cuda.syncthreads()")
        for turn, part in enumerate(parts)
    )
    scope: dict[str, Any] = {"__name__": "kernels.vllm.changed"}
    exec(compile(f"{head}def paged_attention_v2_reduce_kernel({joined}", "changed", "exec"), scope)
    kernel = scope["paged_attention_v2_reduce_kernel"]
    assert isinstance(kernel, Kernel)
    return kernel


@pytest.mark.parametrize(("which", "needed"), [(0, False), (1, True), (2, False)])
def test_of_the_merges_three_barriers_only_the_one_between_the_warps_maxima_is_needed(which: int, needed: bool) -> None:
    # A thread reads back the maxima that it wrote itself; the sums wait at block_sum's own barrier.
    case = cases.decode_case((1100,), 1, 1, 32, 8, "float32", seed=2)
    notes = fresh(case, 8)
    attend(case, 8, notes=notes)
    sanitizer = Sanitizer()
    chosen = without_barrier(which).specialise(HEAD_SIZE=32, NUM_THREADS=128, PARTITION_SIZE=8, scalar_t=float32)
    with sanitizer:
        chosen.on(Backend("sim", observers=(sanitizer,)))[(1, 1), 128, 0, 8 * 138](
            np.zeros(32, np.float32), *(note.reshape(-1) for note in notes), case.seq_lens, 138
        )
    assert ("race" in sanitizer.verdict) is needed
    assert sanitizer.clean is not needed


def test_constants() -> None:
    found = reduce_constexpr(HEAD_SIZE=64, NUM_THREADS=128, PARTITION_SIZE=512, scalar_t=float16)
    assert {name: found[name] for name in ("NUM_WARPS", "RED_SMEM_SIZE", "to_float", "from_float")} == {
        "NUM_WARPS": 4, "RED_SMEM_SIZE": 8, "to_float": float32, "from_float": float16,
    }  # fmt: skip


CASE = cases.decode_case((20, 9), 4, 2, 64, 16, "float16", order="identity")
REFUSED: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"exp_sums": np.zeros((2, 4, 2), np.float32)}, ArgumentError, r"exp_sums\.shape = .* must be \(2, 4, 1\)"),
    ({"max_logits": np.zeros((2, 4, 1))}, ArgumentError, r"max_logits\.dtype = float64: must be float32"),
    ({"tmp_out": np.zeros((2, 4, 1, 64), np.float32)}, ArgumentError, r"tmp_out\.dtype = float32: must be float16"),
    ({"partition_size": 24}, ArgumentError, r"partition_size = 24: must be a multiple of block_size = 16"),
    ({"partition_size": 0}, ArgumentError, r"partition_size = 0"),
    ({"num_threads": 96}, ArgumentError, r"num_threads = 96: must be .* power of two"),
    ({"num_kv_heads": 3}, ArgumentError, r"num_kv_heads = 3: must divide the 4 query heads"),
    ({"seq_lens": np.array([21, 9], np.int32)}, ArgumentError, r"seq_lens\[0\] = 21: must be from 0 to max_seq_len"),
    ({"alibi_slopes": np.zeros(4)}, ArgumentError, r"alibi_slopes\.dtype = float64"),
    ({"partition_size": 16384}, LaunchError, r"partition_size = 16384: 65536 \+ 160 bytes"),
]  # fmt: skip


@pytest.mark.parametrize(("changes", "error", "message"), REFUSED)
def test_a_bad_argument_is_named_and_nothing_is_written(
    changes: dict[str, Any], error: type[Exception], message: str
) -> None:
    notes = buffers(2, 4, 64, 20, np.float16, fill=7)
    good = {
        "out": np.full(CASE.q.shape, 7, np.float16), "exp_sums": notes[0], "max_logits": notes[1], "tmp_out": notes[2],
        "query": CASE.q, "key_cache": CASE.k_cache, "value_cache": CASE.v_cache, "num_kv_heads": 2, "scale": 0.1,
        "block_tables": CASE.block_tables, "seq_lens": CASE.seq_lens, "block_size": 16, "max_seq_len": 20,
    }  # fmt: skip
    with pytest.raises(error, match=message) as caught:
        paged_attention_v2(**(good | changes))
    assert isinstance(caught.value, KernelError)
    assert (good["out"] == 7).all()
    assert all((note == 7).all() for note in notes)


def test_sizes_that_vllm_never_compiled_are_refused_and_so_is_a_merge_that_does_not_fit() -> None:
    for case, message in (
        (cases.decode_case((3,), 1, 1, 64, 4, "float16"), "block_size = 4: must be 8, 16 or 32"),
        (cases.decode_case((3,), 1, 1, 48, 16, "float16"), "head_size = 48: must be one of"),
    ):
        with pytest.raises(ArgumentError, match=message):
            attend(case)
    case = cases.decode_case((3,), 1, 1, 32, 8, "float16")
    notes = fresh(case, 8, max_seq_len=8 * 6145, fill=7)
    with pytest.raises(LaunchError, match="shared_bytes = 49160"):
        attend(case, 8, max_seq_len=8 * 6145, notes=notes)
    assert (notes[0] == 7).all(), "the first kernel did not run either"


# -- the same on a GPU


@pytest.mark.gpu
@pytest.mark.parametrize("block_size", [8, 16, 32])
@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_gpu_is_attention(block_size: int, dtype: str) -> None:
    for head_size in (64, 120, 256):
        for lengths in ((0, 1, block_size + 1, 511), (512, 513, 600), (1300,)):
            case = cases.decode_case(lengths, 6, 2, head_size, block_size, dtype, seed=head_size, alibi=head_size == 64)
            for fill in (np.nan, 1e30):
                notes = fresh(case, max_seq_len=2048, fill=fill)
                out = attend(case, 512, "cuda", max_seq_len=2048, notes=notes)
                assert agrees(out, oracle_v2.attention(case, 512), case)
    small = cases.decode_case((70, 9), 2, 1, 64, block_size, dtype, seed=1)
    assert agrees(attend(small, 32, "cuda"), oracle_v2.attention(small, 32), small)
