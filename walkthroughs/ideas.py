"""One idea in all kernels that have it: for each its upstream lines, and the lines of ours that run.

`pagewalk read` shows these side by side, a concept's page lists them. Line numbers come from the committed spans and
from the regions of our files, so no source needs to be here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from annotate.ideas import Idea, KernelEntry, tables
from annotate.spans import Span, spans
from annotate.spans import sources as recorded
from walkthroughs.site.code import port_ranges, ports


@dataclass(frozen=True)
class PortLines:
    """Lines `first` to `last` (1-based) of a file of ours that a region gives to a concept."""

    path: str
    first: int
    last: int
    concept: str


@dataclass(frozen=True)
class Run:
    """Lines `first` to `last` (1-based) of a file, whatever concepts they belong to."""

    path: str
    first: int
    last: int


@dataclass(frozen=True)
class Appearance:
    """An idea in one kernel: upstream lines in its source, the port's lines, and those of the port's variants."""

    kernel: KernelEntry
    upstream: tuple[Span, ...]
    port: tuple[PortLines, ...]
    variants: tuple[PortLines, ...]

    @property
    def concepts(self) -> tuple[str, ...]:
        """The concepts by which this kernel has the idea, each once: upstream's first."""
        named = (*(span.concept for span in self.upstream), *(lines.concept for lines in self.port + self.variants))
        return tuple(dict.fromkeys(named))


def appearances(idea: Idea) -> tuple[Appearance, ...]:
    """Return the idea in every kernel that has lines of it, upstream or ours, in the order of the kernels' table."""
    found = (_appearance(kernel, idea.concepts) for kernel in tables().kernels.values())
    return tuple(entry for entry in found if entry.concepts)


def side_by_side(idea: Idea, asked: str) -> tuple[Appearance, ...]:
    """Return the kernels to show for `asked`, a concept of the idea: those with a port, and whichever have `asked`.

    They stand in the order of the kernels' table. Asked for a sibling, the kernels that have it come first.
    """
    shown = [entry for entry in appearances(idea) if entry.port or asked in entry.concepts]
    return tuple(sorted(shown, key=lambda entry: asked != idea.id and asked not in entry.concepts))


def runs(found: Iterable[Span | PortLines]) -> tuple[Run, ...]:
    """Return lines as runs, file by file in the order given, those that overlap or touch as one."""
    files: dict[str, list[tuple[int, int]]] = {}
    for lines in found:
        files.setdefault(lines.path, []).append((lines.first, lines.last))
    joined: list[Run] = []
    for path, ranges in files.items():
        for first, last in sorted(ranges):
            before = joined[-1] if joined and joined[-1].path == path else None
            if before and first <= before.last + 1:
                joined[-1] = Run(path, before.first, max(before.last, last))
            else:
                joined.append(Run(path, first, last))
    return tuple(joined)


def named(found: Iterable[Span | PortLines]) -> dict[str, str]:
    """Return the lines by file, as short as can be: `{"a.py": "3-5, 9"}`."""
    files: dict[str, list[str]] = {}
    for run in runs(found):
        files.setdefault(run.path, []).append(f"{run.first}-{run.last}" if run.last > run.first else str(run.first))
    return {path: ", ".join(said) for path, said in files.items()}


def _appearance(kernel: KernelEntry, names: tuple[str, ...]) -> Appearance:
    upstream = tuple(_upstream(kernel, names))
    has = {span.concept for span in upstream}
    return Appearance(
        kernel=kernel,
        upstream=upstream,
        port=(*_lines(kernel.ports, names), *_lines(kernel.shared, [name for name in names if name in has])),
        variants=tuple(_lines(kernel.variants, names)),
    )


def _upstream(kernel: KernelEntry, names: Iterable[str]) -> Iterable[Span]:
    if kernel.source in recorded():
        table = spans(kernel.source)
        yield from (span for name in names for span in table.get(name, ()) if kernel.holds(span))


def _lines(files: Iterable[str], names: Sequence[str]) -> Iterable[PortLines]:
    for path in files:
        if path in ports():
            ranges = port_ranges(path)
            yield from (PortLines(path, first, last, name) for name in names for first, last in ranges.get(name, ()))
