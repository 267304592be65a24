"""Asks vLLM's own classes about blocks: one process, many questions, as property tests want it."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from walkthroughs.lab.environment import Lab
from walkthroughs.lab.errors import EngineDied, EngineFailed
from walkthroughs.lab.process import Running, running

THEIRS = Path(__file__).with_name("theirs.py")


class Oracle:
    """vLLM's classes, at the other end of a pipe."""

    def __init__(self, child: Running) -> None:
        self._child = child

    def ask(self, what: str, **question: Any) -> Any:
        """One answer; `what` and its arguments are those of `theirs`. Raises EngineFailed and EngineDied."""
        streams = self._child.process
        assert streams.stdin is not None
        assert streams.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            streams.stdin.write(json.dumps({"ask": what, **question}).encode() + b"\n")
            streams.stdin.flush()
        line = streams.stdout.readline()
        if not line:
            raise EngineDied(streams.wait(), self._child.said)
        answer = json.loads(line)
        if "error" in answer:
            kind, _, message = str(answer["error"]).partition(": ")
            raise EngineFailed(kind, message)
        return answer["answer"]


@contextlib.contextmanager
def asking(lab: Lab) -> Iterator[Oracle]:
    """Start the oracle, and end it on the way out."""
    with running([str(lab.python), str(THEIRS)], lab.variables()) as child:
        yield Oracle(child)
