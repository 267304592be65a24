"""How many blocks each request holds after each step: arithmetic on our own pool, before any engine has run.

The rules are few. A step gives each running request, in order of arrival, the tokens that it has not computed yet:
its prompt at first, then one token. A request takes a block when a token falls into it; so after a step it holds
blocks for prompt + generated - 1 tokens, as the newest token has no key and value yet. Where the pool is empty, the
request that came last gives all of its blocks back and waits. Who waits comes in when its whole sequence fits.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from kernels import layout
from kernels.block_pool import BlockPool, BlockTable, PoolEmpty
from walkthroughs.lab.scenarios import NULL_BLOCKS, Ask, Scenario

WAITING, RUNNING, PREEMPTED, FINISHED = "waiting", "running", "preempted", "finished"


@dataclass(frozen=True)
class Row:
    """One request after one step. `hit`: tokens that it found in blocks of others when it first came in."""

    name: str
    status: str
    blocks: int
    generated: int
    hit: int


@dataclass(frozen=True)
class Event:
    """Something that a reader should see: admitted, hit, edge (a block more), preempted or freed."""

    kind: str
    request: str
    blocks: int
    """How many blocks it is about: those taken, shared or given back."""


@dataclass(frozen=True)
class Moment:
    """The pool after one step: a row a request that has arrived, and the blocks in use, shared ones counted once."""

    step: int
    rows: tuple[Row, ...]
    used: int
    events: tuple[Event, ...]


@dataclass(eq=False)
class _Sequence:
    ask: Ask
    table: BlockTable
    generated: int = 0
    hit: int = 0
    status: str = WAITING
    preempted: bool = False

    @property
    def total(self) -> int:
        return len(self.ask.prompt) + self.generated

    @property
    def missing(self) -> int:
        return self.total - self.table.num_tokens


@dataclass
class Scheduler:
    """First come, first served, on a `BlockPool` without vLLM's null block."""

    scenario: Scenario
    step: int = 0
    _known: list[_Sequence] = field(default_factory=list)
    _running: list[_Sequence] = field(default_factory=list)
    _waiting: deque[_Sequence] = field(default_factory=deque)
    _events: list[Event] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.pool = BlockPool(self.scenario.num_blocks - NULL_BLOCKS, self.scenario.block_size)
        self._to_come = sorted(self.scenario.requests, key=lambda ask: ask.arrives)

    @property
    def done(self) -> bool:
        """True when every request has come and gone."""
        return not (self._to_come or self._running or self._waiting)

    def advance(self) -> Moment:
        """One step: who arrives, who grows, who comes in, and who is done."""
        self.step += 1
        self._events = []
        while self._to_come and self._to_come[0].arrives <= self.step:
            newcomer = _Sequence(self._to_come.pop(0), BlockTable(self.pool))
            self._known.append(newcomer)
            self._waiting.append(newcomer)
        budget, preempted = self._grow_running(self.scenario.batch_tokens)
        if not preempted:
            self._admit(budget)
        for sequence in [one for one in self._running if not one.missing]:
            sequence.generated += 1
            if sequence.generated == sequence.ask.generate:
                self._leave(sequence, FINISHED, "freed")
        return Moment(self.step, tuple(map(_row, self._known)), self.pool.num_used, tuple(self._events))

    def _grow_running(self, budget: int) -> tuple[int, bool]:
        """Give each running request its tokens; return what is left of the budget, and whether one had to go."""
        place, preempted = 0, False
        while place < len(self._running) and budget:
            sequence = self._running[place]
            count = min(sequence.missing, budget)
            while not self._append(sequence, count):
                preempted = True
                last = self._running[-1]
                self._leave(last, PREEMPTED, "preempted")
                self._waiting.appendleft(last)
                if last is sequence:
                    return budget, preempted
            budget -= count
            place += 1
        return budget, preempted

    def _append(self, sequence: _Sequence, count: int) -> bool:
        before = len(sequence.table.blocks)
        try:
            sequence.table.append(count)
        except PoolEmpty:
            return False
        if taken := len(sequence.table.blocks) - before:
            self._events.append(Event("edge", sequence.ask.name, taken))
        return True

    def _admit(self, budget: int) -> None:
        """Let requests in, in order, while tokens and places are left and the whole of the next one fits."""
        while self._waiting and budget and len(self._running) < self.scenario.max_seqs:
            sequence = self._waiting[0]
            table, hit = self._shared(sequence)
            needed = layout.blocks_for(sequence.total, self.scenario.block_size) - len(table.blocks)
            if needed > self.pool.num_free:
                table.release()
                return
            shared = len(table.blocks)
            count = min(sequence.total - hit, budget)
            table.append(hit + count - table.num_tokens)
            sequence.table, sequence.status = table, RUNNING
            if not sequence.preempted:
                sequence.hit = hit
            self._waiting.popleft()
            self._running.append(sequence)
            budget -= count
            if hit:
                self._events.append(Event("hit", sequence.ask.name, hit // self.scenario.block_size))
            self._events.append(Event("admitted", sequence.ask.name, len(table.blocks) - shared))

    def _shared(self, newcomer: _Sequence) -> tuple[BlockTable, int]:
        """A table over the full blocks that somebody holds already, and the tokens found in blocks, held or let go.

        The newcomer's last token is always computed, as its output is wanted: it is never found. Nothing that was let
        go is overwritten here (`Scenario` sees to it), so it is found as well; its blocks have to be taken again.
        """
        empty = BlockTable(self.pool), 0
        if not self.scenario.sharing:
            return empty
        size, most = self.scenario.block_size, newcomer.total - 1
        best, found = empty
        for other in self._known:
            if other is newcomer or other.status == WAITING:
                continue
            common = min(_common(other.ask.prompt, newcomer.ask.prompt), most)
            held = min(common, other.table.num_tokens)
            if held // size > len(best.blocks):
                best.release()
                best = other.table.share_prefix(held)
            seen = common if other.status == FINISHED else held
            found = max(found, seen // size * size)
        return best, found

    def _leave(self, sequence: _Sequence, status: str, kind: str) -> None:
        self._events.append(Event(kind, sequence.ask.name, len(sequence.table.blocks)))
        sequence.table.release()
        sequence.status = status
        sequence.preempted = sequence.preempted or status == PREEMPTED
        self._running.remove(sequence)


def predict(scenario: Scenario) -> tuple[Moment, ...]:
    """Every moment of a scenario, to the step after which nothing is in use."""
    scheduler = Scheduler(scenario)
    moments = []
    while not scheduler.done:
        moments.append(scheduler.advance())
    return tuple(moments)


def blocks_held(prompt: int, generated: int, block_size: int) -> int:
    """Blocks of a request that runs: those of its tokens but the newest, which has no key and value yet."""
    return layout.blocks_for(prompt + generated - 1, block_size)


def _row(sequence: _Sequence) -> Row:
    blocks = len(sequence.table.blocks)
    return Row(sequence.ask.name, sequence.status, blocks, sequence.generated, sequence.hit)


def _common(one: Iterable[int], other: Iterable[int]) -> int:
    count = 0
    for left, right in zip(one, other, strict=False):
        if left != right:
            break
        count += 1
    return count
