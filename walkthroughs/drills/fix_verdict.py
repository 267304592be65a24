"""What becomes of a check: the verdict, and the first thing that went wrong, as objects and as JSON."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

SEEDS = 3
"""Held-out cases of one check, where nothing else is asked for."""
MOST_SEED = 2**31 - 1


@dataclass(frozen=True)
class Failure:
    """The first thing that went wrong. `message` says it in one line.

    `what`: check (a value differs), report (the SIMT machine found something), blank, error (the kernel raised), or
    unreadable (it does not even load). Of a check: `name`, `observed`, `expected`, `error`, `tolerance`, `note` as they
    are recorded; `at`, `got`, `wanted`: the first value that is wrong, its index (or "") and what it is and should be.
    `where`: the step or the held-out case; `seed`: that case's, or None. `line` and `last`: lines of the reader's file,
    0 where none is known. `upstream`: what the lines stand for, each {path, first, last, link, source, concept}.
    """

    what: str
    message: str
    where: str = ""
    seed: int | None = None
    line: int = 0
    last: int = 0
    name: str = ""
    observed: str = ""
    expected: str = ""
    error: float | None = None
    tolerance: float = 0.0
    note: str = ""
    at: str = ""
    got: str = ""
    wanted: str = ""
    upstream: tuple[dict[str, Any], ...] = ()

    @staticmethod
    def from_json(data: dict[str, Any]) -> Failure:
        """The inverse of `dataclasses.asdict` over JSON."""
        return Failure(**{**data, "upstream": tuple(data["upstream"])})


@dataclass(frozen=True)
class Verdict:
    """What became of a check on one backend.

    `status`: passed; failed (a check, a report of the SIMT machine, a blank, an error of the kernel); error (the file
    does not even load, or the run was ended). `first`: what went wrong first, None where nothing did.
    """

    backend: str
    status: str
    first: Failure | None = None
    checks: int = 0
    held: int = 0
    seconds: float = 0.0

    @property
    def passed(self) -> bool:
        """Whether every check held."""
        return self.status == "passed"

    @property
    def said(self) -> str:
        """The verdict in one sentence."""
        return f"It holds on {self.backend}." if self.first is None else self.first.message

    def to_json(self) -> dict[str, Any]:
        """What the verdict event carries."""
        return {"backend": self.backend, "status": self.status, "checks": self.checks, "held": self.held,
                "seconds": self.seconds, "message": "" if self.first is None else self.first.message,
                "failure": None if self.first is None else asdict(self.first)}  # fmt: skip

    @staticmethod
    def from_json(data: dict[str, Any]) -> Verdict:
        """The inverse of `to_json`."""
        first = Failure.from_json(data["failure"]) if data["failure"] else None
        return Verdict(data["backend"], data["status"], first, data["checks"], data["held"], data["seconds"])
