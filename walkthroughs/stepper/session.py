"""The stepper without a screen: a reader in a walkthrough, the moves, and what is to be seen after each.

A step is opened in two parts, since recording its film takes a second: `open_step` at once, and `settle` with what
`prepare` has made of it, in whatever thread.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from annotate.concepts import concepts
from kernels.simt.record_thread import statements
from walkthroughs.digest import ROOT
from walkthroughs.stepper import shelf
from walkthroughs.stepper.films import join
from walkthroughs.stepper.history import in_lockstep
from walkthroughs.stepper.opening import Loaded, never, prepare, start_of
from walkthroughs.stepper.picture import Stage
from walkthroughs.stepper.player import Player
from walkthroughs.stepper.progress import Place, Progress
from walkthroughs.stepper.shots import NoSuchPlace, Shot, shoot
from walkthroughs.stepper.view import Camera, View, is_watchable

if TYPE_CHECKING:
    from walkthroughs.step import Step, Walkthrough
    from walkthroughs.stepper.join import Join

NO_FILM = "This step is shown without a film: no recorded run passes its lines. Read on with n."
LOADING = "The film of this step is being recorded …"


@dataclass(frozen=True)
class Pane:
    """A code pane: the file, the statement that is about to run (`line` to `until`; 0: none), and what is marked.

    `linked`: the lines of `concept`, which ties the statement to the other side. `step`: the lines of the step.
    """

    page: shelf.Page | None
    line: int = 0
    linked: tuple[shelf.Lines, ...] = ()
    step: tuple[shelf.Lines, ...] = ()
    concept: str = ""
    until: int = 0

    @property
    def path(self) -> str:
        """The file, or the empty text where there is none."""
        return self.page.path if self.page is not None else ""


@dataclass(eq=False)
class Session:
    """A reader at a step of a walkthrough. `remark`: what the last move has to say, or the empty text."""

    walkthroughs: Mapping[str, Walkthrough]
    progress: Progress = field(default_factory=Progress)
    watches: list[str] = field(default_factory=list)
    subject: str = ""
    remark: str = ""
    loaded: Loaded | None = None
    player: Player | None = None
    page: int = 0
    _step: Step | None = None
    _camera: Camera | None = None

    @property
    def step(self) -> Step:
        """The step that is open."""
        assert self._step is not None, "open a step first"
        return self._step

    @property
    def walkthrough(self) -> Walkthrough:
        """The walkthrough that is open."""
        return self.walkthroughs[self.step.walkthrough]

    @property
    def number(self) -> int:
        """The step's number in its walkthrough, from 1."""
        return self.walkthrough.steps.index(self.step) + 1

    @property
    def loading(self) -> bool:
        """Whether the step's film is still to come."""
        return self.loaded is None

    # Opening steps.

    def find(self, step: str) -> Step:
        """A step by its id."""
        return next(s for s in self.walkthroughs[step.split("/")[0]].steps if s.id == step)

    def open_step(self, step: str) -> tuple[Step, Place | None, Shot | None]:
        """Leave the present step for another, and answer with the arguments for `prepare`."""
        self.keep()
        shown = self.player.shot if self.player is not None else None
        self._step, self.loaded, self.player, self.remark, self.page = self.find(step), None, None, "", 0
        self.progress.at(step)
        place = self.progress.places.get(step)
        if place is not None and not self.watches:
            self.watches = list(place.watches)
        return self.step, place, shown

    def settle(self, loaded: Loaded) -> bool:
        """Take what was prepared; False where the reader has gone on to another step since."""
        if loaded.step != self.step.id:
            return False
        self.loaded, self.remark = loaded, loaded.remark
        self._show(loaded.shot, loaded.moment)
        return True

    def go(self, step: str) -> None:
        """Open a step and wait for its film."""
        self.settle(prepare(*self.open_step(step)))

    def neighbour(self, by: int) -> str | None:
        """The id of the step `by` steps on, or None with a remark where the walkthrough ends."""
        steps = self.walkthrough.steps
        at = self.number - 1 + by
        if 0 <= at < len(steps):
            return steps[at].id
        self.remark = f"This is the {'last' if by > 0 else 'first'} step of {self.walkthrough.id}. l lists the others."
        return None

    def keep(self) -> None:
        """Note where the reader stands."""
        if self.player is None:
            return
        shot = self.player.shot
        self.progress.places[self.step.id] = Place(
            self.player.moment, self.player.last, shot.block, shot.focus, tuple(self.watches)
        )

    def _show(self, shot: Shot | None, moment: int) -> None:
        self.player = None if shot is None else Player(shot, moment)
        self._camera = None if self.player is None else Camera(self.player, self.joined, Stage(self.player.shot))

    # Moves in the film.

    def move(self, name: str, *arguments: int | str | bool) -> bool:
        """One of the player's moves by its name; False, with a remark, where there is no film."""
        if self.player is None:
            self.remark = LOADING if self.loading else NO_FILM
            return False
        self.remark = getattr(self.player, name)(*arguments)
        return True

    def to_start(self) -> None:
        """Back to the first moment of the step's lines."""
        if self.player is not None and self.loaded is not None and self.loaded.clip is not None:
            moment = start_of(self.loaded.clip, self.player.shot)
            self.move("go", moment or 0)
            self.remark = "" if moment else never(self.player.shot)
        else:
            self.move("go", 0)

    def run_to(self, text: str) -> None:
        """Run to a line: its number in the file shown, FILE:LINE, or a concept's id."""
        place = self._place_of(text.strip())
        if self.player is None or place is None:
            said = f"{text!r}: give a line's number, FILE:LINE or a concept"
            self.remark = NO_FILM if self.player is None else said
            return
        self.move("run_to", place[1], place[0])

    def _place_of(self, text: str) -> tuple[str, int] | None:
        file, _, line = text.rpartition(":")
        if line.isdigit():
            known = [path for path in self._files() if path.endswith(file)] if file else [self.port().path]
            return (known[0], int(line)) if known else None
        found = self.joined.port_lines(text) if self.player is not None else []
        return (found[0][0], found[0][1]) if found else None

    def _files(self) -> list[str]:
        return [file.path for file in self.player.shot.trace.files] if self.player is not None else []

    def choose(self, block: int | None = None, focus: int | None = None) -> Shot | None:
        """A shot of another block or thread, still to be shown with `switch`; None with a remark where there is none.

        It may take a second: it is recorded if it was not.
        """
        if self.player is None:
            return None
        shot = self.player.shot
        try:
            return shoot(shot.film, shot.block if block is None else block, shot.focus if focus is None else focus)
        except NoSuchPlace as error:
            self.remark = f"{error}."
            return None

    def switch(self, shot: Shot) -> None:
        """Show another thread at the moment that belongs to this one: the same visit of the same line."""
        assert self.player is not None
        moment = in_lockstep(self.player.shot.history, self.player.moment, shot.history)
        spot = self.player.shot.history.spot(self.player.moment)
        self._show(shot, moment or 0)
        line = f"line {spot[2]}" if spot else "this line"
        self.remark = "" if moment is not None else f"Thread {shot.focus} does not come to {line} as often: its start."

    def place_of(self, text: str) -> tuple[int | None, int | None] | None:
        """The block and thread that a text names (None: as now); None with a remark for anything else.

        `33` is a thread, `2/33` a thread of block 2, `2/` block 2, and 1,0,0 in place of 2 its x, y and z.
        """
        before, slash, after = text.replace(" ", "").rpartition("/")
        if self.player is None:
            self.remark = LOADING if self.loading else NO_FILM
            return None
        trace = self.player.shot.trace
        try:
            block = _linear(before, trace.grid) if slash else None
            focus = _linear(after, trace.block) if after or not slash else None
        except ValueError:
            self.remark = f"{text!r}: give a thread (33), block/thread (2/33), or block/ (2/); also as x,y,z"
            return None
        return block, focus

    def places(self) -> str:
        """Which threads and blocks there are, in words."""
        if self.player is None:
            return NO_FILM
        trace = self.player.shot.trace
        x, y, z = trace.grid
        threads = trace.block[0] * trace.block[1] * trace.block[2]
        return (
            f"A thread, 0 to {threads - 1}, or BLOCK/THREAD. The grid is {x} × {y} × {z}: blocks 0 to {x * y * z - 1}, "
            f"or as x,y,z. Now: {self.player.shot.block}/{self.player.shot.focus}."
        )

    def show_in_lanes(self, name: str) -> None:
        """What the lanes show: a variable, an element of one, or what happens (the empty text)."""
        name = name.strip()
        if name and not is_watchable(name):
            self.remark = f"{name!r}: give a variable's name, or an element such as accs[3]"
        else:
            self.subject, self.remark = name, ""

    def watch(self, name: str) -> None:
        """Watch a variable (`qk`, `accs[3]`), or no longer."""
        name = name.strip()
        if name in self.watches:
            self.watches.remove(name)
            self.remark = f"{name} is no longer watched."
        elif is_watchable(name):
            self.watches.append(name)
            self.remark = f"{name} is watched. w and its name again: no longer."
        else:
            self.remark = f"{name!r}: give a variable's name, or an element such as accs[3]"

    def names(self) -> list[str]:
        """The variables that can be watched here, the innermost function's first."""
        if self.player is None:
            return []
        history, moment = self.player.shot.history, self.player.moment
        return list(dict.fromkeys(n for frame in history.stack(moment) for n in history.variables(moment, frame)))

    def concept_names(self) -> list[str]:
        """The concepts that the film can run to."""
        if self.player is None:
            return []
        return sorted({region.id for found in self.joined.files.values() for region in found})

    def was_at(self, step: str) -> bool:
        """Whether the reader has seen a step."""
        return step in self.progress.seen

    # What is to be seen.

    @property
    def joined(self) -> Join:
        """The ties of the film's lines to concepts."""
        assert self.loaded is not None
        assert self.loaded.clip is not None
        return join(self.loaded.clip.film)

    def view(self) -> View | None:
        """The moment; None while the film is recorded, and for a step without one."""
        return None if self._camera is None else self._camera.view(self.watches, self.subject)

    def link(self, view: View | None) -> str:
        """The concept that ties the line here to the left side: the innermost that has lines there."""
        if view is None or not view.concepts:
            return ""
        tied = (name for name in view.concepts if shelf.left_page(self.step.source, [name]) is not None)
        return next(tied, view.concepts[0])

    def left(self, view: View | None = None) -> Pane:
        """The left pane: upstream's lines, or plain Python of ours."""
        concept = self.link(view)
        page = shelf.left_page(self.step.source, [concept]) if concept else None
        if page is not None:
            return Pane(page, 0, tuple(page.of([concept])), self._step_lines(page), concept)
        pages = shelf.left_pages(self.step.source, self.step.reads)
        page = pages[self.page % len(pages)] if pages else None
        return Pane(page, step=self._step_lines(page) if page is not None else ())

    def port(self, view: View | None = None) -> Pane:
        """The right pane: the port's file where the thread stands."""
        view = view if view is not None else self.view()
        if view is not None and view.file:
            page = shelf.port_page(view.file)
            concept = self.link(view)
            until = last_of_statement(view.file, view.line)
            return Pane(page, view.line, tuple(page.of([concept])), self._step_lines(page), concept, until)
        pages = [shelf.port_page(path) for path in shelf.port_files_of(self.step.port)]
        page = next((page for page in pages if page.of(self.step.reads)), pages[0])
        return Pane(page, step=self._step_lines(page))

    def _step_lines(self, page: shelf.Page) -> tuple[shelf.Lines, ...]:
        return tuple(sorted(lines for name in self.step.reads for lines in page.ranges.get(name, ())))

    def hints(self) -> list[tuple[str, str]]:
        """What to look at: the title and summary of the line's concepts, then of the step's."""
        view = self.view()
        here = [self.link(view)] if view is not None and view.concepts else []
        table = concepts()
        names: Sequence[str] = [name for name in dict.fromkeys([*here, *self.step.reads]) if name in table]
        return [(table[name].title, table[name].summary) for name in names]


def last_of_statement(file: str, line: int) -> int:
    """The last line of the statement (of a compound one: of its head) that begins at a line."""
    known = statements(str(ROOT / file))
    last = line
    while known.get(last + 1, (0, True))[0] == line:
        last += 1
    return last


def _linear(text: str, sizes: tuple[int, int, int]) -> int:
    """A linear number, or x,y or x,y,z within sizes, as a linear number; ValueError for anything else."""
    parts = [int(part) for part in text.split(",")]
    if len(parts) == 1:
        return parts[0]
    places = (*parts, 0)[:3]
    if len(parts) > 3 or any(not 0 <= at < size for at, size in zip(places, sizes, strict=True)):
        raise ValueError(text)
    return places[0] + sizes[0] * (places[1] + sizes[1] * places[2])
