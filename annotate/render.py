"""Excerpts of source, ready to be shown: which lines, in which colours, tied to which concepts. Pure: no
files.

An `Excerpt` holds the lines around a set of spans. `to_html` makes the pane of a page of it, `to_terminal`
(in `terminal.py`) puts two of them side by side.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from html import escape
from urllib.parse import urlsplit

from pygments.lexers import get_lexer_by_name
from pygments.token import STANDARD_TYPES, Token

from annotate.errors import AnnotateError, RangeOutside
from annotate.terminal import to_terminal

__all__ = ["Excerpt", "excerpt", "line_html", "missing_html", "to_html", "to_terminal"]

_LEXERS = {"cuda": "cuda", "python": "python", "markdown": "markdown"}
SIDES = ("upstream", "port")
# A piece of a line: its Pygments class (empty for plain text) and its text.
Piece = tuple[str, str]


@dataclass(frozen=True)
class Excerpt:
    """Lines of one file to be shown on one side (`upstream` or `port`).

    `lines` are their texts by 1-based number; `links` the concepts of a line, the innermost first (none for
    a line of context); `hunks` the runs of lines without a gap. `note` is a remark for the caption, such as
    that the file is the reader's own copy. `pieces` are the lines cut up for highlighting.
    """

    side: str
    source: str
    path: str
    language: str
    lines: dict[int, str]
    links: dict[int, tuple[str, ...]]
    hunks: tuple[tuple[int, int], ...]
    permalink: str | None = None
    licence: str | None = None
    note: str | None = None
    pieces: dict[int, tuple[Piece, ...]] = field(default_factory=dict, repr=False, compare=False)

    @property
    def first(self) -> int:
        """The number of the first line shown."""
        return self.hunks[0][0]

    @property
    def last(self) -> int:
        """The number of the last line shown."""
        return self.hunks[-1][1]

    @property
    def revision(self) -> str:
        """What follows the @ of the source's id: a release or a commit; empty for our own files."""
        return self.source.partition("@")[2]


def excerpt(
    text: str,
    spans: Mapping[str, Iterable[tuple[int, int]]],
    *,
    side: str,
    source: str,
    path: str,
    language: str,
    context: int = 2,
    permalink: str | None = None,
    licence: str | None = None,
    note: str | None = None,
    hide: Callable[[str], bool] = lambda line: False,
) -> Excerpt:
    """Cut out of a file's `text` the lines of `spans` (by concept, 1-based), with `context` lines around
    them; lines for which `hide` says so are left out without a gap mark (region fences, which say nothing).

    Raises RangeOutside for a span that is reversed or not inside the file, ValueError for an unknown side,
    and AnnotateError for no spans at all.
    """
    if side not in SIDES:
        raise ValueError(f"side is {' or '.join(SIDES)}, not {side!r}")
    if context < 0:
        raise ValueError(f"context is 0 or more lines, not {context}")
    text = text.removeprefix("\ufeff")
    lines = [line.rstrip("\r") for line in text.split("\n")]
    count = len(lines) - (len(lines) > 1 and not lines[-1])
    ranges = [(first, last, concept) for concept, places in spans.items() for first, last in places]
    if not ranges:
        raise AnnotateError(f"{source} {path}: there is no span to show")
    for first, last, _ in ranges:
        if not 1 <= first <= last <= count:
            raise RangeOutside(path, first, last, count)
    hunks = _merge([(max(1, first - context), min(count, last + context)) for first, last, _ in ranges])
    hunks = _close(hunks, lambda number: hide(lines[number - 1]))
    shown = [n for first, last in hunks for n in range(first, last + 1) if not hide(lines[n - 1])]
    pieces = _pieces(text, language)
    return Excerpt(
        side=side,
        source=source,
        path=path,
        language=language,
        lines={number: lines[number - 1] for number in shown},
        links={number: _links(number, ranges) for number in shown},
        hunks=tuple(hunks),
        permalink=permalink,
        licence=licence,
        note=note,
        pieces={number: pieces[number - 1] for number in shown},
    )


def _merge(ranges: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Join ranges that overlap, touch, or leave out a single line: a gap mark would take as much room as the
    line."""
    merged: list[tuple[int, int]] = []
    for first, last in sorted(ranges):
        if merged and first <= merged[-1][1] + 2:
            merged[-1] = merged[-1][0], max(last, merged[-1][1])
        else:
            merged.append((first, last))
    return merged


def _close(hunks: list[tuple[int, int]], hidden: Callable[[int], bool]) -> list[tuple[int, int]]:
    """Join hunks with nothing between them but lines that are left out anyway."""
    closed = hunks[:1]
    for first, last in hunks[1:]:
        if all(map(hidden, range(closed[-1][1] + 1, first))):
            closed[-1] = closed[-1][0], last
        else:
            closed.append((first, last))
    return closed


def _links(number: int, ranges: list[tuple[int, int, str]]) -> tuple[str, ...]:
    """Return the concepts of a line, that of the shortest span first."""
    around = sorted((last - first, concept) for first, last, concept in ranges if first <= number <= last)
    return tuple(dict.fromkeys(concept for _, concept in around))


@lru_cache(maxsize=64)
def _pieces(text: str, language: str) -> tuple[tuple[Piece, ...], ...]:
    """Cut a whole file up for highlighting, line by line; whole, so that long comments and strings come out
    right."""
    lexer = get_lexer_by_name(_LEXERS.get(language, "text"), stripnl=False, ensurenl=False)
    lines: list[list[Piece]] = [[]]
    # Carriage returns go first: the lexer would turn a lone one into a line end and shift every number below.
    for kind, value in lexer.get_tokens(text.replace("\r", "")):
        css = _css(kind)
        for index, part in enumerate(value.split("\n")):
            if index:
                lines.append([])
            if part:
                lines[-1].append((css, part))
    return tuple(tuple(line) for line in lines)


def _css(kind: object) -> str:
    token = kind
    while token not in STANDARD_TYPES:
        token = getattr(token, "parent", None) or Token
    css = str(STANDARD_TYPES[token])
    return "" if css == "w" else css  # white space needs no colour, and is half of all tokens


def to_html(shown: Excerpt, *, scope: str, caption: str | None = None) -> str:
    """Return the pane as HTML. `scope` makes line ids unique on a page: `src-{scope}-u-L249`, `-p-` for a
    port. `caption` is HTML to head the pane with in place of the file, its revision and its licence.

    Every text is escaped. The first line of each run of lines with the same concepts can be reached by
    keyboard.
    """
    letter = shown.side[0]
    rows = []
    before: tuple[str, ...] | None = None
    for index, (first, last) in enumerate(shown.hunks):
        if index:
            rows.append('<li class="pw-gap" aria-hidden="true">⋯</li>')
            before = None
        for number in filter(shown.lines.__contains__, range(first, last + 1)):
            links = shown.links[number]
            rows.append(_row(shown, number, f"src-{scope}-{letter}-L{number}", links, links != before))
            before = links
    return (
        f'<figure class="pw-pane pw-{shown.side}" data-source="{escape(shown.source)}"'
        f' data-path="{escape(shown.path)}">{_caption(shown) if caption is None else _figcaption(caption)}'
        f'<ol class="pw-code highlight">{"".join(rows)}</ol></figure>'
    )


def line_html(shown: Excerpt, number: int) -> str:
    """Return the text of one line that is shown, escaped, in Pygments' classes."""
    return "".join(
        f'<span class="{css}">{escape(text, quote=False)}</span>' if css else escape(text, quote=False)
        for css, text in shown.pieces[number]
    )


def _row(shown: Excerpt, number: int, row_id: str, links: tuple[str, ...], starts: bool) -> str:
    code = line_html(shown, number)
    linked = f' data-links="{escape(" ".join(links))}"' if links else ""
    focus = ' tabindex="0"' if links and starts else ""
    kind = "pw-line" if links else "pw-line pw-context"
    return f'<li class="{kind}" id="{escape(row_id)}" value="{number}"{linked}{focus}>{code}</li>'


def _caption(shown: Excerpt) -> str:
    path = escape(shown.path)
    link = _safe(shown.permalink)
    parts = [f'<a href="{escape(link)}">{path}</a>' if link else f'<span class="pw-path">{path}</span>']
    if shown.revision:
        parts.append(f'<span class="pw-rev">{escape(shown.revision)}</span>')
    if shown.licence:
        parts.append(f'<span class="pw-licence">{escape(shown.licence)}</span>')
    if shown.note:
        parts.append(f'<span class="pw-note">{escape(shown.note)}</span>')
    return _figcaption(" ".join(parts))


def _figcaption(html: str) -> str:
    return f"<figcaption>{html}</figcaption>"


def _safe(link: str | None) -> str | None:
    return link if link and urlsplit(link).scheme in ("http", "https") else None


def missing_html(
    *,
    source: str,
    path: str | None = None,
    permalink: str | None = None,
    licence: str | None = None,
    caption: str | None = None,
) -> str:
    """Return a pane for a source that is not on this machine: what is missing, how to get it, where it is
    online. `caption` as for `to_html`."""
    link = _safe(permalink)
    name = escape(path or source)
    head = f'<a href="{escape(link)}">{name}</a>' if link else f'<span class="pw-path">{name}</span>'
    revision = source.partition("@")[2]
    head += f' <span class="pw-rev">{escape(revision)}</span>' if revision else ""
    head += f' <span class="pw-licence">{escape(licence)}</span>' if licence else ""
    online = f' Or read it online: <a href="{escape(link)}">{escape(link)}</a>.' if link else ""
    return (
        f'<figure class="pw-pane pw-upstream pw-missing" data-source="{escape(source)}"'
        f' data-path="{escape(path or "")}">{_figcaption(head if caption is None else caption)}'
        f"<p>The source <code>{escape(source)}</code> is not on this machine."
        f" Fetch it with <code>pagewalk fetch</code> and build the pages again.{online}</p></figure>"
    )
