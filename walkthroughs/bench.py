"""`python -m walkthroughs.bench`: the ladder and its peers on this machine's GPU; writes docs/evidence/bench.json.

Needs a GPU, numba-cuda, NumPy and torch; nothing of the site. Peers are measured where they are installed. A set that
is measured takes the place of the one of its name; other sets of the record stay.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from kernels.errors import BackendUnavailable, KernelError
from kernels.tuned import bench_record, goals
from kernels.tuned.bench_record import Record, RecordError, Set
from walkthroughs import digest, evidence, runner

if TYPE_CHECKING:
    from kernels.tuned.bench import Wish

FILE = "bench.json"
RUNGS_FILE = "kernels/tuned/ladder.py"
WRITER_FILE = "kernels/tuned/writer.py"
HOW_MEASURED = ("kernels/tuned/bound.py", "kernels/tuned/ceilings.py", "kernels/tuned/timing.py")


def main(argv: Sequence[str] | None = None, say: Callable[[str], None] | None = None) -> int:
    """Measure; exit 1 where a kernel is wrong or the GPU was lost, 2 without a GPU or for wrong use.

    `say` is told each line as it comes; else it is printed.
    """
    options = _parser().parse_args(argv)
    out = options.out / FILE
    if options.backend == "sim" and options.out.resolve() == evidence.EVIDENCE:
        print("bench: --backend sim is a dry run: name another folder with --out", file=sys.stderr)
        return 2
    try:
        runner.choose(options.backend)
        record = bench_record.read(out)
        wishes = _wishes(options)
    except (BackendUnavailable, RecordError, KernelError, ImportError, AttributeError) as error:
        print(f"bench: {error}", file=sys.stderr)
        return 2
    return _measure(options, wishes, record, out, say or _say)


def _measure(
    options: argparse.Namespace, wishes: Sequence[Wish], record: Record, out: Path, say: Callable[[str], None]
) -> int:
    from kernels.tuned import bench

    held = [record]

    def keep(made: Set) -> None:
        held[0] = held[0].put(made)
        bench_record.write(out, held[0])

    machine, budget = bench.machine_of(options.backend), bench.Budget(options.seconds)
    if options.backend == "sim":
        say("A dry run on the SIMT machine: the times mean nothing.")
    fine = True
    for wish in wishes:
        name, driver = runner.device(options.backend)
        versions = runner.versions(options.backend)
        where = bench.Where(name, driver, runner.now(), bench_digest(), versions)
        say(f"{wish.set}: {name}, {driver}, {where.date}")
        more = {"footprint": 1} if options.backend == "sim" else {}
        try:
            made = bench.run(wish, machine, where, budget=budget, say=say, keep=keep, **more)
        except bench.DeviceLost as lost:
            say(f"The GPU answers no more: {lost}")
            return 1
        fine &= not any(row.state == bench_record.WRONG for cell in made.cells for row in cell.rows)
    for line in goals.lines(held[0]):
        say(line)
    say(f"{budget.spent:.0f} s: {out}")
    return 0 if fine else 1


def _wishes(options: argparse.Namespace) -> list[Wish]:
    """What each `--set` asks for; raises ArgumentError, ImportError."""
    from kernels.tuned import bench, peers

    sys.path.insert(0, str(Path.cwd()))
    extra, words = peers.also(options.also)
    return [
        bench.Wish(
            name, tuple(options.rung), tuple(options.peer), tuple(options.without), tuple(options.only),
            bench.plans_of(options.plans) if options.plans else (), extra, words,
        )
        for name in options.set or ["facts"]
    ]  # fmt: skip


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="bench", description=__doc__.splitlines()[0] if __doc__ else None)
    add = parser.add_argument
    add(
        "--set",
        action="append",
        metavar="SET",
        help="facts (if none is named), matrix, goals, writer, host; may be repeated",
    )
    add("--out", type=Path, default=evidence.EVIDENCE, help="folder of the record (docs/evidence)")
    add("--backend", choices=("cuda", "sim"), default="cuda", help="sim: a dry run of `--set tiny`")
    add("--seconds", type=float, help="after so many seconds what is left is recorded as not measured")
    add("--rung", action="append", default=[], help="this rung only; may be repeated")
    add("--peer", action="append", default=[], help="this peer only; may be repeated")
    add("--without", action="append", default=[], metavar="NAME", help="leave a rung or a peer out; may be repeated")
    add("--only", action="append", default=[], metavar="PART", help="cells whose id contains this; may be repeated")
    add("--plans", help="plans of the last rung, SPLITSxWARPSxDEPTH with commas between, or `all`")
    add("--also", action="append", default=[], metavar="MODULE", help="a module with PEERS of your own")
    return parser


def bench_digest() -> str:
    """What the record depends on: the rungs, and how they are launched and timed."""
    files = {*digest.port_files(RUNGS_FILE), *digest.port_files(WRITER_FILE), *HOW_MEASURED}
    return digest.of_files(file for file in files if not file.startswith("kernels/simt/"))


def load(folder: Path = evidence.EVIDENCE) -> Record:
    """The committed record, empty where there is none; raises RecordError."""
    return bench_record.read(folder / FILE)


def fresh(made: Set) -> bool:
    """Whether a set was measured with the rungs as they are."""
    return made.digest == bench_digest()


def _say(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    # Numba's remark on small grids is no news to a benchmark, and there would be thousands.
    os.environ.setdefault("NUMBA_CUDA_LOW_OCCUPANCY_WARNINGS", "0")
    sys.exit(main())
