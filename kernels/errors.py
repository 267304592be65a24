"""The errors that the ports, the launch checks and the probes raise.

Each one names the argument and the value it had, and says what would be right,
so that a reader can repair the call without opening our source.
"""

from __future__ import annotations


class KernelError(Exception):
    """Base of every error that `kernels` raises on purpose."""


class ArgumentError(KernelError, ValueError):
    """An argument that no launch could use: names it, shows its value, says what it must be."""

    def __init__(self, argument: str, value: object, must: str) -> None:
        self.argument = argument
        self.value = value
        self.must = must
        super().__init__(f"{argument} = {value}: {must}")


class LaunchError(KernelError, ValueError):
    """A grid, block or shared size that the hardware would refuse, or would read as nonsense."""


class BackendUnavailable(KernelError, RuntimeError):
    """The asked-for backend cannot run here; the message carries the reason."""


class ProbeError(KernelError, ValueError):
    """A watch that matches no line, or a probe that recorded more than its buffer holds."""
