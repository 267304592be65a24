"""Rung 3: every access to the cache is 16 bytes wide, and it is v1's otherwise."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from kernels.cases_narrow import narrow_decode_case
from kernels.errors import ArgumentError
from kernels.tuned import classic, wide_loads
from kernels.tuned.plan import Plan

sys.path.insert(0, str(Path(__file__).parent))
try:
    from rung_checks import Shape, agrees, attend, cache_bytes, sanitized, spoilt, watched
finally:
    sys.path.pop(0)


@pytest.mark.parametrize("plan", [Plan(1), Plan(3)])
def test_an_eighth_of_the_accesses_of_the_port_for_the_same_bytes(plan: Plan) -> None:
    # Whole tiles: 48 tokens.
    narrow = Shape((48,), 2, 1, 64, 16).case("bfloat16")
    wide, port = watched(wide_loads.launches, narrow, plan), watched(classic.launches_v1, narrow)
    for name in ("k_cache", "v_cache"):
        assert wide.widths[name, "read"] == {16}
        assert port.widths[name, "read"] == {2}
        assert 8 * wide.accesses[name, "read"] == port.accesses[name, "read"]
    assert wide.widths["q", "read"] == {16}
    assert cache_bytes(wide, narrow) == cache_bytes(port, narrow) == 2 * 2 * 48 * 64 * 2


def test_32_lanes_read_one_run_of_bytes() -> None:
    rows = sanitized(wide_loads.launches, Shape((48,), 1, 1, 64, 16).case("bfloat16")).memory.rows
    for row in (row for row in rows if row.array in ("k_cache", "v_cache")):
        assert (row.lines_per_request, row.efficiency) == (4, 1)


@pytest.mark.parametrize(
    ("batch", "heads", "tokens", "plan", "parts"),
    [
        (64, 28, 4096, None, 1),
        (1, 32, 32768, None, 64),
        (1, 32, 4096, None, 8),
        (1, 32, 512, None, 1),
        (600, 1, 9000, None, 18),
        (1, 32, 4096, Plan(5), 5),
        (1, 1, 30, Plan(9), 2),
    ],
)
def test_partitions_as_vllm_chooses_or_as_planned(
    batch: int, heads: int, tokens: int, plan: Plan | None, parts: int
) -> None:
    call = SimpleNamespace(num_seqs=batch, head_size=128, block_size=16, max_seq_len=tokens)
    assert wide_loads.partitions(call, heads, plan)[0] == parts


def test_scores_that_do_not_fit_are_refused() -> None:
    narrow = Shape((5,), 1, 1, 32, 16).case("bfloat16")
    with pytest.raises(ArgumentError, match=r"max_seq_len = 70000: .* bytes of scores: use splits"):
        attend(wide_loads.launches, narrow, Plan(1), max_seq_len=70000, block_tables=np.zeros((1, 4375), np.int32))


@pytest.mark.parametrize(
    ("old", "new", "found"),
    [
        ("        if left < TILE:\n", "        if left < 0:\n", None),
        ("        if token >= seq_len:\n", "        if token > seq_len:\n", None),
        ("    cuda.syncthreads()\n\n    # Values.\n", "\n    # Values.\n", "race"),
        ("    # The warps' outputs take the place of the weights.\n    cuda.syncthreads()\n", "", "race"),
    ],
)
def test_each_guard_is_needed(old: str, new: str, found: str | None, tmp_path: Path) -> None:
    changed = spoilt(wide_loads, [(old, new)], tmp_path)
    narrow = Shape((37,), 1, 1, 32, 16).case("bfloat16")
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
        attend(wide_loads.launches, narrow, **changes)


@pytest.mark.parametrize("shape", [Shape((5,), 1, 1, 264, 16), Shape((5,), 1, 1, 32, 4)])
def test_sizes_that_the_lanes_cannot_share_out_are_refused(shape: Shape) -> None:
    with pytest.raises(ArgumentError, match=r"multiple of 8 up to 256|must be 8, 16 or 32"):
        attend(wide_loads.launches, shape.case("bfloat16"))


def test_an_fp8_cache_is_refused() -> None:
    narrow = narrow_decode_case((5,), 1, 1, 32, 16, "bfloat16", "fp8")
    with pytest.raises(ArgumentError, match="kv_cache_dtype"):
        attend(wide_loads.launches, narrow, kv_cache_dtype="fp8")
