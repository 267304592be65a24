"""Find the line: the grader against sets of lines, and that each question has its place in a pinned source."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from annotate.sourcetree import pins
from annotate.spans import Span, spans
from walkthroughs.drills import find
from walkthroughs.drills.errors import DrillError
from walkthroughs.drills.find import NEAR, Entry, Place, judge, read_place

ENTRIES = list(find.entries().values())


def places(entry: Entry) -> list[Span]:
    return spans(entry.source)[entry.concept]


def length_of(source: str, path: str) -> int:
    """At least as many lines as the file's last place needs, and some more."""
    return 30 + max(span.last for found in spans(source).values() for span in found if span.path == path)


def is_right(first: int, last: int, wanted: list[Span]) -> bool:
    """The rule, in sets of lines."""
    named = set(range(first, last + 1))
    held = [set(range(span.first, span.last + 1)) for span in wanted]
    return any(named <= lines or (lines <= named and len(named) <= 2 * len(lines)) for lines in held)


def distance(first: int, last: int, wanted: list[Span]) -> int:
    """The fewest lines between what was named and a place."""
    return min(
        abs(a - b)
        for span in wanted
        for a in (first, last, *(line for line in (span.first, span.last) if first <= line <= last))
        for b in range(span.first, span.last + 1)
    )


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.item.id)
def test_every_question_has_a_place(entry: Entry) -> None:
    assert entry.source in pins()
    assert places(entry), f"{entry.source} has no {entry.concept}"
    assert entry.question.startswith(("Where", "On which", "In which"))
    assert entry.item.level in (1, 2, 3)


@pytest.mark.parametrize("source", ["vllm@0.24.0", "vllm@0.26.0", "tiny-vllm@e25bf19"])
def test_every_source_is_asked_about(source: str) -> None:
    assert sum(entry.source == source for entry in ENTRIES) >= 5


def test_no_place_is_asked_for_twice() -> None:
    asked = [(entry.source, entry.concept) for entry in ENTRIES]
    assert len(asked) == len(set(asked))


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.item.id)
def test_single_lines_against_sets_over_a_whole_file(entry: Entry) -> None:
    for path in {span.path for span in places(entry)}:
        wanted = [span for span in places(entry) if span.path == path]
        good = {line for line in range(1, length_of(entry.source, path)) if is_right(line, line, wanted)}
        graded = {
            line
            for line in range(1, length_of(entry.source, path))
            if judge(Place(path, line, line), places(entry), entry.source).right
        }
        assert graded == good
        assert good


@given(st.sampled_from(ENTRIES), st.data())
def test_ranges_against_sets(entry: Entry, data: st.DataObject) -> None:
    anchor = data.draw(st.sampled_from(places(entry)))
    low, high = max(1, anchor.first - 25), anchor.last + 25
    first = data.draw(st.integers(low, high))
    last = data.draw(st.integers(first, high))
    wanted = [span for span in places(entry) if span.path == anchor.path]
    graded = judge(Place(anchor.path, first, last), places(entry), entry.source)
    assert graded.right is is_right(first, last, wanted)
    assert (graded.mistake == "") is (graded.right or graded.said.startswith("No"))
    if graded.right:
        return
    if graded.mistake == "too wide":
        assert any(first <= span.first and span.last <= last for span in wanted)
    elif distance(first, last, wanted) <= NEAR:
        assert graded.mistake == "close"
    if graded.mistake == "close":
        # The way that is named leads to a place.
        way = "down" if "further down" in graded.said else "up"
        nearest = [span for span in wanted if distance(first, last, [span]) == distance(first, last, wanted)]
        assert any((first < span.first) == (way == "down") for span in nearest)
        assert "further up" in graded.said or "further down" in graded.said


def test_far_away_is_named_only_inside_an_enclosing_place() -> None:
    wanted = spans("vllm@0.24.0")["block-table-lookup"]
    (loop,) = spans("vllm@0.24.0")["key-loop"]
    inside = judge(Place("", loop.last, loop.last), wanted, "vllm@0.24.0")
    assert (inside.right, inside.mistake) == (False, "close")
    assert "Pass 1: over the keys" in inside.said
    assert "further up" in inside.said
    outside = judge(Place("", 5, 5), wanted, "vllm@0.24.0")
    assert (outside.right, outside.mistake) == (False, "")


def test_another_file_is_named() -> None:
    question = find.ask(find.entries()["find/tail-of-v"].item, 0)
    graded = find.grade(question, "cache_kernels.cu:415")
    assert (graded.right, graded.mistake) == (False, "another file")
    assert "cache_kernels.cu is another file" in graded.said
    assert "attention_kernels.cuh" in graded.said


@pytest.mark.parametrize("typed", ["kernels.cuh:415", "attention:415", "x/attention_kernels.cuh:415"])
def test_a_file_is_named_by_the_end_of_its_path(typed: str) -> None:
    question = find.ask(find.entries()["find/tail-of-v"].item, 0)
    assert find.grade(question, typed).mistake == "another file"


def test_the_forms_of_an_answer() -> None:
    question = find.ask(find.entries()["find/table-look-up"].item, 7)
    path = "csrc/libtorch_stable/attention/attention_kernels.cuh"
    for typed in (
        "249", "249-250", " 249 - 250 ", "249–250", "L249", "lines 249-250", "attention_kernels.cuh:249",
        "attention/attention_kernels.cuh:249-250", f"{path}:250", f"{path}#L249-L250", "Line 250",
    ):  # fmt: skip
        assert find.grade(question, typed).right, typed


@pytest.mark.parametrize("typed", ["", "here", "0", "250-249", "-3", "249-", "a b:3", "1.5", "file:", "9" * 5000])
def test_what_are_no_lines_is_refused(typed: str) -> None:
    with pytest.raises(DrillError, match="line"):
        read_place(typed)


@given(st.integers(1, 10**6), st.integers(0, 1000), st.sampled_from(["", "kernels.cu", "csrc/a_b.cuh"]))
def test_what_is_printed_is_read_again(first: int, more: int, path: str) -> None:
    typed = f"{path}:{first}-{first + more}" if path else f"{first}-{first + more}"
    assert read_place(typed) == Place(path, first, first + more)


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.item.id)
def test_the_solution_is_right_and_links_to_the_pin(entry: Entry) -> None:
    question = find.ask(entry.item, 0)
    assert (question.form, question.state["source"]) == ("lines", entry.source)
    assert entry.question in question.text
    assert entry.source in question.text
    solution = find.solve(question)
    for part, span in zip(solution.answer.split(", "), places(entry), strict=True):
        assert find.grade(question, part).right, part
        ending = f"#L{span.first}" if span.first == span.last else f"#L{span.first}-L{span.last}"
        assert f"{span.path}{ending})" in solution.why
    addresses = re.findall(r"\]\((https://[^)]*)\)", solution.why)
    assert len(addresses) == len(places(entry))
    revision = pins()[entry.source].revision
    assert all(revision in address for address in addresses)
