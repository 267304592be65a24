"""Fix the kernel: a port with a fault or a blank in it, which the reader puts right and running code judges.

`fix.toml` says where each port is cut. The port stays the only copy: what the reader gets is its own text with a few
characters changed, and the solution is that text. `fix_check` judges, `fix_folder` keeps the reader's files.
"""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

from annotate.concepts import concept
from walkthroughs.drills import fix_cut
from walkthroughs.drills.errors import DrillError
from walkthroughs.drills.fix_cut import BLANK, ROOT, Cut
from walkthroughs.drills.item import Graded, Item, Question, Solution

TABLE = Path(__file__).with_name("fix.toml")
MUTATIONS = Path(__file__).parents[1] / "mutations.toml"
# A task's steps know their source, too, but asking them imports every kernel. A test holds the two together.
SOURCES = {
    "kernels/gather.py": "",
    "kernels/tiny_vllm/paged.py": "tiny-vllm@e25bf19",
    **{f"kernels/vllm/{n}.py": "vllm@0.26.0" for n in ("cache_fixed", "cache_flash", "paged_2d", "slot_mapping")},
}
DEFAULT_SOURCE = "vllm@0.24.0"
_NEEDED = {"title", "level", "file", "region", "task", "hints", "steps", "why"}
_MORE = {"old", "new", "to", "nth", "mutation", "case", "shows", "barrier", "needs"}


@dataclass(frozen=True)
class Task:
    """One kernel to be put right.

    `file`: the port that is cut, `kernels/….py`. `region`: the concept whose region holds the cut; `shows`: the region
    that the reader is told to look at, the same or one around it. `form`: blank or bug. `text`: the task, Markdown.
    `told`: the hints that are written down; `hints` has the last one, too. `steps`: ids of the steps that judge.
    `case`: the kind of case that is held out (`fix_cases.CASES`), or "". `source`: the pin that has the upstream lines,
    or "". `why`: the explanation. `barrier`: whether a GPU must try it with delayed warps, too.
    """

    item: Item
    file: str
    region: str
    shows: str
    form: Literal["blank", "bug"]
    text: str
    told: tuple[str, ...]
    steps: tuple[str, ...]
    case: str
    source: str
    why: str
    cut: Cut
    barrier: bool = False

    @property
    def name(self) -> str:
        """The part of the id after the slash; also the name of the reader's file."""
        return self.item.id.split("/")[1]

    @property
    def hints(self) -> tuple[str, ...]:
        """From vague to the line itself."""
        return (*self.told, _last_hint(self.file, self.cut, self.form))


@cache
def tasks() -> Mapping[str, Task]:
    """Every task by its item's id, in the order of the table."""
    table = tomllib.loads(TABLE.read_text(encoding="utf-8"))
    return MappingProxyType({f"fix/{name}": _task(name, body) for name, body in table.items()})


def task(name: str) -> Task:
    """One task by its id; raises DrillError."""
    if name not in tasks():
        raise DrillError(f"no kernel to fix is called {name!r}; `pagewalk drill list --kind fix` lists them")
    return tasks()[name]


def solved(wanted: Task) -> str:
    """The port's own text."""
    return (ROOT / wanted.file).read_text("utf-8")


@cache
def unsolved(wanted: Task) -> str:
    """The port's text with the fault or the blank cut in; raises DrillError where the port has changed under it."""
    return fix_cut.cut(solved(wanted), wanted.cut, wanted.item.id)


def excerpt(wanted: Task, text: str | None = None) -> tuple[int, int]:
    """First and last line (1-based) of the region that the task shows, in `text` or else in the unsolved file.

    Where the region has several places, it is the one with the cut. Raises DrillError where `text` lost the region.
    """
    before = unsolved(wanted) if text is None else text
    places = fix_cut.places(before, wanted.shows)
    number = fix_cut.place_of(solved(wanted), wanted.cut, wanted.shows)
    if len(places) <= number:
        raise DrillError(f"the lines `# region: {wanted.shows}` and `# endregion` are gone: they must stay")
    return places[number]


def diff(wanted: Task, text: str | None = None) -> str:
    """What the solution changes in the unsolved file, or in `text`: a unified diff, empty where it is the same."""
    before = (unsolved(wanted) if text is None else text).splitlines()
    # What stands above the port's own text, as a reader's file has it, is no part of the solution.
    above = next((n for n, line in enumerate(before) if line.strip() and not line.startswith("#")), 0)
    after = before[:above] + solved(wanted).splitlines()
    lines = difflib.unified_diff(before, after, wanted.name + ".py", wanted.file, lineterm="", n=2)
    return "\n".join(lines)


def items() -> tuple[Item, ...]:
    """Every task of this kind, in the order of the table."""
    return tuple(wanted.item for wanted in tasks().values())


def ask(item: Item, seed: int) -> Question:
    """The task in words. The seed changes nothing here: the cases that are held out are drawn at each check."""
    wanted = tasks()[item.id]
    return Question(item, seed, wanted.text, "file", state={"file": wanted.file, "region": wanted.shows})


def grade(question: Question, answer: str) -> Graded:
    """Judge a whole file by running it, on every backend of this machine. `answer` is its text."""
    from walkthroughs.drills import fix_judge

    verdicts = fix_judge.judge(tasks()[question.item.id], answer)
    bad = next((verdict for verdict in verdicts if not verdict.passed), None)
    if bad is None:
        return Graded(True, f"Right: it holds on {' and '.join(verdict.backend for verdict in verdicts)}.")
    return Graded(False, bad.said)


def solve(question: Question) -> Solution:
    """The solution as a diff, and why."""
    wanted = tasks()[question.item.id]
    return Solution(f"\n\n```diff\n{diff(wanted)}\n```", why=wanted.why)


def _task(name: str, body: Mapping[str, Any]) -> Task:
    if missing := _NEEDED - body.keys():
        raise DrillError(f"fix.toml, {name}: {', '.join(sorted(missing))} is missing")
    if unknown := body.keys() - _NEEDED - _MORE:
        raise DrillError(f"fix.toml, {name}: nobody knows {', '.join(sorted(unknown))}")
    wanted = concept(body["region"])
    cut = _cut(name, body)
    form: Literal["blank", "bug"] = "blank" if cut.new == BLANK else "bug"
    item = Item(f"fix/{name}", body["title"], int(body["level"]), concepts=(wanted.id,), steps=tuple(body["steps"]))
    shows = body.get("shows", wanted.id)
    text = f"{body['task'].strip()}\n\n{_asked(body['file'], shows, form)}"
    told = tuple(hint.strip() for hint in body["hints"])
    return Task(
        item, body["file"], wanted.id, shows, form, text, told, item.steps, body.get("case", ""),
        SOURCES.get(body["file"], DEFAULT_SOURCE), body["why"].strip(), cut, bool(body.get("barrier", False)),
    )  # fmt: skip


def _cut(name: str, body: Mapping[str, Any]) -> Cut:
    if "mutation" in body:
        found = _mutations().get(body["mutation"])
        if found is None or (found["file"], found["region"]) != (body["file"], body["region"]):
            raise DrillError(f"fix.toml, {name}: no mutation {body['mutation']!r} in {body['file']}, {body['region']}")
        return Cut(found["region"], found["old"], found["new"], found.get("nth", 0))
    return Cut(
        body["region"], body.get("old", ""), body.get("new", BLANK), int(body.get("nth", 0)), body.get("to", ""),
        body.get("needs", ""),
    )  # fmt: skip


@cache
def _mutations() -> dict[str, dict[str, Any]]:
    """The rows of mutations.toml by id; `walkthroughs.mutations` would import every kernel."""
    return {row["id"]: row for row in tomllib.loads(MUTATIONS.read_text("utf-8"))["mutation"]}


def _asked(file: str, shows: str, form: str) -> str:
    what = f"fill the blank `{BLANK}`" if form == "blank" else "find what is wrong and put it right"
    return f"In `{file}`, region `{shows}`: {what}."


def _last_hint(file: str, cut: Cut, form: str) -> str:
    """The line itself, in words that no line number can put out of step; for a blank, what it is made of."""
    text = (ROOT / file).read_text("utf-8")
    if form == "blank":
        names, signs = fix_cut.parts(fix_cut.taken(text, cut))
        made = ", ".join(f"`{name}`" for name in names)
        return f"It is made of {made}" + (f", and of `{' '.join(signs)}`." if signs else ".")
    before, line = fix_cut.around(text, cut)
    return f"It is this line: `{line}`" if line else f"Something is missing behind this line: `{before}`"
