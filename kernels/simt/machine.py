"""The machine: runs every thread block of a grid, one after another, each thread in a greenlet of its own.

A block's warps stand in a queue. A warp leaves its turn at a barrier, at its end, or when the schedule says
so; when the queue is empty the barrier opens, or the block is done. Threads are made once a launch and serve
every block, so memory grows with the threads of one block only, and the greenlets stay for the next launch.
"""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable, Sequence
from types import CodeType
from typing import TYPE_CHECKING, Any

import greenlet  # type: ignore[import-untyped]
import numpy as np

from kernels.simt.cells import LocalPool, SharedPool
from kernels.simt.facade import Atomic, Local, Shared, cuda
from kernels.simt.memory import Array, wrap_argument
from kernels.simt.position import Dim3, Position
from kernels.simt.report import (
    BadLaunch,
    BarrierDivergence,
    Deadlock,
    LaunchReport,
    NotModelled,
    SimtError,
    Triple,
    place_of,
)
from kernels.simt.schedule import Schedule
from kernels.simt.warp import RETURNED, WARP_SIZE, Lane, Op, Warp, group

if TYPE_CHECKING:
    from kernels.simt.access import Observer
    from kernels.simt.record import Recorder

MAX_THREADS = 1024
MAX_BLOCK = (1024, 1024, 64)
MAX_GRID = (2**31 - 1, 65535, 65535)
MAX_NAPS = 20_000
"""So many turns of nothing but `nanosleep` count as waiting for what will not come."""

_running = threading.Lock()


def launch(
    fn: Callable[..., None],
    grid: int | Sequence[int],
    block: int | Sequence[int],
    args: Sequence[Any],
    *,
    shared_bytes: int = 0,
    schedule: str | Schedule = "in-order",
    name: str | None = None,
    observers: Sequence[Observer] = (),
    tracer: Recorder | None = None,
) -> LaunchReport:
    """Run a kernel on the machine and return what it did.

    `fn` is a plain function whose globals `cuda` and `libdevice` are this package's; the device functions it
    calls are plain functions too. `grid` and `block`: one to three sizes. NumPy arrays among `args` are
    checked at every access and written in place; anything else is handed on as it is. `shared_bytes`: dynamic
    shared memory. `observers` are told of every access, warp operation and barrier (`access.Observer`). Raises
    BadLaunch, or the SimtError that the kernel earns; an exception of the kernel's own code is raised as it is,
    with a note that names the thread. Two OS threads that launch wait for each other.
    """
    order = Schedule.parse(schedule)
    if shared_bytes < 0:
        raise BadLaunch("shared_bytes", shared_bytes, "must be 0 or more")
    sizes = _sizes("grid", grid, MAX_GRID), _sizes("block", block, MAX_BLOCK)
    if (threads := sizes[1][0] * sizes[1][1] * sizes[1][2]) > MAX_THREADS:
        raise BadLaunch("block", block, f"{threads} threads; a block has 1 to {MAX_THREADS}")
    if cuda.running and cuda.machine.os_thread == threading.get_ident():
        raise BadLaunch("launch", name or fn.__name__, "a kernel cannot launch a kernel")
    if order.kind == "adversarial":
        from kernels.simt.search import launch_searching

        how = {"shared_bytes": shared_bytes, "name": name}
        return launch_searching(fn, grid, block, args, how, {"observers": observers, "tracer": tracer}, order.seed)
    with _running:
        settings = (fn, *sizes, shared_bytes, order, name or fn.__name__)
        if observers:
            from kernels.simt.seen import SeenMachine  # it builds on this module

            machine: Machine = SeenMachine(observers, *settings)
        else:
            machine = Machine(*settings)
        if tracer is not None:
            tracer.attach(machine)
        return machine.run(args)


class Crew(threading.local):
    """Greenlets that wait for their next launch, for each OS thread: starting one costs some twenty switches.

    There are as many as the largest block so far had threads; they hold nothing of the launches that they served.
    """

    def __init__(self) -> None:
        self.idle: list[Any] = []

    def hire(self, hub: Any) -> Any:
        """A greenlet that takes `machine, lane, args`; what it raises comes out in `hub`."""
        if not self.idle:
            worker = greenlet.greenlet(_serve)
            # Started empty-handed: a greenlet keeps the arguments of its first switch for life.
            worker.switch()
            return worker
        worker = self.idle.pop()
        worker.parent = hub
        return worker


_crew = Crew()


def _serve() -> None:
    """The life of a greenlet: one launch after another."""
    while True:
        machine, lane, args = greenlet.getcurrent().parent.switch()
        machine.thread(lane, args)
        del machine, lane, args


class Machine:
    """One launch: the threads of a block, the block that runs, the queue of warps, and what was counted."""

    warp_type = Warp
    tracer: Recorder | None = None

    def __init__(
        self,
        fn: Callable[..., None],
        grid: Triple,
        block: Triple,
        shared_bytes: int,
        schedule: Schedule,
        name: str,
    ) -> None:
        self.fn = fn
        self.name = name
        self.os_thread = threading.get_ident()
        self.schedule = schedule
        self.order = schedule.start()
        self.preempts = self.order.preempts
        self.grid = grid
        self.block = block
        self.shared = SharedPool(cuda, shared_bytes)
        self.local = LocalPool(cuda)
        self.warps: list[Warp] = []
        self.queue: list[Warp] = []
        self.switches = 0
        self.barriers = 0
        self.opened: Op | None = None  # the barrier that opened last
        self.votes = 0  # threads that were true at the last syncthreads_count, _and or _or
        self._naps = 0
        self._nap_mark = 0
        self._over = False
        self._hub: Any = None

    @property
    def lanes(self) -> list[Lane]:
        """Every thread of the block, in linear order."""
        return [lane for warp in self.warps for lane in warp.lanes]

    @property
    def block_triple(self) -> Triple:
        """The block that runs."""
        return cuda.blockIdx.x, cuda.blockIdx.y, cuda.blockIdx.z

    def run(self, args: Sequence[Any]) -> LaunchReport:
        """Run the whole grid; see `launch`."""
        names = _parameters(self.fn)
        wrapped = tuple(self.wrap(arg, names[i] if i < len(names) else f"argument {i}") for i, arg in enumerate(args))
        # A GPU raises no floating-point exceptions.
        with np.errstate(all="ignore"):
            try:
                self._start(wrapped)
                self._run_blocks()
            except SimtError:
                raise
            except Exception as error:
                self._explain(error)
                raise
            else:
                self._over = True
            finally:
                self._stop()
        gx, gy, gz = self.grid
        threads = self.block[0] * self.block[1] * self.block[2]
        blocks = gx * gy * gz
        shared = self.shared.most_bytes
        return LaunchReport(
            self.name, str(self.schedule), blocks, blocks * threads, self.switches, self.barriers, shared
        )

    def fence(self, lane: Lane) -> None:
        """A `threadfence` of the lane: every write is seen at once, so there is nothing to do."""

    def wrap(self, arg: Any, name: str) -> Any:
        """What the kernel gets for an argument."""
        return wrap_argument(arg, name, cuda)

    def _start(self, args: tuple[Any, ...]) -> None:
        """Make the threads and leave each at the door of the kernel."""
        self._hub = greenlet.getcurrent()
        cuda.machine = self
        cuda.gridDim, cuda.blockDim = Dim3(*self.grid), Dim3(*self.block)
        # NumPy keeps errstate in the context, and a greenlet starts with an empty one.
        context = contextvars.copy_context()
        bx, by, bz = self.block
        number = 0
        for z in range(bz):
            for y in range(by):
                for x in range(bx):
                    if number % WARP_SIZE == 0:
                        self.warps.append(self.warp_type(self))
                    lane = Lane(x, y, z, number, self.warps[-1])
                    lane.greenlet = _crew.hire(self._hub)
                    lane.go = self._hub.switch
                    lane.greenlet.gr_context = context.copy()
                    lane.warp.lanes.append(lane)
                    number += 1
                    # Started from here, not by its neighbour: else stacks and recursion depths would nest.
                    lane.greenlet.switch(self, lane, args)

    def thread(self, lane: Lane, args: tuple[Any, ...]) -> None:
        """What one thread does in a launch: the kernel, once for each block."""
        fn, warp = self.fn if self.tracer is None else self.tracer.entry(lane, self.fn), lane.warp
        self._hub.switch()
        while not self._over:
            cuda.threadIdx = lane
            fn(*args)
            if warp.lasti != RETURNED:
                warp.arrive(lane, "exit", None, RETURNED, None)
            lane.go()

    def _run_blocks(self) -> None:
        gx, gy, gz = self.grid
        for number in self.order.blocks(gx * gy * gz):
            cuda.blockIdx = Dim3(number % gx, number // gx % gy, number // (gx * gy))
            self.shared.clear()
            for warp in self.warps:
                warp.reset()
            self._enqueue(self.warps)
            self.advance()  # comes back when the last warp has ended

    def _enqueue(self, warps: Sequence[Warp]) -> None:
        self.queue = [warps[number] for number in self.order.warps(range(len(warps)))]

    def advance(self) -> None:
        """The running warp cannot go on: run another, or open the barrier, or end the block."""
        if not self.queue and not self._open_barrier():
            self._hub.switch()
            return
        pick = self.order.pick(self.queue) if self.preempts else 0
        self.queue.pop(pick).first()

    def turn(self, warp: Warp) -> None:
        """The warp could go on; the schedule may prefer another."""
        if not self.order.stay():
            self.queue.append(warp)
            warp = self.queue.pop(self.order.pick(self.queue))
        warp.first()

    def rest(self, warp: Warp, idle: bool) -> None:
        """Lanes of the warp sleep (`idle`: all that ran): the other warps go first.

        Raises Deadlock when nothing but sleeping has happened for long.
        """
        again = idle and self._nap_mark + warp.count == self.switches
        self._naps = self._naps + 1 if again else 0
        self._nap_mark = self.switches
        if self._naps > MAX_NAPS:
            raise Deadlock("threads sleep and nothing else happens", group(self.lanes), self.block_triple, self.name)
        self.queue.append(warp)
        self.advance()

    def _open_barrier(self) -> bool:
        """Let all warps pass the barrier they wait at; False if none waits. Raises BarrierDivergence."""
        waiting = [warp for warp in self.warps if warp.alive]
        if not waiting:
            return False
        op = waiting[0].barrier
        if any(w.alive != w.everyone for w in self.warps):
            self._diverged("not all threads reach the barrier")
        if op is None or any(w.barrier is None or not w.barrier.same(op) for w in waiting):
            self._diverged("threads wait at different barriers")
        assert op is not None
        if op.what != "syncthreads":
            self.votes = sum(bool(lane.warp.vals[lane.lid]) for lane in self.lanes)
        self.barriers += 1
        self.opened = op
        for warp in waiting:
            warp.barrier = None
            warp.set_ready(warp.lanes)
        self._enqueue(waiting)
        return True

    def _diverged(self, problem: str) -> None:
        raise BarrierDivergence(problem, group(self.lanes), self.block_triple, self.name)

    def _explain(self, error: Exception) -> None:
        """Name the thread in an error of the kernel's own code; NotModelled for names that `cuda` lacks."""
        lane: Any = cuda.threadIdx
        if not isinstance(lane, Lane):  # no thread has started yet
            return
        ours = Position | Shared | Local | Atomic | Array
        if isinstance(error, AttributeError) and isinstance(error.obj, ours):
            what = f"{type(error.obj).__name__.lower()}.{error.name}"
            raise NotModelled(what, place_of(error, cuda)) from error
        error.add_note(f"raised in kernel {place_of(error, cuda)}")

    def _stop(self) -> None:
        """End every thread, whatever it waits for, and leave nothing that keeps them alive."""
        for lane in self.lanes:
            if self._over:  # it waits between two blocks, and comes back
                lane.greenlet.switch()
                _crew.idle.append(lane.greenlet)
                lane.greenlet.gr_context = None
            elif not lane.greenlet.dead:
                lane.greenlet.throw()
            lane.greenlet = None
            del lane.go
        for warp in self.warps:
            warp.lanes.clear()
            warp.ready.clear()
        self.warps.clear()
        self.queue.clear()
        cuda.leave()


def _sizes(argument: str, value: int | Sequence[int], limits: Triple) -> Triple:
    given = tuple(value) if isinstance(value, Sequence) else (value,)
    if not 1 <= len(given) <= 3:
        raise BadLaunch(argument, value, "must be one to three sizes")
    x, y, z = (*(int(size) for size in given), 1, 1)[:3]
    for axis, size, limit in zip("xyz", (x, y, z), limits, strict=True):
        if not 1 <= size <= limit:
            raise BadLaunch(argument, value, f"{axis} must be from 1 to {limit}")
    return x, y, z


def _parameters(fn: Callable[..., None]) -> tuple[str, ...]:
    code: CodeType | None = getattr(fn, "__code__", None)
    return code.co_varnames[: code.co_argcount] if code is not None else ()
