"""The made-up site as mkdocs builds it: ids, links, search, and nothing from another host."""

from __future__ import annotations

import json
from collections import Counter
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from types import ModuleType
from typing import ClassVar
from urllib.parse import unquote, urldefrag, urlsplit

import pytest
from bs4 import BeautifulSoup

from walkthroughs.site.errors import StepNotProven
from walkthroughs.site.model import WalkthroughView


class Page(HTMLParser):
    """What a page holds for these checks: its ids, where its links lead, and what it loads. Read without a tree: the

    real site has a third of a million elements.
    """

    LOADING: ClassVar = {"script": "src", "img": "src", "iframe": "src", "source": "src", "link": "href"}

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: Counter[str] = Counter()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.hints: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        has = dict(attrs)
        relations = (has.get("rel") or "").split()
        if "id" in has:
            self.ids[str(has["id"])] += 1
        if tag == "a" and "href" in has:
            self.links.append(has["href"] or "")
        if self.LOADING.get(tag) in has and not (tag == "link" and relations == ["canonical"]):
            self.loaded.append(has[self.LOADING[tag]] or "")
        if tag == "link" and {"preconnect", "dns-prefetch"} & {*relations}:
            self.hints.append(str(has))


@cache
def page_of(path: Path) -> Page:
    """A page of a built site, which nothing changes: both checks read it once."""
    return Page(path.read_text("utf-8"))


def pages_of(site: Path) -> dict[Path, Page]:
    found = {path: page_of(path) for path in sorted(site.rglob("*.html"))}
    assert len(found) > 8
    return found


def check_ids_and_links(site: Path) -> int:
    """Every id is unique on its page, and every link inside the site leads to a page and to an id there."""
    pages = pages_of(site)
    for path, page in pages.items():
        doubled = {name for name, count in page.ids.items() if count > 1}
        assert not doubled, f"{path}: {doubled}"
    checked = 0
    for path, page in pages.items():
        targets: dict[str, Path] = {}
        for link in page.links:
            address, anchor = urldefrag(link)
            if urlsplit(address).scheme or path.name == "404.html":
                continue
            # A query is a page's own state, such as the layout explorer's.
            address = address.partition("?")[0]
            if address not in targets:
                target = path if not address else (path.parent / unquote(address)).resolve()
                targets[address] = target / "index.html" if target.is_dir() else target
            target = targets[address]
            assert target in pages or target.is_file(), f"{path}: {link}"
            if anchor and target in pages:
                assert anchor in pages[target].ids or anchor == "__comments", f"{path}: {link}"
            checked += 1
    return checked


def check_nothing_from_elsewhere(site: Path) -> None:
    """No page loads anything from another host. (Links that a reader follows are not loaded.)"""
    for path, page in pages_of(site).items():
        assert page.loaded, f"{path}: not even its own styles"
        for address in page.loaded:
            host = urlsplit(address).netloc
            assert host in ("", "127.0.0.1:8000"), f"{path}: {address}"
        assert page.hints == [], path


def test_the_checks_find_what_they_are_for(tmp_path: Path) -> None:
    sound = '<link rel="stylesheet" href="/a.css"><a href="1.html#x" id="x">\n<br id=y><img src=a.png />'
    for number in range(9):
        (tmp_path / f"{number}.html").write_text(sound, "utf-8")
    (tmp_path / "a.png").touch()
    assert check_ids_and_links(tmp_path) == 9
    check_nothing_from_elsewhere(tmp_path)
    faults = {
        check_ids_and_links: ["<p id=y>", "<p id='x'/>", "<a href='10.html'>", "<a href='#z'>", "<a href='2.html?#z'>"],
        check_nothing_from_elsewhere: [
            *(f"<{tag} src='https://else.where/a'>" for tag in ("script", "img", "iframe", "source")),
            "<link rel=icon href='//else.where/a'>",
            "<link rel='preconnect' href=''>",
            "<link rel='x dns-prefetch' href=''>",
        ],
    }
    for check, added in faults.items():
        for fault in added:
            page_of.cache_clear()
            (tmp_path / "8.html").write_text(sound + fault, "utf-8")
            with pytest.raises(AssertionError, match=r"8\.html"):
                check(tmp_path)
    page_of.cache_clear()


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
