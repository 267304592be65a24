"""Both classic writers in every scalar type and with fp8 caches, to the bit: data is moved, or rounded in one way."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels import cases
from kernels.cases import WriteCase
from kernels.cases_narrow import CACHES, SCALARS, narrow_write_case, pack, stored, unpack
from kernels.errors import ArgumentError
from kernels.kernel import Backend
from kernels.vllm.cache import reshape_and_cache
from kernels.vllm.cache_fixed import reshape_and_cache_fixed
from kernels.vllm.classic_v1 import paged_attention_v1

WRITERS = (reshape_and_cache, reshape_and_cache_fixed)
SCHEDULES = ("in-order", "reversed", "random:11")
SCALES = (1.0, 0.37, 0.21, 3.0)
FP8 = {"fp8": torch.float8_e4m3fn, "fp8_e4m3": torch.float8_e4m3fn, "fp8_e5m2": torch.float8_e5m2}


def formats() -> Any:
    return pytest.mark.parametrize(("scalar", "kind"), list(product(SCALARS, CACHES)))


def one(factor: float) -> Any:
    return np.full(1, factor, np.float32)


def write(
    writer: Callable[..., None], case: WriteCase, kind: str, scales: tuple[float, float] = (1.0, 1.0),
    backend: str | Backend = "sim", **changes: Any,
) -> tuple[Any, Any]:  # fmt: skip
    """The caches after the write; the case keeps its own."""
    caches = case.k_cache.copy(), case.v_cache.copy()
    rows = {"key": case.key, "value": case.value, "slot_mapping": case.slot_mapping} | changes
    writer(
        rows["key"], rows["value"], *caches, rows["slot_mapping"], kind, *map(one, scales), backend=backend
    )  # fmt: skip
    return caches


def expected(case: WriteCase, scalar: str, kind: str, scales: tuple[float, float]) -> tuple[Any, Any]:
    """Element by element: the code of each number in the place that its slot names, the poison everywhere else."""
    k_cache, v_cache = case.k_cache.copy(), case.v_cache.copy()
    keys, values = (
        stored(rows, scalar, kind, scale) for rows, scale in zip((case.key, case.value), scales, strict=True)
    )
    x = k_cache.shape[-1]
    for token, slot in enumerate(case.slot_mapping.tolist()):
        if slot < 0:
            continue
        for head, dim in np.ndindex(case.num_heads, case.head_size):
            k_cache[slot // case.block_size, head, dim // x, slot % case.block_size, dim % x] = keys[token, head, dim]
            v_cache[slot // case.block_size, head, dim, slot % case.block_size] = values[token, head, dim]
    return k_cache, v_cache


def same(found: tuple[Any, Any], want: tuple[Any, Any]) -> None:
    """Equal to the bit."""
    for got, exact in zip(found, want, strict=True):
        assert (got.dtype, got.shape) == (exact.dtype, exact.shape)
        np.testing.assert_array_equal(got.view(np.uint8), exact.view(np.uint8))


def fused(case: WriteCase, place: int) -> Any:
    """Key and value as two slices of one projection whose other places hold a loud number; rows lie 5 rows apart."""
    rows, heads, size = case.key.shape
    whole = np.full((rows, 5, heads, size), 126, case.key.dtype)
    whole[:, place], whole[:, place + 1] = case.key, case.value
    return {"key": whole[:, place], "value": whole[:, place + 1]}


@st.composite
def narrow_writes(draw: st.DrawFn) -> tuple[WriteCase, str, str, tuple[float, float]]:
    scalar, kind = draw(st.sampled_from(SCALARS)), draw(st.sampled_from(list(CACHES)))
    tokens = draw(st.integers(1, 7))
    case = narrow_write_case(
        tokens, draw(st.integers(1, 3)), 16 * draw(st.integers(1, 3)), draw(st.sampled_from([1, 3, 8, 16, 32])), scalar,
        kind, seed=draw(st.integers(0, 99)), order=draw(st.sampled_from(["shuffled", "reversed", "identity"])),
        padding=draw(st.integers(0, tokens)), extra_rows=draw(st.integers(0, 3)),
    )  # fmt: skip
    return case, scalar, kind, (draw(st.sampled_from(SCALES)), draw(st.sampled_from(SCALES)))


# -- to the bit


@pytest.mark.parametrize("writer", WRITERS)
@given(narrow_writes(), st.sampled_from(SCHEDULES))
@settings(max_examples=40)
def test_what_is_written(writer: Callable[..., None], drawn: Any, schedule: str) -> None:
    case, scalar, kind, scales = drawn
    same(write(writer, case, kind, scales, Backend("sim", schedule)), expected(case, scalar, kind, scales))


@pytest.mark.parametrize("writer", WRITERS)
@formats()
def test_every_type_with_every_cache_from_rows_of_a_projection(
    writer: Callable[..., None], scalar: str, kind: str
) -> None:
    case = narrow_write_case(5, 2, 32, 8, scalar, kind, seed=7, padding=2, extra_rows=2)
    want = expected(case, scalar, kind, (0.37, 0.21))
    assert (np.frombuffer(want[0].tobytes(), np.uint8) == 0xAA).sum() < want[0].nbytes, "something is written"
    for place in (0, 3):
        rows = fused(case, place)
        assert not rows["key"].flags.c_contiguous
        same(write(writer, case, kind, (0.37, 0.21), **rows), want)


@pytest.mark.parametrize("writer", WRITERS)
@pytest.mark.parametrize("scalar", SCALARS)
@pytest.mark.parametrize("kind", FP8)
def test_the_codes_are_torchs(writer: Callable[..., None], scalar: str, kind: str) -> None:
    case = narrow_write_case(6, 2, 16, 8, scalar, kind, seed=1, order="identity")
    keys = cases.unpack_keys(write(writer, case, kind, (0.37, 3.0))[0]).reshape(-1, 2, 16)[:6]
    numbers = torch.from_numpy(unpack(case.key, scalar)) / np.float32(0.37)
    most = torch.finfo(FP8[kind]).max
    np.testing.assert_array_equal(keys, numbers.clamp(-most, most).to(FP8[kind]).view(torch.uint8).numpy())


@pytest.mark.parametrize("writer", WRITERS)
@pytest.mark.parametrize("scalar", SCALARS)
def test_numbers_that_are_hard_to_store(writer: Callable[..., None], scalar: str) -> None:
    odd = [
        0.0,
        -0.0,
        np.inf,
        -np.inf,
        np.nan,
        464,
        -500,
        60000,
        2.0**-9,
        2.0**-10,
        3 * 2.0**-10,
        -(2.0**-17),
        17,
        19,
        1,
        -1,
    ]
    rows = pack(np.array(odd, np.float32).reshape(1, 1, 16), scalar)
    for kind, codes in (
        ("fp8", "00 80 7e fe 7f 7e fe 7e 01 00 02 80 58 5a 38 b8"),
        ("fp8_e5m2", "00 80 7b fb 7f 5f e0 7b 18 14 1a 80 4c 4d 3c bc"),
    ):
        keys, values = np.zeros((1, 1, 1, 8, 16), np.uint8), np.zeros((1, 1, 16, 8), np.uint8)
        writer(rows, rows, keys, values, np.array([3]), kind)
        assert keys[0, 0, 0, 3].tobytes().hex(" ") == codes
        assert values[0, 0, :, 3].tobytes().hex(" ") == codes
        assert np.count_nonzero(keys) == np.count_nonzero(keys[0, 0, 0, 3])


@pytest.mark.parametrize("writer", WRITERS)
def test_an_auto_cache_keeps_every_bit_and_takes_no_notice_of_scales(writer: Callable[..., None]) -> None:
    # All 65,536 codes, NaN with a payload among them.
    codes = np.arange(1 << 16, dtype=np.uint16).reshape(64, 2, 512)
    keys, values = np.zeros((4, 2, 64, 16, 8), np.uint16), np.zeros((4, 2, 512, 16), np.uint16)
    rows = codes[::16]
    writer(rows, codes[::16][::-1].copy(), keys, values, np.array([63, 5, 0, 17]), "auto", one(np.nan), one(0))
    slots = cases.unpack_keys(keys).reshape(64, 2, 512), cases.unpack_values(values).reshape(64, 2, 512)
    np.testing.assert_array_equal(slots[0][[63, 5, 0, 17]], rows)
    np.testing.assert_array_equal(slots[1][[63, 5, 0, 17]], rows[::-1])
    assert not np.delete(slots[0], [63, 5, 0, 17], axis=0).any()


@pytest.mark.parametrize("writer", WRITERS)
def test_key_and_value_have_scales_and_strides_of_their_own(writer: Callable[..., None]) -> None:
    case = narrow_write_case(3, 2, 16, 8, "bfloat16", "fp8", seed=3)
    want = expected(case, "bfloat16", "fp8", (0.5, 2.0))
    rows = {"key": fused(case, 0)["key"], "value": case.value}
    same(write(writer, case, "fp8", (0.5, 2.0), **rows), want)
    same(write(writer, case, "fp8", (0.5, 2.0), key=case.key, value=fused(case, 2)["value"]), want)
    for wrong in ((2.0, 0.5), (0.5, 0.5)):
        with pytest.raises(AssertionError):
            same(write(writer, case, "fp8", wrong), want)
    with pytest.raises(AssertionError):
        same(write(writer, case, "fp8_e5m2", (0.5, 2.0)), want)


@pytest.mark.parametrize("writer", WRITERS)
@pytest.mark.parametrize("kind", ["auto", "fp8"])
def test_padding_and_rows_behind_the_mapping_write_nothing(writer: Callable[..., None], kind: str) -> None:
    case = narrow_write_case(5, 2, 16, 8, "bfloat16", kind, extra_rows=3, order="identity")
    assert case.slot_buffer[5:].tolist() == [5, 6, 7], "slots that exist, and must not be used"
    for cache in write(writer, case, kind):
        rows = cases.unpack_keys(cache) if cache.ndim == 5 else cases.unpack_values(cache)
        found = rows.reshape(-1, 32).view(np.uint8)
        assert (found[5:] == 0xAA).all()
        assert (found[:5] != 0xAA).any(axis=1).all()
    case.slot_mapping[:] = -1
    assert all(set(cache.tobytes()) == {0xAA} for cache in write(writer, case, kind))
    empty = case.slot_mapping[:0]
    assert all(set(cache.tobytes()) == {0xAA} for cache in write(writer, case, kind, slot_mapping=empty))


@pytest.mark.parametrize(("scalar", "kind", "heads", "pieces"), [
    ("bfloat16", "auto", 66, 8), ("bfloat16", "fp8", 130, 4), ("float32", "fp8", 130, 4), ("float32", "auto", 33, 16),
])  # fmt: skip
def test_one_byte_elements_reach_twice_as_many_heads(scalar: str, kind: str, heads: int, pieces: int) -> None:
    # 512 threads, each with one 16-byte piece: of 64 one-byte elements there are 4 pieces, of two-byte elements 8.
    case = narrow_write_case(1, heads, 64, 8, scalar, kind, spare_blocks=0)
    want = expected(case, scalar, kind, (1.0, 1.0))
    same(write(reshape_and_cache_fixed, case, kind), want)
    for got, exact in zip(write(reshape_and_cache, case, kind), want, strict=True):
        np.testing.assert_array_equal(got[:, : 512 // pieces], exact[:, : 512 // pieces])
        assert set(got[:, 512 // pieces :].tobytes()) == {0xAA}
    assert heads > 512 // pieces


@pytest.mark.parametrize(("scalar", "kind"), [("bfloat16", "auto"), ("bfloat16", "fp8"), ("float16", "fp8_e5m2")])
def test_what_is_written_is_what_attention_reads(scalar: str, kind: str) -> None:
    # One token of each sequence: its value comes out, to the bit.
    case = narrow_write_case(2, 1, 64, 16, scalar, kind, seed=9, order="identity", spare_blocks=0)
    case = replace(case, slot_mapping=np.array([0, 16]), k_cache=np.repeat(case.k_cache, 2, axis=0),
                   v_cache=np.repeat(case.v_cache, 2, axis=0))  # fmt: skip
    scales = (0.37, 0.21)
    k_cache, v_cache = write(reshape_and_cache, case, kind, scales)
    out = np.zeros((2, 1, 64), case.key.dtype)
    paged_attention_v1(
        out, case.key, k_cache, v_cache, 1, 0.125, np.array([[0], [1]], np.int32), np.ones(2, np.int32), 16, 1, None,
        kind, *map(one, scales),
    )  # fmt: skip
    codes = stored(case.value, scalar, kind, scales[1])
    if kind == "auto":
        np.testing.assert_array_equal(out, codes)
        return
    numbers = torch.from_numpy(codes).view(FP8[kind]).float() * np.float32(scales[1])
    np.testing.assert_array_equal(out, pack(numbers.numpy(), scalar))
    # Three (e4m3) or two (e5m2) bits are left: an eighth or a sixteenth of the number, half a step for the smallest.
    error = np.abs(unpack(out, scalar) - unpack(case.value, scalar))
    assert (
        error <= np.abs(unpack(case.value, scalar)) / (16 if kind == "fp8" else 8) * 1.01 + 2.0**-10 * scales[1]
    ).all()


# -- what is refused


@pytest.mark.parametrize("writer", WRITERS)
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"kind": "fp8_e3m4"}, "kv_cache_dtype = fp8_e3m4: must be one of auto, fp8, fp8_e4m3, fp8_e5m2"),
        ({"kind": "auto"}, r"key_cache\.shape = .*must be \(any, 2, 2, any, 8\)"),
        ({"k_cache": np.zeros((2, 2, 2, 8, 8), np.uint8)}, r"key_cache\.shape = .*must be \(any, 2, 1, any, 16\)"),
        ({"k_cache": np.zeros((2, 2, 1, 8, 16), np.int8)}, r"key_cache\.dtype = int8: must be uint8"),
        ({"v_cache": np.zeros((2, 2, 16, 8), np.uint16)}, r"value_cache\.(dtype|shape) = "),
        ({"k_scale": np.zeros(1, np.float32)}, r"k_scale = \[0\.0\]: must be finite and above zero"),
        ({"v_scale": np.full(1, -1, np.float32)}, r"v_scale = \[-1\.0\]"),
        ({"v_scale": np.ones(2, np.float32)}, r"v_scale\.shape = \(2,\): must be \(1\)"),
        ({"k_scale": np.float32(1)}, r"k_scale\.shape = \(\): must be \(any\)"),
        ({"value": np.zeros((3, 2, 16), np.float16)}, r"value\.dtype = float16: must be uint16"),
        ({"key": np.zeros((3, 4, 16), np.uint16)[:, ::2]}, r"key\.strides = .*must be contiguous after its first axis"),
    ],
)
def test_a_bad_argument_is_named_and_the_caches_stay(
    writer: Callable[..., None], changes: dict[str, Any], message: str
) -> None:
    case = narrow_write_case(3, 2, 16, 8, "bfloat16", "fp8")
    good = {"key": case.key, "value": case.value, "k_cache": case.k_cache, "v_cache": case.v_cache,
            "slot_mapping": case.slot_mapping, "kind": "fp8", "k_scale": one(1), "v_scale": one(1)}  # fmt: skip
    with pytest.raises(ArgumentError, match=message):
        writer(*(good | changes).values())
    assert {*case.k_cache.tobytes(), *case.v_cache.tobytes()} == {0xAA}


# -- the same on a GPU


@pytest.mark.gpu
@pytest.mark.parametrize("writer", WRITERS)
@formats()
def test_gpu_writes_the_same_bits(writer: Callable[..., None], scalar: str, kind: str) -> None:
    for block_size, heads in ((8, 3), (16, 8)):
        case = narrow_write_case(9, heads, 64, block_size, scalar, kind, seed=heads, padding=2, extra_rows=3)
        want = expected(case, scalar, kind, (0.37, 0.21))
        same(write(writer, case, kind, (0.37, 0.21), "cuda"), want)
        same(write(writer, case, kind, (0.37, 0.21), "cuda", **fused(case, 1)), want)
