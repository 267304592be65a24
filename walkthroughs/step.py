"""A step: the smallest unit a reader meets, and everything that is known about it without running it.

A catalog module makes one Walkthrough and decorates its step functions; a step's docstring is its
prose, for the page and the terminal alike. The registry finds catalog modules by itself.
"""

from __future__ import annotations

import difflib
import importlib
import inspect
import pkgutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from walkthroughs.workbench import Workbench

StepFunction = Callable[["Workbench"], None]


class UnknownStep(LookupError):
    """No step or walkthrough has that id; the message names the nearest ones."""

    def __init__(self, name: str, known: Sequence[str]) -> None:
        self.name = name
        self.nearest = difflib.get_close_matches(name, known, n=3, cutoff=0.4)
        hint = f"; did you mean {', '.join(self.nearest)}?" if self.nearest else "; see `pagewalk list`"
        super().__init__(f"no step or walkthrough is called {name!r}{hint}")


@dataclass(frozen=True)
class Step:
    """One explained and checked piece of a kernel.

    `reads`: concept ids, the lines that this step shows. `source`: where the left pane comes from, a pinned
    source (`vllm@0.24.0`) or a file of ours (`kernels/reference.py`). `port`: the file that runs, on the right.
    `seen`: a committed record that it reads, such as the live lab's, relative to the repository; "" for none.
    """

    id: str
    title: str
    reads: tuple[str, ...]
    source: str
    port: str
    run: StepFunction
    seen: str = ""

    @property
    def walkthrough(self) -> str:
        """The id of the walkthrough, the part before the slash."""
        return self.id.split("/")[0]

    @property
    def slug(self) -> str:
        """The part of the id after the slash; `#step-<slug>` on the page."""
        return self.id.split("/")[1]

    @property
    def prose(self) -> str:
        """The explanation, Markdown: the docstring of the step function."""
        return inspect.cleandoc(self.run.__doc__ or "")


@dataclass
class Walkthrough:
    """An ordered list of steps with a title and an introduction (Markdown).

    `seen`: the record that its steps read. What they show happened on the machine that made it, so their committed
    records may be of that machine too, and need no GPU.
    """

    id: str
    title: str
    intro: str
    source: str
    port: str
    seen: str = ""
    steps: list[Step] = field(default_factory=list)

    def step(
        self, slug: str, *, title: str, reads: tuple[str, ...], source: str | None = None, port: str | None = None
    ) -> Callable[[StepFunction], StepFunction]:
        """Register the decorated function as the next step; source and port default to the walkthrough's."""

        def register(run: StepFunction) -> StepFunction:
            panes = (source or self.source, port or self.port)
            self.steps.append(Step(f"{self.id}/{slug}", title, reads, *panes, run, self.seen))
            return run

        return register


def registry() -> dict[str, Walkthrough]:
    """Every walkthrough of the catalog, by id, in the order of their `ORDER`."""
    from walkthroughs import catalog

    modules = [importlib.import_module(f"{catalog.__name__}.{m.name}") for m in pkgutil.iter_modules(catalog.__path__)]
    found = sorted((module for module in modules if hasattr(module, "WALKTHROUGH")), key=lambda m: m.ORDER)
    return {module.WALKTHROUGH.id: module.WALKTHROUGH for module in found}


def steps() -> dict[str, Step]:
    """Every step by its id, in reading order."""
    return {step.id: step for walkthrough in registry().values() for step in walkthrough.steps}


def get(step_id: str) -> Step:
    """One step; raises UnknownStep with the nearest ids."""
    known = steps()
    if step_id not in known:
        raise UnknownStep(step_id, [*known, *registry()])
    return known[step_id]


def select(names: Sequence[str]) -> list[Step]:
    """The steps that the names (of steps or walkthroughs) mean, in reading order; raises UnknownStep."""
    wanted: set[str] = set()
    walkthroughs = registry()
    for name in names:
        wanted |= {s.id for s in walkthroughs[name].steps} if name in walkthroughs else {get(name).id}
    return [step for step in steps().values() if step.id in wanted]
