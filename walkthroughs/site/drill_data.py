"""The bank of drills for the pages: every question of a kind with its answer, and where it leads.

Compute and predict are drawn anew at each review; a page shows one example, the one that the exports have, too.
"""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cache
from types import MappingProxyType

from annotate.concepts import concepts
from walkthroughs import step as catalog
from walkthroughs.drills import bank, find, predict_bank, recall
from walkthroughs.drills.asking import fixed_seed
from walkthroughs.drills.compute.problem import GENERATORS
from walkthroughs.drills.item import Item, Point

from .drill_view import DrillKind, DrillPoint, DrillView
from .errors import UnknownPageItem
from .model import Link, Summary

EXAMPLE = (
    "You are asked with other numbers each time, out of those that were drawn when the site was built. Here stands one "
    "example of each; its answer was {by}, not typed in."
)
INTROS: Mapping[str, tuple[str, str, str]] = MappingProxyType(
    {
        "recall": (
            "Recall",
            "Say it in your own words, then compare with the points of a good answer.",
            "Answer aloud or in writing before you unfold the answer. Each point says which step, concept or claim "
            "shows it.",
        ),
        "compute": (
            "Compute",
            "Work out a slot, an address, a size or a lane, with other numbers each time.",
            EXAMPLE.format(by="computed by the same formulas as the kernels use"),
        ),
        "predict": (
            "Predict",
            "A line of a port is about to run: what is the value next?",
            EXAMPLE.format(by="read off a recorded run"),
        ),
        "find": (
            "Find the line",
            "Where in the upstream source is it done? Click the line, or name it.",
            "Look in the source at the pinned revision. The answer links to the lines.",
        ),
    }
)
"""For each kind that is asked on the site: its title, one sentence for the list, and what its page begins with."""
THEMES: Mapping[str, str] = MappingProxyType(
    {
        "01-blocks": "Blocks",
        "02-table": "The block table",
        "03-layout": "How the cache lies in memory",
        "04-classic": "vLLM's classic kernel",
        "05-partitions": "Partitions",
        "06-exact": "Exact, or an approximation?",
        "07-today": "What vLLM runs today",
        "08-tiny-memory": "tiny-vllm: memory",
        "09-tiny-kernel": "tiny-vllm: the kernel",
        "10-formats": "Number formats",
    }
)
GENERATED: Mapping[str, str] = MappingProxyType(
    {
        "addresses": "Addresses",
        "threads": "Threads and lanes",
        "lengths": "Lengths, blocks and partitions",
        "shared": "Shared memory",
        "memory": "Memory and bandwidth",
        "softmax": "Softmax",
        "values": "Values",
        "writers": "The writers",
        "tiny": "tiny-vllm",
    }
)


FIX = Summary("fix/index", "Fix the kernel", "A port with a fault or a blank in it: mend it, and run it.")


def summaries() -> dict[str, Summary]:
    """The kinds by the page that each has, with how many questions there are; the last one's pages are its own."""
    kinds = [Summary(kind, title, says) for kind, (title, says, _) in INTROS.items()]
    counts = Counter(item.kind for item in bank.items().values())
    return {one.id: replace(one, count=counts[one.id.partition("/")[0]]) for one in (*kinds, FIX)}


def of_concept(name: str) -> tuple[Link, ...]:
    """The drills that lead to a concept."""
    return tuple(_link(item) for item in bank.items().values() if name in item.concepts)


def of_step(name: str) -> tuple[Link, ...]:
    """The drills that lead to a step."""
    return tuple(_link(item) for item in bank.items().values() if name in item.steps)


def _link(item: Item) -> Link:
    page = f"fix/{item.id.partition('/')[2]}.md" if item.kind == "fix" else f"{item.kind}.md#{item.id}"
    return Link(item.title, f"drills/{page}")


@cache
def kind_view(kind: str) -> DrillKind:
    """A kind with every question and answer; predictions record their films. Raises UnknownPageItem."""
    if kind not in INTROS:
        raise UnknownPageItem("kind of drill", kind, INTROS)
    title, _, intro = INTROS[kind]
    groups = _groups(kind)
    order = list(dict.fromkeys(groups.values()))
    questions = [view(item, groups[item.id]) for item in bank.items().values() if item.kind == kind]
    return DrillKind(kind, title, intro, tuple(sorted(questions, key=lambda one: order.index(one.group))))


def view(item: Item, group: str) -> DrillView:
    """One item as it is exported: under the seed that is its own for ever."""
    question = bank.ask(item, fixed_seed(item))
    solved = bank.solve(question)
    # The one point of a graded question says no more than where to look.
    judged = item.kind == "recall"
    points = tuple(DrillPoint(point.text, _links(point)) for point in solved.points) if judged else ()
    links = () if judged else _links(item)
    text = question.text
    if item.kind == "find":
        entry = find.entries()[item.id]
        text = f"In `{entry.source}`: {entry.question}"
    return DrillView(item.id, item.title, item.level, text, solved.answer, points, solved.why, links, item.after, group)


def _groups(kind: str) -> Mapping[str, str]:
    """The heading that each question of a kind stands under."""
    match kind:
        case "recall":
            themes = {path.stem: path for path in recall.FOLDER.glob("*.toml")}
            return {
                entry.item.id: THEMES.get(stem, stem)
                for stem in sorted(themes)
                for entry in recall.read_theme(themes[stem].read_text("utf-8"))
            }
        case "compute":
            modules = {name: _module(made.make) for name, made in GENERATORS.items()}
            return {name: GENERATED.get(module, module) for name, module in modules.items()}
        case "predict":
            return {f"predict/{spec.name}": f"In the recorded run `{spec.film}`" for spec in predict_bank.SPECS}
        case _:
            return {name: f"In {entry.source}" for name, entry in find.entries().items()}


def _module(made: object) -> str:
    module = inspect.getmodule(made)
    return module.__name__.rpartition(".")[2] if module else ""


def _links(point: Point | Item) -> tuple[Link, ...]:
    return (*_steps(point.steps), *_concepts(point.concepts), *_claims(point.claims))


def _steps(names: Iterable[str]) -> list[Link]:
    found = [catalog.get(name) for name in names]
    return [Link(step.title, f"walkthroughs/{step.walkthrough}.md#step-{step.slug}") for step in found]


def _concepts(names: Iterable[str]) -> list[Link]:
    return [Link(concepts()[name].title, f"concepts/{name}.md") for name in names]


def _claims(names: Iterable[str]) -> list[Link]:
    return [Link(f"Claim {name}", f"claims.md#{name}") for name in names]
