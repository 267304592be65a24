"""`pagewalk trace`: record chosen threads of a kernel line by line, to a file or as a readable walk.

The file format is in `docs/trace-format.md`; the walk is for a first look, at any width and without colour.
"""

from __future__ import annotations

import linecache
import os
import tempfile
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from walkthroughs.commands.output import console, emit_json, json_option, notice, reports_errors

if TYPE_CHECKING:
    from kernels.simt.trace import Event, Trace

ROOT = Path(__file__).resolve().parents[2]


class Threads(click.ParamType):  # type: ignore[type-arg]
    """Threads of a block: `0,33` are two, `0-31` is a range, `1:0:0` is one by its x, y and z."""

    name = "threads"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Read the list; wrong use for anything else."""
        found: list[Any] = []
        try:
            for part in value.split(","):
                first, dash, last = part.partition("-")
                if ":" in part:
                    found.append(tuple(int(number) for number in part.split(":")))
                else:
                    found += range(int(first), int(last) + 1) if dash else [int(first)]
        except ValueError:
            found = []
        if not found:
            self.fail(f"{value!r}: give numbers (0,33), a range (0-31), or places (1:0:0)", param, ctx)
        return found


class Block(click.ParamType):  # type: ignore[type-arg]
    """A thread block: its linear number, or x,y or x,y,z."""

    name = "block"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Read one block; wrong use for anything else."""
        try:
            parts = tuple(int(part) for part in value.split(","))
        except ValueError:
            self.fail(f"{value!r}: give one block, as 3 or x,y or x,y,z", param, ctx)
        return parts[0] if len(parts) == 1 else parts


@click.command("trace")
@click.argument("kernel", metavar="KERNEL")
@click.option("--thread", "threads", type=Threads(), default="0", show_default=True, help="0,33 or 0-31 or 1:0:0.")
@click.option(
    "--block",
    "blocks",
    type=Block(),
    multiple=True,
    default=("0",),
    show_default=True,
    help="3 or x,y or x,y,z; may be repeated.",
)
@click.option("--case", "case_name", metavar="CASE", help="One of the kernel's small cases.")
@click.option("--schedule", default="in-order", show_default=True, help="in-order, reversed, random:SEED, ...")
@click.option(
    "--launch", "nth", type=click.IntRange(min=1), default=1, show_default=True, help="Where the case makes several."
)
@click.option("--limit", type=click.IntRange(min=1), default=50_000, show_default=True, help="Events to keep.")
@click.option("--max-bytes", type=click.IntRange(min=1), default=8 << 20, show_default=True, help="Size of the file.")
@click.option("-o", "--output", type=click.Path(dir_okay=False, path_type=Path), help="Write the trace as JSON.")
@json_option
@reports_errors
def trace_command(
    kernel: str,
    threads: list[Any],
    blocks: tuple[Any, ...],
    case_name: str | None,
    schedule: str,
    nth: int,
    limit: int,
    max_bytes: int,
    output: Path | None,
    as_json: bool,
) -> None:
    """Record chosen threads of a kernel, line by line.

    It runs on the SIMT machine and keeps variables, accesses, shuffles and barriers. KERNEL is one of classic-v1,
    reshape-and-cache, scatter, gather and the others that `pagewalk sanitize` knows.

    Without -o, print a readable walk. Exit 1 if the kernel fails; what happened until then is still written.
    """
    from kernels.kernel import Backend
    from kernels.simt import BadLaunch, SimtError
    from kernels.simt.record import Recorder
    from kernels.simt.schedule import Schedule
    from kernels.simt.trace import TraceError
    from walkthroughs.launchables import launchable

    found = launchable(kernel)
    case = found.case(case_name)
    error: Exception | None = None
    try:
        Schedule.parse(schedule)
        recorder = Recorder(threads, blocks, limit=limit, nth=nth)
        case.run(Backend("sim", schedule, tracer=recorder))
    except (TraceError, BadLaunch) as wrong:
        raise click.UsageError(str(wrong)) from wrong
    except SimtError as failed:
        error = failed
    try:
        trace = recorder.trace(case.name)
    except TraceError as wrong:
        raise click.UsageError(str(wrong)) from wrong
    if output is not None:
        from kernels.simt.trace_json import dump, load

        text = dump(trace, max_bytes)
        write_whole(output, text)
        trace = load(text)
        notice(f"{output}: {len(trace)} events, {len(text)} bytes")
    if trace.truncated is not None:
        notice(f"truncated: {trace.truncated}")
    if trace.launches > 1:
        notice(f"{trace.launches} launches were made, number {nth} is recorded")
    if as_json:
        emit_json("traces", [_row(kernel, trace, output, error)])
    elif output is None:
        screen = console()
        for line, style in walk(trace):
            for part in folded(line, screen.width):
                screen.print(part, style=style, markup=False, soft_wrap=True)
    if error is not None:
        raise click.ClickException(str(error))


def folded(line: str, width: int) -> list[str]:
    """A line as lines of at most `width` characters (a single long word may be longer), indented as it was."""
    indent = " " * min(len(line) - len(line.lstrip()) + 6, width // 2)
    return textwrap.wrap(
        line, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False, drop_whitespace=True
    )


def _row(kernel: str, trace: Trace, output: Path | None, error: Exception | None) -> dict[str, Any]:
    from collections import Counter
    from dataclasses import asdict

    return {
        "id": kernel,
        "status": "failed" if error is not None else "passed",
        "message": str(error or ""),
        "case": trace.case,
        "schedule": trace.schedule,
        "grid": trace.grid,
        "block": trace.block,
        "threads": [{"block": t.block, "thread": t.thread, "number": t.number} for t in trace.threads],
        "events": len(trace),
        "kinds": dict(Counter(event.kind for event in trace.events)),
        "truncated": asdict(trace.truncated) if trace.truncated else None,
        "output": str(output) if output else None,
    }


def write_whole(path: Path, text: str) -> None:
    """Write a file so that nobody ever sees half of it: beside its place first, then renamed."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        mode = os.umask(0)
        os.umask(mode)
        Path(name).chmod(0o666 & ~mode)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def walk(trace: Trace) -> Iterator[tuple[str, str]]:
    """The trace as lines of text, each with its style: the port's line, and under it what it did."""
    many = len(trace.threads) > 1
    last = -1
    for event in trace.events:
        if event.thread != last and (many or last < 0):
            thread = trace.threads[event.thread]
            yield f"thread {thread.number} {thread.thread} of block {thread.block}", "bold"
        last = event.thread
        yield from _lines(trace, event)


def _lines(trace: Trace, event: Event) -> Iterator[tuple[str, str]]:
    pad = "  " * max(event.depth, 0)
    if event.kind == "call":
        function = trace.functions[event.function]
        yield f"{pad}{function.name}  ({trace.files[function.file].path}:{function.line})", "bold"
        for name, value in event.changed:
            yield f"{pad}        {name} = {_shown(trace, value)}", "green"
    elif event.kind == "line":
        path = trace.files[trace.functions[event.function].file].path
        source = linecache.getline(str(ROOT / path), event.line).strip()
        # The changes are what the function's last line did; a call that it made stands in between.
        for name, value in event.changed:
            yield f"{pad}        {name} = {_shown(trace, value)}", "green"
        yield f"{pad}{event.line:5} {source}", ""
    elif event.kind == "return":
        for name, value in event.changed:
            yield f"{pad}        {name} = {_shown(trace, value)}", "green"
        if event.value is not None and event.value.type != "none":
            yield f"{pad}        returns {_shown(trace, event.value)}", "bold"
    elif event.kind == "end":
        yield f"{event.what}{f': {event.value}' if event.value else ''}", "bold" if event.what == "returned" else "red"
    else:
        yield f"{pad}        {_did(trace, event)}", "cyan" if event.kind in ("warp", "barrier") else "blue"


def _did(trace: Trace, event: Event) -> str:
    if event.kind == "barrier":
        return f"waits in {event.what}, which ends interval {event.interval}"
    if event.kind == "warp":
        given = "" if event.value is None else f" gives {_shown(trace, event.value)}"
        source = "" if event.source < 0 else f" from lane {event.source}"
        got = "" if event.result is None else f", gets {_shown(trace, event.result)}{source}"
        return f"{event.what}{given}{got}"
    array = trace.arrays[event.array]
    if event.kind == "alloc":
        return f"{array.space} array {array.name}: {array.dtype}{list(array.shape)}"
    spot = f"{array.name}[{event.index}]"
    if event.kind == "atomic":
        return f"atomic {event.what} {array.space} {spot}: {event.value} becomes {event.result}"
    if event.kind == "vector":
        last = event.index + len(event.values) - 1
        return f"read {array.space} {spot} to [{last}] = {', '.join(map(str, event.values))}"
    return f"{event.kind} {array.space} {spot} {'=' if event.kind == 'read' else 'becomes'} {event.value}"


def _shown(trace: Trace, value: Any) -> str:
    if value is None:
        return "(deleted)"
    if value.type == "array":
        number, first, *shape = value.data
        start = f" from element {first}" if first else ""
        return f"{trace.arrays[number].space} array {trace.arrays[number].name}{shape}{start}"
    return str(value)
