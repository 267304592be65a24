"""Find one anchor in another release than the one it was written for.

Its own words come first: the symbol and the landmark. Where these fail, or land somewhere that looks quite
different, the bodies are compared: a symbol is followed to a new name, a part to where its tokens went. How a
place was found is kept with it, so that a guess never passes as a fact.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from annotate.anchors import Anchor, Library, called, place
from annotate.errors import AnchorAmbiguous, AnchorNotFound, UnreliableSpan
from annotate.grammar import Symbol, Tree, language_of
from annotate.history import State, text_digest
from annotate.likeness import Alignment, Shingles, alike, likeness, shingles
from annotate.outline import LABELLED, label, outline
from annotate.spans import Span

# Below these shares a part, or the body of a symbol with another name, is not taken for the same one. Bodies of
# unrelated kernels share 0.1 to 0.3.
ALIKE = 0.5
FOLLOWED = 0.45
# A landmark's own words are overruled only by a place that is clearly more alike.
CLEARLY = 0.2
_Key = tuple[str, str, int]  # a symbol: path, name, first line
_NAME = re.compile(r"[A-Za-z_]\w{4,}")


@dataclass
class Origin:
    """An anchor where it was written: its release's path, the symbol's tokens with their lines, the part's lines.

    `others` are wordings of the same piece for other releases, which may fit a third one better.
    """

    anchor: Anchor
    span: Span
    kind: str
    inner: tuple[tuple[int, str], ...]
    tokens: tuple[str, ...]
    others: tuple[Anchor, ...] = ()

    @cached_property
    def shingles(self) -> Shingles:
        """What the symbol's body is compared by."""
        return shingles([token for _, token in self.inner])

    @cached_property
    def names(self) -> frozenset[bytes]:
        """The longest names in the symbol: a text with few of them cannot be it."""
        names = {name.encode() for _, token in self.inner for name in _NAME.findall(token)}
        return frozenset(sorted(names, key=lambda name: (-len(name), name))[:40])


@dataclass
class Found:
    """Where an origin lies in another release (`state` None: nowhere), the tokens there and what they make up."""

    state: State | None
    tokens: tuple[str, ...] = ()
    items: tuple[str, ...] = ()


class Release:
    """One release's files, and what was worked out about them on the way."""

    def __init__(self, source: str, library: Library) -> None:
        self.source = source
        self.library = library
        self._bodies: dict[_Key, list[tuple[int, str]]] = {}
        self._shingles: dict[_Key, Shingles] = {}
        self._alignments: dict[tuple[str, str, _Key], Alignment] = {}
        self._renamed: dict[tuple[str, str], tuple[Tree, Symbol] | None] = {}

    def body(self, tree: Tree, symbol: Symbol) -> list[tuple[int, str]]:
        """Return a symbol's tokens with their lines."""
        key = (tree.path, symbol.name, symbol.first)
        if key not in self._bodies:
            self._bodies[key] = tree.hold(symbol.first, symbol.last)
        return self._bodies[key]

    def shingles(self, tree: Tree, symbol: Symbol) -> Shingles:
        """Return what a symbol's body is compared by."""
        key = (tree.path, symbol.name, symbol.first)
        if key not in self._shingles:
            self._shingles[key] = shingles([token for _, token in self.body(tree, symbol)])
        return self._shingles[key]

    def alignment(self, origin: Origin, tree: Tree, symbol: Symbol) -> Alignment:
        """Return an origin's symbol laid against one here."""
        key = (origin.anchor.source, origin.span.symbol, (tree.path, symbol.name, symbol.first))
        if key not in self._alignments:
            self._alignments[key] = Alignment(origin.inner, self.body(tree, symbol))
        return self._alignments[key]

    def likest(self, origin: Origin, choice: Sequence[tuple[Tree, Symbol]]) -> tuple[Tree, Symbol, float]:
        """Return which of several symbols is most like an origin's, the first of equals, and how like it is."""
        rated = [(likeness(origin.shingles, self.shingles(*entry)), entry) for entry in choice]
        best = max(rated, key=lambda entry: entry[0])
        return *best[1], best[0]

    def renamed(self, origin: Origin, known: frozenset[str]) -> tuple[Tree, Symbol] | None:
        """Return the symbol under a new name that is most like an origin's, if any is alike enough."""
        key = (origin.anchor.source, origin.span.symbol)
        if key not in self._renamed:
            self._renamed[key] = self._search(origin, known)
        return self._renamed[key]

    def _search(self, origin: Origin, known: frozenset[str]) -> tuple[Tree, Symbol] | None:
        language = language_of(origin.span.path)
        old = origin.inner[-1][0] - origin.inner[0][0]
        choice = []
        for tree in self.library.trees("", origin.anchor.file):
            if tree.language != language or not _may_be(self.library.data(tree.path), origin.names):
                continue
            for symbol in tree.symbols:
                size = symbol.last - symbol.first
                # A document's title may have been no heading once: then the section was the file.
                whole = (symbol.kind, origin.kind) == ("file", "section")
                new = whole or (symbol.kind == origin.kind and symbol.name not in known)
                if new and old <= 3 * size + 3 and size <= 3 * old + 3 and _may_be(_text(tree, symbol), origin.names):
                    choice.append((tree, symbol))
        if not choice:
            return None
        tree, symbol, share = self.likest(origin, choice)
        return (tree, symbol) if share >= FOLLOWED else None


def _text(tree: Tree, symbol: Symbol) -> bytes:
    return b"\n".join(tree.lines[symbol.first - 1 : symbol.last])


def _may_be(text: bytes, names: frozenset[bytes]) -> bool:
    return 3 * sum(name in text for name in names) >= len(names)


def follow(origin: Origin, release: Release, known: frozenset[str]) -> Found:
    """Find an origin in a release. `known` are the names of its own release's symbols: none of these is a new name.

    Never raises for a place that is missing, ambiguous or unreadable: that is the answer.
    """
    anchor = origin.anchor
    choice = called(anchor, release.library)
    if choice:
        own = [entry for entry in choice if entry[0].path == origin.span.path] or choice
        tree, symbol, _ = release.likest(origin, own) if len(own) > 1 else (*own[0], 1.0)
        how = "anchor" if len(choice) == 1 or "#" in anchor.symbol else "chosen"
    else:
        renamed = release.renamed(origin, known)
        if renamed is None:
            return _hidden(anchor, release) or Found(None)
        tree, symbol = renamed
        how = "followed"
    return _part(origin, release, tree, symbol, how)


def _part(origin: Origin, release: Release, tree: Tree, symbol: Symbol, how: str) -> Found:
    """Return where an origin's part lies in a symbol that was settled on."""
    anchor = origin.anchor
    release.body(tree, symbol)
    try:
        span, borrowed = _placed(origin, tree, symbol)
    except UnreliableSpan as error:
        return _unreadable(tree, symbol, error.first, error.last)
    except (AnchorNotFound, AnchorAmbiguous):
        # What cannot be found may stand in the lines that could not be read: then it is not said to be gone.
        lost = [lines for lines in tree.unreliable if symbol.first <= lines[0] and lines[1] <= symbol.last]
        nowhere = _unreadable(tree, symbol, lost[0][0], lost[-1][1]) if lost else Found(None)
        return _aligned(origin, release, tree, symbol, how) or nowhere
    found = _found(origin, tree, symbol, span, how)
    assert found.state is not None
    if borrowed or anchor.landmark is None or found.state.likeness > 1 - CLEARLY:
        return found
    return _aligned(origin, release, tree, symbol, how, found.state.likeness + CLEARLY) or found


def _placed(origin: Origin, tree: Tree, symbol: Symbol) -> tuple[Span, bool]:
    """Return where a part lies by its own words, or those for another release (True). Raises as its own words do."""
    try:
        return place(origin.anchor, tree, symbol), False
    except (AnchorNotFound, AnchorAmbiguous):
        for other in origin.others:
            try:
                return place(other, tree, symbol), True
            except (AnchorNotFound, AnchorAmbiguous):
                continue
        raise


def _aligned(
    origin: Origin, release: Release, tree: Tree, symbol: Symbol, how: str, least: float = 0.0
) -> Found | None:
    """Return where the part's tokens went in a symbol, if that is alike enough and at least as alike as `least`."""
    span = origin.span
    there = release.alignment(origin, tree, symbol).project(span.first, span.last)
    if there is None or there.share < ALIKE:
        return None
    # As for an anchor found by its words: lines inside may be unreadable, the ends may not.
    if any(a <= there.first <= b or a <= there.last <= b for a, b in tree.unreliable):
        return _unreadable(tree, symbol, there.first, there.last)
    digest = tree.digest(there.first, there.last)
    moved = Span(release.source, tree.path, there.first, there.last, digest, span.concept, symbol.name)
    found = _found(origin, tree, symbol, moved, "followed" if how == "followed" else "aligned")
    assert found.state is not None
    return found if found.state.likeness >= max(ALIKE, least) else None


def _hidden(anchor: Anchor, release: Release) -> Found | None:
    """Say that a symbol may be there after all: its name stands in lines that the parser could not read."""
    name = re.split(r"::|\.| > ", anchor.symbol.partition("#")[0])[-1].encode()
    word = re.compile(rb"(?<!\w)" + re.escape(name) + rb"(?!\w)")
    for tree in release.library.trees(anchor.symbol.partition("#")[0], anchor.file):
        for first, last in tree.unreliable:
            if any(word.search(line) for line in tree.lines[first - 1 : last]):
                return _unreadable(tree, tree.symbols[0], first, last)
    return None


def _unreadable(tree: Tree, symbol: Symbol, first: int, last: int) -> Found:
    return Found(State(tree.path, first, last, symbol.name, "", "", "unreadable", 0.0))


def _found(origin: Origin, tree: Tree, symbol: Symbol, span: Span, how: str) -> Found:
    tokens = tuple(tree.tokens(span.first, span.last))
    share = 1.0 if tokens == origin.tokens else alike(origin.tokens, tokens)
    text = text_digest(tree.lines[span.first - 1 : span.last])
    state = State(span.path, span.first, span.last, span.symbol, span.digest, text, how, round(share, 2))
    inside = [item for item in outline(tree, symbol) if span.first <= item.first and item.last <= span.last]
    return Found(state, tokens, tuple(label(tree, item) for item in inside if item.kind in LABELLED))


def origin_of(anchor: Anchor, library: Library, others: Sequence[Anchor] = ()) -> Origin:
    """Read an anchor in its own release. Raises as `annotate.anchors.resolve` does."""
    from annotate.anchors import resolve

    span = resolve(anchor, library)
    tree, symbol = next(
        (tree, symbol)
        for tree, symbol in called(anchor, library)
        if tree.path == span.path and symbol.name == span.symbol and symbol.first <= span.first <= symbol.last
    )
    inner = tuple(tree.hold(symbol.first, symbol.last))
    return Origin(anchor, span, symbol.kind, inner, tuple(tree.tokens(span.first, span.last)), tuple(others))
