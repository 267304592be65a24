"""The checks before a launch: each wrong argument by name and value, and nothing wrong about a good call."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels import cases
from kernels.errors import ArgumentError, KernelError
from kernels.vllm import check

DECODE = (
    "out",
    "query",
    "key_cache",
    "value_cache",
    "num_kv_heads",
    "block_tables",
    "seq_lens",
    "block_size",
    "max_seq_len",
    "kv_cache_dtype",
    "k_scale",
    "v_scale",
)
WRITE = ("key", "value", "key_cache", "value_cache", "slot_mapping", "kv_cache_dtype", "k_scale", "v_scale")
SCALES = {"kv_cache_dtype": "auto", "k_scale": np.ones(1, np.float32), "v_scale": np.ones(1, np.float32)}


def decode_arguments(**changes: Any) -> dict[str, Any]:
    """A good call: 2 sequences of 20 and 0 tokens, 4 query heads, 2 KV heads of 16, blocks of 8, float16."""
    case = cases.decode_case((20, 0), 4, 2, 16, 8, "float16", order="identity", garbage="minus-one")
    good = {
        "out": np.zeros_like(case.q), "query": case.q, "key_cache": case.k_cache, "value_cache": case.v_cache,
        "num_kv_heads": 2, "block_tables": case.block_tables, "seq_lens": case.seq_lens, "block_size": 8,
        "max_seq_len": 20,
    }  # fmt: skip
    return good | SCALES | changes


def write_arguments(**changes: Any) -> dict[str, Any]:
    """A good call: 5 tokens, one of them padding, 8 rows, 2 heads of 16, 3 blocks of 8, float16."""
    case = cases.write_case(5, 2, 16, 8, "float16", padding=1, extra_rows=3, order="identity")
    good = {
        "key": case.key, "value": case.value, "key_cache": case.k_cache, "value_cache": case.v_cache,
        "slot_mapping": case.slot_mapping,
    }  # fmt: skip
    return good | SCALES | changes


def entry(array: Any, place: Any, value: int) -> Any:
    """A copy with one entry changed."""
    changed = array.copy()
    changed[place] = value
    return changed


FP8 = {
    "kv_cache_dtype": "fp8", "key_cache": np.zeros((6, 2, 1, 8, 16), np.uint8),
    "value_cache": np.zeros((6, 2, 16, 8), np.uint8),
}  # fmt: skip
DECODE_REFUSED: list[tuple[dict[str, Any], str, object]] = [
    ({"query": np.zeros((2, 4, 16))}, "query.dtype", np.dtype("float64")),
    ({"query": np.zeros((2, 64), np.float16)}, "query.shape", (2, 64)),
    ({"query": np.zeros((2, 4, 32), np.float16)[:, :, ::2]}, "query.strides", (256, 64, 4)),
    ({"num_kv_heads": 3}, "num_kv_heads", 3),
    ({"num_kv_heads": 0}, "num_kv_heads", 0),
    ({"num_kv_heads": -2}, "num_kv_heads", -2),
    ({"num_kv_heads": 8}, "num_kv_heads", 8),
    ({"query": np.zeros((2, 4, 20), np.float16)}, "head_size", 20),
    ({"out": np.zeros((2, 4, 16), np.float32)}, "out.dtype", np.dtype("float32")),
    ({"out": np.zeros((2, 4, 8), np.float16)}, "out.shape", (2, 4, 8)),
    ({"out": np.zeros((4, 2, 16), np.float16).transpose(1, 0, 2)}, "out.strides", (32, 64, 2)),
    ({"key_cache": np.zeros((6, 2, 2, 8, 8), np.float32)}, "key_cache.dtype", np.dtype("float32")),
    ({"key_cache": np.zeros((6, 2, 4, 8, 4), np.float16)}, "key_cache.shape", (6, 2, 4, 8, 4)),
    ({"key_cache": np.zeros((6, 2, 16, 8), np.float16)}, "key_cache.shape", (6, 2, 16, 8)),
    ({"value_cache": np.zeros((5, 2, 16, 8), np.float16)}, "value_cache.shape", (5, 2, 16, 8)),
    ({"value_cache": np.zeros((6, 2, 16, 8), np.float32)}, "value_cache.dtype", np.dtype("float32")),
    ({"key_cache": np.zeros((6, 2, 2, 8, 16), np.float16)[..., ::2]}, "key_cache.strides", (1024, 512, 256, 32, 4)),
    ({"key_cache": np.zeros((12, 2, 2, 8, 8), np.float16)[::2]}, "value_cache.strides", (512, 256, 16, 2)),
    ({"query": np.zeros((2, 4, 16), np.float16)[::-1]}, "query.strides", (-128, 32, 2)),
    ({"kv_cache_dtype": "fp4"}, "kv_cache_dtype", "fp4"),
    ({"kv_cache_dtype": "fp8"}, "key_cache.shape", (6, 2, 2, 8, 8)),
    ({"k_scale": np.ones(2, np.float32)}, "k_scale.shape", (2,)),
    ({"v_scale": np.ones(1)}, "v_scale.dtype", np.dtype("float64")),
    ({**FP8, "v_scale": np.zeros(1, np.float32)}, "v_scale", [0.0]),
    ({**FP8, "k_scale": np.full(1, np.inf, np.float32)}, "k_scale", [np.inf]),
    ({**FP8, "key_cache": np.zeros((6, 2, 1, 8, 16), np.int8)}, "key_cache.dtype", np.dtype("int8")),
    ({"block_size": 16}, "key_cache.shape", (6, 2, 2, 8, 8)),
    ({"block_tables": np.zeros((2, 4), np.int64)}, "block_tables.dtype", np.dtype("int64")),
    ({"block_tables": np.zeros((3, 4), np.int32)}, "block_tables.shape", (3, 4)),
    ({"block_tables": np.zeros((2, 8), np.int32)[:, ::2]}, "block_tables.strides", (32, 8)),
    ({"seq_lens": np.array([20, 0])}, "seq_lens.dtype", np.dtype("int64")),
    ({"seq_lens": np.array([20], np.int32)}, "seq_lens.shape", (1,)),
    ({"seq_lens": np.array([20, -1], np.int32)}, "seq_lens[1]", -1),
    ({"seq_lens": np.array([21, 0], np.int32)}, "seq_lens[0]", 21),
    ({"max_seq_len": 19}, "seq_lens[0]", 20),
    ({"seq_lens": np.array([20, 40], np.int32), "max_seq_len": 40}, "seq_lens[1]", 40),
    ({"block_tables": entry(np.zeros((2, 4), np.int32), (0, 2), 6)}, "block_tables[0, 2]", 6),
    ({"block_tables": entry(np.zeros((2, 4), np.int32), (0, 1), -1)}, "block_tables[0, 1]", -1),
    ({"block_tables": entry(np.zeros((2, 4), np.int32), (0, 0), 2**31 - 1)}, "block_tables[0, 0]", 2**31 - 1),
]
WRITE_REFUSED: list[tuple[dict[str, Any], str, object]] = [
    ({"key": np.zeros((8, 2, 16))}, "key.dtype", np.dtype("float64")),
    ({"key": np.zeros((8, 2, 16), np.int8)}, "key.dtype", np.dtype("int8")),
    ({"key": np.zeros((8, 32), np.float16)}, "key.shape", (8, 32)),
    ({"key": np.zeros((8, 4, 16), np.float16)[:, ::2]}, "key.strides", (128, 64, 2)),
    ({"key": np.zeros((8, 2, 16), np.float16)[::-1]}, "key.strides", (-64, 32, 2)),
    ({"value": np.zeros((8, 2, 16), np.float32)}, "value.dtype", np.dtype("float32")),
    ({"value": np.zeros((7, 2, 16), np.float16)}, "value.shape", (7, 2, 16)),
    ({"value": np.zeros((2, 8, 16), np.float16).transpose(1, 0, 2)}, "value.strides", (32, 256, 2)),
    ({"key": np.zeros((8, 2, 46), np.float16), "value": np.zeros((8, 2, 46), np.float16)}, "head_size", 46),
    ({"key_cache": np.zeros((3, 2, 2, 8, 8), np.float32)}, "key_cache.dtype", np.dtype("float32")),
    ({"key_cache": np.zeros((3, 4, 2, 8, 8), np.float16)}, "key_cache.shape", (3, 4, 2, 8, 8)),
    ({"value_cache": np.zeros((3, 2, 16, 16), np.float16)}, "value_cache.shape", (3, 2, 16, 16)),
    ({"kv_cache_dtype": "e4m3"}, "kv_cache_dtype", "e4m3"),
    ({"kv_cache_dtype": "fp8_e5m2"}, "key_cache.shape", (3, 2, 2, 8, 8)),
    ({"k_scale": np.ones((1, 1), np.float32)}, "k_scale.shape", (1, 1)),
    ({"slot_mapping": np.zeros(5, np.int32)}, "slot_mapping.dtype", np.dtype("int32")),
    ({"slot_mapping": np.zeros((5, 1), np.int64)}, "slot_mapping.shape", (5, 1)),
    ({"slot_mapping": np.zeros(10, np.int64)[::2]}, "slot_mapping.strides", (16,)),
    ({"slot_mapping": np.zeros(9, np.int64)}, "slot_mapping.shape", (9,)),
    ({"slot_mapping": np.array([0, 1, 24, -1, 2])}, "slot_mapping[2]", 24),
    ({"slot_mapping": np.array([2**40])}, "slot_mapping[0]", 2**40),
]


def refused(call: Any, arguments: dict[str, Any], names: tuple[str, ...], argument: str, value: object) -> None:
    with pytest.raises(ArgumentError) as caught:
        call(*(arguments[name] for name in names))
    assert caught.value.argument == argument
    assert caught.value.value == value
    assert isinstance(caught.value, KernelError)
    assert str(caught.value).startswith(f"{argument} = {value}: ")
    assert len(caught.value.must) > 5


def test_a_good_call_passes_and_changes_nothing() -> None:
    for call, arguments, names in ((check.decode, decode_arguments(), DECODE), (check.write, write_arguments(), WRITE)):
        before = {name: value.copy() for name, value in arguments.items() if isinstance(value, np.ndarray)}
        call(*(arguments[name] for name in names))
        for name, array in before.items():
            np.testing.assert_array_equal(arguments[name], array)


def test_rows_blocks_and_heads_may_lie_apart() -> None:
    fused = np.zeros((8, 3, 2, 16), np.float16)
    check.write(*(write_arguments(key=fused[:, 1], value=fused[:, 2])[name] for name in WRITE))
    pool = np.zeros((6, 2, 2 * 2 * 8 * 8), np.float16)  # a block's keys, then its values
    apart = {
        "query": np.zeros((2, 3, 4, 16), np.float16)[:, 1],
        "key_cache": pool[:, 0].reshape(6, 2, 2, 8, 8, copy=False),
        "value_cache": pool[:, 1].reshape(6, 2, 16, 8, copy=False),
    }
    check.decode(*(decode_arguments(**apart)[name] for name in DECODE))
    check.decode(*(decode_arguments(**FP8)[name] for name in DECODE))


def test_a_scale_is_not_looked_at_where_nothing_is_scaled() -> None:
    odd = {"k_scale": np.full(1, np.nan, np.float32), "v_scale": np.zeros(1, np.float32)}
    check.write(*(write_arguments(**odd)[name] for name in WRITE))
    check.decode(*(decode_arguments(**odd)[name] for name in DECODE))


def test_the_shapes_above_are_those_of_the_good_call() -> None:
    # So that each case below is wrong in the one way it says.
    assert decode_arguments()["key_cache"].shape == (6, 2, 2, 8, 8)
    assert decode_arguments()["block_tables"].tolist() == [[0, 1, 2, -1], [-1] * 4]
    assert write_arguments()["key_cache"].shape == (3, 2, 2, 8, 8)
    assert write_arguments()["key"].shape == (8, 2, 16)


@pytest.mark.parametrize(("changes", "argument", "value"), DECODE_REFUSED)
def test_decode_names_the_argument_and_its_value(changes: dict[str, Any], argument: str, value: object) -> None:
    refused(check.decode, decode_arguments(**changes), DECODE, argument, value)


@pytest.mark.parametrize(("changes", "argument", "value"), WRITE_REFUSED)
def test_write_names_the_argument_and_its_value(changes: dict[str, Any], argument: str, value: object) -> None:
    refused(check.write, write_arguments(**changes), WRITE, argument, value)


@settings(max_examples=150)
@given(st.integers(-3, 9), st.integers(0, 1), st.integers(0, 3), st.integers(0, 32))
def test_a_block_number_counts_only_where_a_token_is(number: int, seq: int, column: int, seq_len: int) -> None:
    lengths = np.array([0, 0], np.int32)
    lengths[seq] = seq_len
    tables = entry(np.zeros((2, 4), np.int32), (seq, column), number)
    arguments = decode_arguments(block_tables=tables, seq_lens=lengths, max_seq_len=32)
    used = column * 8 < seq_len
    if used and not 0 <= number < 6:
        refused(check.decode, arguments, DECODE, f"block_tables[{seq}, {column}]", number)
    else:
        check.decode(*(arguments[name] for name in DECODE))


@settings(max_examples=100)
@given(st.lists(st.integers(-40, 30), min_size=1, max_size=10))
def test_slots_may_be_negative_but_not_past_the_end(slots: list[int]) -> None:
    arguments = write_arguments(slot_mapping=np.array(slots, np.int64))
    bad = [token for token, slot in enumerate(slots) if slot >= 24]
    if len(slots) > 8:
        refused(check.write, arguments, WRITE, "slot_mapping.shape", (len(slots),))
    elif bad:
        refused(check.write, arguments, WRITE, f"slot_mapping[{bad[0]}]", slots[bad[0]])
    else:
        check.write(*(arguments[name] for name in WRITE))


def test_shape_spells_what_it_wants() -> None:
    array = np.zeros((2, 3), np.float32)
    check.shape("a", array, (None, 3), ("float16", "float32"))
    with pytest.raises(ArgumentError, match=r"^a\.shape = \(2, 3\): must be \(any, 4\)$"):
        check.shape("a", array, (None, 4), ("float32",))
    with pytest.raises(ArgumentError, match=r"^a\.dtype = float32: must be float16 or int8$"):
        check.shape("a", array, (2, 3), ("float16", "int8"))
    with pytest.raises(
        ArgumentError, match=r"^a\.strides = \(4, 12\): must be contiguous; pass numpy.ascontiguousarray"
    ):
        check.shape("a", array.T, (3, 2), ("float32",))


def test_kind_takes_any_memory_order_and_view_only_the_first_axes() -> None:
    array = np.zeros((4, 3, 8), np.float32)
    check.kind("a", array.transpose(2, 0, 1), (8, 4, None), ("float32",))
    for free, good in ((0, array), (1, array[::2]), (2, array[::2, ::2]), (1, array[:1, :, :]), (0, array[:, :0])):
        check.view("a", good, (None, None, None), ("float32",), free=free)
    for free, bad, where in (
        (0, array[::2], "must be contiguous; pass"),
        (1, array[:, ::2], "must be contiguous after its first axis; pass"),
        (2, array[..., ::2], "must be contiguous after its first 2 axes; pass"),
        (1, array[::-1], "must be contiguous after its first axis"),
        (1, np.broadcast_to(array[:1], (4, 3, 8)), "must be contiguous after its first axis"),
        (2, array.transpose(1, 0, 2), "must be contiguous after its first 2 axes"),
    ):
        with pytest.raises(ArgumentError, match=where) as caught:
            check.view("a", bad, (None, None, None), ("float32",), free=free)
        assert caught.value.argument == "a.strides"


@pytest.mark.parametrize("size", [1, 4])
def test_a_scale_is_one_number_or_one_for_each_head(size: int) -> None:
    check.scale("k_scale", np.ones(size, np.float32), "fp8", (1, 4))
    with pytest.raises(ArgumentError, match=r"k_scale\.shape = \(3,\): must be \(1\) or \(4\)"):
        check.scale("k_scale", np.ones(3, np.float32), "auto", (1, 4))
    for bad in (0, -1, np.nan, np.inf):
        scales = np.ones(size, np.float32)
        scales[-1] = bad
        check.scale("k_scale", scales, "auto", (1, 4))
        with pytest.raises(ArgumentError, match=r"k_scale = \[.*\]: must be finite and above zero"):
            check.scale("k_scale", scales, "fp8", (1, 4))


def test_slots_may_be_fewer_than_rows_and_any_negative_number() -> None:
    check.slots("s", np.array([3, -1, -(2**62), 0]), 4, 4)
    check.slots("s", np.zeros(0, np.int64), 4, 0)
    with pytest.raises(ArgumentError, match=r"s\[1\] = 4: must be below the 4 slots"):
        check.slots("s", np.array([3, 4]), 4, 4)
    with pytest.raises(ArgumentError, match=r"s\.shape = \(3,\): must not exceed the 2 rows of key"):
        check.slots("s", np.zeros(3, np.int64), 2, 4)


class OnGpu:
    """Looks like an array on a GPU: reading an element would be a copy, and stop the GPU."""

    def __init__(self, array: Any) -> None:
        self.shape, self.dtype, self.strides = array.shape, array.dtype, array.strides

    def __len__(self) -> int:
        return int(self.shape[0])


def test_what_lies_on_a_gpu_is_not_looked_into() -> None:
    wrong = decode_arguments(seq_lens=np.array([99, -3], np.int32), **FP8, k_scale=np.zeros(1, np.float32))
    there = {name: OnGpu(value) if isinstance(value, np.ndarray) else value for name, value in wrong.items()}
    check.decode(*(there[name] for name in DECODE))
    slots = write_arguments(slot_mapping=np.full(5, 1000))
    there = {name: OnGpu(value) if isinstance(value, np.ndarray) else value for name, value in slots.items()}
    check.write(*(there[name] for name in WRITE))
    there["slot_mapping"] = OnGpu(np.zeros(9, np.int64))
    with pytest.raises(ArgumentError, match="must not exceed the 8 rows"):
        check.write(*(there[name] for name in WRITE))


def test_the_scalar_types_by_what_holds_them() -> None:
    assert {name: kind.bitwidth for name, kind in check.SCALAR_TYPES.items()} == {
        "float32": 32,
        "float16": 16,
        "uint16": 16,
    }
