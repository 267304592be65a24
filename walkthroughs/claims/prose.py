"""Holds the prose of the walkthroughs to what was checked: lists the sentences that nothing vouches for.

Two kinds of sentence need a voucher. One states a **number**. A step's sentence may state the numbers that the step's
checks saw or its code states (`vouching`); any other number needs a name, `[L1-10]` or `[vllm-classic/grid]`, and must
stand in the claim or step that is named. The other says what **code does**: an actor (`_ACTORS`: a kernel, a thread,
the host, vLLM, ...) and right behind it a verb in the present. It is vouched for by a name, or by the step that it
stands in, if that step checks something and shows lines of the project that the sentence speaks of. An introduction has
neither checks nor lines, so there both kinds need a name.

What this proves is little: no number was made up for a sentence, and every statement about code stands beside lines
that ran, or leads to them. Whether the sentence says the right thing of the right number, a reader must judge. Titles,
"one", fractions in words, and statements with another subject or verb are not looked at.
"""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from annotate import spans
from walkthroughs import naming
from walkthroughs.claims import vouching
from walkthroughs.claims.ledger import claims
from walkthroughs.claims.numerals import numbers
from walkthroughs.evidence import Evidence
from walkthroughs.step import Step, Walkthrough, registry, steps

ROOT = Path(__file__).resolve().parents[2]
_END = re.compile(r"(?<=[.!?])[*\"”’)]{0,3}\s+(?=[A-Z0-9`*(\"“]|v[12]\b|vLLM|tiny-vllm)")
_ITEM = re.compile(r"\s*(?:[*-]|\d+\.)\s")
# One of these at work; a name of a project on its own stands for its code.
_ONE = (
    r"(?:vLLM|tiny-vllm|[Kk]ernel|[Tt]hread(?: (?:block|group))?|[Ww]arp|[Ll]ane|[Hh]ost|[Ll]auncher|[Ww]riter"
    r"|[Pp]rogram|[Pp]ort)"
)
_MANY = r"(?:[Kk]ernels|[Tt]hreads|[Tt]hread (?:blocks|groups)|[Ww]arps|[Ll]anes|[Ww]riters|[Pp]rograms|[Pp]orts)"
_ADVERBS = r"(?: (?:[\d.]+|also|always|itself|just|never|now|only|really|still|then|therefore))*"
_NOT_VERBS = r"(?!(?:as|always|blocks|itself|lanes|lines|numbers|partitions|threads|values|was)\b)"
_DO = (
    "add ask are call can cannot carry come compare compute copy cover do fall fetch fill find get give go have hold "
    "keep launch leave load look make may meet move multiply must need never own read run see share sit skip stand "
    "start stay step stop store sum take touch use wait walk want work write"
).replace(" ", "|")
_ACTORS = re.compile(
    rf"\b{_ONE}{_ADVERBS} {_NOT_VERBS}(?:can|cannot|may|must|[a-z]+s)\b|\b{_MANY}{_ADVERBS} (?:{_DO})\b"
)
_PROJECTS = {"tiny-vllm": re.compile(r"\btiny-vllm\b"), "vllm": re.compile(r"(?<!tiny-)\bvLLM\b|\bclassic kernel\b")}


@dataclass(frozen=True)
class Sentence:
    """A sentence of Markdown; `line` counts from 0 at the top of its text."""

    text: str
    line: int


@dataclass(frozen=True)
class Offence:
    """A sentence that nothing vouches for: where it stands, and what it lacks."""

    page: str
    where: str
    text: str
    lacks: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.where}: {self.page}: {self.text}\n    {'; '.join(self.lacks)}"


def unvouched(records: Mapping[str, Evidence]) -> list[Offence]:
    """Every offending sentence of every walkthrough, introductions first, in reading order."""
    found = []
    for walkthrough in registry().values():
        found += of_introduction(walkthrough, records)
        for step in walkthrough.steps:
            found += of_step(step, records)
    return found


def of_step(step: Step, records: Mapping[str, Evidence]) -> list[Offence]:
    """The offending sentences of one step."""
    shown = vouching.checks(step) and _lines(step)
    project = step.source.partition("@")[0]

    def shows(text: str) -> bool:
        return bool(shown) and all(name == project for name in speaks_of(text))

    known = vouching.of_step(step, records.get(step.id))
    return _offences(step.run.__doc__ or "", step.id, _place(step), known, shows, records)


def of_introduction(walkthrough: Walkthrough, records: Mapping[str, Evidence]) -> list[Offence]:
    """The offending sentences of a walkthrough's introduction, where nothing is vouched for without a name."""
    place = _introduction(walkthrough)
    return _offences(walkthrough.intro, walkthrough.id, place, frozenset(), lambda text: False, records)


def says_what_code_does(text: str) -> bool:
    """True for a sentence with an actor and, right behind it, a verb in the present."""
    return bool(_ACTORS.search(naming.without(text)))


def speaks_of(text: str) -> tuple[str, ...]:
    """The projects whose code a sentence speaks of by name."""
    return tuple(name for name, pattern in _PROJECTS.items() if pattern.search(naming.without(text)))


def sentences(prose: str) -> Iterator[Sentence]:
    """The sentences of a step's Markdown, in order; no code fences, no directives. A list item begins a new one."""
    paragraph: list[tuple[int, str]] = []
    fence = ""
    for at, line in enumerate([*prose.splitlines(), ""]):
        mark = re.match(r"\s*(```|~~~)", line)
        if mark and fence in ("", mark[1]):
            fence = "" if fence else mark[1]
        if mark or fence or not line.strip() or _ITEM.match(line):
            yield from _split(paragraph)
            paragraph = []
        if line.strip() and not (mark or fence or line.strip().startswith(":::")):
            paragraph.append((at, line.strip()))


def _split(paragraph: Iterable[tuple[int, str]]) -> Iterator[Sentence]:
    text, starts = "", []
    for at, line in paragraph:
        text += " " if text else ""
        starts.append((len(text), at))
        text += line
    bounds = [0, *(match.end() for match in _END.finditer(text)), len(text)]
    for first, last in itertools.pairwise(bounds):
        if part := text[first:last].strip():
            yield Sentence(part, max(at for start, at in starts if start <= first))


def _offences(
    prose: str, page: str, place: tuple[str, int], known: frozenset[float], shows: Callable[[str], bool],
    records: Mapping[str, Evidence],
) -> list[Offence]:  # fmt: skip
    found = []
    for sentence in sentences(prose):
        named = naming.names(sentence.text)
        lacks = [f"nothing is called {name}" for name in named if name not in claims() and name not in steps()]
        there = known.union(*(_known(name, records) for name in named))
        loose = [n.text for n in numbers(naming.without(sentence.text)) if not n.among(there)]
        lacks += [f"no check shows {', '.join(loose)}"] if loose else []
        if says_what_code_does(sentence.text) and not named and not shows(sentence.text):
            lacks.append("says what code does, and names no claim and no step")
        if lacks:
            found.append(Offence(page, f"{place[0]}:{place[1] + sentence.line}", sentence.text, tuple(lacks)))
    return found


def _known(name: str, records: Mapping[str, Evidence]) -> frozenset[float]:
    if name in claims():
        return vouching.of_claim(name)
    return vouching.of_step(steps()[name], records.get(name)) if name in steps() else frozenset()


def _lines(step: Step) -> bool:
    """True if the step's left pane shows lines: anchored ones of a pinned source, or a file of ours."""
    return "@" not in step.source or any(concept in spans.spans(step.source) for concept in step.reads)


def _place(step: Step) -> tuple[str, int]:
    path = Path(step.run.__code__.co_filename)
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.FunctionDef) and node.name == step.run.__name__:
            return _short(path), node.body[0].lineno
    raise LookupError(f"{path.name}: no function {step.run.__name__}")


def _introduction(walkthrough: Walkthrough) -> tuple[str, int]:
    path = Path(walkthrough.steps[0].run.__code__.co_filename)
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.keyword) and node.arg == "intro":
            return _short(path), node.value.lineno
    raise LookupError(f"{path.name}: no introduction of {walkthrough.id}")


def _short(path: Path) -> str:
    return path.relative_to(ROOT).as_posix() if path.is_relative_to(ROOT) else path.name
