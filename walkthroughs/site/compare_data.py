"""What a compare page shows, from the table of ideas: each kernel's lines upstream and in our port, in its order.

Concepts are told apart by kernel, so lines of different kernels share none. Here a line is tied to the idea that its
concept belongs to instead: that is how it lights up in every column.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from html import escape

from annotate import concepts, render, sources, spans
from annotate.ideas import Idea, idea_of, tables
from walkthroughs import idea_code, ideas

from . import code
from .errors import UnknownPageItem
from .model import CompareView, KernelColumn, StepRef, Summary

LEAST_KERNELS = 2
CONTEXT = 2


@cache
def compared() -> Mapping[str, tuple[ideas.Appearance, ...]]:
    """Every idea with a page, by id, and the kernels on it: at least two that have lines, upstream or in a port."""
    found = {idea.id: shown(idea) for idea in tables().ideas.values()}
    return {name: kernels for name, kernels in found.items() if len(kernels) >= LEAST_KERNELS}


def shown(idea: Idea) -> tuple[ideas.Appearance, ...]:
    """The kernels that have an idea not only in a variant of their port, in the order of the table."""
    return tuple(entry for entry in ideas.appearances(idea) if entry.upstream or entry.port)


def summaries() -> dict[str, Summary]:
    """Every idea with a page, by id: what its kernels are, and how they differ."""
    return {name: _summary(tables().ideas[name]) for name in compared()}


def _summary(idea: Idea) -> Summary:
    return Summary(idea.id, idea.title, idea.differs, len(compared()[idea.id]), idea.part)


def view(
    name: str, known: Mapping[str, Summary], readers: Mapping[str, Sequence[StepRef]], walks: Mapping[str, str]
) -> CompareView:
    """The page of an idea. `known` are all concepts, `readers` the steps by concept, `walks` titles of walkthroughs.

    Raises `UnknownPageItem` for an idea without a page.
    """
    if name not in compared():
        raise UnknownPageItem("idea to compare", name, compared())
    idea, kernels = tables().ideas[name], compared()[name]
    excerpts = [(entry, _upstream(entry), tuple(_port(entry))) for entry in kernels]
    every = [excerpt for _, left, right in excerpts for excerpt in (*left, *right)]
    lit = dict.fromkeys([name, *(link for shown in every for links in shown.links.values() for link in links)])
    order = list(compared())
    at = order.index(name)
    return CompareView(
        id=name,
        title=idea.title,
        says=idea.says,
        differs=idea.differs,
        columns=tuple(_column(*found) for found in excerpts),
        titles={link: idea_of(link).title for link in lit},
        pages={link: f"compare/{link}.md" if link in compared() else f"concepts/{link}.md" for link in lit},
        concepts=tuple(known[member] for member in idea.concepts),
        steps=_steps(idea, readers, walks),
        names=tuple(dict.fromkeys(text for excerpt in every for text in code.names_in(excerpt))),
        note=code.OWN_COPY if any(_marked(entry) for entry in kernels) else "",
        before=_summary(tables().ideas[order[at - 1]]) if at else None,
        after=_summary(tables().ideas[order[at + 1]]) if at + 1 < len(order) else None,
    )


def _steps(
    idea: Idea, readers: Mapping[str, Sequence[StepRef]], walks: Mapping[str, str]
) -> dict[str, tuple[StepRef, ...]]:
    found = dict.fromkeys(step for member in idea.concepts for step in readers.get(member, ()))
    by_walk = {walks[name]: tuple(step for step in found if step.walkthrough == name) for name in walks}
    return {title: steps for title, steps in by_walk.items() if steps}


def _idea(concept: str) -> str:
    return idea_of(concept).id


def _upstream(entry: ideas.Appearance) -> tuple[render.Excerpt, ...]:
    tree = code.tree_of(entry.kernel.source) if entry.kernel.source else None
    if tree is None or not entry.upstream:
        return ()
    return tuple(idea_code.upstream_excerpts(tree, entry.upstream, context=CONTEXT, rename=_idea))


def _port(entry: ideas.Appearance) -> tuple[render.Excerpt, ...]:
    return tuple(idea_code.port_excerpts(entry.port, rename=_idea))


def _marked(entry: ideas.Appearance) -> bool:
    tree = code.tree_of(entry.kernel.source) if entry.kernel.source and entry.upstream else None
    return tree is not None and tree.marked_copy


def _column(
    entry: ideas.Appearance, upstream: Sequence[render.Excerpt], port: Sequence[render.Excerpt]
) -> KernelColumn:
    kernel, table = entry.kernel, concepts.concepts()
    pin = sources.pins()[kernel.source] if kernel.source else None
    figures = [
        code.pane_html(excerpt, code.scope_of(kernel.id, index), _head(entry, excerpt.path, entry.upstream, pin))
        for index, excerpt in enumerate(upstream)
    ]
    if pin and not figures:
        figures = [_missing(entry, path, pin) for path in dict.fromkeys(span.path for span in entry.upstream)]
    nothing = "It has no lines of its own for this upstream." if pin else "It is our own: there is nothing upstream."
    return KernelColumn(
        id=kernel.id,
        title=kernel.title,
        origin=f"{pin.name} {pin.revision}" if pin else "our own",
        concepts={name: table[name].title for name in entry.concepts},
        upstream=tuple(figures),
        port=tuple(
            code.pane_html(excerpt, code.scope_of(kernel.id, index), _head(entry, excerpt.path, entry.port, None))
            for index, excerpt in enumerate(port)
        ),
        without_upstream="" if figures else nothing,
        without_port="" if port else "No file of ours ports this.",
        variants=tuple(
            f"`{path}`, line{'s' * (not said.isdecimal())} {said}" for path, said in ideas.named(entry.variants).items()
        ),
    )


def _missing(entry: ideas.Appearance, path: str, pin: sources.Pin) -> str:
    asked = [span for span in entry.upstream if span.path == path]
    link = pin.link(path, min(span.first for span in asked), max(span.last for span in asked))
    return render.missing_html(
        source=pin.id, path=path, permalink=link, caption=_head(entry, path, entry.upstream, pin)
    )


def _head(
    entry: ideas.Appearance, path: str, found: Sequence[spans.Span | ideas.PortLines], pin: sources.Pin | None
) -> str:
    """What stands over a pane: the kernel, the file, its lines as permanent links, the revision and the licence.

    The file's folders are in its title only, so that it fits a narrow column.
    """
    runs = [run for run in ideas.runs(found) if run.path == path]
    ranges = [f"{run.first}" if run.first == run.last else f"{run.first}–{run.last}" for run in runs]
    linked = [
        f'<a href="{escape(pin.link(path, run.first, run.last))}">{said}</a>' if pin else said
        for run, said in zip(runs, ranges, strict=True)
    ]
    word = "line" if len(runs) == 1 and runs[0].first == runs[0].last else "lines"
    revision = f'<span class="pw-rev">{escape(f"{pin.name} {pin.revision}")}</span> ' if pin else ""
    return (
        f'<span class="pw-of">{escape(entry.kernel.title)}</span> '
        f'<span class="pw-where"><span class="pw-path" title="{escape(path)}">{escape(path.rpartition("/")[2])}</span> '
        f"{word} {', '.join(linked)}</span> {revision}"
        f'<span class="pw-licence">{escape(pin.licence if pin else code.OUR_LICENCE)}</span>'
    )
