"""The made-up site as mkdocs builds it: ids, links, search, and nothing from another host."""

from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType
from urllib.parse import unquote, urldefrag, urlsplit

import pytest
from bs4 import BeautifulSoup

from walkthroughs.site.errors import StepNotProven
from walkthroughs.site.model import WalkthroughView


def pages_of(site: Path) -> dict[Path, BeautifulSoup]:
    found = {path: BeautifulSoup(path.read_text("utf-8"), "html.parser") for path in sorted(site.rglob("*.html"))}
    assert len(found) > 8
    return found


def check_ids_and_links(site: Path) -> int:
    """Every id is unique on its page, and every link inside the site leads to a page and to an id there."""
    pages = pages_of(site)
    ids = {path: [str(node["id"]) for node in page.find_all(id=True)] for path, page in pages.items()}
    for path, found in ids.items():
        doubled = {name for name in found if found.count(name) > 1}
        assert not doubled, f"{path}: {doubled}"
    checked = 0
    for path, page in pages.items():
        for link in page.select("a[href]"):
            address, anchor = urldefrag(str(link["href"]))
            if urlsplit(address).scheme or path.name == "404.html":
                continue
            # A query is a page's own state, such as the layout explorer's.
            address = address.partition("?")[0]
            target = path if not address else (path.parent / unquote(address)).resolve()
            target = target / "index.html" if target.is_dir() else target
            assert target.is_file(), f"{path}: {link['href']}"
            if anchor and target in ids:
                assert anchor in ids[target] or anchor == "__comments", f"{path}: {link['href']}"
            checked += 1
    return checked


def check_nothing_from_elsewhere(site: Path) -> None:
    """No page loads anything from another host. (Links that a reader follows are not loaded.)"""
    for path, page in pages_of(site).items():
        loaded = [
            str(node.get(name))
            for selector, name in (("script", "src"), ("img", "src"), ("iframe", "src"), ("source", "src"))
            for node in page.select(f"{selector}[{name}]")
        ]
        loaded += [str(node["href"]) for node in page.select("link[href]") if node.get("rel") != ["canonical"]]
        for address in loaded:
            host = urlsplit(address).netloc
            assert host in ("", "127.0.0.1:8000"), f"{path}: {address}"
        assert not page.select("link[rel=preconnect], link[rel=dns-prefetch]")


def test_ids_are_unique_and_links_resolve(sample_site: Path) -> None:
    assert check_ids_and_links(sample_site) > 100


def test_nothing_is_loaded_from_another_host(sample_site: Path) -> None:
    check_nothing_from_elsewhere(sample_site)


def test_steps_and_lines_have_stable_ids(sample_site: Path) -> None:
    page = BeautifulSoup((sample_site / "walkthroughs/alpha/index.html").read_text("utf-8"), "html.parser")
    for name in ("step-loop", "step-write", "pair-loop", "src-loop-u-L5", "src-loop-p-L6", "src-write-u-L37"):
        assert page.find(id=name), name


def test_search_knows_every_step_and_concept(sample_site: Path) -> None:
    index = json.loads((sample_site / "search/search_index.json").read_text("utf-8"))
    places = {entry["location"] for entry in index["docs"]}
    assert {"walkthroughs/alpha/#step-loop", "concepts/toy-loop/", "mental-model/#why-blocks"} <= places


def test_search_finds_names_but_shows_no_code(sample_site: Path) -> None:
    index = json.loads((sample_site / "search/search_index.json").read_text("utf-8"))
    step = next(entry for entry in index["docs"] if entry["location"] == "walkthroughs/alpha/#step-loop")
    assert "part_7" in step["text"]
    assert "part_8" not in step["text"], "only the code itself has this one"
    assert "asks the table" in step["text"]
    assert not [entry for entry in index["docs"] if "blockIdx" in entry["text"]]


def test_the_four_badges_are_links_to_their_meaning(sample_site: Path) -> None:
    kinds = set()
    for name in ("alpha", "beta"):
        page = BeautifulSoup((sample_site / f"walkthroughs/{name}/index.html").read_text("utf-8"), "html.parser")
        for badge in page.select("a.pw-badge"):
            assert badge["href"] == "../../how-we-know/#badges"
            kinds.add(badge["class"][1])
    assert kinds == {"pw-badge-gpu", "pw-badge-sim", "pw-badge-stale", "pw-badge-pending"}


def test_a_failed_step_fails_the_build(sample: ModuleType, tmp_path: Path) -> None:
    from mkdocs.commands.build import build

    class Broken(sample.SampleData):  # type: ignore[misc,name-defined]
        def walkthrough(self, name: str) -> WalkthroughView:
            raise StepNotProven("alpha/loop", "the run on NVIDIA H200 failed (sum)", "Run it")

    docs = tmp_path / "docs"
    docs.mkdir()
    sample.write_docs(docs)
    settings = sample.config(docs, tmp_path / "site")
    settings.mdx_configs["walkthroughs.site.extension"] = {"data": Broken()}
    with pytest.raises(StepNotProven):
        build(settings)


def test_a_link_to_nowhere_fails_the_build(sample: ModuleType, tmp_path: Path) -> None:
    from mkdocs.commands.build import build
    from mkdocs.exceptions import Abort

    docs = tmp_path / "docs"
    docs.mkdir()
    sample.write_docs(docs)
    (docs / "index.md").write_text("# Start\n\n[x](walkthroughs/alpha.md#step-no-such)\n", "utf-8")
    with pytest.raises(Abort):
        build(sample.config(docs, tmp_path / "site"))
