"""The prediction: against the formula, and against a second simulation that counts tokens one by one."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernels.errors import ArgumentError
from walkthroughs.lab.predict import FINISHED, RUNNING, Moment, Scheduler, blocks_held, predict
from walkthroughs.lab.scenarios import Ask, Scenario, scenarios, tokens

SIZES = st.sampled_from([1, 4, 32, 128])


class Plain:
    """The same rules again, without tables: each request is a set of (owner, block) pairs, made token by token."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario, self.step = scenario, 0
        self.asks = sorted(scenario.requests, key=lambda ask: ask.arrives)
        self.line: list[dict[str, Any]] = []  # those who wait, the next one first
        self.running: list[dict[str, Any]] = []
        self.all: list[dict[str, Any]] = []

    def free(self) -> int:
        return self.scenario.num_blocks - 1 - len(set().union(*(one["held"] for one in self.running)))

    def place(self, one: dict[str, Any], position: int) -> tuple[Any, int]:
        """Whose block a position is in: that of a request with the same tokens up to the block's end, or its own."""
        block, size = position // self.scenario.block_size, self.scenario.block_size
        end = (block + 1) * size
        if position < one["hit now"]:
            for other in self.running:
                if other is not one and other["ask"].prompt[:end] == one["ask"].prompt[:end] and other["done"] >= end:
                    return next(held for held in other["held"] if held[1] == block)
        return one["key"], block

    def grow(self, one: dict[str, Any], count: int) -> bool:
        wanted = set(one["held"])
        for position in range(one["done"], one["done"] + count):
            wanted.add(self.place(one, position))
        if len(wanted - one["held"]) > self.free():
            return False
        one["held"], one["done"] = wanted, one["done"] + count
        return True

    def advance(self) -> dict[str, tuple[int, int]]:
        self.step += 1
        while self.asks and self.asks[0].arrives <= self.step:
            ask = self.asks.pop(0)
            one = {"ask": ask, "key": ask.name, "held": set(), "done": 0, "said": 0, "hit now": 0}
            self.line.append(one)
            self.all.append(one)
        budget, gone, index = self.scenario.batch_tokens, False, 0
        while index < len(self.running) and budget > 0:
            one = self.running[index]
            count = min(len(one["ask"].prompt) + one["said"] - one["done"], budget)
            if self.grow(one, count):
                budget -= count
                index += 1
                continue
            gone = True
            last = self.running.pop()
            last.update(held=set(), done=0)
            self.line.insert(0, last)
        while not gone and self.line and budget > 0 and len(self.running) < self.scenario.max_seqs:
            one = self.line[0]
            total = len(one["ask"].prompt) + one["said"]
            one["hit now"] = self.hit(one, total)
            self.running.append(one)
            whole = {self.place(one, position) for position in range(total)}
            self.running.remove(one)
            if len(whole - set().union(*(other["held"] for other in self.running))) > self.free():
                break
            count = min(total - one["hit now"], budget)
            self.line.pop(0)
            self.running.append(one)
            one["held"] = {self.place(one, position) for position in range(one["hit now"] + count)}
            one["done"] = one["hit now"] + count
            budget -= count
        for one in list(self.running):
            if one["done"] == len(one["ask"].prompt) + one["said"]:
                one["said"] += 1
                if one["said"] == one["ask"].generate:
                    self.running.remove(one)
                    one.update(held=set(), ended=True)
        return {one["ask"].name: (len(one["held"]), one["said"]) for one in self.all}

    def hit(self, one: dict[str, Any], total: int) -> int:
        if not self.scenario.sharing:
            return 0
        size, best = self.scenario.block_size, 0
        for other in self.all:
            if other is one or not (other["held"] or other.get("ended")):
                continue
            same = 0
            for left, right in zip(other["ask"].prompt, one["ask"].prompt, strict=False):
                if left != right:
                    break
                same += 1
            there = same if other.get("ended") else min(same, other["done"])
            best = max(best, min(there, total - 1) // size * size)
        return best


def in_use(plain: Plain) -> int:
    return len(set().union(set(), *(one["held"] for one in plain.running)))


def one_by_one(scenario: Scenario, moments: tuple[Moment, ...]) -> None:
    plain = Plain(scenario)
    for moment in moments:
        expected = plain.advance()
        assert {row.name: (row.blocks, row.generated) for row in moment.rows} == expected, moment.step
        assert moment.used == in_use(plain), moment.step


@pytest.mark.parametrize("scenario", scenarios().values(), ids=lambda scenario: scenario.id)
def test_scenarios_against_the_second_simulation(scenario: Scenario) -> None:
    one_by_one(scenario, predict(scenario))


@given(SIZES, st.integers(1, 300), st.integers(1, 80))
def test_one_sequence_is_the_formula(size: int, prompt: int, generate: int) -> None:
    most = math.ceil((prompt + generate - 1) / size)
    scenario = Scenario("one", "", size, most + 1, (Ask("a", tokens("x", prompt), generate),), batch_tokens=400)
    moments = predict(scenario)
    assert len(moments) == generate
    for number, moment in enumerate(moments[:-1], 1):
        assert moment.used == math.ceil((prompt + number - 1) / size) == blocks_held(prompt, number, size)
    assert (moments[-1].used, moments[-1].rows[0].status) == (0, FINISHED)


@given(
    SIZES,
    st.lists(st.tuples(st.integers(1, 140), st.integers(1, 30), st.integers(1, 12)), min_size=1, max_size=5),
)
def test_several_are_the_sum_of_their_formulas(size: int, lengths: list[tuple[int, int, int]]) -> None:
    asks = tuple(Ask(str(n), tokens(str(n), prompt), *rest) for n, (prompt, *rest) in enumerate(lengths))
    scenario = Scenario("several", "", size, 1000, asks, sharing=False)
    for moment in predict(scenario):
        expected = 0
        for ask in asks:
            generated = moment.step - ask.arrives + 1
            if 0 < generated < ask.generate:
                expected += math.ceil((len(ask.prompt) + generated - 1) / size)
        assert moment.used == expected


def asks_of(lengths: list[tuple[int, int, int, int]], alphabet: int) -> tuple[Ask, ...]:
    """Requests over few different tokens, so that prefixes are common; the seed says which."""
    return tuple(
        Ask(str(n), tuple(3 + token % alphabet for token in tokens(str(seed), prompt)), generate, arrives)
        for n, (prompt, generate, arrives, seed) in enumerate(lengths)
    )


LENGTHS = st.lists(
    st.tuples(st.integers(1, 40), st.integers(1, 25), st.integers(1, 8), st.integers(0, 2)), min_size=1, max_size=6
)


@given(LENGTHS, st.sampled_from([1, 4, 8]), st.integers(1, 6), st.integers(1, 60), st.integers(0, 10))
def test_pressure_against_the_second_simulation(
    lengths: list[tuple[int, int, int, int]], size: int, seqs: int, budget: int, spare: int
) -> None:
    asks = asks_of(lengths, 1000)
    most = max(math.ceil((len(ask.prompt) + ask.generate - 1) / size) for ask in asks)
    scenario = Scenario("demand", "", size, most + 1 + spare, asks, sharing=False, max_seqs=seqs, batch_tokens=budget)
    moments = predict(scenario)
    one_by_one(scenario, moments)
    assert all(moment.used <= most + spare for moment in moments)
    assert {row.name: row.generated for row in moments[-1].rows} == {ask.name: ask.generate for ask in asks}
    assert moments[-1].used == 0


@given(LENGTHS, st.sampled_from([1, 4, 8]), st.integers(1, 6), st.integers(1, 60), st.sampled_from([1, 3, 1000]))
def test_sharing_against_the_second_simulation(
    lengths: list[tuple[int, int, int, int]], size: int, seqs: int, budget: int, alphabet: int
) -> None:
    scenario = Scenario("shared", "", size, 500, asks_of(lengths, alphabet), max_seqs=seqs, batch_tokens=budget)
    moments = predict(scenario)
    one_by_one(scenario, moments)
    for row in moments[-1].rows:
        assert row.hit % size == 0
        assert row.hit < len(next(ask.prompt for ask in scenario.requests if ask.name == row.name))


def test_pressure_is_tried_at_all() -> None:
    kinds = [event.kind for moment in predict(scenarios()["demand-32"]) for event in moment.events]
    assert kinds.count("preempted") >= 2
    waits = [row.status for moment in predict(scenarios()["demand-32"]) for row in moment.rows]
    assert "waiting" in waits
    assert "preempted" in waits


@pytest.mark.parametrize(("size", "hit"), [(16, 96), (32, 96), (128, 0)])
def test_a_shared_prefix_of_a_hundred_tokens(size: int, hit: int) -> None:
    """Hits are whole blocks: floor(100 / block size) of them."""
    common = tokens("common", 100)
    asks = tuple(Ask(str(n), common + tokens(str(n), 20), 5) for n in range(3))
    moment = predict(Scenario("three", "", size, 60, asks))[0]
    assert [row.hit for row in moment.rows] == [0, hit, hit]
    assert moment.used == 3 * math.ceil(120 / size) - 2 * (hit // size)


def test_the_last_token_of_a_prompt_is_never_found() -> None:
    prompt = tokens("same", 64)
    moment = predict(Scenario("twice", "", 32, 30, (Ask("a", prompt, 3), Ask("b", prompt, 3))))[0]
    assert [row.hit for row in moment.rows] == [0, 32]
    assert moment.used == 3


def test_what_was_let_go_is_still_found() -> None:
    prompt = tokens("same", 70)
    asks = (Ask("a", prompt, 2), Ask("b", prompt, 2, arrives=4))
    moments = predict(Scenario("later", "", 32, 30, asks))
    assert [moment.used for moment in moments] == [3, 0, 0, 3, 0]
    assert moments[3].rows[1].hit == 64


def test_events_tell_of_blocks() -> None:
    asks = (Ask("a", tokens("a", 4), 3),)
    found = [[(e.kind, e.blocks) for e in m.events] for m in predict(Scenario("e", "", 4, 9, asks))]
    assert found == [[("admitted", 1)], [("edge", 1)], [("freed", 2)]]


def test_the_newest_token_has_no_block_yet() -> None:
    """32 tokens in all after the first step, one of them just generated: one block holds the others."""
    asks = (Ask("a", tokens("a", 32), 3),)
    assert [m.used for m in predict(Scenario("e", "", 32, 9, asks))] == [1, 2, 0]


def test_refusals() -> None:
    good = scenarios()["shared-32"]
    for wrong in ({"num_blocks": 4}, {"num_blocks": 15}, {"requests": ()}, {"max_seqs": 0}, {"batch_tokens": 0}):
        with pytest.raises(ArgumentError):
            replace(good, **wrong)
    with pytest.raises(ArgumentError, match="different names"):
        replace(good, requests=(good.requests[0], good.requests[0]))
    for bad in ({"generate": 0}, {"arrives": 0}, {"prompt": ()}):
        with pytest.raises(ArgumentError):
            replace(good.requests[0], **bad)


def test_nothing_outlives_a_scenario() -> None:
    scheduler = Scheduler(scenarios()["demand-128"])
    while not scheduler.done:
        moment = scheduler.advance()
    assert scheduler.pool.num_used == 0
    assert not any(row.status == RUNNING for row in moment.rows)
