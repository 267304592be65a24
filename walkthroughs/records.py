"""`python -m walkthroughs.records`: run every step on this machine's GPU and write the records.

One command for a GPU machine that has numba-cuda, NumPy, torch and the standard library, and nothing
of the site. It also runs every mutation, since a step that cannot fail on a GPU proves nothing there.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from kernels.errors import BackendUnavailable
from kernels.kernel import Backend
from walkthroughs import digest, evidence, mutations, runner
from walkthroughs.step import registry

MUTATIONS_FILE = "mutations.json"


def main(argv: Sequence[str] | None = None) -> int:
    """Write docs/evidence/; exit 1 when a step fails or a mutant survives, 2 without a GPU."""
    parser = argparse.ArgumentParser(prog="records", description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--out", type=Path, default=evidence.EVIDENCE, help="folder to write (docs/evidence)")
    parser.add_argument("--backend", choices=("cuda", "sim"), default="cuda", help="sim is for a dry run elsewhere")
    options = parser.parse_args(argv)
    if options.backend == "sim" and options.out.resolve() == evidence.EVIDENCE:
        print("records: --backend sim needs --out: docs/evidence holds GPU records only", file=sys.stderr)
        return 2
    try:
        backend = runner.choose(options.backend)
    except BackendUnavailable as error:
        print(f"records: {error}", file=sys.stderr)
        return 2
    return 0 if record_steps(backend, options.out) & record_mutations(backend, options.out) else 1


def record_steps(backend: Backend, out: Path) -> bool:
    """Run and write every walkthrough; False if a step did not pass (its file is then not written)."""
    fine = True
    for walkthrough in registry().values():
        records = []
        for step in walkthrough.steps:
            record = runner.run(step, backend)
            records.append(record)
            _say(
                f"{record.status:7} {step.id} {record.seconds:.2f} s, max error {record.max_error:.2g} {record.message}"
            )
            for check in record.checks:
                if not check.passed:
                    _say(f"        {check.name}: {check.observed} instead of {check.expected} ({check.max_error:.3g})")
        if all(record.status == "passed" for record in records):
            evidence.write(out / f"{walkthrough.id}.json", records)
        else:
            fine = False
    return fine


def record_mutations(backend: Backend, out: Path) -> bool:
    """Run every mutation and write who noticed it; False if one survived."""
    rows: list[dict[str, str | None]] = []
    broken = mutations.control(backend.name)
    for line in broken:
        _say(f"control FAILED: {line}")
    for mutation in mutations.MUTATIONS:
        started = time.perf_counter()
        caught = mutations.caught_by(mutation, backend.name)
        rows.append({
            "id": mutation.id, "what": mutation.what, "file": mutation.file, "region": mutation.region,
            "caught_by": caught[0] if caught else None, "said": caught[1] if caught else None,
        })  # fmt: skip
        _say(f"mutation {mutation.id}: {caught or 'SURVIVED'} {time.perf_counter() - started:.1f} s")
    device, driver = runner.device(backend.name)
    data = {
        "schema": evidence.SCHEMA, "backend": backend.name, "device": device, "driver": driver,
        "versions": runner.versions(backend.name), "date": runner.now(), "digest": mutations_digest(),
        "mutations": rows,
    }  # fmt: skip
    evidence.write_json(out / MUTATIONS_FILE, data)
    return not broken and all(row["caught_by"] for row in rows)


def mutations_digest() -> str:
    """What the mutation record depends on: the mutations and the files they change."""
    files = sorted({mutation.file for mutation in mutations.MUTATIONS})
    return digest.of_files(files, extra=repr(mutations.MUTATIONS))


def _say(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
