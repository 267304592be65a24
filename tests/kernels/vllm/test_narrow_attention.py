"""Both classic kernels in every scalar type with every kind of cache, against the float64 oracle."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels import oracle
from kernels.cases import DecodeCase
from kernels.cases_narrow import CACHES, SCALARS, NarrowCase, narrow_decode_case, pack, unpack
from kernels.errors import ArgumentError
from kernels.kernel import Backend
from kernels.probe import Probed, Watch
from kernels.vllm.classic_v1 import HEAD_SIZES, paged_attention_v1, paged_attention_v1_kernel
from kernels.vllm.classic_v2 import buffers, paged_attention_v2
from kernels.vllm.ops_reference import BOUNDS, FLOAT32_BOUND, KERNEL_EPSILON, ONE_TOKEN_BOUND

KINDS = ("auto", "fp8", "fp8_e5m2")
K_SCALE, V_SCALE = 0.37, 0.21
SCHEDULES = ("in-order", "reversed", "random:1")
PARTITION = 32
"""Tokens of a v2 partition here: vLLM's 512 would leave one for such short sequences."""


def attend(
    narrow: NarrowCase, version: str = "v1", backend: str | Backend = "sim", partition: int = PARTITION, **changes: Any
) -> Any:
    """The port's output, [num_seqs, num_heads, head_size], in the scalar type; it starts as NaN codes.

    `changes` stand for the arguments of those names, or are options of the host function.
    """
    case = narrow.case
    given_arguments = {
        "query": narrow.q, "key_cache": narrow.k_cache, "value_cache": narrow.v_cache,
        "num_kv_heads": case.num_kv_heads, "scale": case.scale, "block_tables": case.block_tables,
        "seq_lens": case.seq_lens, "block_size": case.block_size, "max_seq_len": max(case.max_seq_len, 1),
        "alibi_slopes": case.alibi_slopes, "kv_cache_dtype": narrow.kv_cache_dtype, "k_scale": narrow.k_scale,
        "v_scale": narrow.v_scale, "backend": backend,
    } | changes  # fmt: skip
    out = unwritten(narrow.q.shape, narrow.q.dtype)
    if version == "v1":
        paged_attention_v1(out, **given_arguments)
        return out
    *notes, rows = buffers(*narrow.q.shape, given_arguments["max_seq_len"], np.float32, partition)
    paged_attention_v2(
        out, *notes, unwritten(rows.shape, out.dtype), **given_arguments, partition_size=partition
    )  # fmt: skip
    return out


def unwritten(shape: tuple[int, ...], dtype: Any) -> Any:
    """NaN in every scalar type, bfloat16's codes too."""
    return np.full(shape, 0xFFFFFFFF, np.uint32).view(dtype).reshape(*shape, -1)[..., 0].copy()


def read_by_the_kernel(narrow: NarrowCase, scalar: str) -> DecodeCase:
    """The numbers that the arithmetic sees: code times scale, rounded to the scalar type."""

    def rounded(rows: Any) -> Any:
        return unpack(pack(rows, scalar), scalar)

    case = narrow.case
    return replace(case, keys=tuple(map(rounded, case.keys)), values=tuple(map(rounded, case.values)))


def allowed(case: DecodeCase, scalar: str, roundings_more: int) -> Any:
    """How far each output element may be off: BOUNDS of the ops' reference says why.

    v2 rounds each partition's output once more where there are several.
    """
    bound = BOUNDS[scalar]
    absolute = replace(case, values=tuple(np.abs(rows) for rows in case.values))
    spread, truth = oracle.attention(absolute, KERNEL_EPSILON), oracle.attention(case, KERNEL_EPSILON)
    lone = (case.seq_lens == 1)[:, None, None]
    found = np.where(lone, ONE_TOKEN_BOUND, FLOAT32_BOUND) * spread
    found = found + bound.unit * ((bound.roundings + roundings_more) * spread + np.abs(truth))
    group = case.num_heads // case.num_kv_heads
    total = np.array([np.repeat(rows.sum(0, dtype=np.float64), group, axis=0) for rows in absolute.values])
    return found + bound.grain * (total + case.seq_lens[:, None, None])


def agrees(out: Any, narrow: NarrowCase, scalar: str, version: str = "v1", truth: DecodeCase | None = None) -> bool:
    """Every element within its bound of the oracle's answer for `truth` (the case as the kernel reads it)."""
    case = read_by_the_kernel(narrow, scalar)
    assert out.dtype == narrow.q.dtype
    more = int(version == "v2" and case.max_seq_len > PARTITION)
    error = np.abs(unpack(out, scalar).astype(np.float64) - oracle.attention(truth or case, KERNEL_EPSILON))
    # NaN is not below anything.
    return bool((error <= allowed(case, scalar, more)).all())


def combinations() -> list[Any]:
    """Every scalar type, cache and block size, for both versions; what else there is takes turns."""
    found = []
    sizes = [size for size in HEAD_SIZES if size < 256]
    for turn, (scalar, kind, block_size, version) in enumerate(product(SCALARS, KINDS, (8, 16, 32), ("v1", "v2"))):
        fits = [size for size in sizes if kind == "auto" or size % 16 == 0]
        edges = (block_size - 1, block_size, block_size + 1, PARTITION - 1, PARTITION, PARTITION + 1)
        options = {
            "head_size": fits[turn * 5 % len(fits)],
            "lengths": (edges[(turn + turn // 6) % 6], (1, 0, 2)[turn % 3]),
            "heads": ((2, 1), (1, 1), (2, 2), (3, 1))[turn % 4],
            "alibi": turn % 5 < 2,
            "garbage": ("valid", "minus-one")[turn // 3 % 2],
            "schedule": SCHEDULES[turn % 3],
        }
        name = f"{scalar}-{kind}-{block_size}-{version}-{options['head_size']}"
        found.append(pytest.param(scalar, kind, block_size, version, options, id=name))
    return found


COMBINATIONS = combinations()


def build(scalar: str, kind: str, block_size: int, options: dict[str, Any], seed: int = 0) -> NarrowCase:
    """Keys and values scaled where the cache is fp8."""
    scales = (1.0, 1.0) if kind == "auto" else (K_SCALE, V_SCALE)
    return narrow_decode_case(
        options["lengths"], *options["heads"], options["head_size"], block_size, scalar, kind, *scales, seed=seed,
        alibi=options["alibi"], garbage=options["garbage"],
    )  # fmt: skip


def small(scalar: str, kind: str, seed: int = 0, **more: Any) -> NarrowCase:
    """Two sequences, 2:1 heads of 32, blocks of 8."""
    scales = (1.0, 1.0) if kind == "auto" else (K_SCALE, V_SCALE)
    return narrow_decode_case((19, 8), 2, 1, 32, 8, scalar, kind, *scales, seed=seed, **more)


# -- against the oracle


@pytest.mark.parametrize(("scalar", "kind", "block_size", "version", "options"), COMBINATIONS)
def test_attention(scalar: str, kind: str, block_size: int, version: str, options: dict[str, Any]) -> None:
    narrow = build(scalar, kind, block_size, options, seed=block_size)
    out = attend(narrow, version, Backend("sim", options["schedule"]))
    assert agrees(out, narrow, scalar, version)
    for seq in np.flatnonzero(narrow.case.seq_lens == 0):
        assert not out[seq].any(), "no tokens: zeros"


def test_the_combinations_leave_nothing_out() -> None:
    turns = [parameter.values for parameter in COMBINATIONS]
    assert len({turn[:4] for turn in turns}) == 3 * 3 * 3 * 2
    assert {turn[4]["head_size"] for turn in turns} == set(HEAD_SIZES) - {256}
    for name, count in (("heads", 4), ("alibi", 2), ("garbage", 2), ("schedule", 3)):
        for kind in KINDS:
            assert len({turn[4][name] for turn in turns if turn[1] == kind}) == count, (name, kind)
    for version in ("v1", "v2"):
        lengths = {turn[4]["lengths"][0] - turn[2] for turn in turns if turn[3] == version}
        assert {-1, 0, 1} <= lengths
    for scalar in SCALARS:
        assert any(t[0] == scalar and t[3] == "v2" and t[4]["lengths"][0] > PARTITION for t in turns), scalar


@pytest.mark.parametrize(("scalar", "kind"), [("bfloat16", "fp8"), ("float32", "auto")])
def test_heads_of_256(scalar: str, kind: str) -> None:
    narrow = narrow_decode_case((9,), 1, 1, 256, 16, scalar, kind, K_SCALE, V_SCALE, seed=2)
    assert agrees(attend(narrow), narrow, scalar)


@settings(max_examples=12)
@given(
    st.lists(st.integers(0, 70), min_size=1, max_size=2), st.sampled_from([(1, 1), (2, 1)]), st.sampled_from(SCALARS),
    st.sampled_from(list(CACHES)), st.sampled_from([8, 16, 32]), st.sampled_from(["v1", "v2"]), st.integers(0, 99),
    st.floats(0.0625, 1.5, width=32), st.floats(0.0625, 4, width=32),
)  # fmt: skip
def test_any_lengths_and_scales(
    lengths: list[int], heads: tuple[int, int], scalar: str, kind: str, block_size: int, version: str, seed: int,
    k_scale: float, v_scale: float,
) -> None:  # fmt: skip
    narrow = narrow_decode_case(lengths, *heads, 32, block_size, scalar, kind, k_scale, v_scale, seed=seed)
    assert agrees(attend(narrow, version), narrow, scalar, version)


# -- what is read, seen through the output or a probe


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("scalar", SCALARS)
def test_the_scores_are_float32_in_every_type(scalar: str, kind: str) -> None:
    # An output in 8 bits hides much; the scores before the softmax are rounded to 24.
    narrow = small(scalar, kind, seed=3)
    watch = Watch("qk", "qk", (1, 999), "logits[]", ("seq_idx", "head_idx", "token_idx"), "token_idx < seq_len")
    probed = Probed(paged_attention_v1_kernel, [watch])
    attend(narrow, entry=probed)
    case = read_by_the_kernel(narrow, scalar)
    found = {reading.keys: reading.value for reading in probed.readings("qk")}
    assert len(found) == 2 * (19 + 8)
    for (seq, head, token), value in found.items():
        assert value == pytest.approx(oracle.logits(case, seq, head)[token], abs=4e-6)


@pytest.mark.parametrize("kind", CACHES)
@pytest.mark.parametrize("scalar", ["float16", "bfloat16"])
def test_a_lone_token_comes_out_to_the_bit(scalar: str, kind: str) -> None:
    # Its weight, 1 / (1 + 1e-6), is one in 16 bits: the output is the value as it was read.
    narrow = narrow_decode_case((1, 1), 2, 1, 64, 16, scalar, kind, K_SCALE, V_SCALE, seed=6)
    expected = np.stack([np.repeat(pack(rows[0], scalar), 2, axis=0) for rows in narrow.case.values])
    np.testing.assert_array_equal(attend(narrow), expected)
    np.testing.assert_array_equal(attend(narrow, "v2"), expected)


@pytest.mark.parametrize(("scalar", "kind"), list(product(SCALARS, KINDS)))
def test_one_partition_is_v1_to_the_bit(scalar: str, kind: str) -> None:
    narrow = small(scalar, kind, seed=8)
    np.testing.assert_array_equal(attend(narrow, "v2"), attend(narrow))


@pytest.mark.parametrize(("scalar", "kind"), [("bfloat16", "auto"), ("bfloat16", "fp8"), ("float16", "fp8_e5m2")])
def test_schedule_pool_and_garbage_change_no_bit(scalar: str, kind: str) -> None:
    found = {attend(small(scalar, kind), backend=Backend("sim", schedule)).tobytes() for schedule in SCHEDULES}
    for order, garbage in (("reversed", "valid"), ("identity", "minus-one")):
        found.add(attend(small(scalar, kind, order=order, garbage=garbage)).tobytes())
    assert len(found) == 1


@pytest.mark.parametrize("poison", [0.0, 6e4, -6e4, float("inf")])
@pytest.mark.parametrize(("scalar", "kind"), [("bfloat16", "auto"), ("bfloat16", "fp8"), ("float32", "fp8_e5m2")])
def test_places_without_a_token_are_never_heard(scalar: str, kind: str, poison: float) -> None:
    loud = small(scalar, kind, seed=5, poison=poison)
    silent = small(scalar, kind, seed=5)
    assert (loud.v_cache != silent.v_cache).any()
    assert attend(loud).tobytes() == attend(silent).tobytes()


def test_rows_of_a_fused_projection_are_read_where_they_lie() -> None:
    narrow = small("bfloat16", "fp8")
    fused = np.full((2, 4, 32), 0x7FC0, np.uint16)
    fused[:, 1:3] = narrow.q
    for version in ("v1", "v2"):
        assert attend(narrow, version, query=fused[:, 1:3]).tobytes() == attend(narrow, version).tobytes()


@pytest.mark.parametrize("version", ["v1", "v2"])
def test_caches_that_share_their_blocks_are_read_where_they_lie(version: str) -> None:
    # Each block holds its keys, then its values: the caches' blocks lie twice as far apart.
    narrow = small("float16", "fp8_e5m2")
    blocks = narrow.case.num_blocks
    both = np.stack([narrow.k_cache.reshape(blocks, -1), narrow.v_cache.reshape(blocks, -1)], axis=1)
    halves = both[:, 0].reshape(narrow.k_cache.shape), both[:, 1].reshape(narrow.v_cache.shape)
    assert all(np.shares_memory(half, both) for half in halves)
    out = attend(narrow, version, key_cache=halves[0], value_cache=halves[1])
    assert out.tobytes() == attend(narrow, version).tobytes()


def test_no_scale_is_one() -> None:
    narrow = narrow_decode_case((19, 8), 2, 1, 32, 8, "bfloat16", "fp8")
    assert attend(narrow, k_scale=None, v_scale=None).tobytes() == attend(narrow).tobytes()
    assert agrees(attend(narrow), narrow, "bfloat16")


def test_fp8_is_e4m3() -> None:
    narrow = small("float16", "fp8")
    assert attend(narrow, kv_cache_dtype="fp8_e4m3").tobytes() == attend(narrow).tobytes()


def test_an_auto_cache_takes_no_notice_of_its_scales() -> None:
    narrow = small("bfloat16", "auto")
    nothing = np.full(1, np.nan, np.float32)
    assert attend(narrow, k_scale=nothing, v_scale=nothing).tobytes() == attend(narrow).tobytes()


# -- the bounds notice


def scales(k_scale: float, v_scale: float) -> dict[str, Any]:
    return {"k_scale": np.full(1, k_scale, np.float32), "v_scale": np.full(1, v_scale, np.float32)}


WRONG: dict[str, dict[str, Any]] = {
    "swapped": scales(V_SCALE, K_SCALE),
    "k lost": scales(1, V_SCALE),
    "v lost": scales(K_SCALE, 1),
    "k off by a tenth": scales(K_SCALE * 1.1, V_SCALE),
    "v off by a twentieth": scales(K_SCALE, V_SCALE * 1.05),
    "the other fp8": {"kv_cache_dtype": "fp8_e5m2"},
    "no slopes": {"alibi_slopes": None},
}


@pytest.mark.parametrize("version", ["v1", "v2"])
@pytest.mark.parametrize("scalar", SCALARS)
def test_a_wrong_scale_or_format_fails(scalar: str, version: str) -> None:
    narrow = narrow_decode_case((35,), 2, 2, 32, 8, scalar, "fp8", K_SCALE, V_SCALE, seed=1, alibi=True)
    assert agrees(attend(narrow, version), narrow, scalar, version)
    # Both versions read their caches in the same function: v2 only shows that it is handed the same things.
    for name in WRONG if version == "v1" else ("swapped", "the other fp8"):
        assert not agrees(attend(narrow, version, **WRONG[name]), narrow, scalar, version), name


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("scalar", SCALARS)
def test_one_token_more_or_less_fails(scalar: str, kind: str) -> None:
    narrow = small(scalar, kind, seed=4)
    out, case = attend(narrow), read_by_the_kernel(narrow, scalar)
    assert agrees(out, narrow, scalar)
    for change in (lambda rows: rows[:-1], lambda rows: np.concatenate([rows, rows[:1]])):
        wrong = replace(case, keys=tuple(map(change, case.keys)), values=tuple(map(change, case.values)))
        assert not agrees(out, narrow, scalar, truth=wrong)
    turned = replace(case, keys=tuple(np.roll(rows, 1, axis=2) for rows in case.keys))
    assert not agrees(out, narrow, scalar, truth=turned)
    assert not agrees(np.zeros_like(out), narrow, scalar)
    assert not agrees(pack(np.full(out.shape, np.nan), scalar), narrow, scalar)


def test_bfloat16_codes_taken_for_float16_fail() -> None:
    narrow = small("bfloat16", "auto")
    halves = replace(narrow, q=narrow.q.view(np.float16))
    caches = {"key_cache": narrow.k_cache.view(np.float16), "value_cache": narrow.v_cache.view(np.float16)}
    assert not agrees(attend(halves, **caches).view(np.uint16), narrow, "bfloat16")


# -- what is refused


@pytest.mark.parametrize("version", ["v1", "v2"])
@pytest.mark.parametrize(
    ("kind", "changes", "message"),
    [
        ("fp8", {"key_cache": np.zeros((8, 1, 4, 8, 8), np.uint8)}, r"key_cache\.shape = .*\(any, 1, 2, 8, 16\)"),
        ("auto", {"key_cache": np.zeros((8, 1, 2, 8, 16), np.uint16)}, r"key_cache\.shape = .*\(any, 1, 4, 8, 8\)"),
        ("fp8", {"kv_cache_dtype": "auto"}, r"key_cache\.shape = "),
        ("auto", {"kv_cache_dtype": "fp8"}, r"key_cache\.shape = "),
        ("fp8", {"kv_cache_dtype": "fp8_e4m3fn"}, r"kv_cache_dtype = fp8_e4m3fn: must be one of auto, fp8, fp8_e4m3"),
        ("fp8", {"k_scale": np.zeros(1, np.float32)}, r"k_scale = \[0\.0\]: must be finite and above zero"),
        ("fp8", {"v_scale": np.ones(2, np.float32)}, r"v_scale\.shape = \(2,\): must be \(1\)"),
        ("fp8", {"v_scale": np.ones(1)}, r"v_scale\.dtype = float64: must be float32"),
        ("auto", {"query": np.zeros((2, 2, 32), np.float16)}, r"out\.dtype = uint16|key_cache\.dtype = uint16"),
        ("auto", {"query": np.zeros((2, 2, 32), np.int16)}, r"query\.dtype = int16: must be float32 or float16"),
    ],
)  # fmt: skip
def test_a_cache_of_another_type_is_refused(version: str, kind: str, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        attend(small("bfloat16", kind), version, **changes)


@pytest.mark.parametrize("version", ["v1", "v2"])
def test_a_head_of_120_has_no_fp8_cache(version: str) -> None:
    # 16 elements lie together, and 120 is no multiple of 16: vLLM divides and loses the rest.
    narrow = narrow_decode_case((3,), 1, 1, 120, 8, "bfloat16")
    with pytest.raises(ArgumentError, match="head_size = 120: must be a multiple of x = 16"):
        attend(narrow, version, kv_cache_dtype="fp8")
    assert agrees(attend(narrow, version), narrow, "bfloat16", version)


# -- the same on a GPU


@pytest.mark.gpu
@pytest.mark.parametrize("version", ["v1", "v2"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("scalar", SCALARS)
def test_gpu_attention(scalar: str, kind: str, version: str) -> None:
    options = {"head_size": 80, "lengths": (33, 1, 16, 0), "heads": (4, 2), "alibi": True, "garbage": "minus-one"}
    narrow = build(scalar, kind, 16, options)
    out = attend(narrow, version, "cuda")
    assert agrees(out, narrow, scalar, version)
    assert not out[3].any()
    for name in ("swapped", "v off by a twentieth") if kind != "auto" else ():
        assert not agrees(attend(narrow, version, "cuda", **WRONG[name]), narrow, scalar, version), name


@pytest.mark.gpu
def test_gpu_lone_tokens_and_views() -> None:
    narrow = narrow_decode_case((1, 1), 2, 1, 80, 16, "bfloat16", "fp8", K_SCALE, V_SCALE, seed=6)
    expected = np.stack([np.repeat(pack(rows[0], "bfloat16"), 2, axis=0) for rows in narrow.case.values])
    blocks = narrow.case.num_blocks
    both = np.stack([narrow.k_cache.reshape(blocks, -1), narrow.v_cache.reshape(blocks, -1)], axis=1)
    halves = both[:, 0].reshape(narrow.k_cache.shape), both[:, 1].reshape(narrow.v_cache.shape)
    for version in ("v1", "v2"):
        np.testing.assert_array_equal(attend(narrow, version, "cuda"), expected)
        out = attend(narrow, version, "cuda", key_cache=halves[0], value_cache=halves[1])
        np.testing.assert_array_equal(out, expected)
