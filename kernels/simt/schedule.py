"""In which order thread blocks and warps run. Every order given here is one that a GPU may choose.

Lanes of a warp take turns in ascending order unless a replay says otherwise; warps are free between two barriers, and
that freedom is what a schedule decides. A schedule is a value; `start` gives the state of one launch, so equal
schedules give equal runs. `search` looks for a schedule that shows a fault and writes it down as a replay.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kernels.simt.report import BadLaunch

if TYPE_CHECKING:
    from kernels.simt.warp import Warp

KINDS = ("in-order", "reversed", "random", "adversarial", "replay")
FORMS = "must be in-order, reversed or random:SEED, or adversarial[:RUNS], or replay:PLAN"
RUNS = 64
"""Launches that `adversarial` may spend."""

Turn = tuple[int, int]
"""A warp, and after how many warp operations it must let others go first; 0: it runs to its next barrier."""
Key = tuple[int | None, int | None]
"""A thread block and a barrier interval in it, both linear from 0; None stands for every one."""


@dataclass(frozen=True)
class Plan:
    """Who goes when, spelled out: what `replay:` is followed by.

    Parts are joined by `;`. `2/3=1*4,0` : in interval 3 of block 2, warp 1 goes first, for 4 warp operations, then
    warp 0 to its barrier, then the rest in ascending order, warp 1 too. `3=` is interval 3 of every block, `*=` every
    interval that no other part names. `lanes=down`: the lanes of a warp take turns in descending order.
    `blocks=down`: the last thread block first.
    """

    turns: Mapping[Key, tuple[Turn, ...]] = field(default_factory=dict)
    lanes_down: bool = False
    blocks_down: bool = False

    @classmethod
    def parse(cls, text: str) -> Plan:
        """The plan of a text; raises BadLaunch for a part that is none."""
        turns: dict[Key, tuple[Turn, ...]] = {}
        down = set()
        for part in filter(None, text.split(";")):
            where, _, what = part.partition("=")
            if where in ("lanes", "blocks") and what == "down":
                down.add(where)
                continue
            found = re.fullmatch(r"\*|(?:(\d+)/)?(\d+)", where)
            if not found or not re.fullmatch(r"\d+(\*\d+)?(,\d+(\*\d+)?)*", what):
                must = "a part must be like 2/3=1*4,0 or 3=1,0 or *=1,0 or lanes=down or blocks=down"
                raise BadLaunch("replay plan", part, must)
            block, interval = (None if number is None else int(number) for number in found.groups())
            pairs = (turn.partition("*") for turn in what.split(","))
            turns[block, interval] = tuple((int(warp), int(count or 0)) for warp, _, count in pairs)
        return cls(turns, "lanes" in down, "blocks" in down)

    def __str__(self) -> str:
        parts = ["blocks=down"] * self.blocks_down + ["lanes=down"] * self.lanes_down
        for (block, interval), turns in self.turns.items():
            where = "*" if interval is None else str(interval) if block is None else f"{block}/{interval}"
            parts.append(f"{where}={','.join(f'{warp}*{count}' if count else str(warp) for warp, count in turns)}")
        return ";".join(parts)

    def __hash__(self) -> int:
        return hash(str(self))

    def of(self, block: int, interval: int) -> tuple[Turn, ...]:
        """The turns of one interval; the most exact part counts."""
        for key in ((block, interval), (None, interval)):
            if key in self.turns:
                return self.turns[key]
        return self.turns.get((None, None), ())


@dataclass(frozen=True)
class Schedule:
    """`in-order`: warp 0 first, each as far as its next barrier. `reversed`: the last warp first.

    `random`, with a seed: blocks and warps in random order, and after every warp operation another warp may
    go on. `replay`, with a plan: as that says, else in order. `adversarial`: not one order but a search for one that
    changes what the launch writes (`search`), of at most `seed` launches.
    """

    kind: str = "in-order"
    seed: int = 0
    plan: Plan = Plan()

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise BadLaunch("schedule", self.kind, FORMS)

    @classmethod
    def parse(cls, text: str | Schedule) -> Schedule:
        """A Schedule from the text that `str` gives for it; raises BadLaunch for anything else."""
        if isinstance(text, Schedule):
            return text
        kind, colon, rest = text.partition(":")
        if kind == "replay" and colon:
            return cls(kind, plan=Plan.parse(rest))
        needs, may = kind == "random", kind in ("random", "adversarial")
        if kind == "replay" or (needs and not colon) or (colon and not (may and rest.isdecimal())):
            raise BadLaunch("schedule", text, FORMS)
        return cls(kind, int(rest or (RUNS if kind == "adversarial" else 0)))

    def __str__(self) -> str:
        if self.kind == "replay":
            return f"replay:{self.plan}"
        return f"{self.kind}:{self.seed}" if self.kind in ("random", "adversarial") else self.kind

    def start(self) -> Order:
        """The state of this schedule for one launch."""
        order = self._order()
        wrap = wrapping.get()
        return wrap(order) if wrap is not None else order

    def _order(self) -> Order:
        if self.kind == "random":
            return RandomOrder(self.seed)
        if self.kind == "replay":
            return ReplayOrder(self.plan)
        return ReversedOrder() if self.kind == "reversed" else Order()


class Order:
    """In order. Subclasses choose otherwise."""

    preempts = False
    """Whether `stay` is asked after every warp operation; else a warp goes on as long as it can."""
    lanes_down = False
    """Whether the lanes of a warp take turns in descending order."""

    def blocks(self, count: int) -> Iterable[int]:
        """The order of the grid's thread blocks, by linear number; each is asked for when it starts."""
        return range(count)

    def warps(self, live: Sequence[int]) -> Sequence[int]:
        """The order in which these warps start the interval after a barrier."""
        return live

    def stay(self) -> bool:
        """Whether the running warp goes on after a warp operation."""
        return True

    def pick(self, queue: Sequence[Warp]) -> int:
        """Which of the runnable warps goes on; the first is the one that has waited longest."""
        return 0


wrapping: ContextVar[Callable[[Order], Order] | None] = ContextVar("wrapping", default=None)
"""What `start` puts around the order of a launch, so that somebody can listen."""


class ReversedOrder(Order):
    """The last block and the last warp first."""

    def blocks(self, count: int) -> Sequence[int]:
        """Last block first."""
        return range(count - 1, -1, -1)

    def warps(self, live: Sequence[int]) -> Sequence[int]:
        """Last warp first."""
        return live[::-1]


class RandomOrder(Order):
    """Everything that may be chosen is chosen by a seeded generator."""

    preempts = True

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._patience = 0.0

    def blocks(self, count: int) -> Sequence[int]:
        """A random permutation."""
        return self._random.sample(range(count), count)

    def warps(self, live: Sequence[int]) -> Sequence[int]:
        """A random permutation, and how eagerly warps alternate until the next barrier."""
        # Alternating evenly would almost never let one warp run far ahead, which is what many races need.
        self._patience = self._random.choice((0.0, 0.9, 1.0))
        return self._random.sample(live, len(live))

    def stay(self) -> bool:
        """More or less often, as drawn at the last barrier."""
        return self._random.random() < self._patience

    def pick(self, queue: Sequence[Warp]) -> int:
        """Any of them."""
        return int(self._random.random() * len(queue))


class ReplayOrder(Order):
    """What a plan says, else in order."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        # Without counts the order in which warps start is all there is: the machine's short path.
        self.preempts = any(count for turns in plan.turns.values() for _, count in turns)
        self.lanes_down = plan.lanes_down
        self._block = 0
        self._interval = -1
        self._todo: list[Turn] = []
        self._left = 0

    def blocks(self, count: int) -> Iterator[int]:
        """In order or the last one first; notes which one runs."""
        for number in range(count - 1, -1, -1) if self._plan.blocks_down else range(count):
            self._block, self._interval = number, -1
            yield number

    def warps(self, live: Sequence[int]) -> Sequence[int]:
        """Those that the plan names for this interval, then the others."""
        self._interval += 1
        turns = self._plan.of(self._block, self._interval)
        self._todo = list(turns)
        self._left = 0
        if self.preempts:
            return live
        named = [warp for warp in dict(turns) if warp in live]
        return [*named, *(warp for warp in live if warp not in named)]

    def stay(self) -> bool:
        """Until the running warp has had its turn."""
        self._left -= 1
        return self._left != 0

    def pick(self, queue: Sequence[Warp]) -> int:
        """The next that the plan names, of those that can go on."""
        while self._todo:
            warp, self._left = self._todo.pop(0)
            for place, waiting in enumerate(queue):
                if waiting.number == warp:
                    return place
        self._left = 0
        return 0
