"""Runs scenarios on the real engine and holds every step against the prediction.

An engine is loaded once for all scenarios with the same pool. Each step gives a `Seen`; what differs from the
prediction is a `Mismatch`, which names the step, the request, and both values.
"""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from walkthroughs.lab import environment, process
from walkthroughs.lab.environment import Lab
from walkthroughs.lab.predict import Moment, predict
from walkthroughs.lab.process import Limits
from walkthroughs.lab.scenarios import Scenario

NULL_BLOCK = 0


@dataclass(frozen=True)
class Held:
    """One request in the engine after one step. `blocks`: its physical blocks, in the order of its tokens."""

    status: str
    blocks: tuple[int, ...]
    generated: int
    hit: int
    tokens: tuple[int, ...] = ()


@dataclass(frozen=True)
class Seen:
    """The engine after one step of a scenario. `used`: the blocks in use by its own count, the null block left out."""

    scenario: str
    step: int
    used: int
    requests: Mapping[str, Held]


@dataclass(frozen=True)
class Mismatch:
    """One thing that the engine did otherwise than predicted."""

    step: int
    what: str
    predicted: str
    observed: str

    def __str__(self) -> str:
        return f"after step {self.step}: {self.what}: predicted {self.predicted}, observed {self.observed}"


@dataclass
class Result:
    """A scenario that runs, or has run: what was predicted, what was seen, and what differs."""

    scenario: Scenario
    predicted: tuple[Moment, ...]
    seen: list[Seen] = field(default_factory=list)
    mismatches: list[Mismatch] = field(default_factory=list)

    @property
    def status(self) -> str:
        """`passed` when every predicted step was seen and nothing differed."""
        return "passed" if len(self.seen) == len(self.predicted) and not self.mismatches else "failed"

    def add(self, seen: Seen) -> None:
        """Take in one step, and compare it."""
        before = self.seen[-1] if self.seen else None
        self.seen.append(seen)
        if seen.step > len(self.predicted):
            self.mismatches.append(Mismatch(seen.step, "steps", str(len(self.predicted)), f"{seen.step} or more"))
            return
        self.mismatches += differences(self.predicted[seen.step - 1], seen, before, self.scenario.num_blocks)


@dataclass
class About:
    """What ran: versions by name, the device, and how long its parts took, in seconds."""

    versions: dict[str, str] = field(default_factory=dict)
    device: str = ""
    importing: float = 0.0
    loading: float = 0.0


def differences(moment: Moment, seen: Seen, before: Seen | None, num_blocks: int) -> Iterator[Mismatch]:
    """What differs after one step: counts for each request, the pool's count, and what ids must never do."""
    rows = {row.name: row for row in moment.rows}
    if set(rows) != set(seen.requests):
        yield Mismatch(seen.step, "requests", " ".join(sorted(rows)), " ".join(sorted(seen.requests)))
        return
    for name, row in rows.items():
        held = seen.requests[name]
        pairs = {
            "blocks": (row.blocks, len(held.blocks)),
            "state": (row.status, held.status),
            "tokens generated": (row.generated, held.generated),
            "tokens found in the cache": (row.hit, held.hit),
        }
        for what, (predicted, observed) in pairs.items():
            if predicted != observed:
                yield Mismatch(seen.step, f"{what} of {name}", str(predicted), str(observed))
        yield from _ids(seen.step, name, held, before.requests.get(name) if before else None, num_blocks)
    if moment.used != seen.used:
        yield Mismatch(seen.step, "blocks in use", str(moment.used), str(seen.used))
    distinct = len({block for held in seen.requests.values() for block in held.blocks})
    if distinct != moment.used:
        yield Mismatch(seen.step, "different ids in all tables", str(moment.used), str(distinct))


def _ids(step: int, name: str, held: Held, before: Held | None, num_blocks: int) -> Iterator[Mismatch]:
    """A table holds real blocks, each once; and while its request runs it only grows at its end."""
    if any(not NULL_BLOCK < block < num_blocks for block in held.blocks):
        yield Mismatch(step, f"ids of {name}", f"1 .. {num_blocks - 1}", str(list(held.blocks)))
    if len(set(held.blocks)) < len(held.blocks):
        yield Mismatch(step, f"ids of {name}", "each once", str(list(held.blocks)))
    kept = before.blocks if before and before.status == held.status == "running" else ()
    if held.blocks[: len(kept)] != kept:
        yield Mismatch(step, f"ids of {name}", f"{list(kept)} and more", str(list(held.blocks)))


def settings(scenario: Scenario) -> dict[str, Any]:
    """The engine's arguments for a scenario; scenarios with equal ones share an engine."""
    return {
        "block_size": scenario.block_size,
        "num_gpu_blocks_override": scenario.num_blocks,
        "enable_prefix_caching": scenario.sharing,
        "max_num_seqs": scenario.max_seqs,
        "max_num_batched_tokens": scenario.batch_tokens,
        "max_model_len": scenario.max_model_len,
    }


def request(lab: Lab, scenarios: Sequence[Scenario]) -> dict[str, Any]:
    """What the engine's process is asked for; scenarios keep their order, an engine is loaded when it changes."""
    engines: list[dict[str, Any]] = []
    for scenario in scenarios:
        wanted = {**settings(scenario), **({"load_format": "dummy"} if lab.own else {})}
        if not engines or engines[-1]["settings"] != wanted:
            engines.append({"settings": wanted, "scenarios": []})
        asks = [
            {"name": ask.name, "prompt": ask.prompt, "generate": ask.generate, "arrives": ask.arrives}
            for ask in scenario.requests
        ]
        engines[-1]["scenarios"].append({"id": scenario.id, "requests": asks})
    return {"model": str(lab.model), "engines": engines}


def grouped(scenarios: Iterable[Scenario]) -> list[Scenario]:
    """Scenarios with equal engines side by side, else in their order: an engine takes seconds to load."""
    by_engine: dict[str, list[Scenario]] = {}
    for scenario in scenarios:
        by_engine.setdefault(str(settings(scenario)), []).append(scenario)
    return [scenario for group in by_engine.values() for scenario in group]


def watch(
    lab: Lab, scenarios: Sequence[Scenario], about: About, limits: Limits | None = None
) -> Generator[tuple[Result, Seen] | None, None, None]:
    """Run scenarios; give each step as it is seen, with the result it belongs to, which has taken it in.

    The first of all is None: the process was started, and loads. `about` is filled as the engine tells of itself.
    Raises the errors of `process.events`.
    """
    results = {scenario.id: Result(scenario, predict(scenario)) for scenario in scenarios}
    asked = request(lab, scenarios)
    told = process.events(lab.python, environment.ENGINE, asked, lab.variables(), limits or Limits())
    with contextlib.closing(told):
        for event in told:
            if event["event"] == "started":
                yield None
            elif event["event"] == "imported":
                about.versions, about.importing = dict(event["versions"]), float(event["seconds"])
            elif event["event"] == "loaded":
                about.device, about.loading = str(event["device"]), about.loading + float(event["seconds"])
            elif event["event"] == "step":
                seen = _seen(event)
                results[seen.scenario].add(seen)
                yield results[seen.scenario], seen


def _seen(event: Mapping[str, Any]) -> Seen:
    held = {
        name: Held(row["status"], tuple(row["blocks"]), row["generated"], row["hit"], tuple(row["tokens"]))
        for name, row in event["requests"].items()
    }
    return Seen(event["scenario"], event["step"], event["used"], held)
