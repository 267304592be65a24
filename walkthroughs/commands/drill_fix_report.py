"""The first failure of a kernel that was put right, as lines for a terminal: the value, the reader's line, upstream's.

Upstream's own words are shown only where its source is on this machine.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from annotate.errors import AnnotateError
from annotate.sourcetree import open_tree

if TYPE_CHECKING:
    from walkthroughs.drills.fix import Task
    from walkthroughs.drills.fix_verdict import Failure

MOST = 8
"""Lines of a source that are shown, of each place."""


def failure_lines(task: Task, file: Path, first: Failure) -> list[str]:
    """Everything about the first failure, without colour."""
    lines = _value(first) if first.what == "check" else [f"  {first.message}"]
    if first.where:
        again = f"   (again: --seed {first.seed})" if first.seed is not None else ""
        lines.append(f"  in         {first.where}{again}")
    if first.line:
        lines.append(f"  your file  {file}:{_range(first.line, first.last)}")
        lines += _own(file, first)
    lines.append(f"  port       {_port(task)}")
    for place in first.upstream:
        lines.append(f"  upstream   {place['source']} {place['path']}:{_range(place['first'], place['last'])}")
        lines += _text(place)
        lines.append(f"             {place['link']}")
    return lines


def _value(first: Failure) -> list[str]:
    where = f", element {first.at}" if first.at else ""
    # A value of many digits beside another: under each other they compare.
    lines = [f"  {first.name}{where}", f"  observed   {first.got}", f"  expected   {first.wanted}"]
    if first.error is not None:
        lines.append(f"  tolerance  {first.tolerance:.3g} (the worst is off by {first.error:.3g})")
    elif first.tolerance:
        lines.append(f"  tolerance  {first.tolerance:.3g}")
    return [*lines, f"  note       {first.note}"] if first.note else lines


def _own(file: Path, first: Failure) -> list[str]:
    """The reader's line where it is one."""
    if first.line != first.last:
        return []
    try:
        lines = file.read_text("utf-8").splitlines()
        return [f"             {first.line} | {lines[first.line - 1].strip()}"]
    except (OSError, ValueError, IndexError):
        return []


def _port(task: Task) -> str:
    """The file of ours that was cut, with the lines of the region."""
    from walkthroughs.drills import fix

    first, last = fix.excerpt(task, fix.solved(task))
    return f"{task.file}:{_range(first, last)}"


def _text(place: dict[str, Any]) -> list[str]:
    """The upstream lines, or nothing where the source is not here."""
    try:
        data = open_tree(place["source"]).read(place["path"])
    except AnnotateError:
        return []
    lines = data.decode("utf-8", "replace").splitlines()[place["first"] - 1 : place["last"]]
    width = len(str(place["first"] + len(lines)))
    shown = [f"             {place['first'] + n:>{width}} | {line}" for n, line in enumerate(lines[:MOST])]
    return [*shown, f"             {'':>{width}} | …"] if len(lines) > MOST else shown


def _range(first: int, last: int) -> str:
    return str(first) if first == last else f"{first}-{last}"
