"""Deliberate faults: each takes one barrier, mask or term out of a port, and some step must notice.

A step that cannot fail proves nothing. A mutant is the port's own text with one line changed, compiled
under another name; line numbers stay, so the probes still find their lines.
"""

from __future__ import annotations

import importlib
import linecache
import sys
import tomllib
import types
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernels.kernel import Backend, Device, Kernel
from walkthroughs import runner
from walkthroughs.step import get
from walkthroughs.workbench import Bench

ROOT = Path(__file__).resolve().parent.parent
V1, BODY, UTILS = (f"kernels/vllm/{name}.py" for name in ("classic_v1", "attention_kernels", "attention_utils"))
PAGED_2D, SLOTS, LAYOUT, COPY = (
    f"kernels/vllm/{name}.py" for name in ("paged_2d", "slot_mapping", "flash_layout", "copy_blocks")
)
BARRIER = "cuda.syncthreads()"
# From a file with device functions only to the file with the kernel that is launched.
CALLERS = {UTILS: (BODY, V1), BODY: (V1,)}
ENTRIES = {
    V1: "paged_attention_v1_kernel",
    "kernels/gather.py": "gather_kernel",
    "kernels/tiny_vllm/general.py": "general_attention_kernel",
    "kernels/tiny_vllm/paged.py": "tiny_attention_kernel",
    "kernels/tiny_vllm/scatter.py": "write_prefill_kernel",
    "kernels/vllm/cache.py": "reshape_and_cache_kernel",
    "kernels/vllm/cache_fixed.py": "reshape_and_cache_fixed_kernel",
    "kernels/vllm/cache_flash.py": "reshape_and_cache_flash_kernel",
    "kernels/vllm/classic_v2.py": "paged_attention_v2_reduce_kernel",
    COPY: "copy_blocks_kernel",
    LAYOUT: "gather_kv_kernel",
    PAGED_2D: "kernel_paged_attention_2d",
    SLOTS: "compute_slot_mapping_kernel",
}


class MutationError(ValueError):
    """A mutation whose text is not, or not once, in its region any more."""


@dataclass(frozen=True)
class Mutation:
    """Replace `old` by `new` (same number of lines) in `region` of `file`; `steps` are expected to notice.

    `through` and `entry`: where CALLERS and ENTRIES do not say which files lie between `file` and the kernel that is
    launched, and which kernel of the last file that is.
    """

    id: str
    what: str
    file: str
    region: str
    old: str
    new: str
    steps: tuple[str, ...]
    nth: int = 0
    through: tuple[str, ...] | None = None
    entry: str = ""


def load() -> tuple[Mutation, ...]:
    """The mutations of mutations.toml."""
    table = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))
    rows: list[dict[str, Any]] = table["mutation"]
    lists = ("steps", "through")
    for row in rows:
        row.update({name: tuple(row[name]) for name in lists if name in row})
    return tuple(Mutation(**row) for row in rows)


MUTATIONS = load()


def mutant(mutation: Mutation) -> Kernel:
    """The kernel with the fault in it; raises MutationError when the text to change is not there."""
    chain = (mutation.file, *(CALLERS.get(mutation.file, ()) if mutation.through is None else mutation.through))
    scope = _load(mutation.file, _changed(mutation), mutation.id)
    for file in chain[1:]:
        # A caller finds its device functions, and what chooses among them, through its module's globals.
        own = scope["__name__"]
        faulty = {
            name: value
            for name, value in scope.items()
            if isinstance(value, Device) or (isinstance(value, types.FunctionType) and value.__module__ == own)
        }
        scope = _load(file, (ROOT / file).read_text("utf-8"), mutation.id)
        scope.update({name: value for name, value in faulty.items() if name in scope})
    kernel = scope[mutation.entry or ENTRIES[chain[-1]]]
    assert isinstance(kernel, Kernel)
    return kernel


def benches(backend: str, kernel: Kernel | None = None) -> Iterator[Bench]:
    """The warp orders, or on a GPU the delays, under which a correct kernel must pass."""
    kernels = ((kernel.name, kernel),) if kernel else ()
    if backend == "sim":
        for schedule in ("in-order", "reversed", "random:1"):
            yield Bench(Backend("sim", schedule), kernels=kernels)
    else:
        for warp in (None, 0, 1, 3):
            yield Bench(Backend("cuda"), sleepy_warp=warp, kernels=kernels)


def caught_by(mutation: Mutation, backend: str) -> tuple[str, str] | None:
    """The first step that notices the fault and what it said, or None if the mutant survives.

    A check that does not hold counts, and so does a report of the SIMT machine. Any other error says nothing
    about the step, and is raised.
    """
    kernel = mutant(mutation)
    for bench in benches(backend, kernel):
        for step_id in mutation.steps:
            record = runner.run(get(step_id), bench)
            if record.status == "failed":
                return step_id, next(check.name for check in record.checks if not check.passed)
            if record.status == "error":
                if not is_report(record.message):
                    raise MutationError(f"{mutation.id}: {step_id} did not run: {record.message}")
                return step_id, record.message.split("(")[0].strip()
    return None


def is_report(message: str) -> bool:
    """True for the message of an error that the SIMT machine reports about a kernel."""
    try:
        from kernels import simt
    except ImportError:  # a GPU machine without greenlet: what it says is never the SIMT machine's report
        return False
    kind = getattr(simt, message.split(":")[0], None)
    if not isinstance(kind, type) or not issubclass(kind, simt.SimtError):
        return False
    # These say that it never ran, not that it is wrong.
    return not issubclass(kind, simt.BadLaunch | simt.NotModelled | simt.OutsideLaunch)


def control(backend: str) -> list[str]:
    """Steps that do not pass with the sound kernels under every warp order or delay; must be empty."""
    return [line for task in control_tasks(backend) if (line := control_one(backend, *task))]


def control_tasks(backend: str) -> list[tuple[int, str]]:
    """What `control` runs: each bench (by its place in `benches`) with each step that a barrier mutation names."""
    barriers = {step for mutation in MUTATIONS if mutation.old.strip() == BARRIER for step in mutation.steps}
    return [(number, step_id) for number, _ in enumerate(benches(backend)) for step_id in sorted(barriers)]


def control_one(backend: str, number: int, step_id: str) -> str | None:
    """What went wrong when a step ran with the sound kernels on one bench, or None."""
    bench = list(benches(backend))[number]
    record = runner.run(get(step_id), bench)
    if record.status == "passed":
        return None
    return f"{step_id} on {bench.backend} with sleepy warp {bench.sleepy_warp}: {record.message or record.status}"


def _changed(mutation: Mutation) -> str:
    from annotate.regions import regions

    path = ROOT / mutation.file
    lines = path.read_text("utf-8").splitlines(keepends=True)
    spans = regions(path).get(mutation.region, [])
    places = [number for span in spans for number in range(span.first - 1, span.last) if mutation.old in lines[number]]
    if len(places) <= mutation.nth:
        raise MutationError(f"{mutation.id}: {mutation.old!r} is not in region {mutation.region} of {mutation.file}")
    lines[places[mutation.nth]] = lines[places[mutation.nth]].replace(mutation.old, mutation.new, 1)
    return "".join(lines)


def _load(file: str, text: str, tag: str) -> dict[str, object]:
    """Execute a port's text as a module of its own; the text stays findable for `inspect`."""
    filename = f"{ROOT / file}#{tag}"
    name = f"{file.removesuffix('.py').replace('/', '.')}#{tag}"
    importlib.import_module(file.removesuffix(".py").replace("/", "."))
    module = types.ModuleType(name)
    module.__file__ = filename
    sys.modules[name] = module
    linecache.cache[filename] = (len(text), None, text.splitlines(keepends=True), filename)
    exec(compile(text, filename, "exec"), module.__dict__)
    return module.__dict__
