"""Runs the cases of the ops' grids in worker processes, so that a crash costs one row and not the run.

A worker takes one unit (all cases that share compiled kernels) after another, case by case. A case that kills its
worker, breaks its CUDA context or never ends becomes an error row; a new worker goes on with the next case.
"""

from __future__ import annotations

import contextlib
import importlib
import math
import os
import queue
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any

from kernels.vllm import ops_device

SOURCE = "kernels.vllm.ops_grid"
"""The module whose `all_groups(small)` lists the cases; tests name another."""
SECONDS = 240.0
"""How long one case may take, compiling included."""
START_SECONDS = 300.0
PASSED, FAILED, BLIND, ERROR, REFUSED = "passed", "failed", "blind", "error", "refused"
OUT_OF_MEMORY = "OutOfMemoryError"


@dataclass(frozen=True)
class Row:
    """What one case showed. `blind`: right, but zeros or mis-paired keys would have passed too, which ours must not.

    `refused`: as it must be, the op did not take the call; `message` has its words.
    """

    group: str
    id: str
    result: str
    error: float = math.inf
    tolerance: float = 0.0
    zeros_pass: bool | None = None
    shuffled_keys_pass: bool | None = None
    runs: int = 0
    message: str = ""


@dataclass(frozen=True)
class Task:
    """One case, by its group and its place there."""

    group: str
    index: int
    id: str
    unit: str


@dataclass(frozen=True)
class Plan:
    """Where cases come from and run: `device` cuda or cpu."""

    device: str
    small: bool = False
    source: str = SOURCE
    seconds: float = SECONDS

    def groups(self) -> Mapping[str, Sequence[Any]]:
        """The cases, by group."""
        found: Mapping[str, Sequence[Any]] = importlib.import_module(self.source).all_groups(self.small)
        return found

    def tasks(self, only: Iterable[str] = ()) -> list[Task]:
        """Every case of the chosen groups (all without a choice)."""
        chosen = set(only)
        return [
            Task(group, index, case.id, case.unit)
            for group, cases in self.groups().items()
            if not chosen or group in chosen
            for index, case in enumerate(cases)
        ]


class WorkerDied(Exception):
    """A worker that is gone or does not answer; says which."""


def run_all(plan: Plan, tasks: Sequence[Task], jobs: int, told: Callable[[Row], None] = lambda row: None) -> list[Row]:
    """One row for each task, in order, by `jobs` workers; `told` hears of each as it comes.

    What did not fit into memory beside the others runs once more at the end, alone.
    """
    done = _pool(plan, tasks, jobs, told)
    again = [task for task in tasks if done[task].message.startswith(OUT_OF_MEMORY)]
    if again and jobs > 1:
        done.update(_pool(plan, again, 1, told))
    return [done[task] for task in tasks]


def _pool(plan: Plan, tasks: Sequence[Task], jobs: int, told: Callable[[Row], None]) -> dict[Task, Row]:
    units: dict[str, list[Task]] = {}
    for task in tasks:
        units.setdefault(task.unit, []).append(task)
    # The unit with the most cases first: what is started last decides when the run ends.
    todo: queue.SimpleQueue[list[Task]] = queue.SimpleQueue()
    for unit in sorted(units.values(), key=len, reverse=True):
        todo.put(unit)
    done: dict[Task, Row] = {}
    lock = threading.Lock()

    def drain() -> None:
        with _Worker(plan) as worker:
            while True:
                try:
                    unit = todo.get_nowait()
                except queue.Empty:
                    return
                for task in unit:
                    row = worker.row(task)
                    with lock:
                        done[task] = row
                        told(row)

    threads = [threading.Thread(target=drain) for _ in range(min(jobs, len(units)))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return done


class _Worker:
    """A process that runs cases; another takes its place when it is lost."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.process: Any = None
        self.pipe: Any = None

    def __enter__(self) -> _Worker:
        return self

    def __exit__(self, *error: object) -> None:
        self._stop()

    def row(self, task: Task) -> Row:
        """The row of a case; an error row where the worker was lost over it."""
        try:
            row, alive = self._ask(task)
        except WorkerDied as died:
            row, alive = Row(task.group, task.id, ERROR, message=str(died)), False
        if not alive:
            self._stop()
        return row

    def _ask(self, task: Task) -> tuple[Row, bool]:
        if self.process is None:
            # Spawned: a CUDA context does not survive a fork.
            context = get_context("spawn")
            self.pipe, theirs = context.Pipe()
            self.process = context.Process(target=serve, args=(theirs, self.plan), daemon=True)
            self.process.start()
            theirs.close()
            # Importing takes its time, and is no part of a case.
            self._answer(START_SECONDS)
        self.pipe.send((task.group, task.index))
        answer: tuple[Row, bool] = self._answer(self.plan.seconds)
        return answer

    def _answer(self, seconds: float) -> Any:
        try:
            if not self.pipe.poll(seconds):
                raise WorkerDied(f"no answer in {seconds:g} s")
            return self.pipe.recv()
        except (EOFError, OSError) as error:
            self.process.join(10)
            raise WorkerDied(f"the worker ended with exit code {self.process.exitcode}") from error

    def _stop(self) -> None:
        if self.process is None:
            return
        self.pipe.close()
        self.process.join(5)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()
        self.process = None


def serve(pipe: Connection, plan: Plan) -> None:
    """A worker's life: cases in, (row, whether it can go on) out, until the pipe is closed. Its first word is True."""
    ops_device.one_thread()
    groups = plan.groups()
    pipe.send(True)
    with contextlib.suppress(EOFError):
        while True:
            group, index = pipe.recv()
            row = run_case(group, groups[group][index], plan.device)
            alive = row.result != ERROR or ops_device.works(plan.device)
            pipe.send((row, alive))
            if not alive:
                # The CUDA context is broken: tearing it down in an orderly way may hang.
                os._exit(1)


def run_case(group: str, case: Any, device: str) -> Row:
    """Run one case here; what it raises becomes its row."""
    try:
        found = case.run(device)
    except Exception as error:
        return Row(group, case.id, ERROR, message=f"{type(error).__name__}: {error}"[:300])
    finally:
        ops_device.give_memory_back(device)
    refused = str(getattr(found, "refused", ""))
    blind = not group.startswith("vllm") and (found.zeros_pass or found.shuffled_keys_pass)
    result = FAILED if not found.passed else REFUSED if refused else BLIND if blind else PASSED
    return Row(
        group, case.id, result, found.error, found.tolerance, found.zeros_pass, found.shuffled_keys_pass, found.runs,
        refused[:300],
    )  # fmt: skip


def clock() -> Callable[[], float]:
    """Seconds since this call."""
    started = time.perf_counter()
    return lambda: time.perf_counter() - started
