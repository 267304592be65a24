"""Comparing what an engine did with the prediction: each kind of difference is found, and nothing else."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from walkthroughs.lab.environment import Lab
from walkthroughs.lab.predict import RUNNING, Moment, predict
from walkthroughs.lab.scenarios import Scenario, scenarios
from walkthroughs.lab.watch import Held, Result, Seen, differences, grouped, request, settings


def engine(scenario: Scenario) -> list[Seen]:
    """What an engine that does as predicted shows, with ids in the order of taking. Sharing is not made up here."""
    assert not any(row.hit for row in predict(scenario)[-1].rows)
    free, tables, found = list(range(1, scenario.num_blocks)), {}, []
    for moment in predict(scenario):
        for row in moment.rows:  # who gives back comes first, or the others would find too few
            if not row.blocks:
                free += tables.pop(row.name, [])
        for row in moment.rows:
            table = tables.setdefault(row.name, [])
            while len(table) < row.blocks:
                table.append(free.pop(0))
        held = {row.name: Held(row.status, tuple(tables.get(row.name, [])), row.generated, row.hit)
                for row in moment.rows}  # fmt: skip
        found.append(Seen(scenario.id, moment.step, moment.used, held))
    return found


def moment_and_seen(step: int) -> tuple[Moment, Seen, Seen]:
    scenario = scenarios()["several-32"]
    seen = engine(scenario)
    return predict(scenario)[step - 1], seen[step - 1], seen[step - 2]


@pytest.mark.parametrize("name", ["growing-32", "several-32", "demand-32", "demand-128"])
def test_an_engine_that_does_as_predicted_passes(name: str) -> None:
    scenario = scenarios()[name]
    result = Result(scenario, predict(scenario))
    for seen in engine(scenario):
        assert result.status == "failed"
        result.add(seen)
    assert result.mismatches == []
    assert result.status == "passed"


def changed(seen: Seen, name: str, **values: Any) -> Seen:
    return replace(seen, requests={**seen.requests, name: replace(seen.requests[name], **values)})


@pytest.mark.parametrize(
    ("values", "what"),
    [
        ({"status": "waiting"}, "state of b"),
        ({"generated": 99}, "tokens generated of b"),
        ({"hit": 32}, "tokens found in the cache of b"),
    ],
)
def test_a_changed_value_is_named(values: dict[str, Any], what: str) -> None:
    moment, seen, before = moment_and_seen(6)
    found = list(differences(moment, changed(seen, "b", **values), before, 65))
    assert [mismatch.what for mismatch in found] == [what]
    assert str(found[0]).startswith("after step 6: ")


def test_a_block_too_few_is_seen_in_the_table_and_in_the_ids() -> None:
    moment, seen, before = moment_and_seen(6)
    wrong = changed(seen, "b", blocks=seen.requests["b"].blocks[:-1])
    assert {m.what for m in differences(moment, wrong, before, 65)} == {
        "blocks of b",
        "ids of b",
        "different ids in all tables",
    }


def test_the_pools_own_count_is_compared() -> None:
    moment, seen, before = moment_and_seen(6)
    for wrong in (seen.used - 1, seen.used + 1):
        (found,) = differences(moment, replace(seen, used=wrong), before, 65)
        assert (found.what, found.observed) == ("blocks in use", str(wrong))


@pytest.mark.parametrize("number", [0, 65, -1])
def test_the_null_block_and_blocks_that_are_not_there_are_refused(number: int) -> None:
    moment, seen, _ = moment_and_seen(6)
    wrong = changed(seen, "a", blocks=(number,))
    assert [m.what for m in differences(moment, wrong, None, 65)] == ["ids of a"]


def test_a_block_twice_in_one_table_is_found() -> None:
    moment, seen, _ = moment_and_seen(6)
    first = seen.requests["b"].blocks[0]
    found = [m.predicted for m in differences(moment, changed(seen, "b", blocks=(first, first)), None, 65)]
    assert "each once" in found


def test_a_table_may_not_change_while_its_request_runs() -> None:
    moment, seen, before = moment_and_seen(6)
    assert seen.requests["b"].status == RUNNING
    other = changed(before, "b", blocks=(60, *before.requests["b"].blocks[1:]))
    assert [m.what for m in differences(moment, seen, other, 65)] == ["ids of b"]


def test_a_table_may_not_change_its_order_while_its_request_runs() -> None:
    moment, seen, before = moment_and_seen(6)
    assert len(seen.requests["b"].blocks) == len(before.requests["b"].blocks) == 2
    turned = changed(seen, "b", blocks=seen.requests["b"].blocks[::-1])
    assert [m.what for m in differences(moment, turned, before, 65)] == ["ids of b"]


def test_two_requests_on_one_block_without_sharing_are_found() -> None:
    moment, seen, _ = moment_and_seen(6)
    stolen = changed(seen, "a", blocks=seen.requests["b"].blocks[:1])
    assert "different ids in all tables" in [m.what for m in differences(moment, stolen, None, 65)]


def test_other_requests_and_more_steps_are_found() -> None:
    moment, seen, before = moment_and_seen(6)
    (found,) = differences(moment, replace(seen, requests={}), before, 65)
    assert (found.what, found.observed) == ("requests", "")
    scenario = scenarios()["growing-128"]
    result = Result(scenario, predict(scenario))
    for step in engine(scenario):
        result.add(step)
    result.add(replace(result.seen[-1], step=len(result.predicted) + 1))
    assert [m.what for m in result.mismatches] == ["steps"]
    assert result.status == "failed"


def test_an_engine_is_loaded_once_for_scenarios_with_one_pool(tmp_path: Any) -> None:
    chosen = grouped(scenarios().values())
    assert sorted(s.id for s in chosen) == sorted(scenarios())
    lab = Lab(tmp_path / "python", tmp_path / "model", tmp_path / "cache")
    engines = request(lab, chosen)["engines"]
    assert len(engines) == len({str(settings(scenario)) for scenario in chosen}) == 4
    assert [one["id"] for part in engines for one in part["scenarios"]] == [scenario.id for scenario in chosen]
    assert all(part["settings"]["load_format"] == "dummy" for part in engines)
    own = request(replace(lab, own=False), chosen)["engines"]
    assert not any("load_format" in part["settings"] for part in own)
