"""`pagewalk walk` without a terminal: the walk on paper, as JSON, and what it refuses."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from walkthroughs.commands.walk import first_step
from walkthroughs.digest import ROOT
from walkthroughs.step import get, registry
from walkthroughs.stepper import printed
from walkthroughs.stepper.films import films
from walkthroughs.stepper.progress import Place, Progress, load, save

RunCli = Callable[..., "subprocess.CompletedProcess[str]"]
Rows = Callable[["subprocess.CompletedProcess[str]", str], list[dict[str, Any]]]
LOOKUP = "paged-reference/lookup"


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    return {"PAGEWALK_STATE": str(tmp_path)}


def test_a_step_on_paper(run_cli: RunCli, env: dict[str, str]) -> None:
    done = run_cli("walk", LOOKUP, env=env)
    assert done.returncode == 0, done.stderr
    text = done.stdout
    assert text.startswith(f"Read through the table  ({LOOKUP})\n")
    assert " ".join(printed.without(get(LOOKUP).prose).split())[:60] in " ".join(text.split())
    assert "kernels/reference.py" in text
    assert "kernels/gather.py" in text
    assert "What thread 0 of block 0 did here" in text
    assert "logical block 0 lies in physical block 3" in text
    assert "Record: " in text
    assert "\x1b" not in text
    assert not list(Path(env["PAGEWALK_STATE"]).iterdir())  # paper keeps no place


def test_paper_imports_no_textual() -> None:
    code = (
        "import sys, click.testing\n"
        "from walkthroughs.cli import cli\n"
        f"done = click.testing.CliRunner().invoke(cli, ['walk', '--print', '{LOOKUP}'])\n"
        "assert done.exit_code == 0, done.output\n"
        "assert 'logical block 1' in done.output\n"
        "found = [name for name in sys.modules if name.partition('.')[0] == 'textual']\n"
        "assert not found, found\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_without_a_name_it_is_the_first_walkthrough_or_the_last_one_read(run_cli: RunCli, tmp_path: Path) -> None:
    env = {"PAGEWALK_STATE": str(tmp_path)}
    done = run_cli("walk", env=env)
    assert "walkthrough: paged-reference" in done.stderr
    for step in registry()["paged-reference"].steps:
        assert f"{step.title}  ({step.id})" in done.stdout
    progress = Progress()
    progress.at("block-lifetime/edges")
    save(tmp_path / "walk.json", progress)
    assert "walkthrough: block-lifetime" in run_cli("walk", env=env).stderr


def test_json(run_cli: RunCli, json_rows: Rows, env: dict[str, str]) -> None:
    done = run_cli("walk", "vllm-classic/block-table", "--json", env=env)
    (row,) = json_rows(done, "steps")
    assert row["id"] == "vllm-classic/block-table"
    assert row["film"] == {
        "id": "classic-v1", "case": "grouped", "block": 2, "thread": 0,
        "concepts": ["block-table-row", "block-table-walk", "block-table-lookup"], "start": 53, "moments": 1388,
    }  # fmt: skip
    texts = [entry["text"] for entry in row["happened"]]
    assert "reads 7 from block_tables[6]: logical block 0 lies in physical block 7" in texts
    assert row["checks"]
    assert all(check["passed"] for check in row["checks"])
    assert all("#L" in place["permalink"] for place in row["upstream"])
    lines = [entry for entry in row["happened"] if entry["kind"] == "line"]
    source = (ROOT / lines[0]["file"]).read_text().split("\n")
    assert all(entry["text"] == source[entry["line"] - 1].strip() for entry in lines)


def test_json_of_a_walkthrough_has_every_step(run_cli: RunCli, json_rows: Rows, env: dict[str, str]) -> None:
    rows = json_rows(run_cli("walk", "block-lifetime", "--json", env=env), "steps")
    assert [row["id"] for row in rows] == [step.id for step in registry()["block-lifetime"].steps]
    assert all(row["film"]["id"] in films() for row in rows)


def test_a_step_without_a_film(run_cli: RunCli, json_rows: Rows, env: dict[str, str]) -> None:
    (row,) = json_rows(run_cli("walk", "vllm-classic/padded-rows", "--json", env=env), "steps")
    assert (row["film"], row["happened"]) == (None, [])
    assert row["checks"]
    done = run_cli("walk", "vllm-classic/padded-rows", env=env)
    assert "No film shows this step" in done.stdout
    assert "✓" in done.stdout


def test_a_source_that_is_not_here(run_cli: RunCli, empty_cache: dict[str, str], env: dict[str, str]) -> None:
    done = run_cli("walk", "vllm-classic/block-table", env={**empty_cache, **env})
    assert done.returncode == 0, done.stderr
    assert "pagewalk fetch vllm@0.24.0" in done.stderr
    assert "physical_block_number" in done.stdout  # the port's lines are ours


@pytest.mark.parametrize(
    ("name", "near"),
    [("vllm-clasic", "vllm-classic"), ("paged-reference/lokup", LOOKUP), ("vllm-classic/k-adress", "k-address")],
)
def test_unknown_names_answer_with_the_nearest(run_cli: RunCli, env: dict[str, str], name: str, near: str) -> None:
    done = run_cli("walk", name, env=env)
    assert (done.returncode, done.stdout) == (2, "")
    assert near in done.stderr
    assert "pagewalk list" in done.stderr


def test_a_damaged_place_is_said_and_no_more(run_cli: RunCli, tmp_path: Path) -> None:
    (tmp_path / "walk.json").write_text("{")
    done = run_cli("walk", LOOKUP, env={"PAGEWALK_STATE": str(tmp_path)})
    assert done.returncode == 0
    assert "damaged" in done.stderr
    assert "Read through the table" in done.stdout


def test_restart_forgets_one_walkthrough(run_cli: RunCli, tmp_path: Path) -> None:
    progress = Progress()
    for step in (LOOKUP, "block-lifetime/edges"):
        progress.at(step)
        progress.places[step] = Place(3, 9, 0, 0)
    save(tmp_path / "walk.json", progress)
    done = run_cli("walk", LOOKUP, "--restart", env={"PAGEWALK_STATE": str(tmp_path)})
    assert done.returncode == 0
    left, _ = load(tmp_path / "walk.json")
    assert left.steps == {"block-lifetime": "block-lifetime/edges"}
    run_cli("walk", "--restart", "--json", env={"PAGEWALK_STATE": str(tmp_path)})
    assert load(tmp_path / "walk.json")[0] == Progress()


def test_where_a_walk_begins() -> None:
    walkthroughs = registry()
    first = walkthroughs["paged-reference"].steps[0].id
    progress = Progress()
    assert first_step(None, progress, walkthroughs) == first
    assert first_step(LOOKUP, progress, walkthroughs) == LOOKUP
    progress.at("block-lifetime/edges")
    assert first_step(None, progress, walkthroughs) == "block-lifetime/edges"
    assert first_step("block-lifetime", progress, walkthroughs) == "block-lifetime/edges"
    assert first_step("paged-reference", progress, walkthroughs) == first
    gone = Progress("gone/x", {"gone": "gone/x", "paged-reference": "paged-reference/gone"})
    assert first_step(None, gone, walkthroughs) == first
    assert first_step("paged-reference", gone, walkthroughs) == first


def test_what_happened_is_cut_where_it_is_long() -> None:
    rows = {step.id: printed.row(step) for step in registry()["vllm-classic"].steps[12:16]}
    assert any(row["happened"][-1]["kind"] == "cut" for row in rows.values())
    assert all(len(row["happened"]) <= printed.MOST + 3 for row in rows.values())
    assert json.dumps(rows)
