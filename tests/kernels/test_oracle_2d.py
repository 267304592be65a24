"""The 2d kernel's oracle against itself, against the plain oracle, and by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels import cases, oracle, oracle_2d

ROUNDING = 1e-11


@pytest.mark.parametrize("alibi", [False, True])
def test_without_a_window_it_is_plain_attention(alibi: bool) -> None:
    case = cases.decode_case((33, 0, 7), 4, 2, 16, 16, alibi=alibi, seed=1)
    assert np.allclose(oracle_2d.attention(case, eps=0), oracle.attention(case), atol=ROUNDING)
    assert np.allclose(oracle_2d.scores(case, 0, 3), oracle.logits(case, 0, 3), atol=0)


def test_a_window_is_attention_over_its_last_tokens() -> None:
    case = cases.decode_case((40,), 2, 1, 16, 16, seed=2, alibi=True)
    short = cases.DecodeCase(
        **{**vars(case), "keys": (case.keys[0][-9:],), "values": (case.values[0][-9:],), "seq_lens": np.array([9])}
    )
    assert np.allclose(oracle_2d.attention(case, 9, 0), oracle.attention(short), atol=ROUNDING)


def test_the_score_of_a_hidden_token_by_hand() -> None:
    case = cases.decode_case((5,), 2, 1, 8, 4, seed=3, alibi=True)
    found = oracle_2d.scores(case, 0, 1, window=2)
    slope = float(case.alibi_slopes[1])  # type: ignore[index]
    assert found[:3] == pytest.approx([-10000 + slope * d for d in (-4, -3, -2)])
    assert found[3:] == pytest.approx(oracle.logits(case, 0, 1)[3:])


@settings(max_examples=30)
@given(
    st.integers(1, 60), st.sampled_from([4, 8, 16]), st.sampled_from([0, 1, 5, 16, 100]), st.booleans(),
    st.integers(0, 99),
)  # fmt: skip
def test_the_last_state_holds_the_output_and_each_follows_from_the_one_before(
    length: int, tile: int, window: int, alibi: bool, seed: int
) -> None:
    case = cases.decode_case((length,), 2, 1, 8, tile, seed=seed, alibi=alibi)
    found = oracle_2d.states(case, 0, 1, tile, window)
    assert len(found) == -(-length // tile)
    truth = oracle_2d.attention(case, window, eps=0)[0, 1]
    assert np.allclose(found[-1].acc / found[-1].l, truth, atol=1e-9)
    row = oracle_2d.scores(case, 0, 1, window)
    total, acc = 0.0, np.zeros(8)
    for j, state in enumerate(found):
        p = np.exp(row[j * tile : (j + 1) * tile] - state.m)
        total = total * state.alpha + p.sum()
        acc = acc * state.alpha + p @ case.values[0][j * tile : (j + 1) * tile, 0].astype(np.float64)
        assert state.l == pytest.approx(total)
        assert np.allclose(state.acc, acc, atol=1e-9)
    assert found[0].alpha == 0


def test_a_tile_of_hidden_tokens() -> None:
    case = cases.decode_case((40,), 1, 1, 8, 16, seed=4)
    finite = oracle_2d.states(case, 0, 0, 16, window=4)
    assert (finite[0].m, finite[0].l) == (-10000, 16)
    assert finite[2].alpha == 0
    unified = oracle_2d.states(case, 0, 0, 16, window=4, outside=-np.inf)
    assert (unified[0].m, unified[0].l) == (0, 0)
    skipping = oracle_2d.states(case, 0, 0, 16, window=4, outside=-np.inf, first=2)
    assert len(skipping) == 1
    assert np.allclose(skipping[0].acc / skipping[0].l, finite[2].acc / finite[2].l)
