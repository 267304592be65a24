"""Holds a step's prose to its checks: which sentences state a number that nothing of the step vouches for.

A number in a sentence is vouched for if the step's record observed it, if the step's function hands it to a case or a
check, or if the sentence names a claim (L1-10) or another step in backquotes. Releases such as 0.24.0 and what stands
in code fences do not count. This says nothing about sentences without a number.
"""

from __future__ import annotations

import ast
import inspect
import io
import re
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass

from walkthroughs.claims.ledger import claims
from walkthroughs.evidence import Evidence
from walkthroughs.step import Step, steps

WORDS = {
    "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8, "nine": 9, "ten": 10, "twelve": 12,
}  # fmt: skip
_NUMBER = re.compile(r"(?<![\w.])-?\d+(?:,\d{3})*(?:\.\d+)?(?![\w.]*\w)")
_RELEASE = re.compile(r"\b\d+\.\d+\.\d+(?:\.\w+)?\b")
_END = re.compile(r"(?<=[.!?])\s+(?=[A-Z`*(])")
_CLAIM = re.compile(r"\b(?:L[12]|D|C)-\d\d\b")


@dataclass(frozen=True)
class Sentence:
    """A sentence of a step whose `numbers` nothing vouches for."""

    step: str
    text: str
    numbers: tuple[str, ...]


def sentences(prose: str) -> Iterator[str]:
    """The sentences of a step's Markdown, in order; no code fences, no directives."""
    bare = re.sub(r"^(```|~~~).*?^\1\s*$", "", prose, flags=re.DOTALL | re.MULTILINE)
    for paragraph in re.split(r"\n\s*\n", bare):
        text = " ".join(line.strip() for line in paragraph.splitlines() if not line.startswith(":::"))
        yield from (part for part in _END.split(text) if part.strip())


def numbers(text: str) -> list[str]:
    """The numbers of a sentence, in digits or in words from two to twelve, without releases."""
    bare = _RELEASE.sub("", text)
    found = [match.group().replace(",", "") for match in _NUMBER.finditer(bare)]
    return found + [str(WORDS[word]) for word in re.findall(r"[a-z]+", bare.lower()) if word in WORDS]


def vouched(step: Step, record: Evidence | None) -> set[float]:
    """The numbers that a step vouches for: those of its checks as they ran, and those in its function's code."""
    found = {float(token) for token in _in_code(step)}
    for check in record.checks if record else ():
        for text in (check.name, check.observed, check.expected, check.note):
            found |= {float(number) for number in numbers(text)}
            found |= {float(match) for match in re.findall(r"-?\d+(?:\.\d+)?(?:e[-+]?\d+)?", text)}
    return found


def unvouched(step: Step, record: Evidence | None) -> list[Sentence]:
    """The sentences of a step that state a number which nothing vouches for."""
    known = vouched(step, record)
    found = []
    for text in sentences(step.prose):
        if _named(text):
            continue
        loose = tuple(number for number in numbers(text) if abs(float(number)) not in {abs(n) for n in known})
        if loose:
            found.append(Sentence(step.id, text, loose))
    return found


def _named(text: str) -> bool:
    return any(name in claims() for name in _CLAIM.findall(text)) or any(f"`{name}`" in text for name in steps())


def _in_code(step: Step) -> Iterator[str]:
    source = inspect.getsource(step.run)
    for token in tokenize.generate_tokens(io.StringIO(inspect.cleandoc(source)).readline):
        if token.type == tokenize.NUMBER:
            yield str(abs(ast.literal_eval(token.string)))
        elif token.type == tokenize.STRING and not token.string.startswith(('"""', "'''")):
            yield from numbers(token.string)
