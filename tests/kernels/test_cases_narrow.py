"""Cases in bfloat16 and fp8: their codes against torch's own types, and the numbers that they claim to stand for."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels import cases, oracle
from kernels.cases_narrow import (
    CACHES,
    SCALARS,
    NarrowCase,
    narrow_decode_case,
    narrow_write_case,
    pack,
    storage,
    stored,
    unpack,
)
from kernels.errors import ArgumentError

TORCH = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}
FP8 = {"fp8": torch.float8_e4m3fn, "fp8_e4m3": torch.float8_e4m3fn, "fp8_e5m2": torch.float8_e5m2}
SCALES = (1.0, 0.37, 0.21, 2.5)
floats32 = st.floats(width=32, allow_nan=False)


def bits(tensor: torch.Tensor) -> Any:
    """A tensor's memory as NumPy can hold it."""
    raw = {1: torch.uint8, 2: torch.uint16, 4: torch.float32}[tensor.dtype.itemsize]
    return tensor.numpy() if tensor.dtype == torch.float16 else tensor.view(raw).numpy()


def torch_pack(values: Any, scalar: str) -> Any:
    return bits(torch.from_numpy(np.asarray(values, np.float32)).to(TORCH[scalar]))


def torch_number(array: Any, scalar: str) -> torch.Tensor:
    """What the elements of an array of codes are, in float64."""
    tensor = torch.from_numpy(np.ascontiguousarray(array))
    return tensor.view(TORCH[scalar]).double()


def torch_fp8(values: torch.Tensor, kv_cache_dtype: str) -> Any:
    most = torch.finfo(FP8[kv_cache_dtype]).max
    return values.clamp(-most, most).to(FP8[kv_cache_dtype]).view(torch.uint8).numpy()


@st.composite
def narrow_cases(draw: st.DrawFn) -> NarrowCase:
    kv_cache_dtype = draw(st.sampled_from(list(CACHES)))
    group, num_kv_heads = draw(st.sampled_from([(1, 1), (2, 1), (1, 2), (3, 2)]))
    return narrow_decode_case(
        draw(st.lists(st.integers(0, 20), min_size=1, max_size=3)),
        group * num_kv_heads,
        num_kv_heads,
        16 * draw(st.integers(1, 3)),
        draw(st.sampled_from([8, 16, 32])),
        draw(st.sampled_from(SCALARS)),
        kv_cache_dtype,
        draw(st.sampled_from(SCALES)),
        draw(st.sampled_from(SCALES)),
        seed=draw(st.integers(0, 99)),
        garbage=draw(st.sampled_from(["valid", "minus-one"])),
        alibi=draw(st.booleans()),
    )


def numbers_of(narrow: NarrowCase, codes: Any, factor: Any, *, by_half: bool) -> Any:
    """Cache elements as float32, by torch. `by_half`: vLLM takes several fp8 codes to float32 by way of float16."""
    tensor = torch.from_numpy(np.ascontiguousarray(codes))
    if narrow.kv_cache_dtype == "auto":
        return tensor.view(TORCH[scalar_of(narrow)]).float().numpy()
    read = tensor.view(FP8[narrow.kv_cache_dtype]).float() * torch.from_numpy(factor)
    return (read.half().float() if by_half else read).numpy()


def by_half(narrow: NarrowCase) -> tuple[bool, bool]:
    """Whether keys and values are read by way of float16: float32 keys are loaded one by one in blocks of 8."""
    single = narrow.q.dtype == np.float32
    return single and narrow.case.block_size > 8, single


def scalar_of(narrow: NarrowCase) -> str:
    return next(name for name in SCALARS if storage(name) == narrow.q.dtype)


# -- pack and unpack


@pytest.mark.parametrize("scalar", SCALARS)
@given(st.lists(floats32, min_size=1, max_size=20))
def test_pack_rounds_as_torch_does_and_unpack_is_exact(scalar: str, values: list[float]) -> None:
    with np.errstate(over="ignore"):
        packed = pack(np.array(values, np.float32), scalar)
    assert packed.dtype == storage(scalar)
    assert packed.tobytes() == torch_pack(values, scalar).tobytes()
    back = unpack(packed, scalar)
    assert back.dtype == np.float32
    assert back.astype(np.float64).tolist() == torch_number(packed, scalar).tolist()
    assert pack(back, scalar).tobytes() == packed.tobytes()


def test_what_holds_a_scalar_type() -> None:
    assert [str(storage(scalar)) for scalar in SCALARS] == ["float32", "float16", "uint16"]
    assert pack([1.0, -2.0], "bfloat16").tolist() == [0x3F80, 0xC000]
    assert pack(np.ones((2, 3)), "float16").shape == (2, 3)


# -- a decode step


@settings(max_examples=40)
@given(narrow_cases())
def test_the_caches_hold_the_codes_of_the_numbers(narrow: NarrowCase) -> None:
    case, scalar = narrow.case, scalar_of(narrow)
    x = 16 // narrow.k_cache.itemsize
    k_by_half, v_by_half = by_half(narrow)
    assert narrow.k_cache.dtype == narrow.v_cache.dtype == (narrow.q.dtype if narrow.kv_cache_dtype == "auto" else "u1")
    assert narrow.k_cache.shape == (case.num_blocks, case.num_kv_heads, case.head_size // x, case.block_size, x)
    assert narrow.v_cache.shape == (case.num_blocks, case.num_kv_heads, case.head_size, case.block_size)
    seen = np.zeros((case.num_blocks, case.block_size), bool)
    for seq, length in enumerate(case.seq_lens):
        for token in range(length):
            block, offset = int(case.block_tables[seq, token // case.block_size]), token % case.block_size
            seen[block, offset] = True
            keys = narrow.k_cache[block, :, :, offset].reshape(case.num_kv_heads, -1)
            numbers = numbers_of(narrow, keys, narrow.k_scale, by_half=k_by_half)
            np.testing.assert_array_equal(case.keys[seq][token], numbers)
            numbers = numbers_of(narrow, narrow.v_cache[block, ..., offset], narrow.v_scale, by_half=v_by_half)
            np.testing.assert_array_equal(case.values[seq][token], numbers)
    # Wherever no token is, a NaN stands, in either cache and as either number.
    places = np.moveaxis(narrow.k_cache, 3, 1)[~seen], np.moveaxis(narrow.v_cache, 3, 1)[~seen]
    for codes in places:
        kind = TORCH[scalar] if narrow.kv_cache_dtype == "auto" else FP8[narrow.kv_cache_dtype]
        assert torch.from_numpy(np.ascontiguousarray(codes)).view(kind).float().isnan().all()
    assert np.isnan(np.moveaxis(case.v_cache, 3, 1)[~seen]).all()


@settings(max_examples=40)
@given(narrow_cases())
def test_the_numbers_are_what_the_narrow_formats_hold(narrow: NarrowCase) -> None:
    case, scalar = narrow.case, scalar_of(narrow)
    assert case.q.dtype == np.float32
    assert case.q.astype(np.float64).tolist() == torch_number(narrow.q, scalar).tolist()
    for rows, factor, half in zip(
        (case.keys, case.values), (narrow.k_scale, narrow.v_scale), by_half(narrow), strict=True
    ):
        assert (factor.dtype, factor.shape) == (np.dtype(np.float32), (1,))
        for row in rows:
            assert row.dtype == np.float32
            numbers = torch.from_numpy(row)
            if narrow.kv_cache_dtype == "auto":
                assert torch.equal(numbers.to(TORCH[scalar]).float(), numbers)
            else:
                codes = torch_fp8(numbers / torch.from_numpy(factor), narrow.kv_cache_dtype)
                np.testing.assert_array_equal(numbers_of(narrow, codes, factor, by_half=half), row)


@settings(max_examples=20)
@given(narrow_cases())
def test_the_case_of_numbers_is_a_case_like_any_other(narrow: NarrowCase) -> None:
    case = narrow.case
    pools = cases.unpack_keys(case.k_cache), cases.unpack_values(case.v_cache)
    for pool, rows in zip(pools, (case.keys, case.values), strict=True):
        for seq, length in enumerate(case.seq_lens):
            blocks = list(case.blocks_of(seq))
            flat = pool[blocks].reshape(-1, *pool.shape[2:]) if blocks else pool[:0, 0]
            np.testing.assert_array_equal(flat[:length], rows[seq])
    found = oracle.attention(case)
    assert np.isfinite(found).all()
    np.testing.assert_allclose(found, oracle.torch_sdpa(case), atol=1e-12)


@pytest.mark.parametrize("kv_cache_dtype", CACHES)
@pytest.mark.parametrize("scalar", SCALARS)
def test_a_case_is_the_plain_case_rounded(scalar: str, kv_cache_dtype: str) -> None:
    plain = cases.decode_case((9, 3), 2, 1, 16, 8, "float32", seed=4, alibi=True)
    narrow = narrow_decode_case((9, 3), 2, 1, 16, 8, scalar, kv_cache_dtype, 0.37, 0.21, seed=4, alibi=True)
    np.testing.assert_array_equal(narrow.case.block_tables, plain.block_tables)
    np.testing.assert_array_equal(narrow.case.seq_lens, plain.seq_lens)
    np.testing.assert_array_equal(narrow.case.alibi_slopes, plain.alibi_slopes)
    assert narrow.q.tobytes() == torch_pack(plain.q, scalar).tobytes()
    assert narrow.case.name == f"{plain.name}, {scalar}, cache {kv_cache_dtype}"
    if kv_cache_dtype == "auto":
        codes = torch_pack(plain.keys[0], scalar)
    else:
        codes = torch_fp8(torch.from_numpy(plain.keys[0]) / np.float32(0.37), kv_cache_dtype)
    pool = cases.unpack_keys(narrow.k_cache)[list(plain.blocks_of(0))].reshape(-1, 1, 16)
    np.testing.assert_array_equal(pool[:9], codes)


def test_another_poison_is_rounded_as_well() -> None:
    narrow = narrow_decode_case((3,), 1, 1, 16, 8, "bfloat16", "fp8", poison=6e4)
    tail = cases.unpack_keys(narrow.k_cache)[narrow.case.blocks_of(0)[0], 3:]
    assert (tail == 0x7E).all(), "448, the largest"


def test_the_two_scales_are_not_mixed_up() -> None:
    one, two = (narrow_decode_case((5,), 1, 1, 16, 8, "float32", "fp8", *pair) for pair in ((0.5, 2.0), (2.0, 0.5)))
    assert (one.k_scale[0], one.v_scale[0]) == (0.5, 2.0)
    assert (one.k_cache != two.k_cache).any()
    # Powers of two change the code's exponent only: the numbers are the same, but for those that are subnormal.
    np.testing.assert_allclose(one.case.keys[0], two.case.keys[0], atol=2 * 2.0**-10)


# -- a write


@settings(max_examples=30)
@given(
    st.integers(1, 6), st.integers(1, 3), st.integers(1, 3), st.sampled_from([8, 16]), st.sampled_from(SCALARS),
    st.sampled_from(list(CACHES)), st.integers(0, 3),
)  # fmt: skip
def test_a_write_case_is_the_plain_one_rounded_over_poisoned_caches(
    tokens: int, heads: int, groups: int, block_size: int, scalar: str, kv_cache_dtype: str, extra_rows: int
) -> None:
    size = 16 * groups
    plain = cases.write_case(tokens, heads, size, block_size, "float32", seed=tokens, extra_rows=extra_rows)
    case = narrow_write_case(
        tokens, heads, size, block_size, scalar, kv_cache_dtype, seed=tokens, extra_rows=extra_rows
    )
    for mine, theirs in ((case.key, plain.key), (case.value, plain.value)):
        assert mine.dtype == storage(scalar)
        assert mine.tobytes() == torch_pack(theirs, scalar).tobytes()
    np.testing.assert_array_equal(case.slot_buffer, plain.slot_buffer)
    itemsize = storage(scalar).itemsize if kv_cache_dtype == "auto" else 1
    x = 16 // itemsize
    assert case.k_cache.shape == (plain.num_blocks, heads, size // x, block_size, x)
    assert case.v_cache.shape == (plain.num_blocks, heads, size, block_size)
    for cache in (case.k_cache, case.v_cache):
        assert cache.itemsize == itemsize
        assert set(cache.tobytes()) == {0xAA}
    assert case.name == f"{plain.name}, {scalar}, cache {kv_cache_dtype}"


@pytest.mark.parametrize("scalar", SCALARS)
@pytest.mark.parametrize("kv_cache_dtype", FP8)
@given(st.lists(floats32, min_size=1, max_size=20), st.sampled_from([*SCALES, 1e-3, 64.0]))
def test_what_a_writer_must_store(scalar: str, kv_cache_dtype: str, values: list[float], scale: float) -> None:
    with np.errstate(over="ignore"):
        rows = pack(np.array(values, np.float32), scalar)
        codes = stored(rows, scalar, kv_cache_dtype, scale)
    held = torch_number(rows, scalar).float() / torch.tensor(scale, dtype=torch.float32)
    assert codes.dtype == np.uint8
    np.testing.assert_array_equal(codes, torch_fp8(held, kv_cache_dtype))


@pytest.mark.parametrize("scalar", SCALARS)
def test_without_a_format_a_writer_stores_the_elements(scalar: str) -> None:
    rows = pack(np.linspace(-3, 3, 12), scalar)
    assert stored(rows, scalar, "auto", 0.5) is rows


# -- what is refused


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("float64", "auto"), "scalar = float64: must be one of float32, float16, bfloat16"),
        (("bf16", "fp8"), "scalar = bf16"),
        (("float16", "fp8_e3m4"), "kv_cache_dtype = fp8_e3m4: must be one of auto, fp8, fp8_e4m3, fp8_e5m2"),
        (("float16", ""), "kv_cache_dtype = : must be one of"),
    ],
)
def test_unknown_formats(arguments: tuple[str, str], message: str) -> None:
    for build in (
        lambda: narrow_decode_case((3,), 1, 1, 16, 8, *arguments),
        lambda: narrow_write_case(3, 1, 16, 8, *arguments),
    ):
        with pytest.raises(ArgumentError, match=message):
            build()


def test_an_unknown_cache_has_no_codes() -> None:
    with pytest.raises(ArgumentError, match="kv_cache_dtype = e4m3: must be one of auto, fp8, fp8_e4m3, fp8_e5m2"):
        stored(pack([1.0], "float32"), "float32", "e4m3", 1.0)


@pytest.mark.parametrize(
    ("head_size", "scalar", "kv_cache_dtype", "x"),
    [
        (12, "bfloat16", "auto", 8),
        (12, "float16", "auto", 8),
        (24, "float32", "fp8", 16),
        (120, "float16", "fp8_e5m2", 16),
    ],
)
def test_a_head_size_that_x_does_not_divide(head_size: int, scalar: str, kv_cache_dtype: str, x: int) -> None:
    message = f"head_size = {head_size}: must be divisible by x = {x}"
    with pytest.raises(ArgumentError, match=message):
        narrow_decode_case((3,), 1, 1, head_size, 8, scalar, kv_cache_dtype)
    with pytest.raises(ArgumentError, match=message):
        narrow_write_case(3, 1, head_size, 8, scalar, kv_cache_dtype)
    assert narrow_decode_case((3,), 1, 1, 12, 8, "float32").case.head_size == 12


def test_the_plain_builders_errors_come_through() -> None:
    with pytest.raises(ArgumentError, match="seq_lens"):
        narrow_decode_case((), 1, 1, 16, 8)
    with pytest.raises(ArgumentError, match="num_tokens"):
        narrow_write_case(0, 1, 16, 8)
    with pytest.raises(ArgumentError, match="num_heads"):
        narrow_decode_case((3,), 3, 2, 16, 8)


def test_a_case_cannot_be_changed_by_accident() -> None:
    narrow = narrow_decode_case((3,), 1, 1, 16, 8)
    with pytest.raises(AttributeError):
        narrow.kv_cache_dtype = "fp8"  # type: ignore[misc]
    assert replace(narrow, kv_cache_dtype="fp8").kv_cache_dtype == "fp8"
