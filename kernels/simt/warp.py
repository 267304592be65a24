"""A warp: 32 lanes that take turns, each as far as its next warp operation, barrier or return.

The usual case is cheap: every lane arrives at the same line, hands its value over and switches straight to
the next lane, with no hub between; the last one publishes all values and switches to the first. Only when
lanes arrive at different places (`arrive`) or do not all go on (`settle`) is anything sorted out lane by
lane.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from types import CodeType
from typing import TYPE_CHECKING, Any

from kernels.simt.position import Dim3
from kernels.simt.report import BarrierDivergence, Group, ShuffleError, line_of, show_ranges

if TYPE_CHECKING:
    from kernels.simt.machine import Machine

WARP_SIZE = 32
FULL_MASK = 0xFFFFFFFF
NOWHERE, RETURNED = -1, -2  # stand where a bytecode offset of a real call would

# What a lane can arrive at. MASKED: shuffles, votes, syncwarp.
MASKED, ACTIVE, SLEEP, BARRIER, EXIT = range(5)
_KINDS = {
    "activemask": ACTIVE,
    "nanosleep": SLEEP,
    "exit": EXIT,
    **dict.fromkeys(("syncthreads", "syncthreads_count", "syncthreads_and", "syncthreads_or"), BARRIER),
}


class Op:
    """One operation at one call in the kernel, with the mask it was given; lanes there together share it."""

    __slots__ = ("code", "kind", "lanes", "lasti", "mask", "what")

    def __init__(self, what: str, code: CodeType | None, lasti: int, mask: Any) -> None:
        self.what = what
        self.kind = _KINDS.get(what, MASKED)
        self.code = code
        self.lasti = lasti
        self.mask = mask
        self.lanes = int(mask) & FULL_MASK if mask is not None else 0

    def same(self, other: Op) -> bool:
        """Whether both are the same call with the same mask."""
        return self.lasti == other.lasti and self.code is other.code and self.lanes == other.lanes

    @property
    def spot(self) -> tuple[str, int]:
        """File and line of the call."""
        return (self.code.co_filename, line_of(self.code, self.lasti)) if self.code is not None else ("", 0)


class Lane(Dim3):
    """One thread. It is itself the `cuda.threadIdx` of its kernel code, so a switch stores one reference."""

    __slots__ = ("active", "go", "greenlet", "lid", "number", "op", "warp")

    active: int  # what activemask gave
    go: Callable[[], object]  # hands over to the next lane of the pass, or ends the pass
    greenlet: Any
    op: Op  # where it waits; valid for lanes outside the current pass

    def __init__(self, x: int, y: int, z: int, number: int, warp: Warp) -> None:
        super().__init__(x, y, z)
        self.number = number
        self.lid = number % WARP_SIZE
        self.warp = warp
        self.active = 0


class Warp:
    """Up to 32 lanes of one thread block. A *pass* runs each ready lane once, to its next operation."""

    __slots__ = (
        "alive",
        "barrier",
        "code",
        "count",
        "everyone",
        "first",
        "lanes",
        "lasti",
        "machine",
        "mask",
        "mixed",
        "number",
        "op",
        "quick",
        "ready",
        "ready_bits",
        "result",
        "vals",
        "vote",
        "voted",
        "voters",
    )

    first: Callable[[], object]  # switches to the first lane of the pass

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.number = len(machine.warps)
        self.lanes: list[Lane] = []
        self.everyone = 0
        # What the first lane of the pass arrived at; the facade compares the next three fields.
        self.op = Op("exit", None, RETURNED, None)
        self.code: CodeType | None = None
        self.lasti = NOWHERE
        self.mask: Any = None
        self.quick = False  # all lanes of the pass may simply go on
        self.mixed = False  # some lane arrived elsewhere: each has its own `op`
        self.ready: list[Lane] = []
        self.ready_bits = 0
        self.count = 0
        self.alive = 0  # bits of lanes that have not returned
        self.barrier: Op | None = None  # where the whole warp waits
        self.vals: list[Any] = [None] * WARP_SIZE  # what each lane handed over last
        self.result: list[Any] = self.vals  # the copy that lanes read after a pass
        self.voted: list[Any] | None = None
        self.voters: Any = None
        self.vote = 0

    def reset(self) -> None:
        """Make every lane ready to run the kernel from its start."""
        self.everyone = self.alive = (1 << len(self.lanes)) - 1
        self.barrier = None
        self.lasti = NOWHERE
        self.set_ready(self.lanes)

    def set_ready(self, lanes: list[Lane]) -> None:
        """Choose the lanes of the next pass and link each to its successor."""
        if self.machine.order.lanes_down:
            lanes = lanes[::-1]
        if lanes == self.ready:
            return
        self.ready = list(lanes)
        self.count = len(lanes)
        self.ready_bits = 0
        for lane, successor in pairwise(lanes):
            lane.go = successor.greenlet.switch
            self.ready_bits |= 1 << lane.lid
        lanes[-1].go = self.finish
        self.ready_bits |= 1 << lanes[-1].lid
        self.first = lanes[0].greenlet.switch
        self.lasti = NOWHERE

    def arrive(self, lane: Lane, what: str, code: CodeType | None, lasti: int, mask: Any) -> None:
        """Lane arrives at something else than what this pass stands at: it opens the pass, or it diverges."""
        op = Op(what, code, lasti, mask)
        if lane is self.ready[0]:
            self.op, self.code, self.lasti, self.mask = op, code, lasti, mask
            self.mixed = False
            self.quick = op.kind == MASKED and op.lanes == self.ready_bits
            return
        if not self.mixed:
            self.mixed = True
            self.quick = False
            self.lasti = NOWHERE  # so that every later lane of the pass comes here too
            for other in self.ready:
                if other is lane:
                    break
                other.op = self.op
        lane.op = op

    def finish(self) -> None:
        """The last lane of a pass calls this: publish the values and start the next pass."""
        self.machine.switches += self.count
        if self.quick:
            self.result = self.vals.copy()
            if self.machine.preempts:
                self.machine.turn(self)
            else:
                self.first()
        else:
            self.settle()

    def settle(self) -> None:
        """Sort out which lanes go on after a pass that was not simply one warp operation of all its lanes."""
        op = self.op
        if not self.mixed:
            if self.ready_bits == self.alive and op.kind in (BARRIER, EXIT):
                if op.kind == EXIT:
                    self.alive = 0
                else:
                    self.barrier = op
                self.machine.advance()
                return
            for lane in self.ready:
                lane.op = op
        for lane in self.ready:
            if lane.op.kind == EXIT:
                self.alive &= ~(1 << lane.lid)
        living = self.living()
        freed = self._freed(living)
        if freed:
            self.set_ready([lane for lane in living if freed >> lane.lid & 1])
            self.result = self.vals.copy()
            kinds = {lane.op.kind for lane in self.ready}
            if SLEEP in kinds:
                self.machine.rest(self, idle=kinds == {SLEEP})
            elif self.machine.preempts:
                self.machine.turn(self)
            else:
                self.first()
            return
        if any(lane.op.kind == MASKED for lane in living):
            self._stuck(living)
        if living:
            self.barrier = living[0].op
            if not all(lane.op.same(self.barrier) for lane in living):
                self.barrier = None
        self.machine.advance()

    def living(self) -> list[Lane]:
        """The lanes that have not returned."""
        return [lane for lane in self.lanes if self.alive >> lane.lid & 1]

    def _freed(self, living: Sequence[Lane]) -> int:
        """Bits of the lanes whose operation is complete."""
        freed = 0
        for lane in living:
            if freed >> lane.lid & 1:
                continue
            if lane.op.kind == MASKED:
                freed |= self._complete(lane, living)
            elif lane.op.kind == SLEEP:
                freed |= 1 << lane.lid
            elif lane.op.kind == ACTIVE:
                together = [other for other in living if other.op.same(lane.op)]
                bits = _bits(together)
                for other in together:
                    other.active = bits
                freed |= bits
        return freed

    def _complete(self, lane: Lane, living: Sequence[Lane]) -> int:
        """The lanes of a warp operation if all are there, else 0; ShuffleError for lanes never to come."""
        op = lane.op
        if not op.lanes >> lane.lid & 1:
            self._fail(f"{op.what} by lane {lane.lid}, outside its own mask {op.lanes:#010x}", living)
        gone = op.lanes & ~self.alive
        if gone and op.what != "syncwarp":  # syncwarp reads nothing, and waits only for lanes still running
            gone_lanes = show_ranges([lid for lid in range(WARP_SIZE) if gone >> lid & 1])
            problem = f"{op.what} with mask {op.lanes:#010x} names lanes that"
            self._fail(f"{problem} returned or never existed ({gone_lanes})", self.lanes)
        members = _bits(other for other in living if op.lanes >> other.lid & 1 and other.op.same(op))
        return members if members == op.lanes & self.alive else 0

    def _stuck(self, living: Sequence[Lane]) -> None:
        """Lanes wait in warp operations for lanes that wait elsewhere, and nothing can move."""
        if any(lane.op.kind == BARRIER for lane in living):
            machine = self.machine
            raise BarrierDivergence(
                "some threads wait at a barrier, others in a warp operation",
                group(self.lanes),
                machine.block_triple,
                machine.name,
            )
        self._fail("lanes of one warp wait for each other in different warp operations", self.lanes)

    def _fail(self, problem: str, lanes: Iterable[Lane]) -> None:
        raise ShuffleError(problem, group(lanes), self.machine.block_triple, self.machine.name)

    def votes(self, mask: Any) -> int:
        """Bits of the lanes in `mask` that handed over a true value in the last pass; counted once a pass."""
        if self.voted is not self.result or self.voters != mask:
            lanes = int(mask) & FULL_MASK
            self.vote = sum(1 << lid for lid, value in enumerate(self.result) if lanes >> lid & 1 and value)
            self.voted, self.voters = self.result, mask
        return self.vote


def _bits(lanes: Iterable[Lane]) -> int:
    return sum(1 << lane.lid for lane in lanes)


def group(lanes: Iterable[Lane]) -> list[Group]:
    """Lanes by what they wait in and where, in the order of their first thread; returned ones as `exited`."""
    found: dict[tuple[Any, ...], list[int]] = {}
    for lane in lanes:
        warp = lane.warp
        if not warp.alive >> lane.lid & 1:
            key: tuple[Any, ...] = ("exited", "", 0)
        else:
            op = warp.barrier or lane.op
            key = (op.what, *op.spot, op.lasti)  # two calls may share a line
        found.setdefault(key, []).append(lane.number)
    return [Group(what, tuple(who), file, line) for (what, file, line, *_), who in found.items()]
