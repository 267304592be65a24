"""What a page shows, as plain values: the seam between the project's data and the HTML.

`loader.py` fills these from anchors, steps and evidence; `render.py` turns them into Markdown and HTML.
Tests fill them by hand.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, Protocol

from annotate.history import Cell

if TYPE_CHECKING:
    from .drill_view import DrillKind

BadgeKind = Literal["gpu", "sim", "cpu", "stale", "pending"]
Verdict = Literal["passed", "failed", "stale", "measured"]
ClaimKind = Literal["holds", "holds-if", "wrong", "open", "unavailable", "failed"]


@dataclass(frozen=True, slots=True)
class Badge:
    """How far a step is proven: `kind` picks the look, `text` says it in words."""

    kind: BadgeKind
    text: str


@dataclass(frozen=True, slots=True)
class Row:
    """One check of a step: what was seen, what was to be seen, and how far apart they may be.

    A measured value is a row too: its verdict is `measured`, and there is nothing that it was to be.
    """

    name: str
    observed: str
    expected: str
    error: str
    tolerance: str
    verdict: Verdict
    note: str = ""


@dataclass(frozen=True, slots=True)
class Link:
    """A place elsewhere: a label and its address."""

    label: str
    url: str


@dataclass(frozen=True, slots=True)
class Panes:
    """Upstream and port code that light up together.

    `upstream` and `port` are finished HTML figures; `titles` maps every concept that occurs in them to its title;
    `permalinks` lead to the upstream lines at their fixed revision; `note` says what is special about the copy shown;
    `names` are the identifiers of the linked lines, for the search.
    """

    upstream: tuple[str, ...] = ()
    port: tuple[str, ...] = ()
    titles: Mapping[str, str] = field(default_factory=dict)
    permalinks: tuple[Link, ...] = ()
    note: str = ""
    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class DriftNote:
    """What became of the code that a step reads: `kind` picks the look, `sign` and `text` say it without colour.

    `heirs` do its work at release `at`: concept, title, and their lines there.
    """

    kind: Literal["same", "changed", "part", "gone"]
    sign: str
    text: str
    heirs: tuple[tuple[str, str, Link], ...] = ()
    at: str = ""


@dataclass(frozen=True, slots=True)
class LaneView:
    """One piece of code over the releases; `number` tells the pieces of one concept apart, `file` is its first home."""

    track: str
    concept: str
    title: str
    number: str
    file: str
    cells: tuple[Cell, ...]


@dataclass(frozen=True, slots=True)
class MoveView:
    """A file and the paths it had, from which release on (none: it is gone)."""

    name: str
    places: tuple[tuple[str, tuple[str, ...]], ...]


@dataclass(frozen=True, slots=True)
class HistoryView:
    """The history page: the releases that were read, the lanes, and where the files moved."""

    releases: tuple[str, ...]
    lanes: tuple[LaneView, ...]
    moves: tuple[MoveView, ...] = ()


@dataclass(frozen=True, slots=True)
class FactView:
    """One fact under a claim: its part in it, what was seen, and links to the lines and the runs."""

    role: str
    says: str
    truth: Literal["true", "false", "unknown"]
    seen: str
    links: tuple[Link, ...] = ()
    runs: tuple[Link, ...] = ()


@dataclass(frozen=True, slots=True)
class ClaimView:
    """A claim as pages show it. `kind` picks the look and `verdict` says it in words; `concepts` maps id to title.

    `of` names what it is said of, where that is not plain.
    """

    id: str
    group: str
    who: str
    says: str
    kind: ClaimKind
    verdict: str
    condition: str
    truth: str
    concepts: Mapping[str, str]
    facts: tuple[FactView, ...] = ()
    message: str = ""
    of: str = ""


@dataclass(frozen=True, slots=True)
class MomentRow:
    """One moment of a recorded run, for a table: its number, the port's line with its text, and what it did."""

    moment: int
    line: int
    text: str
    did: str


@dataclass(frozen=True, slots=True)
class PlayerView:
    """A player on a page: the film, the heading that its links name, the scope of its panes, and a few moments as rows.

    `start` is the event where it opens, None for the first; `concepts` are those of its step, marked on the track.
    """

    film: str
    anchor: str
    scope: str
    start: int | None
    concepts: tuple[str, ...]
    rows: tuple[MomentRow, ...]


@dataclass(frozen=True, slots=True)
class StepView:
    """One step as its page shows it; `rows_from` says where the values were observed."""

    id: str
    slug: str
    title: str
    prose: str
    reads: tuple[str, ...]
    panes: Panes
    badges: tuple[Badge, ...]
    rows: tuple[Row, ...]
    rows_from: str
    record: tuple[tuple[str, str], ...] = ()
    drift: DriftNote | None = None
    claims: tuple[ClaimView, ...] = ()
    player: PlayerView | None = None
    drills: tuple[Link, ...] = ()


@dataclass(frozen=True, slots=True)
class WalkthroughView:
    """A walkthrough as its page shows it."""

    id: str
    title: str
    intro: str
    steps: tuple[StepView, ...]


@dataclass(frozen=True, slots=True)
class Summary:
    """The head of a walkthrough or concept: enough for a stub or a list entry.

    `count` is how many steps it has; `group` the heading under which a list shows it.
    """

    id: str
    title: str
    text: str
    count: int = 0
    group: str = ""


@dataclass(frozen=True, slots=True)
class StepRef:
    """A step that reads a concept."""

    walkthrough: str
    slug: str
    title: str


@dataclass(frozen=True, slots=True)
class FilmView:
    """A film's own page: the whole port beside upstream, the player, and the steps that show it."""

    id: str
    title: str
    case: str
    panes: Panes
    player: PlayerView
    steps: tuple[StepRef, ...] = ()


@dataclass(frozen=True, slots=True)
class KernelRef:
    """One kernel that has an idea.

    `origin` is its source, or says that it is our own; `concepts` are the titles, by id, under which it has the idea;
    `upstream` leads to its lines at their fixed revision; `port` names our files with their lines.
    """

    title: str
    origin: str
    concepts: Mapping[str, str]
    upstream: tuple[Link, ...] = ()
    port: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SameIdea:
    """One idea in all kernels that have it, and how they differ; `page` is its compare page (empty: it has none)."""

    title: str
    differs: str
    kernels: tuple[KernelRef, ...]
    page: str = ""


@dataclass(frozen=True, slots=True)
class KernelColumn:
    """One kernel on a compare page.

    `upstream` and `port` are finished HTML figures; `without_upstream` and `without_port` say why there are none;
    `origin` is its source and revision; `concepts` are the titles, by id, under which it has the idea; `variants` name
    files of ours that do the same in another form.
    """

    id: str
    title: str
    origin: str
    concepts: Mapping[str, str]
    upstream: tuple[str, ...] = ()
    port: tuple[str, ...] = ()
    without_upstream: str = ""
    without_port: str = ""
    variants: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CompareView:
    """A compare page: one idea, a column for each kernel that has it.

    `titles` maps every idea that lights up to its title, `pages` those of them that have a page to its path below the
    site's top; `concepts` are those that are this idea; `steps` those that read them, by their walkthrough's title.
    """

    id: str
    title: str
    says: str
    differs: str
    columns: tuple[KernelColumn, ...]
    titles: Mapping[str, str]
    pages: Mapping[str, str] = field(default_factory=dict)
    concepts: tuple[Summary, ...] = ()
    steps: Mapping[str, tuple[StepRef, ...]] = field(default_factory=dict)
    names: tuple[str, ...] = ()
    note: str = ""
    before: Summary | None = None
    after: Summary | None = None


@dataclass(frozen=True, slots=True)
class LaneNote:
    """Where a concept's lanes start on the history page, and what became of them in a few words."""

    anchor: str
    sign: str
    text: str


@dataclass(frozen=True, slots=True)
class ConceptView:
    """A concept as its page shows it: where it stands in every source and every port."""

    id: str
    title: str
    summary: str
    panes: Panes
    steps: tuple[StepRef, ...] = ()
    see_also: tuple[Summary, ...] = ()
    same_idea: SameIdea | None = None
    claims: tuple[ClaimView, ...] = ()
    lane: LaneNote | None = None
    drills: tuple[Link, ...] = ()


class SiteData(Protocol):
    """Where the pages get their content from."""

    def walkthroughs(self) -> Mapping[str, Summary]:
        """Every walkthrough by id, in reading order."""
        ...

    def walkthrough(self, name: str) -> WalkthroughView:
        """One walkthrough with its evidence; raises `StepNotProven` or `UnknownPageItem`."""
        ...

    def concepts(self) -> Mapping[str, Summary]:
        """Every concept by id, in the order of the concept table."""
        ...

    def concept(self, name: str) -> ConceptView:
        """One concept; raises `UnknownPageItem`."""
        ...

    def pair(self, concept: str, source: str) -> Panes:
        """The panes of one concept in one source, for the landing page; raises `UnknownPageItem`."""
        ...

    def compares(self) -> Mapping[str, Summary]:
        """Every idea that has a compare page, by id, in the order of the table of ideas."""
        ...

    def compare(self, name: str) -> CompareView:
        """One idea in all its kernels; raises `UnknownPageItem`."""
        ...

    def history(self) -> HistoryView:
        """What became of the anchored code from release to release."""
        ...

    def films(self) -> Mapping[str, Summary]:
        """Every film by id, in the order in which a reader meets the kernels."""
        ...

    def film(self, name: str) -> FilmView:
        """One film; raises `UnknownPageItem`."""
        ...

    def drills(self) -> Mapping[str, Summary]:
        """Every kind of drill, by its page's name below `drills`."""
        ...

    def drill(self, kind: str) -> "DrillKind":
        """One kind with all its questions; raises `UnknownPageItem`."""
        ...

    def claims(self) -> Mapping[str, ClaimView]:
        """Every claim by id, checked, in the order of the ledger."""
        ...
