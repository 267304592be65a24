"""Rung 4: the cache is read once for all query heads of a KV head."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from kernels.cases_narrow import narrow_decode_case
from kernels.errors import ArgumentError
from kernels.tuned import grouped, wide_loads
from kernels.tuned.plan import Plan

sys.path.insert(0, str(Path(__file__).parent))
try:
    import rung_checks
finally:
    sys.path.pop(0)
from rung_checks import Shape, agrees, attend, cache_bytes, sanitized, spoilt, watched


@pytest.mark.parametrize("group", [1, 3, 4])
def test_the_group_reads_the_cache_once(group: int) -> None:
    narrow = Shape((48,), group, 1, 64, 16).case("bfloat16")
    alone, together = watched(wide_loads.launches, narrow, Plan(1)), watched(grouped.launches, narrow, Plan(1))
    assert together.widths["k_cache", "read"] == together.widths["v_cache", "read"] == {16}
    assert cache_bytes(together, narrow) == 2 * 48 * 64 * 2
    assert cache_bytes(alone, narrow) == group * cache_bytes(together, narrow)
    assert alone.accesses["block_tables", "read"] == group * together.accesses["block_tables", "read"]


@pytest.mark.parametrize(
    ("group", "head_size", "heads"), [(4, 128, 4), (7, 128, 7), (16, 128, 16), (8, 256, 4), (7, 256, 7), (40, 64, 10)]
)
def test_a_thread_block_has_the_heads_whose_outputs_fit(group: int, head_size: int, heads: int) -> None:
    assert grouped.pack_of(SimpleNamespace(group=group, head_size=head_size, block_size=16)) == heads


def test_a_group_in_several_thread_blocks() -> None:
    narrow = Shape((20,), 8, 1, 256, 16).case("bfloat16")
    (launch,) = grouped.launches(rung_checks.call_of(narrow), np.zeros, Plan(1))
    assert launch.grid == (2, 1, 1)
    assert agrees(attend(grouped.launches, narrow, Plan(1)), narrow, "bfloat16")


def test_without_a_plan_scores_that_do_not_fit_are_cut_up() -> None:
    # 8192 tokens would be whole, but 16 heads' scores of them take half a megabyte.
    narrow = Shape((5,), 16, 1, 32, 16).case("bfloat16")
    many = {"max_seq_len": 8192, "block_tables": np.zeros((1, 512), np.int32)}
    call = rung_checks.call_of(narrow, **many)
    first, merge = grouped.launches(call, np.zeros, None)
    assert (first.grid, merge.grid) == ((1, 1, 16), (16, 1, 1))
    with pytest.raises(ArgumentError, match="bytes of scores: use splits"):
        grouped.launches(call, np.zeros, Plan(1))


@pytest.mark.parametrize(
    ("old", "new", "found"),
    [
        ("        if left < TILE:\n", "        if left < 0:\n", None),
        ("            if token >= seq_len:\n", "            if token > seq_len:\n", None),
        ("    cuda.syncthreads()\n\n    # Values.\n", "\n    # Values.\n", "race"),
        ("    # The warps' outputs take the place of the weights.\n    cuda.syncthreads()\n", "", "race"),
    ],
)
def test_each_guard_is_needed(old: str, new: str, found: str | None, tmp_path: Path) -> None:
    changed = spoilt(grouped, [(old, new)], tmp_path)
    narrow = Shape((37,), 2, 1, 32, 16).case("bfloat16")
    if found:
        assert found in sanitized(changed.launches, narrow, Plan(1, 3)).verdict
    else:
        assert not agrees(attend(changed.launches, narrow), narrow, "bfloat16")


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
        attend(grouped.launches, narrow, **changes)


@pytest.mark.parametrize("shape", [Shape((5,), 1, 1, 264, 16), Shape((5,), 1, 1, 32, 4)])
def test_sizes_that_the_lanes_cannot_share_out_are_refused(shape: Shape) -> None:
    with pytest.raises(ArgumentError, match=r"multiple of 8 up to 256|must be 8, 16 or 32"):
        attend(grouped.launches, shape.case("bfloat16"))


def test_an_fp8_cache_is_refused() -> None:
    narrow = narrow_decode_case((5,), 1, 1, 32, 16, "bfloat16", "fp8")
    with pytest.raises(ArgumentError, match="kv_cache_dtype"):
        attend(grouped.launches, narrow, kv_cache_dtype="fp8")
