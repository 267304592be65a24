"""`--watch`: looks at the files that pages are made of, and has the site built again when one has changed."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from pathlib import Path

KINDS = frozenset({".md", ".py", ".toml", ".json", ".css", ".js", ".svg", ".yml"})
PAUSE = 0.7

Snapshot = dict[Path, tuple[int, int]]


def snapshot(places: Iterable[Path]) -> Snapshot:
    """When each file under the places was changed, and its size."""
    found: Snapshot = {}
    for place in places:
        for path in [place] if place.is_file() else place.rglob("*"):
            if path.suffix in KINDS:
                try:
                    state = path.stat()
                except OSError:  # gone meanwhile
                    continue
                found[path] = (state.st_mtime_ns, state.st_size)
    return found


def watch(
    places: Iterable[Path],
    known: Snapshot,
    rebuild: Callable[[], None],
    stop: threading.Event,
    *,
    pause: float = PAUSE,
) -> None:
    """Call `rebuild` after each change since `known` was taken, until `stop` is set.

    A change during a build is built after it.
    """
    places = tuple(places)
    while not stop.wait(pause):
        seen = snapshot(places)
        if seen == known:
            continue
        # An editor writes in several goes: wait until two looks agree.
        while not stop.wait(pause) and (later := snapshot(places)) != seen:
            seen = later
        if stop.is_set():
            return
        known = seen
        rebuild()
