"""`pagewalk drift`: what became of every anchored piece of code, release by release.

Without a release it answers from the committed facts, and needs no source. With one it reads the sources, fetching
what is missing, and says where the committed facts are not what it found.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from walkthroughs.commands.output import (
    emit_json,
    json_option,
    notice,
    print_rows,
    reports_errors,
    require_known,
)

if TYPE_CHECKING:
    from annotate.drift import Reading
    from annotate.errors import AnnotateError
    from annotate.history import Cell, Facts, Lane
    from annotate.sources import Pin, SourceTree

COLOURS = {"passed": "", "stale": "yellow", "error": "red", "unavailable": "yellow"}
# Worst first: a row is as good as the worst of its releases.
WORST = ("error", "unavailable", "stale", "passed")
DESCRIBES = {
    "all": "describes living code",
    "part": "describes code of which a part lives",
    "none": "describes code that is gone",
    "unfollowed": "reads nothing that drift follows",
}


@click.command("drift")
@click.argument("names", nargs=-1, metavar="[CONCEPT]...")
@click.option("--source", "source", default="vllm", show_default=True, help="Whose releases.")
@click.option("--to", "revisions", multiple=True, metavar="REV", help="Read this release; may be repeated.")
@click.option("--latest", is_flag=True, help="Read the newest release; say which walkthroughs describe living code.")
@click.option("--all-pinned", is_flag=True, help="Read every pinned release (about 420 MB to download at first).")
@click.option("--diff", "with_diff", is_flag=True, help="Show the tokens that changed (of releases read now).")
@click.option("--files", is_flag=True, help="Say where the files moved instead.")
@click.option("--write", is_flag=True, help="Record what --all-pinned found, in annotate/drift/.")
@json_option
@reports_errors
def drift_command(
    names: tuple[str, ...],
    source: str,
    revisions: tuple[str, ...],
    latest: bool,
    all_pinned: bool,
    with_diff: bool,
    files: bool,
    write: bool,
    as_json: bool,
) -> None:
    """Say what became of the anchored code from release to release.

    Each release is compared with the one before it: same, moved, reformatted, changed, gone or new. With --to, only
    the named releases and those that the anchors were written for are read. Exit 1 if a release cannot be had, or
    holds something else than was recorded.
    """
    chosen = [*revisions, *(["latest"] if latest else [])]
    check_use(names, source, chosen, all_pinned=all_pinned, latest=latest, write=write, files=files)
    if chosen or all_pinned:
        pins, lost = wanted_pins(source, chosen, all_pinned=all_pinned)
        answer = Answer(source, read_now(pins), lost)
    else:
        notice("from the committed facts; --all-pinned reads the sources again")
        answer = Answer(source, {}, {}, committed_facts(source))
    for error in answer.errors.values():
        notice(str(error))
    if write:
        record(answer)
    if files:
        rows = answer.files()
        plural = "files"
    elif latest:
        rows = answer.walkthroughs()
        plural = "walkthroughs"
    else:
        rows = answer.anchors(names, with_diff=with_diff)
        plural = "anchors"
    if as_json:
        emit_json(plural, rows)
    else:
        print_rows([(row["id"], row["message"]) for row in rows], [COLOURS[row["status"]] for row in rows])
    if answer.errors or any(row["status"] != "passed" for row in rows):
        raise SystemExit(1)


def check_use(
    names: Sequence[str],
    source: str,
    chosen: Sequence[str],
    *,
    all_pinned: bool,
    latest: bool,
    write: bool,
    files: bool,
) -> None:
    """Raise a usage error (exit 2) for options that do not go together and names that are not known."""
    from annotate.releases import followed
    from annotate.tracks import tracks

    require_known("source", source, dict.fromkeys(followed()), "pagewalk sources")
    known = {track.concept: track for track in tracks(source).values()}
    for name in names:
        require_known("concept that is followed", name, known, "pagewalk drift")
    if chosen and all_pinned:
        raise click.UsageError("--all-pinned goes alone: it takes no --to and no --latest.")
    if write and not all_pinned:
        raise click.UsageError("--write records every pinned release: add --all-pinned.")
    if latest and (names or files):
        raise click.UsageError("--latest speaks of walkthroughs: it takes no CONCEPT and no --files.")


def wanted_pins(source: str, chosen: Sequence[str], *, all_pinned: bool) -> tuple[list[Pin], dict[str, AnnotateError]]:
    """Return the releases to read, the oldest first, and an error for each that the index could not name."""
    from annotate.errors import DownloadFailed
    from annotate.releases import order, releases
    from annotate.sources import find_release
    from annotate.sourcetree import pin_of
    from annotate.tracks import tracks

    if all_pinned:
        return releases(source), {}
    found = {base: pin_of(base) for track in tracks(source).values() for base in track.places}
    lost: dict[str, AnnotateError] = {}
    for revision in chosen:
        try:
            pin = find_release(source, None if revision == "latest" else revision.removeprefix(f"{source}@"))
        except DownloadFailed as error:
            lost[error.source] = error
            continue
        if not pin.pinned:
            notice(f"{pin.id} is not pinned: it is checked by the digest that the package index names for it today")
        found[pin.id] = pin
    return sorted(found.values(), key=lambda pin: order(pin.revision)), lost


def read_now(pins: Sequence[Pin]) -> dict[str, Reading | AnnotateError]:
    """Read releases, fetching what is not here, with progress on stderr."""
    from annotate.drift import survey
    from annotate.sources import cache_dir

    return survey(pins, bring, cache=cache_dir() / "drift")


def bring(pin: Pin) -> SourceTree:
    """Open a release, or fetch it first."""
    from annotate.errors import SourceUnavailable
    from annotate.sources import cache_dir, fetch
    from annotate.sourcetree import opened
    from walkthroughs.commands.sources import progress_bar

    try:
        return opened(pin, cache_dir())
    except SourceUnavailable:
        with progress_bar(pin.id) as progress:
            return fetch(pin, progress=progress)


def committed_facts(source: str) -> list[Facts]:
    """Return the committed facts; those of other anchors than today's are said to be."""
    from annotate.history import committed
    from annotate.tracks import tracks, wording

    facts = committed(source)
    said = wording(tracks(source).values())
    if any(entry.wording != said for entry in facts):
        notice("the anchors have been reworded since these facts were recorded: make drift")
    return facts


class Answer:
    """What drift knows now: what was read, what was not, and what was recorded before."""

    def __init__(
        self,
        source: str,
        results: Mapping[str, Reading | AnnotateError],
        lost: Mapping[str, AnnotateError],
        facts: list[Facts] | None = None,
    ) -> None:
        from annotate.drift import Reading, lanes_of, with_deltas
        from annotate.history import committed

        self.source = source
        self.readings = {name: found for name, found in results.items() if isinstance(found, Reading)}
        self.errors = {**lost, **{name: found for name, found in results.items() if not isinstance(found, Reading)}}
        self.facts = with_deltas(self.readings.values()) if facts is None else facts
        self.lanes = lanes_of(self.facts, source)
        self.recorded = {entry.source: entry for entry in committed(source)} if self.readings else {}

    def anchors(self, names: Sequence[str], *, with_diff: bool) -> list[dict[str, Any]]:
        """Return a row for each track, or each of the named concepts."""
        from annotate.tracks import tracks

        return [
            self._row(track.id, track.concept, track.symbol, with_diff=with_diff)
            for track in tracks(self.source).values()
            if not names or track.concept in names
        ]

    def _row(self, track: str, concept: str, symbol: str, *, with_diff: bool) -> dict[str, Any]:
        lane = self.lanes.get(track)
        cells = lane.cells if lane else ()
        releases = [self._cell(track, *pair, with_diff=with_diff) for pair in zip((None, *cells), cells, strict=False)]
        releases += [
            {"id": name, "status": "unavailable", "message": str(error)} for name, error in self.errors.items()
        ]
        status = next(name for name in WORST if name == "passed" or any(row["status"] == name for row in releases))
        said = f"{story(lane)}{diffs(releases)}" if lane else "nothing was read"
        stale = [row["id"] for row in releases if row["status"] == "stale"]
        if stale:
            said += f"; not what was recorded: {', '.join(stale)} (make drift records it)"
        row = {"id": f"{self.source}/{track}", "status": status, "concept": concept, "symbol": symbol}
        return {**row, "message": said, "releases": releases}

    def _cell(self, track: str, before: Cell | None, cell: Cell, *, with_diff: bool) -> dict[str, Any]:
        from annotate.drift import diff
        from annotate.sources import every_pin

        row: dict[str, Any] = {"id": cell.source, "status": "passed", "verdict": cell.verdict, "since": cell.since}
        row |= {"as_written": cell.as_written, **(asdict(cell.state) if cell.state else {})}
        if cell.state is not None and cell.source in every_pin():
            row["permalink"] = every_pin()[cell.source].link(cell.state.path, cell.state.first, cell.state.last)
        if cell.delta is not None:
            row["delta"] = asdict(cell.delta)
        if with_diff and before is not None and {before.source, cell.source} <= self.readings.keys():
            hunks = diff(self.readings[before.source], self.readings[cell.source], track)
            row["diff"] = [asdict(hunk) for hunk in hunks]
        recorded = self.recorded.get(cell.source)
        if recorded is not None and recorded.states.get(track) != cell.state:
            row["status"] = "stale"
        return row

    def files(self) -> list[dict[str, Any]]:
        """Return a row for each file of interest: where it has been."""
        from annotate.history import file_moves

        rows = []
        for name, moves in file_moves(self.facts).items():
            said = "; ".join(f"{source.partition('@')[2]} {', '.join(paths) or 'gone'}" for source, paths in moves)
            places = [{"id": source, "paths": list(paths)} for source, paths in moves]
            rows.append({"id": f"{self.source}/{name}", "status": "passed", "message": said, "moves": places})
        return rows

    def walkthroughs(self) -> list[dict[str, Any]]:
        """Return a row for each walkthrough: whether it describes living code in the newest release read."""
        from walkthroughs.living import describes, since
        from walkthroughs.step import registry

        newest = self.facts[-1].source if self.facts else ""
        rows = []
        for walk in registry().values():
            said, counted = describes(walk, self.lanes, newest)
            amounts = ", ".join(f"{count} {name}" for name, count in counted.items())
            thens = {then.track: then for step in walk.steps for then in since(step, self.lanes, newest)}
            places = [
                {
                    "id": f"{self.source}/{then.track}",
                    "verdict": then.verdict,
                    **(asdict(then.after) if then.after else {}),
                }
                for then in thens.values()
            ]
            status = "unavailable" if self.errors else "passed"
            message = f"{DESCRIBES[said]} at {newest}" + (f": {amounts}" if amounts else "")
            row = {"id": walk.id, "status": status, "message": message, "release": newest, "describes": said}
            rows.append({**row, "verdicts": counted, "anchors": places})
        return rows


def story(lane: Lane) -> str:
    """Tell a lane in one line: the releases in which something became of it."""
    told = []
    before: Cell | None = None
    for cell in lane.cells:
        revision = cell.source.partition("@")[2]
        if before is None:
            told.append(f"{revision} {place(cell)}" if cell.state else f"not in {revision}")
        elif cell.verdict not in (None, "same"):
            told.append(f"{revision} {event(before, cell)}")
        before = cell
    return "; ".join(told)


def event(before: Cell, cell: Cell) -> str:
    """Say in a few words what became of a piece."""
    assert cell.verdict is not None
    if cell.state is None:
        return cell.verdict
    if before.state is None or cell.verdict == "moved":
        return f"{cell.verdict} {'at' if before.state is None else 'to'} {place(cell)}"
    words = [cell.verdict]
    if cell.delta is not None:
        words.append(f"(+{cell.delta.came} -{cell.delta.went} tokens)")
    if before.state.path != cell.state.path or cell.state.guessed != before.state.guessed:
        words.append(f"at {place(cell)}")
    return " ".join(words)


def place(cell: Cell) -> str:
    """Return where a piece lies, and whether that is a guess."""
    assert cell.state is not None
    guess = f" (a guess: {cell.state.symbol}, {cell.state.likeness:.0%} alike)" if cell.state.guessed else ""
    return f"{cell.state.path}:{cell.state.first}-{cell.state.last}{guess}"


def diffs(releases: Sequence[Mapping[str, Any]]) -> str:
    """Return the diffs of a row's releases: a line for each release, then one for what went and what came."""
    lines = []
    for release in releases:
        hunks = release.get("diff", ())
        lines += [f"\n  {release['id']}"] if hunks else []
        for hunk in hunks:
            lines += [
                f"\n    {sign} {' '.join(hunk[side])}" for sign, side in (("-", "old"), ("+", "new")) if hunk[side]
            ]
    return "".join(lines)


def record(answer: Answer) -> None:
    """Write the facts of every release, or none if one could not be read."""
    from annotate.history import write

    if answer.errors:
        notice(f"nothing recorded, as {len(answer.errors)} releases could not be read")
        return
    for facts in answer.facts:
        write(facts)
        answer.recorded[facts.source] = facts
    notice(f"{len(answer.facts)} releases recorded")
