"""What a page of drills shows, as plain values: a kind, its questions, and the points of their answers.

`drill_data.py` fills these from the bank; `drill_pages.py` turns them into Markdown. Tests fill them by hand.
"""

from __future__ import annotations

from dataclasses import dataclass

from .model import Link


@dataclass(frozen=True, slots=True)
class DrillPoint:
    """One point of an answer (Markdown), with the places that show it."""

    text: str
    links: tuple[Link, ...] = ()


@dataclass(frozen=True, slots=True)
class DrillView:
    """A question with its answer. `text`, `answer`, `why`: Markdown; `after`: the question that it follows up, or "".

    `links`: where it is explained, besides the points. `group`: the heading that it stands under. A link's address
    counts from the top of the docs folder.
    """

    id: str
    title: str
    level: int
    text: str
    answer: str
    points: tuple[DrillPoint, ...] = ()
    why: str = ""
    links: tuple[Link, ...] = ()
    after: str = ""
    group: str = ""


@dataclass(frozen=True, slots=True)
class DrillKind:
    """A kind's page: what it is about (Markdown), and every question of it, those of a group together."""

    id: str
    title: str
    intro: str
    questions: tuple[DrillView, ...]
