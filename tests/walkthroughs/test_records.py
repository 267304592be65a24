"""`python -m walkthroughs.records`: what it writes, when it does not, and its exit codes; with tiny walkthroughs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from kernels.errors import BackendUnavailable
from kernels.kernel import Backend, cuda_unavailable
from walkthroughs import digest, evidence, mutations, records, runner
from walkthroughs.mutations import MUTATIONS
from walkthroughs.step import Walkthrough, steps
from walkthroughs.workbench import Workbench

ROOT = Path(__file__).resolve().parents[2]
SIM = Backend("sim")


def good(bench: Workbench) -> None:
    bench.check("fine", 1, 1)


def bad(bench: Workbench) -> None:
    bench.check("wrong", [1, 2], [1, 3])


def tour(name: str, *functions: Callable[[Workbench], None]) -> Walkthrough:
    found = Walkthrough(name, name, "", source="kernels/reference.py", port="kernels/gather.py")
    for number, function in enumerate(functions):
        found.step(f"{function.__name__}-{number}", title="T", reads=())(function)
    return found


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Puts walkthroughs in place of the catalog's, and takes two mutations of the real list."""

    def put(*walkthroughs: Walkthrough, chosen: tuple[mutations.Mutation, ...] = MUTATIONS[-2:]) -> None:
        monkeypatch.setattr(records, "registry", lambda: {w.id: w for w in walkthroughs})
        monkeypatch.setattr(mutations, "MUTATIONS", chosen)
        monkeypatch.setattr(mutations, "control_tasks", lambda backend: [])

    return put


def test_a_dry_run_writes_every_record(tmp_path: Path, tiny: Any, capsys: pytest.CaptureFixture[str]) -> None:
    tiny(tour("one", good, good), tour("two", good))
    assert records.main(["--backend", "sim", "--out", str(tmp_path / "new")]) == 0
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == ["mutations.json", "one.json", "two.json"]
    found = evidence.read(tmp_path / "new" / "one.json")
    assert [(r.step, r.status, r.backend) for r in found] == [
        ("one/good-0", "passed", "sim"), ("one/good-1", "passed", "sim"),
    ]  # fmt: skip
    said = capsys.readouterr().out
    assert "passed  two/good-0" in said
    assert "SURVIVED" not in said


def test_a_step_that_fails_keeps_its_walkthrough_from_being_written(
    tmp_path: Path, tiny: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    tiny(tour("one", good, bad), tour("two", good))
    assert records.main(["--backend", "sim", "--out", str(tmp_path)]) == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mutations.json", "two.json"]
    assert "wrong: [1, 2] instead of [1, 3] (1)" in capsys.readouterr().out


def test_an_old_file_survives_a_failing_run(tmp_path: Path, tiny: Any) -> None:
    (tmp_path / "one.json").write_text("old")
    tiny(tour("one", bad))
    records.main(["--backend", "sim", "--out", str(tmp_path)])
    assert (tmp_path / "one.json").read_text() == "old"


def test_the_mutation_record(tmp_path: Path, tiny: Any) -> None:
    tiny(tour("one", good))
    assert records.record_mutations(SIM, tmp_path)
    data = json.loads((tmp_path / records.MUTATIONS_FILE).read_text("utf-8"))
    assert set(data) == {"schema", "backend", "device", "driver", "versions", "date", "digest", "mutations"}
    assert (data["schema"], data["backend"], data["device"]) == (1, "sim", "SIMT machine")
    assert data["versions"] == runner.versions("sim")
    assert data["digest"] == records.mutations_digest()
    assert [row["id"] for row in data["mutations"]] == [mutation.id for mutation in MUTATIONS[-2:]]
    for row, mutation in zip(data["mutations"], MUTATIONS[-2:], strict=True):
        assert row["caught_by"] in mutation.steps
        assert row["said"]
        assert (row["what"], row["file"], row["region"]) == (mutation.what, mutation.file, mutation.region)


def test_a_survivor_is_written_down_and_fails(tmp_path: Path, tiny: Any, capsys: pytest.CaptureFixture[str]) -> None:
    last = MUTATIONS[-1]
    tiny(tour("one", good), chosen=(replace(last, id="harmless", new=f"({last.old})"), last))
    assert records.main(["--backend", "sim", "--out", str(tmp_path)]) == 1
    rows = json.loads((tmp_path / records.MUTATIONS_FILE).read_text("utf-8"))["mutations"]
    assert [row["caught_by"] is None for row in rows] == [True, False]
    assert "mutation harmless: SURVIVED" in capsys.readouterr().out


def test_a_failed_control_fails(tmp_path: Path, tiny: Any, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    tiny(tour("one", good))
    monkeypatch.setattr(mutations, "control_tasks", lambda backend: [(0, "one/good-0"), (1, "x")])
    monkeypatch.setattr(mutations, "control_one", lambda backend, number, step: f"step {step}" if number else None)
    assert not records.record_mutations(SIM, tmp_path)
    out = capsys.readouterr().out
    assert "control FAILED: step x" in out
    assert "good-0" not in out


def test_several_jobs_give_the_same_records(tmp_path: Path) -> None:
    # Real steps: a process of its own finds them in the catalog, not in this test.
    chosen = [step for step in steps().values() if step.walkthrough == "paged-reference"][:3]
    found = list(records._each(partial(records._run_step, "sim"), chosen, 2))
    assert [(record.step, record.status) for record in found] == [(step.id, "passed") for step in chosen]
    assert [record.checks for record in found] == [runner.run(step, SIM).checks for step in chosen]


def test_the_digest_of_the_mutations(monkeypatch: pytest.MonkeyPatch) -> None:
    before = records.mutations_digest()
    assert before == records.mutations_digest()
    monkeypatch.setattr(mutations, "MUTATIONS", MUTATIONS[:-1])
    assert records.mutations_digest() != before
    monkeypatch.setattr(mutations, "MUTATIONS", (*MUTATIONS[:-1], replace(MUTATIONS[-1], new="pass")))
    assert records.mutations_digest() != before
    monkeypatch.setattr(mutations, "MUTATIONS", MUTATIONS)
    assert records.mutations_digest() == before
    real = digest._module
    monkeypatch.setattr(digest, "_module", lambda path: real(path) + "x" * (path == MUTATIONS[0].file))
    assert records.mutations_digest() != before


def test_sim_never_writes_where_gpu_records_live(tiny: Any, capsys: pytest.CaptureFixture[str]) -> None:
    tiny(tour("one", bad))
    before = sorted(evidence.EVIDENCE.glob("*"))
    assert records.main(["--backend", "sim"]) == 2
    assert records.main(["--backend", "sim", "--out", str(evidence.EVIDENCE / ".." / "evidence")]) == 2
    assert "docs/evidence holds GPU records only" in capsys.readouterr().err
    assert sorted(evidence.EVIDENCE.glob("*")) == before


def test_without_a_gpu_nothing_is_written(
    tmp_path: Path, tiny: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def none(name: str) -> Backend:
        raise BackendUnavailable(f"--backend {name}: no GPU here")

    tiny(tour("one", good))
    monkeypatch.setattr(runner, "choose", none)
    assert records.main(["--out", str(tmp_path)]) == 2
    assert capsys.readouterr().err == "records: --backend cuda: no GPU here\n"
    assert list(tmp_path.iterdir()) == []


def test_wrong_words_are_wrong_use(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        records.main(["--backend", "auto"])
    assert caught.value.code == 2
    assert "--backend" in capsys.readouterr().err


BARE = """
import sys

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in BANNED:
            raise ImportError(name + " is not on a GPU machine")

BANNED = {"click", "rich", "tree_sitter", "markdown", "mkdocs", "pymdownx", "pypi_simple", "requests", "platformdirs",
          "filelock", "pygments", "hypothesis", "greenlet"}
sys.meta_path.insert(0, Refuse())
from walkthroughs import records, mutations
from walkthroughs.step import steps
from kernels.vllm import classic_v1
mutations.mutant(mutations.MUTATIONS[0])
print(len(steps()))
sys.exit(records.main(sys.argv[1:]))
"""


def test_nothing_of_the_site_or_the_machine_is_needed(tmp_path: Path) -> None:
    # A GPU machine has numba-cuda, NumPy, torch and the standard library.
    done = subprocess.run(
        [sys.executable, "-c", BARE, "--out", str(tmp_path), *([] if cuda_unavailable() else ["--help"])],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.stdout.split()[0].isdigit(), done.stderr
    assert done.returncode == (2 if cuda_unavailable() else 0), done.stderr
    assert list(tmp_path.iterdir()) == []


def test_one_walkthrough_alone(tmp_path: Path, tiny: Any, capsys: pytest.CaptureFixture[str]) -> None:
    tiny(tour("one", good), tour("two", good))
    assert records.main(["--backend", "sim", "--out", str(tmp_path), "--only", "two"]) == 0
    assert [path.name for path in tmp_path.iterdir()] == ["two.json"]
    assert records.main(["--backend", "sim", "--out", str(tmp_path), "--only", "tow"]) == 2
    assert "--only tow: must be one of one, two" in capsys.readouterr().err
