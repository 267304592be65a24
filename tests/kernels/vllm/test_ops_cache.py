"""vLLM's writers and `convert_fp8` on torch tensors, to the bit; and caches whose elements lie beyond 2**31."""

from __future__ import annotations

import math
import os
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from kernels.errors import ArgumentError
from kernels.vllm import ops, ops_reference

DTYPES = {"bfloat16": torch.bfloat16, "float16": torch.float16, "float32": torch.float32}
FP8 = {"fp8": torch.float8_e4m3fn, "fp8_e4m3": torch.float8_e4m3fn, "fp8_e5m2": torch.float8_e5m2}
KINDS = ("auto", *FP8)
SLOTS = [37, -1, 2, 63, 8, -9]
"""Slots of a cache of 64: two of them are padding."""
POISON = 0xA5


def codes(rows: Tensor, kind: str, scale: Any) -> Tensor:
    """What a cache must hold of rows; `scale`: one number, or a tensor [heads] where rows are [tokens, heads, size]."""
    if kind == "auto":
        return rows
    factor = torch.as_tensor(scale, dtype=torch.float32, device=rows.device)
    factor = factor.reshape(-1, 1) if factor.numel() > 1 else factor.reshape(())
    most = torch.finfo(FP8[kind]).max
    return (rows.float() / factor).clamp(-most, most).to(FP8[kind]).view(torch.uint8)


def projection(dtype: str, heads: int, size: int, device: str, extra_rows: int = 2) -> tuple[Tensor, Tensor]:
    """Keys and values as slices of one projection, with more rows than there are slots."""
    make = torch.Generator().manual_seed(heads * size)
    fused = torch.randn((len(SLOTS) + extra_rows, 3, heads, size), generator=make).to(device, DTYPES[dtype])
    return fused[:, 1], fused[:, 2]


def poisoned(*shape: int, dtype: torch.dtype, device: str = "cpu") -> Tensor:
    return (
        torch.full((math.prod(shape) * dtype.itemsize,), POISON, dtype=torch.uint8, device=device)
        .view(dtype)
        .view(shape)
    )


def raw(tensor: Tensor) -> Tensor:
    return tensor.contiguous().view(torch.uint8)


def number(value: float, device: str) -> Tensor:
    return torch.tensor(value, dtype=torch.float32, device=device)


# -- reshape_and_cache


def check_classic(dtype: str, kind: str, device: str, *, stacked: bool = False) -> None:
    """Write into blocks of 8, three heads of 32; compare every byte of both caches."""
    key, value = projection(dtype, 3, 32, device)
    cache = DTYPES[dtype] if kind == "auto" else torch.uint8
    x = 16 // cache.itemsize
    both = poisoned(2, 8, 3 * 32 * 8, dtype=cache, device=device)
    key_cache, value_cache = (half if stacked else half.clone() for half in both)
    key_cache, value_cache = key_cache.view(8, 3, 32 // x, 8, x), value_cache.view(8, 3, 32, 8)
    slots = torch.tensor(SLOTS, device=device)
    wanted = []
    for empty, rows, scale in ((key_cache, key, 0.37), (value_cache, value, 0.21)):
        # [blocks, block size, heads, size], by torch's own shuffling.
        pool = empty.clone().permute(0, 3, 1, 2, 4) if empty.dim() == 5 else empty.clone().permute(0, 3, 1, 2)
        for slot, row in zip(SLOTS, codes(rows, kind, scale), strict=False):
            if slot >= 0:
                pool[slot // 8, slot % 8] = row.view(pool.shape[2:])
        wanted.append(pool)
    ops.reshape_and_cache(key, value, key_cache, value_cache, slots, kind, number(0.37, device), number(0.21, device))
    if device == "cuda":
        torch.cuda.synchronize()
    assert torch.equal(raw(key_cache.permute(0, 3, 1, 2, 4)), raw(wanted[0]))
    assert torch.equal(raw(value_cache.permute(0, 3, 1, 2)), raw(wanted[1]))


@pytest.mark.parametrize(("dtype", "kind"), list(product(DTYPES, KINDS)))
def test_reshape_and_cache(dtype: str, kind: str) -> None:
    check_classic(dtype, kind, "cpu", stacked=kind in ("auto", "fp8_e4m3"))


def test_reshape_and_cache_leaves_the_heads_that_vllm_leaves() -> None:
    key, value = projection("bfloat16", 66, 64, "cpu")
    caches = poisoned(8, 66, 8, 8, 8, dtype=torch.bfloat16), poisoned(8, 66, 64, 8, dtype=torch.bfloat16)
    ops.reshape_and_cache(key, value, *caches, torch.tensor(SLOTS), "auto", number(1, "cpu"), number(1, "cpu"))
    assert torch.equal(caches[1][37 // 8, :64, :, 37 % 8], value[0, :64])
    assert (raw(caches[1][:, 64:]) == POISON).all()


# -- reshape_and_cache_flash


def flash_caches(memory: str, heads: int, size: int, dtype: torch.dtype, device: str) -> tuple[Tensor, Tensor, Tensor]:
    """One tensor of 8 blocks of 8 tokens, keys and values of a block behind each other, and its two views."""
    places = (8, heads) if memory == "NHD" else (heads, 8)
    both = poisoned(8, 2, *places, size, dtype=dtype, device=device)
    key_cache, value_cache = (half if memory == "NHD" else half.permute(0, 2, 1, 3) for half in both.unbind(1))
    return both, key_cache, value_cache


def check_flash(dtype: str, kind: str, memory: str, per_head: bool, device: str, size: int = 40) -> None:
    """Three heads; every byte of the one tensor is compared."""
    key, value = projection(dtype, 3, size, device)
    cache = DTYPES[dtype] if kind == "auto" else torch.uint8
    both, key_cache, value_cache = flash_caches(memory, 3, size, cache, device)
    scales = [torch.tensor(s[: 3 if per_head else 1], device=device) for s in ([0.37, 1.0, 2.5], [0.21, 0.5, 3.0])]
    wanted = both.clone()
    for place, rows, scale in ((0, key, scales[0]), (1, value, scales[1])):
        pool = wanted[:, place] if memory == "NHD" else wanted[:, place].permute(0, 2, 1, 3)
        for slot, row in zip(SLOTS, codes(rows, kind, scale), strict=False):
            if slot >= 0:
                pool[slot // 8, slot % 8] = row
    given_scales = scales if per_head else [scale.reshape(()) for scale in scales]
    slots = torch.tensor(SLOTS, device=device)
    ops.reshape_and_cache_flash(key, value, key_cache, value_cache, slots, kind, *given_scales)
    if device == "cuda":
        torch.cuda.synchronize()
    assert torch.equal(raw(both), raw(wanted))
    assert not torch.equal(raw(both[:, 0]), raw(both[:, 1]))


@pytest.mark.parametrize(
    ("dtype", "kind", "memory", "per_head"), list(product(DTYPES, KINDS, ("NHD", "HND"), (False, True)))
)
def test_reshape_and_cache_flash(dtype: str, kind: str, memory: str, per_head: bool) -> None:
    check_flash(dtype, kind, memory, per_head, "cpu")


def test_keys_beside_values_in_one_row() -> None:
    # vLLM 0.26.0 keeps both in the last axis: every other 46 elements are the other's, and no row is aligned.
    key, value = projection("bfloat16", 2, 46, "cpu")
    both = poisoned(8, 2, 8, 92, dtype=torch.bfloat16)
    views = [half.permute(0, 2, 1, 3) for half in both.split(46, dim=-1)]
    wanted = both.clone()
    for slot, k, v in zip(SLOTS, key, value, strict=False):
        if slot >= 0:
            wanted[slot // 8, :, slot % 8] = torch.cat([k, v], dim=-1)
    ops.reshape_and_cache_flash(key, value, *views, torch.tensor(SLOTS), "auto", number(1, "cpu"), number(1, "cpu"))
    assert torch.equal(raw(both), raw(wanted))


def test_every_head_is_written() -> None:
    key, value = projection("bfloat16", 66, 64, "cpu")
    both, *views = flash_caches("NHD", 66, 64, torch.bfloat16, "cpu")
    ops.reshape_and_cache_flash(key, value, *views, torch.tensor(SLOTS), "auto", number(1, "cpu"), number(1, "cpu"))
    assert torch.equal(both[37 // 8, :, 37 % 8], torch.stack([key[0], value[0]]))


# -- what is refused


@pytest.mark.parametrize("op", [ops.reshape_and_cache, ops.reshape_and_cache_flash])
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"key": torch.zeros((8, 3, 32), dtype=torch.float64)}, r"key\.dtype = float64"),
        ({"value": torch.zeros((8, 3, 32))}, r"value\.dtype = float32: must be uint16"),
        ({"slot_mapping": torch.tensor(SLOTS, dtype=torch.int32)}, r"slot_mapping\.dtype = int32: must be int64"),
        ({"slot_mapping": torch.tensor([64])}, r"slot_mapping\[0\] = 64: must be below the 64 slots"),
        ({"slot_mapping": torch.arange(9)}, r"slot_mapping\.shape = \(9,\): must not exceed the 8 rows of key"),
        ({"kv_cache_dtype": "fp8_inc"}, r"kv_cache_dtype = fp8_inc: must be one of auto, fp8, fp8_e4m3, fp8_e5m2"),
        ({"kv_cache_dtype": "fp8"}, r"key_cache\.(dtype|shape) = "),
        ({"k_scale": torch.ones(2)}, r"k_scale\.shape = \(2,\)"),
        ({"value": torch.zeros((8, 3, 32), dtype=torch.bfloat16, device="meta")}, "device = meta: must be cpu, as the"),
        ({"key": torch.zeros((8, 3, 32), dtype=torch.bfloat16, device="meta")}, "device = meta: must be cuda"),
    ],
)
def test_a_bad_argument_is_named_and_the_caches_stay(op: Any, changes: dict[str, Any], message: str) -> None:
    key, value = projection("bfloat16", 3, 32, "cpu")
    if op is ops.reshape_and_cache:
        caches = poisoned(8, 3, 4, 8, 8, dtype=torch.bfloat16), poisoned(8, 3, 32, 8, dtype=torch.bfloat16)
    else:
        caches = poisoned(8, 8, 3, 32, dtype=torch.bfloat16), poisoned(8, 8, 3, 32, dtype=torch.bfloat16)
    good = {
        "key": key, "value": value, "key_cache": caches[0], "value_cache": caches[1],
        "slot_mapping": torch.tensor(SLOTS), "kv_cache_dtype": "auto", "k_scale": number(1, "cpu"),
        "v_scale": number(1, "cpu"),
    }  # fmt: skip
    with pytest.raises(ArgumentError, match=message):
        op(**good | changes)
    assert all((raw(cache) == POISON).all() for cache in caches)


# -- convert_fp8


def check_convert(dtype: str, kind: str, scale: float, device: str) -> None:
    """To fp8 and back, against torch."""
    plain = (torch.randn((5, 3, 16), generator=torch.Generator().manual_seed(1)) * 30).to(device, DTYPES[dtype])
    plain[0, 0, :4] = torch.tensor([0.0, -0.0, 6e4, -6e4])
    packed = torch.zeros((5, 3, 16), dtype=torch.uint8, device=device)
    ops.convert_fp8(packed, plain, scale, kind)
    assert torch.equal(packed, codes(plain, kind, scale))
    back = torch.zeros_like(plain)
    ops.convert_fp8(back, packed, scale, kind)
    assert torch.equal(back, (packed.view(FP8[kind]).float() * number(scale, device)).to(DTYPES[dtype]))


@pytest.mark.parametrize(("dtype", "kind"), list(product(DTYPES, FP8)))
@pytest.mark.parametrize("scale", [1.0, 0.37, 4.0])
def test_convert_fp8_both_ways(dtype: str, kind: str, scale: float) -> None:
    check_convert(dtype, kind, scale, "cpu")


@given(st.lists(st.floats(-1e6, 1e6, width=32), min_size=1, max_size=20), st.sampled_from(list(FP8)))
@settings(max_examples=40)
def test_convert_fp8_of_any_numbers(values: list[float], kind: str) -> None:
    plain = torch.tensor(values, dtype=torch.float32)
    packed = torch.zeros(len(values), dtype=torch.uint8)
    ops.convert_fp8(packed, plain, kv_dtype=kind)
    assert torch.equal(packed, codes(plain, kind, 1.0))


def test_convert_fp8_of_every_code_and_of_views() -> None:
    every = torch.arange(256, dtype=torch.uint8)
    for kind, fp8 in FP8.items():
        plain = torch.zeros(256)
        ops.convert_fp8(plain, every, 0.5, kind)
        torch.testing.assert_close(plain, every.view(fp8).float() * 0.5, rtol=0, atol=0, equal_nan=True)
    source, into = torch.randn(4, 6), torch.zeros((6, 4), dtype=torch.uint8)
    ops.convert_fp8(into.T, source)
    assert torch.equal(into, codes(source.T.contiguous(), "fp8", 1.0))


@pytest.mark.parametrize(
    ("output", "source", "kind", "message"),
    [
        (torch.zeros(4), torch.zeros(4), "fp8", "one of the two uint8"),
        (torch.zeros(4, dtype=torch.uint8), torch.zeros(4, dtype=torch.uint8), "fp8", "one of the two uint8"),
        (torch.zeros(4, dtype=torch.uint8), torch.zeros(5), "fp8", "must be of the input's shape"),
        (torch.zeros(4, dtype=torch.uint8), torch.zeros(4), "auto", "kv_dtype = auto: must be one of fp8, fp8_e4m3"),
    ],
)
def test_convert_fp8_refuses(output: Tensor, source: Tensor, kind: str, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        ops.convert_fp8(output, source, 1.0, kind)
    assert not output.any()


# -- beyond 2**31 elements

BLOCKS = 2**31 // (16 * 32) + 8
LAST = BLOCKS - 1


def attended(key_cache: Tensor, value_cache: Tensor, key: Tensor, value: Tensor) -> None:
    """Write two tokens through the op, one on either side of the 2**31st element, and attend to both."""
    device = key.device
    slots = torch.tensor([16 * LAST + 15, 3], device=device)
    scales = number(0.37, str(device)), number(0.21, str(device))
    ops.reshape_and_cache(key, value, key_cache, value_cache, slots, "fp8", *scales)
    for cache, rows, scale in ((key_cache, key, 0.37), (value_cache, value, 0.21)):
        wanted = codes(rows, "fp8", scale)[:, 0]
        assert wanted.any(dim=-1).all()
        for place, row in zip(((LAST, 15), (0, 3)), wanted, strict=True):
            block = cache[place[0], 0]
            found = block[:, place[1]]  # of a key [2, 16], of a value [32]
            assert torch.equal(found.reshape(-1), row)
            assert int(block.count_nonzero()) == int(row.count_nonzero())
    # A block index times the elements of a block, in 32 bits, would come out negative, or here.
    assert not key_cache[1:9].any()
    assert not key_cache[LAST - 3 : LAST].any()
    query = torch.randn((1, 1, 32), generator=torch.Generator().manual_seed(4)).to(device, torch.bfloat16)
    out = torch.full_like(query, math.nan)
    tables, lens = torch.tensor([[LAST, 0]], device=device).int(), torch.tensor([20], device=device).int()
    ops.paged_attention_v1(
        out, query, key_cache, value_cache, 1, 0.5, tables, lens, 16, 20, None, "fp8", *scales
    )  # fmt: skip
    truth = ops_reference.attention(query, key_cache, value_cache, 0.5, tables, lens, None, "fp8", 0.37, 0.21)
    error, allowed = ops_reference.worst(out, truth.out, ops_reference.bound(truth, "bfloat16", "v1"))
    assert error <= allowed
    assert not ops_reference.would_pass(torch.zeros_like(truth.out), truth.out, allowed)


def lazily(shape: tuple[int, ...]) -> Tensor:
    """Zeros whose pages the system gives when they are touched, so that they cost nothing."""
    try:
        return torch.from_numpy(np.zeros(shape, np.uint8))
    except MemoryError as error:
        pytest.skip(f"{np.prod(shape) / 2**30:.1f} GiB of address space cannot be had here: {error}")


def resident() -> int:
    """Bytes of this process that lie in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def new_rows(heads: int, device: str) -> tuple[Tensor, Tensor]:
    make = torch.Generator().manual_seed(8)
    rows = (torch.randn((2, 2, heads, 32), generator=make) + 3).to(device, torch.bfloat16)
    return rows[0], rows[1]


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="the memory in use is read from /proc/self/statm")
def test_caches_beyond_2_to_the_31_cost_no_memory_and_are_written_and_read() -> None:
    before = resident()
    key_cache, value_cache = lazily((BLOCKS, 1, 2, 16, 16)), lazily((BLOCKS, 1, 32, 16))
    assert key_cache.numel() == value_cache.numel() > 2**31
    attended(key_cache, value_cache, *new_rows(1, "cpu"))
    assert resident() - before < 2**28, "somebody copied or scanned a cache"


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="the memory in use is read from /proc/self/statm")
@pytest.mark.parametrize("memory", ["NHD", "HND"])
def test_the_flash_writer_beyond_2_to_the_31(memory: str) -> None:
    before = resident()
    blocks = 2**31 // (2 * 2 * 16 * 32) + 8
    places = (16, 2) if memory == "NHD" else (2, 16)
    both = lazily((blocks, 2, *places, 32))
    assert both.numel() > 2**31
    views = [half if memory == "NHD" else half.permute(0, 2, 1, 3) for half in both.unbind(1)]
    key, value = new_rows(2, "cpu")
    slots = torch.tensor([16 * (blocks - 1) + 15, 3])
    ops.reshape_and_cache_flash(key, value, *views, slots, "fp8", number(0.5, "cpu"), number(2, "cpu"))
    for view, rows, scale in ((views[0], key, 0.5), (views[1], value, 2)):
        wanted = codes(rows, "fp8", scale)
        assert torch.equal(view[blocks - 1, 15], wanted[0])
        assert torch.equal(view[0, 3], wanted[1])
        assert int(view[blocks - 1].count_nonzero()) == int(wanted[0].count_nonzero())
    assert not both[1:9].any()
    assert resident() - before < 2**28


# -- the same on a GPU


@pytest.mark.gpu
@pytest.mark.parametrize(("dtype", "kind"), list(product(DTYPES, ("auto", "fp8", "fp8_e5m2"))))
def test_gpu_reshape_and_cache(dtype: str, kind: str) -> None:
    for stacked in (False, True):
        check_classic(dtype, kind, "cuda", stacked=stacked)


@pytest.mark.gpu
@pytest.mark.parametrize(("dtype", "kind"), list(product(DTYPES, ("auto", "fp8", "fp8_e5m2"))))
def test_gpu_reshape_and_cache_flash(dtype: str, kind: str) -> None:
    for memory, per_head, size in product(("NHD", "HND"), (False, True), (40, 46, 64)):
        check_flash(dtype, kind, memory, per_head, "cuda", size)


@pytest.mark.gpu
def test_gpu_convert_fp8() -> None:
    for dtype, kind in product(DTYPES, FP8):
        check_convert(dtype, kind, 0.37, "cuda")


@pytest.mark.gpu
def test_gpu_a_writer_runs_on_torchs_current_stream() -> None:
    key, value = projection("bfloat16", 3, 32, "cuda")
    wanted, slots = key.clone(), torch.tensor(SLOTS, device="cuda")
    one = number(1, "cuda")
    stream = torch.cuda.Stream()
    for turn in range(2):  # the first one compiles
        caches = [poisoned(8, 8, 3, 32, dtype=torch.bfloat16, device="cuda") for _ in range(2)]
        key.zero_()
        torch.cuda.synchronize()
        with torch.cuda.stream(stream):
            torch.cuda._sleep(1_000_000_000)
            key.copy_(wanted)
            ops.reshape_and_cache_flash(key, value, *caches, slots, "auto", one, one)
            assert turn == 0 or not stream.query(), "the stream is still asleep, the host is back"
        torch.cuda.synchronize()
        assert torch.equal(caches[0][37 // 8, 37 % 8], wanted[0])


@pytest.mark.gpu
def test_gpu_caches_beyond_2_to_the_31() -> None:
    caches = [
        torch.zeros(shape, dtype=torch.uint8, device="cuda") for shape in ((BLOCKS, 1, 2, 16, 16), (BLOCKS, 1, 32, 16))
    ]
    attended(*caches, *new_rows(1, "cuda"))
