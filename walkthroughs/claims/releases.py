"""What other releases of vLLM have, from the facts that drift committed: their files, and the tokens of each concept.

No source is needed for that. What drift does not follow is asked of a release's own source, by the other checks.
"""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase

from annotate.history import HOW, Facts, State
from annotate.tracks import tracks, wording
from walkthroughs.claims.context import Context, place_at
from walkthroughs.claims.kinds import Params
from walkthroughs.claims.model import CheckError, Finding, NotHere, Place

States = Mapping[str, State | None]


def has_file(context: Context, params: Params) -> Finding:
    """Whether a file that fits the pattern `file` is in release `at` is what `exists` says."""
    facts = _of(context, params["at"])
    paths = [path for path in facts.files if fnmatchcase(path, params["file"])]
    seen = f"{params['file']}: {'there' if paths else 'not there'}"
    places = tuple(place_at(facts.source, path, 1, 1) for path in paths[:3])
    return Finding(bool(paths) is params.get("exists", True), seen, places)


def has_concept(context: Context, params: Params) -> Finding:
    """Whether release `at` still has a `concept` is what `exists` says."""
    facts = _of(context, params["at"])
    states = _states(facts, params["concept"])
    there = any(states.values())
    seen = f"{params['concept']}: {'there' if there else 'not there'}{_guessed(states)}"
    return Finding(there is params.get("exists", True), seen, _places(facts, states))


def same_concept(context: Context, params: Params) -> Finding:
    """Whether a `concept` has the same tokens at `at` and at `same-as` is what `same` says."""
    facts, other = _of(context, params["at"]), _of(context, params["same-as"])
    states, others = _states(facts, params["concept"]), _states(other, params["concept"])
    same = any(states.values()) and _digests(states) == _digests(others)
    seen = f"{'the same' if same else 'other'} tokens{_guessed(states) or _guessed(others)}"
    places = (*_places(facts, states), *_places(other, others))
    return Finding(same is params.get("same", True), seen, places)


def changes(context: Context, params: Params) -> Finding:
    """From release `since` to `at`, the item `came` came to a `concept` and the item `went` went: loops, parameters."""
    facts = _of(context, params["at"])
    states = _states(facts, params["concept"])
    deltas = [facts.deltas[track] for track in states if track in facts.deltas]
    if any(delta.since != f"{facts.source.partition('@')[0]}@{params['since']}" for delta in deltas):
        raise CheckError(f"drift compares {params['at']} with {deltas[0].since}, not with {params['since']}")
    items = {"came": [name for delta in deltas for name in delta.new], "went": [n for d in deltas for n in d.old]}
    asked = [(key, params[key], params[key] in found) for key, found in items.items() if key in params]
    seen = [f"{sum(d.came for d in deltas)} tokens came, {sum(d.went for d in deltas)} went"]
    seen += [f"{name} {key}" if there else f"{name} is not among what {key}" for key, name, there in asked]
    return Finding(all(there for _, _, there in asked), "; ".join(seen), _places(facts, states))


def _of(context: Context, revision: str) -> Facts:
    if revision not in context.releases:
        raise NotHere(f"drift has no facts about vLLM {revision}. Take it in: annotate/sources.toml, then make drift")
    return context.releases[revision]


def _states(facts: Facts, concept: str) -> States:
    """Where a release has each piece of a concept. Raises NotHere where the facts say nothing of it."""
    followed = tracks(facts.source.partition("@")[0])
    found = {track.id: facts.states.get(track.id) for track in followed.values() if track.concept == concept}
    if not found:
        raise CheckError(f"drift does not follow {concept!r}")
    if facts.wording != wording(followed.values()):
        raise NotHere(f"drift's facts about {facts.source} belong to other anchors. Make them again: make drift")
    if any(state.how == "unreadable" for state in found.values() if state):
        raise NotHere(f"the parser could not read {concept} in {facts.source}")
    return found


def _digests(states: States) -> dict[str, str | None]:
    return {track: state.digest if state else None for track, state in states.items()}


def _guessed(states: States) -> str:
    """Say so where a place rests on likeness alone."""
    return next((f" ({HOW[state.how]})" for state in states.values() if state and state.guessed), "")


def _places(facts: Facts, states: States) -> tuple[Place, ...]:
    found = [state for state in states.values() if state]
    return tuple(place_at(facts.source, state.path, state.first, state.last) for state in found)
