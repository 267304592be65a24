"""`python -m walkthroughs.hardware`: hold the SIMT machine's verdicts against those of a GPU, and write the record.

Needs a GPU, compute-sanitizer, ncu, numba-cuda and NumPy; nothing of the site. Every launch runs in a process of its
own under a tool, several at once; the whole run takes a few minutes. Exit 1 where the two disagree.
"""

from __future__ import annotations

import argparse
import base64
import sys
import time
import zlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from kernels.errors import BackendUnavailable
from kernels.kernel import Backend
from walkthroughs import digest, evidence, hardware_rows, hardware_tools, runner
from walkthroughs.hardware_rows import BOUNDS, MEMORY, TOLERANCE, TOLERANCE_WHY, Row
from walkthroughs.hardware_tools import ToolError

FILE = "hardware.json"
SECONDS = 150.0
AT_ONCE = 8
AGREE, DISAGREE, OUTSIDE, ERROR = "agree", "disagree", "outside", "error"
WATCHED = (
    "kernels/variants.py", "kernels/loads.py", "kernels/vector.py", "kernels/gather.py", "kernels/vllm/classic_v1.py",
    "kernels/vllm/cache.py", "kernels/tiny_vllm/attention.py", "kernels/tiny_vllm/paged.py",
    "kernels/tiny_vllm/general.py", "kernels/tiny_vllm/scatter.py", "walkthroughs/launchables.py",
    "walkthroughs/launchables_tiny.py",
    "walkthroughs/hardware_rows.py", "kernels/vllm/paged_2d.py", "kernels/vllm/slot_mapping.py",
    "kernels/vllm/flash_layout.py", "kernels/vllm/copy_blocks.py", "walkthroughs/launchables_live.py",
)  # fmt: skip


def main(argv: Sequence[str] | None = None) -> int:
    """Write docs/evidence/hardware.json; exit 1 when something disagrees, 2 without a GPU or a tool."""
    parser = argparse.ArgumentParser(prog="hardware", description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--out", type=Path, default=evidence.EVIDENCE, help="folder to write (docs/evidence)")
    parser.add_argument("--launch", metavar="NAME", help="launch one row, `memory` or `outputs` on the GPU and stop")
    parser.add_argument("--save", type=Path, help="with --launch outputs: the .npz to write")
    parser.add_argument("--backend", choices=("cuda", "sim"), default="cuda", help="sim is for a dry run elsewhere")
    options = parser.parse_args(argv)
    if options.launch:
        launch(options.launch, Backend(options.backend), options.save)
        return 0
    if options.backend == "sim" and options.out.resolve() == evidence.EVIDENCE:
        print("hardware: --backend sim needs --out: docs/evidence holds GPU records only", file=sys.stderr)
        return 2
    try:
        backend = runner.choose(options.backend)
        for tool in ("compute-sanitizer", "ncu"):
            hardware_tools.find(tool)
    except (BackendUnavailable, ToolError) as error:
        print(f"hardware: {error}", file=sys.stderr)
        return 2
    record = compare(backend.name)
    evidence.write_json(options.out / FILE, record)
    parts = [record["verdicts"], record["memory"], record["outputs"]]
    bad = [row for part in parts for row in part if row["result"] in (DISAGREE, ERROR)]
    _say(f"{sum(map(len, parts))} rows, {len(bad)} of them disagree or did not run: {options.out / FILE}")
    return 1 if bad else 0


def launch(name: str, backend: Backend, save: Path | None = None) -> None:
    """Launch what one row names. A broken kernel may fail here: its tool has reported by then."""
    if name == "memory":
        from kernels.loads import memory_cases

        for run in memory_cases().values():
            run(backend)
    elif name == "outputs":
        assert save is not None, "--launch outputs needs --save"
        np.savez(save, **outputs(backend))
    else:
        next(row for row in hardware_rows.rows() if row.id == name).launch(backend)


def outputs(backend: Backend) -> dict[str, Any]:
    """What every sound port wrote, as `kernel/case/array`."""
    from walkthroughs import launchables

    found = {}
    for name in BOUNDS:
        for case in launchables.launchable(name).cases.values():
            found.update({f"{name}/{case.name}/{array}": data for array, data in case.run(backend).items()})
    return found


def compare(backend: str) -> dict[str, Any]:
    """Ask the tools about every row; returns the record."""
    started = time.perf_counter()
    with ThreadPoolExecutor(AT_ONCE) as pool:
        # ncu first: it is the longest, and alone in its kind.
        memory = pool.submit(_memory, backend)
        saved = pool.submit(_outputs, backend)
        verdicts = list(pool.map(lambda row: _verdict(row, backend), hardware_rows.rows()))
        rows, arrays = memory.result(), saved.result()
    device, driver = runner.device(backend)
    tools = {name: hardware_tools.version(name) for name in ("compute-sanitizer", "ncu")}
    return {
        "schema": evidence.SCHEMA, "backend": backend, "device": device, "driver": driver,
        "versions": {**runner.versions(backend), **tools}, "date": runner.now(), "digest": hardware_digest(),
        "seconds": round(time.perf_counter() - started, 1), "tolerance": TOLERANCE, "tolerance_why": TOLERANCE_WHY,
        "verdicts": verdicts, "memory": rows, "outputs": arrays,
    }  # fmt: skip


def hardware_digest() -> str:
    """What the record depends on: the kernels that were launched, and the answers that were expected."""
    files = {file for path in WATCHED for file in digest.port_files(path)}
    kept = {file for file in files if not file.startswith("kernels/simt/")}
    from walkthroughs import mutations

    return digest.of_files(kept, extra=repr([m for m in mutations.MUTATIONS if m.old == mutations.BARRIER]))


def _verdict(row: Row, backend: str) -> dict[str, Any]:
    found: dict[str, Any] = {
        "id": row.id, "group": row.group, "tool": row.tool, "machine": row.machine, "gpu": "", "result": OUTSIDE,
        "note": row.why,
    }  # fmt: skip
    if row.tool:
        found |= _asked(row, backend)
    _say(f"{found['result']:8} {row.group}: {row.id} [{row.tool or '-'}] {row.machine} / {found['gpu'] or '-'}")
    return found


def _asked(row: Row, backend: str) -> dict[str, Any]:
    try:
        answer = _run(hardware_tools.sanitizer_command(row.tool, _python(backend, "--launch", row.id)))
        gpu = hardware_tools.VERDICTS[row.tool](answer.text)
        if row.machine == hardware_rows.CLEAN and answer.code:
            raise ToolError(f"the launch failed (exit {answer.code}): {answer.text[-300:]}")
    except ToolError as error:
        return {"result": ERROR, "note": str(error)}
    if gpu == row.machine:
        return {"gpu": gpu, "result": AGREE}
    return {"gpu": gpu, "result": DISAGREE, "note": answer.text[-600:]}


def _memory(backend: str) -> list[dict[str, Any]]:
    try:
        counted = hardware_tools.ncu_rows(_run(hardware_tools.ncu_command(_python(backend, "--launch", "memory"))).text)
        if len(counted) != len(MEMORY):
            raise ToolError(f"ncu saw {len(counted)} kernels, {len(MEMORY)} were launched")
    except ToolError as error:
        return [{"id": name, "machine": {}, "gpu": {}, "result": ERROR, "note": str(error)} for name in MEMORY]
    found = []
    for (name, numbers), gpu in zip(MEMORY.items(), counted, strict=True):
        machine = dict(zip(hardware_tools.METRICS, numbers, strict=True))
        near = all(abs(gpu[key] - machine[key]) <= TOLERANCE * machine[key] for key in machine)
        found.append({"id": name, "machine": machine, "gpu": gpu, "result": AGREE if near else DISAGREE, "note": ""})
        _say(f"{found[-1]['result']:8} memory: {name} {machine} / {gpu}")
    return found


def _outputs(backend: str) -> list[dict[str, Any]]:
    """The GPU's outputs; they are compared with the machine's by the tests, which have the machine."""
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "outputs.npz"
        answer = _run(_python(backend, "--launch", "outputs", "--save", str(path)))
        if answer.code or not path.exists():
            return [{"id": "outputs", "result": ERROR, "note": answer.text[-400:]}]
        with np.load(path, allow_pickle=False) as saved:
            return [{"id": name, "result": "saved", **pack(saved[name])} for name in saved.files]


def pack(array: Any) -> dict[str, Any]:
    """An array as JSON: dtype, shape, and its bytes, compressed, in base64."""
    data = base64.b64encode(zlib.compress(np.ascontiguousarray(array).tobytes(), 9)).decode("ascii")
    return {"dtype": str(array.dtype), "shape": list(array.shape), "data": data}


def unpack(row: dict[str, Any]) -> Any:
    """The inverse of `pack`."""
    flat = np.frombuffer(zlib.decompress(base64.b64decode(row["data"])), row["dtype"])
    return flat.reshape(row["shape"])


def _python(backend: str, *words: str) -> list[str]:
    return [sys.executable, "-m", "walkthroughs.hardware", "--backend", backend, *words]


def _run(command: Sequence[str]) -> hardware_tools.Answer:
    return hardware_tools.run(command, SECONDS, digest.ROOT)


def _say(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
