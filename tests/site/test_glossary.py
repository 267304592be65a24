from __future__ import annotations

import pytest

from annotate.concepts import concepts
from walkthroughs.site import glossary
from walkthroughs.site.errors import UnknownPageItem

NEEDED = {
    "Barrier",
    "Block table",
    "Head size",
    "KV block",
    "KV head",
    "Lane",
    "Online softmax",
    "Partition",
    "Query head",
    "Shuffle",
    "Slot",
    "Slot mapping",
    "Thread block",
    "Thread group",
    "Warp",
    "x",
}


def terms() -> list[glossary.Term]:
    return [term for group in glossary.groups().values() for term in group]


def test_the_words_of_the_kernels_are_explained() -> None:
    assert {term.name for term in terms()} >= NEEDED


def test_every_term_has_its_own_id() -> None:
    anchors = [term.anchor for term in terms()]
    assert len(anchors) == len(set(anchors))
    assert glossary.Term("x", "").anchor == "term-x"
    assert glossary.Term("KV block", "").anchor == "term-kv-block"


def test_the_concepts_that_a_term_names_exist() -> None:
    named = {concept for term in terms() for concept in term.concepts}
    assert named
    assert named <= set(concepts())


def test_sentences_are_short() -> None:
    for term in terms():
        for sentence in term.text.split(". "):
            assert len(sentence.split()) <= 32, (term.name, sentence)


def test_the_page_has_a_heading_a_term_and_links_to_the_code() -> None:
    lines = glossary.lines("..", {name: c.title for name, c in concepts().items()})
    assert "### KV block {#term-kv-block}" in lines
    assert any("](../concepts/x-packing.md)" in line for line in lines)


def test_a_term_with_an_unknown_concept_is_an_error() -> None:
    titles = {name: c.title for name, c in concepts().items() if name != "x-packing"}
    with pytest.raises(UnknownPageItem, match="x-packing"):
        glossary.lines("..", titles)
