"""`pagewalk sanitize KERNEL`: run a kernel under every sanitizer of the SIMT machine, and say what is wrong with it.

Each access of a race is shown with its line and the upstream lines that it stands for. `--memory` adds the memory
view: sectors, lines and coalescing of every load and store. Exit 1 where a race or a fault is found.
"""

from __future__ import annotations

import linecache
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from walkthroughs.commands.output import console, emit_json, json_option, notice, reports_errors

if TYPE_CHECKING:
    from kernels.simt.memview import Traffic
    from kernels.simt.race import Access, Race
    from kernels.simt.sanitize import Fault, Sanitizer

SHOWN_THREADS = 60


@click.command("sanitize")
@click.argument("kernel", metavar="KERNEL")
@click.option("--case", "case_name", metavar="CASE", help="One of the kernel's small cases.")
@click.option("--schedule", default="in-order", show_default=True, help="in-order, reversed or random:SEED.")
@click.option("--memory", is_flag=True, help="Show the memory view of every load and store.")
@json_option
@reports_errors
def sanitize_command(kernel: str, case_name: str | None, schedule: str, memory: bool, as_json: bool) -> None:
    """Look for races, out-of-bounds and uninitialised accesses, misaligned vectors and bank conflicts in a KERNEL.

    A race is found under every schedule, also where the output is right. KERNEL is a port, as in `pagewalk trace`, or
    one of the kernels in kernels/variants.py that are broken on purpose.
    """
    from kernels.kernel import Backend
    from kernels.simt import BadLaunch
    from kernels.simt.sanitize import Sanitizer

    title, run = find(kernel, case_name)
    watch = Sanitizer()
    try:
        with watch:
            run(Backend("sim", schedule, observers=(watch,)))
    except BadLaunch as wrong:
        raise click.UsageError(str(wrong)) from wrong
    if as_json:
        emit_json("kernels", [as_row(kernel, title, schedule, watch, memory)])
    else:
        screen = console()
        for line, style in report(kernel, title, schedule, watch):
            screen.print(line, style=style, markup=False, soft_wrap=True)
        if memory:
            show_memory(watch.memory.rows)
    notice(f"{len(watch.races)} races, {len(watch.faults)} faults")
    if not watch.clean:
        raise SystemExit(1)


def find(kernel: str, case_name: str | None) -> tuple[str, Any]:
    """A kernel's case and what launches it; raises UnknownName with the nearest names."""
    from annotate.errors import UnknownName, nearest
    from kernels.variants import VARIANTS
    from walkthroughs.launchables import launchable, names

    if kernel in VARIANTS and case_name is None:
        return VARIANTS[kernel].what, VARIANTS[kernel].launch
    if kernel not in names():
        known = (*names(), *VARIANTS)
        raise UnknownName("kernel", kernel, nearest(kernel, known) or names())
    case = launchable(kernel).case(case_name)
    return f"{case.name}: {case.title}", case.run


def report(kernel: str, title: str, schedule: str, watch: Sanitizer) -> Iterator[tuple[str, str]]:
    """The report as lines, each with its style."""
    yield f"{kernel}, {title}", "bold"
    yield f"schedule {schedule}", "dim"
    for race in watch.races:
        yield "", ""
        yield f"RACE  {race.hazard}, {race.scope}: {race.space} {race.element}", "bold red"
        for access, threads in zip((race.first, race.second), race.threads, strict=True):
            yield from _side(access, threads)
        example = race.first
        where = f"first seen in block {example.block}, after {example.interval} barriers"
        yield f"  {race.pairs} pairs of accesses to {len(race.elements)} elements; {where}", ""
    for fault in watch.faults:
        yield "", ""
        yield f"FAULT  {fault.kind}: {fault.message}", "bold red"
        if fault.place is not None:
            yield from _source(fault.place.file, fault.place.line)
    conflicts = watch.bank_conflicts
    if conflicts:
        yield "", ""
        yield "Bank conflicts (slow, not wrong):", "bold"
        for row in conflicts:
            yield f"  {row.where} {row.kind}s {row.array}: up to {row.degree} words of one bank at once", ""
    if watch.clean:
        yield "", ""
        yield "clean: no race, no fault", "green"


def _side(access: Access, threads: set[int]) -> Iterator[tuple[str, str]]:
    from kernels.simt.report import show_ranges

    who = show_ranges(sorted(threads))
    if len(who) > SHOWN_THREADS:
        who = f"{who[:SHOWN_THREADS].rpartition(',')[0]} ..."
    yield f"  {access.where} {access.kind}s, thread{'s' * (len(threads) > 1)} {who}", ""
    yield from _source(access.file, access.line)


def _source(file: str, line: int) -> Iterator[tuple[str, str]]:
    from walkthroughs.upstream import upstream_of

    text = linecache.getline(file, line).strip()
    if text:
        yield f"      {text}", "cyan"
    upstream = upstream_of(file, line)
    if upstream is not None:
        yield f"      upstream: {upstream}", "dim"


def show_memory(rows: list[Traffic]) -> None:
    """Print the memory view: global lines by coalescing, shared lines by bank conflicts."""
    from rich.table import Table

    screen = console()
    numbers = ("requests", "bytes/lane", "sectors/req.", "lines/req.", "coalesced")
    for space, heads in (("global", numbers), ("shared", ("requests", "bytes/lane", "wavefronts/req.", "worst"))):
        chosen = [row for row in rows if row.space == space]
        if not chosen:
            continue
        table = Table(title=f"{space} memory", title_justify="left", box=None, padding=(0, 2, 0, 0), pad_edge=False)
        for head in ("line", "array", "kind"):
            table.add_column(head, overflow="fold")
        for head in heads:
            table.add_column(head, justify="right")
        for row in chosen:
            table.add_row(row.where, row.array, row.kind, *_numbers(row))
        screen.print()
        screen.print(table)


def _numbers(row: Traffic) -> list[str]:
    sizes = ", ".join(map(str, sorted(row.sizes)))
    if row.space == "shared":
        return [str(row.requests), sizes, f"{row.wavefronts / row.requests:.2f}", str(row.degree)]
    shown = [f"{row.sectors_per_request:.2f}", f"{row.lines_per_request:.2f}", f"{row.efficiency:.0%}"]
    return [str(row.requests), sizes, *shown]


def as_row(kernel: str, title: str, schedule: str, watch: Sanitizer, memory: bool) -> dict[str, Any]:
    """The result as its JSON row."""
    row = {
        "id": kernel,
        "status": "passed" if watch.clean else "failed",
        "case": title,
        "schedule": schedule,
        "races": [_race_row(race) for race in watch.races],
        "faults": [_fault_row(fault) for fault in watch.faults],
        "bank_conflicts": [_traffic_row(conflict) for conflict in watch.bank_conflicts],
    }
    return row | ({"memory": [_traffic_row(traffic) for traffic in watch.memory.rows]} if memory else {})


def _race_row(race: Race) -> dict[str, Any]:
    sides = [
        {"kind": side.kind, **_where(side.file, side.line), "threads": sorted(threads)}
        for side, threads in zip((race.first, race.second), race.threads, strict=True)
    ]
    return {
        "scope": race.scope, "hazard": race.hazard, "space": race.space, "array": race.array, "element": race.element,
        "block": race.first.block, "interval": race.first.interval, "pairs": race.pairs,
        "elements": len(race.elements), "accesses": sides,
    }  # fmt: skip


def _fault_row(fault: Fault) -> dict[str, Any]:
    place = fault.place
    row: dict[str, Any] = {"kind": fault.kind, "message": fault.message}
    if place is not None:
        row |= _where(place.file, place.line) | {"thread": place.thread, "block": place.block}
    return row


def _traffic_row(row: Traffic) -> dict[str, Any]:
    return {
        "space": row.space, "array": row.array, "kind": row.kind, **_where(row.file, row.line),
        "requests": row.requests, "lanes": row.lanes, "sizes": sorted(row.sizes), "bytes": row.bytes,
        "sectors": row.sectors, "lines": row.lines, "efficiency": row.efficiency, "wavefronts": row.wavefronts,
        "degree": row.degree,
    }  # fmt: skip


def _where(file: str, line: int) -> dict[str, Any]:
    from kernels.simt.report import show_line
    from walkthroughs.upstream import upstream_of

    upstream = upstream_of(file, line)
    found: dict[str, Any] = {"where": show_line(file, line)}
    if upstream is not None:
        found["upstream"] = {
            "source": upstream.source, "concept": upstream.concept, "path": upstream.path, "first": upstream.first,
            "last": upstream.last, "permalink": upstream.permalink,
        }  # fmt: skip
    return found
