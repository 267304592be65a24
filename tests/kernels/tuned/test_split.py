"""Rung 6: splits share out a sequence, read nothing twice, and are merged to the same numbers."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from kernels.cases_narrow import narrow_decode_case
from kernels.errors import ArgumentError
from kernels.tuned import merge, split
from kernels.tuned.plan import Plan
from kernels.unroll import unroll

sys.path.insert(0, str(Path(__file__).parent))
try:
    import rung_checks
finally:
    sys.path.pop(0)
from rung_checks import Shape, agrees, attend, cache_bytes, spoilt, watched


def test_splits_share_out_the_sequence_and_read_nothing_twice() -> None:
    narrow = Shape((96, 16), 2, 1, 64, 16).case("bfloat16")
    for splits in (1, 3):
        launches = split.launches(rung_checks.call_of(narrow), np.zeros, Plan(splits, 2))
        assert [launch.grid for launch in launches] == [(1, 2, splits), (2, 2, 1)][: splits if splits == 1 else 2]
        seen = watched(split.launches, narrow, Plan(splits, 2))
        assert cache_bytes(seen, narrow) == 2 * (96 + 16) * 64 * 2


def test_splits_without_tokens_count_nothing() -> None:
    narrow = Shape((17, 0, 160), 3, 1, 32, 16).case("float16")
    assert agrees(attend(split.launches, narrow, Plan(7, 2)), narrow, "float16")
    assert not attend(split.launches, narrow, Plan(7, 2))[1].any()


def test_more_parts_than_the_merge_loads_at_once() -> None:
    narrow = Shape((16 * 19,), 1, 1, 8, 16).case("float16")
    assert agrees(attend(split.launches, narrow, Plan(19, 1)), narrow, "float16")


@pytest.mark.parametrize(
    ("batch", "heads", "kv_heads", "head_size", "tokens", "splits"),
    [
        (1, 32, 8, 128, 32768, 45),
        (64, 28, 4, 128, 4096, 1),
        (64, 32, 8, 128, 4096, 3),
        (1, 32, 8, 128, 256, 1),
    ],
)
def test_splits_are_chosen_to_fill_the_gpu(
    batch: int, heads: int, kv_heads: int, head_size: int, tokens: int, splits: int
) -> None:
    call = SimpleNamespace(
        num_seqs=batch, num_heads=heads, group=heads // kv_heads, head_size=head_size, block_size=16,
        max_seq_len=tokens,
    )  # fmt: skip
    assert split.choose(call) == Plan(splits)


def test_fewer_multiprocessors_want_fewer_splits() -> None:
    call = SimpleNamespace(num_seqs=1, num_heads=4, group=4, head_size=128, block_size=16, max_seq_len=1 << 17)
    assert split.choose(call, 8).splits < split.choose(call, 80).splits <= 240


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (
            "last_tile = int32(min(first_tile + span, num_tiles))",
            "last_tile = int32(min(first_tile + span, num_tiles - 1))",
        ),
        ("first_tile = split * span", "first_tile = split * span + split"),
    ],
)
def test_a_tile_lost_between_splits_is_seen(old: str, new: str, tmp_path: Path) -> None:
    narrow = Shape((100,), 2, 1, 32, 16).case("bfloat16")
    assert not agrees(attend(spoilt(split, [(old, new)], tmp_path).launches, narrow, Plan(3, 1)), narrow, "bfloat16")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("weight = exp2(here - top)", "weight = exp2(top - here)"),
        ("if first + i < num_parts and", "if"),
        ("        shared[num_parts + part] = weight *", "        shared[num_parts + part] ="),
    ],
)
def test_what_is_wrong_in_the_merge_fails(old: str, new: str, tmp_path: Path) -> None:
    narrow = Shape((16 * 19,), 1, 1, 8, 16).case("float16")
    changed = spoilt(merge, [(old, new)], tmp_path)
    call = rung_checks.call_of(narrow)
    first, second = split.launches(call, rung_checks.not_zeros, Plan(19, 1))
    first.run()
    replace(second, kernel=unroll(changed.paged_decode_merge, HEAD_SIZE=8, FORMAT="float16")).run()
    assert not agrees(call.out, narrow, "float16")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"query_len": 2}, "query_len = 2: must be 1"),
        ({"block_size": 8}, "key_cache.shape"),
        ({"num_kv_heads": 3}, "must divide"),
        ({"alibi_slopes": np.zeros(3, np.float32)}, "alibi_slopes"),
    ],
)
def test_what_no_launch_could_use_is_refused(changes: dict[str, Any], said: str) -> None:
    narrow = Shape((20, 20), 2, 1, 32, 16).case("bfloat16")
    if "query_len" in changes:
        changes = changes | {"block_tables": narrow.case.block_tables[:1], "seq_lens": narrow.case.seq_lens[:1]}
    with pytest.raises(ArgumentError, match=said):
        attend(split.launches, narrow, **changes)


@pytest.mark.parametrize("shape", [Shape((5,), 1, 1, 264, 16), Shape((5,), 1, 1, 32, 4)])
def test_sizes_that_the_lanes_cannot_share_out_are_refused(shape: Shape) -> None:
    with pytest.raises(ArgumentError, match=r"multiple of 8 up to 256|must be 8, 16 or 32"):
        attend(split.launches, shape.case("bfloat16"))


def test_an_fp8_cache_is_refused() -> None:
    narrow = narrow_decode_case((5,), 1, 1, 32, 16, "bfloat16", "fp8")
    with pytest.raises(ArgumentError, match="kv_cache_dtype"):
        attend(split.launches, narrow, kv_cache_dtype="fp8")
