"""The pages of the drills before any script runs: every question with its answer, its address, and where it leads."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest
import yaml
from bs4 import BeautifulSoup
from markdown import Markdown

from annotate.concepts import concepts
from walkthroughs import step as catalog
from walkthroughs.claims.ledger import claims
from walkthroughs.drills import bank
from walkthroughs.drills.asking import fixed_seed
from walkthroughs.site import drill_data, drill_pages, pages
from walkthroughs.site.drill_view import DrillKind, DrillPoint, DrillView
from walkthroughs.site.errors import UnknownPageItem
from walkthroughs.site.model import Link, Summary

ROOT = Path(__file__).resolve().parents[2]
KINDS = tuple(drill_data.INTROS)
STEP = Link("A `step` of [it]", "walkthroughs/alpha.md#step-loop")
TOY = DrillKind(
    "toy",
    "Toys",
    "About *toys*.",
    (
        DrillView(
            "toy/one", "One <toy> & [more]", 1, "Which?", "The *first*.", (DrillPoint("It is.", (STEP,)),), "Why."
        ),
        DrillView(
            "toy/two", "Two", 3, "And:\n\n    x = 1\n\n- `x`?", "1", (), "- `x = 1`", (STEP,), "toy/one", "B & `c`"
        ),
    ),
)


def html_of(kind: DrillKind) -> BeautifulSoup:
    markdown = Markdown(extensions=["attr_list", "md_in_html", "tables", "toc"])
    lines = drill_pages.kind_lines(kind, "..", markdown.htmlStash.store)
    return BeautifulSoup(markdown.convert("\n".join(lines)), "html.parser")


def test_a_question_has_an_address_facts_and_a_folded_answer() -> None:
    page = html_of(TOY)
    titles = page.select("h3[data-drill]")
    assert [(title["id"], title["data-drill"]) for title in titles] == [("toy/one", "toy/one"), ("toy/two", "toy/two")]
    assert titles[0].get_text().startswith("One <toy> & [more]")
    assert titles[0].select_one("a.headerlink[href='#toy/one']")
    assert page.select_one("h2").get_text() == "B & c"
    facts = [line.get_text() for line in page.select("p.pw-drill-facts")]
    assert facts[0] == "Level 1, to know · pagewalk drill show toy/one"
    assert facts[1] == "Level 3, to defend · follows One <toy> & [more] · pagewalk drill show toy/two"
    first, second = page.select("details.pw-drill-answer")
    assert first.summary.get_text() == "Answer"
    assert first.p.get_text() == "Answer. The first."
    assert first.li.get_text() == "It is. (A step of [it])"
    assert first.li.a["href"] == "../walkthroughs/alpha.md#step-loop"
    assert second.find_all("p")[-1].get_text() == "See A step of [it]"
    assert second.li.code.get_text() == "x = 1"
    assert not first.has_attr("open")


def test_a_question_stands_outside_its_fold_and_its_answer_only_inside() -> None:
    page = html_of(TOY)
    for fold in page.select("details"):
        fold.decompose()
    text = page.get_text()
    assert "Which?" in text
    assert page.select_one("pre").get_text().strip() == "x = 1"
    assert "The first" not in text
    assert "Why." not in text


def test_the_menu_does_not_list_every_question() -> None:
    markdown = Markdown(extensions=["attr_list", "md_in_html", "toc"])
    markdown.convert("\n".join(drill_pages.kind_lines(TOY, "..", markdown.htmlStash.store)))
    (top,) = markdown.toc_tokens  # type: ignore[attr-defined]
    assert len(top["children"]) == 1, "the one group"
    assert top["children"][0]["children"] == []


def test_the_index_counts_what_it_asks_and_links_to_what_it_does_not() -> None:
    kinds = {one.id: one for one in (Summary("one", "One", "First.", 3), Summary("far/index", "Far", "Elsewhere.", 9))}
    kept: list[str] = []
    lines = drill_pages.index_lines(kinds, ".", lambda html: kept.append(html) or "stashed")  # type: ignore[func-returns-value]
    assert "* [One](./one.md) (3): First." in lines
    assert "* [Far](./far/index.md) (9): Elsewhere." in lines
    static = BeautifulSoup(kept[0], "html.parser")
    assert static.select_one("pagewalk-drill[data-drill] .pw-drill-static").get_text().startswith("3 one questions.")
    assert set(drill_pages.stubs(kinds)) == {"drills/index.md", "drills/one.md"}


# ---- the project's own bank ----


@pytest.mark.parametrize("kind", KINDS)
def test_every_question_of_the_bank_is_on_its_kinds_page(kind: str) -> None:
    shown = drill_data.kind_view(kind).questions
    wanted = [item for item in bank.items().values() if item.kind == kind]
    assert sorted(one.id for one in shown) == sorted(item.id for item in wanted)
    groups = [one.group for one in shown]
    assert all(groups)
    assert [g for i, g in enumerate(groups) if i == 0 or g != groups[i - 1]] == list(dict.fromkeys(groups))
    assert drill_data.summaries()[kind].count == len(wanted)


@pytest.mark.parametrize("kind", KINDS)
def test_every_answer_is_the_banks_and_every_question_leads_somewhere(kind: str) -> None:
    for one in drill_data.kind_view(kind).questions:
        item = bank.item(one.id)
        assert one.answer == bank.solve(bank.ask(item, fixed_seed(item))).answer
        assert one.text.strip()
        links = [*one.links, *(link for point in one.points for link in point.links)]
        assert links, one.id
        assert all(_resolves(link.url) for link in links), one.id


def test_follow_ups_stand_behind_what_they_follow() -> None:
    order = [one.id for one in drill_data.kind_view("recall").questions]
    follows = {one.id: one.after for one in drill_data.kind_view("recall").questions if one.after}
    assert follows
    assert all(order.index(parent) < order.index(child) for child, parent in follows.items())


def test_every_theme_has_a_title() -> None:
    groups = {one.group for kind in ("recall", "compute") for one in drill_data.kind_view(kind).questions}
    assert groups == {*drill_data.THEMES.values(), *drill_data.GENERATED.values()}


def _resolves(url: str) -> bool:
    path, _, anchor = url.partition("#")
    folder, _, name = path.removesuffix(".md").rpartition("/")
    if folder == "walkthroughs":
        return f"{name}/{anchor.removeprefix('step-')}" in catalog.steps()
    return name in concepts() if folder == "concepts" else (path == "claims.md" and anchor in claims())


def test_concepts_and_steps_link_to_their_drills() -> None:
    for item in bank.items().values():
        page, anchor = (
            (f"fix/{item.id.partition('/')[2]}.md", "") if item.kind == "fix" else (f"{item.kind}.md", f"#{item.id}")
        )
        link = Link(item.title, f"drills/{page}{anchor}")
        assert all(link in drill_data.of_concept(name) for name in item.concepts)
        assert all(link in drill_data.of_step(name) for name in item.steps)
    assert drill_data.of_concept("no-such") == drill_data.of_step("no/such") == ()


def test_an_unknown_kind_is_answered_with_the_known() -> None:
    with pytest.raises(UnknownPageItem, match="kind of drill"):
        drill_data.kind_view("recal")


def test_the_stubs_are_pages_of_the_menu(sample: ModuleType) -> None:
    menu = (ROOT / "mkdocs.yml").read_text("utf-8")
    written = pages.stubs(sample.SampleData())
    for kind in KINDS:
        head = yaml.safe_load(written[f"drills/{kind}.md"].split("---")[1])
        assert head["title"] == f"Drills: {drill_data.INTROS[kind][0]}"
        assert f"drills/{kind}.md" in menu


def test_the_sample_links_from_a_concept_and_a_step(sample_site: Path) -> None:
    concept = BeautifulSoup((sample_site / "concepts" / "toy-loop" / "index.html").read_text("utf-8"), "html.parser")
    step = BeautifulSoup((sample_site / "walkthroughs" / "alpha" / "index.html").read_text("utf-8"), "html.parser")
    for page in (concept, step):
        link = page.select_one("a[href='../../drills/recall/#recall/why-blocks']")
        assert link is not None
        assert link.get_text() == "Why cut the [cache]?"


def test_the_search_knows_every_question(sample_site: Path, sample: ModuleType) -> None:
    index = (sample_site / "search" / "search_index.json").read_text("utf-8")
    for kind, items in sample.DRILLS.items():
        for name in items:
            assert f'"drills/{kind}/#{name}"' in index
