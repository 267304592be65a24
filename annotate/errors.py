"""The errors that reading source can raise: one base, one class a kind of trouble.

Each builds its message from objects: where it happened, what was looked for, what is near, what to do next.
The objects stay on the error, so that a command or a page can show them in its own way.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path


class AnnotateError(Exception):
    """Base of every error that `annotate` raises on purpose."""


@dataclass(frozen=True)
class Candidate:
    """Something that an anchor could have meant: a symbol or a landmark at `path:first-last`."""

    label: str
    path: str
    first: int
    last: int

    def __str__(self) -> str:
        return f"{self.label} at {self.path}:{self.first}-{self.last}"


class SourceUnavailable(AnnotateError):
    """A pinned source is not on this machine, or a file is not among those kept from it."""

    def __init__(self, source: str, reason: str, *, hint: str | None = None) -> None:
        self.source = source
        self.reason = reason
        super().__init__(f"{source} is not available: {reason}. {hint or f'Fetch it: pagewalk fetch {source}'}")


class DigestMismatch(AnnotateError):
    """Bytes are not the pinned ones. They were not used and nothing of them was kept."""

    def __init__(self, what: str, expected: str, found: str) -> None:
        self.what = what
        self.expected = expected
        self.found = found
        super().__init__(
            f"{what} has digest {found}, not the pinned {expected}. It was thrown away; fetch it again,"
            " and if the same happens do not trust where it came from"
        )


class DownloadFailed(AnnotateError):
    """A download could not be started or finished. What arrived is kept; the next try goes on from there."""

    def __init__(self, source: str, reason: str, *, kept: int = 0) -> None:
        self.source = source
        self.reason = reason
        self.kept = kept
        again = f"{kept} bytes are kept; run the same command again to go on from there" if kept else "Try again"
        super().__init__(f"{source} could not be downloaded: {reason}. {again}")


class DiskTrouble(AnnotateError):
    """The cache could not be written (a full disk, no permission). What was half-written is removed."""

    def __init__(self, path: Path, error: OSError) -> None:
        self.path = path
        self.errno = error.errno
        super().__init__(
            f"{path} could not be written: {error.strerror or error}. Nothing half-written was left."
            " Make room, or name another folder in PAGEWALK_CACHE"
        )


class UnsafeArchive(AnnotateError):
    """An archive holds something that must not be unpacked. Nothing of it was kept."""

    def __init__(self, archive: str, member: str, reason: str) -> None:
        self.archive = archive
        self.member = member
        self.reason = reason
        super().__init__(f"{archive} was refused at {member!r}: {reason}. Nothing of it was kept")


class DamagedArchive(AnnotateError):
    """An archive ends too early or cannot be read. Nothing of it was kept."""

    def __init__(self, archive: str, reason: str) -> None:
        self.archive = archive
        super().__init__(f"{archive} cannot be read: {reason}. Nothing of it was kept; fetch it again")


class ReleaseUnreadable(AnnotateError):
    """A release is here but cannot be read through, such as one that is nested too deep for the parser."""

    def __init__(self, source: str, reason: str) -> None:
        self.source = source
        self.reason = reason
        super().__init__(f"{source} cannot be read: {reason}. Nothing is said about it; the other releases are")


class GrammarMismatch(AnnotateError, ValueError):
    """An installed grammar was built for another tree-sitter than the one installed."""

    def __init__(self, package: str, detail: str) -> None:
        self.package = package
        super().__init__(
            f"{package} and tree-sitter do not fit together: {detail}. Install the locked pair: make setup"
        )


class LandmarkSyntax(AnnotateError):
    """A landmark is not written in the landmark grammar."""

    def __init__(self, landmark: str, reason: str) -> None:
        self.landmark = landmark
        super().__init__(f"landmark {landmark!r}: {reason}")


def _listing(candidates: Sequence[Candidate], limit: int = 12) -> str:
    lines = [f"\n  {candidate}" for candidate in candidates[:limit]]
    if len(candidates) > limit:
        lines.append(f"\n  and {len(candidates) - limit} more")
    return "".join(lines)


class AnchorNotFound(AnnotateError):
    """An anchor's symbol or landmark is nowhere in the source; `candidates` are the nearest things there."""

    def __init__(self, anchor: str, looked_for: str, candidates: Iterable[Candidate]) -> None:
        self.anchor = anchor
        self.looked_for = looked_for
        self.candidates = tuple(candidates)
        near = f" Near it:{_listing(self.candidates)}" if self.candidates else " Nothing like it is there"
        super().__init__(f"{anchor}: no {looked_for}.{near}")


class AnchorAmbiguous(AnnotateError):
    """An anchor fits more than one place; add `#n`, or narrow it. `candidates` are all of them."""

    def __init__(self, anchor: str, looked_for: str, candidates: Iterable[Candidate]) -> None:
        self.anchor = anchor
        self.looked_for = looked_for
        self.candidates = tuple(candidates)
        super().__init__(
            f"{anchor}: {len(self.candidates)} places fit {looked_for}; add #n or narrow it."
            f" They are:{_listing(self.candidates)}"
        )


class UnreliableSpan(AnnotateError):
    """The parser lost its way where an anchor landed, so that its lines cannot be trusted."""

    def __init__(self, anchor: str, path: str, first: int, last: int, ranges: Iterable[tuple[int, int]]) -> None:
        self.anchor = anchor
        self.path = path
        self.first = first
        self.last = last
        self.ranges = tuple(ranges)
        shown = ", ".join(f"{a}-{b}" for a, b in self.ranges)
        super().__init__(
            f"{anchor}: lands on {path}:{first}-{last}, but the parser could not read lines {shown} there."
            " Choose a landmark outside them"
        )


class RangeOutside(AnnotateError):
    """A line range is reversed or runs past its file: `first`-`last` of a file with `count` lines."""

    def __init__(self, path: str, first: int, last: int, count: int) -> None:
        self.path = path
        self.first = first
        self.last = last
        self.count = count
        super().__init__(f"{path}: lines {first}-{last} are not a range inside its {count} lines")


class RegionError(AnnotateError):
    """A `# region:` fence in one of our files is wrong."""

    def __init__(self, where: str, line: int, reason: str) -> None:
        self.where = where
        self.line = line
        self.reason = reason
        super().__init__(f"{where}:{line}: {reason}")


class UnknownName(AnnotateError):
    """A name that is not known; `nearest` are those that look like it."""

    def __init__(self, kind: str, name: str, nearest: Iterable[str] = ()) -> None:
        self.kind = kind
        self.name = name
        self.nearest = tuple(nearest)
        hint = f" Did you mean {' or '.join(self.nearest)}?" if self.nearest else ""
        super().__init__(f"no {kind} is called {name!r}.{hint}")


def nearest(word: str, known: Iterable[str], count: int = 3) -> tuple[str, ...]:
    """Return up to `count` of the `known` names that look like `word`, the likeliest first."""
    names = list(known)
    close = difflib.get_close_matches(word, names, n=count, cutoff=0.5)
    inside = [name for name in names if word and (word in name or name in word) and name not in close]
    return tuple([*close, *sorted(inside)][:count])
