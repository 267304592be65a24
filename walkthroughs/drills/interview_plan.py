"""What an interviewer asks next: the answers so far, the role, the seed and the time left decide, and nothing else.

Pure. A thread opens a topic and follows its answers up: a good one goes deeper, a weak one gets something smaller on
the same concept, and a recall answer is now and then to be shown in the source. Then another topic, of the kind that
is most behind its share.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from walkthroughs.drills.interview import Interview, Move, Turn
from walkthroughs.drills.interview_roles import Role, role, topic_of
from walkthroughs.drills.item import Item

PACE: Mapping[str, int] = {"recall": 120_000, "compute": 120_000, "predict": 90_000, "find": 75_000}
"""What an answer of each kind takes, in milliseconds, roughly; a kind without a pace is not asked."""
LEAST = min(PACE.values()) // 2
"""With less time left than this, no further question fits."""
GOOD_SCORE, WEAK_SCORE = 2 / 3, 0.5
"""From the one an answer is good; below the other it is weak."""
LONGEST = 4
"""Questions in one thread, at most."""
SOURCE_CHANCE, SMALLER_CHANCE = 0.4, 0.75
WARM_UP = 2
"""So many questions at the beginning are easy ones, as far as there are any."""


@dataclass(frozen=True)
class Step:
    """What is asked next, why, and after which item's answer ("" where it opens a topic)."""

    item: Item
    move: Move
    parent: str = ""


def next_step(interview: Interview, items: Mapping[str, Item], asleep: Collection[str] = ()) -> Step | None:
    """The next question, or None where the time is up or nothing is left to ask.

    `asleep`: items that must not be asked. Raises UnknownName for a role that is none.
    """
    wanted = role(interview.role)
    gone = interview.asked | {*interview.skipped, *asleep}
    able = [
        item for item in items.values() if item.id not in gone and item.kind in PACE and _fits(item.kind, interview)
    ]
    if not able:
        return None
    rng = random.Random(f"{interview.seed}/{interview.role}/{len(interview.turns)}")
    return _follow_up(interview, items, able, rng) or _opening(interview, items, able, wanted, rng)


def thread(turns: tuple[Turn, ...]) -> tuple[Turn, ...]:
    """The last thread: the turn that opened it, and those that follow it up."""
    start = max((number for number, turn in enumerate(turns) if turn.move == "opens"), default=0)
    return turns[start:]


def _fits(kind: str, interview: Interview) -> bool:
    """Whether there is time for at least half of what it takes: an interviewer may run over a little."""
    return interview.left >= PACE[kind] / 2


def _follow_up(interview: Interview, items: Mapping[str, Item], able: list[Item], rng: random.Random) -> Step | None:
    running = thread(interview.turns)
    if not running or len(running) >= LONGEST or running[-1].item not in items:
        return None
    last = running[-1]
    item = items[last.item]
    on_source, on_smaller = rng.random() < SOURCE_CHANCE, rng.random() < SMALLER_CHANCE
    if last.kind == "recall" and last.score >= WEAK_SCORE and on_source:
        shown = _alike(item, [other for other in able if other.kind == "find"])
        if shown:
            return Step(_any(shown, rng), "source", item.id)
    if last.score >= GOOD_SCORE:
        return _deeper(running, items, able, rng)
    if last.score < WEAK_SCORE and last.move != "smaller" and on_smaller:
        easier = _alike(item, [other for other in able if not other.after and _is_smaller(other, item)])
        return Step(_any(easier, rng), "smaller", item.id) if easier else None
    return None


def _deeper(running: tuple[Turn, ...], items: Mapping[str, Item], able: list[Item], rng: random.Random) -> Step | None:
    """What follows the last good answer: the chain of its recall question, else something harder on the same."""
    last = running[-1]
    if last.move == "smaller":  # it was to build up, not to dig further
        return None
    item = items[last.item]
    # After the source was shown, the talk goes back to the question that led there.
    led = next((turn for turn in running if turn.item == last.parent), None) if last.move == "source" else None
    back = items.get(led.item) if led is not None and led.score >= GOOD_SCORE else None
    for anchor in (item, back):
        children = [other for other in able if anchor is not None and other.after == anchor.id]
        if anchor is not None and children:
            return Step(_any(children, rng), "deeper", anchor.id)
    found = _alike(item, [other for other in able if not other.after and _is_harder(other, item)])
    return Step(_any(found, rng), "deeper", item.id) if found else None


def _is_harder(other: Item, item: Item) -> bool:
    """Whether it is of another kind and asks for more; explaining asks for more than finding or computing."""
    explains = other.kind == "recall" and other.level == item.level
    return other.kind != item.kind and (other.level > item.level or explains)


def _is_smaller(other: Item, item: Item) -> bool:
    """Whether it is easier, or as easy and quicker."""
    quicker = PACE[other.kind] < PACE.get(item.kind, 0)
    return other.level < item.level or (other.level == item.level and quicker)


def _alike(item: Item, others: Iterable[Item]) -> list[Item]:
    """Those that share most concepts with an item, at least one."""
    shared = [(len(set(item.concepts) & set(other.concepts)), other) for other in others]
    most = max((count for count, _ in shared), default=0)
    return [other for count, other in shared if count == most] if most else []


def _opening(
    interview: Interview, items: Mapping[str, Item], able: list[Item], wanted: Role, rng: random.Random
) -> Step | None:
    """A new topic, of the kind that is most behind its share in this role."""
    roots = [item for item in able if not item.after]
    kinds = dict.fromkeys(item.kind for item in roots)
    if not kinds:
        return None
    count = len(interview.turns)
    jitter = {kind: rng.random() / 2 for kind in kinds}

    def behind(kind: str) -> float:
        times = sum(turn.kind == kind for turn in interview.turns)
        unasked = count / 4 if not times else 0.0  # long threads must not keep a kind out
        return wanted.kinds.get(kind, 0.1) * (count + 1) - times + unasked + jitter[kind]

    kind = "recall" if not count and "recall" in kinds else max(kinds, key=behind)
    chosen = [item for item in roots if item.kind == kind]
    weights = [_weight(item, interview, items, wanted) for item in chosen]
    return Step(rng.choices(chosen, weights)[0], "opens")


def _weight(item: Item, interview: Interview, items: Mapping[str, Item], wanted: Role) -> float:
    """How much an item is wanted now: by topic and level, less where its topic or concepts were asked of already."""
    topic = topic_of(item)
    known = [items[turn.item] for turn in interview.turns if turn.item in items]
    times = sum(topic_of(other) == topic for other in known)
    alike = any(set(item.concepts) & set(other.concepts) for other in known)
    easy = 4.0 if len(known) < WARM_UP and item.level == 1 else 1.0
    level = wanted.levels[min(max(item.level, 1), 3) - 1]
    return wanted.topics.get(topic, 1.0) * level * easy * (0.3 if alike else 1.0) / (1 + 2 * times)


def _any(choices: list[Item], rng: random.Random) -> Item:
    return choices[rng.randrange(len(choices))]
