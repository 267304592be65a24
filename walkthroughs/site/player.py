"""The player on a page: the element, the static table that it stands on, and the page of a whole film.

The table is what there is without JavaScript, on paper, and where the film's file was not made. A page holds no film:
the player loads `assets/films/FILM.js` when it is opened.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING

from walkthroughs.stepper.narrate import sentence

from . import code
from .inline import label
from .model import FilmView, MomentRow, PlayerView, StepRef, Summary

if TYPE_CHECKING:
    from kernels.simt.trace import Trace
    from walkthroughs.stepper.films import Clip, Film

ROWS = 10
TEXT, DID = 84, 120
"""The most characters of a port line, and of what it did, in a table's cell."""


def film_summaries() -> dict[str, Summary]:
    """Every film by id, as the list of films shows it."""
    from walkthroughs.stepper.films import films

    return {name: Summary(name, name, film.title) for name, film in films().items()}


def film_view(name: str, steps: Sequence[StepRef] = ()) -> FilmView:
    """The page of a film: all regions of its port beside all their lines upstream; raises UnknownName."""
    from walkthroughs.launchables import launchable
    from walkthroughs.stepper.films import film, join

    wanted = film(name)
    joined = join(wanted)
    files = [path for path in joined.files if path in code.ports()]
    reads = list(dict.fromkeys(region.id for path in files for region in joined.files[path]))
    right = code.own_figures(files, reads, name)
    left = []
    if wanted.source and any(joined.upstream(concept) for concept in reads):
        left.append(code.source_figures(wanted.source, [c for c in reads if joined.upstream(c)], name))
    return FilmView(
        id=name,
        title=wanted.title,
        case=launchable(wanted.kernel).case(wanted.case).title,
        panes=code.panes(left, right),
        player=player_view(wanted, name, name, (), None),
        steps=tuple(steps),
    )


def step_view(clip: Clip, slug: str) -> PlayerView:
    """The player of a step that has a clip: it opens where the step's lines first run."""
    return player_view(clip.film, f"step-{slug}", slug, clip.concepts, clip.start)


def player_view(film: Film, anchor: str, scope: str, concepts: Sequence[str], start: int | None) -> PlayerView:
    """A player of a film. `anchor`: the heading that links to its moments name; `scope`: that of its pair of panes.

    `start`: the event where it opens, or None for the first one.
    """
    return PlayerView(film.id, anchor, scope, start, tuple(concepts), tuple(moment_rows(film, concepts, start or 0)))


def moment_rows(film: Film, concepts: Sequence[str], start: int) -> list[MomentRow]:
    """At most ten telling moments of the focused thread from an event on, a line of the port each, at its first visit.

    Only lines of the concepts count; without any, all do, and the ten are spread over the film.
    """
    from walkthroughs.stepper.films import join, record

    trace, joined = record(film), join(film)
    thread = trace.thread(film.focus, trace.threads[0].block)
    own = list(trace.events_of(thread))
    found: dict[tuple[str, int], tuple[int, MomentRow]] = {}
    wanted = set(concepts)
    for place, number in enumerate(own):
        event = trace.events[number]
        if event.kind != "line" or number < start:
            continue
        path = trace.files[trace.functions[event.function].file].path
        at = set(joined.concepts_at(path, event.line))
        if (path, event.line) in found or not (at & wanted if wanted else at):
            continue
        said, weight = _happened(trace, film, own, place)
        text = code.line_of(path, event.line)
        found[path, event.line] = (weight, MomentRow(place + 1, event.line, _cut(text, TEXT), _cut(said, DID)))
    return _chosen(list(found.values()), bool(wanted))


def _happened(trace: Trace, film: Film, own: Sequence[int], place: int) -> tuple[str, int]:
    """What a line did, in words, and how much that tells: its first accesses, and what it changed."""
    depth = trace.events[own[place]].depth
    acts: list[str] = []
    more = 0
    for number in own[place + 1 :]:
        event = trace.events[number]
        if event.kind in ("line", "return") and event.depth <= depth:
            break
        if event.kind in ("read", "vector", "write", "atomic", "warp", "barrier", "alloc"):
            if acts:
                more += 1
            else:
                acts.append(sentence(trace, event, film.scene))
    changed = [change for change in trace.effects(own[place]) if change[1] is not None and change[1].type != "array"]
    acts += [f"and {more} more"] * bool(more)
    acts += [f"{name} = {_number(value)}" for name, value in changed[:3]]
    return "; ".join(acts), len(acts)


def _number(value: object) -> str:
    data = getattr(value, "data", None)
    return f"{data:.6g}" if isinstance(data, float) else str(data)


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1].rstrip() + "…"


def _chosen(rows: Sequence[tuple[int, MomentRow]], ordered: bool) -> list[MomentRow]:
    """Ten of the rows, in their order: of a step those that tell something, of a whole film some all along it."""
    telling = [row for weight, row in rows if weight] or [row for _, row in rows]
    if ordered or len(telling) <= ROWS:
        return telling[:ROWS]
    return [telling[i * len(telling) // ROWS] for i in range(ROWS)]


def table_html(view: PlayerView) -> str:
    """The static table: a moment a row."""
    body = "".join(
        f'<tr><th scope="row">{row.moment}</th><td>{row.line}</td><td><code>{escape(row.text)}</code></td>'
        f"<td>{escape(row.did)}</td></tr>"
        for row in view.rows
    )
    head = "".join(f'<th scope="col">{name}</th>' for name in ("Moment", "Line", "Our port", "What it did"))
    return (
        '<div class="pw-table pw-play-table" role="region" tabindex="0" aria-label="Some moments of this run">'
        f"<table class=pw-moments><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def player_html(view: PlayerView, *, whole: bool = False) -> str:
    """The element with its table, folded away; `whole`: open from the start, as on a film's own page."""
    start = "" if view.start is None else f' at="{view.start}"'
    concepts = f' concepts="{" ".join(view.concepts)}"' if view.concepts else ""
    more = " open" if whole else ""
    kind = "pw-fold pw-play pw-play-whole" if whole else "pw-fold pw-play"
    title = "The run" if whole else "Step through it"
    # In a block that Markdown knows, else it would put a paragraph around it.
    return (
        f'<div class="pw-player"><pagewalk-player film="{view.film}" anchor="{view.anchor}" '
        f'pair="pair-{view.scope}"{start}{concepts}>'
        f'<details class="{kind}" data-search-exclude{more}><summary>{title} '
        f'<span class="pw-play-film">a recorded run of {escape(view.film)}</span></summary>'
        f"{table_html(view)}</details></pagewalk-player></div>"
    )


def film_lines(view: FilmView, root: str, stash: code.Stash) -> list[str]:
    """A film's page as Markdown: what runs, the code on both sides, the player, and the steps that show it."""
    from .render import heading, pair_lines

    player = stash(player_html(view.player, whole=True))
    return [
        heading(1, view.title.rstrip("."), view.id),
        "",
        f"The case: {label(view.case)}. Recorded on the SIMT machine: warp 0 of one thread block, and the first "
        f"lane of its other warps. In the terminal: `pagewalk walk`.",
        "{ .pw-hint }",
        "",
        *pair_lines(view.panes, view.id, root, stash, {}, after=[player, ""]),
        *step_list(view.steps, root),
    ]


def step_list(steps: Iterable[StepRef], root: str) -> list[str]:
    """The steps that show a film, as a list of links under a heading."""
    shown = [f"* [{label(s.title)}]({root}/walkthroughs/{s.walkthrough}.md#step-{s.slug})" for s in steps]
    return ["## Steps that show it {#steps}", "", *shown, ""] if shown else []


def films_of_steps(clips: Mapping[str, Clip | None], refs: Mapping[str, StepRef]) -> dict[str, list[StepRef]]:
    """For each film the steps that show it, in their order."""
    found: dict[str, list[StepRef]] = {}
    for step, clip in clips.items():
        if clip is not None:
            found.setdefault(clip.film.id, []).append(refs[step])
    return found
