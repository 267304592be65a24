"""The comparison with hardware: what is asked, how answers are read, a dry run with stand-ins, and the record."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kernels.kernel import Backend
from kernels.loads import memory_cases
from kernels.simt.sanitize import Sanitizer
from walkthroughs import evidence, hardware, hardware_rows, hardware_tools, launchables
from walkthroughs.hardware import AGREE, DISAGREE, ERROR, OUTSIDE
from walkthroughs.hardware_rows import BOUNDS, CLEAN, MEMORY
from walkthroughs.hardware_tools import METRICS, ToolError

ROWS = hardware_rows.rows()
COMMITTED = evidence.EVIDENCE / hardware.FILE
RECORD_IT = "run `python -m walkthroughs.hardware` on a machine with a GPU"


def watched(launch: Any) -> Sanitizer:
    watch = Sanitizer()
    with watch:
        launch(Backend("sim", observers=(watch,)))
    return watch


# What is compared.


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.id}-{row.tool}")
def test_the_answer_written_down_is_the_machines(row):
    verdict = watched(row.launch).verdict
    if row.tool == "memcheck":  # which does not look for races
        verdict = tuple(kind for kind in verdict if kind != "race")
    assert (verdict or (CLEAN,)) == (row.machine,)


@pytest.mark.parametrize("name", MEMORY)
def test_the_numbers_written_down_are_the_machines(name):
    memory = watched(memory_cases()[name]).memory
    assert (*memory.total("global", "read"), *memory.total("global", "write")) == MEMORY[name]


def test_every_port_and_at_least_ten_broken_kernels_are_asked_about():
    ports = {row.id.split("/")[0] for row in ROWS if row.group == "port"}
    assert ports == set(launchables.names())
    assert {row.tool for row in ROWS if row.group == "port"} == {"racecheck", "memcheck"}
    broken = [row for row in ROWS if row.group != "port" and row.tool]
    assert len(broken) >= 10
    assert all(row.machine != CLEAN for row in broken)
    assert len({(row.id, row.tool) for row in ROWS}) == len(ROWS)
    assert {row.id for row in ROWS}.isdisjoint({"memory", "outputs"})


def test_loads_values_and_both_writers_are_counted_in_the_order_of_launching():
    assert list(MEMORY) == list(memory_cases())
    assert {"reshape-and-cache", "flash-writer"} < set(MEMORY)


def test_sound_ports_have_a_bound_and_copies_must_be_equal():
    assert set(BOUNDS) == set(launchables.names()) - {hardware_rows.RACY_PORT}
    assert all(why for _, why in BOUNDS.values())
    assert hardware_rows.bound("scatter/lesson/k_pool", "float64") == 0
    assert hardware_rows.bound("reshape-and-cache/half/key_cache", "float16") == 0
    assert 0 < hardware_rows.bound("classic-v1/small/out", "float32") < 1e-5
    assert hardware_rows.bound("classic-v1/half/out", "float16") < 3e-3


# How answers are read.


def test_racecheck_is_read_by_its_summary():
    assert (
        hardware_tools.racecheck("========= RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)") == "clean"
    )
    assert hardware_tools.racecheck("=========\n RACECHECK SUMMARY: 1 hazard displayed (0 errors, 1 warning)") == "race"
    assert hardware_tools.racecheck("x\nRACECHECK SUMMARY: 6914 hazards displayed (0 errors, 6914 warnings)") == "race"
    with pytest.raises(ToolError, match=r"gave no summary: .*out of memory"):
        hardware_tools.racecheck("Error: out of memory\n")


def test_memcheck_is_read_by_what_it_calls_the_access():
    end = "\n========= ERROR SUMMARY: 3 errors"
    assert hardware_tools.memcheck("========= ERROR SUMMARY: 0 errors") == "clean"
    assert hardware_tools.memcheck(f"Invalid __global__ read of size 4 bytes{end}") == "out of bounds"
    assert hardware_tools.memcheck(f"Invalid __shared__ write of size 4 bytes{end}") == "out of bounds"
    assert (
        hardware_tools.memcheck(f"Invalid __global__ read of size 16\n Address 0x4 is misaligned{end}") == "misaligned"
    )
    assert hardware_tools.memcheck(f"Program hit an API error{end}") == "clean"
    with pytest.raises(ToolError, match="memcheck gave no summary"):
        hardware_tools.memcheck("Invalid __global__ read of size 4 bytes")


def table(rows: list[tuple[int, ...]]) -> str:
    head = ",".join(f'"{name}"' for name in ("ID", "Kernel Name", *METRICS.values()))
    units = ",".join(['""', '""', *['"sector"'] * len(METRICS)])
    lines = [",".join([f'"{n}"', '"k(int, float)"', *(f'"{v:,}"' for v in row)]) for n, row in enumerate(rows)]
    return "\n".join(["==PROF== Connected to process 1", head, units, *lines, "==PROF== Disconnected"])


def test_ncus_table_is_read_with_its_thousands():
    expected = [dict(zip(METRICS, row, strict=True)) for row in ((1, 2, 3, 4), (1000, 1234567, 0, 8))]
    assert hardware_tools.ncu_rows(table([(1, 2, 3, 4), (1000, 1234567, 0, 8)])) == expected


@pytest.mark.parametrize(
    "text", ["==ERROR== no permission", '"ID","Kernel Name"\n"0","k"', table([(1, 2, 3, 4)]).replace('"4"', '"n/a"')]
)
def test_anything_else_from_ncu_is_an_error(text):
    with pytest.raises(ToolError, match="ncu"):
        hardware_tools.ncu_rows(text)


def test_a_table_without_kernels_is_no_kernels():
    assert hardware_tools.ncu_rows(table([])) == []


def test_a_tool_that_is_not_there_or_does_not_end_is_an_error(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(hardware_tools, "FOLDERS", (str(tmp_path / "toolkit"),))
    with pytest.raises(ToolError, match="ncu is not on PATH"):
        hardware_tools.find("ncu")
    slow = script(tmp_path / "toolkit" / "ncu", "exec /bin/sleep 20")
    assert hardware_tools.find("ncu") == str(slow)
    with pytest.raises(ToolError, match="did not end within 0 s"):
        hardware_tools.run([str(slow)], 0.2, tmp_path)
    with pytest.raises(ToolError):
        hardware_tools.run([str(tmp_path / "gone")], 1, tmp_path)
    assert hardware_tools.version("compute-sanitizer") == ""


def test_commands_name_the_tool_the_metrics_and_the_launch(tmp_path, monkeypatch):
    for name in ("ncu", "compute-sanitizer"):
        script(tmp_path / name, 'echo "A tool\nVersion 2025.3.1.0 (build 7)"')
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    command = hardware_tools.sanitizer_command("racecheck", ["python", "x"])
    assert command == [str(tmp_path / "compute-sanitizer"), "--tool", "racecheck", "python", "x"]
    assert "--report-api-errors" in hardware_tools.sanitizer_command("memcheck", ["python"])
    command = hardware_tools.ncu_command(["python", "y"])
    assert command[-2:] == ["python", "y"]
    assert "--clock-control" in command
    assert command[command.index("--metrics") + 1].split(",") == list(METRICS.values())
    assert hardware_tools.version("ncu") == "2025.3.1.0"


# The whole run, with stand-ins for the tools.


def script(path: Path, body: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{body}\n", "utf-8")
    path.chmod(0o755)
    return path


def said(row: hardware_rows.Row) -> str:
    if row.tool == "racecheck":
        return f"RACECHECK SUMMARY: {int(row.machine == 'race')} hazards displayed (0 errors, 0 warnings)"
    access = {"misaligned": "Address 0x4 is misaligned. ", "out of bounds": "Invalid __global__ read of size 4. "}
    return f"{access.get(row.machine, '')}ERROR SUMMARY: 0 errors"


@pytest.fixture
def stand_ins(tmp_path, monkeypatch):
    """Tools on PATH that say what the machine says; the lines of `answers.txt` can be changed."""
    answers = tmp_path / "answers.txt"
    answers.write_text("".join(f"{row.tool} {row.id}={said(row)}\n" for row in ROWS if row.tool), "utf-8")
    script(
        tmp_path / "bin" / "compute-sanitizer",
        'while [ $# -gt 0 ]; do case "$1" in --tool) tool=$2;; --launch) name=$2;; esac; shift; done\n'
        f'/bin/sed -n "s|^$tool $name=||p" "{answers}"',
    )
    (tmp_path / "table.txt").write_text(table(list(MEMORY.values())), "utf-8")
    script(tmp_path / "bin" / "ncu", f'/bin/cat "{tmp_path / "table.txt"}"')
    monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=os.pathsep)
    return tmp_path


def no_outputs(backend: str) -> list[dict[str, Any]]:
    return []


def dry_run(folder: Path) -> tuple[int, dict[str, Any]]:
    code = hardware.main(["--backend", "sim", "--out", str(folder / "out")])
    return code, json.loads((folder / "out" / hardware.FILE).read_text("utf-8"))


def test_a_dry_run_agrees_everywhere_and_its_record_is_whole(stand_ins, capsys):
    code, record = dry_run(stand_ins)
    assert code == 0
    assert "agree    port: classic-v1/small [racecheck] clean / clean" in capsys.readouterr().out
    check_record(record)
    assert record["backend"] == "sim"
    # The outputs are the machine's own here: not a bit may be lost on the way.
    assert worst(record) == dict.fromkeys(worst(record), 0.0)


def test_disagreement_and_silence_are_told_apart_and_fail_the_run(stand_ins, capsys, monkeypatch):
    monkeypatch.setattr(hardware, "_outputs", no_outputs)
    answers = stand_ins / "answers.txt"
    text = answers.read_text("utf-8")
    text = re.sub("racecheck gather/lesson=.*", "racecheck gather/lesson=RACECHECK SUMMARY: 3 hazards displayed", text)
    text = re.sub("racecheck scatter/lesson=.*\n", "", text)
    answers.write_text(text, "utf-8")
    numbers = list(MEMORY.values())
    (stand_ins / "table.txt").write_text(table([(145, *numbers[0][1:]), *numbers[1:]]), "utf-8")
    code, record = dry_run(stand_ins)
    assert code == 1
    results = {(row["id"], row["tool"]): row["result"] for row in record["verdicts"]}
    assert results.pop(("gather/lesson", "racecheck")) == DISAGREE
    assert results.pop(("scatter/lesson", "racecheck")) == ERROR
    assert set(results.values()) == {AGREE, OUTSIDE}
    assert [row["result"] for row in record["memory"]] == [DISAGREE, *[AGREE] * (len(MEMORY) - 1)]
    assert "3 of them disagree or did not run" in capsys.readouterr().out


def test_a_table_of_another_length_is_no_agreement(stand_ins, monkeypatch):
    monkeypatch.setattr(hardware, "_outputs", no_outputs)
    monkeypatch.setattr(hardware_rows, "rows", list)
    (stand_ins / "table.txt").write_text(table(list(MEMORY.values())[1:]), "utf-8")
    code, record = dry_run(stand_ins)
    assert code == 1
    assert {row["result"] for row in record["memory"]} == {ERROR}


def test_wrong_use_exits_2(stand_ins, capsys, monkeypatch):
    assert hardware.main(["--backend", "sim"]) == 2
    assert "needs --out" in capsys.readouterr().err
    monkeypatch.setenv("PATH", str(stand_ins / "nothing"))
    monkeypatch.setattr(hardware_tools, "FOLDERS", ())
    assert hardware.main(["--backend", "sim", "--out", str(stand_ins / "out")]) == 2
    assert "compute-sanitizer is not on PATH" in capsys.readouterr().err


def test_one_row_alone_can_be_launched(tmp_path):
    assert hardware.main(["--backend", "sim", "--launch", "broadcast-in-a-loop"]) == 0
    assert hardware.main(["--backend", "sim", "--launch", "classic-v1/reuse-barrier"]) == 0
    assert hardware.main(["--backend", "sim", "--launch", "outputs", "--save", str(tmp_path / "o.npz")]) == 0
    with np.load(tmp_path / "o.npz") as saved:
        assert {name.split("/")[0] for name in saved.files} == set(BOUNDS)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int64"])
def test_an_array_survives_the_record(dtype):
    array = (np.arange(24).reshape(2, 3, 4) * 1.5).astype(dtype)
    if array.dtype.kind == "f":
        array[0, 0] = np.nan
    row = json.loads(json.dumps(hardware.pack(array)))
    back = hardware.unpack(row)
    assert (back.dtype, back.shape) == (array.dtype, array.shape)
    assert back.tobytes() == array.tobytes()


# The record.


def check_record(record: dict[str, Any]) -> None:
    assert record["schema"] == evidence.SCHEMA
    assert record["digest"] == hardware.hardware_digest(), f"the record is stale: {RECORD_IT}"
    assert re.fullmatch(r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ", record["date"])
    assert record["tolerance_why"]
    assert record["device"]
    found = {(row["id"], row["tool"]): row for row in record["verdicts"]}
    assert set(found) == {(row.id, row.tool) for row in ROWS}
    for row in ROWS:
        kept = found[row.id, row.tool]
        assert kept["machine"] == row.machine
        assert kept["result"] == (AGREE if row.tool else OUTSIDE), kept
        assert kept["gpu"] == (row.machine if row.tool else "")
        assert row.tool or kept["note"]
    memory = {row["id"]: row for row in record["memory"]}
    assert set(memory) == set(MEMORY)
    for name, numbers in MEMORY.items():
        assert memory[name]["machine"] == dict(zip(METRICS, numbers, strict=True))
        for key, number in memory[name]["machine"].items():
            assert abs(memory[name]["gpu"][key] - number) <= record["tolerance"] * number


def worst(record: dict[str, Any]) -> dict[str, float]:
    """The largest difference of each output in the record from the machine's; infinite where NaN stands elsewhere."""
    ours = hardware.outputs(Backend("sim"))
    assert {row["id"] for row in record["outputs"]} == set(ours)
    found = {}
    for row in record["outputs"]:
        gpu, sim = hardware.unpack(row), ours[row["id"]]
        assert (gpu.dtype, gpu.shape) == (sim.dtype, sim.shape)
        holes = np.isnan(gpu), np.isnan(sim)
        if gpu.tobytes() == sim.tobytes():
            found[row["id"]] = 0.0
        elif (holes[0] != holes[1]).any():
            found[row["id"]] = float("inf")
        else:
            found[row["id"]] = float(np.nanmax(np.abs(gpu.astype(np.float64) - sim.astype(np.float64)), initial=1e-300))
    return found


def test_the_committed_record_is_fresh_and_everything_in_it_agrees():
    assert COMMITTED.exists(), f"there is no {COMMITTED.name}: {RECORD_IT}"
    record = json.loads(COMMITTED.read_text("utf-8"))
    check_record(record)
    assert record["backend"] == "cuda"
    assert record["driver"]
    assert {"compute-sanitizer", "ncu", "numba-cuda", "numpy"} <= set(record["versions"])
    assert all(record["versions"].values())
    broken = [row for row in record["verdicts"] if row["group"] != "port" and row["result"] == AGREE]
    assert len(broken) >= 10


def test_the_ports_outputs_on_the_gpu_are_within_their_bounds():
    assert COMMITTED.exists(), f"there is no {COMMITTED.name}: {RECORD_IT}"
    record = json.loads(COMMITTED.read_text("utf-8"))
    dtypes = {row["id"]: row["dtype"] for row in record["outputs"]}
    for name, difference in worst(record).items():
        assert difference <= hardware_rows.bound(name, dtypes[name]), name
