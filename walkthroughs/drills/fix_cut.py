"""Cuts a fault or a blank into the text of a port, by the region that holds it. Pure.

A cut is told by few characters of the port, or by none: then the whole region becomes a blank.
"""

from __future__ import annotations

import io
import tokenize
from dataclasses import dataclass
from pathlib import Path

from annotate.errors import RegionError
from annotate.regions import regions
from walkthroughs.drills.errors import DrillError

ROOT = Path(__file__).resolve().parents[2]
BLANK = "____"


@dataclass(frozen=True)
class Cut:
    """Replace `old` by `new` in `region`: the `nth` place there, counted over all places of the region.

    `to`: the cut goes on to the end of the first line behind `old` that holds it, and begins where the line of `old`
    begins. `old` empty: all that the region holds. `new` empty: the lines are taken out. `needs`: a name of numba's
    that the fault uses and the port does not import.
    """

    region: str
    old: str = ""
    new: str = BLANK
    nth: int = 0
    to: str = ""
    needs: str = ""


def cut(text: str, wanted: Cut, name: str) -> str:
    """The text with the cut made; raises DrillError, with the drill's `name`, where what to cut is not there."""
    first, last = _span(text, wanted, name)
    made = text[:first] + wanted.new + text[last:]
    if not wanted.needs:
        return made
    return made.replace("\nfrom numba import cuda, ", f"\nfrom numba import cuda, {wanted.needs}, ", 1)


def places(text: str, region: str) -> list[tuple[int, int]]:
    """First and last line (1-based) of each place of a region; raises DrillError for fences that do not fit."""
    try:
        return [(span.first, span.last) for span in regions(text).get(region, [])]
    except RegionError as error:
        said = str(error).removeprefix("text:").rstrip("?.")
        raise DrillError(f"line {said} (the `# region:` and `# endregion` lines must stay as they are)") from error


def place_of(text: str, wanted: Cut, region: str) -> int:
    """Which of a region's places in the port's `text` holds the cut."""
    line = text[: _span(text, wanted, "")[0]].count("\n") + 1
    return next((n for n, (first, last) in enumerate(places(text, region)) if first <= line <= last), 0)


def taken(text: str, wanted: Cut) -> str:
    """What the cut takes out of the port's text."""
    first, last = _span(text, wanted, "")
    return text[first:last]


def parts(code: str) -> tuple[list[str], list[str]]:
    """The names (and numbers) and the operators of a piece of code, each once, in the order of the alphabet."""
    names, signs = set(), set()
    for token in tokenize.generate_tokens(io.StringIO(f"({code.strip()}\n)").readline):
        if token.type in (tokenize.NAME, tokenize.NUMBER):
            names.add(token.string)
        elif token.type == tokenize.OP and token.string not in "()[],:.":
            signs.add(token.string)
    return sorted(names), sorted(signs)


def around(text: str, wanted: Cut) -> tuple[str, str]:
    """The line of code before the cut, and the line with the fault, or `` where lines were taken out."""
    first, last = _span(text, wanted, "")
    start, end = text.rfind("\n", 0, first) + 1, text.find("\n", last)
    above = [line.strip() for line in text[:start].splitlines() if line.strip() and not line.strip().startswith("#")]
    own = (text[start:first] + wanted.new + text[last:end]).strip() if wanted.new else ""
    return above[-1], own.splitlines()[0] if own else ""


def blanks(text: str) -> list[int]:
    """The lines that still have a blank, comments and strings aside; an unreadable file has none."""
    return lines_with(text, BLANK)


def lines_with(text: str, name: str) -> list[int]:
    """The lines of code that have a name, comments and strings aside; an unreadable file has none."""
    try:
        tokens = list(tokenize.generate_tokens(io.StringIO(text).readline))
    except (tokenize.TokenError, SyntaxError):
        return []
    return [token.start[0] for token in tokens if token.type == tokenize.NAME and token.string == name]


def _span(text: str, wanted: Cut, name: str) -> tuple[int, int]:
    """Where the cut begins and ends, in characters."""
    starts = [0]
    for line in text.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    found: list[tuple[int, int]] = []
    for first, last in places(text, wanted.region):
        found += _in_place(text, starts[first - 1], starts[last], wanted)
    if len(found) <= wanted.nth:
        raise DrillError(f"{name}: {wanted.old!r} is not in region {wanted.region}: the port has changed")
    return found[wanted.nth]


def _in_place(text: str, low: int, high: int, wanted: Cut) -> list[tuple[int, int]]:
    if not wanted.old:
        body = text[low:high]
        indent = len(body) - len(body.lstrip(" "))
        return [(low + indent, low + len(body.rstrip("\n")))]
    found = []
    at = text.find(wanted.old, low, high)
    while at >= 0:
        first, last = at, at + len(wanted.old)
        if wanted.to or not wanted.new:
            # Whole lines. To take lines out, their end goes with them; a blank keeps its indentation.
            first = text.rfind("\n", 0, at) + 1
            if wanted.new:
                first += len(text[first:at]) - len(text[first:at].lstrip(" "))
            closes = text.find(wanted.to, last, high) if wanted.to else at
            if closes < 0:
                break
            last = text.find("\n", closes) + (0 if wanted.new else 1)
        found.append((first, last))
        at = text.find(wanted.old, at + 1, high)
    return found
