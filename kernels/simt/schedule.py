"""In which order thread blocks and warps run. Every order given here is one that a GPU may choose.

Lanes of a warp always take turns in ascending order; warps are free between two barriers, and that freedom is
what a schedule decides. A schedule is a value; `start` gives the state of one launch, so equal schedules give
equal runs.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from kernels.simt.report import BadLaunch

KINDS = ("in-order", "reversed", "random")


@dataclass(frozen=True)
class Schedule:
    """`in-order`: warp 0 first, each as far as its next barrier. `reversed`: the last warp first.

    `random`, with a seed: blocks and warps in random order, and after every warp operation another warp may
    go on.
    """

    kind: str = "in-order"
    seed: int = 0

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise BadLaunch("schedule", self.kind, "must be in-order, reversed or random:SEED")

    @classmethod
    def parse(cls, text: str | Schedule) -> Schedule:
        """`"in-order"`, `"reversed"` or `"random:SEED"` as a Schedule; raises BadLaunch for anything else."""
        if isinstance(text, Schedule):
            return text
        kind, colon, seed = text.partition(":")
        if (kind == "random") != bool(colon) or (colon and not seed.isdecimal()):
            raise BadLaunch("schedule", text, "must be in-order, reversed or random:SEED")
        return cls(kind, int(seed or 0))

    def __str__(self) -> str:
        return f"random:{self.seed}" if self.kind == "random" else self.kind

    def start(self) -> Order:
        """The state of this schedule for one launch."""
        if self.kind == "random":
            return RandomOrder(self.seed)
        return ReversedOrder() if self.kind == "reversed" else Order()


class Order:
    """In order. Subclasses choose otherwise; a search over orders is one more subclass."""

    preempts = False
    """Whether `stay` is asked after every warp operation; else a warp goes on as long as it can."""

    def blocks(self, count: int) -> Sequence[int]:
        """The order of the grid's thread blocks, by linear number."""
        return range(count)

    def warps(self, live: Sequence[int]) -> Sequence[int]:
        """The order in which these warps start the interval after a barrier."""
        return live

    def stay(self) -> bool:
        """Whether the running warp goes on after a warp operation."""
        return True

    def pick(self, count: int) -> int:
        """Which of `count` runnable warps goes on; the first is the one that has waited longest."""
        return 0


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

    def pick(self, count: int) -> int:
        """Any of them."""
        return int(self._random.random() * count)
