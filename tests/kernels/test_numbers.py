"""bfloat16 and fp8, against torch's own types: every code, and every float32 whose rounding could go wrong."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numba import cuda

from kernels import numbers
from kernels.errors import ArgumentError
from kernels.kernel import Backend, kernel
from kernels.numbers import (
    FORMATS,
    bfloat16_to_float32,
    decode,
    encode,
    float32_to_bfloat16,
    float32_to_fp8_e4m3,
    float32_to_fp8_e5m2,
    fp8_e4m3_to_float32,
    fp8_e5m2_to_float32,
)

TORCH = {"bfloat16": torch.bfloat16, "fp8_e4m3": torch.float8_e4m3fn, "fp8_e5m2": torch.float8_e5m2}
LARGEST = {"bfloat16": np.inf, "fp8_e4m3": 448.0, "fp8_e5m2": 57344.0}


@kernel()
def from_bfloat16(out, codes):
    for i in range(cuda.threadIdx.x, codes.size, cuda.blockDim.x):
        out[i] = bfloat16_to_float32(codes[i])


@kernel()
def to_bfloat16(out, values):
    for i in range(cuda.threadIdx.x, values.size, cuda.blockDim.x):
        out[i] = float32_to_bfloat16(values[i])


@kernel()
def from_e4m3(out, codes):
    for i in range(cuda.threadIdx.x, codes.size, cuda.blockDim.x):
        out[i] = fp8_e4m3_to_float32(codes[i])


@kernel()
def to_e4m3(out, values):
    for i in range(cuda.threadIdx.x, values.size, cuda.blockDim.x):
        out[i] = float32_to_fp8_e4m3(values[i])


@kernel()
def from_e5m2(out, codes):
    for i in range(cuda.threadIdx.x, codes.size, cuda.blockDim.x):
        out[i] = fp8_e5m2_to_float32(codes[i])


@kernel()
def to_e5m2(out, values):
    for i in range(cuda.threadIdx.x, values.size, cuda.blockDim.x):
        out[i] = float32_to_fp8_e5m2(values[i])


TO = {"bfloat16": to_bfloat16, "fp8_e4m3": to_e4m3, "fp8_e5m2": to_e5m2}
FROM = {"bfloat16": from_bfloat16, "fp8_e4m3": from_e4m3, "fp8_e5m2": from_e5m2}


def in_kernel(chosen, given_values, dtype, backend="sim"):
    out = np.zeros(given_values.shape, dtype)
    chosen.on(backend)[1, 32](out, given_values)
    return out


def all_codes(name):
    return np.arange(1 << 8 * FORMATS[name].storage.itemsize, dtype=FORMATS[name].storage)


def torch_decode(codes, name):
    raw = torch.from_numpy(codes.view(np.int16) if name == "bfloat16" else codes)
    return raw.view(TORCH[name]).to(torch.float32).numpy()


def torch_encode(values, name):
    held = np.clip(values, -LARGEST[name], LARGEST[name])  # torch does not saturate; a NaN stays one
    made = torch.from_numpy(held).to(TORCH[name])
    return made.view(torch.int16).numpy().view(np.uint16) if name == "bfloat16" else made.view(torch.uint8).numpy()


def hard_values(name):
    """Every finite number of the format, the ties between neighbours, the float32 on both sides, and specials."""
    finite = np.unique(decode(all_codes(name), name))
    finite = finite[np.isfinite(finite)]
    if name == "bfloat16":
        finite = finite[:: len(finite) // 6000]
    middles = ((finite[1:].astype(np.float64) + finite[:-1]) / 2).astype(np.float32)
    near = [np.nextafter(middles, np.float32(away)) for away in (-np.inf, np.inf)]
    largest = np.float32(np.finfo(np.float32).max)
    tiny = np.float32(1e-45)
    specials = [0.0, -0.0, np.inf, -np.inf, largest, -largest, tiny, -tiny, 464, 463.9, 464.1, 480, 61440, 65536]
    return np.concatenate([finite, middles, *near, np.array(specials, np.float32)])


def same_floats(a, b):
    """Equal bits, except that any NaN equals any NaN."""
    return np.array_equal(np.isnan(a), np.isnan(b)) and np.array_equal(
        np.where(np.isnan(a), 0, a).view(np.uint32), np.where(np.isnan(b), 0, b).view(np.uint32)
    )


@pytest.mark.parametrize("name", FORMATS)
def test_every_code_decodes_as_torch_does(name):
    codes = all_codes(name)
    expected = torch_decode(codes, name)
    assert same_floats(decode(codes, name), expected)
    assert same_floats(in_kernel(FROM[name], codes, np.float32), expected)


@pytest.mark.parametrize("name", FORMATS)
def test_every_code_comes_back(name):
    codes = all_codes(name)
    values = decode(codes, name)
    finite = np.isfinite(values)
    assert np.array_equal(encode(values[finite], name), codes[finite])
    assert np.array_equal(in_kernel(TO[name], values[finite], FORMATS[name].storage), codes[finite])


@pytest.mark.parametrize("name", FORMATS)
def test_rounding_and_saturation_as_torch_with_clamping(name):
    values = hard_values(name)
    expected = torch_encode(values, name)
    assert np.array_equal(encode(values, name), expected)
    assert np.array_equal(in_kernel(TO[name], values, FORMATS[name].storage), expected)


@pytest.mark.parametrize("name", FORMATS)
def test_every_bfloat16_value_as_an_input(name):
    values = decode(all_codes("bfloat16"), "bfloat16")
    values = values[~np.isnan(values)]
    assert np.array_equal(encode(values, name), torch_encode(values, name))
    some = values[::17].copy()
    assert np.array_equal(in_kernel(TO[name], some, FORMATS[name].storage), torch_encode(some, name))


@pytest.mark.parametrize("name", FORMATS)
@given(st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=40))
def test_any_float32_alike_in_kernel_and_on_the_host(name, bits):
    values = np.array(bits, np.uint32).view(np.float32)
    codes = encode(values, name)
    assert np.array_equal(in_kernel(TO[name], values, FORMATS[name].storage), codes)
    known = ~np.isnan(values)
    assert np.array_equal(codes[known], torch_encode(values[known], name))


@pytest.mark.parametrize("name", FORMATS)
def test_a_nan_becomes_the_hardware_pattern(name):
    values = np.array([0x7F800001, 0xFFC00000, 0x7FFFFFFF], np.uint32).view(np.float32)
    assert set(encode(values, name).tolist()) == {FORMATS[name].nan}
    assert set(in_kernel(TO[name], values, FORMATS[name].storage).tolist()) == {FORMATS[name].nan}
    assert np.isnan(decode(encode(values, name), name)).all()


def test_written_down_values():
    assert encode([1.0, -2.0, 448.0, 1e9, 2.0**-9, 2.0**-10, 3 * 2.0**-10], "fp8_e4m3").tolist() == [
        0x38, 0xC0, 0x7E, 0x7E, 0x01, 0x00, 0x02,
    ]  # fmt: skip
    assert encode([1.0, 57344.0, -np.inf, 2.0**-16, 2.0**-17], "fp8_e5m2").tolist() == [0x3C, 0x7B, 0xFB, 0x01, 0x00]
    # 1 + 2**-8 is a tie and goes down to even, 1 + 3 * 2**-8 goes up.
    assert encode([1 + 2.0**-8, 1 + 3 * 2.0**-8, 3.4e38, np.inf], "bfloat16").tolist() == [
        0x3F80, 0x3F82, 0x7F80, 0x7F80,
    ]  # fmt: skip


def test_shapes_are_kept():
    values = np.ones((2, 0, 3), np.float32)
    assert encode(values, "bfloat16").shape == decode(encode(values, "bfloat16"), "bfloat16").shape == (2, 0, 3)


def test_wrong_names_and_storage():
    with pytest.raises(ArgumentError, match="format = fp8: must be one of bfloat16, fp8_e4m3, fp8_e5m2"):
        encode([1.0], "fp8")
    with pytest.raises(ArgumentError, match=r"codes\.dtype = int16: must be uint16"):
        decode(np.zeros(1, np.int16), "bfloat16")
    assert numbers.format_of("fp8_e5m2").bias == 15


@pytest.mark.gpu
@pytest.mark.parametrize("name", FORMATS)
def test_the_gpu_gives_the_same_codes(name):
    values = np.concatenate([hard_values(name), np.array([np.nan], np.float32)])
    expected = encode(values, name)
    assert np.array_equal(in_kernel(TO[name], values, FORMATS[name].storage, Backend("cuda")), expected)
    codes = all_codes(name)
    assert same_floats(in_kernel(FROM[name], codes, np.float32, Backend("cuda")), decode(codes, name))
