"""`pagewalk anchors`: find every anchor again in the sources, and compare with the committed facts.

An anchor that resolves to other lines or tokens than `annotate/spans/` says is stale; `--write` records anew.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from walkthroughs.commands.output import (
    emit_json,
    json_option,
    notice,
    print_rows,
    reports_errors,
    require_known,
)

if TYPE_CHECKING:
    from annotate.anchors import Anchor
    from annotate.errors import AnnotateError
    from annotate.spans import Span

COLOURS = {"passed": "", "stale": "yellow", "error": "red", "unavailable": "yellow"}


@click.command("anchors")
@click.option("--source", "names", multiple=True, metavar="SOURCE", help="Only this source; may be repeated.")
@click.option("--write", is_flag=True, help="Record where they resolve, in annotate/spans/.")
@json_option
@reports_errors
def anchors_command(names: tuple[str, ...], write: bool, as_json: bool) -> None:
    """Resolve the anchors into the sources. Exit 1 if one does not, or not to where it was recorded.

    Without --source, every source that has anchors is looked into.
    """
    from annotate.sources import pins

    for name in names:
        require_known("source", name, pins(), "pagewalk sources")
    rows = [row for name in names or with_anchors() for row in resolve_source(name, write=write)]
    if as_json:
        emit_json("anchors", rows)
    else:
        _print(rows)
    bad = sum(row["status"] != "passed" for row in rows)
    notice(f"{len(rows) - bad} of {len(rows)} anchors resolve to where they were recorded")
    if bad:
        raise SystemExit(1)


def with_anchors() -> list[str]:
    """Return the ids of the pinned sources that the concept table has anchors in."""
    from annotate.concepts import concepts
    from annotate.sources import pins

    return [pin for pin in pins() if any(pin in concept.anchors for concept in concepts().values())]


def resolve_source(name: str, *, write: bool = False) -> list[dict[str, Any]]:
    """Return a row for each anchor in a source; all are `unavailable` where the source is not here."""
    from annotate.anchors import resolve_all
    from annotate.errors import SourceUnavailable
    from annotate.sources import open_tree
    from annotate.spans import Span
    from annotate.spans import write as write_spans

    anchors = anchors_in(name)
    try:
        results = resolve_all(name, open_tree(name))
    except SourceUnavailable as error:
        notice(str(error))
        return [row_of(key, anchor, error, set()) for key, anchor in anchors.items()]
    spans = [result for result in results if isinstance(result, Span)]
    if write and len(spans) == len(results):
        write_spans(name, spans)
        notice(f"{name}: {len(spans)} spans recorded")
    elif write:
        notice(f"{name}: nothing recorded, as {len(results) - len(spans)} anchors do not resolve")
    recorded = recorded_spans(name)
    return [row_of(*item, result, recorded) for item, result in zip(anchors.items(), results, strict=True)]


def anchors_in(name: str) -> dict[str, Anchor]:
    """Return a source's anchors in the order of the table, by concept, numbered where it has several."""
    from annotate.anchors import anchors_of
    from annotate.concepts import concepts

    found = {}
    for concept in concepts().values():
        anchors = anchors_of(concept, name)
        for number, anchor in enumerate(anchors, start=1):
            found[f"{name}/{concept.id}" + (f"#{number}" if len(anchors) > 1 else "")] = anchor
    return found


def recorded_spans(name: str) -> set[Span]:
    """Return the committed spans of a source, none where it has no such file."""
    from annotate.errors import UnknownName
    from annotate.spans import spans

    try:
        return {span for found in spans(name).values() for span in found}
    except UnknownName:
        return set()


def row_of(key: str, anchor: Anchor, result: Span | AnnotateError, recorded: set[Span]) -> dict[str, Any]:
    """Return one anchor as its JSON row."""
    from annotate.errors import SourceUnavailable
    from annotate.spans import Span

    where = {"source": anchor.source, "concept": anchor.concept, "symbol": anchor.symbol}
    row = {"id": key, "status": "passed", **where, "landmark": anchor.landmark, "message": ""}
    if isinstance(result, Span):
        row |= {**asdict(result), "symbol": anchor.symbol}
        if result not in recorded:
            row |= {
                "status": "stale",
                "message": "not where it was recorded; pagewalk anchors --write records it",
            }
        return row
    status = "unavailable" if isinstance(result, SourceUnavailable) else "error"
    return row | {"status": status, "message": str(result)}


def _print(rows: list[dict[str, Any]]) -> None:
    cells = []
    for row in rows:
        where = f"{row['path']}:{row['first']}-{row['last']}" if "path" in row else ""
        cells.append((row["id"], " ".join(part for part in (where, row["message"]) if part)))
    print_rows(cells, [COLOURS[row["status"]] for row in rows])
