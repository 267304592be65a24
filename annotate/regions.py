"""Named regions in our own kernel files: `# region: CONCEPT-ID` to `# endregion`, read as plain text.

Regions nest, and one concept may have several in a file. Their ids are concept ids, which is what ties a
port's lines to the upstream lines of the same concept. A fence that does not close, or a name nobody knows,
is an error.
"""

from __future__ import annotations

import re
from collections.abc import Container
from dataclasses import dataclass
from pathlib import Path

from annotate.concepts import concepts
from annotate.errors import RegionError, nearest

_FENCE = re.compile(r"^\s*#\s*(?P<end>end)?region\b(?P<rest>.*)$")
_ID = re.compile(r"^:\s*(?P<id>[a-z0-9]+(?:-[a-z0-9]+)*)\s*$")


@dataclass(frozen=True)
class Region:
    """The lines between a pair of fences, without the fences: `first` to `last`, 1-based, one at least."""

    id: str
    first: int
    last: int


def regions(path_or_text: Path | str, *, known: Container[str] | None = None) -> dict[str, list[Region]]:
    """Return the regions of a file, by concept id, each list in the order of its lines.

    A `Path` is read (UTF-8); a string is taken as the text itself. `known` are the ids allowed, by default
    every concept's. Raises RegionError for a fence without its partner, an empty region or an unknown id.
    """
    if isinstance(path_or_text, Path):
        where, text = path_or_text.name, path_or_text.read_text(encoding="utf-8-sig")
    else:
        where, text = "text", path_or_text
    table = concepts()
    allowed: Container[str] = table if known is None else known
    found: dict[str, list[Region]] = {}
    open_fences: list[tuple[str, int]] = []
    for number, line in enumerate(text.split("\n"), start=1):
        fence = _FENCE.match(line.rstrip("\r"))
        if fence is None:
            continue
        if not fence["end"]:
            open_fences.append((_opened(where, number, fence["rest"], allowed, list(table)), number))
            continue
        _close(where, number, fence["rest"], open_fences, found)
    if open_fences:
        name, number = open_fences[-1]
        raise RegionError(where, number, f"region {name} is never closed: add # endregion")
    for entries in found.values():
        entries.sort(key=lambda region: (region.first, -region.last))
    return found


def is_fence(line: str) -> bool:
    """Return True for a line that opens or closes a region and holds nothing else."""
    return _FENCE.match(line) is not None


def _opened(where: str, number: int, rest: str, allowed: Container[str], names: list[str]) -> str:
    match = _ID.match(rest)
    if match is None:
        raise RegionError(where, number, f"a region is opened by '# region: CONCEPT-ID', not by '# region{rest}'")
    if match["id"] not in allowed:
        close = nearest(match["id"], names)
        hint = f"; did you mean {' or '.join(close)}?" if close else "; ids are those of annotate/concepts.toml"
        raise RegionError(where, number, f"no concept is called {match['id']!r}{hint}")
    return match["id"]


def _close(
    where: str, number: int, rest: str, open_fences: list[tuple[str, int]], found: dict[str, list[Region]]
) -> None:
    if not open_fences:
        raise RegionError(where, number, "# endregion closes nothing: no region is open here")
    name, opened = open_fences.pop()
    # Naming the region at its end is optional, but then the name must be right: crossed fences show up here.
    said = rest.strip().removeprefix(":").strip()
    if said and said != name:
        raise RegionError(where, number, f"# endregion{rest} closes region {name} of line {opened}")
    if number == opened + 1:
        raise RegionError(where, opened, f"region {name} is empty")
    found.setdefault(name, []).append(Region(name, opened + 1, number - 1))
