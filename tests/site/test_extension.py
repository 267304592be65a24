from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from types import ModuleType

import markdown
import pytest
from bs4 import BeautifulSoup

from annotate.concepts import concepts
from walkthroughs.site.errors import BadDirective, StepNotProven, UnknownPageItem
from walkthroughs.site.extension import HANDLERS, makeExtension
from walkthroughs.site.model import Summary, WalkthroughView

EXTENSIONS = ["attr_list", "toc", "pymdownx.superfences", "pymdownx.highlight", "def_list", "md_in_html"]


def convert(text: str, data: object) -> tuple[BeautifulSoup, list[dict[str, object]]]:
    md = markdown.Markdown(extensions=[*EXTENSIONS, makeExtension(data=data)])
    html = md.convert(text)
    return BeautifulSoup(html, "html.parser"), md.toc_tokens  # type: ignore[attr-defined]


def test_steps_become_headings_of_the_table_of_contents(sample: ModuleType) -> None:
    _, toc = convert("::: walkthrough alpha root=..", sample.SampleData())
    assert [entry["id"] for entry in toc] == ["alpha"]
    assert [entry["id"] for entry in toc[0]["children"]] == ["step-loop", "step-write"]  # type: ignore[attr-defined]


def test_panes_and_tables_arrive_as_blocks_and_not_inside_paragraphs(sample: ModuleType) -> None:
    page, _ = convert("Before.\n\n::: walkthrough alpha root=..\n\nAfter.", sample.SampleData())
    for selector in ("figure.pw-pane", ".pw-pair", ".pw-table", "details.pw-record"):
        assert page.select(selector), selector
        assert not page.select(f"p {selector}"), selector
    assert len(page.select("figure.pw-pane")) == 4
    assert "wzxhzdk" not in str(page)


def test_prose_may_hold_a_code_fence(sample: ModuleType) -> None:
    page, _ = convert("::: walkthrough alpha root=..", sample.SampleData())
    assert [block.get_text().strip() for block in page.select("div.highlight pre")] == ["where = table[piece]"] * 2


def test_every_directive_of_the_made_up_site_is_rendered(sample: ModuleType) -> None:
    class WithGlossary(sample.SampleData):  # type: ignore[misc,name-defined]
        def concepts(self) -> dict[str, Summary]:
            real = {name: Summary(name, c.title, c.summary) for name, c in concepts().items()}
            return {**super().concepts(), **real}

    text = "\n\n".join(
        [
            "::: walkthroughs",
            "::: concepts",
            "::: concept toy-loop root=..",
            "::: compare toy-product root=..",
            "::: compares",
            "::: player copy-blocks root=..",
            "::: films",
            "::: pair toy-lookup toy@1",
            "::: drill recall root=..",
            "::: drills",
            "::: svg block-table What it shows",
            "::: glossary",
            "::: architecture",
            "::: history",
            "::: claims",
            "::: machine gather root=..",
            "::: machines",
            "::: rung ring",
            "::: rungs",
            "::: written ring",
            "::: lab shared-32",
            "::: lab-server several",
            "::: live-lab scenarios",
            "::: bench goals",
            "::: layout",
        ]
    )
    page, _ = convert(text, WithGlossary())
    assert not [line for line in page.get_text().splitlines() if line.startswith(":::")]
    assert page.select_one("a[href='walkthroughs/alpha.md']")
    assert page.select_one("figure.pw-drawing svg")
    assert page.select_one("h3#term-block-table")
    assert page.select_one("article#T-1")
    assert len(page.select("article.pw-kernel")) == 3
    assert page.select_one("a[href='compare/toy-product.md']")
    assert page.select_one("pagewalk-player[film=copy-blocks] details[open]")
    assert page.select_one("a[href='play/classic-v1.md']")
    assert page.select_one(".pw-machine .pw-listing-sass")
    assert page.select_one("a[href='k-load.md']")
    assert page.select_one("pagewalk-layout")
    assert page.select_one("h3[id='recall/why-blocks'][data-drill]")
    assert page.select_one("pagewalk-drill .pw-drill-static")
    assert page.select_one("a[href='drills/compute.md']")
    assert set(HANDLERS) == {
        "machine",
        "machines",
        "rung",
        "rungs",
        "written",
        "lab",
        "lab-server",
        "live-lab",
        "bench",
        "drill",
        "drills",
        "fix",
        "fixes",
        "compare",
        "compares",
        "walkthrough",
        "walkthroughs",
        "concept",
        "concepts",
        "pair",
        "svg",
        "glossary",
        "architecture",
        "ops-grid",
        "ladder-takes",
        "ladder-grid",
        "ladder-sanitizers",
        "history",
        "claims",
        "player",
        "films",
        "layout",
    }


def test_an_unknown_directive_lists_the_known_ones(sample: ModuleType) -> None:
    with pytest.raises(BadDirective, match=r"'::: walktrough alpha'.*walkthrough, walkthroughs"):
        convert("::: walktrough alpha", sample.SampleData())


@pytest.mark.parametrize("line", ["::: pair toy-lookup", "::: pair a b c", "::: walkthrough"])
def test_missing_or_extra_words_are_errors(line: str, sample: ModuleType) -> None:
    with pytest.raises(BadDirective):
        convert(line, sample.SampleData())


@pytest.mark.parametrize(("line", "nearest"), [("::: walkthrough alhpa", "alpha"), ("::: concept toy-lop", "toy-loop")])
def test_unknown_ids_answer_with_the_nearest(line: str, nearest: str, sample: ModuleType) -> None:
    with pytest.raises(UnknownPageItem, match=f"nearest: .*{nearest}"):
        convert(line, sample.SampleData())


def test_a_step_without_proof_stops_the_page(sample: ModuleType) -> None:
    class Broken(sample.SampleData):  # type: ignore[misc,name-defined]
        def walkthrough(self, name: str) -> WalkthroughView:
            raise StepNotProven("alpha/loop", "it has no record", "Run it")

    with pytest.raises(StepNotProven):
        convert("::: walkthrough alpha", Broken())


def test_a_page_without_directives_never_asks_for_the_content() -> None:
    class Nothing:
        def __getattr__(self, name: str) -> object:
            raise AssertionError(f"asked for {name}")

    page, _ = convert("# Plain\n\n```text\n::: concept a\n```", Nothing())
    assert "::: concept a" in page.get_text()


def test_the_extension_imports_no_mkdocs() -> None:
    code = (
        "import sys, walkthroughs.site.extension, walkthroughs.site.loader, walkthroughs.site.pages;"
        "sys.exit(any(name.split('.')[0] in ('mkdocs', 'material') for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_walkthroughs_prose_may_show_a_rung_and_a_drawing_and_nothing_else(sample: ModuleType) -> None:
    def prose(line: str) -> BeautifulSoup:
        class Data(sample.SampleData):  # type: ignore[misc,name-defined]
            def walkthrough(self, name: str) -> WalkthroughView:
                view = super().walkthrough(name)
                return replace(view, intro=f"Read.\n\n{line}\n\nOn.")

        return convert("::: walkthrough alpha", Data())[0]

    assert "measured" in prose("::: rung ring").get_text().lower()
    assert prose("::: svg block-table What it shows").select_one("figure.pw-drawing svg")
    with pytest.raises(BadDirective, match="only svg and rung and rungs and written and lab may stand"):
        prose("::: claims")
