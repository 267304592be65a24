"""The inputs of the FlashAttention layout's writer, and the oracle's places: each view names its own elements, once."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels import oracle_flash
from kernels.cases_flash import POISON_CODE, flash_case
from kernels.errors import ArgumentError


@settings(max_examples=60)
@given(
    st.integers(1, 12), st.integers(1, 3), st.sampled_from([1, 4, 6]), st.sampled_from([1, 4, 16]),
    st.sampled_from(["NHD", "HND"]), st.sampled_from(["side-by-side", "stacked"]), st.booleans(), st.data(),
)  # fmt: skip
def test_the_two_views_share_the_cache_without_overlap(
    tokens: int, heads: int, head_size: int, block_size: int, memory: str, form: str, spread: bool, data: st.DataObject
) -> None:
    padding, first = data.draw(st.integers(0, tokens)), data.draw(st.integers(0, 5))
    case = flash_case(
        tokens, heads, head_size, block_size, memory=memory, form=form, padding=padding,  # type: ignore[arg-type]
        extra_rows=2, spread=spread, first=first,
    )  # fmt: skip
    whole, keys, values = case.caches()
    assert keys.shape == values.shape == (case.num_blocks, block_size, heads, head_size)
    assert np.isnan(whole).all()
    places = np.concatenate([where.reshape(-1) for where in oracle_flash.places(case)])
    assert sorted(places) == list(range(first, whole.size))
    keys[0, 0, 0, 0] = 1
    assert whole[oracle_flash.places(case)[0][0, 0, 0, 0]] == 1
    slots = case.slot_mapping[case.slot_mapping >= 0]
    assert len(slots) == len(set(slots.tolist())) == tokens - padding
    assert (slots < case.num_blocks * block_size).all()
    assert len(case.key) == len(case.value) == tokens + 2
    if spread:
        assert len(set((slots // block_size).tolist())) == len(slots), "a block each"


def test_memory_order_and_form_are_what_they_say() -> None:
    steps = {}
    for memory in ("NHD", "HND"):
        for form in ("side-by-side", "stacked"):
            case = flash_case(1, 2, 4, 8, memory=memory, form=form)  # type: ignore[arg-type]
            _, keys, values = case.caches()
            gap = values.__array_interface__["data"][0] - keys.__array_interface__["data"][0]
            steps[memory, form] = (*(step // 4 for step in keys.strides), gap // 4)
    assert steps == {
        ("NHD", "side-by-side"): (128, 16, 8, 1, 4),
        ("NHD", "stacked"): (128, 8, 4, 1, 64),
        ("HND", "side-by-side"): (128, 8, 64, 1, 4),
        ("HND", "stacked"): (128, 4, 32, 1, 64),
    }


def test_a_fused_row_is_far_from_the_next_and_holds_the_same_numbers() -> None:
    apart, fused = (flash_case(3, 2, 4, 8, seed=5, fused=flag) for flag in (False, True))
    np.testing.assert_array_equal(apart.key, fused.key)
    np.testing.assert_array_equal(apart.value, fused.value)
    assert apart.key.strides[0] == 8 * 4
    assert fused.key.strides[0] == 6 * 8 * 4
    assert not np.array_equal(apart.key, apart.value)


def test_integer_caches_hold_a_code_and_padding_is_checked() -> None:
    case = flash_case(1, 1, 4, 8, cache_dtype="uint8")
    assert (case.caches()[0] == POISON_CODE).all()
    assert flash_case(2, 1, 4, 8, "uint16").key.dtype == np.uint16
    with pytest.raises(ArgumentError, match=r"padding = 3: must be 0 \.\. num_tokens = 2"):
        flash_case(2, 1, 4, 8, padding=3)


def test_the_oracle_writes_each_token_and_nothing_else() -> None:
    case = flash_case(5, 2, 4, 8, padding=1, extra_rows=2)
    whole, keys, values = oracle_flash.written(case)
    flat = keys.reshape(-1, 2, 4), values.reshape(-1, 2, 4)
    for token, slot in enumerate(case.slot_mapping):
        if slot >= 0:
            np.testing.assert_array_equal(flat[0][slot], case.key[token])
            np.testing.assert_array_equal(flat[1][slot], case.value[token])
    assert int((~np.isnan(whole)).sum()) == 4 * 2 * 2 * 4
    doubled, _, _ = oracle_flash.written(case, lambda row, head, side: row * (2 if side == "key" else head))
    assert np.nansum(doubled) != np.nansum(whole)
