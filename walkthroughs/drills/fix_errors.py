"""What goes wrong first in a check, in one clear line: what, where in the reader's file, and the upstream lines.

Nothing here runs a kernel.
"""

from __future__ import annotations

import re
import traceback
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from annotate.errors import UnknownName
from annotate.sourcetree import pins
from annotate.spans import spans
from kernels.errors import ProbeError
from walkthroughs import mutations
from walkthroughs.drills import fix_cut
from walkthroughs.drills.errors import DrillError
from walkthroughs.drills.fix import Task, excerpt
from walkthroughs.drills.fix_cut import BLANK, ROOT
from walkthroughs.drills.fix_verdict import Failure
from walkthroughs.evidence import Check
from walkthroughs.workbench import show

PLACES = 3
"""Upstream places shown with a failure, at most."""
LONGEST = 400
COLOURS = re.compile(r"\x1b\[[0-9;]*m")


class FirstValue(NamedTuple):
    """The first value of a check that is wrong: its index in words (or ""), what it is, and what it should be."""

    at: str
    got: str
    wanted: str


def first_value(observed: Any, expected: Any, tolerance: float) -> FirstValue:
    """Find the first value that is further off than `tolerance`, or that is NaN where it should not be, or is not."""
    try:
        a, b = np.asarray(observed, np.float64), np.asarray(expected, np.float64)
    except (TypeError, ValueError):
        return FirstValue("", show(observed), show(expected))
    if a.shape != b.shape:
        return FirstValue("", f"{a.size} values", f"{b.size} values")
    with np.errstate(invalid="ignore"):
        fine = (a == b) | (np.isnan(a) & np.isnan(b)) | (np.abs(a - b) <= tolerance)
    places = np.argwhere(~fine)
    if not len(places):
        return FirstValue("", show(observed), show(expected))
    index = tuple(int(part) for part in places[0])
    return FirstValue(f"[{', '.join(map(str, index))}]" if index else "", show(a[index]), show(b[index]))


class Unreadable(Exception):
    """The file cannot be judged; `failure` says why."""

    def __init__(self, message: str, failure: Failure | None = None) -> None:
        super().__init__(message)
        self.failure = failure or Failure("unreadable", message)


def upstream(task: Task, concepts: Sequence[str]) -> list[dict[str, Any]]:
    """Where the task's source has the first of these concepts that it has: places, each with its permanent link."""
    for concept in concepts:
        if found := _spans(task.source, concept):
            pin = pins()[task.source]
            return [
                {"source": task.source, "concept": concept, "path": path, "first": first, "last": last,
                 "link": pin.link(path, first, last)}
                for path, first, last in found[:PLACES]
            ]  # fmt: skip
    return []


def of_check(
    task: Task, text: str, made: Check, value: FirstValue, where: str, seed: int | None, concepts: Sequence[str]
) -> Failure:
    """A check that does not hold: the region in the reader's file, and the upstream lines of what was checked."""
    first, last = _region(task, text)
    message = f"{made.name}{value.at and f', element {value.at}'}: observed {value.got}, expected {value.wanted}"
    own = made.to_json()
    return Failure(
        "check", message, where, seed, first, last, made.name, made.observed, made.expected, own["max_error"],
        made.tolerance, made.note, *value, tuple(upstream(task, concepts)),
    )  # fmt: skip


def of_error(task: Task, text: str, error: Exception, where: str, seed: int | None, concepts: Sequence[str]) -> Failure:
    """An error while the kernel ran: a report of the SIMT machine, or whatever it raised."""
    if isinstance(error, Unreadable):
        return error.failure
    if isinstance(error, ProbeError):
        said = f"{_short(error)}. The check watches the port's own variables: keep their names and their regions"
        return Failure("error", said, where, seed, *_region(task, text), upstream=tuple(upstream(task, concepts)))
    message = f"{type(error).__name__}: {_short(error)}"
    what = "report" if mutations.is_report(message) else "error"
    line = _line(task, error) or _line_of_name(text, message)
    message = message.replace(f"{task.file}#fix", f"{task.name}.py").replace(f"{ROOT}/", "")
    around = _concepts_at(text, line)
    places = tuple(upstream(task, [*around, *concepts]))
    return Failure(what, message, where, seed, line, line, upstream=places)


def nothing(task: Task, where: str) -> Failure:
    """Nothing was checked, which is no proof."""
    return Failure("error", "nothing was checked: the kernel was not launched", where)


def blank(task: Task, text: str, line: int) -> Unreadable:
    """A blank is still there."""
    message = f"line {line}: the blank {BLANK} is still there: `{_text(text, line)}`"
    return Unreadable(message, Failure("blank", message, line=line, last=line, upstream=_of_task(task)))


def syntax(task: Task, text: str, error: SyntaxError) -> Unreadable:
    """The file is no Python."""
    line = error.lineno or 0
    message = f"line {line}: {error.msg}: `{_text(text, line)}`"
    return Unreadable(message, Failure("unreadable", message, line=line, last=line))


def fences(error: DrillError) -> Unreadable:
    """The lines that name the regions do not fit any more; the message begins with the line."""
    found = re.match(r"line (\d+)", str(error))
    line = int(found[1]) if found else 0
    return Unreadable(str(error), Failure("unreadable", str(error), line=line, last=line))


def loading(task: Task, text: str, error: BaseException) -> Unreadable:
    """The file raised while it was loaded, or asked to leave."""
    line = _line(task, error)
    said = "the file ends the program (SystemExit)" if isinstance(error, SystemExit) else _kind(error)
    message = f"line {line}: {said}" if line else said
    return Unreadable(message, Failure("unreadable", message, line=line, last=line))


def _of_task(task: Task) -> tuple[dict[str, Any], ...]:
    return tuple(upstream(task, [task.region, task.shows]))


def _spans(source: str, concept: str) -> list[tuple[str, int, int]]:
    try:
        return [(span.path, span.first, span.last) for span in spans(source).get(concept, [])] if source else []
    except UnknownName:
        pass
    try:
        # The source of tiny-vllm may be absent, so its lines were read by hand. This imports the network; a bare GPU
        # machine has no such library.
        from walkthroughs.upstream import BY_HAND, TINY
    except ImportError:
        return []
    return [(TINY, *BY_HAND[concept])] if concept in BY_HAND else []


def _region(task: Task, text: str) -> tuple[int, int]:
    try:
        return excerpt(task, text)
    except DrillError:
        return 0, 0


def _concepts_at(text: str, line: int) -> list[str]:
    """The regions around a line, innermost first."""
    from annotate.errors import RegionError
    from annotate.regions import regions

    try:
        found = [region for places in regions(text).values() for region in places]
    except RegionError:
        return []
    inside = [region for region in found if region.first <= line <= region.last]
    return [region.id for region in sorted(inside, key=lambda region: region.last - region.first)]


def _line(task: Task, error: BaseException) -> int:
    """The line of the reader's file that an error names, or else the last one that it came through; 0 for none."""
    name = f"{task.file}#fix"
    # As the SIMT machine spells a place, and as Numba does, in two ways.
    for pattern in (r":(\d+)", r"\D{0,4}, line (\d+)", r" \((\d+)\)"):
        if found := re.search(re.escape(name) + pattern, str(error)):
            return int(found[1])
    place = getattr(error, "loc", None)
    if place is not None and str(getattr(place, "filename", "")).endswith(name):
        return int(place.line or 0)
    frames = [frame.lineno or 0 for frame in traceback.extract_tb(error.__traceback__) if frame.filename.endswith(name)]
    return frames[-1] if frames else 0


def _line_of_name(text: str, message: str) -> int:
    """The first line of code with the name that is not defined; Numba does not say where."""
    found = re.search(r"name '(\w+)' is not defined", message)
    return next(iter(fix_cut.lines_with(text, found[1])), 0) if found else 0


def _kind(error: BaseException) -> str:
    if isinstance(error, MemoryError):
        return f"it asks for more memory than a check may have ({_short(error) or 'MemoryError'})"
    return f"{type(error).__name__}: {_short(error)}"


def _short(error: BaseException) -> str:
    """The line of an error's text that says something."""
    lines = [line.strip() for line in COLOURS.sub("", str(error)).splitlines() if line.strip()]
    # Numba says first at which stage it gave up; the reason stands below, and what was called below that.
    lines = [line for line in lines if not line.startswith("Failed in")] or lines or [""]
    if lines[0].endswith("found for signature:") and len(lines) > 1:
        return f"Numba has no {lines[1].removeprefix('>>>').strip()}"[:LONGEST]
    return lines[0].rstrip(".")[:LONGEST]


def _text(text: str, line: int) -> str:
    lines = text.splitlines()
    return lines[line - 1].strip() if 0 < line <= len(lines) else ""
