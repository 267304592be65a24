"""The inner end of a check: a process that reads one request on stdin, judges the text in it, and tells of it, a JSON a
line.

What a reader wrote is executed here and nowhere else. The request: `{"drill", "text", "backend", "seeds", "memory",
"seconds"}`; the events are those of a live run, and the verdict is the last. `fix_judge` is the outer end.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from walkthroughs.drills.fix import task
from walkthroughs.drills.fix_check import check
from walkthroughs.drills.fix_judge import COMMAND as COMMAND
from walkthroughs.drills.fix_verdict import Failure
from walkthroughs.server.child import exit_with, limit


def main() -> None:
    """Serve one request, and end."""
    request = json.loads(sys.stdin.readline())
    limit(request["memory"], request["seconds"])
    exit_with(sys.stdin)
    # Whatever the file prints must not stand among the events.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)

    def tell(event: dict[str, Any]) -> None:
        answers.write(json.dumps(event, ensure_ascii=False, allow_nan=False) + "\n")
        answers.flush()

    wanted = task(request["drill"])
    try:
        check(wanted, request["text"], request["backend"], request["seeds"], tell)
    except BaseException as error:
        # A kernel may leave as a program does, and memory may end anywhere.
        said = _said(error)
        first = Failure("unreadable", said)
        tell({"event": "verdict", "backend": request["backend"], "status": "error", "checks": 0, "held": 0,
              "seconds": 0.0, "message": said, "failure": vars(first), "seed": None})  # fmt: skip
    answers.close()
    # A thread that the file started, or a GPU library, may have more to do; nobody waits for it.
    os._exit(0)


def _said(error: BaseException) -> str:
    if isinstance(error, SystemExit):
        return "the kernel ends the program (SystemExit)"
    if isinstance(error, MemoryError):
        return "the check ran out of memory"
    return f"{type(error).__name__}: {error}"[:400]


if __name__ == "__main__":
    main()
