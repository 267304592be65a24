"""One anchor over many releases: read each release, follow every track into it, and lay the answers side by side.

Every release is compared with the one that an anchor was written for, never with its neighbour, so that
releases can be read in any order, one that cannot be had hurts no other, and the work is linear in their number.
What was read is kept in the cache by digest.
"""

from __future__ import annotations

import hashlib
import itertools
import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path

from annotate import history
from annotate.anchors import Anchor, Files, Library
from annotate.errors import AnnotateError, ReleaseUnreadable
from annotate.files import write_text
from annotate.follow import Origin, Release, follow, origin_of
from annotate.history import Delta, Facts, Lane, State
from annotate.likeness import Hunk, changes, count
from annotate.releases import order
from annotate.sourcetree import Pin, SourceTree, pin_of
from annotate.tracks import Track, tracks, wording

# What is named first where much came or went, and how much is named.
KINDS = ("for", "while", "param", "launch", "call", "if", "switch", "return", "arg", "decl", "assign")
NAMED = 12
# Everything that a reading depends on beside the archive: another version of these reads anew.
_CODE = ("anchors", "follow", "grammar", "headings", "history", "landmarks", "likeness", "masks", "outline", "tracks")


@dataclass(frozen=True)
class Reading:
    """What one release holds: its facts, and the tokens of each piece for the diffs (never committed).

    `items` are what the tokens make up: loops, declarations, calls, by name.
    """

    facts: Facts
    tokens: Mapping[str, tuple[str, ...]]
    items: Mapping[str, tuple[str, ...]]


@dataclass
class Origins:
    """The releases that anchors were written for, read at most once and only if a release is not in the cache."""

    opened: Callable[[str], Files]
    chosen: Mapping[str, Track]
    _read: dict[str, dict[str, Origin]] = field(default_factory=dict)
    _names: dict[str, frozenset[str]] = field(default_factory=dict)

    def of(self, source: str) -> dict[str, Origin]:
        """Return the origins that a release has, by track. Raises AnnotateError if one does not resolve there."""
        if source not in self._read:
            library = Library(self.opened(source))
            self._read[source] = {
                track.id: origin_of(anchor_of(track, source), library, _others(track, source))
                for track in self.chosen.values()
                if source in track.places
            }
            self._names[source] = frozenset(symbol.name for tree in library.trees() for symbol in tree.symbols)
        return self._read[source]

    def names(self, source: str) -> frozenset[str]:
        """Return the names of all symbols of a release."""
        self.of(source)
        return self._names[source]


def anchor_of(track: Track, source: str) -> Anchor:
    """Return a track's anchor as it is worded for a release."""
    place = track.places[source]
    return Anchor(source, place.symbol, place.landmark, track.concept, place.file or "*")


def _others(track: Track, source: str) -> list[Anchor]:
    return [anchor_of(track, other) for other in [*track.places][::-1] if other != source]


def read(source: str, files: Files, pin: str, origins: Origins) -> Reading:
    """Follow every track into one release. Raises AnnotateError if an origin's own release cannot be had."""
    release = Release(source, Library(files))
    states: dict[str, State | None] = {}
    tokens, items = {}, {}
    for track in origins.chosen.values():
        home = track.origin(source)
        found = follow(origins.of(home)[track.id], release, origins.names(home))
        states[track.id] = found.state
        if found.state is not None:
            tokens[track.id], items[track.id] = found.tokens, found.items
    said = wording(origins.chosen.values())
    return Reading(Facts(source, pin, states, said, tuple(files.paths())), tokens, items)


def diff(before: Reading, after: Reading, track: str) -> list[Hunk]:
    """Return the tokens of one piece that differ between two readings; empty where it is missing in one."""
    if track not in before.tokens or track not in after.tokens:
        return []
    return changes(before.tokens[track], after.tokens[track])


def delta(before: Reading, after: Reading, track: str) -> Delta:
    """Return what came and went of one piece between two readings, in numbers and by name."""
    old, new = Counter(before.items.get(track, ())), Counter(after.items.get(track, ()))
    named = [_shortened((one - other).elements()) for one, other in ((new, old), (old, new))]
    return Delta(before.facts.source, *count(diff(before, after, track)), *named)


def _shortened(names: Iterable[str]) -> tuple[str, ...]:
    listed = sorted(names, key=lambda name: (KINDS.index(name.partition("(")[0]), name))
    return (*listed[:NAMED], *([f"{len(listed) - NAMED} more"] if len(listed) > NAMED else []))


def with_deltas(readings: Iterable[Reading]) -> list[Facts]:
    """Return the facts of several releases, the oldest first, with what came and went since the one before."""
    ordered = sorted(readings, key=lambda reading: order(reading.facts.revision))
    found = [reading.facts for reading in ordered[:1]]
    for before, after in itertools.pairwise(ordered):
        deltas = {
            track: delta(before, after, track)
            for track, state in after.facts.states.items()
            if history.verdict(before.facts.states.get(track), state) == "changed"
        }
        found.append(replace(after.facts, deltas=deltas))
    return found


def lanes_of(facts: Iterable[Facts], name: str = "vllm") -> dict[str, Lane]:
    """Lay facts side by side; `as_written` compares with the newest release that an anchor is worded for."""
    return history.lanes(facts, {track.id: list(track.places)[-1] for track in tracks(name).values()})


def survey(
    pins: Iterable[Pin],
    opened: Callable[[Pin], SourceTree],
    *,
    chosen: Mapping[str, Track] | None = None,
    cache: Path | None = None,
) -> dict[str, Reading | AnnotateError]:
    """Read several releases; an error stands in the place of one that cannot be had or read.

    `opened` fetches or opens a release. Readings are kept in `cache` (a folder) and taken from there where nothing that
    they depend on has changed.
    """
    chosen = tracks() if chosen is None else chosen
    trees: dict[str, SourceTree] = {}

    def tree_of(pin: Pin) -> SourceTree:
        if pin.id not in trees:
            trees[pin.id] = opened(pin).followed()
        return trees[pin.id]

    origins = Origins(lambda source: tree_of(pin_of(source)), chosen)
    bases = sorted({source for track in chosen.values() for source in track.places})
    found: dict[str, Reading | AnnotateError] = {}
    for pin in pins:
        try:
            tree = tree_of(pin)
            parts = [_code(), wording(chosen.values()), *(_content(tree_of(pin_of(base))) for base in bases)]
            key = "\n".join([pin.digest, _content(tree), *parts])
            kept = load(cache / f"{pin.id}.json", key) if cache else None
            reading = kept or read(pin.id, tree, pin.digest, origins)
            found[pin.id] = reading
            if cache and kept is None:
                save(cache / f"{pin.id}.json", key, reading)
        except AnnotateError as error:
            found[pin.id] = error
        except (OSError, RecursionError) as error:
            found[pin.id] = ReleaseUnreadable(pin.id, str(error) or type(error).__name__)
    return found


# -- the cache -----------------------------------------------------------


@cache
def _code() -> str:
    here = Path(__file__).parent
    parts = [(here / f"{name}.py").read_bytes() for name in _CODE]
    return hashlib.sha256(b"\0".join(parts)).hexdigest()


def _content(tree: SourceTree) -> str:
    """Return a digest of a source's files as they are here: a reader's own copy need not be what the pin says."""
    return hashlib.sha256("\n".join(f"{digest} {path}" for path, digest in tree.digests.items()).encode()).hexdigest()


def load(path: Path, key: str) -> Reading | None:
    """Return a reading from the cache, or None if it is not there, belongs to another key or is damaged."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        if data["key"] != key:
            return None
        tokens = {track: tuple(found) for track, found in data["tokens"].items()}
        items = {track: tuple(found) for track, found in data["items"].items()}
        return Reading(history.loads(data["facts"]), tokens, items)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, AnnotateError):
        return None


def save(path: Path, key: str, reading: Reading) -> None:
    """Keep a reading in the cache. Raises OSError."""
    data = {"key": key, "facts": history.dumps(reading.facts), "tokens": reading.tokens, "items": reading.items}
    write_text(path, json.dumps(data, separators=(",", ":")) + "\n")
