"""Turns page values into Markdown lines: headings, prose and links stay Markdown, so that they reach the table of
contents, the search index and the link check; code panes and tables are finished HTML, handed to a stash.

Pure: nothing is read here.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from html import escape

from walkthroughs import naming

from .claims import note_lines, warning_lines, with_margin
from .inline import label, plain
from .model import (
    Badge,
    ConceptView,
    DriftNote,
    KernelRef,
    Link,
    Panes,
    Row,
    SameIdea,
    StepView,
    Summary,
    WalkthroughView,
)
from .player import player_html

Stash = Callable[[str], str]

_BADGE_ICON: Mapping[str, str] = {"gpu": "✔", "sim": "◐", "cpu": "▣", "stale": "⚠", "pending": "○"}
_VERDICT_ICON: Mapping[str, str] = {"passed": "✔", "failed": "✘", "stale": "⚠", "measured": "≈"}


def heading(level: int, title: str, anchor: str) -> str:
    """A heading with a fixed id."""
    return f"{'#' * level} {label(title)} {{#{anchor}}}"


def pair_html(panes: Panes, scope: str) -> str:
    """Both panes of one step or concept; `scope` makes their ids unique on the page."""
    titles = escape(json.dumps(dict(panes.titles), ensure_ascii=False), quote=True)
    sides = [
        # Lines of code make poor search results; their names are listed apart. (The search plugin leaves out
        # everything up to the next closing tag of the same name: hence a section, of which there is no other.)
        f'<section class="pw-side pw-side-{side}" data-search-exclude>{"".join(figures)}</section>'
        for side, figures in (("upstream", panes.upstream), ("port", panes.port))
        if figures
    ]
    alone = " pw-alone" if len(sides) == 1 else ""
    return (
        f'<div class="pw-pair{alone}" id="pair-{scope}" data-titles="{titles}">'
        f'<div class="pw-grid">{"".join(sides)}</div></div>'
    )


def table_html(rows: Sequence[Row], caption: str) -> str:
    """Observed against expected, one check a row; verdicts carry an icon and a word."""
    head = "".join(
        f'<th scope="col">{name}</th>' for name in ("Check", "Observed", "Expected", "Error", "Tolerance", "Verdict")
    )
    body = "".join(_row_html(row) for row in rows)
    return (
        '<div class="pw-table" role="region" tabindex="0" aria-label="Observed and expected values">'
        f'<table class="pw-evidence" data-search-exclude><caption>{escape(caption)}</caption>'
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def _row_html(row: Row) -> str:
    note = f'<span class="pw-check-note">{escape(row.note)}</span>' if row.note else ""
    cells = (
        ("Observed", "pw-value", row.observed),
        ("Expected", "pw-value", row.expected),
        ("Error", "pw-number", row.error),
        ("Tolerance", "pw-number", row.tolerance),
    )
    values = "".join(f'<td class="{style}" data-label="{name}">{escape(value)}</td>' for name, style, value in cells)
    verdict = (
        f'<td data-label="Verdict"><span class="pw-verdict pw-verdict-{row.verdict}">'
        f'<span aria-hidden="true">{_VERDICT_ICON[row.verdict]}</span> {row.verdict}</span></td>'
    )
    return f'<tr><th scope="row">{escape(row.name)}{note}</th>{values}{verdict}</tr>'


def record_html(facts: Iterable[tuple[str, str]]) -> str:
    """The record behind a table, folded away."""
    entries = "".join(f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in facts)
    return (
        '<details class="pw-fold pw-record" data-search-exclude><summary>The record of this run</summary>'
        f"<dl>{entries}</dl></details>"
    )


def names_html(names: Iterable[str]) -> str:
    """The identifiers of the lines shown, folded away: this is what the search finds them by."""
    entries = " ".join(f"<code>{escape(name)}</code>" for name in names)
    return f'<details class="pw-fold pw-names"><summary>Names in these lines</summary><p>{entries}</p></details>'


def badge_line(badges: Iterable[Badge], root: str) -> str:
    """The badges of a step, each a link to the page that says what it means."""
    return " ".join(
        f"[{_BADGE_ICON[badge.kind]} {plain(badge.text)}]({root}/how-we-know.md#badges)"
        f"{{ .pw-badge .pw-badge-{badge.kind} }}"
        for badge in badges
    )


def chip_line(titles: Mapping[str, str], root: str, scope: str) -> str:
    """The concepts of a pair of panes; hovering one lights its lines."""
    return " ".join(
        f"[{label(title)}]({root}/concepts/{concept}.md){{ .pw-chip data-concept={concept} data-pair=pair-{scope} }}"
        for concept, title in titles.items()
    )


def _permalink_line(panes: Panes) -> str:
    links = "; ".join(f"[{plain(link.label)}]({link.url})" for link in panes.permalinks)
    note = f" {plain(panes.note)}" if panes.note else ""
    return f"Upstream, at a fixed revision: {links}.{note}"


def pair_lines(
    panes: Panes,
    scope: str,
    root: str,
    stash: Stash,
    chips: Mapping[str, str],
    chips_name: str = "Concepts",
    after: Sequence[str] = (),
) -> list[str]:
    """A pair of panes with its concepts and permanent links under it; `after` stands right behind the panes."""
    lines = [stash(pair_html(panes, scope)), "", *after]
    if chips:
        lines += [f"{chips_name}: {chip_line(chips, root, scope)}", "{ .pw-chips }", ""]
    if panes.permalinks:
        lines += [_permalink_line(panes), "{ .pw-upstream-links }", ""]
    return lines


def drift_lines(found: DriftNote | None, root: str) -> list[str]:
    """The banner as Markdown, with links that the build checks."""
    if found is None:
        return []
    text = f"{found.sign} {plain(found.text)}"
    if found.heirs:
        heirs = ", ".join(
            f"[{label(title)}]({root}/concepts/{name}.md) ([{plain(link.label)}]({link.url}))"
            for name, title, link in found.heirs
        )
        text += f" At {plain(found.at)} its work is done by: {heirs}."
    elif found.kind in ("gone", "part"):
        text += " Nothing that we follow took its place."
    return ["", f"{text} [Its history]({root}/history.md).", f"{{ .pw-drift .pw-drift-{found.kind} }}", ""]


def step_lines(step: StepView, root: str, stash: Stash) -> list[str]:
    """One step: heading, badges, prose, panes, evidence, concepts, permanent links."""
    reads = {name: step.panes.titles[name] for name in step.reads if name in step.panes.titles}
    player = [stash(player_html(step.player)), ""] if step.player else []
    return [
        "",
        heading(2, step.title, f"step-{step.slug}"),
        "",
        badge_line(step.badges, root),
        *drift_lines(step.drift, root),
        "",
        *with_margin([*naming.linked(step.prose.strip().splitlines(), root)], note_lines(step.claims, root)),
        "",
        *pair_lines(step.panes, step.slug, root, stash, reads, after=player),
        *([f"Asked in: {drill_links(step.drills, root)}.", "{ .pw-upstream-links }", ""] if step.drills else []),
        stash(table_html(step.rows, step.rows_from)),
        "",
        *([stash(names_html(step.panes.names)), ""] if step.panes.names else []),
        *([stash(record_html(step.record)), ""] if step.record else []),
    ]


# Once a page, not once a step: a page of 38 steps is heavy enough. Where steps can be run, live.js takes it away.
LIVE_NOTE = (
    '<details class="pw-fold pw-live-note" data-search-exclude><summary>The values here are recorded; run the steps '
    "yourself</summary><p>Every table shows what an earlier run observed. On your own machine each step has a Run "
    "button: it runs here and now, on your GPU or on the SIMT machine, on this case or on one that you change. Serve "
    "the site from a checkout with <code>make serve</code>, or <code>pagewalk site serve</code>, and open the address "
    "that it prints. In the terminal: <code>pagewalk run</code> and the step's name.</p></details>"
)


def walkthrough_lines(view: WalkthroughView, root: str, stash: Stash) -> list[str]:
    """A whole walkthrough page."""
    lines = [
        heading(1, view.title, view.id),
        "",
        *naming.linked(view.intro.strip().splitlines(), root),
        "",
        "Hover over a line, or tap it: the lines that belong to it light up on the other side. "
        "With the keyboard: Tab to a line, Enter keeps it lit, Escape lets go.",
        "{ .pw-hint }",
        "",
        stash(LIVE_NOTE),
        "",
    ]
    for step in view.steps:
        lines += step_lines(step, root, stash)
    return lines


def concept_lines(view: ConceptView, root: str, stash: Stash) -> list[str]:
    """A whole concept page."""
    said = view.summary.strip().splitlines()
    if view.lane:
        at = f"{root}/history.md#{view.lane.anchor}"
        said += ["", f"{view.lane.sign} {plain(view.lane.text)} [Its lane in the history]({at}).", "{ .pw-hint }"]
    lines = [heading(1, view.title, view.id), "", *with_margin(said, warning_lines(view.claims, root)), ""]
    if view.panes.upstream or view.panes.port:
        inner = {name: title for name, title in view.panes.titles.items() if name != view.id}
        lines += [heading(2, "In the code", "code"), ""]
        lines += pair_lines(view.panes, view.id, root, stash, inner, "Inside it")
        lines += [stash(names_html(view.panes.names)), ""] if view.panes.names else []
    if view.same_idea:
        lines += same_idea_lines(view.same_idea, view.id, root)
    if view.claims:
        lines += [heading(2, "What is said of it", "claims"), "", *note_lines(view.claims, root)]
    if view.steps:
        lines += [heading(2, "Steps that read it", "steps"), ""]
        lines += [
            f"* [{label(step.title)}]({root}/walkthroughs/{step.walkthrough}.md#step-{step.slug})"
            for step in view.steps
        ]
        lines.append("")
    if view.drills:
        lines += [heading(2, "Can you answer for it?", "drills"), "", f"Drills: {drill_links(view.drills, root)}.", ""]
    if view.see_also:
        lines += [heading(2, "See also", "see-also"), ""]
        lines += [
            f"* [{label(other.title)}]({root}/concepts/{other.id}.md): {label(other.text)}" for other in view.see_also
        ]
        lines.append("")
    return lines


def drill_links(drills: Iterable[Link], root: str) -> str:
    """Drills as links to their questions, on one line."""
    return ", ".join(f"[{label(drill.label)}]({root}/{drill.url})" for drill in drills)


def same_idea_lines(idea: SameIdea, page: str, root: str) -> list[str]:
    """Every kernel that has the idea of a concept's page, and how they differ."""
    said = [f"{label(idea.title)}: {label(idea.differs)}", ""] if idea.differs else []
    beside = f"[All of them side by side]({root}/compare/{idea.page}.md)." if idea.page else ""
    return [
        heading(2, "The same idea in other kernels", "same-idea"),
        "",
        *said,
        *([beside, ""] if beside else []),
        *(_kernel_line(kernel, page, root) for kernel in idea.kernels),
        "",
        f"In the terminal: `pagewalk read {page}`.",
        "",
    ]


def _kernel_line(kernel: KernelRef, page: str, root: str) -> str:
    """One kernel as a bullet: its concepts, its upstream lines, and where our port of them is."""
    names = "; ".join(
        "this page" if name == page else f"[{label(title)}]({root}/concepts/{name}.md)"
        for name, title in kernel.concepts.items()
    )
    parts = [f"* **{label(kernel.title)}** ({plain(kernel.origin)}): {names}."]
    if kernel.upstream:
        parts.append(f"Upstream: {'; '.join(f'[{plain(link.label)}]({link.url})' for link in kernel.upstream)}.")
    parts.append(f"Runs here: {'; '.join(map(label, kernel.port))}." if kernel.port else "No port.")
    return " ".join(parts)


def list_lines(entries: Iterable[Summary], folder: str, unit: str = "") -> list[str]:
    """One bullet an entry, linked to its page in `folder`, under a heading for each group."""
    lines: list[str] = []
    group = ""
    for entry in entries:
        if entry.group != group:
            group = entry.group
            lines += ["", f"## {label(group)}", ""]
        count = f" ({entry.count} {unit})" if unit and entry.count else ""
        lines.append(f"* [{label(entry.title)}]({folder}/{entry.id}.md){count}: {label(entry.text)}")
    return [*lines, ""]
