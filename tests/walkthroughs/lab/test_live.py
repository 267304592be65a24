"""The real engine, step by step against the prediction: every scenario, in one process."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from walkthroughs.kin import Kin
from walkthroughs.lab import environment, process, record
from walkthroughs.lab.environment import Lab
from walkthroughs.lab.errors import EngineFailed
from walkthroughs.lab.process import Limits
from walkthroughs.lab.scenarios import scenarios
from walkthroughs.lab.watch import About, Result, grouped, watch

NAMES = list(scenarios())


@pytest.fixture(scope="module")
def about() -> About:
    return About()


@pytest.fixture(scope="module")
def results(lab: Lab, about: About) -> Mapping[str, Result]:
    """One run of everything."""
    steps = watch(lab, grouped(scenarios().values()), about, Limits(seconds=600.0))
    return {item[0].scenario.id: item[0] for item in steps if item is not None}


def test_over_two_hundred_steps_nothing_differs(results: Mapping[str, Result]) -> None:
    assert sum(len(result.seen) for result in results.values()) >= 200
    assert [str(mismatch) for result in results.values() for mismatch in result.mismatches] == []


@pytest.mark.parametrize("name", NAMES)
def test_every_scenario_is_seen_to_its_end(results: Mapping[str, Result], name: str) -> None:
    result = results[name]
    assert result.status == "passed"
    assert len(result.seen) == len(result.predicted)
    last = result.seen[-1]
    assert last.used == 0
    for ask in result.scenario.requests:
        held = last.requests[ask.name]
        assert (held.status, len(held.tokens)) == ("finished", ask.generate)


def test_pressure_and_sharing_were_seen(results: Mapping[str, Result]) -> None:
    """Not only predicted: without them the comparison would say little."""
    for size in (32, 128):
        states = {held.status for seen in results[f"demand-{size}"].seen for held in seen.requests.values()}
        assert {"waiting", "running", "preempted", "finished"} <= states
        shared = results[f"shared-{size}"].seen
        assert max(sum(len(h.blocks) for h in seen.requests.values()) - seen.used for seen in shared) > 0


def test_sharers_have_the_same_ids_in_front(results: Mapping[str, Result]) -> None:
    seen = results["shared-32"].seen[0]
    one, two = seen.requests["a"].blocks, seen.requests["b"].blocks
    assert one[:3] == two[:3]
    assert not set(one[3:]) & set(two[3:])


def test_the_same_ids_as_in_the_record(results: Mapping[str, Result]) -> None:
    """The engine is deterministic: on another machine, another day, the same blocks in the same order."""
    committed = record.load()
    assert committed is not None
    for kept in committed.scenarios:
        assert record.keep(results[kept.id]).tables == kept.tables


def test_it_says_what_ran(results: Mapping[str, Result], about: About) -> None:
    assert (about.versions["vllm"], about.device) == ("0.32.0", "CPU")
    assert about.importing > 0 < about.loading


def test_an_engine_that_cannot_load_says_why(tmp_path: Path) -> None:
    """Our own Python has no vLLM: what the script says of it comes through, and its process is gone."""
    lab = Lab(Path(sys.executable), tmp_path, tmp_path, own=False)
    told = process.events(lab.python, environment.ENGINE, {"engines": []}, lab.variables(), Limits(60.0))
    with pytest.raises(EngineFailed, match="ModuleNotFoundError: No module named 'vllm'"):
        list(told)
    assert Kin().processes() == []
