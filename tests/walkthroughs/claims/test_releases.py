"""Facts about other releases: from what drift committed, from doctored facts, and from a release's own source."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from annotate.history import Delta, Facts, State
from annotate.sourcetree import SourceTree
from annotate.tracks import tracks, wording
from walkthroughs.claims.compute import compute
from walkthroughs.claims.context import Context
from walkthroughs.claims.dispatch import carry_out
from walkthroughs.claims.ledger import claim_of, claims
from walkthroughs.claims.model import CheckError, Finding, Result

SAID = wording(tracks().values())
WRITER = "reshape-and-cache"
TWO = "block-table-lookup"


def state(digest: str = "d", **changes: Any) -> State:
    return replace(State("csrc/a.cu", 3, 5, "f", digest, "t", "anchor", 1.0), **changes)


def facts(revision: str, states: Mapping[str, State | None], **changes: Any) -> Facts:
    return replace(Facts(f"vllm@{revision}", "sha256:0", states, SAID, ("csrc/a.cu", "vllm/b.py")), **changes)


def ask(*known: Facts, **params: Any) -> Finding:
    context = Context(releases={entry.revision: entry for entry in known}) if known else Context()
    return carry_out(context, "", "release", {key.replace("_", "-"): value for key, value in params.items()})


@pytest.mark.parametrize(
    ("params", "value"),
    [
        ({"file": "*a.cu"}, True),
        ({"file": "*a.cu", "exists": False}, False),
        ({"file": "*c.cu"}, False),
        ({"file": "*c.cu", "exists": False}, True),
    ],
)
def test_a_file_is_there_or_not(params: dict[str, Any], value: bool) -> None:
    found = ask(facts("0.11.0", {}), at="0.11.0", **params)
    assert found.value is value
    there = params["file"] == "*a.cu"
    assert [place.path for place in found.places] == (["csrc/a.cu"] if there else [])
    assert all(place.url.startswith("https://") and "v0.11.0" in place.url for place in found.places)


@pytest.mark.parametrize(("kept", "value"), [(state(), True), (None, False)])
def test_a_concept_is_there_or_gone(kept: State | None, value: bool) -> None:
    known = facts("0.11.0", {WRITER: kept})
    found = ask(known, at="0.11.0", concept=WRITER)
    assert found.value is value
    assert [(place.first, place.last) for place in found.places] == ([(3, 5)] if kept else [])
    assert ask(known, at="0.11.0", concept=WRITER, exists=False).value is not value


@pytest.mark.parametrize(
    ("old", "new", "same"),
    [
        (state("a"), state("a"), True),
        (state("a"), state("a", path="csrc/other.cu", first=70, last=72), True),
        (state("a"), state("b"), False),
        (None, state("b"), False),
        (None, None, False),
    ],
)
def test_the_same_concept_has_the_same_tokens(old: State | None, new: State | None, same: bool) -> None:
    known = facts("0.11.0", {WRITER: old}), facts("0.26.0", {WRITER: new})
    assert ask(*known, at="0.11.0", same_as="0.26.0", concept=WRITER).value is same
    assert ask(*known, at="0.11.0", same_as="0.26.0", concept=WRITER, same=False).value is not same


def test_a_concept_of_several_pieces_is_the_same_only_if_all_are() -> None:
    names = [track.id for track in tracks().values() if track.concept == TWO]
    assert len(names) > 1
    whole = facts("0.11.0", {name: state("a") for name in names})
    other = facts("0.26.0", {name: state("a") for name in names[:-1]} | {names[-1]: state("b")})
    assert ask(whole, facts("0.26.0", whole.states), at="0.11.0", same_as="0.26.0", concept=TWO).value is True
    assert ask(whole, other, at="0.11.0", same_as="0.26.0", concept=TWO).value is False


@pytest.mark.parametrize(
    ("params", "value"),
    [
        ({"went": "for(i)"}, True),
        ({"went": "call(f)"}, False),
        ({"came": "call(f)"}, True),
        ({"came": "for(i)"}, False),
        ({"came": "call(f)", "went": "for(i)"}, True),
        ({"came": "call(f)", "went": "for(j)"}, False),
    ],
)
def test_what_came_and_went_since_the_release_before(params: dict[str, Any], value: bool) -> None:
    delta = Delta("vllm@0.11.0", 4, 7, ("call(f)",), ("for(i)",))
    known = facts("0.11.2", {WRITER: state()}, deltas={WRITER: delta})
    found = ask(known, at="0.11.2", since="0.11.0", concept=WRITER, **params)
    assert found.value is value
    assert found.seen.startswith("4 tokens came, 7 went; ")
    with pytest.raises(CheckError, match=r"with vllm@0\.11\.0, not with 0\.9\.2"):
        ask(known, at="0.11.2", since="0.9.2", concept=WRITER, **params)


def test_nothing_went_where_nothing_changed() -> None:
    known = facts("0.11.2", {WRITER: state()})
    assert ask(known, at="0.11.2", since="0.11.0", concept=WRITER, went="for(i)").value is False


def test_a_guess_is_called_one() -> None:
    known = facts("0.11.0", {WRITER: state(how="followed", likeness=0.7)})
    assert "a guess" in ask(known, at="0.11.0", concept=WRITER).seen


@pytest.mark.parametrize(
    ("known", "says"),
    [
        (facts("0.9.2", {}), "no facts about vLLM 0.11.0"),
        (facts("0.11.0", {WRITER: state()}, wording="of other anchors"), "make drift"),
        (facts("0.11.0", {WRITER: state(how="unreadable")}), "could not read"),
    ],
)
def test_what_drift_cannot_say_is_unknown(known: Facts, says: str) -> None:
    found = ask(known, at="0.11.0", concept=WRITER)
    assert found.value is None
    assert says in found.seen


@pytest.mark.parametrize(
    ("params", "says"), [({}, "a file or a concept"), ({"concept": "dense-attention"}, "does not follow")]
)
def test_a_question_that_drift_does_not_take_is_a_wrong_check(params: dict[str, Any], says: str) -> None:
    with pytest.raises(CheckError, match=says):
        ask(facts("0.11.0", {}), at="0.11.0", **params)


# What facts.md and the ledger say of releases, from the committed facts alone.
@pytest.mark.parametrize(
    ("params", "value"),
    [
        ({"at": "0.24.0", "file": "*paged_attention_v[12].cu"}, True),
        ({"at": "0.25.0", "file": "*paged_attention_v[12].cu"}, False),
        ({"at": "0.24.0", "concept": "v1-entry"}, True),
        ({"at": "0.25.0", "concept": "v1-entry"}, False),
        ({"at": "0.11.0", "concept": WRITER, "same_as": "0.11.2"}, False),
        ({"at": "0.11.2", "concept": WRITER, "same_as": "0.32.0"}, True),
        ({"at": "0.11.2", "concept": WRITER, "since": "0.11.0", "went": "for(i by blockDim.x)"}, True),
        ({"at": "0.33.0", "concept": "write-to-paged-cache", "same_as": "0.32.0"}, False),
        ({"at": "0.33.0", "concept": "write-to-paged-cache", "since": "0.32.0", "came": "param(interleaved_v)"}, True),
        ({"at": "0.24.0", "concept": "flash-forward", "same_as": "0.26.0"}, False),
    ],
)
def test_the_committed_facts_answer_without_a_source(params: dict[str, Any], value: bool) -> None:
    assert ask(**params).value is value


def results_without_sources(doctored: Any) -> dict[str, Result]:
    context = Context(doctored.opener({}))
    return {name: compute(claim_of(name), context) for name in claims()}


def test_every_release_fact_of_the_ledger_is_answered_without_a_source(doctored: Any) -> None:
    seen = 0
    for result in results_without_sources(doctored).values():
        for fact, found in zip(result.claim.facts, result.findings, strict=True):
            if fact.check == "release":
                seen += 1
                assert found.value is True, (result.claim.id, fact.says, found.seen)
    assert seen >= 7


def test_a_release_that_was_not_fetched_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.setenv("PAGEWALK_CACHE", str(tmp_path))
    result = compute(claim_of("L1-31"), Context())
    assert (result.status, result.verdict) == ("unavailable", None)
    assert "pagewalk fetch vllm@0.6.6.post1" in result.message
    assert "pagewalk fetch --drift" in result.message
    assert "--drift" not in compute(claim_of("L1-11"), Context()).message


@pytest.mark.source
def test_the_old_rule_is_read_in_its_own_release(doctored: Any, vllm_066: SourceTree) -> None:
    claim = claim_of("L1-31")
    found = compute(claim, Context(doctored.opener({"vllm@0.6.6.post1": vllm_066})))
    assert (found.status, found.verdict) == ("passed", claim.expected)
    (place,) = found.places
    assert place.url.startswith("https://")
    assert "/v0.6.6.post1/vllm/attention/ops/paged_attn.py" in place.url
    changed = doctored.Doctored(vllm_066, [("paged_attn.py", "num_heads > 512", "num_heads > 1024")])
    assert compute(claim, Context(doctored.opener({"vllm@0.6.6.post1": changed}))).status == "failed"
    assert changed.hits > 0


def test_a_source_that_is_not_pinned_is_an_error() -> None:
    claim = claim_of("L1-31")
    wrong = [replace(f, params={**f.params, "source": "vllm@0.6.6"}) if f.check == "text" else f for f in claim.facts]
    result = compute(replace(claim, facts=tuple(wrong)), Context())
    assert (result.status, result.verdict) == ("error", None)
    assert "vllm@0.6.6.post1" in result.message
