"""Which steps and walkthroughs still describe code that lives, by what drift found; and what came in its place."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from annotate.concepts import concepts
from annotate.history import Lane, State, verdict
from annotate.tracks import tracks
from walkthroughs.step import Step, Walkthrough


@dataclass(frozen=True)
class Then:
    """One piece of code that a step reads, as it was at the step's source and as it is in a later release."""

    track: str
    concept: str
    verdict: str
    before: State
    after: State | None


@dataclass(frozen=True)
class Successor:
    """A piece that lives in the place of one that left: of the same concept, or (`kin`) of one that does its work."""

    concept: str
    track: str
    state: State
    kin: bool


def lanes_of(concept: str, lanes: Mapping[str, Lane], name: str = "vllm") -> list[Lane]:
    """Return the lanes of a concept, those of its last anchors last."""
    return [lanes[track.id] for track in tracks(name).values() if track.concept == concept and track.id in lanes]


def since(step: Step, lanes: Mapping[str, Lane], release: str) -> list[Then]:
    """Return what became of everything that a step reads, from its source to a release.

    Nothing for a step whose source is not followed, or was not read by drift.
    """
    found = []
    for concept in step.reads:
        for lane in lanes_of(concept, lanes):
            home, there = lane.at(step.source), lane.at(release)
            if home is None or home.state is None or there is None:
                continue
            if (judged := verdict(home.state, there.state)) is not None:
                found.append(Then(lane.track, concept, judged, home.state, there.state))
    return found


def tally(thens: Iterable[Then]) -> dict[str, int]:
    """Count the verdicts, each piece once, in the order of how much is left."""
    seen = {then.track: then.verdict for then in thens}
    counted = Counter(seen.values())
    return {name: counted[name] for name in ("same", "moved", "reformatted", "changed", "gone") if counted[name]}


def describes(walkthrough: Walkthrough, lanes: Mapping[str, Lane], release: str) -> tuple[str, dict[str, int]]:
    """Say whether a walkthrough still describes living code: `all`, `part`, `none` or `unfollowed`, and the tally."""
    counted = tally(then for step in walkthrough.steps for then in since(step, lanes, release))
    if not counted:
        return "unfollowed", counted
    gone = counted.get("gone", 0)
    return "none" if gone == sum(counted.values()) else "part" if gone else "all", counted


def successors(concept: str, lanes: Mapping[str, Lane]) -> list[Successor]:
    """Return what lives of a concept in the newest release read; failing that, of those that do its work now."""
    own = _living(concept, lanes, kin=False)
    if own:
        return own
    return [other for near in concepts()[concept].now for other in _living(near, lanes, kin=True)]


def _living(concept: str, lanes: Mapping[str, Lane], *, kin: bool) -> list[Successor]:
    found = []
    for lane in lanes_of(concept, lanes):
        state = lane.cells[-1].state if lane.cells else None
        if state is not None:
            found.append(Successor(concept, lane.track, state, kin))
    return found
