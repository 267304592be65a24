"""What is done to CUDA text before it is parsed, so that the grammar keeps its footing.

The grammar trips over attributes with unusual arguments, pragmas between an `if` and its body, dead `#if 0`
code and macro calls without a semicolon. These are blanked, or the semicolon is added. Lines never move. What
was blanked is remembered, so that it still counts in a digest.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass, field

_COMMENT = rb"//(?:\\\r?\n|[^\n])*|/\*.*?\*/"
_TEXT = rb'R"(?P<d>[^()\s\\]{0,16})\(.*?\)(?P=d)"|"(?:\\.|[^"\\\n])*"|' + rb"'(?:\\[^\n]{1,9}?|[^'\\\n])'"
_SKIPPED = re.compile(rb"(?P<comment>" + _COMMENT + rb")|" + _TEXT, re.DOTALL)
_PRAGMA = re.compile(rb"^[ \t]*#[ \t]*pragma\b(?:[^\n]*\\\r?\n)*[^\n]*", re.MULTILINE)
_DIRECTIVE = re.compile(rb"^[ \t]*#[ \t]*(?P<word>ifdef|ifndef|if|elif|else|endif)\b(?P<rest>[^\n]*)", re.MULTILINE)
_DEFINE = re.compile(rb"^[ \t]*#[ \t]*define\b(?:[^\n]*\\\r?\n)*[^\n]*", re.MULTILINE)
_ATTRIBUTE = re.compile(rb"\b(?:__launch_bounds__|__cluster_dims__|__block_size__|__maxnreg__|__align__)\s*(?=\()")
# An upper-case word before a return type and a function's name can only be a macro.
_PREFIX = re.compile(
    rb"^[ \t]*(?P<macro>[A-Z][A-Z0-9_]{2,})"
    rb"(?=[ \t\r\n]+[A-Za-z_][\w:]*(?:<[^;{}()]*>)?[ \t\r\n*&]+[A-Za-z_]\w*[ \t]*\()",
    re.MULTILINE,
)
_MACRO_CALL = re.compile(rb"[;{}]\s*(?P<name>[A-Z][A-Z0-9_]{2,})\s*\(")


@dataclass
class Masked:
    """Text ready to be parsed: `text`, what was `removed` from it (offset, bytes), where bytes were `added`.

    `comments` is that text with its comments blanked and its strings kept.
    """

    text: bytes
    removed: list[tuple[int, bytes]] = field(default_factory=list)
    added: frozenset[int] = frozenset()
    comments: bytes = b""


def blank(data: bytes) -> bytes:
    """Return as many spaces, with the line ends where they were."""
    return re.sub(rb"[^\r\n]", b" ", data)


def skeleton(data: bytes, *, strings: bool = True) -> bytes:
    """Return the text with its comments, and if asked its string and character literals, blanked."""

    def cover(match: re.Match[bytes]) -> bytes:
        return blank(match[0]) if strings or match["comment"] is not None else match[0]

    return _SKIPPED.sub(cover, data)


def mask(data: bytes) -> Masked:
    """Prepare CUDA or C++ text for the grammar; every line keeps its number."""
    bones = skeleton(data)
    text, bones, added = _add_semicolons(data, bones)
    cover: list[tuple[int, int, bool]] = [(a, b, False) for a, b in _dead_code(bones)]
    cover += [(m.start(), m.end(), True) for m in _PRAGMA.finditer(bones)]
    for match in _ATTRIBUTE.finditer(bones):
        end = _closing(bones, match.end())
        if end is not None:
            cover.append((match.start(), end, True))
    cover += [(m.start("macro"), m.end("macro"), True) for m in _PREFIX.finditer(bones)]
    patched = bytearray(text)
    removed = []
    done = -1
    for start, end, counts in sorted(cover):
        if start < done:  # inside something blanked already
            continue
        if counts:
            removed.append((start, text[start:end]))
        patched[start:end] = blank(text[start:end])
        done = end
    return Masked(bytes(patched), removed, added, skeleton(text, strings=False))


def _closing(bones: bytes, opening: int) -> int | None:
    """Return the offset after the parenthesis that closes the one at `opening`, or None."""
    depth = 0
    for match in re.compile(rb"[()]").finditer(bones, opening):
        depth += 1 if match[0] == b"(" else -1
        if depth == 0:
            return match.end()
    return None


def _add_semicolons(data: bytes, bones: bytes) -> tuple[bytes, bytes, frozenset[int]]:
    """Close a macro call that ends a block without a semicolon: its function would be read as a variable."""
    defines = [(m.start(), m.end()) for m in _DEFINE.finditer(bones)]
    starts = [start for start, _ in defines]
    places = []
    for match in _MACRO_CALL.finditer(bones):
        index = bisect_right(starts, match.start()) - 1
        if index >= 0 and match.start("name") < defines[index][1]:
            continue
        end = _closing(bones, match.end() - 1)
        if end is not None and bones[end:].lstrip()[:1] == b"}":
            places.append(end)
    added = set()
    for count, place in enumerate(places):
        at = place + count
        data = data[:at] + b";" + data[at:]
        bones = bones[:at] + b";" + bones[at:]
        added.add(at)
    return data, bones, frozenset(added)


def _dead_code(bones: bytes) -> list[tuple[int, int]]:
    """Return the ranges between `#if 0` and its `#else`, `#elif` or `#endif`: no compiler reads them."""
    dead = []
    depth = 0
    begun: tuple[int, int] | None = None  # the depth of the `#if 0` that is open, and where its text starts
    for match in _DIRECTIVE.finditer(bones):
        word = match["word"]
        if word.startswith(b"if"):
            depth += 1
            if begun is None and word == b"if" and match["rest"].strip() == b"0":
                begun = depth, match.end()
        else:
            if begun is not None and begun[0] == depth:
                dead.append((begun[1], match.start()))
                begun = None
            if word == b"endif":
                depth -= 1
    return dead
