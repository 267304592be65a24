"""`pagewalk export`: files where they were asked for, one JSON object, wrong use with the nearest names."""

from __future__ import annotations

import json
import subprocess
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nbformat
import pytest
from click.testing import CliRunner

from walkthroughs.commands import export, site
from walkthroughs.export import notebook, offline
from walkthroughs.step import registry

RunCli = Callable[..., "subprocess.CompletedProcess[str]"]
Rows = Callable[..., list[dict[str, Any]]]


# Tours


def test_tours_without_any_source(
    run_cli: RunCli, json_rows: Rows, empty_cache: dict[str, str], tmp_path: Path
) -> None:
    done = run_cli("export", "tour", "--json", "--output", str(tmp_path / "t"), env=empty_cache)
    assert done.returncode == 0, done.stderr
    rows = json_rows(done, "tours")
    assert {row["status"] for row in rows} == {"passed"}
    assert sorted(path.name for path in (tmp_path / "t").iterdir()) == sorted(f"{row['id']}.tour" for row in rows)
    for row in rows:
        data = json.loads(Path(row["path"]).read_text("utf-8"))
        assert (row["steps"], row["patterns"], row["ref"]) == (len(data["steps"]), 0, data["ref"])
        assert f"pagewalk fetch {row['source']}" in row["message"]
        assert row["message"] in done.stderr


def test_tours_land_in_a_hidden_folder_beside_the_reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(export.export_command, ["tour", "vllm-writers"])
    assert done.exit_code == 0, done.output
    assert [path.name for path in (tmp_path / ".tours").iterdir()] == ["vllm-writers.tour"]
    assert done.stdout == ""
    assert "steps through vllm@0.26.0" in done.stderr


def test_a_tour_for_any_revision_needs_the_source(run_cli: RunCli, empty_cache: dict[str, str], tmp_path: Path) -> None:
    done = run_cli("export", "tour", "vllm-classic", "--anywhere", "--output", str(tmp_path), env=empty_cache)
    assert done.returncode == 1
    assert "pagewalk fetch vllm@0.24.0" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_tour_of_a_source_that_a_walkthrough_has_not(run_cli: RunCli) -> None:
    done = run_cli("export", "tour", "vllm-classic", "--source", "vllm@0.26.0")
    assert done.returncode == 2
    assert "Its sources: vllm@0.24.0" in done.stderr


# Notebooks


def test_a_notebook_without_running_it(run_cli: RunCli, json_rows: Rows, tmp_path: Path) -> None:
    done = run_cli("export", "notebook", "findings", "--no-run", "--json", "--output", str(tmp_path))
    row = json_rows(done, "notebooks")[0]
    assert (done.returncode, row["status"], row["backend"]) == (0, "passed", None)
    book = nbformat.read(row["path"], as_version=4)
    assert all(not cell.get("outputs") and not cell.get("execution_count") for cell in book.cells)
    assert "not run" in done.stderr
    assert "backend" not in done.stderr


def test_a_notebook_says_its_backend(run_cli: RunCli, json_rows: Rows, tmp_path: Path) -> None:
    done = run_cli("export", "notebook", "paged-reference", "--backend", "sim", "--json", "--output", str(tmp_path))
    row = json_rows(done, "notebooks")[0]
    assert (done.returncode, row["status"], row["backend"]) == (0, "passed", "sim")
    assert "backend: sim (as asked)" in done.stderr
    book = nbformat.read(row["path"], as_version=4)
    assert all(cell.outputs for cell in book.cells if cell.cell_type == "code")


def test_a_failed_notebook_is_named_and_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(book: Any, backend: str) -> Any:
        raise notebook.NotebookFailed("StepDidNotPass: w/broken")

    monkeypatch.setattr(notebook, "execute", fails)
    command = ["notebook", "findings", "paged-reference", "--backend", "sim", "--output", str(tmp_path), "--json"]
    done = CliRunner().invoke(export.export_command, command)
    assert done.exit_code == 1
    rows = json.loads(done.stdout)["notebooks"]
    assert [(row["id"], row["status"], row["path"]) for row in rows] == [
        ("findings", "failed", None),
        ("paged-reference", "failed", None),
    ]
    assert "w/broken" in done.stderr
    assert "2 of 2 notebooks failed" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_without_nbclient_a_notebook_can_still_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "nbclient", None)
    runner, end = CliRunner(), ["--output", str(tmp_path)]
    done = runner.invoke(export.export_command, ["notebook", "findings", "--backend", "sim", *end])
    assert done.exit_code == 1
    assert "--no-run" in done.stderr
    assert runner.invoke(export.export_command, ["notebook", "findings", "--no-run", *end]).exit_code == 0


# The site


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """mkdocs, replaced by something that writes one page where the settings say."""
    made: list[list[str]] = []

    def run(command: list[str], **kwargs: object) -> subprocess.CompletedProcess[str]:
        made.append(command)
        settings = json.loads(Path(command[-1]).read_text("utf-8"))
        Path(settings["site_dir"]).mkdir()
        Path(settings["site_dir"], "index.html").write_text("home", "utf-8")
        return subprocess.CompletedProcess(command, 0)

    monkeypatch.setattr(site, "prepare", lambda backend: None)
    monkeypatch.setattr(offline, "revision", lambda: "commit abc")
    monkeypatch.setattr(export.subprocess, "run", run)
    return made


def test_the_site_is_built_with_the_settings_and_packed(
    calls: list[list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PAGEWALK_CACHE", str(tmp_path / "cache"))
    target = tmp_path / "out" / "copy.zip"
    done = CliRunner().invoke(export.export_command, ["site", "--output", str(target), "--json"])
    assert done.exit_code == 0, done.output
    row = json.loads(done.stdout)["sites"][0]
    assert (row["status"], row["path"], row["files"]) == ("passed", str(target), 3)
    assert row["bytes"] == target.stat().st_size
    assert calls[0][1:5] == ["-m", "mkdocs", "build", "--strict"]
    with zipfile.ZipFile(target) as archive:
        assert archive.read("pagewalk-site/index.html") == b"home"
        readme = archive.read("pagewalk-site/README.txt").decode()
        assert b"Apache License" in archive.read("pagewalk-site/LICENSE.txt")
    assert "commit abc" in readme
    assert "No line of vllm 0.24.0" in readme
    assert "pagewalk fetch vllm@0.24.0" in done.stderr


def test_a_site_that_cannot_be_built_leaves_no_zip(
    calls: list[list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(export.subprocess, "run", lambda command, **_: subprocess.CompletedProcess(command, 1))
    target = tmp_path / "copy.zip"
    done = CliRunner().invoke(export.export_command, ["site", "--output", str(target), "--json"])
    assert done.exit_code == 1
    assert json.loads(done.stdout)["sites"] == [{"id": "site", "status": "failed", "path": None}]
    assert not target.exists()


# What they share


def test_chosen_keeps_the_readers_order_and_takes_all_without_names() -> None:
    assert [walk.id for walk in export.chosen(("findings", "vllm-classic", "findings"))] == ["findings", "vllm-classic"]
    assert [walk.id for walk in export.chosen(())] == list(registry())
