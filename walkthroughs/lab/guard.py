"""Stands between us and a server: runs a command, and ends it and all that it started when our end of stdin closes.

So a server goes even where this program was killed and could do nothing more. `python guard.py COMMAND...`; the
standard library only.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading


def wait_for_end() -> None:
    """Read stdin to its end, then end this process's whole group, which it leads."""
    with contextlib.suppress(ValueError, OSError):
        sys.stdin.buffer.read()
    if os.getpgid(0) == os.getpid():
        os.killpg(0, signal.SIGKILL)
    os._exit(1)


def main() -> None:
    """Run the command with its stdout on our stderr; exit as it exits."""
    threading.Thread(target=wait_for_end, daemon=True).start()
    code = subprocess.call(sys.argv[1:], stdin=subprocess.DEVNULL, stdout=2)
    if code < 0:
        with contextlib.suppress(OSError):  # end as it ended, so that the signal is seen
            os.kill(os.getpid(), -code)
    os._exit(code & 0xFF)


if __name__ == "__main__":
    main()
