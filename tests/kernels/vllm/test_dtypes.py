"""Which conversion a kernel gets, and what those conversions and the three dot products compute, against torch."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numba import cuda, float32, uint16
from numba.types import float16

from kernels import numbers
from kernels.errors import ArgumentError
from kernels.kernel import Backend, kernel
from kernels.vllm import attention_utils, dtypes
from kernels.vllm.attention_utils import DOTS, dot_float
from kernels.vllm.dtypes import (
    CACHE_DTYPES,
    SCALAR_TYPES,
    cache_dtype,
    cache_itemsize,
    conversions,
    copy_auto,
    copy_fp8,
    one_scale,
    reader,
    scaled_convert,
    scaled_convert_by_half,
)

TORCH = {"float32": torch.float32, "float16": torch.float16, "uint16": torch.bfloat16}
FP8 = {"fp8": torch.float8_e4m3fn, "fp8_e4m3": torch.float8_e4m3fn, "fp8_e5m2": torch.float8_e5m2}
FORMATS = ("fp8_e4m3", "fp8_e5m2")
SCALES = (1.0, 0.37, 0.0078125, 3.0, 300.0)
convert, dot, scalar_t, V_VEC_SIZE = copy_auto, dot_float, float32, 4
chosen_reader = scaled_convert


def reading(*, dtype: str, kv_cache_dtype: str, vector: int) -> dict[str, Any]:
    return {"chosen_reader": reader(dtype, vector), **conversions(dtype, kv_cache_dtype)}


@kernel(reading)
def read_kernel(out, codes, scale):
    for i in range(cuda.threadIdx.x, codes.size, cuda.blockDim.x):
        out[i] = chosen_reader(codes[i], scale[0])


@kernel(conversions)
def write_kernel(out, values, scale):
    for i in range(cuda.threadIdx.x, values.size, cuda.blockDim.x):
        out[i] = convert(values[i], scale[0])


@kernel()
def dot_kernel(out, a, b):
    left = cuda.local.array(V_VEC_SIZE, scalar_t)
    right = cuda.local.array(V_VEC_SIZE, scalar_t)
    for row in range(out.size):
        for e in range(V_VEC_SIZE):
            left[e] = a[row, e]
            right[e] = b[row, e]
        out[row] = dot(left, right)


def read(dtype: str, kv: str, codes: Any, scale: float, backend: str | Backend = "sim", vector: int = 1) -> Any:
    """Codes as a kernel reads them, `vector` at once: in the scalar type."""
    out = np.zeros(codes.shape, dtype)
    chosen = read_kernel.specialise(dtype=dtype, kv_cache_dtype=kv, vector=vector)
    chosen.on(backend)[1, 32](out, codes, np.full(1, scale, np.float32))
    return out


def write(dtype: str, kv: str, values: Any, scale: float, backend: str | Backend = "sim") -> Any:
    """Values in the scalar type as a kernel stores them."""
    out = np.zeros(values.shape, values.dtype if kv == "auto" else np.uint8)
    chosen = write_kernel.specialise(dtype=dtype, kv_cache_dtype=kv).on(backend)
    chosen[1, 32](out, values, np.full(1, scale, np.float32))
    return out


def dots(dtype: str, a: Any, b: Any, backend: str | Backend = "sim") -> Any:
    """The dot product of each row of a with that of b: both [rows, elements]."""
    out = np.zeros(len(a), np.float32)
    chosen = dot_kernel.specialise(V_VEC_SIZE=a.shape[1], dot=DOTS[dtype], **conversions(dtype, "auto"))
    chosen.on(backend)[1, 1](out, a, b)
    return out


def as_torch(array: Any, dtype: str) -> torch.Tensor:
    return torch.from_numpy(array).view(TORCH[dtype])


def as_codes(tensor: torch.Tensor, dtype: str) -> Any:
    return tensor.view(torch.uint16).numpy() if dtype == "uint16" else tensor.numpy()


def torch_read(dtype: str, kv: str, codes: Any, scale: float, vector: int = 1) -> torch.Tensor:
    numbers = torch.from_numpy(codes).view(FP8[kv]).float() * torch.tensor(scale, dtype=torch.float32)
    return (numbers.half() if dtype == "float32" and vector > 1 else numbers).to(TORCH[dtype])


def torch_write(dtype: str, kv: str, values: Any, scale: float) -> Any:
    """NaN apart: torch keeps its sign, the hardware does not."""
    most = torch.finfo(FP8[kv]).max
    divided = as_torch(values, dtype).float() / torch.tensor(scale, dtype=torch.float32)
    codes = divided.clamp(-most, most).to(FP8[kv]).view(torch.uint8)
    return torch.where(divided.isnan(), 0x7F, codes).numpy()


def same_numbers(found: Any, expected: torch.Tensor, dtype: str) -> bool:
    """The same bits, but any NaN equals any other."""
    got = as_torch(found, dtype)
    known = ~expected.isnan()
    raw = torch.int32 if dtype == "float32" else torch.int16
    return torch.equal(got.isnan(), ~known) and torch.equal(got.view(raw)[known], expected.view(raw)[known])


def scalars(values: Any, dtype: str) -> Any:
    with np.errstate(over="ignore"):
        return as_codes(torch.from_numpy(np.asarray(values, np.float32)).to(TORCH[dtype]), dtype)


# -- the tables


@pytest.mark.parametrize("dtype", SCALAR_TYPES)
@pytest.mark.parametrize("kv", CACHE_DTYPES)
def test_which_conversion_a_kernel_gets(dtype: str, kv: str) -> None:
    scalar_type = {"float32": float32, "float16": float16, "uint16": uint16}[dtype]
    bfloat16 = numbers.bfloat16_to_float32, numbers.float32_to_bfloat16
    to_float, from_float = bfloat16 if dtype == "uint16" else (float32, scalar_type)
    fp8 = (
        (numbers.float32_to_fp8_e5m2, numbers.fp8_e5m2_to_float32)
        if kv == "fp8_e5m2"
        else (numbers.float32_to_fp8_e4m3, numbers.fp8_e4m3_to_float32)
    )
    assert conversions(dtype, kv) == {
        "KV_AUTO": kv == "auto",
        "scalar_t": scalar_type,
        "to_float": to_float,
        "from_float": from_float,
        "to_fp8": fp8[0],
        "from_fp8": fp8[1],
        "convert": copy_auto if kv == "auto" else copy_fp8,
    }


def test_every_constant_is_a_name_that_some_module_of_the_kernels_has() -> None:
    # `specialise` replaces globals by name: one that is spelt otherwise would be passed over in silence.
    for name in ("to_float", "from_float", "to_fp8", "from_fp8"):
        assert hasattr(dtypes, name)
    assert hasattr(attention_utils, "to_float")
    assert set(DOTS) == set(SCALAR_TYPES)


def test_what_a_cache_must_be() -> None:
    assert CACHE_DTYPES == ("auto", "fp8", "fp8_e4m3", "fp8_e5m2")
    assert [cache_dtype(np.dtype(np.float16), kv) for kv in CACHE_DTYPES] == ["float16", "uint8", "uint8", "uint8"]
    assert [cache_itemsize(size, kv) for size in (2, 4) for kv in ("auto", "fp8", "fp8_e5m2")] == [2, 1, 1, 4, 1, 1]
    assert cache_dtype("uint16", "auto") == "uint16"
    for wrong in ("fp8_e3m4", "", "FP8", "int8"):
        with pytest.raises(ArgumentError, match=f"kv_cache_dtype = {wrong}: must be one of auto, fp8, fp8_e4m3, fp8_"):
            cache_dtype("float16", wrong)


def test_no_scale_is_a_scale_of_one() -> None:
    made = one_scale(None)
    assert (made.tolist(), made.dtype) == ([1.0], np.float32)
    given_scale = np.full(1, 0.5, np.float32)
    assert one_scale(given_scale) is given_scale


# -- reading fp8


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("dtype", SCALAR_TYPES)
@pytest.mark.parametrize("kv", FORMATS)
def test_every_code_times_a_scale_is_what_torch_says(kv: str, dtype: str, scale: float) -> None:
    codes = np.arange(256, dtype=np.uint8)
    for vector in (1, 2, 4, 8):
        found = read(dtype, kv, codes, scale, vector=vector)
        assert same_numbers(found, torch_read(dtype, kv, codes, scale, vector), dtype), vector


def test_only_several_codes_at_once_go_to_float32_by_way_of_float16() -> None:
    assert [reader("float32", vector) for vector in (1, 2, 4)] == [scaled_convert, *[scaled_convert_by_half] * 2]
    for dtype in ("float16", "uint16"):
        assert {reader(dtype, vector) for vector in (1, 2, 4, 8)} == {scaled_convert}
    codes = np.array([0x3C, 0x7E], np.uint8)  # 1.5 and 448
    assert read("float32", "fp8", codes, 0.1, vector=2)[0] == np.float16(0.15) != np.float32(0.15)
    assert read("float32", "fp8", codes, 300, vector=2)[1] == np.inf
    assert read("float32", "fp8", codes, 300, vector=1)[1] == 134400


def test_fp8_is_e4m3() -> None:
    codes = np.arange(256, dtype=np.uint8)
    found = {kv: read("float32", kv, codes, 0.37).tobytes() for kv in ("fp8", *FORMATS)}
    assert found["fp8"] == found["fp8_e4m3"] != found["fp8_e5m2"]


@pytest.mark.parametrize("dtype", SCALAR_TYPES)
@given(st.lists(st.integers(0, 255), min_size=1, max_size=12), st.floats(2.0**-20, 2.0**10, width=32))
@settings(max_examples=30)
def test_any_scale(dtype: str, codes: list[int], scale: float) -> None:
    array = np.array(codes, np.uint8)
    for kv, vector in product(FORMATS, (1, 2)):
        found = read(dtype, kv, array, scale, vector=vector)
        assert same_numbers(found, torch_read(dtype, kv, array, scale, vector), dtype)


def test_reading_written_down() -> None:
    # 1.5 * 0.1 rounds to float32, then to 11 and to 8 bits. 448 * 300 is too much for float16 only.
    tenth = np.float32(1.5) * np.float32(0.1)
    codes = np.array([0x3C, 0x7E], np.uint8)
    assert read("float32", "fp8", codes, 0.1)[0] == tenth
    assert read("float16", "fp8", codes, 0.1)[0] == np.float16(tenth) != tenth
    assert read("uint16", "fp8", codes, 0.1)[0] == 0x3E1A
    assert read("float16", "fp8", codes, 300)[1] == np.inf
    assert read("float32", "fp8", codes, 300)[1] == 134400


# -- writing fp8


def random_values(dtype: str, seed: int) -> Any:
    """Numbers of all sizes, with the largest and the smallest and what is no number."""
    rng = np.random.default_rng(seed)
    special = [
        0.0,
        -0.0,
        np.inf,
        -np.inf,
        np.nan,
        448,
        464,
        -465,
        57344,
        61440,
        -61441,
        2.0**-10,
        3 * 2.0**-10,
        2.0**-17,
    ]
    spread = [rng.standard_normal(60) * 10.0**power for power in (-6, -4, -2, 0, 2, 4)]
    return scalars(np.concatenate([special, *spread]), dtype)


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("dtype", SCALAR_TYPES)
@pytest.mark.parametrize("kv", FORMATS)
def test_values_over_a_scale_are_rounded_as_torch_does(kv: str, dtype: str, scale: float) -> None:
    values = random_values(dtype, seed=len(kv) + int(scale))
    np.testing.assert_array_equal(write(dtype, kv, values, scale), torch_write(dtype, kv, values, scale))


@pytest.mark.parametrize("kv", FORMATS)
@pytest.mark.parametrize("dtype", SCALAR_TYPES)
@given(st.lists(st.floats(width=32), min_size=1, max_size=12), st.floats(2.0**-20, 2.0**10, width=32))
@settings(max_examples=30)
@example([464.0, 463.9999], 1.0)
@example([1e-45, 3e38], 2.0**-20)
def test_any_value_and_any_scale(dtype: str, kv: str, values: list[float], scale: float) -> None:
    array = scalars(values, dtype)
    np.testing.assert_array_equal(write(dtype, kv, array, scale), torch_write(dtype, kv, array, scale))


@pytest.mark.parametrize("kv", FORMATS)
@pytest.mark.parametrize("dtype", SCALAR_TYPES)
def test_every_finite_code_comes_back_from_what_was_read(kv: str, dtype: str) -> None:
    codes = np.arange(256, dtype=np.uint8)
    codes = codes[np.isfinite(torch.from_numpy(codes).view(FP8[kv]).float().numpy())]
    for scale in (1.0, 0.25):
        np.testing.assert_array_equal(write(dtype, kv, read(dtype, kv, codes, scale), scale), codes)


def test_writing_written_down() -> None:
    # Ties go to even: 17 lies between 16 (0x58) and 18 (0x59), 19 between 18 and 20 (0x5A).
    values = np.array([17, 19, 1000, -np.inf, np.nan, -0.0], np.float32)
    assert write("float32", "fp8", values, 1).tolist() == [0x58, 0x5A, 0x7E, 0xFE, 0x7F, 0x80]
    assert write("float32", "fp8", values * 2, 2).tolist() == [0x58, 0x5A, 0x7E, 0xFE, 0x7F, 0x80]
    assert write("uint16", "fp8_e5m2", np.array([0x3F80, 0x7FC0, 0xFF80], np.uint16), 1).tolist() == [0x3C, 0x7F, 0xFB]


@pytest.mark.parametrize("dtype", SCALAR_TYPES)
def test_without_a_format_every_bit_stays_and_the_scale_is_not_used(dtype: str) -> None:
    values = random_values(dtype, seed=1)
    assert write(dtype, "auto", values, np.nan).tobytes() == values.tobytes()


# -- dot products


def torch_dot(dtype: str, a: Any, b: Any) -> Any:
    """Rows of products, rounded and added as vLLM's vector types do it; each operation torch's own."""
    left, right = as_torch(a, dtype), as_torch(b, dtype)
    products = left * right  # one rounding, in the tensors' own type
    if dtype == "uint16":
        products = products.float()
        sums = products[:, 0::2] + products[:, 1::2]
    elif dtype == "float16":
        sums = products[:, 0:2]
        for e in range(2, products.shape[1], 2):
            sums = sums + products[:, e : e + 2]
        sums = sums.float()
    else:
        sums = products
    total = sums[:, 0]
    for column in range(1, sums.shape[1]):
        total = total + sums[:, column]
    return total.numpy()


WIDTHS = {"float32": (2, 4), "float16": (2, 4, 8), "uint16": (2, 4, 8)}


@pytest.mark.parametrize("dtype", SCALAR_TYPES)
@given(st.integers(0, 10**6), st.sampled_from([0.01, 1.0, 30.0]))
@settings(max_examples=20)
def test_dot_products_to_the_bit(dtype: str, seed: int, size: float) -> None:
    rng = np.random.default_rng(seed)
    for width in WIDTHS[dtype]:
        a, b = (scalars(rng.standard_normal((6, width)) * size, dtype) for _ in range(2))
        np.testing.assert_array_equal(dots(dtype, a, b), torch_dot(dtype, a, b))


def test_dot_bfloat16_rounds_the_products_and_nothing_else() -> None:
    # 1.0078125 squared is 1.01568...: 1.015625 in 8 bits. The sums keep what bfloat16 would lose: 256 + 1.
    near = scalars([[1.0078125, 0, 0, 0]], "uint16")
    assert dots("uint16", near, near)[0] == 1.015625
    a, b = scalars([[256, 1, 1, 1]], "uint16"), scalars([[1, 1, 1, 1]], "uint16")
    assert dots("uint16", a, b)[0] == 259
    # A NaN and an infinity are heard.
    assert np.isnan(dots("uint16", scalars([[np.nan, 1, 1, 1]], "uint16"), b)[0])
    assert dots("uint16", scalars([[3e38, 1, 1, 1]], "uint16"), scalars([[3e38, 1, 1, 1]], "uint16"))[0] == np.inf


def test_the_order_of_additions_is_pairs_then_from_the_left() -> None:
    # (2**24 + 1) is 2**24 in float32: who is added to whom is seen.
    big = 2.0**24
    one = scalars([[1] * 8], "uint16")
    rows = scalars([[1, big, 1, -big, 0, 0, 0, 0], [big, 0, 1, 0, 1, 0, -big, 0]], "uint16")
    # One after another they would give 0, 0; even and odd apart 2, 0; as a tree of pairs 1, 1.
    assert dots("uint16", rows, np.repeat(one, 2, axis=0)).tolist() == [1, 0]


# -- the same on a GPU


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", SCALAR_TYPES)
@pytest.mark.parametrize("kv", FORMATS)
def test_gpu_converts_the_same(kv: str, dtype: str) -> None:
    codes = np.arange(256, dtype=np.uint8)
    values = random_values(dtype, seed=2)
    for scale in SCALES:
        for vector in (1, 4):
            found = read(dtype, kv, codes, scale, "cuda", vector)
            assert same_numbers(found, torch_read(dtype, kv, codes, scale, vector), dtype)
        np.testing.assert_array_equal(write(dtype, kv, values, scale, "cuda"), torch_write(dtype, kv, values, scale))


@pytest.mark.gpu
def test_gpu_dot_bfloat16_to_the_bit() -> None:
    # No product and sum of it can be fused: a rounding stands between them.
    rng = np.random.default_rng(5)
    a, b = (scalars(rng.standard_normal((40, 8)), "uint16") for _ in range(2))
    np.testing.assert_array_equal(dots("uint16", a, b, "cuda"), torch_dot("uint16", a, b))
