"""What `pagewalk read` shows of an idea that several kernels have: a column for each, upstream above its port.

Upstream text comes from the fetched copies. A kernel whose source is not here shows its port, says where the upstream
lines are and how to fetch them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from walkthroughs.commands.output import console, notice

if TYPE_CHECKING:
    from annotate.columns import Column
    from annotate.ideas import Idea
    from annotate.spans import Span
    from walkthroughs.ideas import Appearance, PortLines

LEAST_KERNELS = 2


def kernels_of(name: str) -> tuple[Idea, tuple[Appearance, ...]]:
    """Return a concept's idea, and the kernels to show side by side: none where fewer than two have a port."""
    from annotate.ideas import idea_of
    from walkthroughs.ideas import side_by_side

    idea = idea_of(name)
    shown = side_by_side(idea, name)
    return idea, shown if sum(bool(entry.port) for entry in shown) >= LEAST_KERNELS else ()


def show_kernels(idea: Idea, shown: Sequence[Appearance]) -> bool:
    """Print how the kernels differ, their columns and the links; return whether every source that must be here is."""
    from rich.text import Text

    from annotate.columns import to_columns
    from annotate.sources import pins

    screen = console()
    if idea.differs:
        screen.print(Text(f"Across kernels: {idea.differs}", style="italic"))
        screen.print()
    click.echo(to_columns([column(entry) for entry in shown], screen.width, screen.color_system is not None), nl=False)
    links = {link: None for entry in shown for link in links_of(entry)}
    if links:
        screen.print()
    for link in links:
        screen.print(Text(link, style="dim", overflow="fold"))
    missing = missing_sources(shown)
    for source in missing:
        optional = " (optional: the port runs without it)" if pins()[source].optional else ""
        notice(f"{source} is not here. Fetch it: pagewalk fetch {source}{optional}")
    tell_the_rest(idea, shown)
    return all(pins()[source].optional for source in missing)


def tell_the_rest(idea: Idea, shown: Sequence[Appearance]) -> None:
    """Name on stderr where else the idea is: variants of the ports, and kernels that no file of ours ports."""
    from walkthroughs.ideas import appearances

    for entry in shown:
        if entry.variants:
            notice(f"In another form: {entry.kernel.title}, {', '.join(where(entry.variants))}")
    for entry in appearances(idea):
        if entry not in shown:
            names = ", ".join(entry.concepts)
            notice(f"Without a port: {entry.kernel.title} in {entry.kernel.source} (pagewalk read {names})")


def missing_sources(shown: Iterable[Appearance]) -> list[str]:
    """Return the sources, of those that the kernels have lines in, which are not here."""
    wanted = {span.source: None for entry in shown for span in entry.upstream}
    return [source for source in wanted if not is_here(source)]


def is_here(source: str) -> bool:
    """Whether a source was fetched."""
    from annotate.errors import SourceUnavailable
    from annotate.sources import open_tree

    try:
        open_tree(source)
    except SourceUnavailable:
        return False
    return True


def column(entry: Appearance) -> Column:
    """Return one kernel's column: its upstream lines where the source is here, and its port's."""
    from annotate.columns import Column
    from annotate.sources import open_tree, pins
    from walkthroughs.idea_code import port_excerpts, upstream_excerpts

    source = entry.kernel.source
    port = tuple(port_excerpts(entry.port))
    if source is None:
        return Column(entry.kernel.title, "our own, nothing upstream", (), port)
    origin = f"{source}, {pins()[source].licence}"
    if not entry.upstream:
        return Column(entry.kernel.title, origin, (), port, ("no lines of its own upstream",))
    if is_here(source):
        upstream = tuple(upstream_excerpts(open_tree(source), entry.upstream))
        return Column(entry.kernel.title, origin, upstream, port)
    said = (*where(entry.upstream), f"Not here: pagewalk fetch {source}")
    return Column(entry.kernel.title, origin, (), port, said)


def where(found: Iterable[Span | PortLines]) -> list[str]:
    """Name lines, a file each: `path:3-5, 9`."""
    from walkthroughs.ideas import named

    return [f"{path}:{lines}" for path, lines in named(found).items()]


def links_of(entry: Appearance) -> list[str]:
    """Return permanent links of a kernel's upstream lines, one for each run of lines."""
    from annotate.sources import pins
    from walkthroughs.ideas import runs

    if entry.kernel.source is None:
        return []
    pin = pins()[entry.kernel.source]
    return [pin.link(run.path, run.first, run.last) for run in runs(entry.upstream)]


def idea_row(idea: Idea) -> dict[str, Any]:
    """Return an idea in all its kernels as a JSON object; `status` says whether a kernel's source is here."""
    from walkthroughs.ideas import appearances

    return {
        "id": idea.id,
        "title": idea.title,
        "differs": idea.differs,
        "concepts": list(idea.concepts),
        "kernels": [kernel_row(entry) for entry in appearances(idea)],
    }


def kernel_row(entry: Appearance) -> dict[str, Any]:
    """Return one kernel's part of an idea as a JSON object."""
    from annotate.sources import pins

    source = entry.kernel.source
    return {
        "id": entry.kernel.id,
        "title": entry.kernel.title,
        "source": source,
        "status": "passed" if source is None or is_here(source) else "unavailable",
        "concepts": list(entry.concepts),
        "upstream": [
            asdict(span) | {"permalink": pins()[span.source].link(span.path, span.first, span.last)}
            for span in entry.upstream
        ],
        "port": [asdict(lines) for lines in entry.port],
        "variants": [asdict(lines) for lines in entry.variants],
    }
