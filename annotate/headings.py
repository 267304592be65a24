"""Markdown headings as symbols: a section's name is the path to it, such as `Paged Attention > QK`.

A section runs from its heading to the line before the next heading of its level or above, without the blank
lines at its end. Headings inside fenced code do not count.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_HEADING = re.compile(r"^ {0,3}(?P<marks>#{1,6})(?:[ \t]+(?P<title>.*?))?(?:[ \t]+#+)?[ \t]*$")
_FENCE = re.compile(r"^ {0,3}(?P<fence>`{3,}|~{3,})(?P<rest>.*)$")


@dataclass(frozen=True)
class Section:
    """One heading's section: its path of titles, and its 1-based lines."""

    name: str
    first: int
    last: int


def sections(text: str) -> list[Section]:
    """Return the sections of a Markdown text in the order of their headings."""
    lines = [line.rstrip("\r") for line in text.split("\n")]
    marks: list[tuple[int, int, str]] = []  # line, level, title
    fence = ""
    for number, line in enumerate(lines, start=1):
        opened = _FENCE.match(line)
        if fence:
            if opened and opened["fence"].startswith(fence) and not opened["rest"].strip():
                fence = ""
            continue
        if opened:
            fence = opened["fence"]
        elif match := _HEADING.match(line):
            title = re.sub(r"[`*]", "", match["title"] or "").strip()
            marks.append((number, len(match["marks"]), title))
    found = []
    path: list[tuple[int, str]] = []
    for index, (number, level, title) in enumerate(marks):
        path = [entry for entry in path if entry[0] < level] + [(level, title)]
        last = next((n for n, other, _ in marks[index + 1 :] if other <= level), len(lines) + 1) - 1
        while last > number and not lines[last - 1].strip():
            last -= 1
        found.append(Section(" > ".join(name for _, name in path), number, last))
    return found
