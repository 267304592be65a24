"""Which kernels have a machine-code record: every launchable one in its first case, and two bare loads."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from annotate.errors import UnknownName, nearest
from walkthroughs import launchables

if TYPE_CHECKING:
    from kernels.kernel import Backend

LOADS = {
    "k-load": "The key load of the classic kernel alone, written as one vector load.",
    "v-load": "The value load of the classic kernel alone, written as one vector load.",
}


@dataclass(frozen=True)
class Subject:
    """A kernel's name, its file, and the case that it is compiled for."""

    name: str
    title: str
    port: str
    case: str
    case_title: str
    run: Callable[[Backend], Any] = field(repr=False)


def names() -> tuple[str, ...]:
    """Every subject, in the order that a reader meets them."""
    return (*launchables.names(), *LOADS)


def subject(name: str) -> Subject:
    """The subject of that name; raises UnknownName with the nearest names."""
    if name in LOADS:
        return _load(name)
    if name not in launchables.names():
        raise UnknownName("kernel", name, nearest(name, names()) or names())
    found = launchables.launchable(name)
    case = found.case()
    return Subject(name, found.title, found.port, case.name, case.title, case.run)


def _load(name: str) -> Subject:
    from kernels import loads

    def run(backend: Backend) -> Any:
        return loads.run_k_load(16, True, backend) if name == "k-load" else loads.run_v_load(16, backend)

    title = f"blocks of 16, {loads.HEADS} KV heads of {loads.HEAD}, {loads.DTYPE}"
    return Subject(name, LOADS[name], "kernels/loads.py", "blocks-of-16", title, run)
