"""The table of kernels and ideas: it joins what exists, each thing once; a malformed one is told what is wrong."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from annotate.anchors import Library, anchors_of, resolve
from annotate.concepts import concepts
from annotate.errors import AnnotateError, UnknownName
from annotate.ideas import Idea, idea_of, read_tables, tables
from annotate.regions import regions
from annotate.sourcetree import pins
from annotate.spans import Span, spans

ROOT = Path(__file__).resolve().parents[2]
FOUR = ("classic", "paged-2d", "tiny-vllm", "smallest")


def regions_of(files: tuple[str, ...]) -> set[str]:
    return {name for file in files for name in (regions(ROOT / file) if (ROOT / file).is_file() else {})}


def spans_of(kernel: str) -> set[str]:
    entry = tables().kernels[kernel]
    found = spans(entry.source) if entry.source else {}
    return {name for name, lines in found.items() if any(map(entry.holds, lines))}


def kernels_with(idea: Idea) -> list[str]:
    """The kernels that have lines of an idea, upstream or ours, by brute force."""
    return [
        name
        for name, entry in tables().kernels.items()
        if set(idea.concepts) & (spans_of(name) | regions_of((*entry.ports, *entry.variants)))
    ]


@pytest.mark.parametrize("name", tables().ideas)
def test_an_idea_joins_concepts_that_exist_and_that_kernels_have(name: str) -> None:
    idea = tables().ideas[name]
    assert set(idea.concepts) <= set(concepts())
    assert len(set(idea.concepts)) == len(idea.concepts)
    assert idea.id == name
    assert name in idea.concepts
    had = {
        concept
        for kernel, entry in tables().kernels.items()
        for concept in spans_of(kernel) | regions_of((*entry.ports, *entry.variants))
    }
    assert set(idea.concepts) <= had
    found = kernels_with(idea)
    assert len(found) >= 2, "one kernel alone needs no idea"
    assert len(set(found)) == len(found)


def test_a_symbol_and_a_file_belong_to_one_kernel_each() -> None:
    symbols = [(entry.source, symbol) for entry in tables().kernels.values() for symbol in entry.symbols]
    assert len(set(symbols)) == len(symbols)
    files = [file for entry in tables().kernels.values() for file in (*entry.ports, *entry.variants)]
    assert len(set(files)) == len(files)


def test_every_kernel_names_what_there_is() -> None:
    for name, entry in tables().kernels.items():
        assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", name)
        assert entry.source is None or entry.source in pins()
        for file in (*entry.ports, *entry.shared, *entry.variants):
            assert (ROOT / file).is_file(), file
        if entry.source:
            recorded = {span.symbol for lines in spans(entry.source).values() for span in lines}
            assert set(entry.symbols) <= recorded, name


def test_every_file_with_regions_belongs_to_a_kernel_or_is_a_rung() -> None:
    owned = {f for entry in tables().kernels.values() for f in (*entry.ports, *entry.shared, *entry.variants)}
    fenced = {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "kernels").rglob("*.py")
        if "# region:" in path.read_text("utf-8") and regions(path)
    }
    rungs = {file for file in fenced if file.startswith("kernels/tuned/")}
    assert fenced - rungs <= owned
    assert not rungs & owned, "the ladder's walkthrough shows them"


def test_titles_and_texts_are_fit_to_be_read() -> None:
    titles = [entry.title for entry in tables().kernels.values()]
    assert len(set(titles)) == len(titles)
    for idea in tables().ideas.values():
        assert 3 <= len(idea.title) <= 40
        assert idea.differs.endswith(".")
        assert "  " not in idea.differs
        assert 1 <= len(re.findall(r"[.!?](?:\s|$)", idea.differs)) <= 4, idea.id


# Typed by hand: for each row of the map, the concepts by which the four kernels have it.
ROWS: Mapping[str, tuple[str, str, str, str]] = {
    "walk": ("block-table-walk", "paged-2d-table", "block-table-walk", "block-table-walk"),
    "lookup": ("v-table", "block-table-lookup", "block-table-lookup", "gather-lookup"),
    "key address": ("k-address", "paged-2d-k", "k-address", "k-address"),
    "value address": ("v-address", "paged-2d-v", "v-address", "v-address"),
    "product": ("qk-dot", "paged-2d-qk", "qk-dot", "qk-dot"),
    "maximum": ("qk-max", "paged-2d-max", "running-max", "running-max"),
    "sum": ("exp-sum", "paged-2d-sum", "running-sum", "running-sum"),
    "tail": ("tail-zeroing", "paged-2d-tail-mask", "tail-guard", "tail-guard"),
    "values": ("accumulate", "paged-2d-v-add", "accumulate", "accumulate"),
    "division": ("normalise", "paged-2d-normalise", "final-divide", "final-divide"),
    "output": ("output-write", "paged-2d-store", "output-write", "output-write"),
    "signature": ("signature", "paged-2d-signature", "signature", "signature"),
    "blocks": ("block-ranges", "block-ranges", "block-ranges", "block-ranges"),
}


@pytest.mark.parametrize("row", ROWS)
def test_a_row_of_the_map_is_one_idea_in_four_kernels(row: str) -> None:
    ideas = {idea_of(name).id for name in ROWS[row]}
    assert len(ideas) == 1
    for kernel, name in zip(FOUR, ROWS[row], strict=True):
        entry = tables().kernels[kernel]
        assert name in regions_of(entry.ports), (kernel, name)
        assert entry.source is None or name in spans_of(kernel)


def test_a_writer_and_the_rescaling_are_one_idea_in_four_kernels_each() -> None:
    assert kernels_with(idea_of("scatter")) == ["writer", "flash-writer", "tiny-vllm-host", "smallest"]
    rescaling = kernels_with(idea_of("v2-rescale"))
    assert [name for name in rescaling if tables().kernels[name].ports] == ["v2", "paged-2d", "tiny-vllm", "smallest"]


def test_a_concept_that_no_idea_names_stands_for_itself() -> None:
    assert idea_of("shared-logits") == Idea("shared-logits", concepts()["shared-logits"].title, "", ("shared-logits",))
    with pytest.raises(UnknownName, match="shared-logits"):
        idea_of("shared-logit")


def test_upstream_lines_belong_to_the_kernel_of_their_symbol() -> None:
    classic = tables().kernels["classic"]
    made: dict[str, Any] = {"path": "a.cu", "first": 1, "last": 2, "digest": "0", "concept": "qk-dot"}
    assert classic.holds(Span(source="vllm@0.24.0", symbol="vllm::paged_attention_kernel", **made))
    assert not classic.holds(Span(source="vllm@0.24.0", symbol="vllm::paged_attention_v2_reduce_kernel", **made))
    assert not classic.holds(Span(source="vllm@0.26.0", symbol="vllm::paged_attention_kernel", **made))


KERNEL = '[kernels.k]\ntitle = "K"\nports = ["k.py"]\n'
IDEA = '[ideas.a]\ntitle = "A"\ndiffers = "Much."\nconcepts = ["a", "b"]\n'


def test_a_sound_table_is_read() -> None:
    found = read_tables(KERNEL + IDEA, {"a", "b"})
    assert found.kernels["k"].ports == ("k.py",)
    assert found.kernels["k"].source is None
    assert found.ideas["a"] == Idea("a", "A", "Much.", ("a", "b"))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[other]\n", "no such table other"),
        ('[kernels.k]\nports = ["k.py"]\n', "kernel k: needs title"),
        (KERNEL + 'colour = "red"\n', "kernel k: no such key colour"),
        ('[kernels.k]\ntitle = "K"\nsource = "s"\n', "a source and its symbols go together"),
        ('[kernels.k]\ntitle = "K"\nsymbols = ["f"]\n', "a source and its symbols go together"),
        ('[kernels.k]\ntitle = "K"\n', "neither symbols upstream nor a port"),
        (
            KERNEL + '[kernels.l]\ntitle = "L"\nvariants = ["k.py"]\nports = ["l.py"]\n',
            "file k.py stands in k and in l",
        ),
        (IDEA.replace('"b"', '"c"'), "idea a: 'c' is no concept"),
        (IDEA.replace('["a", "b"]', '["b"]'), "its id must be that of one of its concepts"),
        (IDEA.replace('["a", "b"]', '["a", "a"]'), "concept a stands in a and in a"),
        (IDEA + IDEA.replace("ideas.a", "ideas.b"), "concept a stands in a and in b"),
        ('[ideas.a]\ntitle = "A"\n', "idea a: needs concepts, differs, title"),
        (IDEA + 'colour = "red"\n', "idea a: no such key colour"),
    ],
)
def test_a_malformed_table_names_the_entry(text: str, words: str) -> None:
    with pytest.raises(AnnotateError, match=re.escape(words)):
        read_tables(text, {"a", "b"})


# A kernel of our own with the statements of tiny-vllm's softmax step in their order, one a line.
STEP = """\
__global__ void pagedAttentionKernel(int *block_table, float *output)
{
    float current_max = -1.0f, acc = 0.0f, d = 0.0f;
    for (int logical_block_idx = 0; logical_block_idx < 4; ++logical_block_idx)
    {
        int physical_block = block_table[logical_block_idx];
        for (int token = 0; token < 16; ++token)
        {
            float dot_product = 1.0f * physical_block * token;
            float new_max = current_max;
            if (dot_product > current_max)
            {
                new_max = dot_product;
            }
            float correction_factor = expf(current_max - new_max);
            current_max = new_max;
            float exp_score = expf(dot_product - current_max);
            d = d * correction_factor + exp_score;
            acc = acc * correction_factor + exp_score;
        }
    }
    output[threadIdx.x] = acc / d;
}
"""


@pytest.mark.parametrize(
    ("name", "first", "last"),
    [
        ("block-table-lookup", 6, 6),
        ("online-softmax", 10, 19),
        ("running-max", 10, 16),
        ("running-sum", 15, 18),
        ("running-rescale", 15, 19),
        ("accumulate", 19, 19),
        ("output-write", 22, 22),
        ("final-divide", 22, 22),
    ],
)
def test_the_landmarks_of_tiny_vllms_step_mean_what_they_should(
    files: Callable[..., Any], name: str, first: int, last: int
) -> None:
    source = "tiny-vllm@e25bf19"
    (anchor,) = anchors_of(concepts()[name], source)
    span = resolve(anchor, Library(files({"src/kernels.cu": STEP})))
    assert (span.first, span.last) == (first, last)
    if name not in ("block-table-lookup", "output-write", "final-divide"):
        # The recorded lines were read by hand: as far from the step's first line as these.
        (recorded,) = spans(source)[name]
        (start,) = spans(source)["online-softmax"]
        assert (recorded.first - start.first, recorded.last - start.first) == (first - 10, last - 10)


def test_parts_go_on_until_the_next_and_ideas_may_say_what_they_are() -> None:
    body = 'title = "T"\nconcepts = ["{0}"]\ndiffers = ""\n'
    heads = {"a": "", "b": 'part = "One"\nsays = "It\\n  is so."\n', "c": "", "d": 'part = "Two"\n'}
    text = "".join(f"[ideas.{name}]\n{extra}{body.format(name)}" for name, extra in heads.items())
    found = read_tables(text, set(heads)).ideas
    assert [idea.part for idea in found.values()] == ["", "One", "One", "Two"]
    assert [idea.says for idea in found.values()] == ["", "It is so.", "", ""]


def test_every_idea_of_the_table_stands_in_a_part_and_says_what_it_is() -> None:
    for idea in tables().ideas.values():
        assert idea.part
        assert idea.says.endswith(".")
