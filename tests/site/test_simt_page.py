"""The page on the SIMT machine says nothing that the machine does not have: errors, schedules, commands, the nav."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from click.testing import CliRunner

import kernels.simt as simt
from walkthroughs.cli import cli
from walkthroughs.site.drawings import names

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGE = (DOCS / "simt-machine.md").read_text("utf-8")
FORMAT = (DOCS / "trace-format.md").read_text("utf-8")


def test_every_error_of_the_table_is_one_of_the_machines() -> None:
    named = re.findall(r"`([A-Z]\w+)`", PAGE)
    assert len(set(named)) >= 6
    for name in named:
        assert issubclass(getattr(simt, name), simt.SimtError), name


def test_every_schedule_of_the_list_is_one() -> None:
    words = re.findall(r"^`([\w:-]+)`\n:", PAGE, re.M)
    for word in words:
        assert simt.Schedule.parse(word.replace("SEED", "3").replace("PLAN", "*=1,0"))
    from kernels.simt.schedule import KINDS

    assert {word.split(":")[0] for word in words} == set(KINDS)


def test_the_drawing_and_the_table_of_differences_are_there() -> None:
    assert "simt-machine" in names()
    assert PAGE.index("::: svg simt-machine") < PAGE.index("The SIMT machine runs")
    (path,) = re.findall(r"`(tests/\S+\.py)`", PAGE)
    assert (DOCS.parent / path).is_file()


@pytest.mark.parametrize("line", re.findall(r"^\$ pagewalk (.*)$", PAGE + FORMAT, re.M))
def test_the_commands_on_the_pages_run(line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(cli, line.split())
    assert result.exit_code == 0, result.output
    if "-o" in line:
        assert Path(line.split("-o ")[1]).stat().st_size > 1000


def test_both_pages_are_in_the_menu() -> None:
    menu = (DOCS.parent / "mkdocs.yml").read_text("utf-8").split("\nnav:")[1]
    assert "simt-machine.md" in menu
    assert "trace-format.md" in menu


def test_sentences_are_short() -> None:
    for page in (PAGE, FORMAT):
        prose = re.sub(r"```.*?```|^\|.*$|^---.*?^---|^#.*$|^:::.*$", "", page, flags=re.S | re.M)
        for sentence in re.split(r"(?<=[.:?])\s", prose):
            assert len(sentence.split()) <= 32, sentence
