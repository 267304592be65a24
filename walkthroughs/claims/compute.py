"""Runs the checks of claims and says what follows: the verdict, and whether it is the one that the ledger expects."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

from annotate.errors import AnnotateError
from walkthroughs.claims.context import Context
from walkthroughs.claims.dispatch import carry_out
from walkthroughs.claims.ledger import claims
from walkthroughs.claims.model import CheckError, Claim, Finding, Result, Role
from walkthroughs.claims.verdict import decide


def compute(claim: Claim, context: Context) -> Result:
    """Check one claim.

    Its status is `passed` where the verdict is the expected one and every fact that could be looked at is true,
    `unavailable` where what is missing on this machine would decide it, `error` where a check could not be carried out.
    """
    findings: list[Finding] = []
    for fact in claim.facts:
        try:
            findings.append(carry_out(context, claim.source, fact.check, fact.params))
        except (AnnotateError, CheckError) as error:
            broken = Finding(None, str(error))
            rest = tuple(Finding(None, "not looked at") for _ in claim.facts[len(findings) + 1 :])
            return Result(claim, (*findings, broken, *rest), None, "error", f"{fact.says}: {error}")
    verdict = decide(claim.facts, findings)
    false = [f.says for f, found in zip(claim.facts, findings, strict=True) if found.value is False]
    if verdict is None:
        return Result(claim, tuple(findings), None, "unavailable", _first_unknown(claim, findings))
    if verdict is not claim.expected:
        message = f"the ledger expects {claim.expected.value!r}" + (f"; not true: {'; '.join(false)}" if false else "")
        return Result(claim, tuple(findings), verdict, "failed", message)
    if false:
        return Result(claim, tuple(findings), verdict, "failed", f"no longer true: {'; '.join(false)}")
    return Result(claim, tuple(findings), verdict, "passed", "")


def compute_all(context: Context | None = None, chosen: Iterable[Claim] | None = None) -> dict[str, Result]:
    """Check claims (all of them, if none are chosen), in the order given, and answer them by id."""
    context = context or Context()
    return {claim.id: compute(claim, context) for claim in (claims().values() if chosen is None else chosen)}


@cache
def computed() -> dict[str, Result]:
    """Every claim, checked once in this process: what a site build shows."""
    return compute_all()


def _first_unknown(claim: Claim, findings: Iterable[Finding]) -> str:
    deciding = zip(claim.facts, findings, strict=True)
    return next(found.seen for fact, found in deciding if found.value is None and fact.role is not Role.ALSO)
