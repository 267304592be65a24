"""Compare pages: each kernel once and in the table's order, each line tied to its idea, and how the page says it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from bs4 import BeautifulSoup, Tag
from markdown import Markdown

from annotate import sources, spans
from annotate.concepts import concepts
from annotate.ideas import idea_of, tables
from walkthroughs.ideas import appearances, runs
from walkthroughs.site import code, compare, compare_data
from walkthroughs.site.errors import UnknownPageItem
from walkthroughs.site.extension import makeExtension
from walkthroughs.site.loader import ProjectData

IDEAS = list(compare_data.compared())


@pytest.fixture(scope="module")
def data() -> ProjectData:
    return ProjectData()


def html_of(data: object, name: str) -> BeautifulSoup:
    md = Markdown(extensions=["attr_list", "md_in_html", makeExtension(data=data)])
    return BeautifulSoup(md.convert(f"::: compare {name} root=.."), "html.parser")


def one(found: BeautifulSoup | Tag, selector: str) -> Tag:
    (tag,) = found.select(selector)
    return tag


def linked(html: str) -> Iterator[tuple[str, int, list[str]]]:
    """Each line of a figure that lights up: its id, its number and its links."""
    for line in BeautifulSoup(html, "html.parser").select("li[data-links]"):
        yield str(line["id"]), int(str(line["value"])), str(line["data-links"]).split()


# -- the model -----------------------------------------------------------


def test_every_idea_of_two_kernels_has_a_page_and_no_other(data: ProjectData) -> None:
    named = {member for idea in tables().ideas.values() for member in idea.concepts}
    assert list(data.compares()) == [name for name in tables().ideas if name in IDEAS]
    for concept in concepts():
        several = len(compare_data.shown(idea_of(concept))) >= 2
        assert several == (idea_of(concept).id in IDEAS), concept
        assert not several or concept in named, f"{concept} is in several kernels: ideas.toml must say how they differ"


@pytest.mark.parametrize("name", IDEAS)
def test_a_page_says_its_idea_and_has_each_kernel_once_in_order(data: ProjectData, name: str) -> None:
    view = data.compare(name)
    assert view.says.endswith(".")
    assert view.says.count(". ") == 0, "one sentence"
    assert view.differs
    order = list(tables().kernels)
    shown = [column.id for column in view.columns]
    assert len(shown) >= 2
    assert len(set(shown)) == len(shown)
    assert shown == sorted(shown, key=order.index)
    by_id = {entry.kernel.id: entry for entry in appearances(tables().ideas[name])}
    assert set(shown) == {kernel for kernel, entry in by_id.items() if entry.upstream or entry.port}
    for column in view.columns:
        entry = by_id[column.id]
        assert bool(column.port) == bool(entry.port) == (not column.without_port)
        assert bool(column.upstream) == bool(entry.upstream) == (not column.without_upstream)
        assert len(column.port) == len({lines.path for lines in entry.port})
        assert len(column.upstream) == len({span.path for span in entry.upstream})
        assert tuple(column.concepts) == entry.concepts


@pytest.mark.parametrize("name", IDEAS)
def test_the_lines_of_the_idea_and_only_those_are_tied_to_it(data: ProjectData, name: str) -> None:
    view = data.compare(name)
    by_id = {entry.kernel.id: entry for entry in appearances(tables().ideas[name])}
    seen: set[str] = set()
    for column in view.columns:
        entry = by_id[column.id]
        here = [figure for figure in column.upstream if "pw-missing" not in figure]
        for figures, found in ((here, entry.upstream), (column.port, entry.port)):
            for figure in figures:
                path = str(one(BeautifulSoup(figure, "html.parser"), "figure")["data-path"])
                wanted = {n for run in runs(found) if run.path == path for n in range(run.first, run.last + 1)}
                lit = {number for _, number, links in linked(figure) if name in links}
                if found is entry.upstream:
                    assert lit == wanted
                else:
                    assert lit, "a port shows its lines, less the fences of its regions"
                    assert lit <= wanted
                for line, _, links in linked(figure):
                    assert line not in seen, "ids are unique on the page"
                    seen.add(line)
                    assert set(links) <= set(view.titles), "every link has a title for the status line"
                    assert all(idea_of(link).id == link for link in links), "lines are tied to ideas, not to concepts"


@pytest.mark.parametrize("name", IDEAS)
def test_a_page_leads_to_its_concepts_its_steps_and_its_neighbours(data: ProjectData, name: str) -> None:
    view = data.compare(name)
    assert [entry.id for entry in view.concepts] == list(tables().ideas[name].concepts)
    expected = {
        (step.walkthrough, step.slug) for member in tables().ideas[name].concepts for step in data.concept(member).steps
    }
    found = [(step.walkthrough, step.slug) for steps in view.steps.values() for step in steps]
    assert set(found) == expected
    assert len(found) == len(expected)
    at = IDEAS.index(name)
    assert (view.before.id if view.before else None) == (IDEAS[at - 1] if at else None)
    assert (view.after.id if view.after else None) == (IDEAS[at + 1] if at + 1 < len(IDEAS) else None)


def test_every_concept_of_a_compared_idea_links_to_its_page(data: ProjectData) -> None:
    for name in IDEAS:
        for member in tables().ideas[name].concepts:
            same = data.concept(member).same_idea
            assert same is not None
            assert same.page == name


def test_unknown_ideas_are_answered_with_the_nearest(data: ProjectData) -> None:
    with pytest.raises(UnknownPageItem, match="normalise"):
        data.compare("normalize")
    with pytest.raises(UnknownPageItem):
        data.compare("paged-2d-table")  # a concept, but not the one that names its idea


def test_a_kernel_whose_source_is_not_here_shows_its_port_and_what_to_type(
    data: ProjectData, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(code, "tree_of", lambda source: None)
    for column in data.compare("block-table-walk").columns:
        if column.id == "smallest":
            continue
        assert bool(column.port) == (column.id in ("classic", "paged-2d", "tiny-vllm"))
        for figure in map(str, column.upstream):
            soup = BeautifulSoup(figure, "html.parser")
            assert soup.select("figure.pw-missing")
            assert "pagewalk fetch" in soup.get_text()
            assert tables().kernels[column.id].title in one(soup, "figcaption").get_text()


@pytest.mark.source
def test_a_pane_is_headed_by_kernel_revision_file_lines_permalink_and_licence(
    data: ProjectData, vllm_024: sources.SourceTree, vllm_026: sources.SourceTree
) -> None:
    code.tree_of.cache_clear()
    found = {column.id: column for column in data.compare("tail-guard").columns}
    (upstream,) = found["classic"].upstream
    head = one(BeautifulSoup(upstream, "html.parser"), "figcaption")
    assert " ".join(head.get_text().split()) == (
        "Classic kernel (body of v1 and v2) attention_kernels.cuh lines 291–298, 412–422 vllm 0.24.0 Apache-2.0"
    )
    pin = sources.pins()["vllm@0.24.0"]
    path = next(span.path for span in spans.spans(pin.id)["mask-and-store"])
    assert [link["href"] for link in head.select("a")] == [pin.link(path, 291, 298), pin.link(path, 412, 422)]
    assert one(head, ".pw-path")["title"] == path
    (port,) = found["classic"].port
    head = one(BeautifulSoup(port, "html.parser"), "figcaption")
    assert head.get_text(" ", strip=True).startswith("Classic kernel (body of v1 and v2) attention_kernels.py lines ")
    assert "Apache-2.0" in head.get_text()
    assert not head.select("a")
    assert [number for _, number, links in linked(upstream)] == [*range(291, 299), *range(412, 423)]


# -- the page ------------------------------------------------------------


def test_the_page_has_a_column_a_kernel_with_upstream_above_the_port(sample: ModuleType) -> None:
    soup = html_of(sample.SampleData(), "toy-loop")
    pair = one(soup, "#pair-toy-loop.pw-pair.pw-compare")
    assert json.loads(str(pair["data-titles"])) == sample.TITLES
    columns = pair.select(".pw-kernels.pw-kernels-4 > article.pw-kernel")
    assert len(columns) == 4
    for number, column in enumerate(columns, 1):
        assert one(column, "h2")["id"] == f"kernel-k{number}"
        assert one(column, "h2").get_text() == f"Kernel_{number} of <many>"
        kinds = [child.name for child in column.find_all(recursive=False)]
        assert kinds == ["header", "section", "section", "footer"]
        upstream, port = column.select("section.pw-side")
        assert upstream["aria-label"] == f"Kernel_{number} of <many>: upstream"
        assert bool(upstream.select("figure")) == (number != 3)
        assert bool(port.select("figure")) == (number != 2)
        assert one(column, "header a")["href"] == "../concepts/toy-loop.md"
    assert one(columns[1], ".pw-none").get_text() == "No file of ours ports this."
    assert one(columns[2], ".pw-none").get_text() == "There is nothing upstream."
    assert "pw-kernel-own" in columns[2]["class"]
    assert one(columns[0], "footer").get_text().strip() == "In another form: kernels/other_toy.py, line 3."


def test_the_page_names_its_kernels_and_leads_on(sample: ModuleType) -> None:
    soup = html_of(sample.SampleData(), "toy-product")
    assert one(soup, "h1").get_text() == "Ideas of toy-product"
    assert "Every kernel does <it>. They differ in the loop." in soup.get_text()
    listed = soup.select("nav.pw-kernel-list li a")
    assert [link["href"] for link in listed] == [f"#kernel-k{number}" for number in (1, 2, 3)]
    assert [link["href"] for link in soup.select(".pw-way a")] == ["index.md", "toy-loop.md"]
    chips = {str(chip["data-concept"]): str(chip["href"]) for chip in soup.select("a.pw-chip")}
    assert "toy-product" not in chips
    assert chips["toy-loop"] == "../compare/toy-loop.md"
    assert chips["toy-left-only"] == "../concepts/toy-left-only.md"
    assert {str(chip["data-pair"]) for chip in soup.select("a.pw-chip")} == {"pair-toy-product"}
    assert soup.select("#concepts ~ ul a[href='../concepts/toy-write.md']")
    assert soup.select("#steps ~ ul a[href='../walkthroughs/alpha.md#step-loop']")


@pytest.mark.parametrize(("kernels", "columns"), [(2, 2), (3, 3), (4, 4), (5, 3), (6, 3), (7, 3)])
def test_no_row_is_wider_than_four(kernels: int, columns: int) -> None:
    assert compare.columns_of(kernels) == columns


def test_the_search_finds_the_idea_and_the_names_but_no_code_and_no_kernel(sample_site: Path) -> None:
    index = json.loads((sample_site / "search/search_index.json").read_text("utf-8"))
    found = {e["location"]: e for e in index["docs"] if e["location"].startswith("compare/toy-loop/")}
    assert not [place for place in found if "#kernel-" in place]
    assert "They differ" in found["compare/toy-loop/"]["text"]
    said = " ".join(entry["text"] for entry in found.values())
    assert "part_7" in said
    assert "blockIdx" not in said


def test_the_index_lists_every_idea_under_its_part(sample_site: Path) -> None:
    soup = BeautifulSoup((sample_site / "compare/index.html").read_text("utf-8"), "html.parser")
    items = [item.get_text() for item in soup.select(".md-content li")]
    assert items[0] == "Ideas of toy-lookup (2 kernels): They differ."
    assert len(items) == 4
    assert [str(node.contents[0]) for node in soup.select(".md-content h2")] == ["A part"]


def test_a_concept_page_links_to_its_compare_page_and_its_lane(sample: ModuleType) -> None:
    from dataclasses import replace

    from walkthroughs.site import render
    from walkthroughs.site.model import LaneNote, SameIdea

    view = sample.SampleData().concept("toy-loop")
    plain = "\n".join(render.concept_lines(view, "..", str))
    assert "compare/" not in plain
    assert "history.md" not in plain
    more = replace(view, same_idea=SameIdea("T", "", (), "toy-loop"), lane=LaneNote("lane-toy-1", "✕", "It left."))
    text = "\n".join(render.concept_lines(more, "..", str))
    assert "[All of them side by side](../compare/toy-loop.md)." in text
    assert "✕ It left. [Its lane in the history](../history.md#lane-toy-1)." in text
