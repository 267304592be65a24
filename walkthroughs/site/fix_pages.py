"""The fix-the-kernel pages: a port with something wrong in it, beside upstream's lines, with hints and the solution.

Everything that can be said is on the page. Where the live server allows it, `drill-code.js` puts an editor in the place
of the port's pane; the page carries the whole file for that, as it is before anybody mended it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

from annotate import concepts, regions, render, spans
from annotate.errors import UnknownName
from walkthroughs import naming

from . import code
from .errors import UnknownPageItem
from .inline import label, plain
from .model import Panes
from .render import Stash, heading, pair_lines

if TYPE_CHECKING:
    from walkthroughs.drills.fix import Task

FOLDER = "drills/fix"
ROOT = "../.."
SCOPE = "fix"
# Lines around the region, so that a reader sees where they are: more where the region is small.
SMALL, FEW, MANY = 12, 5, 8
LEVELS = {1: "to know", 2: "to explain", 3: "to defend"}
FORMS = {"blank": "a blank to fill", "bug": "a fault to find"}
STATIC = (
    "This copy of the site runs no code. To mend the kernel on this page, serve the site from a checkout with "
    "<code>pagewalk site serve --allow-code</code> and open the address that it prints: an editor stands here then. "
    "What you type there runs on your own machine, with your rights; so it is off unless you ask for it."
)


@dataclass(frozen=True, slots=True)
class FixView:
    """One kernel to be mended, as its page shows it.

    `start` is the whole file, `first` and `last` the lines in question; `text`, `hints`, `why` are Markdown; `diff` is
    what the solution changes; `alone` says why there is nothing upstream, or is empty.
    """

    name: str
    title: str
    level: int
    form: str
    file: str
    start: str
    first: int
    last: int
    text: str
    hints: tuple[str, ...]
    why: str
    diff: str
    panes: Panes
    reads: Mapping[str, str]
    steps: tuple[str, ...]
    alone: str = ""

    @property
    def id(self) -> str:
        """The drill's id."""
        return f"fix/{self.name}"


def stubs() -> dict[str, str]:
    """The committed stubs of these pages by their path under `docs`: a page a task, and the index."""
    note = "# Written by walkthroughs/site/pages.py; edit walkthroughs/drills/fix.toml instead."
    intro = (
        "# Fix the kernel\n\nEach page has a port of ours with something wrong in it: a fault, or a blank. "
        "Put it right. "
        "What judges you is the kernel itself: it runs the steps that read these lines, then fresh cases that you have "
        "not seen, and tells you the first value that is wrong.\n\n"
        "In the terminal: `pagewalk drill fix NAME`. On a page: serve the site with `pagewalk site serve "
        "--allow-code`.\n\n::: fixes\n"
    )
    pages = {f"{FOLDER}/index.md": f"---\n{note}\ntitle: Fix the kernel\n---\n{intro}"}
    for task in _tasks().values():
        title = json.dumps(f"Fix: {task.item.title.replace('`', '')}", ensure_ascii=False)
        head = f"---\n{note}\ntitle: {title}\nhide: [navigation, toc]\n---\n"
        pages[f"{FOLDER}/{task.name}.md"] = f"{head}::: fix {task.name} root={ROOT}\n"
    return pages


def _tasks() -> Mapping[str, Task]:
    from walkthroughs.drills import fix

    return fix.tasks()


def page_lines(name: str, root: str, stash: Stash) -> list[str]:
    """The page of one task; raises UnknownPageItem for an unknown one."""
    tasks = {task.name: task for task in _tasks().values()}
    if name not in tasks:
        raise UnknownPageItem("kernel to fix", name, tasks)
    names = list(tasks)
    at = names.index(name)
    before = names[at - 1] if at else ""
    after = names[at + 1] if at + 1 < len(names) else ""
    return lines(view(tasks[name]), root, stash, before, after)


def view(task: Task) -> FixView:
    """A task as its page shows it."""
    from walkthroughs.drills import fix

    start = fix.unsolved(task)
    first, last = fix.excerpt(task)
    left = _upstream(task)
    right = code.Figures((_port(task, start, first, last),), (task.shows,))
    panes = code.panes([left] if left else [], right)
    reads = {name: concepts.concept(name).title for name in dict.fromkeys((task.shows, *task.item.concepts))}
    return FixView(
        task.name, task.item.title, task.item.level, task.form, task.file, start, first, last, task.text, task.hints,
        task.why, fix.diff(task), panes, reads, task.steps,
        "" if left else "No line of a source that is pinned here stands for these.",
    )  # fmt: skip


def _upstream(task: Task) -> code.Figures | None:
    """The panes of the same concept in the task's source; None where it has none."""
    try:
        found = spans.spans(task.source) if task.source else {}
    except UnknownName:
        return None
    shown = next((name for name in (task.shows, task.region) if found.get(name)), None)
    return code.source_figures(task.source, [shown], SCOPE) if shown else None


def _port(task: Task, start: str, first: int, last: int) -> str:
    """The pane of the lines in question, out of the text with the fault in it, with some lines around."""
    inside = {
        name: [(place.first, place.last) for place in places if first <= place.first and place.last <= last]
        for name, places in regions.regions(start).items()
    }
    shown = {name: places for name, places in inside.items() if places} | {task.shows: [(first, last)]}
    excerpt = render.excerpt(
        start,
        shown,
        side="port",
        source="pagewalk",
        path=task.file,
        language="python",
        context=MANY if last - first < SMALL else FEW,
        licence=code.OUR_LICENCE,
        note="with the blank in it" if task.form == "blank" else "with the fault in it",
        hide=regions.is_fence,
    )
    return code.pane_html(excerpt, SCOPE)


def lines(view: FixView, root: str, stash: Stash, before: str = "", after: str = "") -> list[str]:
    """The page of a view; `before` and `after` are its neighbours' names."""
    return [
        heading(1, view.title, view.name),
        "",
        _way(before, after),
        "{ .pw-hint .pw-way }",
        "",
        f"Level {view.level} of 3, {LEVELS[view.level]}: {FORMS[view.form]}.",
        "{ .pw-hint }",
        "",
        *naming.linked(view.text.strip().splitlines(), root),
        "",
        *([view.alone, "{ .pw-hint }", ""] if view.alone else []),
        *pair_lines(view.panes, SCOPE, root, stash, view.reads, after=[stash(mount_html(view)), ""]),
        heading(2, "Hints", "hints"),
        "",
        *_hints(view, root),
        *_solution(view, root),
        heading(2, "In the terminal", "terminal"),
        "",
        *_terminal(view),
        *_steps(view.steps, root),
    ]


def _way(before: str, after: str) -> str:
    parts = ["[All kernels to fix](index.md)"]
    parts += [f"← [{plain(before)}]({before}.md)"] if before else []
    parts += [f"[{plain(after)}]({after}.md) →"] if after else []
    return " · ".join(parts)


def mount_html(view: FixView) -> str:
    """Where the editor goes, with the file that it starts from. A template is neither shown nor run."""
    return (
        f'<section class="pw-fix" data-fix="{escape(view.id)}" data-file="{escape(view.file)}" '
        f'data-first="{view.first}" data-last="{view.last}" data-pair="pair-{SCOPE}" aria-label="Mend it here" '
        f'data-search-exclude><p class="pw-fix-note">{STATIC}</p>'
        f'<template class="pw-fix-start">{escape(view.start, quote=False)}</template></section>'
    )


def _folded(title: str, inner: Sequence[str], css: str = "") -> list[str]:
    return [f'<details class="pw-fold {css}" markdown="1"><summary>{escape(title)}</summary>', "", *inner, "",
            "</details>", ""]  # fmt: skip


def _hints(view: FixView, root: str) -> list[str]:
    """One fold a hint, from vague to the line: a reader opens as many as are wanted."""
    out: list[str] = []
    for number, hint in enumerate(view.hints, start=1):
        last = " (close to the solution)" if number == len(view.hints) > 1 else ""
        inner = naming.linked(hint.strip().splitlines(), root)
        out += _folded(f"Hint {number} of {len(view.hints)}{last}", [*inner], "pw-fix-hint")
    return out


def _solution(view: FixView, root: str) -> list[str]:
    diff = [line for line in view.diff.splitlines() if not line.startswith(("---", "+++"))]
    inner = [*naming.linked(view.why.strip().splitlines(), root), "", "```diff", *diff, "```"]
    return _folded("The solution", inner, "pw-fix-solution")


def _terminal(view: FixView) -> list[str]:
    return [
        "```sh",
        f"pagewalk drill fix {view.id}     # writes the file into your work folder, and says where",
        f"pagewalk drill check {view.id}   # runs it: on the SIMT machine, and on a GPU where there is one",
        "```",
        "",
    ]


def _steps(names: Sequence[str], root: str) -> list[str]:
    from walkthroughs import step

    found = [step.get(name) for name in names]
    links = [f"* [{label(s.title)}]({root}/walkthroughs/{s.walkthrough}.md#step-{s.slug})" for s in found]
    return [heading(2, "The steps that judge", "steps"), "", *links, ""] if links else []


def index_lines() -> list[str]:
    """A table for each file: the tasks with their level."""
    out: list[str] = []
    file = ""
    for task in sorted(_tasks().values(), key=lambda task: task.file):
        if task.file != file:
            file = task.file
            out += ["", f"## `{file}`", "", "| Kernel to fix | Level | What |", "| --- | --- | --- |"]
        what = f"{FORMS[task.form]}, in [{label(concepts.concept(task.shows).title)}]({ROOT}/concepts/{task.shows}.md)"
        out.append(f"| [{label(task.item.title)}]({task.name}.md) | {task.item.level} | {what} |")
    return [*out, ""]
