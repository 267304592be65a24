"""The code panes: which lines of an upstream source and of a port a step or concept shows, as HTML figures.

Upstream text is read from the fetched copy at build time; line numbers come from the committed spans. Where the copy
is not there, the pane says so and links to the lines.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from annotate import concepts, regions, render, sources, spans
from annotate.errors import SourceUnavailable
from walkthroughs.digest import port_files

from .model import Link, Panes

ROOT = Path(__file__).resolve().parents[2]
RUNGS = "kernels/tuned/"
OUR_LICENCE = "Apache-2.0"
OWN_COPY = "The upstream lines come from a copy of your own, which was not checked against the pinned digest."
# Pygments' classes of plain, function and class names.
NAME_CLASSES = ("n", "nf", "nc")
Lines = tuple[int, int]
Found = Mapping[str, Sequence[Lines]]
Stash = Callable[[str], str]


@dataclass(frozen=True, slots=True)
class Figures:
    """One side's finished panes, the concepts whose lines they hold, and links to those lines upstream."""

    html: tuple[str, ...] = ()
    concepts: tuple[str, ...] = ()
    permalinks: tuple[Link, ...] = ()
    note: str = ""
    names: tuple[str, ...] = ()


def names_in(excerpt: render.Excerpt) -> list[str]:
    """The identifiers of the linked lines, in order: what a reader may search for. Comments do not count."""
    return [
        text
        for number, pieces in excerpt.pieces.items()
        if excerpt.links[number]
        for css, text in pieces
        if css in NAME_CLASSES and len(text) > 2
    ]


def pane_html(excerpt: render.Excerpt, scope: str, caption: str | None = None) -> str:
    """The pane of an excerpt, told by how many columns all its lines are indented, so that CSS can pull them back."""
    indents = [len(line) - len(line.lstrip(" ")) for line in excerpt.lines.values() if line.strip()]
    html = render.to_html(excerpt, scope=scope, caption=caption)
    common = min(indents, default=0)
    return html.replace("<figure ", f'<figure style="--pw-dedent: {common}" ', 1) if common else html


def with_inner(found: Found, reads: Iterable[str]) -> dict[str, list[Lines]]:
    """The ranges of `reads` and of every concept that lies inside one of them: these light up more finely."""
    shown = {name: list(found[name]) for name in reads if name in found}
    outer = [lines for ranges in shown.values() for lines in ranges]
    for name, ranges in found.items():
        inner = [r for r in ranges if any(o[0] <= r[0] and r[1] <= o[1] for o in outer)]
        if name not in shown and inner:
            shown[name] = inner
    return shown


def scope_of(scope: str, index: int) -> str:
    """A scope for the `index`th figure of one side, so that two files may show the same line number."""
    return scope if index == 0 else f"{scope}-{index + 1}"


def lines_said(first: int, last: int) -> str:
    """A range of lines in words."""
    return f"line {first}" if first == last else f"lines {first} to {last}"


@cache
def port_ranges(path: str) -> Mapping[str, Sequence[Lines]]:
    """The line ranges of every region of one of our files."""
    table = regions.regions(ROOT / path)
    lines = (ROOT / path).read_text("utf-8").split("\n")
    return {name: [_trimmed(lines, r.first, r.last) for r in found] for name, found in table.items()}


def _trimmed(lines: Sequence[str], first: int, last: int) -> Lines:
    """A range without the blank lines at its ends, which the formatter puts between a region's code and its fence."""
    full = [number for number in range(first, last + 1) if lines[number - 1].strip()]
    return (full[0], full[-1]) if full else (first, last)


@cache
def _file_lines(path: str) -> tuple[str, ...]:
    return tuple((ROOT / path).read_text("utf-8").split("\n"))


def line_of(path: str, number: int) -> str:
    """A line of one of our files, without its indentation; "" for a path that is none of ours."""
    return _file_lines(path)[number - 1].strip() if (ROOT / path).is_file() else ""


@cache
def fenced() -> tuple[str, ...]:
    """Every kernel file that has regions."""
    files = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "kernels").rglob("*.py"))
    return tuple(path for path in files if "# region:" in (ROOT / path).read_text("utf-8") and port_ranges(path))


@cache
def ports() -> tuple[str, ...]:
    """Every kernel file that stands for a concept: those with regions, but for the rungs of the ladder.

    A rung says again what a port says, and there are many of them: a step of the ladder shows it.
    """
    return tuple(path for path in fenced() if not path.startswith(RUNGS))


@cache
def files_of_port(path: str) -> tuple[str, ...]:
    """A port's file and what it imports of `kernels`, as far as there are regions: the port itself first."""
    return tuple(file for file in port_files(path) if file in fenced())


def own_figures(paths: Iterable[str], reads: Sequence[str], scope: str, *, side: str = "port") -> Figures:
    """Panes of our own files, from their regions; files without any of `reads` are left out.

    No lines of context: around a region there are only its fences.
    """
    html: list[str] = []
    linked: list[str] = []
    names: list[str] = []
    for path in paths:
        shown = with_inner(port_ranges(path), reads)
        if not shown:
            continue
        excerpt = render.excerpt(
            (ROOT / path).read_text("utf-8"),
            shown,
            side=side,
            source="pagewalk",
            path=path,
            language="python",
            context=0,
            licence=OUR_LICENCE,
            hide=regions.is_fence,
        )
        html.append(pane_html(excerpt, scope_of(scope, len(html))))
        linked += shown
        names += names_in(excerpt)
    return Figures(tuple(html), tuple(dict.fromkeys(linked)), names=tuple(dict.fromkeys(names)))


@cache
def source_ranges(source: str) -> Mapping[str, Mapping[str, Sequence[Lines]]]:
    """The committed line ranges of a source: path -> concept -> ranges."""
    table: dict[str, dict[str, list[Lines]]] = {}
    for name, found in spans.spans(source).items():
        for span in found:
            table.setdefault(span.path, {}).setdefault(name, []).append((span.first, span.last))
    return table


@cache
def tree_of(source: str) -> sources.SourceTree | None:
    """A source's fetched copy, opened once a build; None where it is not on this machine."""
    try:
        return sources.open_tree(source)
    except SourceUnavailable:
        return None


def source_figures(source: str, reads: Sequence[str], scope: str, *, context: int = 2) -> Figures:
    """Panes of an upstream source, a file each, with permanent links to the lines that were asked for."""
    pin = sources.pins()[source]
    tree = tree_of(source)
    html: list[str] = []
    linked: list[str] = []
    links: list[Link] = []
    names: list[str] = []
    # Files in the order in which the concepts name them.
    wanted = {span.path: None for name in reads for span in spans.spans(source).get(name, ())}
    for path in wanted:
        ranges = source_ranges(source)[path]
        shown = with_inner(ranges, reads)
        asked = [lines for name in reads for lines in ranges.get(name, ())]
        first, last = min(a for a, _ in asked), max(b for _, b in asked)
        address = pin.link(path, first, last)
        said = lines_said(first, last)
        links.append(Link(f"{path.rpartition('/')[2]}, {said} ({pin.name} {pin.revision})", address))
        linked += shown
        if tree is None:
            html.append(render.missing_html(source=source, path=path, permalink=address, licence=pin.licence))
            continue
        excerpt = render.excerpt(
            tree.read(path).decode("utf-8"),
            shown,
            side="upstream",
            source=source,
            path=path,
            language="python" if path.endswith(".py") else "cuda",
            context=context,
            permalink=address,
            licence=pin.licence,
        )
        html.append(pane_html(excerpt, scope_of(scope, len(html))))
        names += names_in(excerpt)
    note = OWN_COPY if tree is not None and tree.marked_copy else ""
    return Figures(tuple(html), tuple(dict.fromkeys(linked)), tuple(links), note, tuple(dict.fromkeys(names)))


def panes(left: Iterable[Figures], right: Figures) -> Panes:
    """Both sides put together; a concept's title is there for every concept in either."""
    sides = list(left)
    names = dict.fromkeys([name for side in [*sides, right] for name in side.concepts])
    table = concepts.concepts()
    return Panes(
        upstream=tuple(html for side in sides for html in side.html),
        port=right.html,
        titles={name: table[name].title for name in names},
        permalinks=tuple(link for side in sides for link in side.permalinks),
        names=tuple(dict.fromkeys(name for side in [*sides, right] for name in side.names)),
        note=next((side.note for side in sides if side.note), ""),
    )
