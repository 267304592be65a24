"""The landmark grammar: how an anchor names a place inside a symbol without counting lines.

    for(i)#2            the second loop over i        call(f)  assign(x)  decl(x)  param(x)  arg(x)  return
    if(NAME)            an if with NAME in its condition   else(NAME) switch(NAME) while(NAME) assert(NAME)
    for(i)[decl(acc)]   such a loop with that inside  for(j) > call(f)   that call inside such a loop
    ^if(lane)           with the comment and pragma lines directly above
    A..B                from the first line of A to the last of B; B is looked for from the start of A on
    signature  def  body                    the symbol's head, the symbol without its header, its body
    (call_expression) @here                 a raw tree-sitter query
`#n` counts in source order from 1, or from the end with `#-1`; without it, exactly one place may fit.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache

from annotate.errors import LandmarkSyntax

KINDS = frozenset(
    {"for", "while", "if", "else", "switch", "decl", "assign", "call", "launch", "param", "arg", "return"}
    | {"assert", "signature", "def", "body"}
)
_UNNAMED = frozenset({"signature", "def", "body", "return"})
_STEP = re.compile(r"(?P<kind>[a-z]+)(?:\((?P<name>[^()\[\]]+)\))?")
_ORDINAL = re.compile(r"#(?P<n>-?[1-9][0-9]*)")


@dataclass(frozen=True)
class Step:
    """One step of a path: a kind, the name it carries, what must lie inside it, and which one of several."""

    kind: str
    name: str | None = None
    inside: tuple[Step, ...] = ()
    ordinal: int | None = None

    def __str__(self) -> str:
        name = f"({self.name})" if self.name else ""
        inside = "".join(f"[{step}]" for step in self.inside)
        return f"{self.kind}{name}{inside}{f'#{self.ordinal}' if self.ordinal else ''}"


@dataclass(frozen=True)
class Term:
    """A path of steps, each inside the one before, or a raw `query`; `comments`: with those above."""

    steps: tuple[Step, ...]
    comments: bool = False
    query: str | None = None
    ordinal: int | None = None

    def __str__(self) -> str:
        path = self.query if self.query is not None else " > ".join(map(str, self.steps))
        return f"{'^' if self.comments else ''}{path}"


@dataclass(frozen=True)
class Landmark:
    """A place (`end` is None) or a range from `start` to `end`."""

    start: Term
    end: Term | None = None


@cache
def read_landmark(text: str) -> Landmark:
    """Read a landmark. Raises LandmarkSyntax that says what is wrong with it."""
    start, rest = _term(text, text.strip())
    if not rest:
        return Landmark(start)
    if not rest.startswith(".."):
        raise LandmarkSyntax(text, f"cannot read {rest!r}")
    end, rest = _term(text, rest[2:])
    if rest:
        raise LandmarkSyntax(text, f"cannot read {rest!r}")
    if end.comments:
        raise LandmarkSyntax(text, "^ belongs to the first term of a range")
    return Landmark(start, end)


def _term(text: str, rest: str) -> tuple[Term, str]:
    rest = rest.strip()
    comments = rest.startswith("^")
    rest = rest.removeprefix("^").lstrip()
    if rest.startswith("("):
        query, rest = _raw(text, rest)
        ordinal, rest = _ordinal(rest)
        return Term((), comments, query, ordinal), rest.strip()
    steps = []
    while True:
        step, rest = _step(text, rest.strip())
        steps.append(step)
        if not rest.lstrip().startswith(">"):
            return Term(tuple(steps), comments), rest.strip()
        rest = rest.lstrip()[1:]


def _raw(text: str, rest: str) -> tuple[str, str]:
    """Split a raw query, with its captures and predicates, from what follows it."""
    depth = 0
    end = 0
    quoted = False
    for index, sign in enumerate(rest):
        if sign == '"':
            quoted = not quoted
        elif not quoted:
            depth += (sign in "([") - (sign in ")]")
            if depth == 0 and sign in ")]":
                end = index + 1
                capture = re.match(r"\s*@[\w.]+", rest[end:])
                end += capture.end() if capture else 0
                if not re.match(r"\s*\(", rest[end:]):
                    break
    if depth != 0 or not end:
        raise LandmarkSyntax(text, "a raw query's parentheses do not match")
    return rest[:end], rest[end:]


def _ordinal(rest: str) -> tuple[int | None, str]:
    match = _ORDINAL.match(rest)
    return (int(match["n"]), rest[match.end() :]) if match else (None, rest)


def _step(text: str, rest: str) -> tuple[Step, str]:
    match = _STEP.match(rest)
    if match is None:
        raise LandmarkSyntax(text, f"cannot read {rest!r}" if rest else "something is missing at its end")
    kind, name = match["kind"], match["name"]
    if kind not in KINDS:
        raise LandmarkSyntax(text, f"no such kind as {kind!r}; there are {', '.join(sorted(KINDS))}")
    if (name is None) != (kind in _UNNAMED):
        raise LandmarkSyntax(text, f"{kind} takes no name" if name else f"{kind} needs a name: {kind}(NAME)")
    rest = rest[match.end() :]
    inside = []
    while rest.startswith("["):
        step, rest = _step(text, rest[1:].lstrip())
        if not rest.lstrip().startswith("]"):
            raise LandmarkSyntax(text, "a [ is not closed")
        rest = rest.lstrip()[1:]
        inside.append(step)
    ordinal, rest = _ordinal(rest)
    return Step(kind, name.strip() if name else None, tuple(inside), ordinal), rest
