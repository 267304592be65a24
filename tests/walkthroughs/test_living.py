"""Which walkthroughs describe living code, and what stands in the place of what left."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from annotate.drift import lanes_of
from annotate.history import Lane, committed
from walkthroughs.living import describes, since, successors, tally
from walkthroughs.step import registry, steps

NEWEST = "vllm@0.33.0"


@pytest.fixture(scope="module")
def lanes() -> Mapping[str, Lane]:
    return lanes_of(committed())


def test_nothing_has_changed_at_a_steps_own_release(lanes: Mapping[str, Lane]) -> None:
    followed = [step for step in steps().values() if step.source.startswith("vllm@")]
    assert len(followed) > 40
    for step in followed:
        assert {then.verdict for then in since(step, lanes, step.source)} <= {"same"}


def test_the_classic_walkthrough_describes_code_that_mostly_left(lanes: Mapping[str, Lane]) -> None:
    said, counted = describes(registry()["vllm-classic"], lanes, NEWEST)
    assert said == "part"
    assert counted == {"same": 6, "moved": 7, "changed": 4, "gone": 48}
    assert describes(registry()["vllm-classic"], lanes, "vllm@0.23.0")[0] == "all"


def test_todays_walkthrough_mostly_lives(lanes: Mapping[str, Lane]) -> None:
    said, counted = describes(registry()["vllm-live"], lanes, NEWEST)
    assert said in ("all", "part")
    assert counted.get("gone", 0) < sum(counted.values()) / 10


def test_our_own_code_is_not_followed(lanes: Mapping[str, Lane]) -> None:
    assert describes(registry()["paged-reference"], lanes, NEWEST) == ("unfollowed", {})
    assert describes(registry()["vllm-classic"], lanes, "vllm@9.9.9") == ("unfollowed", {})


def test_a_tally_counts_each_piece_once(lanes: Mapping[str, Lane]) -> None:
    step = next(step for step in steps().values() if step.source == "vllm@0.24.0")
    thens = since(step, lanes, NEWEST)
    assert thens
    assert tally([*thens, *thens]) == tally(thens)
    assert sum(tally(thens).values()) == len({then.track for then in thens})


def test_a_piece_of_the_same_concept_comes_first(lanes: Mapping[str, Lane]) -> None:
    (found,) = successors("block-table-walk", lanes)
    assert (found.track, found.kin, found.state.symbol) == ("block-table-walk#2", False, "kernel_paged_attention_2d")


def test_else_what_does_its_work_now(lanes: Mapping[str, Lane]) -> None:
    (found,) = successors("flash-unbind", lanes)
    assert (found.concept, found.kin) == ("flash-split", True)


def test_every_part_of_the_classic_kernel_has_something_in_its_place(lanes: Mapping[str, Lane]) -> None:
    for step in registry()["vllm-classic"].steps:
        for then in since(step, lanes, NEWEST):
            if then.verdict == "gone":
                assert successors(then.concept, lanes), then.concept


def test_successors_live_in_the_newest_release(lanes: Mapping[str, Lane]) -> None:
    from annotate.concepts import concepts

    for concept in concepts():
        for other in successors(concept, lanes):
            assert lanes[other.track].cells[-1].state == other.state
            assert lanes[other.track].cells[-1].source == NEWEST
