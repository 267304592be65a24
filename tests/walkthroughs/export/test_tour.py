"""Tours: CodeTour's form, the spans' lines, patterns only where the source is, and no upstream text in the words."""

from __future__ import annotations

import copy
import json
import re
from pathlib import Path
from typing import Any

import pytest

from annotate import spans
from annotate.sources import SourceTree, pins
from walkthroughs.export import prose, tour
from walkthroughs.export.patterns import lines_matched
from walkthroughs.export.prose import ExportError
from walkthroughs.step import registry

ALL = list(registry().values())


@pytest.fixture(scope="module")
def nothing_fetched(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tours") / "empty"


@pytest.fixture(scope="module")
def without(nothing_fetched: Path) -> list[tour.Tour]:
    return tour.tours(ALL, cache=nothing_fetched)


# The form, after CodeTour's own schema: which keys there are, their types, and which must be there.
POSITION = {"line": int, "character": int}
TOUR = {"title": str, "description": str, "ref": str, "isPrimary": bool, "steps": list}
STEP = {"file": str, "line": int, "pattern": str, "title": str, "description": str, "selection": dict}


def wrong_form(data: dict[str, Any]) -> list[str]:
    """What is wrong with a tour's form."""
    found = _wrong("tour", data, TOUR, {"title", "steps"})
    for number, step in enumerate(data.get("steps", ())):
        found += _wrong(f"step {number}", step, STEP, {"description", "file"})
        if "selection" in step:
            found += _wrong(
                f"step {number} selection", step["selection"], {"start": dict, "end": dict}, {"start", "end"}
            )
            for end in step["selection"].values():
                found += _wrong(f"step {number} position", end, POSITION, set(POSITION))
        if not {"line", "pattern"} & step.keys():
            found.append(f"step {number}: an editor could not place it")
    return found


def _wrong(where: str, data: dict[str, Any], known: dict[str, type], needed: set[str]) -> list[str]:
    found = [f"{where}: {name} is missing" for name in needed - data.keys()]
    for name, value in data.items():
        if name not in known:
            found.append(f"{where}: {name} is no key of CodeTour's")
        elif type(value) is not known[name]:
            found.append(f"{where}: {name} is a {type(value).__name__}")
        elif value == "" or (type(value) is int and value < 1):
            found.append(f"{where}: {name} is {value!r}")
    return found


def test_the_check_of_the_form_finds_faults() -> None:
    assert wrong_form({"title": "T", "steps": [{"description": "D", "file": "f", "line": 1}]}) == []
    bad = {"title": 3, "steps": [{"file": "f", "line": 0, "selection": {"start": {"line": "1"}}, "lines": 2}]}
    said = "\n".join(wrong_form(bad))
    for part in (
        "title is a int",
        "description is missing",
        "line is 0",
        "end is missing",
        "character is missing",
        "lines",
    ):
        assert part in said


def test_every_tour_has_codetours_form(without: list[tour.Tour]) -> None:
    assert len(without) >= 4
    for made in without:
        assert wrong_form(json.loads(json.dumps(made.data))) == [], made.id


def test_there_is_a_tour_for_each_walkthrough_and_source(without: list[tour.Tour]) -> None:
    wanted = [(w.id, step.source) for w in ALL for step in w.steps if prose.places(step)]
    assert [(made.data["title"], made.source) for made in without] == [
        (f"{registry()[name].title.replace('`', '')} ({pins()[pin].name} {pins()[pin].revision})", pin)
        for name, pin in dict.fromkeys(wanted)
    ]
    assert len({made.file for made in without}) == len(without)
    names = {made.id for made in without}
    assert "vllm-classic" in names
    assert {"findings-vllm@0.24.0", "findings-vllm@0.26.0"} <= names
    assert not any(name.startswith("paged-reference") for name in names)


def test_the_first_tour_of_a_source_is_its_primary_one(without: list[tour.Tour]) -> None:
    for pin in {made.source for made in without}:
        assert next(made.data.get("isPrimary", False) for made in without if made.source == pin) is True
        assert sum(made.data.get("isPrimary", False) for made in without if made.source == pin) == 1


def test_ref_is_the_tag_or_the_whole_commit(without: list[tour.Tour]) -> None:
    refs = {made.source: made.data["ref"] for made in without}
    assert refs["vllm@0.24.0"] == "v0.24.0"
    assert re.fullmatch(r"[0-9a-f]{40}", refs["tiny-vllm@e25bf19"])
    for pin, ref in refs.items():
        assert f"/{ref}/" in pins()[pin].permalink


def test_every_selection_is_a_span_and_every_span_is_selected(without: list[tour.Tour]) -> None:
    for made in without:
        walkthrough = registry()[made.id.removesuffix(f"-{made.source}")]
        wanted = [
            (span.path, span.first, span.last)
            for step in walkthrough.steps
            if step.source == made.source
            for span in prose.places(step)
        ]
        found = [
            (step["file"], step["selection"]["start"]["line"], step["selection"]["end"]["line"])
            for step in made.data["steps"]
        ]
        assert found == wanted
        assert all(step["line"] == step["selection"]["start"]["line"] for step in made.data["steps"])
        assert all(step["selection"]["start"]["character"] == 1 for step in made.data["steps"])
        known = {(s.path, s.first, s.last) for entries in spans.spans(made.source).values() for s in entries}
        assert set(found) <= known


def test_without_the_source_there_is_no_pattern_and_the_tour_says_so(without: list[tour.Tour]) -> None:
    for made in without:
        assert made.patterns == 0
        assert all("pattern" not in step for step in made.data["steps"])
        assert f"pagewalk fetch {made.source}" in made.notice
        assert made.notice in made.data["description"]


def test_the_first_place_of_a_step_has_its_words_values_and_record(without: list[tour.Tour]) -> None:
    made = next(made for made in without if made.id == "vllm-classic")
    steps = {step["title"]: step["description"] for step in made.data["steps"]}
    said = steps["Which blocks, which tokens"]
    assert said.startswith("Seventy tokens in blocks of 16")
    assert "| blocks of 70, 1, 16, 17, 32 tokens | \\[5, 1, 1, 2, 2\\] | \\[5, 1, 1, 2, 2\\] | passed |" in said
    assert "**Validated on " in said
    assert "the claims L1-29, D-01" in said
    assert "`pagewalk run vllm-classic/block-ranges`" in said
    assert "[L1-29]" not in said


def test_every_link_is_absolute(without: list[tour.Tour]) -> None:
    for made in without:
        for step in made.data["steps"]:
            bare = re.sub(r"`[^`\n]*`", "", step["description"])
            links = re.findall(r"\]\(([^)]*)\)", bare)
            assert links
            assert all(link.startswith("https://") for link in links)


def test_one_source_only(nothing_fetched: Path) -> None:
    found = tour.tours(ALL, source="vllm@0.24.0", cache=nothing_fetched)
    assert [made.id for made in found] == ["vllm-classic", "findings-vllm@0.24.0", "ladder-vllm@0.24.0"]


def test_for_any_revision_the_source_must_be_here(nothing_fetched: Path) -> None:
    with pytest.raises(ExportError, match=r"pagewalk fetch vllm@0\.24\.0"):
        tour.tours([registry()["vllm-classic"]], anywhere=True, cache=nothing_fetched)


def test_write_is_whole_and_reads_back(without: list[tour.Tour], tmp_path: Path) -> None:
    path = tour.write(without[0], tmp_path / "new" / ".tours")
    assert path.name == without[0].file
    assert json.loads(path.read_text("utf-8")) == without[0].data
    assert [p.name for p in path.parent.iterdir()] == [path.name]


# With the real sources


def collapsed(text: str) -> str:
    return " ".join(text.split())


@pytest.fixture(scope="module")
def trees(vllm_024: SourceTree, vllm_026: SourceTree) -> dict[str, SourceTree]:
    return {tree.pin.id: tree for tree in (vllm_024, vllm_026)}


@pytest.fixture(scope="module")
def full(trees: dict[str, SourceTree]) -> list[tour.Tour]:
    return [made for pin in trees for made in tour.tours(ALL, source=pin)]


@pytest.mark.source
def test_each_pattern_matches_exactly_its_line(trees: dict[str, SourceTree], full: list[tour.Tour]) -> None:
    for made in full:
        assert made.notice == ""
        assert wrong_form(json.loads(json.dumps(made.data))) == []
        for step in made.data["steps"]:
            text = trees[made.source].read(step["file"]).decode("utf-8")
            assert lines_matched(step["pattern"], text) == [step["line"]]
            end = step["selection"]["end"]
            assert end["character"] == len(text.split("\n")[end["line"] - 1]) + 1
    assert sum(made.patterns for made in full) > 100


@pytest.mark.source
def test_with_the_source_only_patterns_and_ends_are_new(full: list[tour.Tour], without: list[tour.Tour]) -> None:
    bare = {made.id: made for made in without}
    for made in full:
        for step, other in zip(made.data["steps"], bare[made.id].data["steps"], strict=True):
            kept = copy.deepcopy({name: value for name, value in step.items() if name != "pattern"})
            kept["selection"]["end"]["character"] = tour.BEHIND_THE_END
            assert kept == other


@pytest.mark.source
def test_nothing_upstream_is_in_the_words(trees: dict[str, SourceTree], full: list[tour.Tour]) -> None:
    """No line of code of thirty characters or more, however it is spaced, outside the patterns."""
    for made in full:
        steps = made.data["steps"]
        said = collapsed("\n".join([made.data["title"], made.data["description"], *(s["description"] for s in steps)]))
        texts = [trees[made.source].read(path).decode("utf-8") for path in {step["file"] for step in steps}]
        long = {line for text in texts for line in map(collapsed, text.split("\n")) if len(line) >= 30}
        assert len(long) > 100
        assert sorted(line for line in long if line in said) == []


@pytest.mark.source
def test_for_any_revision_a_tour_has_patterns_alone(trees: dict[str, SourceTree]) -> None:
    for pin in trees:
        for made in tour.tours(ALL, source=pin, anywhere=True):
            assert "ref" not in made.data
            assert all(step.keys() == {"title", "file", "pattern", "description"} for step in made.data["steps"])
            assert wrong_form(json.loads(json.dumps(made.data))) == []


@pytest.mark.source
def test_a_pattern_finds_its_line_in_a_file_that_has_moved_on(vllm_024: SourceTree, full: list[tour.Tour]) -> None:
    for step in next(made for made in full if made.id == "vllm-classic").data["steps"]:
        text = vllm_024.read(step["file"]).decode("utf-8")
        moved = "// new\n" * 7 + text.replace("\n", "\n\n").replace("  ", "\t")
        assert lines_matched(step["pattern"], moved) == [7 + 2 * step["line"] - 1]
