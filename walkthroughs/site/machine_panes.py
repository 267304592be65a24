"""The three columns of a machine-code page as HTML: upstream's lines, the port's lines, and the instructions.

A line of the port that became instructions has a number, `data-l`; so has every run of instructions that came from it.
By that number, and by the concepts of the port's line, the script finds what belongs together.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from html import escape
from itertools import groupby

from annotate import concepts, regions, render, spans
from walkthroughs import machine_record
from walkthroughs.machine_parse import Place
from walkthroughs.machine_record import NOWHERE, Code, MachineRecord

from . import code as code_panes
from .code import ROOT

HUES = 6
WHOLE = "whole-function"
NAMES = {"ptx": "PTX", "sass": "SASS"}
_LINE = re.compile(r'<li class="pw-line( pw-context)?" id="([^"]*)" value="(\d+)"')


@dataclass(frozen=True)
class Columns:
    """The finished columns, and the concepts that occur in them."""

    html: str
    concepts: tuple[str, ...]
    names: tuple[str, ...]


def columns(record: MachineRecord, source: str) -> Columns:
    """The columns of a record; `source` is the pin of the upstream side, or empty for what is our own."""
    numbers = numbered(record)
    files = list(dict.fromkeys(file for file, _ in numbers))
    port, linked, names = _port(files, numbers, record.kernel)
    known = spans.spans(source) if source else {}
    reads = [name for name in linked if name in known]
    upstream = code_panes.source_figures(source, reads, record.kernel, context=1) if reads else code_panes.Figures()
    listings = [
        _listing(code, side, [numbers[place] for place in machine_record.present_lines(record, code)], list(numbers))
        for code in record.kernels
        for side in machine_record.SIDES
    ]
    sides = [("upstream", upstream.html), ("port", port), ("machine", tuple(listings))]
    shown = dict.fromkeys([*upstream.concepts, *linked])
    titles = {name: concepts.concept(name).title for name in shown}
    # The search plugin leaves out everything up to the next closing tag of the same name: see render.pair_html.
    inside = "".join(
        f'<section class="pw-side pw-side-{side}" data-search-exclude>{"".join(figures)}</section>'
        for side, figures in sides
        if figures
    )
    alone = "" if upstream.html else " pw-two"
    data = escape(json.dumps(titles, ensure_ascii=False), quote=True)
    html = f'<div class="pw-machine{alone}" id="machine-{record.kernel}" data-titles="{data}">{inside}</div>'
    return Columns(html, tuple(shown), tuple(dict.fromkeys([*upstream.names, *names])))


def numbered(record: MachineRecord) -> dict[Place, int]:
    """Every line of ours that became instructions, in the order of the page, with its number: the port's file first."""
    found = {place for code in record.kernels for place in machine_record.present_lines(record, code)}
    order = {file: at for at, file in enumerate(machine_record.closure(record.port))}
    return {place: number for number, place in enumerate(sorted(found, key=lambda p: (order.get(p[0], 99), *p)))}


def _port(
    files: Sequence[str], numbers: Mapping[Place, int], scope: str
) -> tuple[tuple[str, ...], list[str], list[str]]:
    """Our panes, the concepts of their lines, and the names in them: every function that became instructions, whole."""
    html: list[str] = []
    linked: list[str] = []
    names: list[str] = []
    for file in files:
        lines = [line for path, line in numbers if path == file]
        functions = [span for span in function_lines(file) if any(span[0] <= line <= span[1] for line in lines)]
        shown = {
            name: [span for span in ranges if any(span[0] <= line <= span[1] for line in lines)]
            for name, ranges in code_panes.port_ranges(file).items()
        }
        excerpt = render.excerpt(
            (ROOT / file).read_text("utf-8"),
            {name: ranges for name, ranges in shown.items() if ranges} | {WHOLE: functions or [(n, n) for n in lines]},
            side="port",
            source="pagewalk",
            path=file,
            language="python",
            context=0,
            licence=code_panes.OUR_LICENCE,
            hide=regions.is_fence,
        )
        links = {n: tuple(link for link in found if link != WHOLE) for n, found in excerpt.links.items()}
        excerpt = replace(excerpt, links=links)
        pane = code_panes.pane_html(excerpt, code_panes.scope_of(scope, len(html)))
        html.append(_marked(pane, {line: numbers[file, line] for line in lines}))
        linked += [link for found in links.values() for link in found]
        names += code_panes.names_in(excerpt)
    return tuple(html), list(dict.fromkeys(linked)), names


def _marked(pane: str, numbers: Mapping[int, int]) -> str:
    """The pane, its lines that became instructions told by number and hue."""

    def mark(found: re.Match[str]) -> str:
        number = numbers.get(int(found.group(3)))
        if number is None:
            return found.group(0)
        return (
            f'<li class="pw-line{found.group(1) or ""} pw-h{number % HUES}" id="{found.group(2)}" '
            f'value="{found.group(3)}" data-l="{number}"'
        )

    return _LINE.sub(mark, pane)


@cache
def function_lines(file: str) -> tuple[tuple[int, int], ...]:
    """First and last line of every function at the top of a file, decorators included."""
    tree = ast.parse((ROOT / file).read_text("utf-8"))
    return tuple(
        (min([node.lineno, *(d.lineno for d in node.decorator_list)]), node.end_lineno or node.lineno)
        for node in tree.body
        if isinstance(node, ast.FunctionDef)
    )


def _listing(code: Code, side: str, lines: Sequence[int], places: Sequence[Place]) -> str:
    """One listing: a run of instructions of one line is one element, so that thousands of rows stay light."""
    rows = [(text, NOWHERE if line == NOWHERE else lines[line]) for text, line in code.rows[side]]
    runs = [(number, [text for text, _ in run]) for number, run in groupby(rows, key=lambda row: row[1])]
    first = next((at for at, (number, _) in enumerate(runs) if number != NOWHERE), 0)
    items = "".join(_run(number, texts, places, at == first) for at, (number, texts) in enumerate(runs))
    name, said = escape(code.name), NAMES[side]
    count = sum(not text.endswith(":") for text, _ in rows)
    target = f' <span class="pw-rev">{escape(code.target)}</span>' if side == "sass" else ""
    return (
        f'<figure class="pw-pane pw-listing pw-listing-{side}" data-listing="{side}"><figcaption>'
        f'<span class="pw-path">{name}</span> {count:,} rows{target}</figcaption>'
        f'<ol class="pw-rows" aria-label="{said} of {name}">{items}</ol></figure>'
    )


def _run(number: int, texts: Sequence[str], places: Sequence[Place], focusable: bool) -> str:
    inside = escape("\n".join(texts), quote=False)
    if number == NOWHERE:
        return f"<li>{inside}</li>"
    focus = ' tabindex="0"' if focusable else ""
    return f'<li class="pw-h{number % HUES}" data-l="{number}" value="{places[number][1]}"{focus}>{inside}</li>'
