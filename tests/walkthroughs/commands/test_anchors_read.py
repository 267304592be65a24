"""`pagewalk anchors` and `read`, on the real sources and without them."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[3]
ESCAPE = "\x1b["
RunCli = Callable[..., "subprocess.CompletedProcess[str]"]
Rows = Callable[..., list[dict[str, Any]]]


@pytest.mark.source
@pytest.mark.parametrize("source", ["vllm@0.24.0", "vllm@0.26.0"])
def test_every_anchor_resolves(
    json_rows: Rows, run_cli: RunCli, vllm_024: object, vllm_026: object, source: str
) -> None:
    done = run_cli("anchors", "--source", source, "--json")
    found = json_rows(done, "anchors")
    assert [row for row in found if row["status"] != "passed"] == []
    assert done.returncode == 0
    assert len(found) >= (50 if source == "vllm@0.24.0" else 5)
    for row in found:
        assert row["source"] == source
        assert 1 <= row["first"] <= row["last"]
        assert re.fullmatch("[0-9a-f]{32}", row["digest"])


def test_anchors_of_a_missing_source_are_unavailable(
    json_rows: Rows, run_cli: RunCli, empty_cache: dict[str, str]
) -> None:
    done = run_cli("anchors", "--source", "vllm@0.24.0", "--json", env=empty_cache)
    assert done.returncode == 1
    found = json_rows(done, "anchors")
    assert found
    assert {row["status"] for row in found} == {"unavailable"}
    assert "pagewalk fetch" in done.stderr


@pytest.mark.source
@pytest.mark.parametrize("columns", ["60", "100", "160"])
def test_read_shows_both_panes(json_rows: Rows, run_cli: RunCli, vllm_024: object, columns: str) -> None:
    done = run_cli("read", "block-table-walk", env={"COLUMNS": columns})
    assert done.returncode == 0, done.stderr
    (concept,) = json_rows(run_cli("read", "block-table-walk", "--json"), "concepts")
    region = next(region for region in concept["regions"] if "attention_kernels" in region["path"])
    text = (ROOT / region["path"]).read_text().splitlines()
    ours = range(region["first"], region["last"] + 1)
    code = [line for line in ours if "region" not in text[line - 1]]
    assert len(code) < len(ours), "this concept has a fence inside"
    for line in (219, 250, *code):
        assert re.search(rf"(^|\s){line}\s+┃", done.stdout, re.MULTILINE), line
    assert "endregion" not in done.stdout
    # Side by side a path may be broken over lines, with the other pane's text between.
    assert re.search("attention_kernels.cuh", done.stdout) or columns == "100"
    assert "Apache-2.0" in done.stdout
    assert ESCAPE not in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= int(columns)


@pytest.mark.source
def test_read_as_json_names_the_lines(json_rows: Rows, run_cli: RunCli, vllm_024: object) -> None:
    done = run_cli("read", "block-table-walk", "--json")
    (concept,) = json_rows(done, "concepts")
    assert concept["id"] == "block-table-walk"
    spans = [span for span in concept["spans"] if span["source"] == "vllm@0.24.0"]
    assert [(span["first"], span["last"]) for span in spans] == [(219, 250)]
    assert concept["regions"]
    for region in concept["regions"]:
        lines = (ROOT / region["path"]).read_text().splitlines()
        assert lines[region["first"] - 2].strip() == "# region: block-table-walk"
        assert lines[region["last"]].strip().startswith("# endregion")


def test_read_without_the_source_still_shows_the_port(run_cli: RunCli, empty_cache: dict[str, str]) -> None:
    done = run_cli("read", "block-table-walk", env=empty_cache)
    assert "kernels/vllm/" in done.stdout
    assert "pagewalk fetch" in done.stderr
    assert done.returncode == 1


def test_read_of_every_concept_without_sources(empty_cache: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """No concept of the table may break the command, whatever it has or lacks."""
    from click.testing import CliRunner

    from annotate.concepts import concepts
    from walkthroughs.commands.read import read_command

    monkeypatch.setenv("PAGEWALK_CACHE", empty_cache["PAGEWALK_CACHE"])
    for name in concepts():
        result = CliRunner().invoke(read_command, [name])
        assert result.exit_code in (0, 1), (name, result.output, result.exception)
        assert concepts()[name].title in result.output
