"""Rung 5: one pass, and nothing is written for a token."""

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
from kernels.tuned import grouped, online
from kernels.tuned.plan import Plan
from kernels.unroll import source

sys.path.insert(0, str(Path(__file__).parent))
try:
    from rung_checks import Shape, agrees, attend, cache_bytes, sanitized, spoilt, watched
finally:
    sys.path.pop(0)


def test_nothing_is_written_for_a_token() -> None:
    long, short = (Shape((tokens,), 4, 1, 64, 16).case("bfloat16") for tokens in (96, 48))
    one_pass = [watched(online.launches, narrow, Plan(1, 2)) for narrow in (long, short)]
    two_passes = [watched(grouped.launches, narrow, Plan(1, 2)) for narrow in (long, short)]
    written = [seen.elements["shared", "write"] for seen in (*one_pass, *two_passes)]
    assert written[0] == written[1] == 4 * 64 + 2 * 4 * (64 + 2), "queries, outputs, and two numbers a head and warp"
    assert written[2] - written[3] == 2 * 4 * 48, "a score and a weight for each token and head"
    assert cache_bytes(one_pass[0], long) == cache_bytes(two_passes[0], long) == 2 * 96 * 64 * 2


@pytest.mark.parametrize("rising", [True, False])
def test_a_larger_score_shrinks_what_was_summed(rising: bool) -> None:
    # Keys that grow along the sequence, or fall: the running maximum changes at each tile, or never.
    narrow = Shape((64,), 2, 1, 32, 16).case("float16")
    case = narrow.case
    steps = np.linspace(0, 1, 64)[:, None, None] if rising else np.linspace(1, 0, 64)[:, None, None]
    keys = (steps * np.sign(case.q[0, :1]) * 4).astype(np.float16)
    table = case.block_tables[0]
    k_cache = narrow.k_cache.copy()
    for token in range(64):
        k_cache[table[token // 16], 0, :, token % 16, :] = keys[token, 0].reshape(4, 8)
    changed = replace(narrow, k_cache=k_cache, case=replace(case, keys=(keys.astype(np.float32),)))
    assert agrees(attend(online.launches, changed, Plan(1, 1)), changed, "float16")


@pytest.mark.parametrize(
    ("group", "head_size", "heads"), [(4, 128, 4), (7, 128, 7), (8, 128, 8), (16, 128, 8), (8, 256, 4), (16, 64, 16)]
)
def test_a_thread_block_has_the_heads_whose_outputs_fit(group: int, head_size: int, heads: int) -> None:
    assert online.pack_of(SimpleNamespace(group=group, head_size=head_size, block_size=16)) == heads


def test_outputs_and_values_lie_in_variables() -> None:
    text = source(
        online.paged_decode_online, HEAD_SIZE=64, BLOCK_SIZE=16, PACK=3, PACKS=1, FORMAT="bfloat16", NUM_WARPS=4,
        ALIBI=False,
    )  # fmt: skip
    assert "acc_11" in text
    assert "acc_12" not in text
    assert text.count("vector_load4(v_cache") == text.count("vector_load4(k_cache") == 4
    assert "alibi_slopes[" not in text


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("        if left < TILE:\n", "        if left < 0:\n"),
        ("            if token >= seq_len:\n", "            if token > seq_len:\n"),
        ("                acc[V_LOADS * h + i] *= shrink\n", "                acc[V_LOADS * h + i] *= 1\n"),
        ("total[h] * shrink + s[h]", "total[h] + s[h]"),
        ("    # The warps' outputs take the queries' place.\n    cuda.syncthreads()\n", ""),
    ],
)
def test_each_step_is_needed(old: str, new: str, tmp_path: Path) -> None:
    changed = spoilt(online, [(old, new)], tmp_path)
    narrow = Shape((101,), 2, 1, 32, 16).case("bfloat16")
    if "syncthreads" in old:
        assert "race" in sanitized(changed.launches, narrow, Plan(1, 3)).verdict
    else:
        assert not agrees(attend(changed.launches, narrow, Plan(1, 2)), narrow, "bfloat16")


def test_more_warps_than_registers_are_refused() -> None:
    with pytest.raises(ArgumentError, match=r"plan.warps = 9: must be at most 8"):
        attend(online.launches, Shape((5,), 1, 1, 32, 16).case("bfloat16"), Plan(1, 9))


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
        attend(online.launches, narrow, **changes)


@pytest.mark.parametrize("shape", [Shape((5,), 1, 1, 264, 16), Shape((5,), 1, 1, 32, 4)])
def test_sizes_that_the_lanes_cannot_share_out_are_refused(shape: Shape) -> None:
    with pytest.raises(ArgumentError, match=r"multiple of 8 up to 256|must be 8, 16 or 32"):
        attend(online.launches, shape.case("bfloat16"))


def test_an_fp8_cache_is_refused() -> None:
    narrow = narrow_decode_case((5,), 1, 1, 32, 16, "bfloat16", "fp8")
    with pytest.raises(ArgumentError, match="kv_cache_dtype"):
        attend(online.launches, narrow, kv_cache_dtype="fp8")
