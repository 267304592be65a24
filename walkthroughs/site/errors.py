"""What can be wrong with a page: each error names the page element and says what to do about it.

All of them stop the build; a page that cannot be proven is not published.
"""

from collections.abc import Iterable
from difflib import get_close_matches

from click import ClickException


class SiteError(ClickException):
    """A page cannot be built as it stands. MkDocs' command line shows such an error without a traceback."""


class BadDirective(SiteError):
    """A `:::` line that says nothing known, or says it wrongly."""

    def __init__(self, line: str, problem: str) -> None:
        self.line = line
        super().__init__(f"directive {line.strip()!r}: {problem}")


class UnknownPageItem(SiteError):
    """A directive names a walkthrough, concept or drawing that does not exist."""

    def __init__(self, kind: str, name: str, known: Iterable[str]) -> None:
        self.kind = kind
        self.name = name
        self.nearest = get_close_matches(name, list(known), n=3, cutoff=0.5)
        hint = f"; nearest: {', '.join(self.nearest)}" if self.nearest else ""
        super().__init__(f"there is no {kind} {name!r}{hint}")


class StepNotProven(SiteError):
    """A step has no passing evidence to show."""

    def __init__(self, step: str, problem: str, action: str) -> None:
        self.step = step
        super().__init__(f"step {step}: {problem}. {action}")
