"""What a claim is, and what checking it leaves behind: plain typed values.

A claim rests on facts. Each fact has a role (does it speak for the claim, limit it, speak against it), a sentence that
says it, and a check that finds out whether the sentence is true.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class Verdict(StrEnum):
    """What a claim is worth. `OPEN`: what would decide it is not here."""

    HOLDS = "holds"
    HOLDS_IF = "holds if"
    WRONG = "wrong"
    OPEN = "not decidable here"


class Role(StrEnum):
    """What a true fact means for its claim. `ALSO` facts are checked and shown, but decide nothing."""

    SUPPORTS = "supports"
    LIMITS = "limits"
    REFUTES = "refutes"
    MISSING = "missing"
    ALSO = "also"


class LedgerError(ValueError):
    """An entry of the ledger cannot be read; the message names the claim and what is wrong with it."""

    def __init__(self, claim: str, problem: str) -> None:
        self.claim = claim
        super().__init__(f"claim {claim}: {problem}")


class CheckError(ValueError):
    """A check cannot be carried out as it is written: an unknown kind, a missing parameter, a bad expression."""


class NotHere(Exception):
    """What a check needs is not on this machine; the message says what, and how to get it."""


@dataclass(frozen=True)
class Fact:
    """One sentence that is true or false. `check` is the kind of check, `params` what it is told."""

    role: Role
    says: str
    check: str
    params: Mapping[str, Any]


@dataclass(frozen=True)
class Claim:
    """One claim in our words. `who` says it; `truth` is the right fact; `expected` the ledger's verdict.

    `condition` completes `holds if` or says what is not known. `source` is where the facts look unless they say
    otherwise; `concepts` are ids of the concept table. `of` names what it is said of, where that is not plain.
    """

    id: str
    group: str
    who: str
    says: str
    truth: str
    concepts: tuple[str, ...]
    expected: Verdict
    source: str
    facts: tuple[Fact, ...]
    condition: str = ""
    of: str = ""


@dataclass(frozen=True)
class Place:
    """Lines that were looked at, with the permanent link to them."""

    source: str
    path: str
    first: int
    last: int
    url: str

    def __str__(self) -> str:
        lines = str(self.first) if self.first == self.last else f"{self.first}-{self.last}"
        return f"{self.source} {self.path}:{lines}"


@dataclass(frozen=True)
class RunRef:
    """A run that was looked at: a step (`walkthrough/slug`) or a row of the hardware record."""

    id: str
    device: str
    date: str
    kind: str = "step"

    def __str__(self) -> str:
        return f"{self.id} on {self.device}, {self.date[:10]}"


@dataclass(frozen=True)
class Finding:
    """What a check found: true, false, or None where it could not look, with what it saw and where."""

    value: bool | None
    seen: str
    places: tuple[Place, ...] = ()
    runs: tuple[RunRef, ...] = ()


@dataclass(frozen=True)
class Result:
    """A claim after its checks. `verdict` is None where they could not decide; `status` is passed, failed, error
    or unavailable; `message` says what is amiss.
    """

    claim: Claim
    findings: tuple[Finding, ...]
    verdict: Verdict | None
    status: str
    message: str

    @property
    def places(self) -> tuple[Place, ...]:
        """Every line range that was looked at, once, in the order of the facts."""
        return tuple(dict.fromkeys(place for finding in self.findings for place in finding.places))

    @property
    def runs(self) -> tuple[RunRef, ...]:
        """Every run that was looked at, once."""
        return tuple(dict.fromkeys(run for finding in self.findings for run in finding.runs))
