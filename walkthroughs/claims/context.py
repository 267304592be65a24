"""What checks look at: the sources, each file parsed once; the committed spans; the records of runs.

Everything is handed in or opened on first use, so that a test can put a doctored source or record in its place.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from functools import cache, cached_property
from typing import Any

from annotate.anchors import Anchor, Files, Library, anchors_of, resolve
from annotate.concepts import concepts
from annotate.errors import AnnotateError, SourceUnavailable
from annotate.grammar import Tree
from annotate.history import Facts, committed
from annotate.sources import every_pin, open_tree
from annotate.spans import Span, spans
from walkthroughs import evidence, runner
from walkthroughs.claims.model import CheckError, NotHere, Place, RunRef
from walkthroughs.evidence import Evidence
from walkthroughs.step import UnknownStep, get

HARDWARE = evidence.EVIDENCE / "hardware.json"


class Context:
    """One look at everything. `open_source` answers the files of a source id or raises an AnnotateError.

    `releases` are drift's facts by release number.
    """

    def __init__(
        self,
        open_source: Callable[[str], Files] = open_tree,
        *,
        records: Mapping[str, Evidence] | None = None,
        hardware: Mapping[str, Any] | None = None,
        releases: Mapping[str, Facts] | None = None,
        run: bool = True,
    ) -> None:
        self._open = open_source
        self._given_records = records
        self._given_hardware = hardware
        self._given_releases = releases
        self._run = run
        self._libraries: dict[str, Library] = {}
        self._files: dict[str, Files] = {}
        self._found: dict[tuple[str, str, str], list[Span]] = {}
        self._steps: dict[str, Evidence] = {}

    def files(self, source: str) -> Files:
        """The files of a source. Raises NotHere with the way to get it, UnknownName for one that is not pinned."""
        if source not in self._files:
            try:
                self._files[source] = self._open(source)
            except SourceUnavailable as error:
                every = ". Every release of drift's: pagewalk fetch --drift" if _is_drifts(source) else ""
                raise NotHere(f"{error}{every}") from error
        return self._files[source]

    def library(self, source: str) -> Library:
        """The parsed files of a source. Raises NotHere."""
        if source not in self._libraries:
            self._libraries[source] = Library(self.files(source))
        return self._libraries[source]

    def find(self, source: str, at: str, file: str = "*") -> list[Span]:
        """Where something is: `at` is a concept id, or `symbol`, or `symbol @ landmark`.

        Raises NotHere, AnchorNotFound, AnchorAmbiguous, UnreliableSpan or LandmarkSyntax.
        """
        key = source, at, file
        if key not in self._found:
            library = self.library(source)
            self._found[key] = [resolve(anchor, library) for anchor in places_meant(source, at, file)]
        return self._found[key]

    def tree(self, source: str, path: str) -> Tree:
        """The parsed file at a path. Raises NotHere, or CheckError for a file that has no language."""
        for tree in self.library(source).trees("", path):
            if tree.path == path:
                return tree
        raise CheckError(f"{source} {path} cannot be parsed")

    def trees(self, source: str, pattern: str, word: str = "") -> Iterable[Tree]:
        """The parsed files that fit a pattern and hold a word."""
        return self.library(source).trees(word, pattern)

    def place(self, span: Span) -> Place:
        """A span as lines with their link."""
        return place_at(span.source, span.path, span.first, span.last)

    def record(self, step_id: str) -> tuple[Evidence, RunRef]:
        """The record of a step that still describes the code: the committed one, else one made on this machine.

        Raises NotHere where there is none and the context does not run steps, CheckError for an unknown step.
        """
        try:
            step = get(step_id)
        except UnknownStep as error:
            raise CheckError(str(error)) from error
        if self._given_records is not None and step_id in self._given_records:
            found = self._given_records[step_id]
            return found, RunRef(step_id, found.device, found.date)
        if step_id not in self._steps:
            record = _committed().get(step_id)
            if record is None or not evidence.fresh(record, step):
                record = runner.cached(step, "cuda") or runner.cached(step, "sim")
            if record is None and self._run:
                record = runner.run(step, runner.choose("sim"))
            if record is None:
                raise NotHere(f"{step_id} has no record that fits the code. Run it: pagewalk run {step_id}")
            self._steps[step_id] = record
        found = self._steps[step_id]
        return found, RunRef(step_id, found.device, found.date)

    @cached_property
    def hardware(self) -> Mapping[str, Any]:
        """The hardware record. Raises NotHere if there is none, or if it is older than the kernels it is about."""
        if self._given_hardware is not None:
            return self._given_hardware
        from walkthroughs.hardware import hardware_digest

        if not HARDWARE.exists():
            raise NotHere("there is no hardware record. Make it on a GPU machine: make hardware-record")
        data: dict[str, Any] = json.loads(HARDWARE.read_text(encoding="utf-8"))
        if data["digest"] != hardware_digest():
            raise NotHere("the hardware record is older than the kernels. Make it again: make hardware-record")
        return data

    @cached_property
    def releases(self) -> Mapping[str, Facts]:
        """What drift committed of vLLM's releases, by their number."""
        if self._given_releases is not None:
            return self._given_releases
        return {facts.revision: facts for facts in committed()}


def places_meant(source: str, at: str, file: str = "*") -> list[Anchor]:
    """The anchors that `at` stands for: a concept's in that source, or one made of a symbol and a landmark."""
    table = concepts()
    if at in table:
        found = anchors_of(table[at], source)
        if not found:
            raise CheckError(f"concept {at} has no anchor in {source}")
        return found
    symbol, _, landmark = at.partition(" @ ")
    return [Anchor(source, symbol, landmark or None, file=file)]


def recorded_places(source: str, at: str) -> tuple[Place, ...]:
    """The committed lines of a concept: these can be linked to without the source."""
    try:
        found = spans(source).get(at, [])
    except AnnotateError:
        return ()
    return tuple(place_at(source, span.path, span.first, span.last) for span in found)


def place_at(source: str, path: str, first: int, last: int) -> Place:
    """Lines of a source with their permanent link; a source that is not pinned has none."""
    url = every_pin()[source].link(path, first, last) if source in every_pin() else ""
    return Place(source, path, first, last, url)


@cache
def _committed() -> Mapping[str, Evidence]:
    return evidence.load_committed()


def _is_drifts(source: str) -> bool:
    return source in every_pin() and every_pin()[source].drift
