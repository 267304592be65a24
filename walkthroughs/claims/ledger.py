"""Reads the ledger: one TOML file a group, one table a claim, the facts under the name of their role.

Every entry is checked as it is read: known keys, known concepts and sources, a known verdict, at least one fact.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

from annotate.concepts import concepts
from annotate.errors import UnknownName, nearest
from walkthroughs.claims.model import Claim, Fact, LedgerError, Role, Verdict

FOLDER = Path(__file__).parent
# In the order in which they are shown.
FILES = ("lesson-1.toml", "design-document.toml", "lesson-2.toml", "code-comments.toml")
_NEEDED = frozenset({"says", "truth", "concepts", "expected"})
_KEYS = _NEEDED | {"condition", "source", "who", "of"} | {role.value for role in Role}


@cache
def claims() -> Mapping[str, Claim]:
    """Every claim by id, in the order of the ledger. Raises LedgerError for an entry that cannot be read."""
    found: dict[str, Claim] = {}
    for name in FILES:
        for claim in read_group((FOLDER / name).read_text(encoding="utf-8")):
            if claim.id in found:
                raise LedgerError(claim.id, "it stands twice in the ledger")
            found[claim.id] = claim
    return MappingProxyType(found)


def claim_of(name: str) -> Claim:
    """One claim. Raises UnknownName with the nearest ids."""
    if name not in claims():
        raise UnknownName("claim", name, nearest(name, claims()))
    return claims()[name]


def of_concept(name: str) -> tuple[Claim, ...]:
    """The claims that touch a concept, in the order of the ledger."""
    return tuple(claim for claim in claims().values() if name in claim.concepts)


def read_group(text: str) -> list[Claim]:
    """Parse one file of the ledger. Raises LedgerError."""
    table = tomllib.loads(text)
    group, who, source = (str(table.get(key, "")) for key in ("group", "who", "source"))
    if not (group and who and source):
        raise LedgerError("(file)", "group, who and source are needed at its top")
    return [_claim(name, body, group, who, source) for name, body in table.get("claim", {}).items()]


def _claim(name: str, body: Any, group: str, who: str, source: str) -> Claim:
    if not isinstance(body, dict) or not body.keys() >= _NEEDED:
        raise LedgerError(name, f"{', '.join(sorted(_NEEDED))} are needed")
    if unknown := body.keys() - _KEYS:
        raise LedgerError(name, f"no such key as {', '.join(sorted(unknown))}")
    for concept in body["concepts"]:
        if concept not in concepts():
            near = nearest(concept, concepts())
            raise LedgerError(name, f"no concept is called {concept!r}; near it: {', '.join(near) or 'nothing'}")
    try:
        expected = Verdict(body["expected"])
    except ValueError as error:
        raise LedgerError(name, f"expected = {body['expected']!r}: one of {', '.join(Verdict)}") from error
    facts = tuple(_fact(name, role, entry) for role in Role for entry in body.get(role.value, ()))
    if not any(fact.role in (Role.SUPPORTS, Role.REFUTES, Role.MISSING) for fact in facts):
        raise LedgerError(name, "no fact of it decides anything")
    if (expected in (Verdict.HOLDS_IF, Verdict.OPEN)) != bool(body.get("condition")):
        raise LedgerError(name, "a condition belongs to `holds if` and `not decidable here`, and only to them")
    return Claim(
        id=name,
        group=group,
        who=body.get("who", who),
        says=_flat(body["says"]),
        truth=_flat(body["truth"]),
        concepts=tuple(body["concepts"]),
        expected=expected,
        source=body.get("source", source),
        facts=facts,
        condition=_flat(body.get("condition", "")),
        of=_flat(body.get("of", "")),
    )


def _fact(name: str, role: Role, entry: Any) -> Fact:
    if not isinstance(entry, dict) or not {"says", "check"} <= entry.keys():
        raise LedgerError(name, f"a fact is {{says, check, ...}}, not {entry!r}")
    params = {key: value for key, value in entry.items() if key not in ("says", "check")}
    return Fact(role, _flat(entry["says"]), entry["check"], MappingProxyType(params))


def _flat(text: str) -> str:
    return " ".join(text.split())
