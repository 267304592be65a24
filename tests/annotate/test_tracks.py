"""One track a piece of code: what is paired over releases, what is not, and what a reworded anchor changes."""

from __future__ import annotations

import dataclasses

from annotate.concepts import Place, concepts
from annotate.tracks import Track, tracks, wording

OLD, NEW = "vllm@0.24.0", "vllm@0.26.0"


def test_every_anchor_of_the_table_is_in_exactly_one_track() -> None:
    listed = [
        (c.id, source, place)
        for c in concepts().values()
        for source in (OLD, NEW)
        for place in c.anchors.get(source, ())
    ]
    followed = [(t.concept, source, place) for t in tracks().values() for source, place in t.places.items()]
    assert sorted(map(str, listed)) == sorted(map(str, followed))
    assert len(listed) > 250


def test_a_landmark_that_was_rewritten_is_the_same_piece() -> None:
    track = tracks()["slot-formula"]
    assert list(track.places) == [OLD, NEW]
    assert track.places[OLD].landmark != track.places[NEW].landmark


def test_another_symbol_is_another_piece() -> None:
    first, second = tracks()["block-table-walk#1"], tracks()["block-table-walk#2"]
    assert (list(first.places), list(second.places)) == ([OLD], [NEW])
    assert first.symbol != second.symbol
    assert "block-table-walk" not in tracks()


def test_two_anchors_in_one_symbol_stay_two() -> None:
    first, second = tracks()["k-store#1"], tracks()["k-store#2"]
    assert first.symbol == second.symbol
    assert first.places[OLD].landmark != second.places[OLD].landmark


def test_the_wording_nearest_in_time_is_used() -> None:
    both = tracks()["slot-formula"]
    asked = {source: both.origin(source) for source in ("vllm@0.6.6.post1", OLD, "vllm@0.25.0", NEW, "vllm@0.100.0")}
    assert [*asked.values()] == [OLD, OLD, OLD, NEW, NEW]
    late = tracks()["fa2-call"]
    assert {late.origin(source) for source in asked} == {NEW}


def test_sources_that_are_not_followed_have_no_tracks() -> None:
    assert tracks("no-such-source") == {}


def test_the_wording_changes_with_any_part_of_an_anchor() -> None:
    track = Track("a", "a", {OLD: Place("f", "call(g)", None)})
    said = wording([track])
    others = [
        Place("h", "call(g)", None),
        Place("f", "call(h)", None),
        Place("f", None, None),
        Place("f", "call(g)", "x.py"),
    ]
    changed = [wording([dataclasses.replace(track, places={OLD: place})]) for place in others]
    changed += [
        wording([dataclasses.replace(track, places={NEW: track.places[OLD]})]),
        wording([track, track]),
        wording([]),
    ]
    assert len({said, *changed}) == len(changed) + 1
    assert wording([track]) == said
