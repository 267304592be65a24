"""Every rung and the writer under the machine's sanitizers; the GPU's tools: how they are asked, and a dry run."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

from walkthroughs import digest, evidence, hardware_tools, launchables_tuned, tuned_sanitizers
from walkthroughs.hardware_tools import ToolError
from walkthroughs.tuned_sanitizers import CLEAN, ERROR, EXPLAINED, FOUND, KNOWN, TOOLS

NAMES = launchables_tuned.names()
COMMITTED = evidence.EVIDENCE / tuned_sanitizers.FILE


@pytest.mark.parametrize("name", NAMES)
def test_the_machine_finds_nothing(name: str) -> None:
    found = tuned_sanitizers.machine(name)
    assert len(found) >= 2
    assert found == dict.fromkeys(found, ())


def test_whatever_a_rung_takes_is_tried() -> None:
    from kernels.tuned.ladder import RUNGS
    from kernels.tuned.takes import TAKES

    assert (*RUNGS, launchables_tuned.WRITER) == NAMES
    for rung, takes in TAKES.items():
        cases = set(launchables_tuned.cases(rung))
        assert {"whole", "split"} <= cases
        assert ("fp8" in cases) == ("fp8" in takes.kind)
        assert ("queries" in cases) == (3 in takes.query_len)
        assert ("balanced" in cases) == takes.balance


def test_a_rung_that_races_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    import numpy as np

    from kernels.kernel import kernel
    from kernels.simt import cuda

    @kernel()
    def racy(out):
        out[0] = cuda.threadIdx.x

    @kernel()
    def far(out):
        out[cuda.threadIdx.x + 1000] = 1

    def launching(broken: Any) -> Any:
        return lambda backend: broken.on(backend)[1, 64](np.zeros(4, np.int32))

    monkeypatch.setattr(launchables_tuned, "cases", lambda name: {"one": launching(racy), "two": launching(far)})
    assert tuned_sanitizers.machine("x") == {"one": ("race",), "two": ("out of bounds",)}


# How the tools' answers are read.


@pytest.mark.parametrize("tool", [tool for tool in TOOLS if tool != "racecheck"])
def test_errors_are_counted(tool: str) -> None:
    assert TOOLS[tool]("========= COMPUTE-SANITIZER\n========= ERROR SUMMARY: 0 errors") == CLEAN
    assert TOOLS[tool]("========= Invalid __global__ read\n========= ERROR SUMMARY: 1 error") == FOUND
    assert TOOLS[tool]("ERROR SUMMARY: 12 errors") == FOUND
    with pytest.raises(ToolError, match=f"{tool} gave no summary"):
        TOOLS[tool]("========= Internal Sanitizer Error")


def test_hazards_are_counted() -> None:
    assert TOOLS["racecheck"]("RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)") == CLEAN
    assert TOOLS["racecheck"]("RACECHECK SUMMARY: 3 hazards displayed (3 errors, 0 warnings)") == FOUND
    with pytest.raises(ToolError):
        TOOLS["racecheck"]("")


@pytest.mark.parametrize("tool", TOOLS)
def test_the_stand_in_says_what_its_tool_would(tool: str) -> None:
    kind = sorted(tuned_sanitizers.SEES[tool])[0]
    answers = {(): CLEAN, (kind,): FOUND}
    for verdict, result in answers.items():
        assert TOOLS[tool](tuned_sanitizers._as_the_tool(tool, {"whole": verdict, "split": ()})) == result
    others = {name for name in TOOLS if name != tool}
    for other in others:
        assert TOOLS[other](tuned_sanitizers._as_the_tool(other, {"whole": (kind,)})) == CLEAN


def test_every_fault_of_the_machine_belongs_to_a_tool() -> None:
    from kernels.simt import report
    from kernels.simt.sanitize import Fault

    kinds = [
        kind for kind in vars(report).values()
        if isinstance(kind, type) and issubclass(kind, report.SimtError) and not kind.__name__.startswith("_")
    ]  # fmt: skip
    ends = {Fault.of(kind.__new__(kind)).kind for kind in kinds}  # the name of the class is all that is read
    outside = {"simt error", "bad launch", "not modelled", "outside launch"}
    assert ends - outside == set().union(*tuned_sanitizers.SEES.values()) - {"race"}


# The whole run.


@pytest.fixture
def two_only(monkeypatch: pytest.MonkeyPatch) -> tuple[str, ...]:
    chosen = (NAMES[0], launchables_tuned.WRITER)
    monkeypatch.setattr(launchables_tuned, "names", lambda: chosen)
    return chosen


def test_a_dry_run_in_processes_of_their_own(
    two_only: tuple[str, ...], tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tuned_sanitizers, "TOOLS", {tool: TOOLS[tool] for tool in ("racecheck", "synccheck")})
    code = tuned_sanitizers.main(["--backend", "sim", "--out", str(tmp_path), "--jobs", "2"])
    said = capsys.readouterr().out
    record = json.loads((tmp_path / tuned_sanitizers.FILE).read_text("utf-8"))
    assert code == 0, said
    assert f"clean  {two_only[0]} [racecheck]" in said
    check(record, two_only)
    assert record["backend"] == "sim"
    assert tuned_sanitizers.load(tmp_path) == record


@pytest.fixture
def tool_on_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, two_only: tuple[str, ...]) -> Path:
    """A compute-sanitizer that finds a hazard in the first rung, and says nothing of the writer's memory."""
    script = tmp_path / "bin" / "compute-sanitizer"
    script.parent.mkdir()
    script.write_text(
        "#!/bin/sh\n"
        'while [ $# -gt 0 ]; do case "$1" in --tool) tool=$2;; --launch) name=$2;; --version) '
        'echo "Version 2025.3.1.0"; exit;; esac; shift; done\n'
        f'[ "$tool $name" = "racecheck {two_only[0]}" ] && echo "RACECHECK SUMMARY: 2 hazards displayed" && exit\n'
        '[ "$tool" = racecheck ] && echo "RACECHECK SUMMARY: 0 hazards displayed" && exit\n'
        '[ "$tool $name" = "memcheck writer" ] && exit 3\n'
        '[ "$tool $name" = "initcheck writer" ] && echo "ERROR SUMMARY: 0 errors" && exit 1\n'
        'echo "ERROR SUMMARY: 0 errors"\n',
        "utf-8",
    )
    script.chmod(0o755)
    monkeypatch.setenv("PATH", str(script.parent), prepend=os.pathsep)
    return script


def test_findings_silence_and_failures_are_told_apart(
    tool_on_path: Path, two_only: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tuned_sanitizers.runner, "device", lambda backend: ("a GPU", "1"))
    record = tuned_sanitizers.ask("cuda", 2)
    found = {(row["rung"], row["tool"]): row for row in record["rows"]}
    assert found[two_only[0], "racecheck"]["result"] == FOUND
    assert "2 hazards" in found[two_only[0], "racecheck"]["note"]
    assert found["writer", "memcheck"]["result"] == ERROR
    assert "gave no summary" in found["writer", "memcheck"]["note"]
    assert found["writer", "initcheck"]["result"] == ERROR
    assert "exit 1" in found["writer", "initcheck"]["note"]
    assert found["writer", "synccheck"]["result"] == CLEAN
    assert record["versions"]["compute-sanitizer"] == "2025.3.1.0"


def test_what_is_known_is_explained_and_never_clean(
    tool_on_path: Path, two_only: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    why = "the tool knows nothing of this order"
    monkeypatch.setattr(tuned_sanitizers, "KNOWN", {(two_only[0], "racecheck"): why, ("writer", "memcheck"): why})
    row = tuned_sanitizers._row(two_only[0], "racecheck", "cuda")
    assert row["result"] == EXPLAINED
    assert row["note"].startswith(f"{why}\nRACECHECK SUMMARY: 2 hazards")
    assert tuned_sanitizers._row("writer", "memcheck", "cuda")["result"] == ERROR, "silence is never explained"


def test_wrong_use_exits_2(capsys: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert tuned_sanitizers.main(["--backend", "sim"]) == 2
    assert "needs --out" in capsys.readouterr().err
    monkeypatch.setattr(tuned_sanitizers.runner, "cuda_unavailable", lambda: "no GPU here")
    assert tuned_sanitizers.main(["--out", str(tmp_path)]) == 2
    assert "no GPU here" in capsys.readouterr().err
    monkeypatch.setattr(tuned_sanitizers.runner, "cuda_unavailable", lambda: None)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(hardware_tools, "FOLDERS", ())
    assert tuned_sanitizers.main(["--out", str(tmp_path)]) == 2
    assert "compute-sanitizer is not on PATH" in capsys.readouterr().err


def test_the_digest_is_of_the_rungs_and_the_cases(monkeypatch: pytest.MonkeyPatch) -> None:
    files = set(digest.port_files(tuned_sanitizers.CASES))
    assert {
        "walkthroughs/launchables_tuned.py", "kernels/tuned/ladder.py", "kernels/tuned/ring.py",
        "kernels/tuned/writer.py", "kernels/tuned/call.py", "kernels/cases_narrow.py",
    } <= files  # fmt: skip
    before = tuned_sanitizers.sanitizers_digest()
    real = digest._module
    monkeypatch.setattr(digest, "_module", lambda path: "x" if path.endswith("/ring.py") else real(path))
    assert tuned_sanitizers.sanitizers_digest() != before


def test_no_record_and_no_good_record(tmp_path: Path) -> None:
    assert tuned_sanitizers.load(tmp_path) is None
    for text in ("{", "[]", '{"schema": 0, "rows": [1]}', '{"schema": 1, "rows": []}', '{"rows": [1]}'):
        (tmp_path / tuned_sanitizers.FILE).write_text(text, "utf-8")
        with pytest.raises(evidence.EvidenceError, match=tuned_sanitizers.FILE):
            tuned_sanitizers.load(tmp_path)


# The record.


def check(record: dict[str, Any], names: tuple[str, ...]) -> None:
    assert record["schema"] == evidence.SCHEMA
    assert record["digest"] == tuned_sanitizers.sanitizers_digest(), "the record is stale"
    assert re.fullmatch(r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ", record["date"])
    assert record["device"]
    assert [(row["rung"], row["tool"]) for row in record["rows"]] == [
        (n, t) for n in names for t in tuned_sanitizers.TOOLS
    ]
    for row in record["rows"]:
        assert row["cases"] == list(launchables_tuned.cases(row["rung"]))
        known = (row["rung"], row["tool"]) in KNOWN
        assert row["result"] == (EXPLAINED if known else CLEAN), row
        assert bool(row["note"]) == known


def test_the_committed_record_is_fresh_and_clean() -> None:
    record = json.loads(COMMITTED.read_text("utf-8"))
    check(record, NAMES)
    assert record["backend"] == "cuda"
    assert record["driver"]
    assert {"compute-sanitizer", "numba-cuda", "numpy"} <= set(record["versions"])
