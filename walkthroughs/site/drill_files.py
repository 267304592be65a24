"""The drills as files that a page can load: `docs/assets/drills/NAME.js`, made when the site is prepared.

`bank` holds every item with its links, and the recall and find questions; `compute` and `predict` hold drawn questions,
their answers worked out here; a `source-…` file holds an upstream file, where its source is on this machine. Each is
one line of JavaScript that registers packed JSON, as a film's file is.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, cast

from markdown import Markdown

from annotate import render
from annotate.concepts import concepts
from annotate.errors import SourceUnavailable
from annotate.sourcetree import pins
from annotate.spans import Span, spans
from walkthroughs import packing
from walkthroughs import step as catalog
from walkthroughs.drills import bank, find, recall
from walkthroughs.drills.item import Item, Point, Question
from walkthroughs.stepper.films import film, record

from . import code

FOLDER = code.ROOT / "docs" / "assets" / "drills"
DRAWS = 40
"""Questions that are drawn of a generated item; of them, those that are the same are kept once."""
LIMIT = 300_000
"""The most bytes that a file may have; a test holds every file to it."""
SCHEMA = 1
KINDS = ("recall", "compute", "predict", "find")
"""What a page can ask and grade."""
# What pages are written with, less headings and our own directives: no drill has any.
EXTENSIONS = (
    "admonition", "attr_list", "def_list", "md_in_html", "tables",
    "pymdownx.highlight", "pymdownx.inlinehilite", "pymdownx.superfences",
)  # fmt: skip
Link = dict[str, str]


def html(text: str) -> str:
    """A text of a drill as HTML, made by the same Markdown as the pages."""
    made: str = _markdown().reset().convert(text)
    return made


@cache
def _markdown() -> Markdown:
    return Markdown(extensions=list(EXTENSIONS))


# -- the bank


def bank_content(items: Iterable[Item]) -> dict[str, Any]:
    """Every item, and the recall and find questions with their answers."""
    found: dict[str, Any] = {"schema": SCHEMA, "items": [], "recall": {}, "find": {}}
    for item in items:
        links = links_of(item.steps, item.concepts, item.claims)
        head = {"id": item.id, "kind": item.kind, "title": item.title, "level": item.level, "after": item.after}
        found["items"].append({**head, "links": links})
        if item.kind == "recall":
            found["recall"][item.id] = recall_content(item)
        elif item.kind == "find":
            found["find"][item.id] = find_content(item)
    return found


def recall_content(item: Item) -> dict[str, Any]:
    """A recall question, the model answer, and its points."""
    question = recall.ask(item, 0)
    solution = recall.solve(question)
    said = recall.grade(question, "").said
    points = [_point(point) for point in solution.points]
    return {"question": html(question.text), "answer": html(solution.answer), "points": points, "said": said}


def find_content(item: Item) -> dict[str, Any]:
    """Where to look, what is right there, and what counts as close: all that grading needs, and no upstream text."""
    entry = find.entries()[item.id]
    wanted = spans(entry.source)[entry.concept]
    solution = find.solve(find.ask(item, 0))
    here = code.tree_of(entry.source) is not None
    paths = dict.fromkeys(span.path for span in wanted)
    return {
        "question": html(f"In `{entry.source}`: {entry.question}"),
        "source": entry.source,
        **places_of(entry.source, wanted),
        "files": [{"path": path, "name": source_name(entry.source, path) if here else ""} for path in paths],
        "answer": solution.answer,
        "points": [_point(point) for point in solution.points],
        "solution": html(solution.why),
    }


def places_of(source: str, wanted: Sequence[Span]) -> dict[str, Any]:
    """The places asked for, with links, and what they lie in.

    `around`: for each file the places of all concepts that hold one of those asked for, as [first, last, title].
    """
    pin = pins()[source]
    rows = [(span.path, span.first, span.last) for span in wanted]
    return {
        "places": [{"path": p, "first": one, "last": end, "href": pin.link(p, one, end)} for p, one, end in rows],
        "around": {path: _around(source, path, wanted) for path in dict.fromkeys(path for path, _, _ in rows)},
    }


def _around(source: str, path: str, wanted: Iterable[Span]) -> list[tuple[int, int, str]]:
    inside = [(span.first, span.last) for span in wanted if span.path == path]
    return [
        (span.first, span.last, concepts()[name].title)
        for name, found in spans(source).items()
        for span in found
        if span.path == path and any(span.first <= first and last <= span.last for first, last in inside)
    ]


def _point(point: Point) -> dict[str, Any]:
    return {"html": html(point.text), "links": links_of(point.steps, point.concepts, point.claims)}


def links_of(steps: Iterable[str], names: Iterable[str], claims: Iterable[str]) -> list[Link]:
    """Where to look, as links that count from the top of the site."""
    found = [catalog.get(name) for name in steps]
    links = [(f"walkthroughs/{step.walkthrough}/#step-{step.slug}", step.title) for step in found]
    links += [(f"concepts/{name}/", concepts()[name].title) for name in names]
    links += [(f"claims/#{name}", f"Claim {name}") for name in claims]
    return [{"href": href, "label": label.replace("`", "")} for href, label in links]


# -- drawn questions


def draws(item: Item, count: int = DRAWS) -> list[dict[str, Any]]:
    """Questions of a generated item, of the seeds from 0; those that are asked in the same words are kept once."""
    found: dict[str, dict[str, Any]] = {}
    for seed in range(count):
        question = bank.ask(item, seed)
        if question.text not in found:
            found[question.text] = draw(question)
    return list(found.values())


def draw(question: Question) -> dict[str, Any]:
    """A drawn question with its answer, as the page gets it."""
    return {
        "seed": question.seed,
        "question": html(question.text),
        "form": question.form,
        **judged(question),
        "solution": html(_why(question)),
        "href": moment_href(question) if question.item.kind == "predict" else "",
    }


def judged(question: Question) -> dict[str, Any]:
    """What the page judges an answer by. `shown`: the answer in words, with its unit."""
    state = cast(Any, question.state)
    slips = state["slips"] if "slips" in state else [[wrong, words] for words, wrong in state["wrong"].items()]
    return {
        "unit": question.unit,
        "answer": value(state["answer"]),
        "shown": bank.solve(question).answer,
        "tolerance": state.get("tolerance", 0),
        "slips": [[value(wrong), words] for wrong, words in slips],
    }


def value(given: object) -> Any:
    """A value as JSON that keeps it exactly: a whole number as its digits, a real one as a number or nan, inf, -inf."""
    if isinstance(given, bool | list):
        return given
    if isinstance(given, int):
        return str(given)
    assert isinstance(given, float), given
    return given if math.isfinite(given) else str(given)


def _why(question: Question) -> str:
    solution = bank.solve(question)
    # A prediction's reason ends with a command for the terminal; a page has a link in its place.
    return solution.points[0].text if question.item.kind == "predict" else solution.why


def moment_href(question: Question) -> str:
    """The address of a prediction's moment in the player, from the top of the site."""
    state = cast(Any, question.state)
    wanted = film(state["film"])
    trace = record(wanted)
    at = trace.events_of(state["thread"]).index(state["event"]) + 1
    thread = trace.threads[state["thread"]].number
    other = f"&thread={thread}" if thread != wanted.focus else ""
    return f"play/{wanted.id}/#{wanted.id}&t={at}{other}"


# -- upstream files


def source_name(source: str, path: str) -> str:
    """The name of an upstream file's data file."""
    return f"source-{source.replace('@', '-')}-{path.rpartition('/')[2]}"


def source_content(source: str, path: str) -> dict[str, Any]:
    """An upstream file, line by line, in the colours of the panes. Raises SourceUnavailable where it is not here."""
    pin, tree = pins()[source], code.tree_of(source)
    if tree is None:
        raise SourceUnavailable(source, "it was not fetched yet")
    text = tree.read(path).decode("utf-8")
    language = {".py": "python", ".md": "markdown"}.get(path[path.rfind(".") :], "cuda")
    count = len(text.splitlines())
    whole = render.excerpt(text, {"": [(1, count)]}, side="upstream", source=source, path=path, language=language)
    return {
        "source": source,
        "path": path,
        "revision": pin.revision,
        "licence": pin.licence,
        "href": pin.link(path),
        "own": tree.marked_copy,
        "lines": [render.line_html(whole, number) for number in range(1, count + 1)],
    }


# -- files


def contents(items: Iterable[Item] | None = None, count: int = DRAWS) -> dict[str, Any]:
    """The content of every file by its name, of all items or of some."""
    chosen = list(bank.items().values() if items is None else items)
    chosen = [item for item in chosen if item.kind in KINDS]
    found: dict[str, Any] = {"bank": bank_content(chosen)}
    for kind in ("compute", "predict"):
        found[kind] = {item.id: draws(item, count) for item in chosen if item.kind == kind}
    for entry in found["bank"]["find"].values():
        for file in entry["files"]:
            if file["name"] and file["name"] not in found:
                found[file["name"]] = source_content(entry["source"], file["path"])
    return found


def write_all(folder: Path = FOLDER, items: Iterable[Item] | None = None, count: int = DRAWS) -> list[Path]:
    """Write every file that is missing or differs, and delete the others; answers the paths touched.

    `items` and `count`: fewer items and draws, for a small site.
    """
    texts = {name: packing.script("pagewalkDrills", name, held) for name, held in contents(items, count).items()}
    return packing.write_all(folder, texts)
