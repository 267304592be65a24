"""A step's words for places outside the site: Markdown without our marks, directives and relative links.

What a mark said, which claim proves a sentence, is said once at the end instead.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from annotate import concepts, sources, spans
from annotate.spans import Span
from walkthroughs import evidence, naming
from walkthroughs.site import proof
from walkthroughs.site.code import lines_said
from walkthroughs.site.errors import StepNotProven
from walkthroughs.site.inline import plain
from walkthroughs.site.model import Row
from walkthroughs.step import Step, steps

_FENCE = re.compile(r"^ {0,3}(`{3,}|~{3,})")
_DIRECTIVE = re.compile(r"^:::.*\n?", re.MULTILINE)
_WRAPPED_MARK = re.compile(rf"[ \t]*\n[ \t]*(?=\[(?:{naming.CLAIM}|{naming.STEP})\])")
_ATTRIBUTES = re.compile(r"(`[^`\n]*`)|[ \t]*\{[ ]*[.#:][^{}\n]*\}")
# Code in backquotes comes first, so that what looks like a link inside it is left alone.
_LINK = re.compile(r"(`[^`\n]*`)|(!?)\[([^\]\n]*)\]\(([^)\s]*)[^)\n]*\)")
_BLANKS = re.compile(r"\n{3,}")


class ExportError(Exception):
    """Something cannot be exported; the message says what, and what to do."""


def words(text: str) -> str:
    """The text as Markdown that stands alone; code fences stay as they are.

    Marks (`[L1-18]`), directives (`:::`) and attribute lists go, relative links become their words, pictures with a
    relative address their description.
    """
    parts = [part if code else _outside_code(part) for code, part in _chunks(text)]
    return _BLANKS.sub("\n\n", "".join(parts)).strip()


def _outside_code(text: str) -> str:
    text = naming.without(_WRAPPED_MARK.sub(" ", _DIRECTIVE.sub("", text)))
    text = _ATTRIBUTES.sub(lambda match: match[1] or "", text)
    return _LINK.sub(lambda match: match[0] if match[1] or _absolute(match[4]) else match[3], text)


def _absolute(address: str) -> bool:
    return address.startswith(("https://", "http://"))


def _chunks(text: str) -> Iterator[tuple[bool, str]]:
    """The text in pieces, each with whether it is a fenced block of code."""
    fence, piece = "", ""
    for line in text.splitlines(keepends=True):
        mark = _FENCE.match(line)
        if mark and not fence:
            yield False, piece
            fence, piece = mark[1], line
        elif mark and mark[1].startswith(fence):
            yield True, piece + line
            fence, piece = "", ""
        else:
            piece += line
    yield bool(fence), piece


def claims_of(text: str) -> tuple[str, ...]:
    """The claims that a text names, each once."""
    return tuple(dict.fromkeys(name for name in naming.names(text) if "/" not in name))


@dataclass(frozen=True)
class Standing:
    """How far a step is proven by its committed record: in words, and what was seen."""

    words: tuple[str, ...]
    rows: tuple[Row, ...] = ()
    rows_from: str = ""


def standing(step: Step, record: evidence.Evidence | None) -> Standing:
    """What a step's committed record says of it; runs on this machine do not count, so that exports are alike."""
    fresh = record is not None and evidence.fresh(record, step)
    try:
        found = proof.prove(step.id, record, fresh, None, None)
    except StepNotProven:
        return Standing(("not yet validated on a GPU",))
    said = tuple(f"validated on {badge.text}" if badge.kind == "gpu" else badge.text for badge in found.badges)
    return Standing(said, found.rows, found.rows_from)


def table(rows: Sequence[Row]) -> list[str]:
    """The rows as a Markdown table of four columns, which is what a narrow panel has room for."""
    if not rows:
        return []
    cells = [
        (row.name + (f" ({row.note})" if row.note else ""), row.observed, row.expected, row.verdict) for row in rows
    ]
    head = ["| Check | Observed | Expected | Verdict |", "| --- | --- | --- | --- |"]
    return [*head, *(f"| {' | '.join(map(plain, row))} |" for row in cells)]


def places(step: Step) -> list[Span]:
    """The upstream lines that a step reads, in the order in which it names them, no range twice."""
    if "@" not in step.source:
        return []
    known = spans.spans(step.source)
    found: dict[tuple[str, int, int], Span] = {}
    for name in step.reads:
        for span in known.get(name, ()):
            found.setdefault((span.path, span.first, span.last), span)
    return list(found.values())


def link(span: Span) -> str:
    """A permanent link to a span's lines, as Markdown."""
    pin = sources.pins()[span.source]
    said = f"{span.path.rpartition('/')[2]}, {lines_said(span.first, span.last)} ({pin.name} {pin.revision})"
    return f"[{plain(said)}]({pin.link(span.path, span.first, span.last)})"


def title_of(concept: str) -> str:
    """A concept's title as plain text."""
    return concepts.concept(concept).title.replace("`", "")


def proven_by(step: Step) -> list[str]:
    """The line that names the claims and the other steps behind a step's sentences; none where it names none."""
    named = naming.names(step.prose)
    claims = list(claims_of(step.prose))
    others = list(dict.fromkeys(name for name in named if name in steps() and name != step.id))
    said = [f"the claims {', '.join(claims)} (`pagewalk claims --id {claims[0]}`)"] if claims else []
    said += [f"the steps {', '.join(f'`{name}`' for name in others)}"] if others else []
    return [f"Its sentences rest on {' and '.join(said)}."] if said else []
