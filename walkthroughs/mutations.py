"""Deliberate faults: each takes one barrier, mask or term out of a port, and some step must notice.

A step that cannot fail proves nothing. A mutant is the port's own text with one line changed, compiled
under another name; line numbers stay, so the probes still find their lines.
"""

from __future__ import annotations

import importlib
import linecache
import sys
import types
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from kernels.kernel import Backend, Device, Kernel
from walkthroughs import runner
from walkthroughs.step import get
from walkthroughs.workbench import Bench

ROOT = Path(__file__).resolve().parent.parent
V1, UTILS, WRITER = "kernels/vllm/classic_v1.py", "kernels/vllm/attention_utils.py", "kernels/vllm/cache.py"
GATHER = "kernels/gather.py"
ENTRIES = {
    V1: "paged_attention_v1_kernel",
    UTILS: "paged_attention_v1_kernel",
    WRITER: "reshape_and_cache_kernel",
    GATHER: "gather_kernel",
}


class MutationError(ValueError):
    """A mutation whose text is not, or not once, in its region any more."""


@dataclass(frozen=True)
class Mutation:
    """Replace `old` by `new` (same number of lines) in `region` of `file`; `steps` are expected to notice."""

    id: str
    what: str
    file: str
    region: str
    old: str
    new: str
    steps: tuple[str, ...]
    nth: int = 0


def _v1(name: str, what: str, region: str, old: str, new: str, *slugs: str, nth: int = 0, file: str = V1) -> Mutation:
    return Mutation(name, what, file, region, old, new, tuple(f"vllm-classic/{slug}" for slug in slugs), nth)


BARRIER = "cuda.syncthreads()"
MUTATIONS = (
    _v1("q-barrier", "no barrier after the query load", "q-load", BARRIER, "pass", "qk-dot"),
    _v1("qk-max-barrier", "no barrier before the maxima are read", "qk-max", BARRIER, "pass", "qk-max"),
    _v1("block-sum-barrier", "no barrier in block_sum", "block-sum", BARRIER, "pass", "exp-sum", file=UTILS),
    _v1("weights-barrier", "no barrier before the weights are read", "normalise", BARRIER, "pass", "logits-vec"),
    _v1("reuse-barrier", "no barrier before logits become out_smem", "cross-warp-reduce", BARRIER, "pass", "cross-warp"),
    _v1("round-barrier", "no barrier between writing and adding", "cross-warp-reduce", BARRIER, "pass", "cross-warp", nth=1),
    _v1("k-mask", "masked scores are stored", "mask-and-store", "float32(0) if mask else qk", "qk", "mask"),
    _v1("max-mask", "masked scores vote for the maximum", "mask-and-store", "qk_max if mask else libdevice.fmaxf(qk_max, qk)", "libdevice.fmaxf(qk_max, qk)", "mask"),
    _v1("v-mask", "values behind the end are kept", "tail-zeroing", "v_vec[j] if token_idx + j < seq_len else zero_value", "v_vec[j]", "tail", "output"),
    _v1("epsilon", "1e-6 is not added to the sum", "normalise", "exp_sum + float32(1e-6)", "exp_sum", "normalise"),
    _v1("scale", "scores are not scaled", "qk-dot", "scale * qk_dot(", "qk_dot(", "qk-dot"),
    _v1("alibi-one", "the +1 of ALiBi is missing", "alibi", "token_idx - seq_len + 1", "token_idx - seq_len", "alibi"),
    _v1("gqa", "remainder instead of division for the KV head", "gqa-mapping", "head_idx // num_queries_per_kv", "head_idx % num_kv_heads", "gqa"),
    _v1("table-row", "every sequence reads the first row of the table", "block-table-row", "seq_idx * max_num_blocks_per_seq", "0 * max_num_blocks_per_seq", "block-table", "qk-dot", nth=1),
    _v1("max-subtract", "the maximum is not subtracted", "exp-sum", "logits[i] - qk_max", "logits[i]", "exp-sum"),
    _v1("half-warp", "the last exchange of a row is missing", "warp-reduce", "lane_mask >= 1", "lane_mask >= 2", "accumulate", "output"),
    _v1("group-sum", "the thread group does not add up its halves", "qk-dot-helper", "mask >= 1", "mask >= 2", "qk-dot", file=UTILS),
    _v1("slot-guard", "padding is not skipped", "slot-guard", "slot_idx < 0", "slot_idx < -1", "slots", "padded-rows", file=WRITER),
    _v1("v-stride", "values are written side by side", "v-store", "i * block_size", "i", "write-values", file=WRITER),
    _v1("k-group", "a key's piece lands on the wrong shelf", "k-store", "h_block * block_size * x", "h_block * x", "write-keys", file=WRITER),
    Mutation("rescale", "the accumulator is not rescaled", GATHER, "online-softmax", "acc[d] * correction", "acc[d]", ("paged-reference/online-softmax", "paged-reference/divide")),
    Mutation("tail-guard", "the last block is read to its end", GATHER, "tail-guard", "token_idx >= seq_len", "token_idx >= seq_len + block_size", ("paged-reference/tail",)),
)  # fmt: skip


def mutant(mutation: Mutation) -> Kernel:
    """The kernel with the fault in it; raises MutationError when the text to change is not there."""
    name = ENTRIES[mutation.file]
    if mutation.file != UTILS:
        kernel = _load(mutation.file, _changed(mutation), mutation.id)[name]
    else:
        helpers = _load(UTILS, _changed(mutation), mutation.id)
        scope = _load(V1, (ROOT / V1).read_text("utf-8"), mutation.id)
        # The caller finds its device functions through its module's globals.
        scope.update({key: value for key, value in helpers.items() if isinstance(value, Device) and key in scope})
        kernel = scope[name]
    assert isinstance(kernel, Kernel)
    return kernel


def benches(backend: str, kernel: Kernel | None = None) -> Iterator[Bench]:
    """The warp orders, or on a GPU the delays, under which a correct kernel must pass."""
    kernels = ((kernel.name, kernel),) if kernel else ()
    if backend == "sim":
        for schedule in ("in-order", "reversed", "random:1"):
            yield Bench(Backend("sim", schedule), kernels=kernels)
    else:
        for warp in (None, 0, 3):
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
    from kernels import simt

    kind = getattr(simt, message.split(":")[0], None)
    return isinstance(kind, type) and issubclass(kind, simt.SimtError)


def control(backend: str) -> list[str]:
    """Steps that do not pass with the sound kernels under every warp order or delay; must be empty."""
    barriers = {step for mutation in MUTATIONS if mutation.old == BARRIER for step in mutation.steps}
    failed = []
    for bench in benches(backend):
        for step_id in sorted(barriers):
            record = runner.run(get(step_id), bench)
            if record.status != "passed":
                failed.append(f"{step_id} on {bench.backend} with sleepy warp {bench.sleepy_warp}: {record.message}")
    return failed


def _changed(mutation: Mutation) -> str:
    from annotate.regions import regions

    path = ROOT / mutation.file
    lines = path.read_text("utf-8").splitlines(keepends=True)
    spans = regions(path).get(mutation.region, [])
    places = [
        number
        for span in spans
        for number in range(span.first - 1, span.last)
        if mutation.old in lines[number]
    ]
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
