"""The walk on paper: a step's prose, its lines on both sides, and what a thread did there, as text or as a JSON row.

For pipes, files, screen readers and terminals without the means; it imports nothing of Textual.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

import click

from annotate.regions import is_fence
from annotate.render import Excerpt, excerpt, to_terminal
from annotate.sources import open_tree, pins
from walkthroughs.commands.output import console, notice
from walkthroughs.digest import ROOT
from walkthroughs.naming import undirected, without
from walkthroughs.site.code import OUR_LICENCE, port_ranges, with_inner
from walkthroughs.stepper import shelf
from walkthroughs.stepper.films import join
from walkthroughs.stepper.narrate import changes, sentence
from walkthroughs.stepper.opening import Loaded, Proof, prepare, proof_of

if TYPE_CHECKING:
    from walkthroughs.step import Step

MOST = 60
"""Lines and events of one step that are printed."""
AS_IT_IS = ("|", "- ", "* ", "```", ">", "1.", "    ")


def show(step: Step) -> None:
    """Print one step on stdout; what is missing is said on stderr."""
    screen = console()
    width, colour = min(screen.width, 120), screen.color_system is not None
    click.echo(click.style(f"{step.title}  ({step.id})", bold=True) if colour else f"{step.title}  ({step.id})")
    click.echo()
    for paragraph in without(undirected(step.prose)).split("\n\n"):
        click.echo(_folded(paragraph, min(width, 100)))
        click.echo()
    left, right = _left(step), _right(step)
    for pair in zip_longest(left, right):
        click.echo(to_terminal(*pair, screen.width, colour))
        click.echo()
    loaded = prepare(step)
    for line in _story(loaded):
        click.echo(line)
    for line in _proof(loaded.proof or proof_of(step)):
        click.echo(line)
    click.echo()


def row(step: Step) -> dict[str, Any]:
    """One step as a JSON row: its status is that of its committed GPU record."""
    loaded = prepare(step)
    proof = loaded.proof or proof_of(step)
    film = None
    if loaded.clip is not None and loaded.shot is not None:
        shot = loaded.shot
        film = {"id": shot.film.id, "case": shot.film.case, "block": shot.block, "thread": shot.focus}
        film |= {"concepts": list(loaded.clip.concepts), "start": loaded.moment, "moments": len(shot.history)}
    found: dict[str, Any] = {
        "id": step.id,
        "status": proof.status,
        "message": proof.said,
        "walkthrough": step.walkthrough,
        "title": step.title,
        "prose": without(undirected(step.prose)),
        "reads": list(step.reads),
        "source": step.source,
        "port": step.port,
        "upstream": _places(step),
    }
    checks = [check.to_json() for check in proof.record.checks] if proof.record is not None else []
    return found | {"film": film, "happened": list(_happened(loaded)), "checks": checks}


def _places(step: Step) -> list[dict[str, Any]]:
    if step.source not in pins():
        return []
    pin = pins()[step.source]
    return [
        {"concept": name, "path": path, "first": a, "last": b, "permalink": pin.link(path, a, b)}
        for name in step.reads
        for path, ranges in shelf.ranges_of(step.source).items()
        for a, b in ranges.get(name, ())
    ]


def _left(step: Step) -> list[Excerpt]:
    found = []
    for page in shelf.left_pages(step.source, step.reads):
        shown = with_inner(page.ranges, step.reads)
        if page.missing:
            notice(f"{step.source} is not on this machine; fetch it: pagewalk fetch {step.source}")
        elif shown and page.source == "pagewalk":
            found.append(_own(page.path, step, "upstream"))
        elif shown:
            found.append(_upstream(page.path, shown, step.source))
    return found


def _upstream(path: str, shown: Mapping[str, Sequence[shelf.Lines]], source: str) -> Excerpt:
    pin = pins()[source]
    return excerpt(
        open_tree(source).read(path).decode("utf-8"), shown, side="upstream", source=source, path=path,
        language=shelf.language_of(path), permalink=pin.link(path, *next(iter(shown.values()))[0]), licence=pin.licence,
    )  # fmt: skip


def _right(step: Step) -> list[Excerpt]:
    files = [path for path in shelf.port_files_of(step.port) if with_inner(port_ranges(path), step.reads)]
    return [_own(path, step, "port") for path in files]


def _own(path: str, step: Step, side: str) -> Excerpt:
    return excerpt(
        (ROOT / path).read_text("utf-8"), with_inner(port_ranges(path), step.reads), side=side, source="pagewalk",
        path=path, language="python", context=0, licence=OUR_LICENCE, hide=is_fence,
    )  # fmt: skip


def _story(loaded: Loaded) -> Iterator[str]:
    shot = loaded.shot
    if shot is None:
        yield "No film shows this step: no recorded run passes its lines."
        return
    yield (
        f"What thread {shot.focus} of block {shot.block} did here "
        f"(film {shot.film.id}, case {shot.film.case}, from moment {loaded.moment} of {len(shot.history)}):"
    )
    for entry in _happened(loaded):
        lead = f"{entry['line']:>6}  " if entry["kind"] == "line" else " " * 10
        yield lead + str(entry["text"])


def _happened(loaded: Loaded) -> Iterator[dict[str, Any]]:
    """The step's first lines as the focused thread runs them: the code, and under it what it did."""
    shot, clip = loaded.shot, loaded.clip
    if shot is None or clip is None:
        return
    trace, history, wanted = shot.trace, shot.history, set(clip.concepts)
    joined = join(clip.film)
    count, inside = 0, False
    for moment in range(max(loaded.moment, 1), len(history) + 1):
        event = history.event(moment)
        assert event is not None
        frames = history.stack(moment)
        spots = [(_path(shot, history.function(frame)), history.line_of(frame, moment)) for frame in frames]
        before, inside = inside, any(wanted & set(joined.concepts_at(*spot)) for spot in spots)
        if not (inside or (before and event.kind == "line")):
            continue
        if count >= MOST:
            yield {"moment": moment, "kind": "cut", "file": "", "line": 0, "text": "… and so on"}
            return
        file, line = spots[0] if spots else ("", 0)
        place = {"moment": moment, "file": file, "line": line}
        said = (
            (changes(trace, event) if before else "")
            if event.kind == "line"
            else sentence(trace, event, shot.film.scene)
        )
        if said:
            count += 1
            yield place | {"kind": "change" if event.kind == "line" else event.kind, "text": said}
        if event.kind == "line" and inside:
            count += 1
            yield place | {"kind": "line", "text": shelf.port_page(file).text(line).strip()}


def _path(shot: Any, function: int) -> str:
    return str(shot.trace.files[shot.trace.functions[function].file].path)


def _proof(proof: Proof) -> Iterator[str]:
    yield f"Record: {proof.status}, {proof.said}"
    for check in proof.record.checks if proof.record is not None else ():
        expected = "" if check.observed == check.expected else f", expected {check.expected}"
        yield f"  {'✓' if check.passed else '✗'} {check.name}: {check.observed}{expected}"


def _folded(paragraph: str, width: int) -> str:
    """A paragraph of prose folded; lists, tables and code stay as they are."""
    if any(line.startswith(AS_IT_IS) for line in paragraph.split("\n")):
        return paragraph
    return textwrap.fill(" ".join(paragraph.split()), width, break_long_words=False, break_on_hyphens=False)
