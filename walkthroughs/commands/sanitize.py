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
TABLE_WIDTH = 110


@click.command("sanitize")
@click.argument("kernel", metavar="KERNEL")
@click.option("--case", "case_name", metavar="CASE", help="One of the kernel's small cases.")
@click.option("--schedule", default="in-order", show_default=True, help="in-order, reversed, random:SEED, ...")
@click.option("--memory", is_flag=True, help="Show the memory view of every load and store.")
@json_option
@reports_errors
def sanitize_command(kernel: str, case_name: str | None, schedule: str, memory: bool, as_json: bool) -> None:
    """Look for races, bad accesses and bank conflicts in a kernel.

    Bad accesses are those out of bounds, of shared memory that nobody wrote, and misaligned vectors. A race is found
    under every schedule, also where the output is right. KERNEL is a port, as in `pagewalk trace`, one of the kernels
    in kernels/variants.py that are broken on purpose, or one of the loads in kernels/loads.py, such as k-load-x-16 and
    k-load-naive-16.
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
    notice(f"{counted(len(watch.races), 'race')}, {counted(len(watch.faults), 'fault')}")
    if not watch.clean:
        raise SystemExit(1)


def find(kernel: str, case_name: str | None) -> tuple[str, Any]:
    """A kernel's case and what launches it; raises UnknownName with the nearest names."""
    from annotate.errors import UnknownName, nearest
    from kernels.loads import memory_cases
    from kernels.variants import VARIANTS
    from walkthroughs.launchables import launchable, names

    if kernel in names():
        case = launchable(kernel).case(case_name)
        return f"{case.name}: {case.title}", case.run
    single = {name: (variant.what, variant.launch) for name, variant in VARIANTS.items()}
    single |= {name: ("loads or stores alone", run) for name, run in memory_cases().items()}
    if kernel not in single:
        known = (*names(), *single)
        raise UnknownName("kernel", kernel, nearest(kernel, known) or names())
    if case_name is not None:
        raise click.UsageError(f"{kernel} has one launch and no --case.")
    return single[kernel]


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
        where = f"first seen in block {example.block}, after {counted(example.interval, 'barrier')}"
        yield f"  {counted(race.pairs, 'pair')} of accesses to {counted(len(race.elements), 'element')}; {where}", ""
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


def counted(number: int, noun: str) -> str:
    """`1 race`, `2 races`."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


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
    outside = ("requests", "bytes/lane", "sectors/req.", "lines/req.", "coalesced")
    inside = ("requests", "bytes/lane", "wavefronts/req.", "worst")
    for space, heads in (("global", outside), ("shared", inside)):
        chosen = [row for row in rows if row.space == space]
        if not chosen:
            continue
        if screen.width < TABLE_WIDTH:
            screen.print(f"\n{space} memory")
            for row in chosen:
                numbers = ", ".join(f"{head} {number}" for head, number in zip(heads, _numbers(row), strict=True))
                screen.print(f"{row.where} {row.kind}s {row.array}", soft_wrap=True, markup=False)
                screen.print(f"    {numbers}", soft_wrap=True, markup=False)
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
    screen.print()
    screen.print("A request is a load or store of a warp as the port makes it: an element where the C++ has a vector.")


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
