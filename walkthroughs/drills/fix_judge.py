"""The outer end of a check: starts `fix_run` for each backend of this machine, with its limits, and gives the verdicts.

A file that never ends, eats memory or crashes takes its own process with it and nothing else.
"""

from __future__ import annotations

import asyncio
import secrets
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from kernels.kernel import cuda_unavailable
from walkthroughs.drills.fix import Task
from walkthroughs.drills.fix_verdict import MOST_SEED, SEEDS, Failure, Verdict
from walkthroughs.server.process import Child, Limits

COMMAND = (sys.executable, "-m", "walkthroughs.drills.fix_run")
SIM_SECONDS = 40.0
BARRIER_SECONDS = 420.0
Tell = Callable[[dict[str, Any]], None]


def backends() -> tuple[str, ...]:
    """Where kernels can run here: the SIMT machine, and a GPU where one works."""
    return ("sim",) if cuda_unavailable() else ("sim", "cuda")


def limits_of(task: Task, backend: str) -> Limits:
    """What a check may take: on the SIMT machine less than a live run, since its cases are small.

    On a GPU a kernel with a barrier is compiled once for each delay: that may take more.
    """
    usual = Limits.of(backend)
    if backend == "sim":
        return replace(usual, seconds=SIM_SECONDS)
    return replace(usual, seconds=BARRIER_SECONDS) if task.barrier else usual


def fresh_seeds() -> list[int]:
    """Seeds for held-out cases that nobody has seen."""
    return [secrets.randbelow(MOST_SEED) for _ in range(SEEDS)]


def judge(
    task: Task,
    text: str,
    chosen: Sequence[str] | None = None,
    seeds: Sequence[int] | None = None,
    tell: Tell = lambda event: None,
    limits: Limits | None = None,
) -> list[Verdict]:
    """Check `text` on each backend in turn (by default all of this machine); the first that it fails on is the last."""
    verdicts = []
    seeds = fresh_seeds() if seeds is None else seeds
    for backend in chosen or backends():
        verdicts.append(asyncio.run(run(task, text, backend, seeds, tell, limits)))
        if not verdicts[-1].passed:
            break
    return verdicts


async def run(
    task: Task, text: str, backend: str, seeds: Sequence[int], tell: Tell = lambda event: None,
    limits: Limits | None = None,
) -> Verdict:  # fmt: skip
    """Check `text` on one backend in a process of its own."""
    limits = limits or limits_of(task, backend)
    request = {"drill": task.item.id, "text": text, "backend": backend, "seeds": list(seeds)}
    verdict: Verdict | None = None
    message, reason = "", ""
    async for event in Child(COMMAND, request, limits, apart=True).events():
        tell(event)
        if event["event"] == "verdict":
            verdict = Verdict.from_json(event)
        elif event["event"] == "ended":
            message, reason = event["message"], event["reason"]
    if verdict is not None and reason in ("finished", "crashed"):
        return verdict
    return Verdict(backend, "error", Failure("unreadable", _ended(reason, message, limits)))


def _ended(reason: str, message: str, limits: Limits) -> str:
    """Why there is no verdict, in words about a kernel."""
    if reason == "time":
        return f"It ran for {limits.seconds:g} seconds and was ended: is there a loop without an end?"
    return message.replace("The server goes on.", "").strip() or "The check ended without a verdict."
