"""A regular expression that finds a line again in a file that has changed around it.

It is read by JavaScript (`new RegExp(pattern, "m")`, the first match counts) and by our tests in Python, so it holds
only what both spell alike. It is made from the fetched source on the reader's machine: it holds upstream text.
"""

from __future__ import annotations

import re

_SPECIAL = re.compile(r"([\\^$.*+?()\[\]{}|/])")
# How many lines that follow may be needed to tell a line from its likes.
MOST = 40
# A carriage return counts as white space in both languages, and as a line's end in one of them only.
END = r"[ \t\r]*$"


def pattern_for(text: str, line: int) -> str | None:
    """The pattern whose only match in `text` starts on `line` (1-based); None where there is none.

    It is the line itself with white space of any length, and as many of the lines that follow as it takes.
    """
    rest = text.split("\n")[line - 1 : line - 1 + 3 * MOST]
    if not rest or not rest[0].strip():
        return None
    following = [part for part in rest if part.strip()][:MOST]
    pattern = r"^[ \t]*"
    for number, part in enumerate(following):
        pattern += (r"\s+" if number else "") + _escaped(part)
        if len(lines_matched(pattern + END, text)) == 1:
            return pattern + END
    return None


def lines_matched(pattern: str, text: str) -> list[int]:
    """The lines (1-based) on which the pattern's matches in `text` start."""
    return [text.count("\n", 0, match.start()) + 1 for match in re.finditer(pattern, text, re.MULTILINE)]


def _escaped(line: str) -> str:
    return r"\s+".join(_SPECIAL.sub(r"\\\1", word) for word in line.split())
