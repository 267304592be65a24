"""What ties a film's lines to concepts, and through them to upstream's lines: line numbers only, no text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from annotate import spans
from annotate.regions import Region, regions
from walkthroughs.digest import ROOT


@dataclass(frozen=True)
class Join:
    """The regions of a film's port files and the spans of their concepts in one source."""

    files: Mapping[str, tuple[Region, ...]]
    upstream_spans: Mapping[str, tuple[tuple[str, int, int], ...]]

    def concepts_at(self, path: str, line: int) -> tuple[str, ...]:
        """The concepts whose regions hold a line of a port file, the innermost first."""
        holding = [region for region in self.files.get(path, ()) if region.first <= line <= region.last]
        return tuple(region.id for region in sorted(holding, key=lambda region: region.last - region.first))

    def port_lines(self, concept: str) -> list[tuple[str, int, int]]:
        """A concept's places in the port files: path, first and last line."""
        return [
            (path, region.first, region.last)
            for path, found in self.files.items()
            for region in found
            if region.id == concept
        ]

    def upstream(self, concept: str) -> list[tuple[str, int, int]]:
        """A concept's places in the source: path, first and last line; none for what is our own."""
        return list(self.upstream_spans.get(concept, ()))


def of(source: str, files: Sequence[str]) -> Join:
    """The join of port files (paths from the checkout's top) with a source ("" for none)."""
    found = {path: _regions(path) for path in files if (ROOT / path).is_file()}
    known = spans.spans(source) if source else {}
    concepts = {region.id for inside in found.values() for region in inside}
    return Join(
        found,
        {name: tuple((s.path, s.first, s.last) for s in known[name]) for name in sorted(concepts) if name in known},
    )


@cache
def _regions(path: str) -> tuple[Region, ...]:
    return tuple(region for inside in regions(ROOT / path).values() for region in inside)
