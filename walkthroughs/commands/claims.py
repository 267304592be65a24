"""`pagewalk claims`: what the lessons, the design document and code comments say, each checked, with its verdict.

A table of all of them, or with `--id` one in full: its facts, the lines and the runs that decide it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from walkthroughs.commands.output import (
    console,
    emit_json,
    json_option,
    notice,
    print_rows,
    reports_errors,
    require_known,
)

if TYPE_CHECKING:
    from walkthroughs.claims.model import Claim, Fact, Finding, Result

STYLES = {"holds": "green", "holds if": "yellow", "wrong": "red", "not decidable here": "cyan"}
ROLES = {
    "supports": "for it",
    "limits": "its limit",
    "refutes": "against it",
    "missing": "missing",
    "also": "beside it",
}
SIGNS = {True: "yes", False: "NO", None: "?"}
UNKNOWN = "unavailable"


@click.command("claims")
@click.option("--id", "names", multiple=True, metavar="ID", help="Show this claim in full; may be repeated.")
@click.option("--wrong", is_flag=True, help="Only those that are wrong.")
@json_option
@reports_errors
def claims_command(names: tuple[str, ...], wrong: bool, as_json: bool) -> None:
    """Check the claims and show their verdicts.

    Exit 1 if one comes out otherwise than recorded.

    What needs a source that is not on this machine is unavailable; that is not a failure.
    """
    from walkthroughs.claims.compute import compute_all
    from walkthroughs.claims.ledger import claims
    from walkthroughs.claims.model import Verdict

    known = {name.lower(): name for name in claims()}
    wanted = [known.get(name.lower(), name) for name in names]
    for name in wanted:
        require_known("claim", name, claims(), "pagewalk claims")
    chosen = [claims()[name] for name in dict.fromkeys(wanted)] or list(claims().values())
    results = list(compute_all(chosen=chosen).values())
    if wrong:
        results = [result for result in results if (result.verdict or result.claim.expected) is Verdict.WRONG]
    if as_json:
        emit_json("claims", [as_row(result) for result in results])
    elif names:
        for result in results:
            _print_one(result)
    else:
        _print_table(results)
    _sum_up(results)
    if any(result.status in ("failed", "error") for result in results):
        raise SystemExit(1)


def as_row(result: Result) -> dict[str, Any]:
    """One claim as its JSON row."""
    claim = result.claim
    return {
        "id": claim.id,
        "status": result.status,
        "verdict": result.verdict.value if result.verdict else None,
        "expected": claim.expected.value,
        "group": claim.group,
        "who": claim.who,
        "claim": claim.says,
        "fact": claim.truth,
        "condition": claim.condition,
        "concepts": list(claim.concepts),
        "message": result.message,
        "facts": [_fact_row(fact, found) for fact, found in zip(claim.facts, result.findings, strict=True)],
    }


def _fact_row(fact: Fact, found: Finding) -> dict[str, Any]:
    return {
        "role": fact.role.value,
        "says": fact.says,
        "check": fact.check,
        "true": found.value,
        "seen": found.seen,
        "places": [
            {"source": p.source, "path": p.path, "first": p.first, "last": p.last, "url": p.url} for p in found.places
        ],
        "runs": [{"kind": r.kind, "id": r.id, "device": r.device, "date": r.date} for r in found.runs],
    }


def said(result: Result) -> str:
    """The verdict in words; where there is none, the status."""
    return result.verdict.value if result.verdict else result.status


def _style(result: Result) -> str:
    if result.status in ("failed", "error"):
        return "bold red"
    return STYLES[result.verdict.value] if result.verdict else ""


def _print_table(results: list[Result]) -> None:
    group = ""
    rows: list[tuple[str, ...]] = []
    styles: list[str] = []
    for result in results:
        if result.claim.group != group:
            _flush(rows, styles)
            group = result.claim.group
            console().print(group, style="bold")
        mark = f" [{result.status}]" if result.status in ("failed", "error") else ""
        rows.append((result.claim.id, said(result) + mark, result.claim.says))
        styles.append(_style(result))
    _flush(rows, styles)


def _flush(rows: list[tuple[str, ...]], styles: list[str]) -> None:
    if rows:
        print_rows(rows, styles, indent=2)
    rows.clear()
    styles.clear()


def _print_one(result: Result) -> None:
    from rich.text import Text

    claim, screen = result.claim, console()

    def line(text: str, style: str = "", indent: int = 0) -> None:
        screen.print(Text(" " * indent + text, style=style), soft_wrap=False)

    line(f"{claim.id}  {claim.who} says", "bold")
    line(claim.says, indent=2)
    verdict = said(result) + (f": {claim.condition}" if _shows_condition(claim, result) else "")
    line(verdict, _style(result), 2)
    line(claim.truth, indent=2)
    if result.message:
        line(result.message, "yellow", 2)
    for fact, found in zip(claim.facts, result.findings, strict=True):
        line(f"{SIGNS[found.value]:3} {ROLES[fact.role.value]}: {fact.says}", indent=4)
        if found.value is not None and found.seen:
            line(f"saw {found.seen}", "dim", 8)
        for place in found.places:
            line(f"{place}  {place.url}".rstrip(), "dim", 8)
        for run in found.runs:
            line(str(run), "dim", 8)
    line(f"concepts: {', '.join(claim.concepts)}", indent=2)


def _shows_condition(claim: Claim, result: Result) -> bool:
    return bool(claim.condition) and result.verdict is claim.expected


def _sum_up(results: list[Result]) -> None:
    counts: dict[str, int] = {}
    for result in results:
        counts[said(result)] = counts.get(said(result), 0) + 1
    shown = ", ".join(f"{counts[name]} {name}" for name in [*STYLES, UNKNOWN, "error"] if name in counts)
    notice(f"{len(results)} claims: {shown or 'none'}")
    for result in results:
        if result.status in ("failed", "error"):
            notice(f"{result.claim.id} {result.status}: {result.message}")
    reasons = {result.message for result in results if result.status == UNKNOWN}
    for reason in sorted(reasons):
        notice(reason)
