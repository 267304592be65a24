"""The history page and the banner of a step, from what drift found: committed facts, so that no source is needed.

Verdicts show by a sign, a colour and a word each. Paths and symbols come from releases that nobody vouches for, so
everything is escaped.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from html import escape
from itertools import groupby
from typing import Literal

from annotate import concepts, sourcetree
from annotate.drift import lanes_of
from annotate.history import HOW, Cell, Lane, State, committed, file_moves
from annotate.releases import order
from annotate.tracks import tracks
from walkthroughs import living
from walkthroughs.step import Step

from .inline import label, plain
from .model import DriftNote, HistoryView, LaneNote, LaneView, Link, MoveView
from .render import Stash

# Verdict -> its sign and what it means. The first two are no verdicts: nothing earlier was read, or nothing is there.
SIGNS: Mapping[str, tuple[str, str]] = {
    "first": ("•", "there, in the oldest release that was read"),
    "absent": ("·", "not there"),
    "same": ("=", "the same text in the same place, perhaps on other lines"),
    "moved": ("→", "the same text in another file or symbol"),
    "reformatted": ("~", "the same tokens, other white space or comments"),
    "changed": ("Δ", "other tokens"),
    "gone": ("✕", "no longer there"),
    "new": ("+", "not in the release before"),
    "unread": ("!", "the parser could not read these lines"),
}
# Two thousand cells make poor search results. (The search plugin leaves out everything up to the next closing tag of
# the same name: hence a section, of which there is no other.)
_UNSEARCHED = ('<section data-search-exclude markdown="1">', "")
_BANNER = {"gone": "✕", "part": "◑", "changed": "Δ", "same": "="}


@cache
def project_lanes() -> Mapping[str, Lane]:
    """The lanes of the committed facts, the same for a whole build."""
    return lanes_of(committed())


# -- the banner ----------------------------------------------------------


def note(step: Step, lanes: Mapping[str, Lane] | None = None) -> DriftNote | None:
    """What became of the code that a step reads, by the newest release read; None where it is not followed."""
    lanes = project_lanes() if lanes is None else lanes
    newest = max((cell.source for lane in lanes.values() for cell in lane.cells), key=_order, default="")
    thens = {then.track: then for then in living.since(step, lanes, newest)}
    if not thens:
        return None
    at = revision(newest)
    gone = [then for then in thens.values() if then.verdict == "gone"]
    if not gone:
        counted = living.tally(thens.values())
        if counted.keys() <= {"same", "moved"}:
            moved = ", in another place" if "moved" in counted else ""
            return DriftNote("same", _BANNER["same"], f"vLLM {at} still has exactly this code{moved}.")
        amounts = ", ".join(f"{count} {name}" for name, count in counted.items())
        return DriftNote("changed", _BANNER["changed"], f"vLLM {at} still has this code, not word for word: {amounts}.")
    kind: Literal["gone", "part"] = "gone" if len(gone) == len(thens) else "part"
    what = "This code" if kind == "gone" else f"{len(gone)} of the {len(thens)} pieces of this code"
    told = f"{what} left vLLM {_when(lanes[then.track] for then in gone)}."
    heirs = {other.track: other for then in gone for other in living.successors(then.concept, lanes)}
    links = tuple(_heir(other, newest) for other in heirs.values())
    return DriftNote(kind, _BANNER[kind], told, tuple(dict.fromkeys(links)), at)


def _order(source: str) -> tuple[tuple[int, ...], int, int]:
    return order(revision(source))


def _when(lanes: Iterable[Lane]) -> str:
    """Say between which releases pieces left: `in 0.25.0` alone would hide what was not read in between."""
    told: dict[str, None] = {}
    for lane in lanes:
        index = next((i for i, cell in enumerate(lane.cells) if cell.source == lane.gone_at), 0)
        told[f"by {revision(lane.cells[index].source)} ({revision(lane.cells[index - 1].source)} still had it)"] = None
    return " and ".join(told)


def _heir(other: living.Successor, source: str) -> tuple[str, str, Link]:
    title = concepts.concept(other.concept).title
    state = other.state
    name = state.path.rpartition("/")[2]
    return other.concept, title, Link(f"{name}:{_lines(state)}", _permalink(source, state) or "")


def _lines(state: State) -> str:
    return str(state.first) if state.first == state.last else f"{state.first}-{state.last}"


def anchor(track: str) -> str:
    """The id of a lane's row on the history page."""
    return f"lane-{track.replace('#', '-')}"


def lane_note(concept: str, lanes: Mapping[str, Lane] | None = None) -> LaneNote | None:
    """What became of a concept's pieces, and where its first lane is; None where it is not followed."""
    lanes = project_lanes() if lanes is None else lanes
    found = {name: lanes[name] for name, track in tracks().items() if track.concept == concept and name in lanes}
    if not found:
        return None
    first = anchor(next(iter(found)))
    gone = [lane for lane in found.values() if lane.gone_at]
    if not gone:
        newest = max((cell.source for lane in lanes.values() for cell in lane.cells), key=_order)
        return LaneNote(first, _BANNER["same"], f"vLLM {revision(newest)} has this code.")
    kind = "gone" if len(gone) == len(found) else "part"
    what = "This code" if kind == "gone" else f"{len(gone)} of the {len(found)} pieces of this code"
    return LaneNote(first, _BANNER[kind], f"{what} left vLLM {_when(gone)}.")


# -- the page ------------------------------------------------------------


def view() -> HistoryView:
    """Everything on the history page: a lane a track in the order of the concept table, and where files moved."""
    facts = committed()
    releases = tuple(entry.source for entry in facts)
    lanes = lanes_of(facts)
    found = []
    for track in tracks().values():
        if track.id in lanes:
            title = concepts.concept(track.concept).title
            number = track.id.partition("#")[2]
            home = next((cell.state.path for cell in lanes[track.id].cells if cell.state), "")
            cells = tuple(lanes[track.id].cells)
            found.append(LaneView(track.id, track.concept, title, number, home.rpartition("/")[2], cells))
    moves = tuple(MoveView(name, tuple(places)) for name, places in file_moves(facts).items() if len(places) > 1)
    return HistoryView(releases, tuple(found), moves)


def lines(shown: HistoryView, root: str, stash: Stash) -> list[str]:
    """The history page's Markdown: a legend, a table of lanes for each file, and where the files moved."""
    out = [stash(legend_html()), ""]
    head = stash(head_html(shown.releases))
    by_file: dict[str, list[LaneView]] = {}
    for lane in shown.lanes:
        by_file.setdefault(lane.file, []).append(lane)
    for file, lanes in by_file.items():
        out += ["", f"## `{file}`" if file else "## Nowhere", "", _said(lanes, shown.releases), "", *_UNSEARCHED]
        out += [f"| Concept | {head} |", "| --- | --- |"]
        for _, together in groupby(lanes, key=lambda lane: lane.concept):
            out += [_row(lane, root, stash) for lane in together]
        out += ["", "</section>", ""]
    if shown.moves:
        out += ["", "## Where the files moved", ""]
        out += ["| File | From release on |", "| --- | --- |"]
        out += [f"| {plain(move.name)} | {_moved(move)} |" for move in shown.moves]
    return [*out, ""]


def _said(lanes: Sequence[LaneView], releases: Sequence[str]) -> str:
    """A file's lanes in a sentence: what the search finds, since the lanes themselves are left out of it."""
    living = sum(1 for lane in lanes if lane.cells and lane.cells[-1].state is not None)
    pieces = "1 piece" if len(lanes) == 1 else f"{len(lanes)} pieces"
    newest = plain(f"vLLM {revision(releases[-1])}")
    if living == len(lanes):
        return f"{pieces}, still in {newest}."
    return f"{pieces}, of which {newest} still has {living}." if living else f"{pieces}, not in {newest} any more."


def _row(lane: LaneView, root: str, stash: Stash) -> str:
    part = f" ({lane.number})" if lane.number else ""
    cells = stash(lane_html(lane.cells, lane.title))
    # The row can be linked to; the id is in the Markdown, where the build's link check sees it.
    link = f"[{label(lane.title)}]({root}/concepts/{lane.concept}.md){{ #{anchor(lane.track)} }}"
    return f"| {link}{part} | {cells} |"


def _moved(move: MoveView) -> str:
    told = []
    for source, paths in move.places:
        folders = ", ".join(path.rpartition("/")[0] or "." for path in paths) or "gone"
        told.append(f"{revision(source)}: {folders}")
    return plain("; ".join(told)).replace("|", "&#124;")


def legend_html() -> str:
    """What the signs mean."""
    entries = "".join(
        f'<div><dt class="pw-cell pw-v-{name}">{sign}</dt><dd><b>{name}</b>: {escape(text)}</dd></div>'
        for name, (sign, text) in SIGNS.items()
    )
    guess = "<div><dt>?</dt><dd><b>a guess</b>: found by likeness, not by name</dd></div>"
    return f'<dl class="pw-legend">{entries}{guess}</dl>'


def head_html(releases: Sequence[str]) -> str:
    """The releases, a column each."""
    columns = "".join(f"<span>{escape(revision(source))}</span>" for source in releases)
    return f'<span class="pw-lane pw-lane-head">{columns}</span>'


def lane_html(cells: Sequence[Cell], title: str) -> str:
    """One lane: a cell a release, each with its sign and, for everyone who cannot see it, its words."""
    shown = [_cell_html(None if index == 0 else cells[index - 1], cell) for index, cell in enumerate(cells)]
    return f'<span class="pw-lane" role="group" aria-label="{escape(title, quote=True)}">{"".join(shown)}</span>'


def kind_of(before: Cell | None, cell: Cell) -> str:
    """Return the key of SIGNS for a cell."""
    if cell.state is not None and cell.state.how == "unreadable":
        return "unread"
    if cell.verdict is not None:
        return cell.verdict
    if cell.state is None:
        return "absent"
    return "first" if before is None else "unread"


def _cell_html(before: Cell | None, cell: Cell) -> str:
    kind = kind_of(before, cell)
    words = f"{revision(cell.source)}: {kind}"
    if cell.delta is not None:
        words += f", {cell.delta}"
    sign = SIGNS[kind][0]
    url = None
    if cell.state is not None:
        words += f"; {cell.state.path}:{_lines(cell.state)} in {cell.state.symbol}"
        url = _permalink(cell.source, cell.state)
        if cell.state.guessed:
            words += f"; {HOW[cell.state.how]} ({cell.state.likeness:.0%} alike)"
            sign += "?"
    head = f'a href="{_attribute(url)}"' if url else "span"
    inside = f'{sign}<span class="pw-spoken"> {escape(words)}</span>'
    return f'<{head} class="pw-cell pw-v-{kind}" title="{_attribute(words)}">{inside}</{head.split()[0]}>'


def _attribute(text: str) -> str:
    return escape(text, quote=True)


def _permalink(source: str, state: State) -> str | None:
    pin = sourcetree.every_pin().get(source)
    return pin.link(state.path, state.first, state.last) if pin else None


def revision(source: str) -> str:
    """Return a release's number, of `vllm@0.24.0`."""
    return source.partition("@")[2]
