"""How a sentence of a walkthrough names what shows it: `[L1-18]` for a claim, `[vllm-classic/grid]` for a step.

The mark stands at the end of the sentence, before the full stop. A page makes a small link of it; a terminal shows it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator

CLAIM = r"(?:L[12]|D|C)-\d\d"
STEP = r"[a-z0-9]+(?:-[a-z0-9]+)*/[a-z0-9]+(?:-[a-z0-9]+)*"
_FENCE = re.compile(r"^ {0,3}(`{3,}|~{3,})")
# A line that a page fills from elsewhere, with the blank line before it.
_DIRECTIVE = re.compile(r"(?:\A|\n)(?:[ \t]*\n)?:::[^\n]*")
# Code in backquotes comes first, so that a mark inside it is left alone.
_MARK = re.compile(rf"`[^`\n]*`|[ \t]*\[(?P<name>{CLAIM}|{STEP})\](?![\[(])")


def names(text: str) -> tuple[str, ...]:
    """The claims and steps that a text names, in order; whether they exist is not looked at."""
    return tuple(match["name"] for match in _MARK.finditer(text) if match["name"])


def without(text: str) -> str:
    """The text without its marks."""
    return _replaced(text, lambda name: "")


def undirected(text: str) -> str:
    """The text without its directives (`::: name`), which only a page can follow."""
    return _DIRECTIVE.sub("", text).strip("\n")


def linked(lines: Iterable[str], root: str) -> Iterator[str]:
    """Lines of Markdown with each mark as a small link; `root` is the way to the top of the site. Fences stay."""
    fence = ""
    for line in lines:
        mark = _FENCE.match(line)
        if mark and (not fence or mark[1].startswith(fence)):
            fence = "" if fence else mark[1]
        yield line if fence or mark else _replaced(line, lambda name: _link(name, root))


def _replaced(text: str, replace: Callable[[str], str]) -> str:
    return _MARK.sub(lambda match: replace(match["name"]) if match["name"] else match.group(), text)


def _link(name: str, root: str) -> str:
    walkthrough, slash, slug = name.partition("/")
    if slash:
        page, label, title = f"walkthroughs/{walkthrough}.md#step-{slug}", slug, f"Shown by the step {name}"
    else:
        page, label, title = f"claims.md#{name}", name, f"Checked as the claim {name}"
    return f'[{label}]({root}/{page}){{ .pw-ref title="{title}" }}'
