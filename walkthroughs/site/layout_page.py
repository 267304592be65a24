"""The layout explorer's place on its page: the element that the script fills, and in it a worked example as tables.

The example is computed when the site is built, so that a page without scripts says the same of one element.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from kernels.explorer import LAYOUTS, Explained, Geometry, Load, Place, explain

from .render import Stash

KERNEL = "classic-v1"
GEOMETRY = Geometry()
TABLE = (7, 2, 5)
POINT = (20, 3, 10)


def lines(stash: Stash) -> list[str]:
    """The page's Markdown: one block of finished HTML."""
    return ["", stash(explorer_html(explain(KERNEL, GEOMETRY, TABLE, *POINT), GEOMETRY, TABLE)), ""]


def explorer_html(found: Explained, geometry: Geometry, table: Sequence[int]) -> str:
    """The element with its example; the search leaves its numbers out."""
    blocks = ", ".join(map(str, table))
    given = (
        f"{geometry.dtype}, blocks of {geometry.block_size} tokens, {geometry.num_heads} query heads on "
        f"{geometry.num_kv_heads} KV heads of {geometry.head_size}, block table {blocks}"
    )
    return (
        # A block for Markdown, which would put an element that it does not know into a paragraph.
        '<div class="pw-lx-place"><pagewalk-layout><div class="pw-lx-static" data-search-exclude>'
        f"<p><b>A worked example.</b> Token {found.token}, KV head {found.head}, channel {found.channel}: {given}.</p>"
        f"{_table('From token to slot', ('name', 'how', 'value'), ((s.name, s.how, s.value) for s in found.steps))}"
        f"{''.join(_address(place) for place in found.places if place.layout.startswith('classic'))}"
        f"{_places(found.places)}"
        f"{''.join(_load(found.kernel, load) for load in found.loads)}"
        "<p>With scripts this page answers for every element, and back from a byte. "
        "In a terminal: <code>pagewalk layout --token 20 --head 3 --channel 10</code>.</p>"
        "</div></pagewalk-layout></div>"
    )


def _table(caption: str, head: Iterable[str], rows: Iterable[Iterable[object]], style: str = "numbers") -> str:
    titles = "".join(f'<th scope="col">{escape(name)}</th>' for name in head)
    body = "".join(f"<tr>{''.join(f'<td>{escape(str(cell))}</td>' for cell in row)}</tr>" for row in rows)
    return (
        f'<div class="pw-lx-scroll" role="region" tabindex="0" aria-label="{escape(caption)}">'
        f'<table class="pw-lx-table {style}"><caption>{escape(caption)}</caption>'
        f"<thead><tr>{titles}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def _address(place: Place) -> str:
    rows: list[tuple[object, ...]] = [
        (term.axis, term.how, f"{term.index} × {term.stride}", term.factor, term.product) for term in place.terms
    ]
    rows.append(("element", "", "", "sum", place.element))
    head = ("axis", "index", "index × stride", "stride is", "product")
    return _table(f"The address of {place.kind}: {LAYOUTS[place.layout].title}", head, rows)


def _places(places: Iterable[Place]) -> str:
    rows = (
        (
            LAYOUTS[place.layout].title,
            place.kind,
            place.element,
            f"{place.first} to {place.last}",
            place.sector,
            _run(place),
        )
        for place in places
    )
    return _table(
        "In every layout", ("layout", "of", "element", "bytes", "sector", "one token's channels"), rows, "words"
    )


def _run(place: Place) -> str:
    run = place.run
    return "one run" if run.pieces == 1 else f"{run.pieces} pieces of {run.size} bytes, {run.apart} apart"


def _load(kernel: str, load: Load) -> str:
    asked = sum(lane.size for lane in load.lanes if lane is not None)
    return (
        f"<p><b>{escape(kernel)} {load.does} {load.kind}.</b> Thread {load.thread} does it: warp {load.warp}, "
        f"lane {load.lane}. It takes {load.vector} elements at once, {load.size} bytes. "
        f"At the same time the whole warp asks for {asked} bytes in {load.sectors} sectors.</p>"
        f"{_table(f'The way to the lane for {load.kind}', ('name', 'how', 'value'), _steps(load))}"
    )


def _steps(load: Load) -> Iterable[tuple[object, ...]]:
    return ((step.name, step.how, step.value) for step in load.steps)
