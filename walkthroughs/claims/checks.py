"""The kinds of checks that read sources: tokens, places, text, parameters, constants.

Each function's first line says when its fact is true. Where a source is not here, or a place in it is gone, an error is
raised, and `dispatch.py` says what that means.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from fnmatch import fnmatchcase
from itertools import pairwise

from annotate.errors import AnchorNotFound
from annotate.grammar import Symbol, Tree
from annotate.outline import outline
from annotate.spans import Span
from walkthroughs.claims.arithmetic import evaluate
from walkthroughs.claims.context import Context, place_at
from walkthroughs.claims.kinds import Kind, Params, words
from walkthroughs.claims.model import Finding, Place

_MARKS = re.compile(r"^(?://+|#+(?!\w)|\*+)\s?")


def found_at(context: Context, source: str, params: Params) -> list[Span]:
    """The spans that a check looks at: of its `at`, one place or several. Raises NotHere and AnchorNotFound."""
    return [span for at in words(params["at"]) for span in context.find(source, at, params.get("file", "*"))]


def occurrences(tokens: Sequence[str], wanted: str) -> int:
    """How often a sequence of tokens, written with spaces between them, occurs."""
    needle = wanted.split()
    return sum(list(tokens[i : i + len(needle)]) == needle for i in range(len(tokens) - len(needle) + 1))


def tokens_of(context: Context, span: Span) -> list[str]:
    """The tokens of a span: no comments, no white space."""
    return context.tree(span.source, span.path).tokens(span.first, span.last)


def has(context: Context, source: str, params: Params) -> Finding:
    """Each of `tokens` occurs in one of the places `at`."""
    spans = found_at(context, source, params)
    counts = {w: sum(occurrences(tokens_of(context, s), w) for s in spans) for w in words(params["tokens"])}
    return Finding(all(counts.values()), _counted(counts), _places(context, spans))


def lacks(context: Context, source: str, params: Params) -> Finding:
    """None of `tokens` occurs in the places `at`."""
    spans = found_at(context, source, params)
    counts = {w: sum(occurrences(tokens_of(context, s), w) for s in spans) for w in words(params["tokens"])}
    return Finding(not any(counts.values()), _counted(counts), _places(context, spans))


def count(context: Context, source: str, params: Params) -> Finding:
    """`tokens` occurs exactly `equals` times in the places `at`."""
    spans = found_at(context, source, params)
    seen = sum(occurrences(tokens_of(context, span), params["tokens"]) for span in spans)
    return Finding(seen == params["equals"], _counted({params["tokens"]: seen}), _places(context, spans))


def order(context: Context, source: str, params: Params) -> Finding:
    """The places `at` follow each other in one file: each ends before the next begins."""
    spans = found_at(context, source, params)
    good = all(a.path == b.path and a.last < b.first for a, b in pairwise(spans))
    seen = ", ".join(f"lines {span.first} to {span.last}" for span in spans)
    return Finding(good and len(spans) > 1, seen, _places(context, spans))


def inside(context: Context, source: str, params: Params) -> Finding:
    """Every place `at` lies inside the place `outer`."""
    spans, (outer, *_) = found_at(context, source, params), context.find(source, params["outer"])
    good = all(s.path == outer.path and outer.first <= s.first and s.last <= outer.last for s in spans)
    seen = f"lines {outer.first} to {outer.last} around " + ", ".join(f"{s.first} to {s.last}" for s in spans)
    return Finding(good, seen, _places(context, [outer, *spans]))


def found(context: Context, source: str, params: Params) -> Finding:
    """The places `at` exist: a symbol, or a loop, a call, a condition of this shape in it."""
    spans = found_at(context, source, params)
    return Finding(True, "found", _places(context, spans))


def absent(context: Context, source: str, params: Params) -> Finding:
    """None of the places `at` exists; the symbol that a landmark stands in has to."""
    file = params.get("file", "*")
    homes = [s for at in words(params["at"]) if " @ " in at for s in context.find(source, at.partition(" @ ")[0], file)]
    there: list[Span] = []
    for at in words(params["at"]):
        with suppress(AnchorNotFound):
            there += context.find(source, at, file)
    return Finding(not there, "found" if there else "not found", _places(context, there or homes))


def text(context: Context, source: str, params: Params) -> Finding:
    """The text of a `file` or a place `has` these words and `lacks` those. Comments count, capitals do not."""
    blocks = _texts(context, source, params)
    whole = " ".join(block for _, block in blocks).lower()
    counts = {w: whole.count(w.lower()) for w in [*words(params.get("has", [])), *words(params.get("lacks", []))]}
    good = all(counts[w] for w in words(params.get("has", []))) and not any(
        counts[w] for w in words(params.get("lacks", []))
    )
    return Finding(good and bool(blocks), _counted(counts), tuple(place for place, _ in blocks))


def file_exists(context: Context, source: str, params: Params) -> Finding:
    """Whether a file of this name is there is what `exists` says."""
    paths = [path for path in context.files(source).paths() if fnmatchcase(path, params["file"])]
    shown = paths[0] if len(paths) == 1 else f"{len(paths)} files"
    return Finding(
        bool(paths) is params.get("exists", True), shown, tuple(_whole(context, source, p) for p in paths[:3])
    )


def names(context: Context, source: str, params: Params) -> Finding:
    """The parameters (`kind` param) or keyword arguments (arg) at a place: they are `equals`, or hold `contains`."""
    spans = found_at(context, source, params)
    kind = params.get("kind", "param")
    seen: list[str] = []
    for span in spans:
        tree = context.tree(source, span.path)
        symbol = next(s for s in tree.symbols if s.name == span.symbol and s.first <= span.first <= s.last)
        items = [item for item in outline(tree, symbol) if span.first <= item.first and item.last <= span.last]
        seen += [item.names[0] for item in items if item.kind == kind and item.names]
    seen = list(dict.fromkeys(seen))
    good = seen == params["equals"] if "equals" in params else set(params["contains"]) <= set(seen)
    return Finding(good, ", ".join(seen), _places(context, spans))


def users(context: Context, source: str, params: Params) -> Finding:
    """The files whose code (not whose comments) has the name `word` are `equals`, by their last part."""
    places: list[Place] = []
    seen: list[str] = []
    for tree in context.trees(source, params.get("file", "*"), params["word"]):
        lines = [at for at, line in enumerate(tree.lines, 1) if params["word"].encode() in line]
        hits = [at for at in lines if params["word"] in tree.tokens(at, at)]
        if hits:
            seen.append(tree.path.rpartition("/")[2])
            places.append(place_at(source, tree.path, hits[0], hits[0]))
    return Finding(sorted(seen) == sorted(params["equals"]), ", ".join(sorted(seen)) or "none", tuple(places))


def constant(context: Context, source: str, params: Params) -> Finding:
    """The constant `name`, declared in the symbol or file `at`, has the value `equals`."""
    (span, *_) = context.find(source, params["at"], params.get("file", "*"))
    tree = context.tree(source, span.path)
    symbol = next(s for s in tree.symbols if s.name == span.symbol)
    value, lines = constant_value(tree, symbol, params["name"])
    return Finding(value == params["equals"], f"{value:,}", (place_at(source, span.path, *lines),))


def constant_value(
    tree: Tree, symbol: Symbol, name: str, within: frozenset[str] = frozenset()
) -> tuple[int, tuple[int, int]]:
    """The value of a constant of whole numbers and other constants, and its lines. Raises AnchorNotFound.

    `within` are the constants whose values hang on this one: one that hangs on itself has none.
    """
    items = [i for i in outline(tree, symbol) if i.kind in ("decl", "assign") and name in i.names]
    if not items or name in within:
        raise AnchorNotFound(f"{tree.path} {symbol.name}", f"constant {name}", [])
    item = items[0]
    text = " ".join(tree.tokens(item.first, item.last))
    # One declaration may make several constants.
    expression = (text.partition(f" {name} = ")[2] or text.partition("=")[2]).partition(";")[0].partition(" , ")[0]
    expression = re.sub(r"sizeof \( \w+ \)", "2", re.sub(r"(?<=\d)[uUlLfF]+\b", "", expression)).replace("/", "//")
    inner = set(re.findall(r"[A-Za-z_]\w*", expression))
    values = {other: constant_value(tree, symbol, other, within | {name})[0] for other in inner}
    return evaluate(expression, values), (item.first, item.last)


def _texts(context: Context, source: str, params: Params) -> list[tuple[Place, str]]:
    if "at" in params:
        spans = found_at(context, source, params)
        return [(context.place(s), _plain(context.tree(s.source, s.path).lines[s.first - 1 : s.last])) for s in spans]
    return [
        (_whole(context, source, path), _plain(context.files(source).read(path).split(b"\n")))
        for path in context.files(source).paths()
        if fnmatchcase(path, params["file"])
    ]


def _plain(lines: Sequence[bytes]) -> str:
    bare = (_MARKS.sub("", line.decode("utf-8", "replace").strip()) for line in lines)
    return re.sub(r"\s+", " ", " ".join(bare))


def _whole(context: Context, source: str, path: str) -> Place:
    data = context.files(source).read(path)
    return place_at(source, path, 1, data.count(b"\n") + (not data.endswith(b"\n")))


def _places(context: Context, spans: Sequence[Span]) -> tuple[Place, ...]:
    return tuple(dict.fromkeys(context.place(span) for span in spans))


def _counted(counts: Mapping[str, int]) -> str:
    return "; ".join(f"{what!r} {times} times" if times != 1 else f"{what!r} once" for what, times in counts.items())


_AT = frozenset({"at", "file", "source"})
SOURCE_KINDS: dict[str, Kind] = {
    "has": Kind(has, _AT | {"tokens"}, frozenset({"at", "tokens"})),
    "lacks": Kind(lacks, _AT | {"tokens"}, frozenset({"at", "tokens"})),
    "count": Kind(count, _AT | {"tokens", "equals"}, frozenset({"at", "tokens", "equals"})),
    "order": Kind(order, _AT, frozenset({"at"})),
    "inside": Kind(inside, _AT | {"outer"}, frozenset({"at", "outer"})),
    "found": Kind(found, _AT, frozenset({"at"})),
    "absent": Kind(absent, _AT, frozenset({"at"})),
    "text": Kind(text, _AT | {"has", "lacks"}),
    "file": Kind(file_exists, frozenset({"file", "exists", "source"}), frozenset({"file"})),
    "names": Kind(names, _AT | {"kind", "equals", "contains"}, frozenset({"at"})),
    "users": Kind(users, frozenset({"word", "file", "equals", "source"}), frozenset({"word", "equals"})),
    "constant": Kind(constant, _AT | {"name", "equals"}, frozenset({"at", "name", "equals"})),
}
