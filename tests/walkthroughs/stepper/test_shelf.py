"""The texts of the code panes: whole files without fences, the concepts' lines, and sources that are not here."""

from __future__ import annotations

from typing import Any

import pytest

from annotate.regions import is_fence, regions
from annotate.spans import spans
from walkthroughs.digest import ROOT
from walkthroughs.step import Walkthrough
from walkthroughs.stepper import shelf


@pytest.mark.parametrize("path", ["kernels/gather.py", "kernels/vllm/attention_kernels.py", "kernels/reference.py"])
def test_a_port_is_whole_but_for_its_fences(path: str) -> None:
    page = shelf.port_page(path)
    lines = (ROOT / path).read_text().split("\n")
    expected = {number: line for number, line in enumerate(lines, 1) if not is_fence(line)}
    assert page.lines.keys() == expected.keys() - ({len(lines)} if not lines[-1] else set())
    assert all(page.text(number) == expected[number] for number in page.lines)


def test_the_ranges_are_the_regions() -> None:
    page = shelf.port_page("kernels/gather.py")
    for name, found in regions(ROOT / "kernels/gather.py").items():
        for region, (first, last) in zip(found, page.ranges[name], strict=True):
            assert region.first <= first <= last <= region.last


def test_the_first_concept_with_lines_counts() -> None:
    page = shelf.port_page("kernels/gather.py")
    assert page.of(["nothing", "gather-lookup", "gather-loop"]) == list(page.ranges["gather-lookup"])
    assert page.of(["nothing"]) == []


@pytest.mark.usefixtures("no_sources")
def test_a_source_that_is_not_here_says_what_to_type() -> None:
    page = shelf.left_page("vllm@0.24.0", ["block-table-lookup"])
    assert page is not None
    assert (page.missing, dict(page.lines)) == (True, {})
    span = spans("vllm@0.24.0")["block-table-lookup"][0]
    assert page.of(["block-table-lookup"]) == [(span.first, span.last)]
    said = page.absence([(span.first, span.last)])
    assert "pagewalk fetch vllm@0.24.0" in said
    assert f"#L{span.first}-L{span.last}" in said
    assert "online" in page.absence([])


@pytest.mark.source
def test_a_source_that_is_here(vllm_024: Any) -> None:
    span = spans("vllm@0.24.0")["key-loop"][0]
    page = shelf.upstream_page("vllm@0.24.0", span.path)
    text = vllm_024.read(span.path).decode().split("\n")
    assert not page.missing
    assert all(page.text(number) == text[number - 1].rstrip("\r") for number in page.lines)
    assert list(page.lines) == list(range(1, len(page.lines) + 1))
    assert (span.first, span.last) in page.of(["key-loop"])


def test_every_step_has_a_left_side_and_a_port(walkthroughs: dict[str, Walkthrough]) -> None:
    for walkthrough in walkthroughs.values():
        for step in walkthrough.steps:
            pages = shelf.left_pages(step.source, step.reads)
            assert pages, step.id
            assert shelf.port_page(shelf.port_files_of(step.port)[0]).lines


def test_a_concept_that_the_left_side_does_not_know() -> None:
    assert shelf.left_page("kernels/reference.py", ["shared-logits"]) is None
    assert shelf.left_page("vllm@0.24.0", ["no-such-concept"]) is None


@pytest.mark.parametrize(
    ("path", "language"), [("a/b.py", "python"), ("a.cuh", "cuda"), ("a.cu", "cuda"), ("docs/a.md", "markdown")]
)
def test_languages(path: str, language: str) -> None:
    assert shelf.language_of(path) == language
