"""`make live-lab`: makes the lab's environment, with the lock file's exact versions, and tries it.

It says beforehand what it costs. A second run does nothing while the lock file is the same; one that was cut off
begins anew. The packages come by pip, from wherever pip is set up to find them.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
import time
import venv
from collections.abc import Callable, Sequence
from pathlib import Path

from annotate.files import write_text
from walkthroughs.lab import environment, model
from walkthroughs.lab.errors import LabError, LabMissing

SIZE = 2.5e9
"""Bytes that the environment takes on the disk, with some room."""
MINUTES = 3
UNWANTED = ("torchvision", "torchaudio", "torchcodec")
"""vLLM imports these where it finds them, and fails with releases that do not fit its torch."""
TRIAL = "import torch, vllm; from vllm import LLM; print(vllm.__version__, torch.__version__)"
BEGUN = "pagewalk-lab.begun"
"""Written into the folder first of all: what has it, or `environment.DONE`, is ours to remove."""
RUN_LEAVES = frozenset({"cache", "model"})
"""What a run with a reader's own Python leaves in the folder, before any environment is there."""
CPU_TORCH = (
    "torch may be a build for GPUs, which lacks its libraries here: point pip to PyTorch's CPU builds "
    "(PIP_EXTRA_INDEX_URL or PIP_FIND_LINKS), and make it again"
)
Run = Callable[[Sequence[str]], int]


class LabNotMade(LabError):
    """The environment could not be made; the message says at which part, and what to do."""


def make(home: Path, say: Callable[[str], None], run: Run | None = None) -> bool:
    """Make the environment in `home`; False where it is whole already. Raises LabNotMade."""
    run = run or _run
    try:
        environment.find(home)
        say(f"The live lab is here: {home}")
        return False
    except LabMissing:
        pass
    _need_room(home)
    count = len(environment.locked())
    cost = f"{count} packages, about {SIZE / 1e9:.1f} GB on the disk and {MINUTES} minutes"
    say(f"The live lab: vLLM's CPU build and what it needs, {cost}, into {home}. Nothing else on this machine changes.")
    started = time.monotonic()
    _part(say, 1, "a virtual environment")
    _clear(home)
    try:
        write_text(home / BEGUN, "`make live-lab` made this folder, and may remove it.\n")
        venv.create(home, with_pip=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise LabNotMade(f"no virtual environment could be made in {home}: {error}") from error
    python = home / "bin" / "python"
    _part(say, 2, f"{count} packages, which pip tells of one by one")
    pip = [str(python), "-m", "pip", "--disable-pip-version-check", "install"]
    # Without dependencies: the lock file is the whole list, and vLLM names packages that must not be here.
    if run([*pip, "--no-deps", "-r", str(environment.LOCK)]):
        raise LabNotMade(f"pip could not install {environment.LOCK.name}, as it says above: is the index reachable?")
    present = [name for name in UNWANTED if any(home.glob(f"lib/python*/site-packages/{name}"))]
    if present:
        raise LabNotMade(f"{', '.join(present)} must not be in {home}: vLLM would fail on it")
    _part(say, 3, "a tiny model, written here")
    model.write(home / "model")
    _part(say, 4, "vLLM is imported once, half a minute")
    if run([str(python), "-c", TRIAL]):
        raise LabNotMade(f"vLLM was installed and cannot be imported, as it says above; {CPU_TORCH}")
    write_text(home / environment.DONE, json.dumps({"lock": environment.lock_digest()}) + "\n")
    say(f"Done in {time.monotonic() - started:.0f} seconds: `pagewalk lab run`")
    return True


def _part(say: Callable[[str], None], number: int, what: str) -> None:
    say(f"[{number}/4] {what}")


def _run(command: Sequence[str]) -> int:
    """Run a part with our terminal as its own, so that pip shows its progress bars."""
    home = environment.folder()
    lab = environment.Lab(home / "bin" / "python", home / "model", home / "cache")
    return subprocess.run(command, env=lab.variables(), check=False).returncode


def _need_room(home: Path) -> None:
    above = next(parent for parent in (home, *home.parents) if parent.exists())
    free = shutil.disk_usage(above).free
    if free < SIZE:
        raise LabNotMade(f"{free / 1e9:.1f} GB are free at {above}, and the lab takes {SIZE / 1e9:.1f} GB")


def _clear(home: Path) -> None:
    """Remove an environment of an earlier try; refuse what is something else, also somebody's own environment."""
    if not home.exists():
        return
    if not home.is_dir():
        raise LabNotMade(f"{home} is no folder: name another in PAGEWALK_LAB")
    here = {path.name for path in home.iterdir()}
    if here <= RUN_LEAVES:
        return
    if not here & {BEGUN, environment.DONE}:
        raise LabNotMade(
            f"{home} holds something else than an environment that this makes, and was left alone: name another folder "
            "in PAGEWALK_LAB"
        )
    shutil.rmtree(home)


def main(arguments: Sequence[str] | None = None) -> int:
    """Make the environment where it is missing; exit 1 where that fails."""
    parser = argparse.ArgumentParser(prog="python -m walkthroughs.lab.make", description=__doc__)
    parser.add_argument("--digest", action="store_true", help="print what the environment is cached by, and end")
    if parser.parse_args(arguments).digest:
        version = re.sub(r"\D+", "", ".".join(map(str, sys.version_info[:2])))
        print(f"{environment.lock_digest()}-py{version}")
        return 0
    try:
        make(environment.folder(), lambda line: print(line, flush=True))
    except LabError as error:
        print(f"live-lab: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("live-lab: stopped; `make live-lab` begins anew", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
