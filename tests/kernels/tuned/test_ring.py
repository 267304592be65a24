"""The ring kernel against float64: every element within what its roundings allow, over shapes, splits and rings."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels import cases, oracle
from kernels.cases import DecodeCase
from kernels.cases_narrow import NarrowCase, narrow_decode_case, unpack
from kernels.errors import ArgumentError
from kernels.kernel import Backend
from kernels.tuned import ring, ring_launch, ring_sizes
from kernels.tuned.call import Decode
from kernels.tuned.plan import Plan
from kernels.unroll import source

# Half a unit in the last place, relative.
ROUNDING = {"bfloat16": 2.0**-8, "float16": 2.0**-11}
BACKENDS = ["sim", pytest.param("cuda", marks=pytest.mark.gpu)]


def poisoned(size: int, dtype: Any) -> np.ndarray:
    """Scratch memory: NaN where a kernel has to write before it reads."""
    return np.full(size, np.nan, dtype) if np.dtype(dtype).kind == "f" else np.zeros(size, dtype)


def attend(narrow: NarrowCase, cut: Plan | None, backend: Any = "sim", **changes: Any) -> np.ndarray:
    """The kernel's output codes; scratch memory holds NaN before, and no turn is left over afterwards."""
    case = narrow.case
    out = np.full(narrow.q.shape, 0x7FFF, np.uint16).view(narrow.q.dtype)
    given = {
        "query": narrow.q, "key_cache": narrow.k_cache, "value_cache": narrow.v_cache,
        "num_kv_heads": case.num_kv_heads, "scale": case.scale, "block_tables": case.block_tables,
        "seq_lens": case.seq_lens, "block_size": case.block_size, "max_seq_len": max(1, case.max_seq_len),
        "lengths": case.seq_lens.tolist(),
    } | changes  # fmt: skip
    for launch in ring_launch.launches(Decode(out, **given), poisoned, cut):
        launch.run(backend)
        assert not launch.args[3].any(), "turns"
    return out


def allowed(case: DecodeCase, scalar: str) -> np.ndarray:
    """Each weight is rounded once, and so is the output; float32 does the rest."""
    sizes = replace(case, values=tuple(np.abs(rows) for rows in case.values))
    total = oracle.attention(sizes)
    return ROUNDING[scalar] * (total + np.abs(oracle.attention(case))) + 2e-6 * total


def agrees(out: np.ndarray, narrow: NarrowCase, scalar: str, truth: DecodeCase | None = None) -> bool:
    error = np.abs(unpack(out, scalar).astype(np.float64) - oracle.attention(truth or narrow.case))
    return bool((error <= allowed(narrow.case, scalar)).all())


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("scalar", ["bfloat16", "float16"])
@pytest.mark.parametrize(
    ("lengths", "heads", "head_size", "block_size", "cut"),
    [
        ((37,), (8, 1), 128, 16, Plan(1, 1, 2)),
        ((70, 1, 16), (14, 2), 64, 16, Plan(1, 2, 2)),
        ((133, 0, 15), (8, 2), 64, 16, Plan(3, 2, 3)),
        ((65,), (2, 2), 32, 16, Plan(2, 4, 2)),
        ((33,), (4, 1), 256, 16, Plan(1, 2, 2)),
        ((77, 33), (8, 2), 80, 32, Plan(2, 2, 2)),
        ((20,), (3, 1), 112, 16, Plan(5, 3, 1)),
        ((40,), (16, 1), 64, 16, Plan(2, 2, 2)),
        ((130, 3, 0, 47), (18, 2), 48, 16, Plan(1, 2, 2, balance=True)),
    ],
)
def test_within_its_roundings(
    lengths: tuple[int, ...], heads: tuple[int, int], head_size: int, block_size: int, cut: Plan, scalar: str,
    backend: str,
) -> None:  # fmt: skip
    narrow = narrow_decode_case(lengths, *heads, head_size, block_size, scalar, seed=3, garbage="minus-one")
    assert agrees(attend(narrow, cut, backend), narrow, scalar)


def test_the_next_32_entries_of_the_table_are_loaded_in_time() -> None:
    # One warp walks 71 blocks: the entries come in three loads.
    narrow = narrow_decode_case((16 * 70 + 3,), 2, 1, 16, 16, "bfloat16", seed=5)
    assert agrees(attend(narrow, Plan(1, 1, 3)), narrow, "bfloat16")


@settings(max_examples=20)
@given(
    st.lists(st.integers(0, 70), min_size=1, max_size=2),
    st.sampled_from([1, 2, 3, 7, 8, 9, 16]),
    st.sampled_from([1, 2]),
    st.sampled_from([16, 32, 48]),
    st.sampled_from([16, 32]),
    st.builds(Plan, st.integers(1, 3), st.integers(1, 2), st.integers(1, 3), st.booleans()),
    st.integers(0, 99),
)
def test_any_shape(
    lengths: list[int], group: int, kv_heads: int, head_size: int, block_size: int, cut: Plan, seed: int
) -> None:
    narrow = narrow_decode_case(lengths, group * kv_heads, kv_heads, head_size, block_size, "bfloat16", seed=seed)
    assert agrees(attend(narrow, cut), narrow, "bfloat16")


@pytest.mark.parametrize("schedule", ["reversed", "random:1", "random:2"])
def test_any_order_of_the_warps(schedule: str) -> None:
    narrow = narrow_decode_case((90, 40), 4, 2, 32, 16, "bfloat16", seed=9)
    first = attend(narrow, Plan(2, 3, 2))
    np.testing.assert_array_equal(attend(narrow, Plan(2, 3, 2), Backend("sim", schedule)), first)


def test_an_empty_sequence_gives_zeros() -> None:
    narrow = narrow_decode_case((0, 5), 2, 1, 32, 16, "bfloat16")
    for cut in (Plan(1), Plan(3), Plan(1, balance=True)):
        assert not attend(narrow, cut)[0].any()


def test_a_list_made_before_the_sequences_grew_still_covers_them() -> None:
    narrow = narrow_decode_case((60, 20), 4, 2, 32, 16, "bfloat16", seed=4)
    grown = attend(narrow, Plan(1, 2, 2, balance=True), lengths=[40, 10])
    assert agrees(grown, narrow, "bfloat16")


def test_the_rung_chooses_a_plan() -> None:
    narrow = narrow_decode_case((60, 20), 4, 2, 32, 16, "bfloat16", seed=4)
    assert agrees(attend(narrow, None), narrow, "bfloat16")


def test_what_is_wrong_fails() -> None:
    narrow = narrow_decode_case((40,), 2, 1, 32, 16, "bfloat16", seed=2)
    out = attend(narrow, Plan(1, 2, 2))
    case = narrow.case
    for change in (lambda rows: rows[:-1], lambda rows: np.concatenate([rows, rows[:1]])):
        wrong = replace(case, keys=tuple(map(change, case.keys)), values=tuple(map(change, case.values)))
        assert not agrees(out, narrow, "bfloat16", truth=wrong)
    assert not agrees(np.roll(out, 1, axis=1), narrow, "bfloat16")
    assert not agrees(np.zeros_like(out), narrow, "bfloat16")
    half = attend(narrow, Plan(1, 2, 2), scale=case.scale / 2)
    assert not agrees(half, narrow, "bfloat16")


# What is refused


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"query": np.zeros((1, 2, 32), np.float32)}, "dtype"),
        ({"block_size": 8}, "key_cache.shape"),
        ({"num_kv_heads": 3}, "must divide"),
        ({"max_seq_len": 10}, "max_seq_len = 10"),
        ({"query_len": 2}, "must divide the 1 rows"),
        ({"lengths": None}, "lengths = None: must be given"),
    ],
)
def test_what_no_launch_could_use_is_refused(changes: dict[str, Any], said: str) -> None:
    narrow = narrow_decode_case((40,), 2, 1, 32, 16, "bfloat16")
    with pytest.raises(ArgumentError, match=said):
        attend(narrow, Plan(balance=True), **changes)


def test_sizes_that_a_product_does_not_take_are_refused() -> None:
    for shape, said in (
        ((17, 1, 32, 16), "must be 16 columns or fewer"),
        ((2, 1, 40, 16), "multiple of 16"),
        ((2, 1, 32, 8), "16 or 32"),
    ):
        narrow = narrow_decode_case((5,), *shape, "bfloat16")
        with pytest.raises(ArgumentError, match=said):
            attend(narrow, Plan())
    plain = cases.decode_case((5,), 2, 1, 32, 16, "float32")
    with pytest.raises(ArgumentError, match="float32: must be uint16 or float16"):
        Decode(
            np.zeros_like(plain.q), plain.q, plain.k_cache, plain.v_cache, 1, plain.scale, plain.block_tables,
            plain.seq_lens, 16, 5,
        )  # fmt: skip


def test_shared_memory_holds_the_rings_and_the_exchange() -> None:
    assert ring_sizes.exchange_bytes(128, 16, 2, 8, 4, 3) == 4 * 3 * 8192
    assert ring_sizes.exchange_bytes(128, 16, 2, 8, 8, 1) == 8 * 8192, "the ring"
    assert ring_sizes.exchange_bytes(32, 16, 1, 8, 2, 1) == 2 * 8 * 36 * 4, "the exchange is larger"
    assert ring_sizes.shared_bytes(128, 16, 2, 8, 4, 3) == 4 * 3 * 8192 + 12 * 8 + 4 * (9 * 8 + 2)


def test_what_is_written_out_keeps_its_sums_in_variables() -> None:
    sizes = {"HEAD_SIZE": 64, "BLOCK_SIZE": 16, "GROUP": 4, "QUERY_LEN": 1, "WARPS": 4, "DEPTH": 3}
    text = source(ring.paged_decode_ring, **sizes, SCALAR="bfloat16", CACHE="auto", ALIBI=False, LISTED=False)
    assert "acc_15" in text
    assert "acc_16" not in text
    assert text.count("ldmatrix_x4(") == 8
    assert "halves(" not in text, "what only an fp8 cache needs"
