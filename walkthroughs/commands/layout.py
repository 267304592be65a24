"""`pagewalk layout`: where one element of the cache lies, term by term, and which lane touches it; or a byte's element.

The arithmetic is `kernels.explorer`; here it is asked and drawn. The same is on the site's layout page, to click on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from walkthroughs.commands.output import console, did_you_mean, emit_json, json_option, reports_errors
from walkthroughs.commands.trace import folded

if TYPE_CHECKING:
    from kernels.explorer import Explained, Geometry, Load, Located, Place, Step


class Table(click.ParamType):  # type: ignore[type-arg]
    """A block table: physical blocks in the order of the sequence, as 7,2,5."""

    name = "table"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Read the list; wrong use for anything else."""
        if not isinstance(value, str):
            return value
        try:
            return tuple(int(part) for part in value.split(","))
        except ValueError:
            self.fail(f"{value!r}: give physical blocks with commas between them, as 7,2,5", param, ctx)


@click.command("layout")
@click.option("--kernel", default="classic-v1", show_default=True, help="Whose lanes to show.")
@click.option("--block-size", type=int, default=16, show_default=True, help="Tokens in a block.")
@click.option("--head-size", type=int, default=128, show_default=True, help="Channels of a head.")
@click.option("--heads", type=int, default=32, show_default=True, help="Query heads.")
@click.option("--kv-heads", type=int, default=8, show_default=True, help="KV heads.")
@click.option("--dtype", default="float16", show_default=True, help="float32, float16, bfloat16 or fp8.")
@click.option("--table", type=Table(), default="7,2,5", show_default=True, help="The block table.")
@click.option("--token", type=int, default=20, show_default=True, help="A token of the sequence.")
@click.option("--head", type=int, default=3, show_default=True, help="A KV head.")
@click.option("--channel", type=int, default=10, show_default=True, help="An element of the head.")
@click.option("--layout", "layout", metavar="LAYOUT", help="The layout to spell out.  [default: the kernel's own]")
@click.option("--byte", type=int, metavar="N", help="Go back: what byte N of --layout belongs to.")
@json_option
@reports_errors
def layout_command(
    kernel: str,
    block_size: int,
    head_size: int,
    heads: int,
    kv_heads: int,
    dtype: str,
    table: tuple[int, ...],
    token: int,
    head: int,
    channel: int,
    layout: str | None,
    byte: int | None,
    as_json: bool,
) -> None:
    """Say where an element of the KV cache lies, and which lane loads it.

    Give a token, a KV head and a channel: see its slot, its address term by term, its bytes in each layout, and the
    thread that touches it. Or give --byte and --layout, and see what lies there. Layouts are classic-k, classic-v,
    nhd-k, nhd-v, hnd-k, hnd-v, side-nhd, side-hnd and tiny.
    """
    from kernels.errors import ArgumentError
    from kernels.explorer import DTYPES, KERNELS, LAYOUTS, Geometry, explain, locate

    _known("kernel", kernel, KERNELS)
    _known("dtype", dtype, DTYPES)
    if layout is not None:
        _known("layout", layout, LAYOUTS)
    try:
        geometry = Geometry(block_size, head_size, heads, kv_heads, dtype)
        if byte is not None:
            _byte(locate(layout or KERNELS[kernel].layouts[0], geometry, table, byte), geometry, table, byte, as_json)
            return
        found = explain(kernel, geometry, table, token, head, channel)
    except ArgumentError as error:
        raise click.UsageError(str(error)) from error
    if as_json:
        emit_json("layouts", [row(kernel, geometry, table) | {"explained": _plain(found)}])
        return
    _print(lambda width: explained_lines(found, geometry, table, layout, width))


def _known(kind: str, word: str, known: Mapping[str, Any]) -> None:
    if word not in known:
        hint = did_you_mean(word, known)
        raise click.UsageError(f"no {kind} is called {word!r}.{hint} There are {', '.join(known)}.")


def _plain(found: Any) -> dict[str, Any]:
    from dataclasses import asdict

    return asdict(found)


def row(name: str, geometry: Geometry, table: Sequence[int]) -> dict[str, Any]:
    """The JSON row of a question, without its answer."""
    return {"id": name, "status": "passed", "geometry": _plain(geometry), "block_table": list(table)}


def _byte(found: Located, geometry: Geometry, table: Sequence[int], byte: int, as_json: bool) -> None:
    if as_json:
        emit_json("layouts", [row(found.layout, geometry, table) | {"byte": byte, "located": _plain(found)}])
        return
    _print(lambda width: located_lines(found, geometry, table, byte, width))


# -- drawing


Line = tuple[str, str]
MOST_ENTRIES = 6
BESIDE_TABLE = 12
"""Columns left and right of the drawn table."""


def _print(lines: Callable[[int], list[Line]]) -> None:
    screen = console()
    for line, style in lines(screen.width):
        for part in folded(line, screen.width) or [""]:
            screen.print(part, style=style, markup=False, soft_wrap=True)


def _count(number: int, one: str) -> str:
    return f"{number} {one}" if number == 1 else f"{number} {one}s"


def _given(geometry: Geometry) -> str:
    return (
        f"{geometry.dtype}, blocks of {_count(geometry.block_size, 'token')}, "
        f"{_count(geometry.num_heads, 'query head')} on {_count(geometry.num_kv_heads, 'KV head')} "
        f"of {geometry.head_size}"
    )


def window(entries: int, chosen: int, most: int = MOST_ENTRIES) -> range:
    """The entries of a long table that are drawn: at most `most`, with the chosen one among them."""
    first = max(0, min(chosen - most // 2, entries - most))
    return range(first, min(entries, first + most))


def table_lines(
    table: Sequence[int], size: int, logical: int | None, offset: int, block: int, columns: int = 80
) -> list[Line]:
    """The block table as boxes under their tokens, and the physical block with the token's place lit."""
    # As wide as the longest label, or the largest block between its two marks.
    width = max(4, len(f"{(len(table) - 1) * size}-{len(table) * size - 1}"), len(str(max(table))) + 2)
    shown = window(len(table), logical or 0, max(1, min(MOST_ENTRIES, (columns - BESIDE_TABLE) // (width + 1))))
    spans = [f"{entry * size}-{(entry + 1) * size - 1}" for entry in shown]
    numbers = [str(table[entry]) for entry in shown]
    before = "…" if shown.start else " "
    after = "…" if shown.stop < len(table) else ""
    cells = [f"▸{n:^{width - 2}}◂" if e == logical else f"{n:^{width}}" for e, n in zip(shown, numbers, strict=True)]
    body = f"  table  {before}│" + "│".join(cells) + f"│{after}"
    rule = "─" * width
    lines = [
        (("  tokens  " + "".join(f" {span:^{width}}" for span in spans)).rstrip(), ""),
        ("          ┌" + "┬".join([rule] * len(shown)) + "┐", ""),
        (body, ""),
        ("          └" + "┴".join([rule] * len(shown)) + "┘", ""),
    ]
    if logical is not None:
        at = 11 + (logical - shown.start) * (width + 1) + width // 2
        lines.append((" " * at + "│", "green"))
        lines.append((" " * at + "▼", "green"))
    return [*lines, *_block_lines(size, offset, block)]


def _block_lines(size: int, offset: int, block: int) -> list[Line]:
    """One physical block, a cell a token; of a large block the 32 tokens around the chosen one."""
    first = offset // 32 * 32
    cells = "".join("█" if at == offset else "·" for at in range(first, min(size, first + 32)))
    more = f"  tokens {first} to {min(size, first + 32) - 1} of {size}" if size > 32 else ""
    return [(f"  physical block {block}  [{cells}]{more}", "green")]


def step_lines(steps: Sequence[Step], indent: int = 2) -> list[Line]:
    """Steps as columns: name, how it is got, value."""
    if not steps:
        return []
    names, ways = max(len(s.name) for s in steps), max(len(s.how) for s in steps)
    return [(f"{' ' * indent}{s.name:<{names}}  {s.how:<{ways}}  = {s.value}", "") for s in steps]


def place_lines(place: Place, title: str) -> list[Line]:
    """An address, a term a line, then its bytes, its sector, its line and its neighbours."""
    hows, factors = max(len(t.how) for t in place.terms), max(len(t.factor) for t in place.terms)
    wide = max(len(str(place.element)), *(len(str(t.product)) for t in place.terms))
    # A long product of sizes is left to the head of the pane where the line would pass 80 columns.
    named = 2 + 8 + hows + 2 + 12 + 3 + 12 + factors + wide <= 80
    lines: list[Line] = [(f"{place.kind} in {place.layout}: {title}", "bold")]
    indices, strides = max(len(str(t.index)) for t in place.terms), max(len(str(t.stride)) for t in place.terms)
    for term in place.terms:
        name = f"  {term.factor:<{factors}}" if named else ""
        lines.append(
            (f"  {term.axis:<8}{term.how:<{hows}}  {term.index:>{indices}} × {term.stride:<{strides}}{name}"
             f" = {term.product:>{wide}}", "")
        )  # fmt: skip
    length = len(lines[-1][0])
    lines.append((" " * (length - wide) + "─" * wide, ""))
    lines.append((f"  {'element':<{length - wide - 2}}{place.element:>{wide}}", "green"))
    lines.append((f"  {bytes_of(place)}", "green"))
    lines.append((f"  {run_text(place)}", ""))
    return lines


def bytes_of(place: Place) -> str:
    """The bytes of an element, and where they are in their sector and line."""
    last = place.in_sector + place.last - place.first
    inside = f"byte {place.in_sector}" if last == place.in_sector else f"bytes {place.in_sector} to {last}"
    own = f"byte {place.first}" if place.first == place.last else f"bytes {place.first} to {place.last}"
    return f"{own}: {inside} of sector {place.sector}, in line {place.line}"


def run_text(place: Place) -> str:
    """How the other channels of the same token and head lie."""
    run = place.run
    if run.pieces == 1:
        return f"This token's channels of the head are one run of {_count(run.size, 'byte')}."
    pieces = f"{run.pieces} pieces of {_count(run.size, 'byte')}, {run.apart} bytes apart"
    return f"This token's channels of the head lie in {pieces}."


def load_lines(load: Load, kernel: str) -> list[Line]:
    """Who makes an access, the warp as 32 cells, and how the lane is found."""
    head: Line = (f"{kernel} {load.does} {load.kind} ({load.layout})", "bold")
    if load.missing:
        return [head, (f"  {load.missing}", "red"), *step_lines(load.steps)]
    asked = sum(lane.size for lane in load.lanes if lane is not None)
    verb = "asks for" if load.does == "loads" else "writes"
    cells = "".join(
        "█" if number == load.lane else "·" if lane is not None else " " for number, lane in enumerate(load.lanes)
    )
    return [
        head,
        (f"  thread {load.thread} = warp {load.warp}, lane {load.lane}", "green"),
        (f"  in {load.blocks}", ""),
        (f"  lanes [{cells}]", "green"),
        (f"  It moves {_count(load.vector, 'element')} at once: {_count(load.size, 'byte')} from {load.first} on.", ""),
        (f"  The warp {verb} {_count(asked, 'byte')} in {_count(load.sectors, 'sector')}.", ""),
        *step_lines(load.steps),
    ]  # fmt: skip


def explained_lines(
    found: Explained, geometry: Geometry, table: Sequence[int], layout: str | None, columns: int
) -> list[Line]:
    """All panes, one below the other."""
    from kernels.explorer import KERNELS, LAYOUTS

    theirs = KERNELS[found.kernel].layouts
    own = (layout,) if layout else theirs[:2]
    first, last = found.first_query_head, found.last_query_head
    readers = f"query head {first} reads" if first == last else f"query heads {first} to {last} read"
    lines: list[Line] = [
        (f"Token {found.token}, KV head {found.head}, channel {found.channel}", "bold"),
        (f"{_given(geometry)}", ""),
        ("", ""),
        *table_lines(table, geometry.block_size, found.logical, found.offset, found.block, columns),
        ("", ""),
        *step_lines(found.steps),
        (f"  {readers} this KV head", ""),
    ]
    for place in found.places:
        if place.layout in own:
            lines += [("", ""), *place_lines(place, LAYOUTS[place.layout].title)]
    lines += [("", ""), ("In every layout", "bold"), *_all_lines(found.places)]
    for load in found.loads:
        if load.layout in own:
            lines += [("", ""), *load_lines(load, found.kernel)]
    if layout is None and theirs[2:]:
        lines += [("", ""), (f"{found.kernel} knows more layouts (--layout): {', '.join(theirs[2:])}", "")]
    if layout is not None and layout not in theirs:
        lines += [("", ""), (f"{found.kernel} does not touch {layout}. It knows {', '.join(theirs)}.", "yellow")]
    return [*lines, *((f"Note: {note}", "yellow") for note in found.notes)]


def _all_lines(places: Sequence[Place]) -> list[Line]:
    head = ("layout", "", "element", "byte", "sector", "channels of one token")
    rows = [head]
    for place in places:
        run = place.run
        apart = "one run" if run.pieces == 1 else f"{run.pieces} pieces, {run.apart} B apart"
        rows.append((place.layout, place.kind, str(place.element), str(place.first), str(place.sector), apart))
    wide = [max(len(r[column]) for r in rows) for column in range(len(head))]
    return [
        (f"  {r[0]:<{wide[0]}} {r[1]:<{wide[1]}}  {r[2]:>{wide[2]}}  {r[3]:>{wide[3]}}  {r[4]:>{wide[4]}}  {r[5]}", "")
        for r in rows
    ]


def located_lines(found: Located, geometry: Geometry, table: Sequence[int], byte: int, columns: int) -> list[Line]:
    """What a byte belongs to, and the divisions that say so."""
    from kernels.explorer import LAYOUTS

    whose = "no token of this sequence" if found.token is None else f"token {found.token}"
    lines: list[Line] = [
        (f"Byte {byte} of {found.layout}: {LAYOUTS[found.layout].title}", "bold"),
        (f"{_given(geometry)}", ""),
        ("", ""),
        (f"  byte {found.inside} of element {found.element}: {byte} // {geometry.itemsize}", ""),
    ]
    wide = len(str(found.element)), max(len(str(step.stride)) for step in found.divisions)
    for step in found.divisions:
        left = step.rest % step.stride
        rest = f"rest {left}" if step.stride > 1 else ""
        text = f"  {step.axis:<8}{step.rest:>{wide[0]}} // {step.stride:<{wide[1]}}  = {step.index:<6} {rest}"
        lines.append((text.rstrip(), ""))
    lines += [
        ("", ""),
        (f"  {found.kind} of {whose}, KV head {found.head}, channel {found.channel}", "green"),
        (f"  physical block {found.block}, offset {found.offset}, slot {found.slot}", "green"),
        ("", ""),
        *table_lines(table, geometry.block_size, found.logical, found.offset, found.block, columns),
    ]
    return lines
