"""The grids: their counts and parameters against facts typed here.

At the end the small grid runs on the SIMT machine and, where there is a GPU, each whole group on it.
"""

from __future__ import annotations

import itertools
import os
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from kernels.vllm import ops_grid
from kernels.vllm.ops_attention_case import AttentionCase, v1_longest
from kernels.vllm.ops_writer_case import WriterCase

GROUPS = ops_grid.groups()
SMALL = ops_grid.small_groups()
COUNTS = {
    "vllm-attention": 128,
    "vllm-reshape": 72,
    # Two dtypes, two cache dtypes, two layouts; three head sizes, three block sizes, two sizes of cache, two scales;
    # and one unaligned case a dtype, cache dtype and layout.
    "vllm-flash": 8 * 36 + 8,
    # Head size 120 has no fp8: no piece of 16.
    "attention": 2 * 3 * 3 * (9 + 8 + 8),
    "reshape": 3 * (9 + 8 + 8),
    "flash": 3 * 3 * 10,
    "big": 18,
}
ON_GPU = 14


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Other tests run beside these, and torch's threads would wait for each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


# What is in the grids.


def test_the_counts() -> None:
    assert {name: len(cases) for name, cases in GROUPS.items()} == COUNTS
    assert {name: len(cases) for name, cases in SMALL.items()} == {
        "small-attention": 466,
        "small-reshape": 9,
        "small-flash": 9,
    }
    assert ops_grid.all_groups(small=True).keys() == SMALL.keys()
    assert ops_grid.all_groups(small=False).keys() == GROUPS.keys()
    assert set(ops_grid.TITLES) == set(GROUPS) | set(SMALL)


@pytest.mark.parametrize("name", [*GROUPS, *SMALL])
def test_ids_are_unique_and_name_their_group(name: str) -> None:
    cases = {**GROUPS, **SMALL}[name]
    assert [word for word, count in Counter(case.id for case in cases).items() if count > 1] == []
    assert {case.group for case in cases} == {name}
    assert all(len(case.id) < 60 for case in cases)


def test_vllms_attention_grid() -> None:
    found = set()
    for case in GROUPS["vllm-attention"]:
        assert isinstance(case, AttentionCase)
        assert (case.dtype, case.inputs, case.num_blocks) == ("bfloat16", "vllm", 4321)
        assert case.tolerance == ((1e-3, 1e-5) if case.kv_cache_dtype == "auto" else (1e-2, 1e-5))
        lengths = case.all_lengths("cpu")
        assert len(lengths) == 7
        assert lengths[-1] == 57_600 == max(lengths)
        assert min(lengths) >= 1
        found.add((case.version, case.heads, case.head_size, case.alibi, case.block_size, case.kv_cache_dtype))
    pairs = [((40, 40),), ((64, 8),)]
    ways = itertools.product(("v1", "v2"), pairs, (32, 80, 128, 256), [(False,), (True,)], (16, 32), ("auto", "fp8"))
    assert found == set(ways)
    assert v1_longest("cpu") == 57_600


def test_vllms_reshape_grid() -> None:
    found = set()
    for case in GROUPS["vllm-reshape"]:
        assert isinstance(case, WriterCase)
        assert (case.op, case.heads, case.tokens, case.inputs, case.scales) == (
            "reshape",
            (8,),
            42,
            "vllm",
            ("tensor",),
        )
        found.add((case.dtype, case.kv_cache_dtype, case.head_size, case.block_sizes, case.num_blocks))
    ways = itertools.product(
        ("bfloat16", "float32"), ("auto", "fp8"), (64, 80, 256), [(8,), (16,), (32,)], (1024, 10000)
    )
    assert found == set(ways)


def test_vllms_flash_grid() -> None:
    found = []
    for case in GROUPS["vllm-flash"]:
        assert isinstance(case, WriterCase)
        assert (case.op, case.tokens, case.inputs) == ("flash", 21, "vllm")
        what = (case.dtype, case.kv_cache_dtype, case.layouts, case.head_size, case.block_sizes, case.num_blocks)
        found.append((*what, case.scales, case.heads))
    first = list(itertools.product(("bfloat16", "float32"), ("auto", "fp8"), [("NHD",), ("HND",)]))
    ways = [
        (*some, size, (block,), blocks, scale, (8,))
        for some in first
        for size, block, blocks, scale in itertools.product(
            (64, 80, 256), (8, 16, 32), (512, 5000), [("tensor",), ("attn_head",)]
        )
    ]
    assert Counter(found) == Counter([*ways, *((*some, 46, (16,), 64, ("tensor",), (13,)) for some in first)])


def test_vllms_writer_tolerances() -> None:
    """For fp8 its test names them; for auto they are torch's defaults, which are tried here."""
    default = {"bfloat16": (1e-5, 1.6e-2), "float32": (1e-5, 1.3e-6)}
    for case in (*GROUPS["vllm-reshape"], *GROUPS["vllm-flash"]):
        assert case.tolerance == ((1e-3, 0.1) if case.kv_cache_dtype == "fp8" else default[case.dtype])
    for dtype, (atol, rtol) in default.items():
        one = torch.ones(1, dtype=getattr(torch, dtype))
        for step in range(1, 200):
            other = one + step * torch.finfo(one.dtype).eps
            try:
                torch.testing.assert_close(other, one)
                passed = True
            except AssertionError:
                passed = False
            assert passed == (abs(float(other) - 1) <= atol + rtol), step


def test_our_matrix_is_the_whole_product() -> None:
    sizes = (32, 64, 80, 96, 112, 120, 128, 192, 256)
    ways = {
        way
        for way in itertools.product(
            ("v1", "v2"), ("bfloat16", "float16", "float32"), ("auto", "fp8", "fp8_e5m2"), (8, 16, 32), sizes
        )
        if way[2] == "auto" or way[4] != 120
    }
    for name in ("attention", "small-attention"):
        found = set()
        for case in {**GROUPS, **SMALL}[name]:
            assert isinstance(case, AttentionCase)
            assert (case.inputs, case.tolerance) == ("ours", None)
            found.add((case.version, case.dtype, case.kv_cache_dtype, case.block_size, case.head_size))
        assert found == ways
    for case in GROUPS["attention"]:
        assert isinstance(case, AttentionCase)
        assert case.alibi == (False, True)
        assert {(q // kv) for q, kv in case.heads} == {1, 2, 4, 8}
        assert (40, 40) in case.heads
        size = case.block_size
        assert {0, 1, size - 1, size, size + 1, 511, 512, 513, 1023, 1024, 1025} == set(case.lengths)


def test_our_writers_are_the_whole_product() -> None:
    sizes = (32, 64, 80, 96, 112, 120, 128, 192, 256)
    for op, more in (("reshape", ()), ("flash", (46,))):
        found = set()
        for case in GROUPS[op]:
            assert isinstance(case, WriterCase)
            assert (case.op, case.inputs, case.tolerance, case.block_sizes) == (op, "ours", None, (8, 16, 32))
            found.add((case.dtype, case.kv_cache_dtype, case.head_size))
            pieces = (
                case.head_size * (1 if case.kv_cache_dtype != "auto" else getattr(torch, case.dtype).itemsize) // 16
            )
            # What vLLM's reshape_and_cache writes at most.
            assert op == "flash" or max(case.heads) * pieces <= 512
        ways = itertools.product(("bfloat16", "float16", "float32"), ("auto", "fp8", "fp8_e5m2"), (*sizes, *more))
        assert found == {way for way in ways if op == "flash" or way[1] == "auto" or way[2] != 120}
    for case in GROUPS["flash"]:
        assert isinstance(case, WriterCase)
        assert set(case.layouts) == {"apart", "NHD", "HND", "beside"}
        assert set(case.scales) == {"tensor", "attn_head"}


def test_the_big_cases() -> None:
    attention = [case for case in GROUPS["big"] if isinstance(case, AttentionCase)]
    writers = [case for case in GROUPS["big"] if isinstance(case, WriterCase)]
    long = {(case.version, max(case.all_lengths("cpu"))) for case in attention if not case.beyond}
    assert long == {("v1", 57_600), ("v2", 131_072)}
    beyond = {(case.version, case.kv_cache_dtype) for case in attention if case.beyond}
    assert beyond == set(itertools.product(("v1", "v2"), ("auto", "fp8")))
    assert all(case.beyond for case in writers)
    assert {(case.op, case.kv_cache_dtype) for case in writers} == set(
        itertools.product(("reshape", "flash"), ("auto", "fp8"))
    )


def test_a_unit_shares_what_is_compiled() -> None:
    for case in itertools.chain(*GROUPS.values()):
        words = case.unit.split("/")
        assert words[1:3] == [case.dtype, case.kv_cache_dtype]
        assert words[0] == (case.version if isinstance(case, AttentionCase) else case.op)
        assert len(words) == 3 or words[3] == str(case.head_size)


# Inputs.


def run(cases: list[Any], device: str) -> list[str]:
    """What is wrong with each case that did not pass, or that would have passed with a wrong output."""
    wrong = []
    for case in cases:
        found = case.run(device)
        if not found.passed or found.zeros_pass or found.shuffled_keys_pass:
            wrong.append(f"{case.id}: {found}")
    return wrong


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
@pytest.mark.parametrize("version", ["v1", "v2"])
def test_the_small_attention_grid_on_the_simt_machine(version: str, dtype: str) -> None:
    cases = [case for case in SMALL["small-attention"] if case.id.startswith(f"{version} {dtype} ")]
    assert len(cases) >= 75
    assert run(cases, "cpu") == []


@pytest.mark.parametrize("group", ["small-reshape", "small-flash"])
def test_the_small_writer_grids_on_the_simt_machine(group: str) -> None:
    assert run(SMALL[group], "cpu") == []


@pytest.mark.gpu
@pytest.mark.parametrize("group", [*GROUPS, *SMALL])
def test_the_grid_on_the_gpu(group: str) -> None:
    from walkthroughs.grid_workers import PASSED, Plan, run_all

    plan = Plan("cuda", small=group in SMALL)
    rows = run_all(plan, plan.tasks([group]), max(1, min(ON_GPU, (os.cpu_count() or 1) - 2)))
    assert len(rows) == len({**GROUPS, **SMALL}[group])
    assert [row for row in rows if row.result != PASSED] == []
