"""The claims on pages: the list, the notes, and which step has which note."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import markdown
import pytest
from bs4 import BeautifulSoup
from bs4.element import Tag

from annotate.sourcetree import SourceTree
from walkthroughs import step as catalog
from walkthroughs.claims.ledger import claims as ledger
from walkthroughs.claims.model import Finding, Place, Result, RunRef, Verdict
from walkthroughs.site import claim_views, claims
from walkthroughs.site.loader import ProjectData
from walkthroughs.site.model import ClaimView

EXTENSIONS = ["attr_list", "md_in_html"]


def html_of(lines: Sequence[str]) -> BeautifulSoup:
    return BeautifulSoup(markdown.markdown("\n".join(lines), extensions=EXTENSIONS), "html.parser")


def one(found: BeautifulSoup | Tag, selector: str) -> Tag:
    (node,) = found.select(selector)
    return node


@pytest.fixture(scope="module")
def views(sample: ModuleType) -> dict[str, ClaimView]:
    found: dict[str, ClaimView] = sample.CLAIMS
    return found


@pytest.fixture(scope="module")
def page(sample_site: Path) -> BeautifulSoup:
    return BeautifulSoup((sample_site / "claims/index.html").read_text("utf-8"), "html.parser")


def test_every_claim_is_listed_and_can_be_linked_to(page: BeautifulSoup, views: dict[str, ClaimView]) -> None:
    assert [node["id"] for node in page.select("article.pw-claim")] == list(views)
    for name, view in views.items():
        node = one(page, f"#{name}")
        assert (node["data-group"], node["data-verdict"]) == (view.group, view.kind)
        assert str(node["data-concepts"]).split() == list(view.concepts)
        assert not node.has_attr("hidden"), "without a script everything is listed"
        assert one(node, "a.pw-claim-id")["href"].endswith(f"#{name}")  # type: ignore[union-attr]


def test_a_claim_shows_its_text_as_it_is(page: BeautifulSoup) -> None:
    node = one(page, "#T-2")
    assert "Lesson 1 says: The toy of T-2 is <fast> & [sound]." in node.get_text()
    assert one(node, ".pw-claim-verdict").get_text() == "✘ wrong"
    assert "What T-2 is in fact" in node.get_text()


def test_a_condition_follows_its_verdict(page: BeautifulSoup) -> None:
    assert "◐ holds if there is one piece" in " ".join(one(page, "#T-3").get_text().split())
    assert "? not decidable here" in one(page, "#T-4").get_text()
    assert "a run would decide it" in one(page, "#T-4").get_text()


def test_facts_lead_to_lines_and_runs(page: BeautifulSoup) -> None:
    facts = one(one(page, "#T-1"), "details.pw-claim-facts")
    assert one(facts, "summary").get_text() == "What decides it: 2 facts, 1 place in the source, 1 run"
    links = {a.get_text(): str(a["href"]) for a in facts.select("li a")}
    assert links["toy.cu, line 4 (toy 1)"].startswith("https://")
    assert links["a run"].endswith("walkthroughs/alpha/")
    assert "a <run> saw [it]. ○ not looked at here." in facts.get_text()


def test_the_filters_offer_what_there_is(page: BeautifulSoup, views: dict[str, ClaimView]) -> None:
    form = one(page, "form.pw-filters")
    assert form.has_attr("hidden"), "without a script there is nothing to filter with"
    choices = {str(s["name"]): [str(o["value"]) for o in s.select("option")] for s in form.select("select")}
    assert choices["group"] == ["", "lesson 1", "lesson 2"]
    assert choices["verdict"] == ["", "holds", "holds-if", "wrong", "open", "unavailable"]
    assert set(choices["concept"]) == {"", *(name for view in views.values() for name in view.concepts)}
    assert all(label.get_text().strip() for label in form.select("label"))


def test_the_counts_add_up(page: BeautifulSoup) -> None:
    assert "5 claims: ✔ 1 holds, ◐ 1 holds if, ✘ 1 wrong, ? 1 not decidable here" in page.get_text()


def test_notes_say_what_is_wrong_in_full_and_the_rest_by_number(views: dict[str, ClaimView]) -> None:
    found = html_of(claims.note_lines(list(views.values()), ".."))
    notes = found.select("p.pw-claim-note")
    assert [str(note["class"][1]) for note in notes] == [
        f"pw-claim-{kind}" for kind in ("wrong", "holds-if", "holds", "open", "unavailable")
    ]
    wrong, limited, *others = (" ".join(note.get_text().split()) for note in notes)
    assert wrong.startswith("✘ Often said, and wrong: The toy of T-2 is <fast> & [sound]. In fact: What T-2 is")
    assert wrong.endswith("(lesson 1, T-2)")
    assert limited.startswith("◐ Holds only if there is one piece:")
    assert others == ["✔ Said, and it holds: T-1", "? Not decidable here: T-4", "○ Not checked here: T-5"]
    assert {str(a["href"]) for a in found.select("a")} == {f"../claims.md#{name}" for name in views}


def test_a_note_says_of_what_it_is_wrong(views: dict[str, ClaimView]) -> None:
    note = html_of(claims.note_lines([replace(views["T-2"], of="the <toy>")], ".."))
    assert "Often said of the <toy>, and wrong there: The toy" in note.get_text()


def test_the_top_of_a_page_warns_in_short(views: dict[str, ClaimView]) -> None:
    found = html_of(claims.warning_lines(list(views.values()), ".."))
    wrong, limited = (" ".join(note.get_text().split()) for note in found.select("p.pw-claim-note"))
    assert wrong == "✘ Often said, and wrong: The toy of T-2 is <fast> & [sound]. (T-2)"
    assert limited.startswith("◐ Holds only if there is one piece:")
    assert claims.warning_lines([views["T-1"], views["T-4"], views["T-5"]], "..") == []


def test_notes_stand_beside_the_prose_and_after_it(views: dict[str, ClaimView]) -> None:
    notes = claims.note_lines([views["T-2"]], "..")
    found = html_of(claims.with_margin(["Some *prose*.", "", "* A list"], notes))
    columns = one(found, ".pw-beside > .pw-columns")
    prose, margin = columns.find_all(recursive=False)
    assert (prose["class"], margin.name, margin["class"]) == (["pw-prose"], "aside", ["pw-margin"])
    assert one(prose, "em").get_text() == "prose"
    assert one(prose, "li").get_text() == "A list"
    assert one(margin, "p.pw-claim-note")
    assert claims.with_margin(["Only prose."], []) == ["Only prose."]


def test_pages_have_their_notes_in_the_margin(sample_site: Path) -> None:
    page = BeautifulSoup((sample_site / "walkthroughs/alpha/index.html").read_text("utf-8"), "html.parser")
    (columns,) = page.select(".pw-columns")
    assert one(columns, ".pw-prose").select_one("pre, .highlight") is not None, "code in prose is still code"
    assert [node["class"][1] for node in columns.select(".pw-margin p.pw-claim-note")] == [
        "pw-claim-wrong",
        "pw-claim-holds",
    ]
    page = BeautifulSoup((sample_site / "concepts/toy-loop/index.html").read_text("utf-8"), "html.parser")
    assert "In fact" not in one(page, ".pw-margin").get_text()
    assert "In fact" in page.get_text()


def test_a_comment_is_not_called_often_said(views: dict[str, ClaimView]) -> None:
    note = html_of(claims.note_lines([replace(views["T-2"], group="code comments")], ".."))
    assert "Said, and wrong:" in note.get_text()
    assert "Often" not in note.get_text()


def test_a_failed_check_stands_on_the_page(views: dict[str, ClaimView]) -> None:
    failed = replace(views["T-1"], kind="failed", message="no longer true: the `loop` is there")
    found = html_of(claims.claim_lines(failed, "."))
    assert one(found, ".pw-claim-message").get_text() == "no longer true: the loop is there"
    assert "⚠ Check failed" in html_of(claims.note_lines([failed], ".")).get_text()


def test_no_notes_where_nothing_is_said() -> None:
    assert claims.note_lines([], ".") == []


def result(name: str, value: bool | None = True, status: str = "passed") -> Result:
    claim = ledger()[name]
    place = Place("vllm@0.24.0", "a/b.cu", 3, 3, "https://x.invalid/b.cu#L3")
    runs = (RunRef("vllm-classic/x", "a GPU", "2026-01-02"), RunRef("k/s under ncu", "a GPU", "2026-01-02", "hardware"))
    found = tuple(Finding(value, "seen", (place,), runs) for _ in claim.facts)
    return Result(claim, found, claim.expected if status == "passed" else None, status, "")


def test_a_view_of_a_result() -> None:
    view = claim_views.view(result("L1-19"))
    assert (view.kind, view.verdict, view.facts[0].truth) == ("holds", "holds", "true")
    assert view.facts[0].links[0].label == "b.cu, line 3 (vllm 0.24.0)"
    assert [run.url for run in view.facts[0].runs] == ["walkthroughs/vllm-classic.md#step-x", "simt-machine.md"]
    assert view.concepts["x-packing"]
    assert claim_views.view(result("L1-11")).of == "the classic kernel"
    assert claim_views.view(result("L1-19", None, "unavailable")).kind == "unavailable"
    assert claim_views.view(result("L1-19", False, "failed")).kind == "failed"
    kinds = {name: claim_views.view(result(name)).kind for name in ("L1-03", "L1-09", "L1-33")}
    assert kinds == {"L1-03": "holds-if", "L1-09": "wrong", "L1-33": "open"}


def test_a_claim_stands_once_in_a_walkthrough_at_code_that_it_is_about() -> None:
    everything = [result(name) for name in ledger()]
    placed: set[str] = set()
    for walk in catalog.registry().values():
        notes = claim_views.notes_of(walk, everything)
        ids = [r.claim.id for found in notes.values() for r in found]
        assert len(ids) == len(set(ids)), walk.id
        placed |= set(ids)
        for step in walk.steps:
            for note in notes.get(step.id, ()):
                if walk.id == "findings":
                    assert step.id in {fact.params.get("step") for fact in note.claim.facts}
                    continue
                assert set(note.claim.concepts) & set(step.reads)
                if "@" in step.source:
                    assert note.claim.source.split("@")[0] == step.source.split("@")[0]
    assert len(placed) > 0.7 * len(ledger())
    softmax = claim_views.notes_of(catalog.registry()["vllm-classic"], everything)["vllm-classic/accumulate"]
    assert "L1-11" in [r.claim.id for r in softmax]
    findings = claim_views.notes_of(catalog.registry()["findings"], everything)
    assert set(findings) == {step.id for step in catalog.registry()["findings"].steps}
    assert [r.claim.id for r in findings["findings/design-document"]] == ["D-01", "D-02", "D-03", "D-05"]


@pytest.mark.source
def test_the_real_pages_carry_the_claims(vllm_024: SourceTree, vllm_026: SourceTree) -> None:
    data = ProjectData()
    assert list(data.claims()) == list(ledger())
    shown = {claim.id: claim for claim in data.concept("online-softmax").claims}
    assert shown["L1-11"].kind == "wrong"
    step = next(s for s in data.walkthrough("vllm-classic").steps if s.slug == "normalise")
    assert "L1-40" in [claim.id for claim in step.claims]
    assert all(claim.kind != "failed" for claim in data.claims().values())
    assert data.claims()["L1-40"].verdict == Verdict.WRONG.value
