"""What `lab serve` sends to a server, what each reading of it may be, and what came of it.

A phase is a few requests. A reading is held against how far they are: one request has one value, several have bounds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from kernels.layout import blocks_for
from walkthroughs.lab.metrics import State, bounds, exact
from walkthroughs.lab.scenarios import NULL_BLOCKS, Ask, tokens

NUM_BLOCKS, BLOCK_SIZE, MAX_LEN = 65, 32, 512
"""The server's pool, vLLM's null block counted; tokens a block; the most tokens of a request with its prompt."""
NOT_SENT = -1
HITS, MOST = "hits", "most"
"""What a reader may be asked beside moments: tokens found in the prefix cache, and the most blocks in use."""


@dataclass(frozen=True)
class Phase:
    """Requests that are sent one after the other, `apart` seconds between, and read until all are done.

    `hits`: tokens that they find in the prefix cache in all. `moments`: what a reader is asked first, HITS, MOST, or a
    request with a number of its tokens, at which all others are done.
    """

    id: str
    title: str
    asks: tuple[Ask, ...]
    apart: float = 0.0
    hits: int = 0
    moments: tuple[str | tuple[str, int], ...] = ()

    @property
    def generate(self) -> int:
        """Tokens that the requests generate together."""
        return sum(ask.generate for ask in self.asks)

    @property
    def most(self) -> int:
        """The most blocks in use together: no more than the pool has, nor than each at its longest."""
        return min(sum(map(longest, self.asks)), NUM_BLOCKS - NULL_BLOCKS)

    def line(self) -> tuple[int, ...] | None:
        """The blocks in use after 0, 1, 2 … tokens, where there is one request and so one value."""
        if len(self.asks) != 1:
            return None
        return tuple(self.expected(n, (n,))[0] for n in range(self.generate + 1))

    def expected(self, generated: int, received: Sequence[int]) -> tuple[int, int]:
        """The least and the most blocks in use when `generated` tokens in all were generated.

        `received`: tokens that came of each request before the reading, NOT_SENT for one not even sent after it.
        """
        if len(self.asks) == 1:
            value = exact(len(self.asks[0].prompt), self.asks[0].generate, generated, BLOCK_SIZE)
            return value, value
        states = [
            State(len(ask.prompt), ask.generate, max(count, 0), count != NOT_SENT)
            for ask, count in zip(self.asks, received, strict=True)
        ]
        return bounds(states, generated, BLOCK_SIZE)


@dataclass(frozen=True)
class Sample:
    """One reading of the metrics with what it may be: `low` to `high` blocks. `received`: see `Phase.expected`."""

    seconds: float
    generated: int
    used: int
    low: int
    high: int
    received: tuple[int, ...] = ()

    @property
    def fits(self) -> bool:
        """True when the reading lies within its bounds."""
        return self.low <= self.used <= self.high


@dataclass(frozen=True)
class Mark:
    """Something that happened to a request, seen when `generated` tokens in all had been generated."""

    generated: int
    kind: str
    request: str


@dataclass
class Outcome:
    """What a phase showed. `hits`: tokens found in the prefix cache, by the server's own count."""

    phase: Phase
    samples: list[Sample] = field(default_factory=list)
    hits: int = 0
    left: int = -1
    """Blocks in use after the last request: none should be."""

    @property
    def problems(self) -> list[str]:
        """What differs from the prediction, in words."""
        found = [
            f"after {sample.seconds:.2f} s and {sample.generated} tokens: {sample.used} blocks, expected "
            + (f"{sample.low}" if sample.low == sample.high else f"{sample.low} to {sample.high}")
            for sample in self.samples
            if not sample.fits
        ]
        if self.hits != self.phase.hits:
            found.append(f"{self.hits} tokens found in the prefix cache, expected {self.phase.hits}")
        if self.left:
            found.append(f"{self.left} blocks in use after the end, expected 0")
        if not self.samples:
            found.append("the metrics were not read while a request ran")
        return found

    @property
    def status(self) -> str:
        """`passed` when every reading fits, the hits are as predicted and every block was given back."""
        return "failed" if self.problems else "passed"


def marks(phase: Phase, samples: Sequence[Sample], *, over: bool) -> tuple[Mark, ...]:
    """Who was admitted, who found a prefix, where a single request takes a block more, and who was freed.

    Of several requests each at the first reading that knows of it; of a single one as predicted, as far as the readings
    have come. `over`: the phase has ended, so that whoever was not yet seen to be done is done.
    """
    found = []
    reached = phase.generate if over else max((sample.generated for sample in samples), default=0)
    line = phase.line()
    for place, ask in enumerate(phase.asks):
        counts = [(sample.generated, sample.received[place]) for sample in samples if sample.received]
        first = 1 if line else next((generated for generated, count in counts if count > 0), phase.generate)
        last = phase.generate if line else next((n for n, count in counts if count == ask.generate), phase.generate)
        kinds = {"admitted": first, **({"hit": first} if phase.hits else {}), "freed": last}
        found += [Mark(n, kind, ask.name) for kind, n in kinds.items() if n <= reached]
    edges = [n for n in range(2, reached + 1) if line and line[n] > line[n - 1]]
    found += [Mark(n, "edge", phase.asks[0].name) for n in edges]
    return tuple(sorted(found, key=lambda mark: mark.generated))


def longest(ask: Ask) -> int:
    """Blocks of a request just before its last token, which is never written: then it holds the most."""
    return blocks_for(len(ask.prompt) + max(ask.generate - 2, 0), BLOCK_SIZE)


def common_prefix(one: Ask, other: Ask) -> int:
    """Tokens with which both prompts begin."""
    pairs = zip(one.prompt, other.prompt, strict=False)
    return next((n for n, (left, right) in enumerate(pairs) if left != right), min(len(one.prompt), len(other.prompt)))


def found_again(earlier: Ask, later: Ask) -> int:
    """Tokens that `later` finds in the prefix cache: whole blocks, and never its last token, whose output is wanted."""
    return min(common_prefix(earlier, later), len(later.prompt) - 1) // BLOCK_SIZE * BLOCK_SIZE


def phases() -> tuple[Phase, ...]:
    """What `lab serve` sends: one request, several of different lengths, and two with a common prefix in turn."""
    common = tokens("serve shared", 100)
    alone = Ask("a", tokens("serve a", 30), 400)
    lengths = (("b", 40, 300), ("c", 100, 200), ("d", 7, 400))
    several = tuple(Ask(name, tokens(f"serve {name}", prompt), generate) for name, prompt, generate in lengths)
    first = Ask("e", common + tokens("serve e", 9), 100)
    again = Ask("f", common + tokens("serve f", 20), 100)
    hits = found_again(first, again)
    return (
        Phase("single", "One request", (alone,), moments=(("a", 3), ("a", 4), ("a", 400))),
        Phase("several", "Three of different lengths, one after the other", several, 0.25, moments=(MOST, ("d", 390))),
        Phase("first", f"A prefix of {len(common)} tokens, for the first time", (first,), moments=(HITS, ("e", 1))),
        Phase("again", "The same prefix again", (again,), hits=hits, moments=(HITS, ("f", 9), ("f", 10))),
    )
