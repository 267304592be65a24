"""For whom an interview is: the topics of the bank, and the roles that weight topics, kinds and levels."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import MappingProxyType

from annotate.errors import UnknownName, nearest
from walkthroughs.drills import recall
from walkthroughs.drills.item import Item

TABLE = Path(__file__).with_name("interview_topics.toml")
OTHER = "other"
"""The topic of what has none."""


@dataclass(frozen=True)
class Topic:
    """What a part of the score is called, and what belongs to it: ids of concepts, and of items by themselves."""

    id: str
    title: str
    concepts: tuple[str, ...] = ()
    items: tuple[str, ...] = ()


@dataclass(frozen=True)
class Role:
    """What somebody is asked for a job. `kinds`: each kind's share; `levels`: the weights of levels 1, 2 and 3.

    `topics`: the weights of topics; one that is not named weighs 1.
    """

    id: str
    title: str
    kinds: Mapping[str, float]
    levels: tuple[float, float, float]
    topics: Mapping[str, float]


_ROLES = (
    Role(
        "general",
        "anyone who reads these kernels",
        {"recall": 0.40, "compute": 0.25, "predict": 0.15, "find": 0.20},
        (1.0, 1.0, 0.7),
        {},
    ),
    Role(
        "kernel",
        "a kernel engineer",
        {"recall": 0.30, "compute": 0.25, "predict": 0.20, "find": 0.25},
        (0.5, 1.0, 1.0),
        {"layout": 3, "classic": 3, "partitions": 2, "tiny-kernel": 2, "formats": 2, "today": 0.7, "blocks": 0.5},
    ),
    Role(
        "serving",
        "an inference or serving engineer",
        {"recall": 0.40, "compute": 0.30, "predict": 0.12, "find": 0.18},
        (1.0, 1.0, 0.5),
        {"blocks": 3, "table": 3, "today": 3, "tiny-memory": 2, "partitions": 1.5, "tiny-kernel": 0.5, "classic": 0.7},
    ),
    Role(
        "research",
        "a reviewer or researcher",
        {"recall": 0.40, "compute": 0.18, "predict": 0.14, "find": 0.28},
        (0.5, 1.0, 1.0),
        {"exact": 3, "partitions": 2, "today": 2, "layout": 1.5, "blocks": 1.5, "tiny-memory": 0.7},
    ),
)
ROLES: Mapping[str, Role] = MappingProxyType({role.id: role for role in _ROLES})


def role(name: str) -> Role:
    """One role; raises UnknownName with the nearest names."""
    if name not in ROLES:
        raise UnknownName("role", name, nearest(name, ROLES) or tuple(ROLES))
    return ROLES[name]


@cache
def topics() -> Mapping[str, Topic]:
    """Every topic by its id, in the order of the bank, and last the one of what has none."""
    found = {
        name: Topic(name, body["title"], tuple(body["concepts"]), tuple(body.get("items", ())))
        for name, body in tomllib.loads(TABLE.read_text(encoding="utf-8")).items()
    }
    return MappingProxyType({**found, OTHER: Topic(OTHER, "Other")})


def topic_of(item: Item) -> str:
    """The topic of an item: of a recall question its theme, else what the table says of it or of its concepts."""
    by_item, by_concept = _table()
    if item.id in by_item:
        return by_item[item.id]
    return next((by_concept[name] for name in item.concepts if name in by_concept), OTHER)


@cache
def _table() -> tuple[Mapping[str, str], Mapping[str, str]]:
    known = topics().values()
    by_item = {name: topic for name, topic in recall.themes().items() if topic in topics()}
    by_item |= {name: topic.id for topic in known for name in topic.items}
    return by_item, {name: topic.id for topic in known for name in topic.concepts}
