"""The code of one idea in one kernel, as excerpts: exactly the lines that the idea has there, upstream's and ours.

`pagewalk read` prints them in columns, a compare page of the site shows them so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from annotate.regions import is_fence
from annotate.render import Excerpt, excerpt
from annotate.sources import SourceTree, pins
from annotate.spans import Span
from walkthroughs.ideas import PortLines
from walkthroughs.site.code import OUR_LICENCE, ROOT, Found, Lines, port_ranges, source_ranges, with_inner

Rename = Callable[[str], str]


def _same(name: str) -> str:
    return name


def upstream_excerpts(
    tree: SourceTree, found: Sequence[Span], *, context: int = 0, rename: Rename = _same
) -> Iterable[Excerpt]:
    """Return an excerpt for each upstream file of the lines in `found`, with `context` lines around them.

    Lines are tied to their concepts and to those inside them, each called what `rename` makes of its id.
    """
    for path in dict.fromkeys(span.path for span in found):
        source = found[0].source
        pin = pins()[source]
        asked = _by_concept((span.concept, span.first, span.last) for span in found if span.path == path)
        runs = [lines for ranges in asked.values() for lines in ranges]
        yield excerpt(
            tree.read(path).decode("utf-8"),
            _renamed(with_inner({**source_ranges(source)[path], **asked}, asked), rename),
            side="upstream",
            source=source,
            path=path,
            language="python" if path.endswith(".py") else "cuda",
            context=context,
            permalink=pin.link(path, min(first for first, _ in runs), max(last for _, last in runs)),
            licence=pin.licence,
        )


def port_excerpts(found: Sequence[PortLines], *, rename: Rename = _same) -> Iterable[Excerpt]:
    """Return an excerpt for each file of ours of the lines in `found`; for `rename` see `upstream_excerpts`."""
    for path in dict.fromkeys(lines.path for lines in found):
        asked = _by_concept((lines.concept, lines.first, lines.last) for lines in found if lines.path == path)
        yield excerpt(
            (ROOT / path).read_text("utf-8"),
            _renamed(with_inner({**port_ranges(path), **asked}, asked), rename),
            side="port",
            source="pagewalk",
            path=path,
            language="python",
            context=0,
            licence=OUR_LICENCE,
            hide=is_fence,
        )


def _by_concept(found: Iterable[tuple[str, int, int]]) -> dict[str, list[Lines]]:
    ranges: dict[str, list[Lines]] = {}
    for name, first, last in found:
        ranges.setdefault(name, []).append((first, last))
    return ranges


def _renamed(found: Found, rename: Rename) -> Mapping[str, Sequence[Lines]]:
    ranges: dict[str, list[Lines]] = {}
    for name, lines in found.items():
        ranges.setdefault(rename(name), []).extend(lines)
    return ranges
