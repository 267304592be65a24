"""The real pages: stubs up to date, every step with both panes, and the whole site built as a reader builds it."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import ModuleType

import pytest
import yaml
from bs4 import BeautifulSoup

from annotate import sources
from annotate.concepts import concepts
from annotate.errors import SourceUnavailable
from walkthroughs import step as catalog
from walkthroughs.site import code, pages
from walkthroughs.site.errors import UnknownPageItem
from walkthroughs.site.loader import ProjectData

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"


@pytest.fixture(scope="module")
def checks(loaded: Callable[[Path], ModuleType]) -> ModuleType:
    """The checks of the made-up site, to be made on the real one too."""
    return loaded(Path(__file__).with_name("test_built_sample.py"))


@cache
def page_of(path: Path) -> BeautifulSoup:
    """A page of the built site, to be looked at only: the large ones take seconds to read, and several tests do."""
    return BeautifulSoup(path.read_text("utf-8"), "html.parser")


@pytest.fixture(scope="module")
def built(real_site: Path) -> Path:
    return real_site


def test_the_committed_stubs_are_up_to_date() -> None:
    assert pages.outdated(DOCS) == [], "write them: pagewalk site build"


def test_the_menu_names_every_walkthrough() -> None:
    text = (ROOT / "mkdocs.yml").read_text("utf-8")
    for name in catalog.registry():
        assert f"walkthroughs/{name}.md" in text


def test_the_configuration_needs_no_other_host_hook_or_plugin() -> None:
    settings = yaml.safe_load((ROOT / "mkdocs.yml").read_text("utf-8"))
    assert settings["plugins"] == ["search"]
    assert settings["theme"]["font"] is False
    assert not {"hooks", "repo_url", "edit_uri"} & set(settings)
    assert "analytics" not in settings["extra"]
    schemes = [entry["scheme"] for entry in settings["theme"]["palette"]]
    assert schemes == ["default", "slate"]
    for address in [*settings["extra_css"], *settings["extra_javascript"]]:
        assert (DOCS / address).is_file()


def test_no_page_holds_an_upstream_file_path_without_its_release() -> None:
    """Hand-written pages speak of releases, so that a reader knows which code is meant."""
    for path in DOCS.glob("*.md"):
        text = path.read_text("utf-8")
        assert "csrc/" not in text or "0.24.0" in text, path


@pytest.mark.parametrize("step", list(catalog.steps().values()), ids=lambda step: step.id)
def test_every_step_shows_lines_of_ours_and_known_concepts(step: catalog.Step) -> None:
    assert set(step.reads) <= set(concepts())
    ours = [step.source] if "@" not in step.source else []
    figures = code.own_figures([*ours, *code.files_of_port(step.port)], step.reads, step.slug)
    assert figures.html, "neither the port nor our reference has a region of what the step reads"


def test_unknown_ids_are_answered_with_the_nearest() -> None:
    data = ProjectData()
    with pytest.raises(UnknownPageItem, match="vllm-classic"):
        data.walkthrough("vllm-clasic")
    with pytest.raises(UnknownPageItem, match="x-packing"):
        data.concept("x-paking")
    with pytest.raises(UnknownPageItem, match=r"vllm@0\.24\.0"):
        data.pair("x-packing", "vllm@0.24")
    with pytest.raises(UnknownPageItem):
        data.pair("x-paking", "vllm@0.24.0")


def test_a_concept_knows_the_steps_that_read_it() -> None:
    view = ProjectData().concept("gather-lookup")
    assert "lookup" in [step.slug for step in view.steps]


def absent(source: str) -> bool:
    """Whether an optional source is not on this machine: its steps show where the lines are instead."""
    if source not in sources.pins() or not sources.pins()[source].optional:
        return False
    try:
        sources.open_tree(source)
    except SourceUnavailable:
        return True
    return False


@pytest.mark.source
def test_the_real_site_has_unique_ids_and_no_dead_link(built: Path, checks: ModuleType) -> None:
    assert checks.check_ids_and_links(built) > 1000


@pytest.mark.source
def test_the_real_site_loads_nothing_from_elsewhere(built: Path, checks: ModuleType) -> None:
    checks.check_nothing_from_elsewhere(built)


@pytest.mark.source
def test_every_step_has_its_panes_its_badge_and_its_table(built: Path) -> None:
    for walk in catalog.registry().values():
        page = page_of(built / f"walkthroughs/{walk.id}/index.html")
        assert len(page.select("table.pw-evidence")) == len(walk.steps)
        missing = {str(pane["data-source"]) for pane in page.select(".pw-missing")}
        assert missing == {step.source for step in walk.steps if absent(step.source)}
        for step in walk.steps:
            assert page.find("h2", id=f"step-{step.slug}"), step.id
            pair = page.find(id=f"pair-{step.slug}")
            assert pair is not None
            if absent(step.source):
                figures = pair.select(".pw-missing")
                assert figures, step.id
                commit = sources.pins()[step.source].digest.removeprefix("git:")
                assert all(f"/blob/{commit}/src/" in str(figure) for figure in figures)
                assert all("pagewalk fetch" in figure.get_text() for figure in figures)
            sides = ("upstream", "port") if "@" in step.source else ("upstream",)
            for side in sides[1:] if absent(step.source) else sides:
                assert pair.select(f".pw-{side} .pw-line[data-links]"), (step.id, side)
        assert len(page.select("a.pw-badge")) >= len(walk.steps)


@pytest.mark.source
def test_every_step_of_upstream_code_has_a_line_that_lights_up_on_both_sides(built: Path) -> None:
    lonely = []
    for walk in catalog.registry().values():
        page = page_of(built / f"walkthroughs/{walk.id}/index.html")
        for step in walk.steps:
            if "@" not in step.source or absent(step.source):
                continue  # plain Python beside a kernel: some steps show two different things on purpose
            pair = page.find(id=f"pair-{step.slug}")
            assert pair is not None
            left, right = (
                {link for line in pair.select(f".pw-{side} [data-links]") for link in str(line["data-links"]).split()}
                for side in ("upstream", "port")
            )
            if not left & right:
                lonely.append(step.id)
    assert lonely == []


@pytest.mark.source
def test_every_upstream_pane_names_its_licence_and_links_to_its_lines(built: Path) -> None:
    page = page_of(built / "walkthroughs/vllm-classic/index.html")
    panes = page.select(".pw-upstream[data-source^=vllm]")
    assert len(panes) >= 16
    for pane in panes:
        link = pane.select_one("figcaption a")
        assert link is not None
        assert "/blob/v0.24.0/" in str(link["href"])
        assert "#L" in str(link["href"])
        licence = pane.select_one(".pw-licence")
        assert licence is not None
        assert licence.get_text() == "Apache-2.0"


@pytest.mark.source
def test_the_history_page_has_a_lane_a_track_and_a_cell_a_release(built: Path) -> None:
    from annotate.history import committed
    from annotate.tracks import tracks

    page = page_of(built / "history/index.html")
    lanes = page.select("td .pw-lane")
    assert len(lanes) == len(tracks())
    releases = [entry.revision for entry in committed()]
    for lane in lanes:
        cells = lane.select(".pw-cell")
        assert [cell["title"].split(":")[0] for cell in cells] == releases
        for cell in cells:
            # Never by colour alone: a sign that is seen, and words for who cannot see it.
            spoken = cell.select_one(".pw-spoken")
            assert spoken is not None
            assert spoken.get_text(strip=True) == cell["title"]
            assert cell.get_text().removesuffix(spoken.get_text()).strip()
    signs = {cell.get_text().strip()[0] for cell in page.select("td .pw-v-gone")}
    assert signs == {"✕"}
    first = page.find("a", string="The kernel's signature")
    assert first is not None
    row = first.find_parent("tr")
    assert row is not None
    gone = row.select_one(".pw-v-gone")
    assert gone is not None
    assert gone["title"] == "0.25.0: gone"
    link = row.select_one("a.pw-v-moved")
    assert link is not None
    assert "/blob/v0.23.0/csrc/libtorch_stable/attention/attention_kernels.cuh#L76-L102" in link["href"]


@pytest.mark.source
def test_every_step_on_followed_code_says_what_became_of_it(built: Path) -> None:
    for walk in catalog.registry().values():
        page = page_of(built / f"walkthroughs/{walk.id}/index.html")
        notes = page.select("p.pw-drift")
        followed = [step for step in walk.steps if step.source.startswith("vllm@")]
        assert len(notes) == len(followed)
        for note in notes:
            assert note.select_one('a[href="../../history/"]')
    classic = page_of(built / "walkthroughs/vllm-classic/index.html")
    told = classic.select_one(".pw-drift-gone")
    assert told is not None
    assert "left vLLM by 0.25.0 (0.24.0 still had it)" in told.get_text()
    assert told.select('a[href^="../../concepts/"]')
