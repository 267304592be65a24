"""`python -m walkthroughs.tuned_sanitizers`: every rung of the ladder, and its writer, under the GPU's sanitizers.

Needs a GPU, compute-sanitizer, numba-cuda and NumPy. Each rung runs under each tool in a process of its own, several at
once. `--backend sim --out FOLDER` is a dry run elsewhere: the SIMT machine's sanitizer answers in each tool's place.
Exit 1 where something is found that the SIMT machine does not find, 2 for wrong use.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from kernels.errors import BackendUnavailable
from kernels.kernel import Backend
from walkthroughs import digest, evidence, hardware_tools, launchables_tuned, runner
from walkthroughs.hardware_tools import ToolError

FILE = "tuned_sanitizers.json"
CASES = "walkthroughs/launchables_tuned.py"
SECONDS = 240.0
AT_ONCE = 14
CLEAN, FOUND, ERROR, EXPLAINED = "clean", "found", "error", "explained"
KNOWN: dict[tuple[str, str], str] = {}
"""What a tool reports of a rung that is no fault, by rung and tool: why. Such a row is `explained`, never clean."""


def main(argv: Sequence[str] | None = None) -> int:
    """Write the record; exit 1 where a tool found something or gave no answer, 2 without a GPU or a tool."""
    parser = argparse.ArgumentParser(prog="tuned_sanitizers", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, default=evidence.EVIDENCE, help="folder to write (docs/evidence)")
    parser.add_argument("--jobs", type=int, default=AT_ONCE, help=f"processes at once ({AT_ONCE})")
    parser.add_argument("--backend", choices=("cuda", "sim"), default="cuda", help="sim: a dry run, with --out")
    parser.add_argument("--launch", metavar="RUNG", help="launch this rung's cases and stop")
    parser.add_argument("--tool", choices=tuple(TOOLS), help="with --launch on sim: the tool to stand in for")
    options = parser.parse_args(argv)
    if options.launch:
        launch(options.launch, options.backend, options.tool)
        return 0
    if options.backend == "sim" and options.out.resolve() == evidence.EVIDENCE:
        print("tuned_sanitizers: --backend sim needs --out: docs/evidence holds GPU records only", file=sys.stderr)
        return 2
    try:
        backend = runner.choose(options.backend).name
        if backend == "cuda":
            hardware_tools.find("compute-sanitizer")
    except (BackendUnavailable, ToolError) as error:
        print(f"tuned_sanitizers: {error}", file=sys.stderr)
        return 2
    record = ask(backend, max(1, options.jobs))
    evidence.write_json(options.out / FILE, record)
    bad = [row for row in record["rows"] if row["result"] not in (CLEAN, EXPLAINED)]
    _say(f"{len(record['rows'])} rows in {record['seconds']} s, {len(bad)} of them not clean: {options.out / FILE}")
    return 1 if bad else 0


def launch(name: str, backend: str, tool: str | None = None) -> None:
    """Launch every case of a rung; on the SIMT machine, say what it found as `tool` would."""
    if backend == "cuda":
        for run in launchables_tuned.cases(name).values():
            run(Backend("cuda"))
        return
    found = machine(name)
    if tool:
        print(_as_the_tool(tool, found))


def machine(name: str) -> dict[str, tuple[str, ...]]:
    """What the SIMT machine's sanitizer finds in each case of a rung: kinds of faults, none for a clean one."""
    from kernels.simt.sanitize import Sanitizer

    found = {}
    for case, run in launchables_tuned.cases(name).items():
        watch = Sanitizer()
        with watch:
            run(Backend("sim", observers=(watch,)))
        found[case] = watch.verdict
    return found


def ask(backend: str, jobs: int = AT_ONCE) -> dict[str, Any]:
    """Every rung under every tool; returns the record."""
    started = time.perf_counter()
    pairs = [(name, tool) for name in launchables_tuned.names() for tool in TOOLS]
    with ThreadPoolExecutor(jobs) as pool:
        rows = list(pool.map(lambda pair: _row(pair[0], pair[1], backend), pairs))
    device, driver = runner.device(backend)
    tools = {"compute-sanitizer": hardware_tools.version("compute-sanitizer")} if backend == "cuda" else {}
    return {
        "schema": evidence.SCHEMA, "backend": backend, "device": device, "driver": driver,
        "versions": {**runner.versions(backend), **tools}, "date": runner.now(), "digest": sanitizers_digest(),
        "seconds": round(time.perf_counter() - started, 1), "rows": rows,
    }  # fmt: skip


def sanitizers_digest() -> str:
    """What the record depends on: the cases, and the kernels that they launch."""
    return digest.of_files(file for file in digest.port_files(CASES) if not file.startswith("kernels/simt/"))


def load(folder: Path = evidence.EVIDENCE) -> dict[str, Any] | None:
    """The committed record, or None; raises EvidenceError for a file that is not one."""
    path = folder / FILE
    if not path.exists():
        return None
    try:
        record = json.loads(path.read_text("utf-8"))
        if record["schema"] != evidence.SCHEMA or not record["rows"]:
            raise ValueError(f"schema {record['schema']}, {len(record['rows'])} rows")
    except (ValueError, KeyError, TypeError) as error:
        raise evidence.EvidenceError(f"{FILE}: {error}") from error
    return dict(record)


def _row(name: str, tool: str, backend: str) -> dict[str, Any]:
    result, note = ERROR, ""
    command = [sys.executable, "-m", "walkthroughs.tuned_sanitizers", "--backend", backend, "--launch", name]
    try:
        if backend == "cuda":
            command = hardware_tools.sanitizer_command(tool, command)
        else:
            command += ["--tool", tool]
        answer = hardware_tools.run(command, SECONDS, digest.ROOT)
        result = TOOLS[tool](answer.text)
        if answer.code and result == CLEAN:
            raise ToolError(f"the launch failed (exit {answer.code}): {answer.text[-400:]}")
        if result == FOUND:
            note = "\n".join(answer.text.splitlines()[:40])[:1500]
    except ToolError as error:
        result, note = ERROR, str(error)
    if result == FOUND and (why := KNOWN.get((name, tool))):
        result, note = EXPLAINED, f"{why}\n{note}"
    _say(f"{result:6} {name} [{tool}] {note[-200:]}")
    return {"rung": name, "tool": tool, "cases": list(launchables_tuned.cases(name)), "result": result, "note": note}


def _errors(tool: str) -> Callable[[str], str]:
    """How the answer of a tool that counts errors is read: `clean` or `found`; no summary is no answer."""

    def read(text: str) -> str:
        found = re.search(r"ERROR SUMMARY:\s*(\d+) error", text)
        if found is None:
            raise ToolError(f"{tool} gave no summary: {text[-300:]}")
        return FOUND if int(found[1]) else CLEAN

    return read


def _hazards(text: str) -> str:
    return CLEAN if hardware_tools.racecheck(text) == "clean" else FOUND


TOOLS: dict[str, Callable[[str], str]] = {
    "racecheck": _hazards, "memcheck": _errors("memcheck"), "initcheck": _errors("initcheck"),
    "synccheck": _errors("synccheck"),
}  # fmt: skip
"""What is asked, and how its answer is read."""
SEES = {
    "racecheck": {"race"},
    "memcheck": {"out of bounds", "misaligned"},
    "initcheck": {"uninitialised read"},
    "synccheck": {"barrier divergence", "deadlock", "shuffle error", "bad operand"},
}
"""Which of the SIMT machine's findings each tool stands for, in a dry run."""


def _as_the_tool(tool: str, found: dict[str, tuple[str, ...]]) -> str:
    kinds = [f"{case}: {kind}" for case, verdict in found.items() for kind in verdict if kind in SEES[tool]]
    end = f"{len(kinds)} hazards displayed" if tool == "racecheck" else f"{len(kinds)} errors"
    return "\n".join([*kinds, f"========= {'RACECHECK' if tool == 'racecheck' else 'ERROR'} SUMMARY: {end}"])


def _say(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
