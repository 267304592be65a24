"""Where the lab's environment is, whether it is whole, and how its processes are set up.

`.lab` in the checkout, or the folder that PAGEWALK_LAB names. It is a virtual environment with vLLM's CPU build, from
`lab.lock`, and beside it the tiny model. On a GPU machine any Python that has vLLM will do instead.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from walkthroughs.digest import ROOT
from walkthroughs.lab import model as tiny
from walkthroughs.lab.errors import LabMissing, NotAsNamed, TooLittleMemory

LOCK = Path(__file__).with_name("lab.lock")
ENGINE = Path(__file__).with_name("engine.py")
DONE = "pagewalk-lab.json"
"""Written into the environment when it is whole, and naming the lock file that it was made from."""
CONFIGS = ("config.json", "params.json")
"""Either of them tells vLLM what a folder's model is."""
NEEDED = 3 * 2**29
"""Bytes of memory that must be free before an engine starts: it holds about 0.6 GiB, its loading more."""
MEMINFO = Path("/proc/meminfo")


@dataclass(frozen=True)
class Lab:
    """A Python that has vLLM, the model it is to run, and a folder for vLLM's own files."""

    python: Path
    model: Path
    cache: Path
    own: bool = True
    """True for the lab's tiny model, which has no weights; False for a reader's."""
    made: bool = True
    """True for the environment that `make live-lab` makes, with a CPU build; False for a reader's own Python."""

    def variables(self) -> dict[str, str]:
        """The environment of the lab's processes: this one's, offline, and with vLLM's files in one place."""
        kept = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}
        # Without the host name vLLM asks the network which address this machine has.
        quiet = {"VLLM_NO_USAGE_STATS": "1", "HF_HUB_OFFLINE": "1", "VLLM_HOST_IP": "127.0.0.1",
                 "VLLM_LOGGING_LEVEL": "WARNING", "VLLM_CACHE_ROOT": str(self.cache),
                 "VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_CPU_KVCACHE_SPACE": "1",
                 "PYTHONHASHSEED": "0", "TOKENIZERS_PARALLELISM": "false"}  # fmt: skip
        return {**kept, **quiet}


def folder() -> Path:
    """Where the lab's environment is, or will be: PAGEWALK_LAB, or `.lab` in the checkout."""
    return Path(os.environ.get("PAGEWALK_LAB") or ROOT / ".lab").absolute()


def lock_digest(lock: Path = LOCK) -> str:
    """A digest of the lock file: what an environment is cached by."""
    return hashlib.sha256(lock.read_bytes()).hexdigest()[:16]


def locked(lock: Path = LOCK) -> Mapping[str, str]:
    """Every distribution of the lab's environment with its version, by its normal name."""
    pairs = (line.split("==") for line in lock.read_text("utf-8").splitlines())
    return {re.sub(r"[-_.]+", "-", name).lower(): version for name, version in pairs}


def find(where: Path | None = None, *, python: Path | None = None, model: Path | None = None) -> Lab:
    """The lab's environment, or a reader's own Python and model; for a Python without one, the tiny model is written.

    Raises LabMissing, which says how to make it, and NotAsNamed.
    """
    home = where or folder()
    if model is not None:
        _need_model(model)
    if python is not None:
        _need_python(python)
        # Not resolved: the link itself is what tells a virtual environment from the Python that it was made with.
        chosen = model or tiny.write(home / "model")
        return Lab(python.absolute(), chosen, home / "cache", own=model is None, made=False)
    made = home / DONE
    if not (home / "bin" / "python").exists():
        raise LabMissing(str(home), "is not there")
    try:
        digest = json.loads(made.read_text("utf-8"))["lock"]
    except (OSError, ValueError, KeyError, TypeError):
        raise LabMissing(str(home), "was not made to its end") from None
    if digest != lock_digest():
        raise LabMissing(str(home), "was made from another lock file")
    return Lab(home / "bin" / "python", model or home / "model", home / "cache", own=model is None)


def _need_python(python: Path) -> None:
    if not python.exists():
        raise NotAsNamed("--python", str(python), "is not there")
    if not (python.is_file() and os.access(python, os.X_OK)):
        raise NotAsNamed("--python", str(python), "is no program that can be run")


def _need_model(model: Path) -> None:
    if not model.is_dir():
        raise NotAsNamed("--model", str(model), "is no folder on this machine")
    if not any((model / name).exists() for name in CONFIGS):
        raise NotAsNamed("--model", str(model), f"holds no model, as there is no {CONFIGS[0]}")


def free_memory(meminfo: Path = MEMINFO) -> int | None:
    """Bytes of memory that a new process could have, or None where the system does not say."""
    try:
        found = re.search(r"^MemAvailable:\s+(\d+) kB", meminfo.read_text("ascii"), re.MULTILINE)
    except OSError:
        return None
    return int(found[1]) * 1024 if found else None


def need_memory(needed: int = NEEDED, meminfo: Path = MEMINFO) -> None:
    """Raise TooLittleMemory unless that many bytes are free, as far as the system says."""
    free = free_memory(meminfo)
    if free is not None and free < needed:
        raise TooLittleMemory(needed, free)
