"""Films: a small recorded run of every kernel, and where each step of a walkthrough stands in one.

A film is a trace of the SIMT machine: the 32 lanes of warp 0 of one thread block and the first lane of its other warps.
It is made when asked for and is the same each time; the terminal, the site and the benchmark show the same one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING

from annotate.errors import UnknownName, nearest
from walkthroughs.launchables import launchable
from walkthroughs.stepper.scenes import SCENES, Scene

if TYPE_CHECKING:
    from kernels.simt.trace import Trace
    from walkthroughs.step import Step
    from walkthroughs.stepper.join import Join

WARP = 32
LIMIT = 60_000


@dataclass(frozen=True)
class Film:
    """One kernel's small run. `block`: the linear thread block that is traced, of `num_threads` threads.

    `nth`: which launch of the case, from 1. `focus`: the thread (linear in its block) that time runs along.
    `port`: the kernel's file. `source`: the pin id of the upstream side, or "" where the kernel is our own.
    """

    id: str
    title: str
    kernel: str
    case: str
    port: str
    source: str
    block: int
    num_threads: int
    scene: Scene = field(repr=False)
    nth: int = 1
    focus: int = 0

    @property
    def threads(self) -> tuple[int, ...]:
        """The traced threads: warp 0, and lane 0 of every other warp."""
        return (*range(min(WARP, self.num_threads)), *range(WARP, self.num_threads, WARP))


@dataclass(frozen=True)
class Clip:
    """Where a step stands in a film: the concepts of the step that it visits, and the first event there.

    `start` is a number in the trace's events, of a `line` event of the focused thread.
    """

    film: Film
    concepts: tuple[str, ...]
    start: int


CLASSIC, LIVE, TINY = "vllm@0.24.0", "vllm@0.26.0", "tiny-vllm@e25bf19"
# Film: kernel, case, launch, block, threads, upstream source.
_FILMS = {
    "scatter": ("scatter", "lesson", 1, 0, 32, ""),
    "gather": ("gather", "lesson", 1, 0, 1, ""),
    "reshape-and-cache": ("reshape-and-cache", "small", 1, 1, 16, LIVE),
    "classic-v1": ("classic-v1", "grouped", 1, 2, 128, CLASSIC),
    "classic-v2": ("classic-v2", "small", 1, 1, 128, CLASSIC),
    "classic-v2-reduce": ("classic-v2", "small", 2, 0, 128, CLASSIC),
    "reshape-and-cache-fixed": ("reshape-and-cache-fixed", "wide", 1, 1, 512, LIVE),
    "reshape-and-cache-flash": ("reshape-and-cache-flash", "nhd", 1, 1, 64, LIVE),
    "slot-mapping": ("slot-mapping", "small", 1, 0, 64, LIVE),
    "gather-kv": ("gather-kv", "nhd", 1, 17, 64, LIVE),
    "paged-2d": ("paged-2d", "small", 1, 0, 128, LIVE),
    "copy-blocks": ("copy-blocks", "small", 1, 0, 16, CLASSIC),
    "tiny-vllm-attention": ("tiny-vllm-attention", "small", 1, 0, 64, TINY),
    "tiny-vllm-attention-repaired": ("tiny-vllm-attention-repaired", "small", 1, 0, 64, TINY),
    "tiny-vllm-paged": ("tiny-vllm-paged", "two", 1, 0, 64, TINY),
    "tiny-vllm-general": ("tiny-vllm-general", "odd", 1, 0, 64, TINY),
    "tiny-vllm-writes": ("tiny-vllm-writes", "small", 1, 0, 64, TINY),
}
_TITLES = {"classic-v2-reduce": "vLLM's second kernel of v2: it merges the partitions."}


@cache
def films() -> Mapping[str, Film]:
    """Every film by its id, in the order that a reader meets them."""
    found = {}
    for name, (kernel, case, nth, block, num_threads, source) in _FILMS.items():
        known = launchable(kernel)
        title = _TITLES.get(name, known.title)
        found[name] = Film(name, title, kernel, case, known.port, source, block, num_threads, SCENES[name], nth)
    return found


def film(name: str) -> Film:
    """One film; raises UnknownName with the nearest ids."""
    if name not in films():
        raise UnknownName("film", name, nearest(name, films()) or films())
    return films()[name]


@cache
def record(wanted: Film) -> Trace:
    """Run the film's case on the SIMT machine and record it: once a process, the same events each time."""
    return record_threads(wanted, wanted.threads)


def record_threads(wanted: Film, threads: Iterable[int]) -> Trace:
    """As `record`, of other threads (linear numbers) of the film's block, and anew at each call."""
    from kernels.kernel import Backend
    from kernels.simt.record import Recorder

    recorder = Recorder(threads, (wanted.block,), limit=LIMIT, nth=wanted.nth)
    launchable(wanted.kernel).case(wanted.case).run(Backend("sim", "in-order", tracer=recorder))
    return recorder.trace(wanted.case)


@cache
def join(wanted: Film) -> Join:
    """What ties the film's lines to concepts and to upstream's lines."""
    from walkthroughs.stepper.join import of

    return of(wanted.source, tuple(file.path for file in record(wanted).files))


def clip_of(step: Step) -> Clip | None:
    """The film that shows a step's lines; None where the step's port is no kernel, or no film passes there."""
    best: Clip | None = None
    for candidate in films().values():
        if candidate.port == step.port:
            found = _clip(candidate, step.reads)
            if found and (best is None or len(found.concepts) > len(best.concepts)):
                best = found
    return best


def _clip(candidate: Film, reads: tuple[str, ...]) -> Clip | None:
    first = _first_visits(candidate)
    seen = tuple(concept for concept in reads if concept in first)
    return Clip(candidate, seen, first[seen[0]]) if seen else None


@cache
def _first_visits(wanted: Film) -> Mapping[str, int]:
    """For each concept whose lines the focused thread runs, the first event there."""
    trace, joined = record(wanted), join(wanted)
    thread = next(at for at, thread in enumerate(trace.threads) if thread.number == wanted.focus)
    found: dict[str, int] = {}
    for number in trace.events_of(thread):
        event = trace.events[number]
        if event.kind == "line":
            path = trace.files[trace.functions[event.function].file].path
            for concept in joined.concepts_at(path, event.line):
                found.setdefault(concept, number)
    return found
