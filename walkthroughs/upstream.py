"""From a line of a port to the upstream lines that it stands for, by way of the region and its concept."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path

from annotate.errors import UnknownName
from annotate.regions import Region, regions
from annotate.sources import pins
from annotate.spans import spans

ROOT = Path(__file__).resolve().parent.parent
SOURCES = {"kernels/vllm/": "vllm@0.24.0", "kernels/tiny_vllm/": "tiny-vllm@e25bf19"}
# tiny-vllm comes from a git server and may not be here, so its spans are not recorded: these lines, read by hand.
TINY = "src/kernels.cu"
BY_HAND = {
    "signature": (461, 462),
    "tiny-active-slot": (464, 465),
    "gqa-mapping": (468, 468),
    "q-load": (469, 469),
    "block-ranges": (470, 471),
    "block-table-walk": (478, 480),
    "block-table-lookup": (480, 480),
    "tail-guard": (481, 481),
    "k-address": (484, 484),
    "v-address": (485, 485),
    "qk-dot": (486, 486),
    "warp-reduce": (489, 493),
    "cross-warp-reduce": (494, 508),
    "online-softmax": (510, 519),
    "running-max": (510, 516),
    "running-sum": (515, 518),
    "running-rescale": (515, 519),
    "accumulate": (519, 519),
    "final-divide": (522, 522),
    "output-write": (522, 522),
}


@dataclass(frozen=True)
class Upstream:
    """Lines of a source that a concept has there."""

    source: str
    concept: str
    path: str
    first: int
    last: int
    permalink: str

    def __str__(self) -> str:
        lines = str(self.first) if self.first == self.last else f"{self.first}-{self.last}"
        return f"{self.source} {self.path}:{lines} ({self.concept})"


def upstream_of(file: str, line: int) -> Upstream | None:
    """What a line of a file of ours stands for: the innermost region there that has lines in the port's source.

    `file` may be absolute, or a changed copy of a port (`FILE#what`). None for a line outside every region, and for
    files that are no port.
    """
    path = Path(file.split("#")[0])
    name = path.relative_to(ROOT).as_posix() if path.is_relative_to(ROOT) else path.as_posix()
    source = next((source for folder, source in SOURCES.items() if name.startswith(folder)), None)
    if source is None or not (ROOT / name).is_file():
        return None
    around = [region for region in _regions(name) if region.first <= line <= region.last]
    for region in sorted(around, key=lambda region: region.last - region.first):
        found = _lines(source, region.id)
        if found is not None:
            return Upstream(source, region.id, *found, pins()[source].link(*found))
    return None


@cache
def _regions(name: str) -> tuple[Region, ...]:
    return tuple(region for found in regions(ROOT / name).values() for region in found)


def _lines(source: str, concept: str) -> tuple[str, int, int] | None:
    try:
        found = spans(source).get(concept, [])
    except UnknownName:
        return (TINY, *BY_HAND[concept]) if concept in BY_HAND else None
    return (found[0].path, found[0].first, found[0].last) if found else None
