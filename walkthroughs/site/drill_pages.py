"""The pages of the drills: the place where a sitting is held, and for each kind every question with its answer.

A kind's page needs no script: the answers are folded away. With scripts each question can be asked there and then, by
the element that `docs/assets/js/drill-element.js` makes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape

from .drill_view import DrillKind, DrillPoint, DrillView
from .inline import label, plain
from .model import Link, Summary
from .render import Stash, heading

LEVELS: Mapping[int, str] = {1: "to know", 2: "to explain", 3: "to defend"}
_WAY = (
    "In the terminal: `pagewalk drill`. It keeps answers in a file of its own; export and import carry them over. "
    "`pagewalk drill interview` holds a mock interview, with a score and a report to keep."
)


def element_html(kinds: Mapping[str, Summary]) -> str:
    """The element of the index with what stands there without scripts."""
    counts = ", ".join(f"{kind.count} {kind.title.lower()}" for kind in _asked(kinds))
    return (
        # A block for Markdown, which would put an element that it does not know into a paragraph.
        '<div class="pw-drill-place"><pagewalk-drill data-drill><div class="pw-drill-static" data-search-exclude>'
        f"<p>{escape(counts[:1].upper() + counts[1:])} questions. With scripts you are asked here, and this browser "
        "keeps your answers. Without them read the pages below, where every answer is folded away, or run "
        "<code>pagewalk drill</code>.</p></div></pagewalk-drill></div>"
    )


def _asked(kinds: Mapping[str, Summary]) -> list[Summary]:
    """The kinds that this page asks: the others have pages of their own, in folders."""
    return [kind for kind in kinds.values() if "/" not in kind.id]


def index_lines(kinds: Mapping[str, Summary], folder: str, stash: Stash) -> list[str]:
    """The index: the place of a sitting, and under it a line for each kind."""
    lines = ["", stash(element_html(kinds)), "", "## The questions, kind by kind {#kinds}", ""]
    lines += [
        f"* [{label(kind.title)}]({folder}/{kind.id}.md) ({kind.count}): {label(kind.text)}" for kind in kinds.values()
    ]
    return [*lines, "", _WAY, "{ .pw-hint }", ""]


def kind_lines(kind: DrillKind, root: str, stash: Stash) -> list[str]:
    """A kind's page: every question of it, group by group, its answer folded away."""
    lines = [heading(1, kind.title, kind.id), "", kind.intro, ""]
    lines += ["[A sitting over all kinds](index.md) asks what is due first.", "{ .pw-hint }", ""]
    titles = {one.id: one.title for one in kind.questions}
    group = ""
    for one in kind.questions:
        if one.group != group:
            group = one.group
            lines += ["", f"## {label(group)}", ""]
        lines += question_lines(one, titles, root, stash)
    return lines


def question_lines(one: DrillView, titles: Mapping[str, str], root: str, stash: Stash) -> list[str]:
    """A question under its own address, and its answer in a fold."""
    facts = [f"Level {one.level}, {LEVELS[one.level]}"]
    if one.after:
        facts.append(f"follows [{label(titles.get(one.after, one.after))}](#{one.after})")
    facts.append(f"`pagewalk drill show {one.id}`")
    return [
        *title_lines(one),
        " · ".join(facts),
        "{ .pw-hint .pw-drill-facts }",
        "",
        one.text,
        "",
        '<details class="pw-fold pw-drill-answer" markdown="1"><summary>Answer</summary>',
        "",
        f"**Answer.** {one.answer}",
        "",
        *_points(one.points, root),
        one.why,
        "",
        *([f"See {_links(one.links, root)}", "{ .pw-hint }", ""] if one.links else []),
        "</details>",
        "",
    ]


def title_lines(one: DrillView) -> list[str]:
    """The question's heading as HTML: found by the search and by links, left out of the table of contents.

    A hundred and more entries would bury the menu that the table of contents is a part of.
    """
    name = escape(one.id)
    return [
        "",
        f'<h3 class="pw-drill-title" id="{name}" data-drill="{name}">{escape(one.title)}'
        f'<a class="headerlink" href="#{name}" title="Permanent link">&para;</a></h3>',
        "",
    ]


def _points(points: Sequence[DrillPoint], root: str) -> Iterable[str]:
    if not points:
        return ()
    return (*(f"* {point.text}{_aside(point.links, root)}" for point in points), "")


def _links(links: Iterable[Link], root: str) -> str:
    return ", ".join(f"[{label(link.label)}]({root}/{link.url})" for link in links)


def _aside(links: Iterable[Link], root: str) -> str:
    shown = _links(links, root)
    return f" ({shown})" if shown else ""


def stubs(kinds: Mapping[str, Summary]) -> dict[str, tuple[str, str]]:
    """Title and body of every page of the drills, by its path under `docs`."""
    index = (
        "# Drills\n\nBe asked as in an interview: say it, work it out, predict it, find it in the source. Numbers and "
        "lines are graded, the rest you judge yourself. What you know comes back later, what you do not know soon.\n\n"
        "::: drills folder=."
    )
    pages = {"drills/index.md": ("Drills", index)}
    for kind in _asked(kinds):
        pages[f"drills/{kind.id}.md"] = (f"Drills: {plain(kind.title)}", f"::: drill {kind.id} root=..")
    return pages
