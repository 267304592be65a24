"""Fix-the-kernel pages: what stands on each without any script, and that no page gives its solution away."""

from __future__ import annotations

import difflib
import html
import re
from functools import cache
from pathlib import Path

import markdown
import pytest
import yaml
from bs4 import BeautifulSoup, Tag

from annotate import spans
from annotate.errors import UnknownName
from walkthroughs.drills import fix
from walkthroughs.site import code, fix_pages, pages
from walkthroughs.site.errors import UnknownPageItem
from walkthroughs.step import get

ROOT = Path(__file__).resolve().parents[2]
TASKS = {task.name: task for task in fix.tasks().values()}
NAMES = list(TASKS)
EXTENSIONS = ["attr_list", "md_in_html", "pymdownx.superfences", "tables"]


@cache
def shown(name: str) -> BeautifulSoup:
    """The page as a browser gets it; stashed HTML is put back at the end, as Python-Markdown does."""
    kept: list[str] = []

    def stash(text: str) -> str:
        kept.append(text)
        return f"STASH{len(kept) - 1}HERE"

    text = markdown.markdown("\n".join(fix_pages.page_lines(name, "../..", stash)), extensions=EXTENSIONS)
    for number, inner in enumerate(kept):
        text = re.sub(f"(<p>)?STASH{number}HERE(</p>)?", lambda _, inner=inner: inner, text)
    return BeautifulSoup(text, "html.parser")


def one(soup: BeautifulSoup | Tag, selector: str) -> Tag:
    (found,) = soup.select(selector)
    return found


def words(tag: Tag) -> str:
    return " ".join(tag.get_text(" ").split())


def lines_of(pane: Tag) -> dict[int, str]:
    return {int(str(line["value"])): line.get_text() for line in pane.select("li.pw-line")}


@pytest.mark.parametrize("name", NAMES)
def test_the_page_starts_from_the_file_with_the_fault_in_it(name: str) -> None:
    """The whole file, to the letter: it is what the editor starts from."""
    mount = one(shown(name), "section.pw-fix")
    assert mount["data-fix"] == TASKS[name].item.id
    assert mount["data-file"] == TASKS[name].file
    kept = re.search(r'<template class="pw-fix-start">(.*?)</template>', fix_pages.mount_html(view(name)), re.DOTALL)
    assert kept
    assert "<" not in kept[1]
    assert html.unescape(kept[1]) == fix.unsolved(TASKS[name])
    assert kept[1] != html.escape(fix.solved(TASKS[name]), quote=False)


@cache
def view(name: str) -> fix_pages.FixView:
    return fix_pages.view(TASKS[name])


@pytest.mark.parametrize("name", NAMES)
def test_the_pane_has_the_lines_in_question_as_they_are_now_and_some_around(name: str) -> None:
    pane = one(shown(name), ".pw-side-port figure.pw-port")
    assert pane["data-path"] == TASKS[name].file
    seen, start = lines_of(pane), fix.unsolved(TASKS[name]).split("\n")
    # This parser makes one space of an indentation.
    assert all(start[number - 1].split() == text.split() for number, text in seen.items())
    first, last = fix.excerpt(TASKS[name])
    fences = ("# region:", "# endregion")
    assert {n for n in range(first, last + 1) if not start[n - 1].strip().startswith(fences)} <= seen.keys()
    assert len(seen) <= last - first + 1 + 2 * fix_pages.MANY
    assert min(seen) < first
    assert max(seen) > last
    assert "fault" in words(one(pane, "figcaption")) or "blank" in words(one(pane, "figcaption"))


@pytest.mark.parametrize("name", NAMES)
def test_what_the_solution_changes_is_in_sight_and_nowhere_unfolded(name: str) -> None:
    """The lines that differ lie in the pane, faulty; their sound form is in the folded solution and nowhere else."""
    task, soup = TASKS[name], shown(name)
    before, after = fix.unsolved(task).splitlines(), fix.solved(task).splitlines()
    blocks = difflib.SequenceMatcher(a=before, b=after, autojunk=False).get_opcodes()
    changed = [first + 1 for what, first, *_ in blocks if what != "equal"]
    seen = lines_of(one(soup, "figure.pw-port"))
    assert any(min(seen) <= line <= max(seen) + 1 for line in changed)
    solution = one(soup, "details.pw-fix-solution")
    added = [line[1:].strip() for line in fix.diff(task).splitlines() if line.startswith("+") and line[1:2] != "+"]
    assert added
    assert all(" ".join(line.split()) in words(solution) for line in added)
    for fold in soup.select("details"):
        assert not fold.has_attr("open")
    rest = BeautifulSoup(str(soup), "html.parser")
    # Upstream may well say the same, and the file that the editor starts from is not shown.
    for part in rest.select(".pw-fix-solution, .pw-side-upstream, template"):
        part.extract()
    longest = max(added, key=len)
    if longest not in "\n".join(before):
        assert longest not in rest.get_text()


@pytest.mark.parametrize("name", NAMES)
def test_hints_come_in_stages_one_a_fold(name: str) -> None:
    folds = shown(name).select("details.pw-fix-hint")
    count = len(TASKS[name].hints)
    assert count >= 2
    titles = [words(one(fold, "summary")) for fold in folds]
    assert [title[:11] for title in titles] == [f"Hint {number} of {count}" for number in range(1, count + 1)]
    for fold, hint in zip(folds, TASKS[name].hints, strict=True):
        plain = re.sub(r"[`*\s]", "", hint)
        assert plain[:20] in re.sub(r"[`*\s]", "", fold.get_text())


@pytest.mark.parametrize("name", NAMES)
def test_upstream_stands_beside_it_or_the_page_says_why_not(name: str) -> None:
    task, soup = TASKS[name], shown(name)
    upstream = soup.select(".pw-side-upstream figure")
    try:
        known = {c for c, found in spans.spans(task.source).items() if found} if task.source else set()
    except UnknownName:
        known = set()
    if {task.shows, task.region} & known:
        assert upstream
        assert all(figure["data-source"] == task.source for figure in upstream)
        assert soup.select(".pw-upstream-links a")
    else:
        assert not upstream
        assert "No line of a source" in soup.get_text()


def test_most_have_upstream_beside_them() -> None:
    assert sum(bool(view(name).panes.upstream) for name in NAMES) >= 25


@pytest.mark.parametrize("name", NAMES)
def test_the_terminal_and_the_live_server_are_named(name: str) -> None:
    soup = shown(name)
    said = words(one(soup, "section.pw-fix"))
    assert "runs no code" in said
    assert "pagewalk site serve --allow-code" in said
    assert "with your rights" in said
    for command in ("fix", "check"):
        assert f"pagewalk drill {command} {TASKS[name].item.id}" in soup.get_text()
    assert not soup.select("textarea, button, script, form")


def test_the_commands_that_a_page_names_exist() -> None:
    from walkthroughs.commands.drill import drill_command

    context = drill_command.make_context("drill", ["list"], resilient_parsing=True)
    assert {"fix", "check"} <= set(drill_command.list_commands(context))


@pytest.mark.parametrize("name", NAMES)
def test_the_steps_that_judge_are_linked(name: str) -> None:
    links = {str(a["href"]) for a in shown(name).select("li a")}
    for step in map(get, TASKS[name].steps):
        assert f"../../walkthroughs/{step.walkthrough}.md#step-{step.slug}" in links


def test_where_the_source_is_not_here_the_page_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(code, "tree_of", lambda source: None)
    figures = fix_pages.view(TASKS["kv-head"]).panes.upstream
    assert figures
    assert all("pagewalk fetch" in figure for figure in figures)


def test_an_unknown_name_is_an_error_with_the_nearest() -> None:
    with pytest.raises(UnknownPageItem, match="kv-head"):
        fix_pages.page_lines("kv-heads", "../..", str)


def test_neighbours_are_linked() -> None:
    lines = [fix_pages.page_lines(name, "../..", str)[2] for name in (NAMES[0], NAMES[1], NAMES[-1])]
    assert f"({NAMES[1]}.md) →" in lines[0]
    assert "←" not in lines[0]
    assert f"({NAMES[0]}.md)" in lines[1]
    assert f"({NAMES[2]}.md) →" in lines[1]
    assert "→" not in lines[2]


# -- the stubs and the index


def test_a_stub_a_task_and_an_index() -> None:
    stubs = fix_pages.stubs()
    assert set(stubs) == {f"drills/fix/{name}.md" for name in ["index", *NAMES]}
    for path, text in stubs.items():
        head = yaml.safe_load(text.split("---")[1])
        assert head["title"]
        assert head.get("hide") == (None if path.endswith("index.md") else ["navigation", "toc"])
    assert "::: fix kv-head root=../.." in stubs["drills/fix/kv-head.md"]


def test_the_committed_stubs_are_these() -> None:
    folder = ROOT / "docs" / fix_pages.FOLDER
    there = {f"{fix_pages.FOLDER}/{path.name}": path.read_text("utf-8") for path in folder.glob("*.md")}
    assert there == fix_pages.stubs(), "pagewalk site build writes them"


def test_the_generator_owns_their_folder() -> None:
    assert fix_pages.FOLDER in pages.OWN_FOLDERS
    docs = ROOT / "docs"
    assert {path for path in pages.outdated(docs) if path.parent == docs / fix_pages.FOLDER} == set()


def test_the_index_has_every_task_once_under_its_file() -> None:
    text = "\n".join(fix_pages.index_lines())
    found = re.findall(r"\]\(([a-z0-9-]+)\.md\)", text)
    assert sorted(found) == sorted(NAMES)
    for part in text.split("\n## ")[1:]:
        file = part.split("`")[1]
        assert {TASKS[name].file for name in re.findall(r"\]\(([a-z0-9-]+)\.md\)", part)} == {file}


def test_nothing_of_an_upstream_file_is_in_a_stub() -> None:
    for text in fix_pages.stubs().values():
        assert len(text) < 1200
