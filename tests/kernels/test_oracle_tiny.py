"""The oracle of tiny-vllm's kernel, held against the other oracle, against torch's habits, and against plain loops."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernels import oracle, oracle_tiny
from kernels.cases import decode_case

CASE = decode_case([21, 1], 8, 2, 64, 16, seed=1)


def test_products_add_up_to_the_logits():
    for seq in (0, 1):
        for head in range(8):
            sums = oracle_tiny.products(CASE, seq, head).sum(axis=1) / 8
            np.testing.assert_allclose(sums, oracle.logits(CASE, seq, head), atol=1e-12)


def test_after_five_shuffles_lane_0_has_the_sum_and_lane_31_only_its_own():
    lanes = np.arange(32.0)
    after = oracle_tiny.shuffled(lanes)
    assert len(after) == 5
    assert [after[-1][lane] for lane in (0, 1, 31)] == [496, 512, 992]


@given(st.lists(st.integers(-9, 9), min_size=32, max_size=32))
def test_lane_0_always_has_the_sum(values):
    assert oracle_tiny.shuffled(np.array(values, float))[-1][0] == sum(values)


def test_running_ends_where_the_whole_ends():
    scores, values = oracle.logits(CASE, 0, 5), CASE.values[0][:, 1].astype(np.float64)
    m, d, acc = oracle_tiny.running(scores, values)
    assert (m[0], d[0]) == (scores[0], 1.0)
    assert m.tolist() == np.maximum.accumulate(scores).tolist()
    np.testing.assert_allclose(acc[-1] / d[-1], oracle.output(CASE, 0, 5), atol=1e-12)
    np.testing.assert_allclose(acc[-1] / d[-1], oracle_tiny.mean(scores, values), atol=1e-12)


def test_reading_late_spoils_the_second_half_only():
    exact, late = oracle.attention(CASE), oracle_tiny.late(CASE)
    np.testing.assert_allclose(late[..., :32], exact[..., :32], atol=1e-12)
    assert np.abs(late[0, :, 32:] - exact[0, :, 32:]).max() > 0.1
    # A lone token has no next one.
    np.testing.assert_allclose(late[1], exact[1], atol=1e-12)


def test_reading_late_by_hand():
    case = decode_case([3], 4, 1, 64, 16, seed=2)
    q, keys, values = case.q[0, 0].astype(float), case.keys[0][:, 0].astype(float), case.values[0][:, 0].astype(float)
    scores = [
        sum(q[d] * keys[1, d] for d in range(32)),
        sum(q[d] * keys[2, d] for d in range(32)),
        sum(q[d] * keys[2, d] for d in range(64)) / 8,
    ]
    weights = [math.exp(score - max(scores)) for score in scores]
    expected = sum(w * value for w, value in zip(weights, values, strict=True)) / sum(weights)
    np.testing.assert_allclose(oracle_tiny.late(case)[0, 0, 32:], expected[32:], atol=1e-12)


@pytest.mark.parametrize(("elements", "divisor", "same"), [(64, 8.0, True), (32, 8.0, False), (64, 4.0, False)])
def test_first_elements(elements, divisor, same):
    found = oracle_tiny.first_elements(CASE, elements, divisor)
    assert bool(np.allclose(found, oracle.attention(CASE), atol=1e-12)) is same
