"""Judges a file with a kernel that was put right: by the steps of its task, and by cases that the reader never saw.

The kernels are built out of the file's text as a mutant is, and launched in the place of the port's. What is watched is
found by the regions of that text, so lines may come and go. It runs in the caller's process: see `fix_run`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from kernels.kernel import Backend, Kernel
from kernels.probe import Watch
from walkthroughs import mutations, runner
from walkthroughs.drills import fix_cases, fix_cut, fix_errors, fix_text
from walkthroughs.drills.fix import Task
from walkthroughs.drills.fix_errors import FirstValue
from walkthroughs.drills.fix_verdict import SEEDS as SEEDS
from walkthroughs.drills.fix_verdict import Failure, Verdict
from walkthroughs.server.child import StreamingBench, Tell
from walkthroughs.step import get
from walkthroughs.workbench import ROOT, Bench


class Stopped(Exception):
    """A check did not hold: nothing after it says more. `value`: the first value that is wrong."""

    def __init__(self, value: FirstValue) -> None:
        super().__init__(value.at)
        self.value = value


class FixBench(StreamingBench):
    """A workbench over the reader's text: it finds regions there, and stops at the first check that does not hold."""

    def __init__(self, port: str, bench: Bench, tell: Tell, task: Task, text: str, where: str) -> None:
        super().__init__(port, bench, tell)
        self._task, self._text, self.where = task, text, where

    def watch(
        self,
        name: str,
        value: str | None = None,
        *,
        at: str,
        after: str | None = None,
        by: Sequence[str] = (),
        when: str | None = None,
        part: int = -1,
    ) -> Watch:
        """As Workbench.watch, with the lines of the reader's text for the file of the task."""
        made = super().watch(name, value, at=at, after=after, by=by, when=when, part=part)
        if made.file != str(ROOT / self._task.file):
            return made
        before, now = fix_cut.places((ROOT / self._task.file).read_text("utf-8"), at), fix_cut.places(self._text, at)
        if len(now) != len(before):
            raise fix_errors.Unreadable(f"region {at} is gone: its `# region` and `# endregion` lines must stay")
        return replace(made, lines=now[before.index(made.lines)])

    def check(self, name: str, observed: Any, expected: Any, *, tolerance: float = 0.0, note: str = "") -> None:
        """As Workbench.check; raises Stopped where it does not hold."""
        # Past StreamingBench: the event of a failure says more.
        super(StreamingBench, self).check(name, observed, expected, tolerance=tolerance, note=note)
        made = self.checks[-1]
        self.tell({"event": "check", "where": self.where, **made.to_json()})
        if not made.passed:
            raise Stopped(fix_errors.first_value(observed, expected, tolerance))


@dataclass(frozen=True)
class _Part:
    """One thing to run: a step, or a fresh case with its seed."""

    where: str
    port: str
    bench: Bench
    run: Callable[[Any], None]
    reads: tuple[str, ...]
    seed: int | None


def check(task: Task, text: str, backend: str, seeds: Sequence[int], tell: Tell) -> Verdict:
    """Judge `text` on `backend` (cuda or sim) by the task's steps and by a held-out case for each of `seeds`.

    Stops at the first failure. `tell` gets the events of a live run: running, launch, check, verdict; a check that
    does not hold, and the verdict's `failure`, carry `upstream`. Raises BackendUnavailable.
    """
    started = time.perf_counter()
    text = text.replace("\r\n", "\n")
    chosen = runner.choose(backend)
    device, driver = runner.device(chosen.name)
    checks = held = 0
    first: Failure | None = None

    def through(event: dict[str, Any]) -> None:
        nonlocal checks, held
        if event["event"] == "check":
            checks, held = checks + 1, held + event["passed"]
            if not event["passed"]:
                event = {**event, "upstream": fix_errors.upstream(task, reads)}
        tell(event)

    tell({"event": "running", "backend": chosen.name, "device": device, "driver": driver})
    reads: tuple[str, ...] = (task.shows,)
    try:
        kernels = fix_text.kernels(task, text)
        for part in _parts(task, chosen, kernels, seeds):
            reads = part.reads
            bench = FixBench(part.port, part.bench, through, task, text, part.where)
            try:
                part.run(bench)
            except Stopped as stop:
                first = fix_errors.of_check(task, text, bench.checks[-1], stop.value, part.where, part.seed, reads)
            except Exception as error:
                first = fix_errors.of_error(task, text, error, part.where, part.seed, reads)
            if first is None and not bench.checks:
                first = fix_errors.nothing(task, part.where)
            if first is not None:
                break
    except fix_errors.Unreadable as error:
        first = error.failure
    status = "passed" if first is None else "error" if first.what == "unreadable" else "failed"
    verdict = Verdict(chosen.name, status, first, checks, held, round(time.perf_counter() - started, 3))
    tell({"event": "verdict", **verdict.to_json(), "seed": first.seed if first else None})
    return verdict


def _parts(task: Task, backend: Backend, kernels: tuple[Kernel, ...], seeds: Sequence[int]) -> Iterator[_Part]:
    """The steps, then the held-out cases; all orders of the warps (on a GPU, for a barrier: all delays) get their turn.

    Where it is all about a barrier the steps run under each; else they run once, and the held-out cases take turns.
    """
    named = tuple((kernel.name, kernel) for kernel in kernels)
    benches = [replace(bench, kernels=named) for bench in mutations.benches(backend.name)]
    if backend.name == "cuda" and not task.barrier:
        benches = benches[:1]
    for bench in benches if task.barrier or not task.case else benches[:1]:
        for step in map(get, task.steps):
            yield _Part(f"{step.id}{_how(bench)}", step.port, bench, step.run, step.reads, None)
    if not task.case:
        return
    for number, seed in enumerate(seeds):
        bench = benches[number % len(benches)]
        run = fix_cases.held_out(task.case, seed)
        yield _Part(f"held-out case {seed}{_how(bench)}", fix_cases.port(task), bench, run, (task.shows,), seed)


def _how(bench: Bench) -> str:
    """Under what a kernel runs, where that is not the usual."""
    if bench.sleepy_warp is not None:
        return f", warp {bench.sleepy_warp} delayed"
    return "" if bench.backend.schedule == "in-order" else f", warps {bench.backend.schedule}"
