"""A compare page as Markdown lines: one idea, a column for each kernel, its upstream lines above those of its port.

Without the script and without the style sheet the kernels follow each other, each with its own heading.
Pure: nothing is read here.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from html import escape

from .inline import label, plain
from .model import CompareView, KernelColumn
from .render import Stash, heading, names_html


def lines(view: CompareView, root: str, stash: Stash) -> list[str]:
    """A whole compare page."""
    return [
        heading(1, view.title, view.id),
        "",
        _way(view),
        "{ .pw-hint .pw-way }",
        "",
        f"{label(view.says)} {label(view.differs)}".strip(),
        "",
        *_contents(view),
        "Hover over a line, or tap it: what does the same in the other kernels lights up. "
        "With the keyboard: Tab to a line, Enter keeps it lit, Escape lets go.",
        "{ .pw-hint }",
        "",
        *_grid(view, root, stash),
        *_chips(view, root),
        *([plain(view.note), "{ .pw-note }", ""] if view.note else []),
        *_concepts(view, root),
        *([stash(names_html(view.names)), ""] if view.names else []),
        *_steps(view, root),
        f"In the terminal: `pagewalk read {view.id}`.",
        "",
    ]


def _way(view: CompareView) -> str:
    """The way to the index and to the ideas before and after this one: the page has no menu beside it."""
    parts = ["[All ideas](index.md)"]
    parts += [f"← [{label(view.before.title)}]({view.before.id}.md)"] if view.before else []
    parts += [f"[{label(view.after.title)}]({view.after.id}.md) →"] if view.after else []
    return " · ".join(parts)


def _contents(view: CompareView) -> list[str]:
    """The kernels as a list, for narrow screens, where they stand below each other."""
    return [
        '<nav class="pw-kernel-list" aria-label="Kernels on this page" markdown="1">',
        "",
        f"{len(view.columns)} kernels:",
        "",
        *(f"* [{label(column.title)}](#kernel-{column.id})" for column in view.columns),
        "",
        "</nav>",
        "",
    ]


def columns_of(count: int) -> int:
    """How many kernels stand beside each other where there is room: four at most, and five or six as rows of three."""
    return count if count <= 4 else 3


def _grid(view: CompareView, root: str, stash: Stash) -> list[str]:
    titles = escape(json.dumps(dict(view.titles), ensure_ascii=False), quote=True)
    # Every column is as wide as the others; the script finds its lines by pw-pair and pw-side.
    out = [
        f'<div class="pw-pair pw-compare" id="pair-{view.id}" data-titles="{titles}" markdown="1">',
        f'<div class="pw-kernels pw-kernels-{columns_of(len(view.columns))}" markdown="1">',
        "",
    ]
    for column in view.columns:
        out += _column(column, root, stash)
    return [*out, "</div>", "</div>", ""]


def _column(column: KernelColumn, root: str, stash: Stash) -> list[str]:
    own = "" if column.origin != "our own" else " pw-kernel-own"
    concepts = "; ".join(f"[{label(title)}]({root}/concepts/{name}.md)" for name, title in column.concepts.items())
    variants = f"In another form: {'; '.join(map(label, column.variants))}." if column.variants else ""
    return [
        f'<article class="pw-kernel{own}" markdown="1">',
        "",
        '<header class="pw-kernel-head" markdown="1">',
        "",
        # Left out of the search: a kernel's name would find every page that has it.
        heading(2, column.title, f"kernel-{column.id}").replace("}", " data-search-exclude=1}"),
        "",
        f"{plain(column.origin)} · {concepts}",
        "",
        "</header>",
        "",
        stash(_cell("upstream", column.upstream, column.without_upstream, column.title)),
        "",
        stash(_cell("port", column.port, column.without_port, column.title)),
        "",
        '<footer class="pw-kernel-foot" markdown="1">',
        "",
        variants,
        "",
        "</footer>",
        "",
        "</article>",
        "",
    ]


def _cell(side: str, figures: Sequence[str], without: str, kernel: str) -> str:
    """One kernel's panes of one side, or what is said in their place."""
    inside = "".join(figures) or f'<p class="pw-none">{escape(without)}</p>'
    words = escape(f"{kernel}: {'upstream' if side == 'upstream' else 'our lines'}", quote=True)
    # The search plugin leaves out everything up to the next closing tag of the same name: see render.pair_html.
    return f'<section class="pw-side pw-cell-{side}" aria-label="{words}" data-search-exclude>{inside}</section>'


def _chips(view: CompareView, root: str) -> list[str]:
    inner = [name for name in view.titles if name != view.id]
    if not inner:
        return []
    chips = " ".join(
        f"[{label(view.titles[name])}]({root}/{view.pages[name]})"
        f"{{ .pw-chip data-concept={name} data-pair=pair-{view.id} }}"
        for name in inner
    )
    return [f"Inside it: {chips}", "{ .pw-chips }", ""]


def _concepts(view: CompareView, root: str) -> list[str]:
    return [
        heading(2, "Its concepts", "concepts"),
        "",
        *(f"* [{label(entry.title)}]({root}/concepts/{entry.id}.md): {label(entry.text)}" for entry in view.concepts),
        "",
    ]


def _steps(view: CompareView, root: str) -> list[str]:
    if not view.steps:
        return []
    out = [heading(2, "Steps that read it", "steps"), ""]
    for walkthrough, steps in view.steps.items():
        links = "; ".join(
            f"[{label(step.title)}]({root}/walkthroughs/{step.walkthrough}.md#step-{step.slug})" for step in steps
        )
        out.append(f"* {label(walkthrough)}: {links}")
    return [*out, ""]
