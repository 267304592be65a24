"""Says which extra of numba-cuda matches this machine's NVIDIA driver, for the set-up command.

Standard library only, and run as a file: it is asked before anything else is known to work.
Prints one requirement, or nothing where there is no driver that could be used.
"""

from __future__ import annotations

import re
import subprocess
import sys

NUMBA_CUDA = "0.30.4"
QUERY = ("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader")
# The oldest driver branch that runs each CUDA major version, newest first.
BRANCHES = ((580, "cu13"), (525, "cu12"))


def driver_version(query: tuple[str, ...] = QUERY) -> str | None:
    """Return the driver version that ``nvidia-smi`` reports, such as ``580.65.06``, or None."""
    try:
        answer = subprocess.run(query, capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    if answer.returncode != 0:
        return None
    # One line a GPU, all of one driver. A broken driver writes its complaint to stdout, so look for a number.
    found = re.search(r"^\s*(\d+(?:\.\d+)+)\s*$", answer.stdout, re.MULTILINE)
    return found.group(1) if found else None


def extra_for(version: str | None) -> str | None:
    """Return the extra for a driver version: ``cu13``, ``cu12``, or None for no driver or one too old."""
    if version is None:
        return None
    branch = int(version.split(".")[0])
    return next((extra for oldest, extra in BRANCHES if branch >= oldest), None)


def requirement(extra: str | None) -> str:
    """Return the requirement to install for an extra; the empty string for None."""
    return f"numba-cuda[{extra}]=={NUMBA_CUDA}" if extra else ""


def main() -> int:
    """Print the requirement; say on stderr when there is a driver but it is too old. Always exits 0."""
    version = driver_version()
    extra = extra_for(version)
    if version is not None and extra is None:
        complaint = f"NVIDIA driver {version} is older than {BRANCHES[-1][0]}: the ports will run without the GPU."
        print(complaint, file=sys.stderr)
    if extra is not None:
        print(requirement(extra))
    return 0


if __name__ == "__main__":
    sys.exit(main())
