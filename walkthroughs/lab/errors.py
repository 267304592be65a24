"""What can go wrong in the live lab, one class for each thing that a reader can do something about."""

from __future__ import annotations

import signal

MAKE = "`make live-lab` makes it"


class LabError(RuntimeError):
    """Base of the lab's errors. The message says what happened and what to do."""


class LabMissing(LabError):
    """The lab's environment is not here, or it is not whole."""

    def __init__(self, where: str, why: str) -> None:
        super().__init__(f"the lab's environment {where} {why}: {MAKE} (about 2.5 GB, 3 minutes)")


class NotAsNamed(LabError):
    """What a reader named is not what it must be: `option` names a Python that runs, or the folder of a model."""

    def __init__(self, option: str, path: str, why: str) -> None:
        super().__init__(f"{option} {path} {why}; nothing was started")


class TooLittleMemory(LabError):
    """The machine has less free memory than an engine needs. `needed` and `free` in bytes."""

    def __init__(self, needed: int, free: int) -> None:
        super().__init__(
            f"{free / 2**30:.1f} GiB of memory are free, and the engine needs about {needed / 2**30:.1f} GiB: "
            "close something, or use a larger machine; nothing was started"
        )


class TookTooMuch(LabError):
    """The engine held more memory than it may, and was ended. `held` and `limit` in bytes."""

    def __init__(self, held: int, limit: float) -> None:
        super().__init__(
            f"the engine held {held / 2**30:.1f} GiB, more than the {limit / 2**30:.1f} GiB that it may, and was "
            "ended: take a smaller model"
        )


class TookTooLong(LabError):
    """The engine did not get done in time, and was ended. `seconds`: what it had."""

    def __init__(self, seconds: float, doing: str) -> None:
        super().__init__(
            f"the engine was ended after {seconds:g} seconds, while {doing}: the machine may be busy; "
            "run it again with a larger --seconds"
        )


class EngineDied(LabError):
    """The engine's process ended before it was done. `code`: its exit code, negative for a signal."""

    def __init__(self, code: int, said: str) -> None:
        self.code = code
        how = f"ended with exit code {code}"
        if code < 0:
            try:
                how = f"was ended by {signal.Signals(-code).name}"
            except ValueError:
                how = f"was ended by signal {-code}"
        hint = "; a machine that runs out of memory does that" if code == -signal.SIGKILL else ""
        super().__init__(f"the engine's process {how} before it was done{hint}. {_last(said)}")


class EngineFailed(LabError):
    """The engine itself raised an error, or could not be loaded; `kind` names its class."""

    def __init__(self, kind: str, message: str) -> None:
        self.kind = kind
        super().__init__(f"the engine raised {kind}: {message}")


class PortInUse(LabError):
    """Somebody listens on the port already; who it is stays untouched."""

    def __init__(self, port: int) -> None:
        self.port = port
        super().__init__(
            f"port {port} of 127.0.0.1 is in use by another program, which was left alone: name another with --port, "
            "or let the lab choose with --port 0"
        )


def _last(said: str) -> str:
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    return f"It last said: {lines[-1][:300]}" if lines else "It said nothing."
