"""From checked claims to what pages show of them, and which step a claim's note stands at."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from annotate import concepts, sources
from walkthroughs import step as catalog
from walkthroughs.claims.model import Fact, Finding, Result, Verdict

from .model import ClaimKind, ClaimView, FactView, Link

# These read again what other walkthroughs explain. A claim stands there at the step that decides it, if one does.
_BY_RUN = ("findings", "ladder")
_KINDS: Mapping[Verdict, ClaimKind] = {
    Verdict.HOLDS: "holds",
    Verdict.HOLDS_IF: "holds-if",
    Verdict.WRONG: "wrong",
    Verdict.OPEN: "open",
}


def view(result: Result) -> ClaimView:
    """A claim as pages show it; links to steps are relative to the top of the site."""
    claim = result.claim
    kind: ClaimKind = "failed" if result.status in ("failed", "error") else "unavailable"
    if result.status == "passed" and result.verdict:
        kind = _KINDS[result.verdict]
    table = concepts.concepts()
    return ClaimView(
        id=claim.id,
        group=claim.group,
        who=claim.who,
        says=claim.says,
        kind=kind,
        verdict=result.verdict.value if result.verdict else "not checked on this machine",
        condition=claim.condition,
        truth=claim.truth,
        concepts={name: table[name].title for name in claim.concepts},
        facts=tuple(_fact(fact, found) for fact, found in zip(claim.facts, result.findings, strict=True)),
        message=result.message,
        of=claim.of,
    )


def _fact(fact: Fact, found: Finding) -> FactView:
    links = []
    for place in found.places:
        pin = sources.every_pin().get(place.source)
        lines = f"line {place.first}" if place.first == place.last else f"lines {place.first} to {place.last}"
        name = f" ({pin.name} {pin.revision})" if pin else ""
        links.append(Link(f"{place.path.rpartition('/')[2]}, {lines}{name}", place.url))
    runs = []
    for run in found.runs:
        walk, _, slug = run.id.partition("/")
        where = f"walkthroughs/{walk}.md#step-{slug}" if run.kind == "step" else "simt-machine.md"
        runs.append(Link(f"{run.id} on {run.device}, {run.date[:10]}", where))
    truth = {True: "true", False: "false", None: "unknown"}[found.value]
    return FactView(fact.role.value, fact.says, truth, found.seen, tuple(links), tuple(runs))  # type: ignore[arg-type]


def notes_of(walk: catalog.Walkthrough, results: Iterable[Result]) -> dict[str, list[Result]]:
    """Which step of a walkthrough has which claims: each claim once, where the first of its concepts is read.

    Among the findings it stands where it was run instead. Elsewhere a claim about one project's code does not stand
    beside the code of the other.
    """
    found: dict[str, list[Result]] = {}
    for result in results:
        at = (_run_at if walk.id in _BY_RUN else _explained_at)(walk.steps, result)
        if at is not None:
            found.setdefault(at.id, []).append(result)
    return found


def _run_at(steps: Sequence[catalog.Step], result: Result) -> catalog.Step | None:
    named = {fact.params["step"] for fact in result.claim.facts if fact.check == "step"}
    return next((step for step in steps if step.id in named), None)


def _explained_at(steps: Sequence[catalog.Step], result: Result) -> catalog.Step | None:
    project = result.claim.source.partition("@")[0]
    for concept in result.claim.concepts:
        for step in steps:
            if concept in step.reads and step.source.partition("@")[0] in (project, step.source):
                return step
    return None
