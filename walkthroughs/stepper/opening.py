"""Opening a step: its film is recorded, the moment found at which its lines begin, its record read.

This may take a second, and needs no session: the app does it in a thread of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from walkthroughs.commands.steps import record_state
from walkthroughs.evidence import Evidence, load_committed
from walkthroughs.stepper import shelf
from walkthroughs.stepper.films import Clip, clip_of, join
from walkthroughs.stepper.shots import NoSuchPlace, Shot, shoot

if TYPE_CHECKING:
    from walkthroughs.step import Step
    from walkthroughs.stepper.progress import Place


@dataclass(frozen=True, eq=False)
class Loaded:
    """What a step needs to be walked: its clip and a shot of it (None: no film), and the moment to stand at."""

    step: str
    clip: Clip | None = None
    shot: Shot | None = None
    moment: int = 0
    remark: str = ""
    proof: Proof | None = None


@dataclass(frozen=True)
class Proof:
    """A step's committed GPU record, if there is one, with its status and a few words on it."""

    record: Evidence | None
    status: str
    said: str


def proof_of(step: Step) -> Proof:
    """What the committed records say of a step."""
    records = _records()
    status, said = record_state(step, records)
    return Proof(records.get(step.id), status, said)


@cache
def _records() -> dict[str, Evidence]:
    return load_committed()


def prepare(step: Step, place: Place | None = None, like: Shot | None = None) -> Loaded:
    """Record a step's film and find the moment: where the reader left, else where the step's lines begin.

    `like`: the shot shown now. A step of the same film keeps its block and thread.
    """
    shelf.left_pages(step.source, step.reads)  # cut up here, so that the screen need not wait for it
    clip = clip_of(step)
    if clip is None:
        return Loaded(step.id, proof=proof_of(step))
    asked = (like.block, like.focus) if like is not None and like.film.id == clip.film.id else None
    if asked is None and place is not None:
        asked = place.block, place.focus
    remark = ""
    try:
        shot = shoot(clip.film, *(asked or ()))
    except NoSuchPlace as error:
        shot, remark = shoot(clip.film), f"{error}. Shown is the film's own thread."
    if place is not None and (place.block, place.focus, place.length) == (shot.block, shot.focus, len(shot.history)):
        return Loaded(step.id, clip, shot, min(place.moment, place.length), remark, proof_of(step))
    moment = start_of(clip, shot)
    remark = remark if moment else f"{remark} {never(shot)}".strip()
    return Loaded(step.id, clip, shot, moment or 0, remark, proof_of(step))


def start_of(clip: Clip, shot: Shot) -> int | None:
    """The shot's first moment at a line of the clip's concepts, the first of them that it visits; None: nowhere."""
    if (shot.block, shot.focus) == (clip.film.block, clip.film.focus):
        return shot.moment_of(clip.start)
    joined = join(clip.film)
    first: dict[str, int] = {}
    for moment in range(1, len(shot.history) + 1):
        event = shot.history.event(moment)
        if event is not None and event.kind == "line":
            path = shot.trace.files[shot.trace.functions[event.function].file].path
            for concept in joined.concepts_at(path, event.line):
                first.setdefault(concept, moment)
    return next((first[concept] for concept in clip.concepts if concept in first), None)


def never(shot: Shot) -> str:
    """A remark that a thread does not come to the lines of the step."""
    return f"Thread {shot.focus} of this block never comes to the lines of this step: shown from its start."
