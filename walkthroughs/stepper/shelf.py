"""The two code panes' texts: whole files, cut up for highlighting, with the lines of every concept in them.

Upstream text comes from the fetched copy and is never kept. Where that is not there, a page says what to type, and
still knows the concepts' lines.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache

from annotate.errors import SourceUnavailable, UnknownName
from annotate.regions import is_fence
from annotate.render import Piece, excerpt
from annotate.sources import open_tree, pins
from walkthroughs.digest import ROOT
from walkthroughs.site.code import OUR_LICENCE, files_of_port, port_ranges, source_ranges

Lines = tuple[int, int]


@dataclass(frozen=True, eq=False)
class Page:
    """A file on one side: its `lines` by number (none where it is not here) and each concept's `ranges`.

    `missing`: the source is not on this machine. The ranges are known all the same.
    """

    side: str
    source: str
    path: str
    caption: str
    lines: Mapping[int, tuple[Piece, ...]] = field(repr=False)
    ranges: Mapping[str, Sequence[Lines]] = field(repr=False)
    missing: bool = False

    def of(self, concepts: Sequence[str]) -> list[Lines]:
        """The ranges of the first of the concepts that has lines here, or none."""
        return next((list(self.ranges[name]) for name in concepts if self.ranges.get(name)), [])

    def absence(self, ranges: Sequence[Lines]) -> str:
        """What to say where the source is not here: what to type, and where the ranges can be read online."""
        shown = list(ranges) or [lines for found in self.ranges.values() for lines in found]
        first, last = min(first for first, _ in shown), max(last for _, last in shown)
        where = pins()[self.source].link(self.path, first, last)
        return (
            f"The source {self.source} is not on this machine.\n\nFetch it with\n\n    pagewalk fetch {self.source}"
            f"\n\nor read lines {first} to {last} online:\n\n{where}"
        )

    def text(self, number: int) -> str:
        """A line as plain text."""
        return "".join(text for _, text in self.lines.get(number, ()))


@cache
def port_page(path: str) -> Page:
    """One of our own files, without the fences of its regions."""
    return _own("port", path)


def left_pages(source: str, reads: Sequence[str]) -> list[Page]:
    """The pages of a step's left side that have lines of its concepts, or all there are of an own file."""
    if source not in pins():
        return [_own("upstream", source)]
    asked = [path for name in reads for path, ranges in ranges_of(source).items() if name in ranges]
    return [upstream_page(source, path) for path in dict.fromkeys(asked)]


def left_page(source: str, concepts: Sequence[str]) -> Page | None:
    """The page where the first of the concepts that the left side knows has its lines, or None."""
    for name in concepts:
        found = left_pages(source, [name])
        if found and found[0].of([name]):
            return found[0]
    return None


@cache
def port_files_of(path: str) -> tuple[str, ...]:
    """A port's file, and those that it imports of `kernels` and that have regions: the port itself first."""
    return tuple(dict.fromkeys([path, *files_of_port(path)]))


@cache
def ranges_of(source: str) -> Mapping[str, Mapping[str, Sequence[Lines]]]:
    """Path -> concept -> ranges: the committed spans, none for a source without any."""
    try:
        return source_ranges(source)
    except UnknownName:
        return {}


@cache
def upstream_page(source: str, path: str) -> Page:
    """A file of a pinned source, from the fetched copy."""
    pin, ranges = pins()[source], ranges_of(source)[path]
    caption = f"{path}  {pin.name} {pin.revision}  {pin.licence}"
    try:
        text = open_tree(source).read(path).decode("utf-8")
    except SourceUnavailable:
        return Page("upstream", source, path, caption, {}, ranges, missing=True)
    return Page("upstream", source, path, caption, _lines(text, path), ranges)


def language_of(path: str) -> str:
    """How a file is highlighted."""
    return "python" if path.endswith(".py") else "markdown" if path.endswith(".md") else "cuda"


def _own(side: str, path: str) -> Page:
    text = (ROOT / path).read_text("utf-8")
    return Page(side, "pagewalk", path, f"{path}  {OUR_LICENCE}", _lines(text, path), port_ranges(path))


def _lines(text: str, path: str) -> Mapping[int, tuple[Piece, ...]]:
    whole = {"": [(1, text.count("\n") + (not text.endswith("\n")))]}
    language = language_of(path)
    found = excerpt(text, whole, side="port", source="", path=path, language=language, context=0, hide=is_fence)
    return found.pieces
