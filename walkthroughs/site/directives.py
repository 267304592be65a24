"""Directive lines: `::: name argument key=value`, at the start of a line and outside code fences.

A directive fills its whole line; a page's other Markdown stands around it as usual.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from .errors import BadDirective

_LINE = re.compile(r"^:::(?:[ \t]+(?P<name>[a-z][a-z-]*)(?P<rest>(?:[ \t]+\S.*)?))?[ \t]*$")
_OPTION = re.compile(r"(?P<key>[a-z]+)=(?P<value>\S*)")
_FENCE = re.compile(r"^ {0,3}(?P<mark>`{3,}|~{3,})")


@dataclass(frozen=True, slots=True)
class Directive:
    """One directive line, taken apart: `text` is everything that is not an option."""

    line: str
    name: str
    text: str
    options: Mapping[str, str]

    @property
    def root(self) -> str:
        """The way from the page to the top of the site, for links."""
        return self.options.get("root", ".")

    def argument(self) -> str:
        """The one word that this directive needs; raises `BadDirective`."""
        if not self.text or len(self.text.split()) != 1:
            raise BadDirective(self.line, f"{self.name} takes exactly one name")
        return self.text


def parse(line: str) -> Directive | None:
    """The directive on this line, or None; raises `BadDirective` for a malformed one."""
    if not line.startswith(":::"):
        return None
    match = _LINE.match(line)
    if match is None or match["name"] is None:
        raise BadDirective(line, "expected `::: name`, with the name in small letters")
    words = match["rest"].split()
    options: dict[str, str] = {}
    while words and (option := _OPTION.fullmatch(words[-1])):
        if option["key"] in options:
            raise BadDirective(line, f"option {option['key']} is given twice")
        options[option["key"]] = option["value"]
        words.pop()
    return Directive(line, match["name"], " ".join(words), options)


def expand(lines: Iterable[str], replace: Callable[[Directive], list[str]]) -> Iterator[str]:
    """The lines with every directive outside a code fence replaced by what `replace` answers."""
    fence = ""
    for line in lines:
        mark = _FENCE.match(line)
        if fence:
            if mark and mark["mark"].startswith(fence) and line.strip() == mark["mark"]:
                fence = ""
            yield line
            continue
        if mark:
            fence = mark["mark"]
        directive = None if mark else parse(line)
        if directive is None:
            yield line
        else:
            yield from replace(directive)
