"""NVIDIA's own tools, asked for a verdict: how compute-sanitizer and ncu are started, and what their answers mean.

Parsing is kept apart from running, so that tests can feed it text. A tool that gives no summary has given no verdict:
that is an error, never an agreement.
"""

from __future__ import annotations

import csv
import io
import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

FOLDERS = ("/usr/local/cuda/bin", "/opt/nvidia/nsight-compute")
METRICS = {
    "ld_requests": "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum",
    "ld_sectors": "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum",
    "st_requests": "l1tex__t_requests_pipe_lsu_mem_global_op_st.sum",
    "st_sectors": "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum",
}


class ToolError(RuntimeError):
    """A tool that is not there, did not end in time, or answered with something that is no verdict."""


@dataclass(frozen=True)
class Answer:
    """What a tool said: its exit status and both streams together."""

    code: int
    text: str


def find(tool: str) -> str:
    """The path of a tool, on PATH or where the CUDA toolkit puts it; raises ToolError."""
    places = [shutil.which(tool), *(str(Path(folder) / tool) for folder in FOLDERS)]
    found = next((place for place in places if place and os.access(place, os.X_OK)), None)
    if found is None:
        raise ToolError(f"{tool} is not on PATH and not in {', '.join(FOLDERS)}: it comes with the CUDA toolkit")
    return found


def run(command: Sequence[str], seconds: float, cwd: Path) -> Answer:
    """Run a tool to its end; raises ToolError when it takes longer."""
    try:
        done = subprocess.run(
            command, cwd=cwd, timeout=seconds, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, errors="replace",
        )  # fmt: skip
    except subprocess.TimeoutExpired as error:
        raise ToolError(f"{Path(command[0]).name} did not end within {seconds:.0f} s") from error
    except OSError as error:
        raise ToolError(f"{command[0]}: {error}") from error
    return Answer(done.returncode, done.stdout)


def racecheck(text: str) -> str:
    """`race` or `clean`, from racecheck's output; raises ToolError where it has no summary."""
    found = re.search(r"RACECHECK SUMMARY:\s*(\d+) hazards? displayed", text)
    if found is None:
        raise ToolError(f"racecheck gave no summary: {_end(text)}")
    return "race" if int(found[1]) else "clean"


def memcheck(text: str) -> str:
    """`out of bounds`, `misaligned` or `clean`, from memcheck's output; raises ToolError where it has no summary."""
    if re.search(r"ERROR SUMMARY:\s*\d+ error", text) is None:
        raise ToolError(f"memcheck gave no summary: {_end(text)}")
    if re.search(r"is misaligned|[Mm]isaligned (?:shared|local|global)? ?address", text):
        return "misaligned"
    return "out of bounds" if re.search(r"Invalid __\w+__ (?:read|write|atomic)", text) else "clean"


VERDICTS = {"racecheck": racecheck, "memcheck": memcheck}


def sanitizer_command(tool: str, launch: Sequence[str]) -> list[str]:
    """compute-sanitizer with one of its tools over a launch; calls that the driver refuses are not our subject."""
    more = ["--report-api-errors", "no"] if tool == "memcheck" else []
    return [find("compute-sanitizer"), "--tool", tool, *more, *launch]


def ncu_command(launch: Sequence[str]) -> list[str]:
    """ncu over a launch, counting requests and sectors of global loads and stores, kernel by kernel."""
    metrics = ",".join(METRICS.values())
    return [
        find("ncu"), "--clock-control", "none", "--metrics", metrics, "--csv", "--page", "raw",
        "--print-units", "base", *launch,
    ]  # fmt: skip


def ncu_rows(text: str) -> list[dict[str, int]]:
    """The counters of each kernel that ncu saw, in the order of launching; raises ToolError for anything else."""
    lines = [line for line in text.splitlines() if line.startswith('"')]
    if not lines:
        raise ToolError(f"ncu printed no table: {_end(text)}")
    rows = list(csv.DictReader(io.StringIO("\n".join(lines))))
    found = []
    for row in rows:
        if not (row.get("ID") or "").strip():  # the line of units
            continue
        try:
            found.append({name: _number(row[metric]) for name, metric in METRICS.items()})
        except (KeyError, ValueError) as error:
            raise ToolError(f"ncu's table has no usable column {error}") from error
    return found


def version(tool: str) -> str:
    """The version that a tool says it has; the empty string where it says none."""
    try:
        text = run([find(tool), "--version"], 60, Path.cwd()).text
    except ToolError:
        return ""
    found = re.search(r"[Vv]ersion\s+(\S+)", text)
    return found[1] if found else ""


def _number(text: str) -> int:
    return int(float(text.replace(",", "")))


def _end(text: str) -> str:
    return " | ".join(line.strip() for line in text.splitlines()[-4:] if line.strip())[-400:]
