"""The classic v1 port against the float64 oracle over random shapes, and what its launcher refuses."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numba import float32
from numba.types import float16

from kernels import cases, layout, oracle
from kernels.cases import DecodeCase
from kernels.errors import ArgumentError, KernelError, LaunchError
from kernels.kernel import Backend
from kernels.probe import Probed, Watch
from kernels.vllm.attention_kernels import constexpr
from kernels.vllm.cache import reshape_and_cache
from kernels.vllm.classic_v1 import HEAD_SIZES, paged_attention_v1, paged_attention_v1_kernel

SCHEDULES = ("in-order", "reversed", "random:1", "random:2")
ORDERS = ("shuffled", "reversed", "identity")


@st.composite
def decode_cases(draw: st.DrawFn) -> DecodeCase:
    """Any shape that vLLM compiled, with lengths at and around block edges, and few thread blocks."""
    block_size = draw(st.sampled_from([8, 16, 32]))
    edges = [block_size * turn + step for turn in (1, 2, 4) for step in (-1, 0, 1)]
    num_kv_heads, group = draw(st.sampled_from([(1, 1), (1, 2), (2, 1), (1, 3), (2, 2)]))
    return cases.decode_case(
        draw(st.lists(st.one_of(st.sampled_from([0, 1, *edges]), st.integers(0, 40)), min_size=1, max_size=2)),
        num_kv_heads * group,
        num_kv_heads,
        draw(st.sampled_from(HEAD_SIZES)),
        block_size,
        draw(st.sampled_from(["float16", "float32"])),
        seed=draw(st.integers(0, 999)),
        order=draw(st.sampled_from(ORDERS)),
        alibi=draw(st.booleans()),
        garbage=draw(st.sampled_from(["valid", "minus-one"])),
        spare_blocks=draw(st.integers(0, 2)),
        extra_columns=draw(st.integers(0, 2)),
        # NaN is never a maximum: loud places must not be heard either, whichever sign the query gives them.
        poison=draw(st.sampled_from([float("nan"), 6e4, -6e4])),
    )


def attend(case: DecodeCase, backend: str | Backend = "sim", **options: Any) -> Any:
    """The port's output; it starts as NaN."""
    out = np.full(case.q.shape, np.nan, case.q.dtype)
    paged_attention_v1(
        out, case.q, case.k_cache, case.v_cache, case.num_kv_heads, case.scale, case.block_tables, case.seq_lens,
        case.block_size, case.max_seq_len, case.alibi_slopes, backend=backend, **options,
    )  # fmt: skip
    return out


def tolerance(case: DecodeCase) -> Any:
    """The largest error that rounding alone can make of each output element."""
    mass = oracle.attention(replace(case, values=tuple(np.abs(rows) for rows in case.values)))
    if case.q.dtype == np.float32:
        return 4e-6 * (1 + mass)
    # Weight, product, three additions and the output each round to 11 bits; below 6e-5 to steps of 6e-8.
    return 7 * 2.0**-11 * mass + 4 * 2.0**-24 * case.max_seq_len + 1e-5 * (1 + mass)


def agrees(out: Any, truth: Any, case: DecodeCase) -> bool:
    assert out.dtype == case.q.dtype
    # NaN is not below anything.
    return bool((np.abs(out.astype(np.float64) - truth) <= tolerance(case)).all())


def packed(keys: Any, values: Any, q: Any, blocks: list[int], block_size: int, scale: float) -> DecodeCase:
    """A case from somebody's own rows, [tokens, KV heads, head size], put into the cache by the writer."""
    tokens, heads, head_size = keys.shape
    count, size = max(blocks) + 1, keys.itemsize
    k_cache = np.full(layout.key_cache_shape(count, heads, head_size, block_size, size), np.nan, keys.dtype)
    v_cache = np.full(layout.value_cache_shape(count, heads, head_size, block_size), np.nan, keys.dtype)
    slots = [blocks[token // block_size] * block_size + token % block_size for token in range(tokens)]
    reshape_and_cache(keys, values, k_cache, v_cache, np.array(slots))
    return DecodeCase(
        "packed", 0, q, (keys,), (values,), np.array([blocks], np.int32), np.array([tokens], np.int32),
        k_cache, v_cache, block_size, heads, scale,
    )  # fmt: skip


def one_head(keys: list[float], values: list[float]) -> DecodeCase:
    """One sequence with logits `keys` and values `values` (in element 0); blocks of 8, laid out backwards."""
    rows = [np.zeros((len(column), 1, 32), np.float32) for column in (keys, values)]
    for place, column in zip(rows, (keys, values), strict=True):
        place[:, 0, 0] = column
    q = np.zeros((1, 1, 32), np.float32)
    q[0, 0, 0] = 1
    blocks = list(range(-(-len(keys) // 8)))[::-1]
    return packed(rows[0], rows[1], q, blocks, 8, 1.0)


# -- against the oracle


@settings(max_examples=50)
@given(decode_cases(), st.sampled_from(SCHEDULES))
def test_v1_is_attention(case: DecodeCase, schedule: str) -> None:
    out = attend(case, Backend("sim", schedule))
    assert agrees(out, oracle.attention(case, eps=1e-6), case)
    for seq in np.flatnonzero(case.seq_lens == 0):
        assert not out[seq].any(), "no tokens: zeros"


@pytest.mark.parametrize("head_size", HEAD_SIZES)
@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_every_head_size_with_every_block_size_against_torch(head_size: int, dtype: str) -> None:
    for block_size in (8, 16, 32):
        case = cases.decode_case((block_size + 3,), 1, 1, head_size, block_size, dtype, seed=head_size, alibi=True)
        assert agrees(attend(case), oracle.torch_sdpa(case), case)


@settings(max_examples=6)
@given(decode_cases())
def test_the_order_of_warps_and_blocks_changes_no_bit(case: DecodeCase) -> None:
    bits = {attend(case, Backend("sim", schedule)).tobytes() for schedule in SCHEDULES}
    assert len(bits) == 1


def test_the_layout_of_the_pool_changes_no_bit_either() -> None:
    found = {
        attend(cases.decode_case((45, 8), 2, 1, 32, 8, "float16", seed=3, order=order, garbage=garbage)).tobytes()
        for order in ORDERS
        for garbage in ("valid", "minus-one")
    }
    assert len(found) == 1


@pytest.mark.parametrize("poison", [float("nan"), float("inf"), float("-inf"), -6e4, 6e4])
@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_places_without_a_token_are_never_heard(poison: float, dtype: str) -> None:
    quiet = cases.decode_case((9, 17), 4, 2, 32, 16, dtype, seed=5, poison=0)
    loud = cases.decode_case((9, 17), 4, 2, 32, 16, dtype, seed=5, poison=poison)
    assert len(set(np.sign(loud.q.sum(axis=2, dtype=np.float64)).reshape(-1))) == 2, "it is loud for some queries"
    assert attend(loud).tobytes() == attend(quiet).tobytes()


@pytest.mark.parametrize("num_threads", [32, 64, 256])
def test_other_numbers_of_warps(num_threads: int) -> None:
    for dtype in ("float16", "float32"):
        case = cases.decode_case((70, 9), 2, 1, 64, 8, dtype, seed=num_threads, alibi=True)
        assert agrees(attend(case, num_threads=num_threads), oracle.attention(case, eps=1e-6), case)


def test_the_tolerance_would_notice_one_token_more_or_less() -> None:
    for dtype in ("float16", "float32"):
        case = cases.decode_case((21, 34), 2, 1, 32, 16, dtype, seed=4)
        for change in (lambda rows: rows[:-1], lambda rows: np.concatenate([rows, rows[:1]])):
            wrong = replace(
                case, keys=tuple(change(r) for r in case.keys), values=tuple(change(r) for r in case.values)
            )
            assert not agrees(attend(case), oracle.attention(wrong, eps=1e-6), case)
        assert not agrees(np.full_like(case.q, np.nan), oracle.attention(case), case)


# -- values written down


def test_k15_three_tokens() -> None:
    assert attend(one_head([1, 2, 5], [10, 20, 30]))[0, 0, 0] == pytest.approx(29.190917, abs=1e-4)


def test_a_lone_tokens_weight_is_not_quite_one() -> None:
    out = attend(one_head([3], [1]))[0, 0]
    assert out[0] == np.float32(0.99999905)
    assert not out[1:].any()


def test_k18_the_bias_of_the_newest_token_is_zero() -> None:
    # An offset of one cancels in the softmax: only the scores show it.
    case = cases.decode_case((4,), 2, 1, 32, 8, "float32", alibi=True, order="identity")
    watch = Watch("qk", "qk", (1, 999), "logits[]", ("head_idx", "token_idx"), "token_idx < seq_len")
    found = []
    for slopes in (case.alibi_slopes, None):
        probed = Probed(paged_attention_v1_kernel, [watch])
        attend(replace(case, alibi_slopes=slopes), entry=probed)
        found.append({reading.keys: reading.value for reading in probed.readings("qk")})
    for head, slope in enumerate(case.alibi_slopes if case.alibi_slopes is not None else ()):
        bias = [found[0][head, token] - found[1][head, token] for token in range(4)]
        np.testing.assert_allclose(bias, slope * np.array([-3.0, -2, -1, 0]), atol=1e-6)
        assert bias[3] == 0


def test_large_scores_neither_overflow_nor_vanish() -> None:
    keys = [1000.0, 999.0, -1000.0] + [0.0] * 30
    out = attend(one_head(keys, [1.0, 3.0, 100.0] + [50.0] * 30))[0, 0, 0]
    weight = float(np.exp(-1.0))
    assert out == pytest.approx((1 + 3 * weight) / (1 + weight), rel=3e-6)
    # All scores far below zero: the maximum must not start at zero.
    assert attend(one_head([-500.0, -500.0], [2.0, 4.0]))[0, 0, 0] == pytest.approx(3.0, rel=3e-6)


def test_l5_pack_my_own_keys_and_values() -> None:
    import torch

    rng = np.random.default_rng(35)
    keys, values = (rng.standard_normal((40, 8, 128)).astype(np.float16) for _ in range(2))
    q = rng.standard_normal((1, 32, 128)).astype(np.float16)
    case = packed(keys, values, q, [3, 1], 32, 128**-0.5)
    pool = cases.unpack_keys(case.k_cache).reshape(-1, 8, 128), cases.unpack_values(case.v_cache).reshape(-1, 8, 128)
    slots = [*range(96, 128), *range(32, 40)]
    np.testing.assert_array_equal(pool[0][slots], keys)
    np.testing.assert_array_equal(pool[1][slots], values)
    assert np.isnan(np.delete(pool[0], slots, axis=0)).all()
    query, key, value = (torch.from_numpy(rows.astype(np.float64)).transpose(0, 1) for rows in (q, keys, values))
    truth = torch.nn.functional.scaled_dot_product_attention(query, key, value, enable_gqa=True)
    assert agrees(attend(case), truth.transpose(0, 1).numpy(), case)


# -- constants


@pytest.mark.parametrize(
    ("block_size", "group", "vec", "elements", "vecs", "groups"),
    [(8, 4, 2, 32, 16, 32), (16, 2, 4, 64, 16, 64), (32, 1, 8, 128, 16, 128)],
)
def test_l2_constants(block_size: int, group: int, vec: int, elements: int, vecs: int, groups: int) -> None:
    found = constexpr(HEAD_SIZE=128, BLOCK_SIZE=block_size, scalar_t=float16)
    names = ("THREAD_GROUP_SIZE", "VEC_SIZE", "NUM_ELEMS_PER_THREAD", "NUM_VECS_PER_THREAD", "NUM_THREAD_GROUPS")
    assert [found[name] for name in names] == [group, vec, elements, vecs, groups]
    assert (found["NUM_WARPS"], found["NUM_TOKENS_PER_THREAD_GROUP"], found["x"]) == (4, 1, 8)
    assert group * vec == found["x"]
    assert found["USE_PARTITIONING"] is False
    assert "sizeof" not in found


@given(st.sampled_from(HEAD_SIZES), st.sampled_from([8, 16, 32]), st.sampled_from([float16, float32]))
def test_the_threads_of_a_warp_cover_the_head_once(head_size: int, block_size: int, scalar_t: Any) -> None:
    c = constexpr(HEAD_SIZE=head_size, BLOCK_SIZE=block_size, scalar_t=scalar_t)
    dealt = [
        (place + j * c["THREAD_GROUP_SIZE"]) * c["VEC_SIZE"] + e
        for place in range(c["THREAD_GROUP_SIZE"])
        for j in range(c["NUM_VECS_PER_THREAD"])
        for e in range(c["VEC_SIZE"])
    ]
    assert sorted(dealt) == list(range(head_size))
    rows = [
        lane // c["NUM_V_VECS_PER_ROW"] + i * c["NUM_ROWS_PER_ITER"]
        for lane in range(0, 32, c["NUM_V_VECS_PER_ROW"])
        for i in range(c["NUM_ROWS_PER_THREAD"])
    ]
    assert sorted(row for row in rows if row < head_size) == list(range(head_size))
    assert c["NUM_V_VECS_PER_ROW"] * c["V_VEC_SIZE"] == block_size


# -- what is refused

CASE = cases.decode_case((20, 9), 4, 2, 64, 16, "float16", order="identity")


def table_with(place: tuple[int, int], number: int) -> Any:
    tables = CASE.block_tables.copy()
    tables[place] = number
    return tables


REFUSED: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"block_tables": table_with((1, 0), 6)}, ArgumentError, r"block_tables\[1, 0\] = 6: must be a block of the cache"),
    ({"block_tables": table_with((0, 1), -1)}, ArgumentError, r"block_tables\[0, 1\] = -1"),
    ({"num_kv_heads": 3}, ArgumentError, r"num_kv_heads = 3: must divide the 4 query heads"),
    ({"query": np.zeros((2, 4, 60), np.float16)}, ArgumentError, r"head_size = 60: must be a multiple of x = 8"),
    ({"query": CASE.q.astype(np.float32)}, ArgumentError, r"out\.dtype = float16: must be float32"),
    ({"key_cache": CASE.k_cache.astype(np.float32)}, ArgumentError, r"key_cache\.dtype = float32: must be float16"),
    ({"value_cache": CASE.v_cache.astype(np.float32)}, ArgumentError, r"value_cache\.dtype = float32"),
    ({"query": np.zeros((2, 4, 128), np.float16)[:, :, ::2]}, ArgumentError, r"query\.strides .*must be contiguous"),
    ({"seq_lens": np.array([40, 9], np.int32)}, ArgumentError, r"seq_lens\[0\] = 40: must be from 0 to max_seq_len"),
    ({"max_seq_len": 12}, ArgumentError, r"seq_lens\[0\] = 20: must be from 0 to max_seq_len = 12"),
    ({"alibi_slopes": np.zeros(4)}, ArgumentError, r"alibi_slopes\.dtype = float64: must be float32"),
    ({"alibi_slopes": np.zeros(2, np.float32)}, ArgumentError, r"alibi_slopes\.shape = \(2,\): must be \(4\)"),
    ({"num_threads": 2048}, LaunchError, r"block = \(2048, 1, 1\): 2048 threads; a block has 1 to 1024"),
    ({"num_threads": 100}, ArgumentError, r"num_threads = 100: must be divisible by warp = 32"),
    ({"num_threads": 96}, ArgumentError, r"num_threads = 96: must be .* power of two"),
    ({"max_seq_len": 60_000}, LaunchError, r"max_seq_len = 60000: .* shorten the sequence or partition it"),
]  # fmt: skip


def arguments(case: DecodeCase = CASE) -> dict[str, Any]:
    return {
        "out": np.full(case.q.shape, 7, case.q.dtype), "query": case.q, "key_cache": case.k_cache,
        "value_cache": case.v_cache, "num_kv_heads": case.num_kv_heads, "scale": case.scale,
        "block_tables": case.block_tables, "seq_lens": case.seq_lens, "block_size": case.block_size,
        "max_seq_len": case.max_seq_len,
    }  # fmt: skip


def refused(given: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message) as caught:
        paged_attention_v1(**given)
    assert isinstance(caught.value, KernelError)
    assert (given["out"] == 7).all(), "nothing ran"


@pytest.mark.parametrize(("changes", "error", "message"), REFUSED)
def test_a_bad_argument_is_named_and_nothing_is_written(
    changes: dict[str, Any], error: type[Exception], message: str
) -> None:
    refused(arguments() | changes, error, message)


def test_sizes_that_vllm_never_compiled_and_an_empty_batch_are_refused() -> None:
    refused(arguments(cases.decode_case((3,), 1, 1, 64, 4, "float16")), ArgumentError, "block_size = 4: must be 8, 16")
    refused(arguments(cases.decode_case((3,), 1, 1, 64, 64, "float16")), ArgumentError, "block_size = 64")
    refused(
        arguments(cases.decode_case((3,), 1, 1, 48, 16, "float16")), ArgumentError, "head_size = 48: must be one of"
    )
    none = {
        "out": CASE.q[:0],
        "query": CASE.q[:0],
        "block_tables": CASE.block_tables[:0],
        "seq_lens": CASE.seq_lens[:0],
    }
    refused(arguments() | none, LaunchError, r"grid\.y = 0: must be from 1 to 65535")


def test_k10_the_longest_context() -> None:
    # 227 KiB after the opt-in, and in them 128 float16 numbers of the query and eight floats to reduce with.
    case = cases.decode_case((3,), 1, 1, 128, 16, "float16")
    for max_seq_len in (12_208, 12_209, 57_600, 58_032):
        fits = arguments(case) | {"max_seq_len": max_seq_len}
        paged_attention_v1(**fits)
        assert agrees(fits["out"], oracle.attention(case), case)
    message = r"max_seq_len = 58033: 232192 \+ 288 bytes of shared memory, a block has 232448 at most; shorten"
    refused(arguments(case) | {"max_seq_len": 58_033}, LaunchError, message)


# -- the same on a GPU


@pytest.mark.gpu
@pytest.mark.parametrize("block_size", [8, 16, 32])
@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_gpu_is_attention(block_size: int, dtype: str) -> None:
    for head_size in (64, 120, 256):
        lengths = (0, 1, block_size, block_size + 1, 300)
        case = cases.decode_case(lengths, 6, 2, head_size, block_size, dtype, seed=head_size, alibi=head_size == 64)
        assert agrees(attend(case, "cuda"), oracle.attention(case, eps=1e-6), case)


@pytest.mark.gpu
def test_gpu_refuses_before_the_launch_and_takes_the_longest_context() -> None:
    for changes, error, message in REFUSED:
        refused(arguments() | changes | {"backend": "cuda"}, error, message)
    case = cases.decode_case((3,), 1, 1, 128, 16, "float16")
    for max_seq_len in (12_208, 57_600):
        fits = arguments(case) | {"max_seq_len": max_seq_len, "backend": "cuda", "entry": paged_attention_v1_kernel}
        paged_attention_v1(**fits)
        assert agrees(fits["out"], oracle.attention(case), case)
