"""What the metrics may say: the bounds against every way in which the tokens can be spread, one by one."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from walkthroughs.lab.metrics import Scrape, State, bounds, exact, read

PAGE = """# HELP vllm:kv_cache_usage_perc Usage.
# TYPE vllm:kv_cache_usage_perc gauge
vllm:kv_cache_usage_perc{engine="0",model_name="lab"} 0.046875
vllm:num_requests_running{engine="0",model_name="lab"} 2.0
vllm:num_requests_waiting{engine="0",model_name="lab"} 1.0
vllm:generation_tokens_total{engine="0",model_name="lab"} 1.2e+01
vllm:generation_tokens_total{engine="1",model_name="lab"} 3.0
vllm:generation_tokens_created{engine="0",model_name="lab"} 1.7e+09
vllm:prefix_cache_hits_total{engine="0",model_name="lab"} 96.0
vllm:num_preemptions_total{engine="0",model_name="lab"} 4.0
process_resident_memory_bytes 7.0
"""


def test_a_page_is_read() -> None:
    assert read(PAGE, 65) == Scrape(used=3, generated=15, running=2, waiting=1, hits=96, preemptions=4)


@given(st.integers(2, 5000), st.data())
def test_usage_gives_the_blocks_back_exactly(num_blocks: int, data: st.DataObject) -> None:
    used = data.draw(st.integers(0, num_blocks - 1))
    page = PAGE.replace("0.046875", repr(used / (num_blocks - 1)))
    assert read(page, num_blocks).used == used


@pytest.mark.parametrize("name", ["kv_cache_usage_perc", "generation_tokens_total", "num_preemptions_total"])
def test_a_metric_that_is_not_there_is_named(name: str) -> None:
    with pytest.raises(LookupError, match=f"/metrics has no vllm:{name}"):
        read(PAGE.replace(f"vllm:{name}", "vllm:other"), 65)


def held(prompt: int, generate: int, generated: int, size: int) -> int:
    return math.ceil((prompt + generated - 1) / size) if 0 < generated < generate else 0


STATES = st.lists(
    st.tuples(st.integers(1, 40), st.integers(1, 6), st.integers(0, 6), st.booleans()), min_size=1, max_size=3
)


@given(STATES, st.integers(0, 8), st.sampled_from([1, 4, 16]))
def test_bounds_hold_every_way_to_spread_the_tokens(
    rows: list[tuple[int, int, int, bool]], ahead: int, size: int
) -> None:
    states = [
        State(prompt, generate, min(received, generate) if sent else 0, sent)
        for prompt, generate, received, sent in rows
    ]
    generated = sum(state.received for state in states) + ahead
    low, high = bounds(states, generated, size)
    ways = [range(state.received, state.generate + 1 if state.sent else 1) for state in states]
    for way in itertools.product(*ways):
        if sum(way) == generated:
            used = sum(held(s.prompt, s.generate, n, size) for s, n in zip(states, way, strict=True))
            assert low <= used <= high, way


@given(st.integers(1, 40), st.integers(1, 6), st.integers(0, 6), st.integers(0, 8), st.sampled_from([1, 4, 16]))
def test_bounds_of_one_are_no_wider_than_what_it_can_hold(
    prompt: int, generate: int, received: int, ahead: int, size: int
) -> None:
    received = min(received, generate)
    can = [held(prompt, generate, n, size) for n in range(received, min(received + ahead, generate) + 1)]
    if not received:  # it may be in, and its first token not yet said
        can.append(math.ceil(prompt / size))
    assert bounds([State(prompt, generate, received, True)], received + ahead, size) == (min(can), max(can))


@given(st.integers(1, 200), st.integers(2, 50), st.sampled_from([16, 32, 128]), st.data())
def test_a_single_request_has_one_value(prompt: int, generate: int, size: int, data: st.DataObject) -> None:
    generated = data.draw(st.integers(0, generate))
    assert exact(prompt, generate, generated, size) == held(prompt, generate, generated, size)
    if generated:
        low, high = bounds([State(prompt, generate, generated, True)], generated, size)
        assert low == high == exact(prompt, generate, generated, size)


def test_what_was_not_sent_holds_nothing() -> None:
    assert bounds([State(100, 10, 0, False)], 0, 32) == (0, 0)


def test_what_was_sent_and_said_nothing_may_hold_its_prompt_or_nothing() -> None:
    assert bounds([State(100, 10, 0, True)], 0, 32) == (0, 4)
