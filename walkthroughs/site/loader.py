"""The project's own content for the pages: the catalog, the concept table, the panes and the evidence, put together.

Everything is read at the first use and kept for the rest of the build.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache, cached_property

from annotate import concepts, sources, spans
from annotate.ideas import idea_of
from walkthroughs import digest, evidence, ideas, naming, runner
from walkthroughs import step as catalog
from walkthroughs.claims.compute import computed
from walkthroughs.stepper import films

from . import claim_views, code, compare_data, drill_data, history, player, proof
from .drill_view import DrillKind
from .errors import UnknownPageItem
from .model import (
    ClaimView,
    CompareView,
    ConceptView,
    FilmView,
    HistoryView,
    KernelRef,
    Link,
    Panes,
    SameIdea,
    StepRef,
    StepView,
    Summary,
    WalkthroughView,
)


class ProjectData:
    """`model.SiteData` over the real catalog, anchors and records."""

    @cached_property
    def _registry(self) -> Mapping[str, catalog.Walkthrough]:
        return catalog.registry()

    @cached_property
    def _committed(self) -> Mapping[str, evidence.Evidence]:
        return evidence.load_committed()

    @cached_property
    def _pending(self) -> Mapping[str, Mapping[str, str]]:
        return evidence.pending()

    @cached_property
    def _readers(self) -> Mapping[str, list[StepRef]]:
        readers: dict[str, list[StepRef]] = {}
        for walk in self._registry.values():
            for step in walk.steps:
                for name in step.reads:
                    readers.setdefault(name, []).append(StepRef(walk.id, step.slug, step.title))
        return readers

    def walkthroughs(self) -> dict[str, Summary]:
        """Every walkthrough by id, with the first paragraph of its introduction."""
        return {
            walk.id: Summary(walk.id, walk.title, naming.without(walk.intro.strip().split("\n\n")[0]), len(walk.steps))
            for walk in self._registry.values()
        }

    def walkthrough(self, name: str) -> WalkthroughView:
        """One walkthrough, every step with its evidence; raises `StepNotProven` or `UnknownPageItem`."""
        if name not in self._registry:
            raise UnknownPageItem("walkthrough", name, self._registry)
        walk = self._registry[name]
        notes = claim_views.notes_of(walk, computed().values())
        steps = tuple(
            self._step(step, tuple(claim_views.view(result) for result in notes.get(step.id, ())))
            for step in walk.steps
        )
        return WalkthroughView(walk.id, walk.title, walk.intro, steps)

    def _step(self, step: catalog.Step, claims: tuple[ClaimView, ...]) -> StepView:
        record = self._committed.get(step.id)
        shown = proof.prove(
            step.id,
            record,
            record is not None and evidence.fresh(record, step),
            runner.cached(step, "cuda") or runner.cached(step, "sim"),
            self._pending.get(step.id),
        )
        if "@" in step.source:
            left = code.source_figures(step.source, step.reads, step.slug)
        else:
            left = code.own_figures([step.source], step.reads, step.slug, side="upstream")
        return StepView(
            id=step.id,
            slug=step.slug,
            title=step.title,
            prose=step.prose,
            reads=step.reads,
            panes=code.panes([left], code.own_figures(digest.port_files(step.port), step.reads, step.slug)),
            badges=(*proof.seen_badge(step.seen), *shown.badges),
            rows=shown.rows,
            rows_from=shown.rows_from,
            record=shown.record,
            drift=history.note(step),
            claims=claims,
            player=player.step_view(clip, step.slug) if (clip := films.clip_of(step)) else None,
            drills=drill_data.of_step(step.id),
        )

    def films(self) -> dict[str, Summary]:
        """Every film by id."""
        return player.film_summaries()

    def film(self, name: str) -> FilmView:
        """One film with its code and the steps that show it; raises `UnknownPageItem`."""
        if name not in films.films():
            raise UnknownPageItem("film", name, films.films())
        return player.film_view(name, self._film_steps.get(name, ()))

    @cached_property
    def _film_steps(self) -> Mapping[str, list[StepRef]]:
        steps = [step for walk in self._registry.values() for step in walk.steps]
        refs = {step.id: StepRef(step.walkthrough, step.slug, step.title) for step in steps}
        return player.films_of_steps({step.id: films.clip_of(step) for step in steps}, refs)

    def concepts(self) -> dict[str, Summary]:
        """Every concept by id, grouped by the file in which its first source has it."""
        groups: dict[str, list[Summary]] = {}
        for c in concepts.concepts().values():
            group = _home(c.id)
            groups.setdefault(group, []).append(Summary(c.id, c.title, c.summary, group=group))
        return {entry.id: entry for group in groups.values() for entry in group}

    def concept(self, name: str) -> ConceptView:
        """One concept with its lines in every source and every port; raises `UnknownPageItem`."""
        table = concepts.concepts()
        if name not in table:
            raise UnknownPageItem("concept", name, table)
        this = table[name]
        left: list[code.Figures] = []
        for source in _recorded():
            if name in spans.spans(source):
                # A number keeps line ids apart where two releases have the same lines.
                left.append(code.source_figures(source, [name], f"{name}-{len(left)}" if left else name))
        known = self.concepts()
        return ConceptView(
            id=name,
            title=this.title,
            summary=this.summary,
            panes=code.panes(left, code.own_figures(code.ports(), [name], name)),
            steps=tuple(self._readers.get(name, ())),
            see_also=tuple(known[other] for other in this.see_also),
            same_idea=_same_idea(name),
            claims=tuple(claim for claim in self.claims().values() if name in claim.concepts),
            lane=history.lane_note(name),
            drills=drill_data.of_concept(name),
        )

    def compares(self) -> dict[str, Summary]:
        """Every idea that has a compare page, by id."""
        return compare_data.summaries()

    def compare(self, name: str) -> CompareView:
        """One idea in all its kernels; raises `UnknownPageItem`."""
        walks = {walk.id: walk.title for walk in self._registry.values()}
        return compare_data.view(name, self.concepts(), self._readers, walks)

    def drills(self) -> dict[str, Summary]:
        """Every kind of drill, by its page's name."""
        return drill_data.summaries()

    def drill(self, kind: str) -> DrillKind:
        """One kind with all its questions; raises `UnknownPageItem`."""
        return drill_data.kind_view(kind)

    def claims(self) -> dict[str, ClaimView]:
        """Every claim by id, checked once a build."""
        return {name: claim_views.view(result) for name, result in computed().items()}

    def pair(self, concept: str, source: str) -> Panes:
        """The lines of one concept in one source and in the first port that has it."""
        if concept not in concepts.concepts():
            raise UnknownPageItem("concept", concept, concepts.concepts())
        if source not in spans.sources():
            raise UnknownPageItem("source", source, spans.sources())
        port = [path for path in code.ports() if concept in code.port_ranges(path)][:1]
        left = code.source_figures(source, [concept], concept, context=0)
        return code.panes([left], code.own_figures(port, [concept], concept))

    def history(self) -> HistoryView:
        """What became of the anchored code from release to release, by the committed facts."""
        return history.view()


def _same_idea(name: str) -> SameIdea | None:
    """The idea of a concept in all its kernels; None where there is but one."""
    idea = idea_of(name)
    found = ideas.appearances(idea)
    page = idea.id if idea.id in compare_data.compared() else ""
    return SameIdea(idea.title, idea.differs, tuple(map(_kernel_ref, found)), page) if len(found) > 1 else None


def _kernel_ref(entry: ideas.Appearance) -> KernelRef:
    pins, table = sources.pins(), concepts.concepts()
    upstream = [
        Link(
            f"{run.path.rpartition('/')[2]}, {code.lines_said(run.first, run.last)}",
            pins[entry.kernel.source].link(run.path, run.first, run.last),
        )
        for run in ideas.runs(entry.upstream)
        if entry.kernel.source
    ]
    port = [f"`{path}`, line{'s' * (not said.isdecimal())} {said}" for path, said in ideas.named(entry.port).items()]
    return KernelRef(
        title=entry.kernel.title,
        origin=entry.kernel.source or "our own",
        concepts={name: table[name].title for name in entry.concepts},
        upstream=tuple(upstream),
        port=tuple(port),
    )


def _recorded() -> list[str]:
    """The sources with spans, in the order of the pins: vLLM's before tiny-vllm's."""
    known = spans.sources()
    return [pin for pin in sources.pins() if pin in known]


def _home(concept: str) -> str:
    for source in _recorded():
        for span in spans.spans(source).get(concept, ()):
            return f"`{span.path.rpartition('/')[2]}`"
    return "Our own code"


@cache
def project_data() -> ProjectData:
    """The one instance of a build."""
    return ProjectData()
