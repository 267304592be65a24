from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest
import yaml

from walkthroughs.site import pages

ROOT = Path(__file__).resolve().parents[2]


def test_stubs_are_written_once_and_then_left_alone(sample: ModuleType, tmp_path: Path) -> None:
    data = sample.SampleData()
    first = pages.write_all(tmp_path, data)
    tables = (data.walkthroughs(), data.concepts(), data.compares(), data.films(), data.drills())
    assert len(first) == sum(1 + len(table) for table in tables), "one each, and an index for each kind"
    assert sorted(first) == sorted(tmp_path.rglob("*.md"))
    assert pages.write_all(tmp_path, data) == []
    assert pages.outdated(tmp_path, data) == []
    assert not list(tmp_path.rglob(".*"))


def test_a_stale_missing_or_leftover_stub_is_named_and_mended(sample: ModuleType, tmp_path: Path) -> None:
    data = sample.SampleData()
    pages.write_all(tmp_path, data)
    changed, gone, extra = (
        tmp_path / "concepts" / "toy-loop.md",
        tmp_path / "walkthroughs" / "beta.md",
        tmp_path / "concepts" / "no-such.md",
    )
    changed.write_text("edited", "utf-8")
    gone.unlink()
    extra.write_text("left over", "utf-8")
    assert pages.outdated(tmp_path, data) == sorted([changed, gone, extra])
    assert pages.write_all(tmp_path, data) == sorted([changed, gone, extra])
    assert not extra.exists()
    assert pages.outdated(tmp_path, data) == []


def test_pages_of_other_folders_are_not_ours(sample: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "glossary.md").write_text("x", "utf-8")
    pages.write_all(tmp_path, sample.SampleData())
    assert (tmp_path / "glossary.md").read_text("utf-8") == "x"


def test_a_title_with_quotes_and_colons_stays_a_title() -> None:
    text = pages._stub('A: "b" & \\c', "body")
    assert yaml.safe_load(text.split("---")[1])["title"] == 'A: "b" & \\c'


@pytest.mark.parametrize("name", ["walkthroughs", "concepts", "compare"])
def test_an_index_links_inside_its_own_folder(sample: ModuleType, name: str) -> None:
    directive = {"compare": "compares"}.get(name, name)
    assert f"::: {directive} folder=." in pages.stubs(sample.SampleData())[f"{name}/index.md"]


def test_only_pages_of_code_alone_take_the_room_of_the_menu(sample: ModuleType) -> None:
    for path, text in pages.stubs(sample.SampleData()).items():
        head = yaml.safe_load(text.split("---")[1])
        folder, name = path.split("/")
        wide = folder in ("compare", "play") and name != "index.md"
        assert head.get("hide") == (["navigation", "toc"] if wide else None), path
