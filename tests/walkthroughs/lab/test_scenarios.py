"""The scenarios of the lab, and the model that they are run with."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from walkthroughs.lab import model
from walkthroughs.lab.predict import predict
from walkthroughs.lab.scenarios import Scenario, scenarios, tokens

ALL = list(scenarios().values())


def test_every_kind_comes_with_both_block_sizes() -> None:
    kinds = ("growing", "several", "shared", "demand")
    assert set(scenarios()) == {f"{kind}-{size}" for kind in kinds for size in (32, 128)}


def test_there_are_at_least_two_hundred_steps() -> None:
    assert sum(len(predict(scenario)) for scenario in ALL) >= 200


@pytest.mark.parametrize("scenario", ALL, ids=lambda scenario: scenario.id)
def test_moments_lie_within_and_ask_for_different_things(scenario: Scenario) -> None:
    moments = predict(scenario)
    assert scenario.moments
    assert all(1 <= step <= len(moments) for step in scenario.moments)
    assert len({moments[step - 1].used for step in scenario.moments}) > 1
    assert moments[-1].used == 0


@pytest.mark.parametrize("scenario", ALL, ids=lambda scenario: scenario.id)
def test_every_request_fits_the_model(scenario: Scenario) -> None:
    for ask in scenario.requests:
        assert len(ask.prompt) + ask.generate <= scenario.max_model_len <= model.MOST_TOKENS
        assert all(len(model.SPECIAL) <= token < model.VOCABULARY for token in ask.prompt)


def test_a_shared_prefix_hits_with_both_block_sizes_and_demand_preempts() -> None:
    for size in (32, 128):
        assert any(row.hit for row in predict(scenarios()[f"shared-{size}"])[-1].rows)
        events = [event.kind for moment in predict(scenarios()[f"demand-{size}"]) for event in moment.events]
        assert "preempted" in events


@given(st.text(max_size=8), st.integers(0, 50), st.integers(0, 50))
def test_tokens_are_the_same_each_time_and_grow_at_their_end(seed: str, short: int, more: int) -> None:
    assert tokens(seed, short + more)[:short] == tokens(seed, short)


def test_the_model_is_three_files_that_agree(tmp_path: Path) -> None:
    model.write(tmp_path / "model")
    read = {path.name: json.loads(path.read_text()) for path in (tmp_path / "model").iterdir()}
    assert set(read) == {"config.json", "tokenizer.json", "tokenizer_config.json"}
    config, vocabulary = read["config.json"], read["tokenizer.json"]["model"]["vocab"]
    assert sorted(vocabulary.values()) == list(range(config["vocab_size"]))
    assert vocabulary[read["tokenizer_config.json"]["eos_token"]] == config["eos_token_id"]
    assert vocabulary[read["tokenizer_config.json"]["bos_token"]] == config["bos_token_id"]
    assert config["num_attention_heads"] * config["head_dim"] == config["hidden_size"]


def test_words_stand_for_their_ids() -> None:
    ids = tokens("x", 20)
    assert tuple(model.words()[word] for word in model.text(ids).split()) == ids
