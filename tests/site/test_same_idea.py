"""On a concept's page: the same idea in other kernels, as the loader finds it and as the page says it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import ModuleType

import markdown
import pytest
from bs4 import BeautifulSoup, Tag

from annotate.concepts import concepts
from annotate.ideas import tables
from walkthroughs.site import render
from walkthroughs.site.loader import ProjectData
from walkthroughs.site.model import KernelRef, Link, SameIdea

ROOT = Path(__file__).resolve().parents[2]
IDEA = SameIdea(
    "Walk *the* table",
    "One is <fast>. The other is `slow`.",
    (
        KernelRef("Kernel_a", "toy@1", {"toy-loop": "The `loop`"}, (Link("a_b.cu, lines 1 to 2", "https://e.invalid/a#L1-L2"),),
                  ("`kernels/a_b.py`, lines 3-4",)),
        KernelRef("Kernel b", "our own", {"toy-write": "Write [it]", "toy-loop": "The `loop`"}, (), ()),
    ),
)  # fmt: skip


def html_of(lines: list[str]) -> BeautifulSoup:
    text = markdown.markdown("\n".join(lines), extensions=["attr_list"])
    return BeautifulSoup(text, "html.parser")


def items(soup: BeautifulSoup) -> list[Tag]:
    return list(soup.select("ul > li"))


def test_every_kernel_is_an_item_that_says_where_it_has_the_idea() -> None:
    soup = html_of(render.same_idea_lines(IDEA, "toy-loop", ".."))
    heading = soup.h2
    assert heading is not None
    assert (heading["id"], heading.get_text()) == ("same-idea", "The same idea in other kernels")
    assert "Walk *the* table: One is <fast>. The other is slow." in soup.get_text()
    first, second = items(soup)
    assert first.get_text() == (
        "Kernel_a (toy@1): this page. Upstream: a_b.cu, lines 1 to 2. Runs here: kernels/a_b.py, lines 3-4."
    )
    assert [link["href"] for link in first.select("a")] == ["https://e.invalid/a#L1-L2"]
    assert second.get_text() == "Kernel b (our own): Write [it]; this page. No port."
    assert [link["href"] for link in second.select("a")] == ["../concepts/toy-write.md"]
    assert "pagewalk read toy-loop" in soup.get_text()


def test_an_idea_that_nobody_compared_has_no_sentence() -> None:
    lines = render.same_idea_lines(SameIdea("T", "", IDEA.kernels), "toy-loop", "..")
    assert lines[2].startswith("* **")


def test_a_concept_page_has_the_list_only_where_there_are_several_kernels(sample: ModuleType) -> None:
    view = sample.SampleData().concept("toy-loop")
    assert "same-idea" not in "\n".join(render.concept_lines(view, "..", str))
    text = "\n".join(render.concept_lines(replace(view, same_idea=IDEA), "..", str))
    assert text.index("{#code}") < text.index("{#same-idea}") < text.index("{#steps}")


@pytest.mark.parametrize("name", sorted({member for idea in tables().ideas.values() for member in idea.concepts}))
def test_every_joined_concept_lists_the_kernels_of_its_idea(name: str) -> None:
    view = ProjectData().concept(name)
    assert view.same_idea is not None
    assert len(view.same_idea.kernels) >= 2
    assert any(name in kernel.concepts for kernel in view.same_idea.kernels)
    for kernel in view.same_idea.kernels:
        assert kernel.concepts
        assert set(kernel.concepts) <= set(concepts())
        assert kernel.upstream or kernel.port
        for link in kernel.upstream:
            assert link.url.startswith("https://github.com/")
            assert "#L" in link.url
        for port in kernel.port:
            path = port.split("`")[1]
            assert (ROOT / path).is_file()


def test_the_page_of_the_walk_names_all_six_kernels_with_their_lines() -> None:
    view = ProjectData().concept("block-table-walk")
    assert view.same_idea is not None
    said = {kernel.title: [link.label for link in kernel.upstream] for kernel in view.same_idea.kernels}
    assert said == {
        "Classic kernel (body of v1 and v2)": ["attention_kernels.cuh, lines 219 to 250"],
        "2d kernel (runs today)": ["chunked_prefill_paged_decode.py, lines 152 to 167"],
        "Unified kernel": ["triton_unified_attention.py, lines 419 to 426"],
        "AMD kernel (gfx9)": ["attention.cu, lines 422 to 439", "attention.cu, lines 534 to 553"],
        "tiny-vllm's kernel": ["kernels.cu, lines 478 to 480"],
        "Our smallest kernel": [],
    }
    assert [kernel.title for kernel in view.same_idea.kernels if not kernel.port] == [
        "Unified kernel",
        "AMD kernel (gfx9)",
    ]


def test_a_concept_of_one_kernel_or_of_none_has_no_list() -> None:
    assert ProjectData().concept("shared-logits").same_idea is None
    assert ProjectData().concept("doc-query").same_idea is None
