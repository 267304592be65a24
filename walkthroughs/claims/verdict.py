"""The one rule that turns facts into a verdict; three-valued, so that what could not be looked at never counts as true.

1. A fact that refutes the claim is true: `wrong`.
2. A fact that the claim needs is false: `wrong`.
3. Something that would decide it is missing: `not decidable here`.
4. A fact that limits it is true: `holds if`.
5. Otherwise it `holds`; but with nothing that supports it, it is `not decidable here`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from walkthroughs.claims.model import Fact, Finding, Role, Verdict


def any_of(values: Iterable[bool | None]) -> bool | None:
    """True if one is true, None if that hangs on an unknown one, else False."""
    seen = list(values)
    return True if True in seen else None if None in seen else False


def all_of(values: Iterable[bool | None]) -> bool | None:
    """False if one is false, None if that hangs on an unknown one, else True."""
    seen = list(values)
    return False if False in seen else None if None in seen else True


def decide(facts: Sequence[Fact], findings: Sequence[Finding]) -> Verdict | None:
    """The verdict that follows from what was found, or None where an unknown fact stands in the way."""

    def values(role: Role) -> list[bool | None]:
        return [finding.value for fact, finding in zip(facts, findings, strict=True) if fact.role is role]

    refuted, supported = any_of(values(Role.REFUTES)), all_of(values(Role.SUPPORTS))
    if refuted or supported is False:
        return Verdict.WRONG
    if refuted is None or supported is None:
        return None
    for role, verdict in ((Role.MISSING, Verdict.OPEN), (Role.LIMITS, Verdict.HOLDS_IF)):
        found = any_of(values(role))
        if found is None:
            return None
        if found:
            return verdict
    return Verdict.HOLDS if values(Role.SUPPORTS) else Verdict.OPEN
