"""`python -m walkthroughs.lab.steps`: run the steps that read the lab's record, and write their own records.

What these steps show happened on the machine that made the lab's record, so theirs are made where that one is: on the
SIMT machine, without a GPU. `make gpu-records` writes better ones over them: the same steps, the port on a GPU.
"""

from __future__ import annotations

import sys
from pathlib import Path

from walkthroughs import digest, evidence, runner
from walkthroughs.lab import record
from walkthroughs.step import Walkthrough, registry

SEEN = record.RECORD.relative_to(digest.ROOT).as_posix()


def reading(seen: str = SEEN) -> list[Walkthrough]:
    """The walkthroughs whose steps read that record."""
    return [walkthrough for walkthrough in registry().values() if walkthrough.seen == seen]


def write_steps(folder: Path = evidence.EVIDENCE) -> list[str]:
    """Run them and write one file a walkthrough; returns what failed, in words, and then writes no file for it."""
    failed = []
    for walkthrough in reading():
        found = list(runner.run_many(walkthrough.steps, runner.choose("sim"), jobs=1, use_cache=False))
        bad = [f"{row.step} {row.status} {row.message}".strip() for row in found if row.status != "passed"]
        failed += bad
        if not bad:
            evidence.write(folder / f"{walkthrough.id}.json", found)
    return failed


def main() -> int:
    """Write the records; exit 1 where a step did not pass."""
    failed = write_steps()
    print("\n".join(failed) or "wrote " + ", ".join(f"{one.id}.json" for one in reading()))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
