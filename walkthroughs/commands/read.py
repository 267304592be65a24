"""`pagewalk read CONCEPT`: one concept in the terminal, upstream lines beside the port's.

An idea that several kernels have is shown in all of them, a column each (`side_by_side.py`). Otherwise, and with
`--source`, upstream's panes stand on the left and the ports' on the right. Upstream text comes from the fetched copy,
its line numbers from the committed spans. Where the copy is not there the port is shown alone, with what to type.
"""

from __future__ import annotations

from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from walkthroughs.commands.output import (
    console,
    emit_json,
    json_option,
    notice,
    reports_errors,
    require_known,
)

if TYPE_CHECKING:
    from annotate.render import Excerpt

ROOT = Path(__file__).resolve().parents[2]


@click.command("read")
@click.argument("name", metavar="CONCEPT")
@click.option("--source", metavar="SOURCE", help="Read it in this source only.  [default: in all kernels that have it]")
@json_option
@reports_errors
def read_command(name: str, source: str | None, as_json: bool) -> None:
    """Show one concept: upstream lines and the port's, side by side.

    CONCEPT is an id, as on the site, such as block-table-walk. An idea that several kernels have is shown in all of
    them, a column each where the terminal is wide. Exit 1 if a source is not here; an optional one may be missing,
    unless it is asked for.
    """
    from annotate.concepts import concept
    from annotate.sources import pins
    from annotate.spans import sources
    from walkthroughs.commands.side_by_side import idea_row, is_here, kernels_of, show_kernels

    found = concept(name)
    holders = [pin for pin in pins() if pin in sources() and spans_of(pin, name)]
    if source is not None:
        require_known("source", source, pins(), "pagewalk sources")
        if source not in holders:
            raise click.UsageError(f"{name} has no lines in {source}. It has in: {', '.join(holders) or 'no source'}.")
    chosen = source or next(iter(holders), None)
    idea, kernels = kernels_of(name)
    if as_json:
        spans = [span for pin in ([source] if source else holders) for span in spans_of(pin, name)]
        row: dict[str, Any] = {"id": name, "status": "passed", "title": found.title, "summary": found.summary}
        row |= {"see_also": list(found.see_also), "spans": spans, "regions": regions_of(name), "idea": idea_row(idea)}
        emit_json("concepts", [row])
        return
    head(name, found.title, found.summary)
    if kernels and source is None:
        complete = show_kernels(idea, kernels)
        if found.see_also:
            notice(f"See also: {', '.join(found.see_also)}")
        if not complete:
            raise SystemExit(1)
        return
    show(name, chosen)
    others = [pin for pin in holders if pin != chosen]
    if others:
        notice(f"Also in: {', '.join(others)} (--source)")
    if found.see_also:
        notice(f"See also: {', '.join(found.see_also)}")
    if chosen is not None and not is_here(chosen):
        raise SystemExit(1)


def spans_of(source: str, name: str) -> list[dict[str, Any]]:
    """Return a concept's recorded spans in a source, as JSON rows."""
    from dataclasses import asdict

    from annotate.sources import pins
    from annotate.spans import spans

    pin = pins()[source]
    return [
        asdict(span) | {"permalink": pin.link(span.path, span.first, span.last)} for span in spans(source).get(name, ())
    ]


def regions_of(name: str) -> list[dict[str, Any]]:
    """Return a concept's regions in every file of ours, as JSON rows."""
    from walkthroughs.site.code import port_ranges, ports

    return [
        {"path": path, "first": first, "last": last}
        for path in ports()
        for first, last in port_ranges(path).get(name, ())
    ]


def head(name: str, title: str, summary: str) -> None:
    """Print what a concept is called and what it means."""
    from rich.text import Text

    screen = console()
    screen.print(Text.assemble((title, "bold"), f"  ({name})"))
    screen.print(Text(summary))
    screen.print()


def show(name: str, source: str | None) -> None:
    """Print a concept's panes, upstream and port in pairs."""
    from annotate.errors import SourceUnavailable

    left: list[Excerpt] = []
    if source is not None:
        try:
            left = upstream_panes(name, source)
        except SourceUnavailable as error:
            notice(str(error))
    right = port_panes(name)
    if not left and not right:
        notice(f"{name} has no lines to show.")
    for pair in zip_longest(left, right):
        print_pair(*pair)


def print_pair(left: Excerpt | None, right: Excerpt | None) -> None:
    """Print an upstream pane and a port's, side by side where the terminal is wide enough."""
    from annotate.render import to_terminal

    screen = console()
    click.echo(to_terminal(left, right, screen.width, screen.color_system is not None))


def upstream_panes(name: str, source: str) -> list[Excerpt]:
    """Return an excerpt for each upstream file that has the concept. Raises SourceUnavailable."""
    from annotate.render import excerpt
    from annotate.sources import open_tree, pins
    from walkthroughs.site.code import source_ranges, with_inner

    pin, tree = pins()[source], open_tree(source)
    panes = []
    for path, ranges in source_ranges(source).items():
        if name not in ranges:
            continue
        text = tree.read(path).decode("utf-8")
        first, last = ranges[name][0]
        panes.append(
            excerpt(
                text,
                with_inner(ranges, [name]),
                side="upstream",
                source=source,
                path=path,
                language="python" if path.endswith(".py") else "cuda",
                permalink=pin.link(path, first, last),
                licence=pin.licence,
            )
        )
    return panes


def port_panes(name: str) -> list[Excerpt]:
    """Return an excerpt for each file of ours that has a region of the concept."""
    from annotate.regions import is_fence
    from annotate.render import excerpt
    from walkthroughs.site.code import OUR_LICENCE, port_ranges, ports, with_inner

    return [
        excerpt(
            (ROOT / path).read_text("utf-8"),
            with_inner(port_ranges(path), [name]),
            side="port",
            source="pagewalk",
            path=path,
            language="python",
            licence=OUR_LICENCE,
            hide=is_fence,
        )
        for path in ports()
        if name in port_ranges(path)
    ]
