"""The drills' files: every item is there, its answer is the one that Python works out, its links lead somewhere."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from annotate import sources
from annotate.concepts import concepts
from annotate.errors import SourceUnavailable
from annotate.sourcetree import pins
from annotate.spans import spans
from walkthroughs import packing
from walkthroughs import step as catalog
from walkthroughs.claims.ledger import claims
from walkthroughs.drills import bank, find
from walkthroughs.drills.item import Item
from walkthroughs.site import code, drill_files
from walkthroughs.stepper.films import film, record

DOCS = Path(__file__).resolve().parents[2] / "docs"
# Their films are quick to record.
QUICK = ("predict/slot", "predict/stored-element", "predict/merged-row")
ITEMS = [item for item in bank.items().values() if item.kind in ("recall", "compute", "find") or item.id in QUICK]


@pytest.fixture(scope="module")
def contents() -> dict[str, Any]:
    """Every file's content as a page reads it; of the predictions, some."""
    code.tree_of.cache_clear()
    found: dict[str, Any] = json.loads(json.dumps(drill_files.contents(ITEMS)))
    return found


def plain(html: str) -> str:
    """The text of some HTML."""
    return unescape(re.sub(r"<[^>]*>", "", html))


def test_every_item_that_a_page_can_ask_is_there(contents: dict[str, Any]) -> None:
    held = contents["bank"]
    assert [row["id"] for row in held["items"]] == [item.id for item in ITEMS]
    for row, item in zip(held["items"], ITEMS, strict=True):
        assert (row["kind"], row["title"], row["level"], row["after"]) == (
            item.kind,
            item.title,
            item.level,
            item.after,
        )
        assert len(row["links"]) == len({*item.steps}) + len({*item.concepts}) + len({*item.claims})
    kinds = {
        "recall": held["recall"],
        "find": held["find"],
        "compute": contents["compute"],
        "predict": contents["predict"],
    }
    for kind, table in kinds.items():
        assert list(table) == [item.id for item in ITEMS if item.kind == kind]
        assert table
    assert held["schema"] == drill_files.SCHEMA


def test_what_a_page_cannot_judge_is_left_out() -> None:
    strange = Item("fix/mask", "Fix the mask", 2, concepts=("block-table-row",))
    found = drill_files.contents([strange, ITEMS[0]], 1)
    assert [row["id"] for row in found["bank"]["items"]] == [ITEMS[0].id]


def test_every_file_is_small(contents: dict[str, Any]) -> None:
    sizes = {name: len(packing.script("pagewalkDrills", name, held)) for name, held in contents.items()}
    assert {name: size for name, size in sizes.items() if size > drill_files.LIMIT} == {}


def test_the_same_each_time(contents: dict[str, Any]) -> None:
    some = [*ITEMS[::40], bank.item("predict/slot")]
    first, again = (drill_files.contents(some, 4) for _ in range(2))
    assert json.dumps(first) == json.dumps(again)
    assert json.loads(json.dumps(first["compute"])) == {
        item.id: contents["compute"][item.id][:4] for item in some if item.kind == "compute"
    }


def test_recall_has_the_question_the_answer_and_every_point(contents: dict[str, Any]) -> None:
    for name, held in contents["bank"]["recall"].items():
        question = bank.ask(bank.item(name), 0)
        solution = bank.solve(question)
        assert held["question"] == drill_files.html(question.text)
        assert held["answer"] == drill_files.html(solution.answer)
        assert [point["html"] for point in held["points"]] == [
            drill_files.html(point.text) for point in solution.points
        ]
        assert all(point["links"] for point in held["points"])
        assert held["said"] == bank.grade(question, "").said


def test_texts_are_the_pages_markdown() -> None:
    assert drill_files.html("`a < b` and *so*\n\n- one\n- two & three") == (
        "<p><code>a &lt; b</code> and <em>so</em></p>\n<ul>\n<li>one</li>\n<li>two &amp; three</li>\n</ul>"
    )
    assert 'class="highlight"' in drill_files.html("Look:\n\n    x = 1")
    used = (DOCS.parent / "mkdocs.yml").read_text("utf-8")
    assert [name for name in drill_files.EXTENSIONS if f"  - {name}\n" not in used] == []


@pytest.mark.parametrize("kind", ["compute", "predict"])
def test_a_draw_is_what_the_terminal_asks(contents: dict[str, Any], kind: str) -> None:
    """Question, answer and slips of every draw; the answer itself is judged right, a slip gets its name."""
    for name, draws in contents[kind].items():
        assert 3 <= len(draws) <= drill_files.DRAWS
        assert len({draw["question"] for draw in draws}) == len(draws)
        for draw in draws[::3]:
            question = bank.ask(bank.item(name), draw["seed"])
            state: dict[str, Any] = question.state
            assert draw["question"] == drill_files.html(question.text)
            assert (draw["unit"], draw["form"]) == (question.unit, question.form)
            assert read(draw["answer"]) == state["answer"]
            assert type(read(draw["answer"])) is type(state["answer"])
            assert draw["shown"] == bank.solve(question).answer
            slips = state["slips"] if kind == "compute" else [[value, words] for words, value in state["wrong"].items()]
            assert [[read(value), words] for value, words in draw["slips"]] == slips
            assert draw["solution"].startswith("<")


def read(value: Any) -> Any:
    """A value of a draw, read as the page reads it."""
    if not isinstance(value, str):
        return value
    return float(value) if value in ("nan", "inf", "-inf") else int(value)


@given(st.booleans() | st.integers() | st.floats(allow_nan=False) | st.lists(st.integers(-9, 9)))
def test_a_value_is_kept_exactly(value: Any) -> None:
    back = read(json.loads(json.dumps(drill_files.value(value), allow_nan=False)))
    assert back == value
    assert type(back) is type(value)


def test_not_a_number_is_kept() -> None:
    assert math.isnan(read(drill_files.value(math.nan)))


def test_a_predictions_link_opens_the_film_at_its_moment(contents: dict[str, Any]) -> None:
    met = Counter[bool]()
    for name in QUICK:
        for draw in contents["predict"][name]:
            state: dict[str, Any] = bank.ask(bank.item(name), draw["seed"]).state
            found = re.fullmatch(r"play/([\w-]+)/#\1&t=(\d+)(?:&thread=(\d+))?", draw["href"])
            assert found is not None
            wanted, trace = film(found[1]), record(film(found[1]))
            lane = int(found[3]) if found[3] else wanted.focus
            met[found[3] is None] += 1
            own = trace.events_of(trace.thread(lane, trace.threads[state["thread"]].block))
            event = trace.events[own[int(found[2]) - 1]]
            assert (event.kind, event.line) == ("line", state["line"])
            assert own[int(found[2]) - 1] == state["event"]
            assert (DOCS / "play" / f"{found[1]}.md").is_file()
    assert met[True] > 3
    assert met[False] > 3
    assert {draw["href"] for draws in contents["compute"].values() for draw in draws} == {""}


def links(held: Any) -> list[dict[str, str]]:
    """Every link of a content, wherever it stands."""
    if isinstance(held, dict):
        own = [held] if held.keys() == {"href", "label"} else []
        return own + [link for value in held.values() for link in links(value)]
    return [link for value in held for link in links(value)] if isinstance(held, list) else []


def test_every_link_leads_somewhere(contents: dict[str, Any]) -> None:
    found = {(link["href"], link["label"]) for link in links(contents["bank"])}
    kinds: Counter[str] = Counter()
    for href, said in found:
        folder, rest = href.split("/", 1)
        kinds[folder] += 1
        if folder == "walkthroughs":
            page, _, slug = rest.partition("/#step-")
            assert said == catalog.get(f"{page}/{slug}").title.replace("`", "")
        elif folder == "concepts":
            page = rest.removesuffix("/")
            assert said == concepts()[page].title.replace("`", "")
        else:
            page, name = "../claims", rest.removeprefix("#")
            assert folder == "claims"
            assert name in claims()
            assert said == f"Claim {name}"
        assert (DOCS / ("concepts" if folder == "claims" else folder) / f"{page}.md").resolve().is_file(), href
    assert min(kinds[name] for name in ("walkthroughs", "concepts", "claims")) > 20


def test_find_has_every_place_and_all_that_encloses_it(contents: dict[str, Any]) -> None:
    for name, held in contents["bank"]["find"].items():
        entry = find.entries()[name]
        wanted = spans(entry.source)[entry.concept]
        assert held["question"] == drill_files.html(f"In `{entry.source}`: {entry.question}")
        assert held["source"] == entry.source
        places = [(place["path"], place["first"], place["last"]) for place in held["places"]]
        assert places == [(span.path, span.first, span.last) for span in wanted]
        assert (
            [file["path"] for file in held["files"]]
            == list(held["around"])
            == list(dict.fromkeys(p for p, _, _ in places))
        )
        for place in held["places"]:
            assert place["href"] == pins()[entry.source].link(place["path"], place["first"], place["last"])
        around = {(path, first, last) for path, rows in held["around"].items() for first, last, _ in rows}
        every = {(span.path, span.first, span.last) for found in spans(entry.source).values() for span in found}
        assert around == {
            (path, first, last)
            for path, first, last in every
            if any(
                path == there and {*range(start, end + 1)} <= {*range(first, last + 1)} for there, start, end in places
            )
        }
        assert all(title for rows in held["around"].values() for _, _, title in rows)


@pytest.mark.source
def test_an_upstream_file_is_there_line_by_line(
    contents: dict[str, Any], vllm_024: sources.SourceTree, vllm_026: sources.SourceTree
) -> None:
    trees = {"vllm@0.24.0": vllm_024, "vllm@0.26.0": vllm_026}
    files = {
        (held["source"], file["path"]): file["name"]
        for held in contents["bank"]["find"].values()
        for file in held["files"]
        if held["source"] in trees
    }
    assert len(set(files.values())) == len(files) == 10
    for (source, path), name in files.items():
        held, pin = contents[name], pins()[source]
        lines = trees[source].read(path).decode().removesuffix("\n").split("\n")
        assert [plain(line) for line in held["lines"]] == lines
        assert (held["source"], held["path"], held["revision"]) == (source, path, pin.revision)
        assert (held["licence"], held["href"]) == (pin.licence, pin.link(path))
        assert any('<span class="k' in line for line in held["lines"]) or path.endswith(".md")
        assert re.fullmatch(r"source-[\w.-]+", name)


@pytest.mark.source
def test_no_upstream_line_is_in_the_other_files(
    contents: dict[str, Any], vllm_024: sources.SourceTree, vllm_026: sources.SourceTree
) -> None:
    said = json.dumps([held for name, held in contents.items() if not name.startswith("source-")])
    for name, held in contents.items():
        if name.startswith("source-"):
            long = [line.strip() for line in map(plain, held["lines"]) if len(line.strip()) > 30]
            assert [line for line in long if json.dumps(line)[1:-1] in said] == []


def test_where_a_source_is_not_here_its_lines_can_still_be_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(code, "tree_of", lambda source: None)
    found = drill_files.contents([item for item in ITEMS if item.kind == "find"], 1)
    assert sorted(found) == ["bank", "compute", "predict"]
    assert {file["name"] for held in found["bank"]["find"].values() for file in held["files"]} == {""}
    with pytest.raises(SourceUnavailable, match=re.escape("vllm@0.24.0")):
        drill_files.source_content("vllm@0.24.0", "a.cu")


def test_files_are_written_once(tmp_path: Path) -> None:
    some = [ITEMS[0], bank.item("compute/slot")]
    names = sorted(path.name for path in drill_files.write_all(tmp_path, some, 2))
    assert names == ["bank.js", "compute.js", "predict.js"]
    assert drill_files.write_all(tmp_path, some, 2) == []
    assert [path.name for path in drill_files.write_all(tmp_path, some, 3)] == ["compute.js"]
    assert (
        (tmp_path / "bank.js")
        .read_text("utf-8")
        .startswith('(window.pagewalkDrills=window.pagewalkDrills||{})["bank"]="')
    )
