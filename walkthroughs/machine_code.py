"""`python -m walkthroughs.machine_code`: record every kernel's PTX and SASS, each instruction with the port's line.

Needs a GPU, numba-cuda, NumPy, torch and nvdisasm; nothing of the site. `--compile-only --cc 9.0` compiles without a
GPU into another folder. Exit 1 where a kernel could not be recorded, 2 for wrong use.
"""

from __future__ import annotations

import argparse
import difflib
import os
import sys
import time
from collections.abc import Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from annotate.errors import AnnotateError
from annotate.files import write_text
from kernels.errors import BackendUnavailable
from walkthroughs import hardware_tools, machine_compile, machine_parse, machine_record, machine_subjects, runner
from walkthroughs.hardware_tools import ToolError
from walkthroughs.machine_compile import Launch
from walkthroughs.machine_parse import Row
from walkthroughs.machine_subjects import Subject

AT_ONCE = 14
COMPILED = "compiled"
"""What stands for the backend in a dry run's record: nothing was launched."""


def main(argv: Sequence[str] | None = None) -> int:
    """Write docs/evidence/machine/; exit 1 when a kernel failed, 2 without a GPU, without nvdisasm or for wrong use."""
    parser = argparse.ArgumentParser(prog="machine_code", description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--out", type=Path, default=machine_record.FOLDER, help="folder (docs/evidence/machine)")
    parser.add_argument("--jobs", type=int, help=f"processes ({AT_ONCE} at most, all cores but two)")
    parser.add_argument("--only", action="append", default=[], metavar="KERNEL", help="this kernel; may be repeated")
    parser.add_argument("--compile-only", action="store_true", help="without a GPU: compile for --cc, launch nothing")
    parser.add_argument("--cc", default="", metavar="9.0", help="the compute capability to compile for")
    options = parser.parse_args(argv)
    if wrong := _wrong_use(options):
        print(f"machine_code: {wrong}", file=sys.stderr)
        return 2
    names = options.only or list(machine_subjects.names())
    jobs = min(options.jobs or max(1, min(AT_ONCE, (os.cpu_count() or 1) - 2)), len(names))
    started, bad = time.perf_counter(), 0
    for name, found in _each(partial(_recorded, cc=_capability(options)), names, jobs):
        if isinstance(found, str):
            bad += 1
            _say(f"FAILED  {name}: {found}")
            continue
        size = write(options.out, found)
        large = " (large; nothing was cut)" if size > machine_record.LARGE else ""
        _say(f"recorded {name}: {size / 1000:.0f} kB{large}; " + "; ".join(map(summary, found["kernels"])))
    _say(f"{len(names)} kernels in {time.perf_counter() - started:.0f} s, {bad} of them failed: {options.out}")
    return 1 if bad else 0


def _wrong_use(options: argparse.Namespace) -> str:
    if options.compile_only != bool(options.cc):
        return "--compile-only and --cc 9.0 go together"
    part = options.compile_only or options.only
    if part and options.out.resolve() == machine_record.FOLDER.resolve():
        return "docs/evidence/machine holds whole GPU records only: name another folder with --out"
    if options.jobs is not None and options.jobs < 1:
        return f"--jobs {options.jobs}: must be 1 or more"
    if unknown := [name for name in options.only if name not in machine_subjects.names()]:
        return f"--only {unknown[0]}: must be one of {', '.join(machine_subjects.names())}"
    try:
        if options.cc:
            _capability(options)
        else:
            runner.choose("cuda")
        hardware_tools.find("nvdisasm")
    except (BackendUnavailable, ToolError, ValueError) as error:
        return str(error)
    return ""


def _capability(options: argparse.Namespace) -> machine_compile.Capability | None:
    """The compute capability of a dry run; None asks the GPU. Raises ValueError for what is none."""
    if not options.cc:
        return None
    major, dot, minor = options.cc.partition(".")
    if not (dot and major.isdecimal() and minor.isdecimal()):
        raise ValueError(f"--cc {options.cc}: must be two numbers, such as 9.0")
    return int(major), int(minor)


def _each(work: Any, names: Sequence[str], jobs: int) -> list[tuple[str, dict[str, Any] | str]]:
    """`work` on each name, in order; a worker that dies takes only its own kernels with it."""
    if jobs <= 1:
        return [(name, work(name)) for name in names]
    # Spawned: a CUDA context does not survive a fork.
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        futures = [(name, pool.submit(work, name)) for name in names]
        return [(name, _answer(future)) for name, future in futures]


def _answer(future: Future[Any]) -> Any:
    error = future.exception()
    return f"{type(error).__name__}: {error}" if error else future.result()


def _recorded(name: str, cc: machine_compile.Capability | None) -> dict[str, Any] | str:
    """The record of one kernel, or why there is none."""
    try:
        subject = machine_subjects.subject(name)
        if cc is None:
            return record(subject)
        with machine_compile.without_gpu(cc):
            return record(subject, cc)
    except (ToolError, AnnotateError, machine_parse.ListingError) as error:
        return str(error)
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def record(subject: Subject, cc: machine_compile.Capability | None = None) -> dict[str, Any]:
    """Compile what a subject's case launches; with `cc` (inside `without_gpu`) nothing is launched."""
    started = time.perf_counter()
    backend = "cuda" if cc is None else COMPILED
    found = machine_compile.launches(subject.run, "cuda" if cc is None else "sim")
    kernels = [_kernel(launch, subject, on_gpu=cc is None) for launch in found]
    device, driver = ("", "") if cc else runner.device("cuda")
    compiled = {name: kernels[0].pop(name) for name in ("nvvm", "ptxas")}
    for other in kernels[1:]:
        del other["nvvm"], other["ptxas"]
    return {
        "schema": machine_record.SCHEMA, "kernel": subject.name, "title": subject.title, "port": subject.port,
        "backend": backend, "device": device, "driver": driver, "compute_capability": _capability_said(cc),
        "versions": {
            **runner.versions("cuda"), **compiled, "nvdisasm": machine_compile.tool_version("nvdisasm"),
        },
        "date": runner.now(), "digest": machine_record.digest_of(subject.name),
        "case": subject.case, "case_title": subject.case_title, "seconds": round(time.perf_counter() - started, 1),
        "kernels": kernels,
    }  # fmt: skip


def _capability_said(cc: machine_compile.Capability | None) -> str:
    from numba import cuda

    major, minor = cc or cuda.get_current_device().compute_capability
    return f"{major}.{minor}"


def _kernel(launch: Launch, subject: Subject, *, on_gpu: bool) -> dict[str, Any]:
    listing = machine_compile.compile_launch(launch, on_gpu=on_gpu)
    ptx, sass = machine_parse.ptx_rows(listing.ptx), machine_parse.sass_rows(listing.sass)
    launched = [row.text for row in machine_parse.sass_rows(listing.launched)]
    names = machine_compile.parameter_names(launch)
    ptx = [Row(machine_parse.named(row.text, names), row.places) for row in ptx]
    table = machine_record.LineTable(subject.port)
    tool, target = machine_parse.assembler_of(listing.sass)
    code = {
        "name": launch.kernel.name, "target": target, "how": listing.how, "notes": list(listing.notes),
        "grid": list(launch.grid), "block": list(launch.block), "dynamic_shared": launch.shared,
        "arguments": [[name, str(kind)] for name, kind in zip(launch.arguments, launch.types, strict=True)],
        **(listing.resources or machine_parse.resources_of(listing.sass)),
        "unlike_launched": unlike([row.text for row in sass], launched),
        "counts": {
            "ptx": machine_parse.count(row.text for row in ptx), "sass": machine_parse.count(row.text for row in sass),
            "launched": machine_parse.count(launched),
        },
        "ptx": [[row.text, table.index(row.places)] for row in ptx],
        "sass": [[row.text, table.index(row.places)] for row in sass],
    }  # fmt: skip
    compilers = {"nvvm": machine_parse.compiler_of(listing.ptx), "ptxas": tool}
    return {**code, "lines": table.rows, **compilers}


def unlike(ours: Sequence[str], launched: Sequence[str]) -> int:
    """How many rows of the longer of two listings have no like in the other, in the same order."""
    if list(ours) == list(launched):
        return 0
    blocks = difflib.SequenceMatcher(None, ours, launched, autojunk=False).get_matching_blocks()
    return max(len(ours), len(launched)) - sum(block.size for block in blocks)


def write(folder: Path, found: dict[str, Any]) -> int:
    """Write a record and read it back; returns its size in bytes. Raises EvidenceError for a record that is none."""
    text = machine_record.dump(found)
    machine_record.parse(text)
    write_text(folder / f"{found['kernel']}.json", text)
    return len(text.encode())


def summary(code: dict[str, Any]) -> str:
    """One line on a kernel: sizes, resources, and the names of its global loads."""
    loads = ", ".join(
        f"{number} {name}" for side in ("ptx", "sass") for name, number in code["counts"][side]["global loads"].items()
    ) if "global loads" in code["counts"]["sass"] else "no global load"  # fmt: skip
    unlike_said = f", {code['unlike_launched']} rows unlike the launch" if code["unlike_launched"] else ""
    how = "" if code["how"] == "numba-cuda" else f" [{code['how']}]"
    return (
        f"{code['name']}{how} {len(code['ptx'])} PTX, {len(code['sass'])} SASS rows, {code['registers']} registers, "
        f"{code['shared']}+{code['dynamic_shared']} B shared, {code['local']} B local{unlike_said}: {loads}"
    )


def _say(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
