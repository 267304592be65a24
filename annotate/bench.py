"""`python -m annotate.bench`: how long drift takes over 4, 8 and 14 releases that are here. Measures, asserts nothing.

Each count starts from nothing: the releases that anchors were written for are read again too. Then once more from the
cache.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from annotate.drift import Reading, lanes_of, survey, with_deltas
from annotate.errors import SourceUnavailable
from annotate.releases import releases
from annotate.sources import cache_dir
from annotate.sourcetree import Pin, SourceTree, opened

COUNTS = (4, 8, 14)


def report(
    pins: Sequence[Pin], open_pin: Callable[[Pin], SourceTree], folder: Path, counts: Sequence[int] = COUNTS
) -> None:
    """Print a line a count: seconds by the clock and of the processor, from nothing and from the cache in `folder`."""
    print(f"{'releases':>8} {'read, s':>8} {'CPU, s':>8} {'CPU, s a release':>17} {'cached, s':>10}")
    for count in counts:
        chosen = _spread(pins, count)
        cache = folder / str(count)
        wall, busy = _timed(chosen, open_pin, cache)
        again, _ = _timed(chosen, open_pin, cache)
        print(f"{len(chosen):8} {wall:8.2f} {busy:8.2f} {busy / len(chosen):17.2f} {again:10.2f}")


def _spread(pins: Sequence[Pin], count: int) -> list[Pin]:
    """Take so many releases evenly over all of them: old ones are smaller than new ones."""
    count = min(count, len(pins))
    return [pins[index * len(pins) // count] for index in range(count)]


def _timed(pins: Sequence[Pin], open_pin: Callable[[Pin], SourceTree], cache: Path) -> tuple[float, float]:
    clock, processor = time.perf_counter(), time.process_time()
    found = survey(pins, open_pin, cache=cache)
    lanes_of(with_deltas(entry for entry in found.values() if isinstance(entry, Reading)))
    return time.perf_counter() - clock, time.process_time() - processor


def main() -> int:
    """Print the measurements of this machine; releases that are not here are left out."""
    here = []
    for pin in releases():
        try:
            opened(pin, cache_dir())
            here.append(pin)
        except SourceUnavailable:
            print(f"{pin.id} is not here and is left out: pagewalk fetch --drift", file=sys.stderr)
    with tempfile.TemporaryDirectory() as folder:
        report(here, lambda pin: opened(pin, cache_dir()), Path(folder))
    return 0


if __name__ == "__main__":
    sys.exit(main())
