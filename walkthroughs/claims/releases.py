"""The seam to drift: what other releases have, asked in terms of files and of concepts' digests.

The two releases whose spans are committed are answered from these. Every other one is answered by drift's committed
facts once they are there: `register` puts them in place. Until then such a fact is unknown, and says so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeVar

from annotate.errors import UnknownName
from annotate.spans import combined, spans
from walkthroughs.claims.context import place_at
from walkthroughs.claims.model import CheckError, Finding, NotHere, Place

NAME = "vllm"
Answer = TypeVar("Answer")


class Releases(Protocol):
    """What drift knows. Both raise NotHere for a release that it has no facts about."""

    def has_file(self, release: str, pattern: str) -> tuple[bool, tuple[Place, ...]]:
        """Whether a file whose path fits the pattern is in that release, and where."""
        ...

    def digest(self, release: str, concept: str) -> tuple[str | None, tuple[Place, ...]]:
        """The digest of a concept's tokens in that release (None: it is gone), and its lines."""
        ...


class Recorded:
    """The releases whose spans are committed. They say where concepts are, and list no files."""

    def has_file(self, release: str, pattern: str) -> tuple[bool, tuple[Place, ...]]:
        """Always raises NotHere: spans do not list files."""
        raise NotHere(f"which files vLLM {release} has is for drift to say, and its facts are not here yet")

    def digest(self, release: str, concept: str) -> tuple[str | None, tuple[Place, ...]]:
        """The digest from the committed spans."""
        source = f"{NAME}@{release}"
        try:
            found = spans(source).get(concept, [])
        except UnknownName:
            raise NotHere(f"what vLLM {release} has is for drift to say, and its facts are not here yet") from None
        places = tuple(place_at(source, span.path, span.first, span.last) for span in found)
        return (combined(span.digest for span in found) if found else None), places


_known: list[Releases] = [Recorded()]


def register(facts: Releases) -> None:
    """Let drift answer, before the committed spans."""
    _known.insert(0, facts)


def ask(params: Mapping[str, Any]) -> Finding:
    """Answer a `release` check: {at, file, exists} or {at, concept, exists} or {at, concept, same-as, same}."""
    at = params["at"]
    if "file" in params:
        there, places = _first(lambda known: known.has_file(at, params["file"]))
        return Finding(
            there is params.get("exists", True), f"{params['file']}: {'there' if there else 'not there'}", places
        )
    if "concept" not in params:
        raise CheckError("a release check asks for a file or a concept")
    digest, places = _first(lambda known: known.digest(at, params["concept"]))
    if "same-as" not in params:
        seen = f"{params['concept']}: {'there' if digest else 'not there'}"
        return Finding((digest is not None) is params.get("exists", True), seen, places)
    other, others = _first(lambda known: known.digest(params["same-as"], params["concept"]))
    same = digest is not None and digest == other
    return Finding(same is params.get("same", True), "the same tokens" if same else "other tokens", (*places, *others))


def _first(question: Callable[[Releases], Answer]) -> Answer:
    """The first answer; raises the last NotHere where nobody has one."""
    for known in _known[:-1]:
        try:
            return question(known)
        except NotHere:
            continue
    return question(_known[-1])
