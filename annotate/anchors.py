"""Anchors: a symbol and a landmark inside it, found again in whatever file and on whatever lines they are.

`resolve` turns one anchor into a Span; `resolve_all` does all of a source, parsing each file once. A place
that is missing, ambiguous or unreadable is a typed error that lists what is near.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Protocol

from annotate.concepts import Concept, concepts
from annotate.errors import AnchorAmbiguous, AnchorNotFound, AnnotateError, Candidate, UnreliableSpan, nearest
from annotate.grammar import Symbol, Tree, in_error, language_of, parse, run_query, span
from annotate.landmarks import Landmark, Step, Term, read_landmark
from annotate.outline import Item, outline
from annotate.spans import Span

_ORDINAL = re.compile(r"#(?P<n>-?[1-9][0-9]*)$")


@dataclass(frozen=True)
class Anchor:
    """Where to look: `source` id, qualified `symbol` (`#n` picks one of several), `landmark` inside it.

    `file` is a file-name pattern, for a symbol that stands in several files.
    """

    source: str
    symbol: str
    landmark: str | None = None
    concept: str = ""
    file: str = "*"

    def __str__(self) -> str:
        place = f"{self.symbol} @ {self.landmark}" if self.landmark else self.symbol
        return f"{self.source} {self.concept}: {place}" if self.concept else f"{self.source}: {place}"


class Files(Protocol):
    """The part of a SourceTree that is needed here."""

    def paths(self) -> Sequence[str]:
        """Return the paths of the files, relative and with forward slashes."""
        ...

    def read(self, path: str) -> bytes:
        """Return a file's bytes."""
        ...


class Library:
    """The files of one source, read and parsed at most once each."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self._data: dict[str, bytes] = {}
        self._trees: dict[str, Tree] = {}
        self._asked: dict[tuple[str, str], list[Tree]] = {}

    def trees(self, name: str = "", pattern: str = "*") -> Sequence[Tree]:
        """Return the parsed files that fit `pattern` by path or name, and can hold a symbol of this name."""
        if (name, pattern) not in self._asked:
            self._asked[name, pattern] = [
                self.tree(path) for path in self._files.paths() if self._fits(path, name, pattern)
            ]
        return self._asked[name, pattern]

    def tree(self, path: str) -> Tree:
        """Return one file, parsed. Raises SourceUnavailable if it is not among the files."""
        if path not in self._trees:
            self._trees[path] = parse(self.data(path), language_of(path) or "markdown", path)
        return self._trees[path]

    def data(self, path: str) -> bytes:
        """Return one file's bytes. Raises SourceUnavailable if it is not among the files."""
        if path not in self._data:
            self._data[path] = self._files.read(path)
        return self._data[path]

    def _fits(self, path: str, name: str, pattern: str) -> bool:
        language = language_of(path)
        base = path.rpartition("/")[2]
        if language is None or not (fnmatchcase(path, pattern) or fnmatchcase(base, pattern)):
            return False
        # A section's title may hold marks that its name has not, so Markdown is always looked into.
        return language == "markdown" or base == name or all(word.encode() in self.data(path) for word in _words(name))


def _words(name: str) -> list[str]:
    return re.split(r"::|\.| > ", name)


def anchors_of(concept: Concept, source: str) -> list[Anchor]:
    """Return a concept's anchors in one source, in the order of the table."""
    places = concept.anchors.get(source, ())
    return [Anchor(source, place.symbol, place.landmark, concept.id, place.file or "*") for place in places]


def resolve(anchor: Anchor, tree: Files | Library) -> Span:
    """Return where an anchor lies in a source tree.

    Raises AnchorNotFound or AnchorAmbiguous (with candidates), UnreliableSpan, or LandmarkSyntax.
    """
    library = tree if isinstance(tree, Library) else Library(tree)
    return place(anchor, *_find_symbol(anchor, library))


def place(anchor: Anchor, file: Tree, symbol: Symbol) -> Span:
    """Return where an anchor's landmark lies in a symbol that was found already; raises as `resolve` does."""
    if anchor.landmark is None:
        first, last, nodes = symbol.first, symbol.last, [symbol.inner]
    else:
        first, last, items = _find_landmark(anchor, file, symbol, read_landmark(anchor.landmark))
        nodes = [item.node for item in items]
    if symbol.kind != "section":
        last = file.with_trailing_comment(last)
    touched = [(a, b) for a, b in file.unreliable if a <= last and b >= first]
    lost = [(a, b) for a, b in touched if a <= first <= b or a <= last <= b]
    if lost or any(node is not None and in_error(node) for node in [symbol.outer, *nodes]):
        raise UnreliableSpan(str(anchor), file.path, first, last, lost or touched or file.unreliable)
    digest = file.digest(first, last)
    return Span(anchor.source, file.path, first, last, digest, anchor.concept, symbol.name, tuple(touched))


def resolve_all(pin_id: str, tree: Files) -> list[Span | AnnotateError]:
    """Resolve every anchor that the concept table has for a source; an error stands where one fails."""
    library = Library(tree)
    found: list[Span | AnnotateError] = []
    for concept in concepts().values():
        for anchor in anchors_of(concept, pin_id):
            try:
                found.append(resolve(anchor, library))
            except AnnotateError as error:
                found.append(error)
    return found


def _label(tree: Tree, symbol: Symbol) -> Candidate:
    return Candidate(f"{symbol.kind} {symbol.name}", tree.path, symbol.first, symbol.last)


def called(anchor: Anchor, library: Library) -> list[tuple[Tree, Symbol]]:
    """Return every symbol that an anchor's symbol could mean, its `#n` left aside, in the order of the files."""
    name = _ORDINAL.sub("", anchor.symbol)
    found = [
        (tree, symbol)
        for tree in library.trees(name, anchor.file)
        for symbol in tree.symbols
        if _is_called(symbol, name)
    ]
    return [entry for entry in found if entry[1].name == name] or found


def _find_symbol(anchor: Anchor, library: Library) -> tuple[Tree, Symbol]:
    ordinal = _ORDINAL.search(anchor.symbol)
    name = anchor.symbol[: ordinal.start()] if ordinal else anchor.symbol
    found = called(anchor, library)
    candidates = [_label(tree, symbol) for tree, symbol in found]
    if ordinal and found:
        index = int(ordinal["n"])
        index = index - 1 if index > 0 else index + len(found)
        if 0 <= index < len(found):
            return found[index]
        raise AnchorNotFound(str(anchor), f"symbol {anchor.symbol}", candidates)
    if len(found) == 1:
        return found[0]
    if found:
        raise AnchorAmbiguous(str(anchor), f"symbol {name}", candidates)
    everything = {symbol.name: (tree, symbol) for tree in library.trees() for symbol in tree.symbols}
    near = [*nearest(name, everything, 6)]
    near += [other for other in everything if _words(other)[-1] == _words(name)[-1] and other not in near]
    raise AnchorNotFound(str(anchor), f"symbol {name}", [_label(*everything[other]) for other in near])


def _is_called(symbol: Symbol, name: str) -> bool:
    """Whether a symbol is called this, or ends in it at a boundary: `forward` fits `Impl.forward`."""
    return symbol.name == name or symbol.name.endswith((f"::{name}", f".{name}", f" > {name}"))


def _find_landmark(anchor: Anchor, tree: Tree, symbol: Symbol, landmark: Landmark) -> tuple[int, int, list[Item]]:
    items = outline(tree, symbol)
    start = _pick(anchor, tree, symbol, items, landmark.start)
    first = tree.with_comments(start.first) if landmark.start.comments else start.first
    if landmark.end is None:
        return first, start.last, [start]
    after = [item for item in items if item.start >= start.start]
    end = _pick(anchor, tree, symbol, after, landmark.end, start)
    return first, end.last, [start, end]


def _pick(anchor: Anchor, tree: Tree, symbol: Symbol, items: list[Item], term: Term, start: Item | None = None) -> Item:
    if term.query is not None and symbol.outer is not None:
        nodes = run_query(tree, symbol.outer, term.query)
        queried = [Item("query", (), *span(node), node.start_byte, node.end_byte, node) for node in nodes]
        if start is not None:
            queried = [item for item in queried if item.start >= start.start]
        return _choose(anchor, tree, term, queried, term.ordinal, items, "query")
    scope: Item | None = None
    for step in term.steps:
        inside = items if scope is None else [item for item in items if _contains(scope, item)]
        fitting = [item for item in inside if _fits(item, step, inside)]
        if step.kind == "signature" and scope is None:
            fitting = fitting[:1]
        scope = _choose(anchor, tree, term, fitting, step.ordinal, inside, step.kind)
    assert scope is not None
    return scope


def _contains(outer: Item, inner: Item) -> bool:
    return inner is not outer and outer.start <= inner.start and inner.end <= outer.end


def _fits(item: Item, step: Step, items: list[Item]) -> bool:
    if item.kind != step.kind or not item.answers(step.name):
        return False
    return all(any(_contains(item, other) and _fits(other, inner, items) for other in items) for inner in step.inside)


def _choose(
    anchor: Anchor,
    tree: Tree,
    term: Term,
    fitting: list[Item],
    ordinal: int | None,
    around: list[Item],
    kind: str,
) -> Item:
    if ordinal is None and len(fitting) == 1:
        return fitting[0]
    if ordinal is not None:
        index = ordinal - 1 if ordinal > 0 else ordinal + len(fitting)
        if 0 <= index < len(fitting):
            return fitting[index]
    shown = fitting or [item for item in around if item.kind == kind]
    candidates = [Candidate(str(item), tree.path, item.first, item.last) for item in shown]
    if fitting and ordinal is None:
        raise AnchorAmbiguous(str(anchor), str(term), candidates)
    raise AnchorNotFound(str(anchor), str(term), candidates)
