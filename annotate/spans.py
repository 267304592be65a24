"""The committed facts about each source: where every anchor lies and the digest of its tokens, without any
text.

With them a page can link, a record can tell whether it is stale, and a GPU machine can work, all without the
sources being there. A test resolves every anchor in the real sources again and compares.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from types import MappingProxyType

from annotate.errors import UnknownName, nearest
from annotate.files import write_text

FOLDER = Path(__file__).with_name("spans")
SCHEMA = 1


@dataclass(frozen=True)
class Span:
    """Where an anchor lies: 1-based lines `first` to `last` of `path`, and the digest of the tokens there.

    `unreliable` are line ranges strictly inside that the parser could not read (the ends are sound).
    """

    source: str
    path: str
    first: int
    last: int
    digest: str
    concept: str
    symbol: str
    unreliable: tuple[tuple[int, int], ...] = ()


def sources() -> list[str]:
    """Return the ids of the sources that have committed spans."""
    return sorted(path.stem for path in FOLDER.glob("*.json"))


def spans(source: str) -> Mapping[str, list[Span]]:
    """Return a source's spans by concept id. Raises UnknownName for a source without committed spans."""
    path = FOLDER / f"{source}.json"
    if not path.is_file():
        raise UnknownName("source with spans", source, nearest(source, sources()))
    return _read(path)


@cache
def _read(path: Path) -> Mapping[str, list[Span]]:
    found: dict[str, list[Span]] = {}
    data = json.loads(path.read_text(encoding="utf-8"))
    for entry in data["spans"]:
        entry["unreliable"] = tuple((a, b) for a, b in entry.get("unreliable", ()))
        span = Span(source=data["source"], **entry)
        found.setdefault(span.concept, []).append(span)
    return MappingProxyType(found)


def digest_of(source: str, concept: str) -> str:
    """Return one digest for all that a source has of a concept. Raises UnknownName where it has nothing."""
    table = spans(source)
    if concept not in table:
        raise UnknownName(f"concept with spans in {source}", concept, nearest(concept, table))
    return combined(span.digest for span in table[concept])


def combined(digests: Iterable[str]) -> str:
    """Return one digest for several, in their order; of a single one, that one."""
    parts = list(digests)
    return parts[0] if len(parts) == 1 else hashlib.sha256("\n".join(parts).encode()).hexdigest()[:32]


def write(source: str, found: Iterable[Span], *, folder: Path | None = None) -> Path:
    """Write a source's spans as JSON, in the order given, by temporary file and rename. Returns the path."""
    entries = []
    for span in found:
        entry = asdict(span)
        del entry["source"]
        if not entry["unreliable"]:
            del entry["unreliable"]
        entries.append(entry)
    lines = ",\n".join("  " + json.dumps(entry) for entry in entries)
    text = f'{{"schema": {SCHEMA}, "source": {json.dumps(source)}, "spans": [\n{lines}\n]}}\n'
    target = (folder or FOLDER) / f"{source}.json"
    write_text(target, text)
    _read.cache_clear()
    return target
