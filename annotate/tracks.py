"""What drift follows: the anchors of the concept table, one track for each piece of code.

An anchor that is written for several releases is one track, as long as it stays in the same symbol: a landmark
that was rewritten for a later release still means the same piece. Another symbol is another piece.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType

from annotate.concepts import Concept, Place, concepts
from annotate.releases import order


@dataclass(frozen=True)
class Track:
    """One piece of code to follow. `places` says how it is found, by the id of the release that was written for."""

    id: str
    concept: str
    places: Mapping[str, Place]

    @property
    def symbol(self) -> str:
        """The symbol's name as it was written last."""
        return list(self.places.values())[-1].symbol

    def origin(self, source: str) -> str:
        """Return the release whose wording is used in `source`: the newest that is not newer, else the oldest."""
        wanted = order(source.partition("@")[2])
        older = [base for base in self.places if order(base.partition("@")[2]) <= wanted]
        return older[-1] if older else next(iter(self.places))


def tracks(name: str = "vllm") -> Mapping[str, Track]:
    """Return everything that is followed in a source by id (`concept`, or `concept#2` where it has several)."""
    return _tracks(name)


@cache
def _tracks(name: str) -> Mapping[str, Track]:
    found: dict[str, Track] = {}
    for concept in concepts().values():
        pieces = _pieces(concept, name)
        for number, places in enumerate(pieces, start=1):
            track = Track(concept.id + (f"#{number}" if len(pieces) > 1 else ""), concept.id, MappingProxyType(places))
            found[track.id] = track
    return MappingProxyType(found)


def _pieces(concept: Concept, name: str) -> list[dict[str, Place]]:
    """Pair a concept's anchors over the releases: the first in a symbol with the first there, and so on."""
    pieces: dict[tuple[str, int], dict[str, Place]] = {}
    sources = [source for source in concept.anchors if source.partition("@")[0] == name]
    for source in sorted(sources, key=lambda source: order(source.partition("@")[2])):
        seen: dict[str, int] = {}
        for place in concept.anchors[source]:
            seen[place.symbol] = seen.get(place.symbol, 0) + 1
            pieces.setdefault((place.symbol, seen[place.symbol]), {})[source] = place
    return list(pieces.values())


def wording(chosen: Iterable[Track]) -> str:
    """Return a digest of how tracks are found: facts with another one belong to other anchors."""
    words = [
        f"{track.id}|{source}|{place.symbol}|{place.landmark}|{place.file}"
        for track in chosen
        for source, place in track.places.items()
    ]
    return hashlib.sha256("\n".join(words).encode()).hexdigest()[:16]
