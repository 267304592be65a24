"""The FlashAttention layout's writer against the oracle, exactly: it moves numbers, or rounds them one way only."""

from __future__ import annotations

import inspect
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels import layout, numbers, oracle_flash
from kernels.cases_flash import FlashCase, flash_case
from kernels.errors import ArgumentError
from kernels.kernel import Backend
from kernels.probe import Probed, Watch
from kernels.vllm.cache_flash import (
    constexpr,
    reshape_and_cache_flash,
    reshape_and_cache_flash_kernel,
    vectorize_with_alignment,
)

SCHEDULES = ("in-order", "reversed", "random:11")
CODES = {"fp8": "fp8_e4m3", "fp8_e4m3": "fp8_e4m3", "fp8_e5m2": "fp8_e5m2"}


@st.composite
def flash_cases(draw: st.DrawFn, cache_dtype: str = "") -> FlashCase:
    """Any memory order and form, head sizes that are and are not whole vectors, at least one warp of elements."""
    num_tokens = draw(st.integers(1, 8))
    return flash_case(
        num_tokens,
        draw(st.integers(1, 4)),
        draw(st.sampled_from([32, 33, 36, 40, 46, 64, 72])),
        draw(st.sampled_from([1, 3, 8, 16])),
        draw(st.sampled_from(["float16", "float32", "uint16"])),
        seed=draw(st.integers(0, 99)),
        memory=draw(st.sampled_from(["NHD", "HND"])),
        form=draw(st.sampled_from(["side-by-side", "stacked"])),
        padding=draw(st.integers(0, num_tokens)),
        extra_rows=draw(st.integers(0, 3)),
        fused=draw(st.booleans()),
        first=draw(st.integers(0, 9)),
        cache_dtype=cache_dtype,
    )


def write(case: FlashCase, backend: str | Backend = "sim", *args: Any, **options: Any) -> Any:
    """The whole allocation after the write."""
    whole, keys, values = case.caches()
    reshape_and_cache_flash(case.key, case.value, keys, values, case.slot_mapping, *args, backend=backend, **options)
    return whole


def rounded(case: FlashCase, name: str, k_scale: Any, v_scale: Any) -> Any:
    """The allocation that the oracle expects of an fp8 write."""

    def convert(row: Any, head: int, side: str) -> Any:
        scale = k_scale if side == "key" else v_scale
        single = numbers.decode(row, "bfloat16") if row.dtype == np.uint16 else row.astype(np.float32)
        return numbers.encode(single / scale[head if len(scale) > 1 else 0], CODES[name])

    return oracle_flash.written(case, convert)[0]


# -- against the oracle


@settings(max_examples=120)
@given(flash_cases(), st.sampled_from(SCHEDULES))
def test_the_written_cache_is_the_oracles(case: FlashCase, schedule: str) -> None:
    found = write(case, Backend("sim", schedule))
    np.testing.assert_array_equal(found, oracle_flash.written(case)[0])


@settings(max_examples=40)
@given(flash_cases("uint8"), st.sampled_from(sorted(CODES)), st.booleans())
def test_fp8_is_the_nearest_code_of_the_element_over_its_scale(case: FlashCase, name: str, per_head: bool) -> None:
    rng = np.random.default_rng(case.seed)
    count = case.num_heads if per_head else 1
    scales = [np.exp2(rng.uniform(-6, 3, count)).astype(np.float32) for _ in range(2)]
    np.testing.assert_array_equal(write(case, "sim", name, *scales), rounded(case, name, *scales))


def test_fp8_saturates_and_keeps_signs_and_nan() -> None:
    row = np.array([1e4, -1e4, 448, 449, 0.0, -0.0, np.inf, np.nan] * 4, np.float32).reshape(1, 1, 32)
    case = replace(flash_case(1, 1, 32, 8, cache_dtype="uint8", spare_blocks=0), key=row, value=row)
    whole, keys, values = case.caches()
    half = np.array([0.5], np.float32)
    reshape_and_cache_flash(row, row, keys, values, case.slot_mapping, "fp8", np.ones(1, np.float32), half)
    written = [view.reshape(-1, 32)[case.slot_mapping[0]][:8].tolist() for view in (keys, values)]
    assert written[0] == [0x7E, 0xFE, 0x7E, 0x7E, 0x00, 0x80, 0x7E, 0x7F]
    assert written[1] == [0x7E, 0xFE, 0x7E, 0x7E, 0x00, 0x80, 0x7E, 0x7F]
    assert (whole == 0xAB).sum() == whole.size - 64


def test_values_that_are_hard_to_copy_are_copied() -> None:
    odd = np.array([np.inf, -np.inf, np.nan, -0.0, 6e-8, 65504, 1 / 3, -1] * 4, np.float16).reshape(1, 1, 32)
    case = replace(flash_case(1, 1, 32, 8, "float16"), key=odd, value=odd)
    _, keys, values = case.caches()
    reshape_and_cache_flash(odd, odd, keys, values, case.slot_mapping)
    block, offset = divmod(int(case.slot_mapping[0]), 8)
    assert keys[block, offset].tobytes() == odd.tobytes()
    assert values[block, offset].tobytes() == odd.tobytes()


# -- rows and slots


def test_k4_rows_behind_the_mapping_are_not_even_looked_at() -> None:
    case = flash_case(5, 2, 16, 8, "float16", extra_rows=3)
    probed = Probed(reshape_and_cache_flash_kernel, [Watch("token", "token_idx", (1, 999), "slot_idx")])
    write(case, entry=probed)
    assert {reading.value for reading in probed.readings("token")} == {0, 1, 2, 3, 4}


def test_k4_as_reported_509_slots_for_512_rows() -> None:
    case = flash_case(509, 1, 32, 16, "float16", extra_rows=3)
    guard = np.append(case.slot_mapping, [0, 1, 2])[:509]
    np.testing.assert_array_equal(write(replace(case, slot_mapping=guard)), oracle_flash.written(case)[0])


def test_a_negative_slot_reads_nothing_else() -> None:
    # Every access of the launch: one read of the slot by each thread, and that is all.
    from kernels.simt.access import Memory, Observer

    class Names(Observer):
        def __init__(self) -> None:
            self.seen: list[tuple[str, str]] = []

        def access(self, kind: str, memory: Memory, *rest: Any) -> None:
            self.seen.append((kind, memory.name))

    case = flash_case(2, 2, 32, 8, "float16", padding=2)
    case.slot_mapping[1] = -9
    watcher = Names()
    write(case, Backend("sim", observers=(watcher,)))
    assert set(watcher.seen) == {("read", "slot_mapping")}
    assert len(watcher.seen) == 2 * 64


def test_no_slots_launch_nothing() -> None:
    case = flash_case(2, 1, 32, 8, "float16")
    assert np.isnan(write(replace(case, slot_mapping=case.slot_mapping[:0]))).all()


# -- which way the kernel takes


def branch(case: FlashCase, *args: Any) -> bool:
    """True where the kernel found the heads contiguous."""
    probed = Probed(
        reshape_and_cache_flash_kernel, [Watch("run", "is_contiguous_heads", (1, 999), "is_contiguous_heads")]
    )
    write(case, "sim", *args, entry=probed)
    (found,) = {reading.value for reading in probed.readings("run")}
    return bool(found)


@pytest.mark.parametrize(
    ("memory", "form", "one_run"),
    [
        ("NHD", "side-by-side", False),
        ("HND", "side-by-side", False),
        ("NHD", "stacked", True),
        ("HND", "stacked", False),
    ],
)
def test_heads_are_one_run_only_where_k_and_v_are_apart_and_tokens_come_first(
    memory: Any, form: Any, one_run: bool
) -> None:
    assert branch(flash_case(2, 3, 32, 16, "float16", memory=memory, form=form)) is one_run


def test_strides_of_the_view_at_0_26() -> None:
    # H = 4, N = 16, D = 128, as vLLM's own logical view has them.
    strides = {}
    for memory in ("NHD", "HND"):
        _, keys, values = flash_case(1, 4, 128, 16, "float16", memory=memory).caches()
        assert keys.strides == values.strides
        strides[memory] = tuple(step // 2 for step in keys.strides)
    assert strides == {"NHD": (16384, 1024, 256, 1), "HND": (16384, 256, 4096, 1)}


@pytest.mark.parametrize(("heads", "head_size", "threads"), [(2, 32, 64), (4, 128, 512), (40, 128, 512), (3, 46, 138)])
def test_threads_are_as_many_as_elements_but_at_most_512(heads: int, head_size: int, threads: int) -> None:
    case = flash_case(1, heads, head_size, 8, "float16")
    probed = Probed(reshape_and_cache_flash_kernel, [Watch("t", "cuda.threadIdx.x", (1, 999), "slot_idx")])
    np.testing.assert_array_equal(write(case, entry=probed), oracle_flash.written(case)[0])
    assert [reading.value for reading in probed.readings("t")] == list(range(threads))


def test_k17_rows_of_46_are_aligned_one_time_in_four() -> None:
    # One head of 46 in 2-byte elements, K and V apart: a row of 92 bytes a slot.
    assert [row for row in range(18) if layout.row_is_aligned(row, 1, 46, 2)] == [0, 4, 8, 12, 16]
    assert all(layout.row_is_aligned(row, 1, size, 2) for size in (48, 64) for row in range(20))
    for fused in (False, True):
        for first in range(8):
            case = flash_case(17, 1, 46, 16, "float16", form="stacked", seed=first, fused=fused, first=first)
            np.testing.assert_array_equal(write(case), oracle_flash.written(case)[0])


@settings(max_examples=40)
@given(flash_cases())
def test_vectors_start_on_a_line_on_both_sides(case: FlashCase) -> None:
    text, first = inspect.getsourcelines(vectorize_with_alignment.fn)
    places = [first + n for n, line in enumerate(text) if "* VEC_SIZE + e] = " in line]
    assert len(places) == 2
    at = ("i", "dst_at", "dst_line")
    start = "src_line + IN_SIZE * (src_at + i * VEC_SIZE)"
    watches = [Watch(str(n), start, (n, n), "dst[]", at, "e == 0") for n in places]
    probed = Probed(reshape_and_cache_flash_kernel, watches)
    write(case, entry=probed)
    size = case.key.itemsize
    vec = 8 if size == 2 else 4
    for number in places:
        for reading in probed.readings(str(number)):
            i, dst_at, dst_line = reading.keys
            assert reading.value % 16 == 0
            assert (dst_line + size * (dst_at + i * vec)) % 16 == 0


def test_constants() -> None:
    half = constexpr(dtype="float16", kv_cache_dtype="fp8")
    assert [half[name] for name in ("VEC_SIZE", "IN_SIZE", "OUT_SIZE", "WIDTH", "OUT_WIDTH", "KV_AUTO")] == [
        8, 2, 1, 16, 8, False,
    ]  # fmt: skip
    single = constexpr(dtype="float32", kv_cache_dtype="auto")
    assert [single[name] for name in ("VEC_SIZE", "IN_SIZE", "OUT_SIZE", "WIDTH", "OUT_WIDTH", "KV_AUTO")] == [
        4, 4, 4, 16, 16, True,
    ]  # fmt: skip


# -- what is refused

CASE = flash_case(5, 2, 32, 8, "float16")


def good() -> dict[str, Any]:
    _, keys, values = CASE.caches()
    return {"key": CASE.key, "value": CASE.value, "key_cache": keys, "value_cache": values,
            "slot_mapping": CASE.slot_mapping}  # fmt: skip


ONE = np.ones(1, np.float32)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"slot_mapping": np.array([0, 1, 24])}, r"slot_mapping\[2\] = 24: must be below the 24 slots of the cache"),
        ({"slot_mapping": np.arange(6)}, r"slot_mapping\.shape = \(6,\): must not exceed the 5 rows of key"),
        ({"slot_mapping": np.arange(3, dtype=np.int32)}, r"slot_mapping\.dtype = int32: must be int64"),
        ({"value": CASE.value.astype(np.float32)}, r"value\.dtype = float32: must be float16"),
        ({"key": CASE.key[:, :, ::-1]}, r"key\.strides = .*must be positive"),
        ({"key": np.zeros((5, 32, 2), np.float16).swapaxes(1, 2)}, r"key\.strides"),
        ({"key": np.zeros((5, 4, 32), np.float16)[:, ::2]}, r"key\.strides .* heads one behind the other"),
        ({"key_cache": np.zeros((3, 8, 2, 32), np.float32)}, r"key_cache\.dtype = float32: must be float16"),
        ({"key_cache": np.zeros((3, 8, 2, 33), np.float16)}, r"key_cache\.shape"),
        ({"value_cache": np.zeros((3, 8, 2, 32), np.float16)}, r"value_cache\.strides .* must be key_cache's"),
        ({"kv_cache_dtype": "fp4"}, r"kv_cache_dtype = fp4: must be one of auto"),
        ({"kv_cache_dtype": "fp8"}, r"key_cache\.dtype = float16: must be uint8"),
        ({"k_scale": np.ones(3, np.float32)}, r"k_scale\.shape = \(3,\): must be \(1\) or \(2\)"),
        ({"k_scale": np.ones(2, np.float32)}, r"v_scale\.shape = \(1,\)"),
        ({"v_scale": np.ones(1)}, r"v_scale\.dtype = float64: must be float32"),
    ],
)
def test_a_bad_argument_is_named_and_the_cache_stays(changes: dict[str, Any], message: str) -> None:
    given_ = good() | changes
    with pytest.raises(ArgumentError, match=message):
        reshape_and_cache_flash(**given_)
    assert np.isnan(good()["key_cache"]).all()
    assert np.isnan(given_["key_cache"]).all() or "key_cache" in changes


@pytest.mark.parametrize("scale", [0.0, -1.0, float("nan"), float("inf")])
def test_a_scale_that_would_give_nonsense_is_refused(scale: float) -> None:
    case = flash_case(1, 1, 32, 8, cache_dtype="uint8")
    with pytest.raises(ArgumentError, match=r"k_scale = .*: must be finite and above zero"):
        write(case, "sim", "fp8", np.array([scale], np.float32), ONE)


def test_fewer_threads_than_a_warp_would_never_end_and_are_refused() -> None:
    with pytest.raises(ArgumentError, match="head_size = 8: gives 16 threads; the loop over heads needs a whole warp"):
        write(flash_case(1, 2, 8, 8, "float16"))
    # The short way needs no warps.
    case = flash_case(3, 2, 8, 8, "float16", form="stacked")
    np.testing.assert_array_equal(write(case), oracle_flash.written(case)[0])


# -- the same on a GPU


@pytest.mark.gpu
@pytest.mark.parametrize("memory", ["NHD", "HND"])
@pytest.mark.parametrize("form", ["side-by-side", "stacked"])
def test_gpu_writes_the_oracles_cache(memory: Any, form: Any) -> None:
    for dtype in ("float16", "float32", "uint16"):
        for heads, head_size in ((2, 64), (3, 46), (40, 128), (8, 80)):
            for fused in (False, True):
                case = flash_case(
                    9, heads, head_size, 16, dtype, seed=heads, memory=memory, form=form, padding=2, extra_rows=3,
                    fused=fused,
                )  # fmt: skip
                np.testing.assert_array_equal(write(case, "cuda"), oracle_flash.written(case)[0])
        for name in CODES:
            for count in (1, 3):
                scales = [np.linspace(0.05, 2, count).astype(np.float32) for _ in range(2)]
                case = flash_case(9, 3, 64, 16, dtype, memory=memory, form=form, padding=2, cache_dtype="uint8")
                np.testing.assert_array_equal(
                    write(case, "cuda", name, *scales), rounded(case, name, *scales), err_msg=f"{dtype} {name} {count}"
                )
