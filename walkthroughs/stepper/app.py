"""The stepper on the screen: a thin layer of Textual over a `Session`, which knows how to walk.

The screen is there at once. A film is recorded in a thread of its own, and shown when it is ready.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, ClassVar

from rich.console import Group, RenderableType
from rich.markdown import Markdown
from rich.text import Text
from rich.theme import Theme
from textual import work
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container
from textual.widgets import Static

from walkthroughs.naming import undirected
from walkthroughs.stepper import keys, panels, progress
from walkthroughs.stepper.code_pane import CodePane
from walkthroughs.stepper.dialogs import Contents, Leaf, Question, keys_table
from walkthroughs.stepper.keys import KEYS
from walkthroughs.stepper.opening import prepare
from walkthroughs.stepper.palette import DARK, LIGHT, Palette
from walkthroughs.stepper.session import LOADING, NO_FILM, Session
from walkthroughs.stepper.text_pane import Panel

if TYPE_CHECKING:
    from textual import events

    from walkthroughs.stepper.opening import Loaded
    from walkthroughs.stepper.shots import Shot
    from walkthroughs.stepper.view import View

PANES = ("story", "upstream", "port", "values", "lanes", "memory")
UPPER, LOWER = PANES[1:3], PANES[3:]
WIDE, TALL = 100, 34
SAVE_AFTER = 1.0


class Stepper(App[None]):
    """`pagewalk walk` on a terminal. `path`: where progress is kept; None keeps none."""

    CSS_PATH = "stepper.tcss"
    TITLE = "pagewalk walk"
    ENABLE_COMMAND_PALETTE = False
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (WIDE, "-wide")]  # noqa: RUF012 (an instance variable, says Textual)
    VERTICAL_BREAKPOINTS = [(0, "-short"), (TALL, "-tall")]  # noqa: RUF012
    BINDINGS: ClassVar[list[BindingType]] = [Binding(key.keys, key.action, key.text, show=False) for key in KEYS]

    def __init__(self, session: Session, start: str, path: Path | None = None, remark: str = "") -> None:
        # With the terminal's own colours NO_COLOR leaves none at all; else Textual would put greys in their place.
        super().__init__(ansi_color=True if "NO_COLOR" in os.environ else None)
        self.session = session
        self.path = path
        self._start, self._first_remark = start, remark
        self._chosen, self._upper, self._lower = "story", "port", "values"
        self._told, self._stands = "", False
        self._saving: Any = None
        self._camera = Lock()

    @property
    def palette(self) -> Palette:
        """The colours of the theme."""
        return DARK if self.current_theme.dark else LIGHT

    def compose(self) -> ComposeResult:
        """All panes; the style sheet lays them out."""
        yield Static(id="head", markup=False)
        with Container(id="tabs-upper", classes="tabs"):
            yield Static(id="upper-text")
        with Container(id="upper"):
            for name in UPPER:
                pane = CodePane(name)
                pane.add_class("pane", "code")
                yield pane
        with Container(id="tabs-lower", classes="tabs"):
            yield Static(id="lower-text")
        with Container(id="lower"):
            yield Panel("story")
            yield Panel("values")
            with Container(id="right"):
                yield Panel("lanes")
                yield Panel("memory")
        yield Static(id="said", markup=False)
        yield Static(id="foot", markup=False)

    def on_mount(self) -> None:
        """Open the first step as soon as the screen stands."""
        self._stands = True
        self._ink()
        self.open(self._start)

    def _ink(self) -> None:
        """Rich shows code within prose on black, which only suits a dark screen."""
        self.console.push_theme(Theme({"markdown.code": self.palette.changed, "markdown.code_block": ""}))

    # Steps and films.

    def open(self, step: str) -> None:
        """Open a step: its story and code at once, its film when it is there."""
        arguments = self.session.open_step(step)
        self._chosen = "story"
        self.draw(jump=True)
        self.query_one("#story", Panel).scroll_home(animate=False)
        self.load(*arguments)
        self.save()

    @work(thread=True, group="film")
    def load(self, *arguments: Any) -> None:
        """Record in a thread; one film at a time, and none that is no longer wanted."""
        with self._camera:
            if arguments[0] is not self.session.step or not self.is_running:
                return
            loaded = prepare(*arguments)
        if self.is_running:
            self.call_from_thread(self.loaded, loaded)

    def loaded(self, loaded: Loaded) -> None:
        """A film is ready; it may be that of a step which the reader has left."""
        if self.session.settle(loaded):
            if self._first_remark:
                self.session.remark, self._first_remark = self._first_remark, ""
            self.draw(jump=True)

    @work(thread=True, group="film")
    def shoot(self, block: int | None, focus: int | None) -> None:
        """Record another block or warp in a thread."""
        step = self.session.step.id
        with self._camera:
            shot = self.session.choose(block, focus)
        if self.is_running:
            self.call_from_thread(self.shot, step, shot)

    def shot(self, step: str, shot: Shot | None) -> None:
        """The other block is ready."""
        if shot is not None and step == self.session.step.id and self.session.player is not None:
            self.session.switch(shot)
        self.draw(jump=True)

    def save(self) -> None:
        """Keep the place, a moment after the last move."""
        if self._saving is not None:
            self._saving.stop()
        self._saving = self.set_timer(SAVE_AFTER, self.save_now)

    def save_now(self) -> None:
        """Keep the place; a folder that cannot be written is said once."""
        self.session.keep()
        if self.path is not None and (said := progress.save(self.path, self.session.progress)):
            self.path, self.session.remark = None, said
            self.draw()

    # Drawing.

    def draw(self, *, jump: bool = False) -> None:
        """Show the session as it is."""
        view = self.session.view()
        self._head(view)
        self._code(view, jump)
        self._story()
        self._panels(view)
        self._say(view)
        self._choose()

    def _head(self, view: View | None) -> None:
        session, step = self.session, self.session.step
        left = f"{session.walkthrough.id}  {session.number}/{len(session.walkthrough.steps)}  {step.title}"
        right = ""
        if view is not None and session.player is not None:
            block = ",".join(map(str, view.block))
            right = f"block {block}  thread {view.thread}  moment {view.moment}/{view.last}"
        self.query_one("#head", Static).update(panels.apart(left, right, self._inside))

    @property
    def _inside(self) -> int:
        """Columns of a line across the screen."""
        return max(self.size.width - 2, 20)

    def _code(self, view: View | None, jump: bool) -> None:
        from annotate.concepts import concepts

        for name, pane in (("upstream", self.session.left(view)), ("port", self.session.port(view))):
            widget = self.query_one(f"#{name}", CodePane)
            widget.border_title = pane.page.caption if pane.page is not None else "no lines on this side"
            known = concepts().get(pane.concept)
            widget.border_subtitle = f"┃ {known.title}" if known is not None else ""
            widget.show(pane, jump=jump)

    def _story(self) -> None:
        session, step, palette = self.session, self.session.step, self.palette
        prose = Markdown(undirected(step.prose), code_theme="ansi_dark" if self.current_theme.dark else "ansi_light")
        parts: list[RenderableType] = [Text(step.title, palette.title), "", prose]
        if session.loaded is not None and session.loaded.proof is not None:
            parts += ["", panels.proof(session.loaded.proof, palette)]
        told = f"{step.id} {session.loading} {self.current_theme.name}"
        if self._told != told:
            self._told = told
            self.query_one("#story", Panel).show(lambda width, height: Group(*parts))

    def _panels(self, view: View | None) -> None:
        palette = self.palette
        if view is None:
            nothing = Text(LOADING if self.session.loading else NO_FILM, palette.quiet)
            makers: dict[str, Callable[[int, int], RenderableType]] = dict.fromkeys(
                LOWER, lambda width, height: nothing
            )
        else:
            seen = view
            makers = {
                "values": lambda width, height: panels.values(seen, width, palette),
                "lanes": lambda width, height: panels.lanes(seen.lanes, seen.thread, width, palette),
                "memory": lambda width, height: panels.memory(seen.table, seen.pools, width, palette, height),
            }
        for name, make in makers.items():
            self.query_one(f"#{name}", Panel).show(make)

    def _say(self, view: View | None) -> None:
        line, width = Text(), self._inside
        if view is not None:
            told = view.kind == "line" and not view.sentence.startswith("comes")
            line.append(f"Thread {view.thread}{':' if told else ''} " if view.moment else "", self.palette.quiet)
            line.append(f"{view.sentence}.")
        elif self.session.loading:
            line.append(LOADING, self.palette.quiet)
        if self.session.remark:  # else the sentence may take both lines
            line.truncate(width, overflow="ellipsis")
            line.append(f"\n{self.session.remark}", self.palette.mark)
        self.query_one("#said", Static).update(line)
        self.query_one("#foot", Static).update(keys.foot(width))

    def _choose(self) -> None:
        """Mark the chosen pane, and hide the others where there is room for one only."""
        book = self._chosen == "story"
        self.screen.set_class(book, "-book")
        for name in PANES:
            pane = self.query_one(f"#{name}")
            pane.set_class(name == self._chosen, "-chosen")
            away = not book if name == "story" else book or name not in (self._upper, self._lower)
            pane.set_class(away, "-away")
        self.query_one("#right").set_class(book or self._lower == "values", "-away")
        caption = ""
        if not book:
            caption = str(self.query_one(f"#{self._upper}", CodePane).border_title or "").rpartition("/")[2]
        self._tabs("upper", PANES[:3], {"story"} if book else {self._upper}, caption)
        self._tabs("lower", LOWER, set() if book else {self._lower}, "")

    def _tabs(self, row: str, names: tuple[str, ...], active: set[str], caption: str) -> None:
        labels = {f"{PANES.index(name) + 1} {name.capitalize()}": name in active for name in names}
        self.query_one(f"#{row}-text", Static).update(panels.tabs(labels, caption, self._inside, self.palette))

    def on_resize(self, event: events.Resize) -> None:
        """The head is as wide as the screen."""
        if self._stands:
            self._head(self.session.view())

    # Keys.

    def action_move(self, name: str, *arguments: Any) -> None:
        """A move in the film; from the story it leads to the code."""
        self.session.move(name, *arguments)
        self.moved()

    def moved(self) -> None:
        """Draw and keep the place after a move."""
        if self._chosen == "story" and self.session.player is not None:
            self._chosen = self._upper
        self.draw()
        self.save()

    def action_to_start(self) -> None:
        """Where the step begins."""
        self.session.to_start()
        self.moved()

    def action_step(self, by: int) -> None:
        """Another step of the walkthrough."""
        step = self.session.neighbour(by)
        if step is None:
            self.draw()
        else:
            self.open(step)

    def action_pane(self, name: str) -> None:
        """Choose a pane."""
        self._chosen = name
        if name in UPPER:
            self._upper = name
        elif name in LOWER:
            self._lower = name
        self._choose()

    def action_focus_next(self) -> None:
        """Choose the next pane: nothing on the screen itself takes the focus."""
        self._turn(1)

    def action_focus_previous(self) -> None:
        """Choose the pane before."""
        self._turn(-1)

    def _turn(self, by: int) -> None:
        if len(self.screen_stack) == 1:  # no dialog is open
            self.action_pane(PANES[(PANES.index(self._chosen) + by) % len(PANES)])

    def action_scroll(self, by: int) -> None:
        """Scroll the chosen pane."""
        self.query_one(f"#{self._chosen}").scroll_relative(y=by, animate=False)

    def action_other(self) -> None:
        """Another upstream file."""
        self.session.page += 1
        self.draw(jump=True)

    def action_day(self) -> None:
        """Dark or light."""
        self.theme = "textual-light" if self.current_theme.dark else "textual-dark"
        self._ink()
        self.draw(jump=True)

    def action_keys(self) -> None:
        """The list of keys."""
        self.push_screen(Leaf("Keys", keys_table(self.palette)))

    def action_hint(self) -> None:
        """What to look at, and what was checked."""
        parts: list[RenderableType] = []
        for title, summary in self.session.hints():
            parts += [Text(title, self.palette.title), Text(summary), ""]
        loaded = self.session.loaded
        if loaded is not None and loaded.proof is not None:
            parts.append(panels.proof(loaded.proof, self.palette))
        self.push_screen(Leaf("What to look at", Group(*parts)))

    def action_list(self) -> None:
        """The list of steps."""
        session = self.session
        contents = Contents(session.walkthroughs.values(), session.step.id, session.was_at, self.palette)
        self.push_screen(contents, lambda step: self.open(step) if step is not None else None)

    def action_ask_line(self) -> None:
        """Run to a line."""
        names = self.session.concept_names()
        remark = "A line of the port's file shown, FILE:LINE, or a concept's id."
        self.push_screen(Question("Run to", remark, suggestions=names), self._run_to)

    def _run_to(self, answer: str | None) -> None:
        if answer:
            self.session.run_to(answer)
            self.moved()

    def on_code_pane_line_clicked(self, message: CodePane.LineClicked) -> None:
        """Run to the line of the port that was clicked."""
        if message.pane == "port":
            self._run_to(f"{message.path}:{message.line}")

    def action_ask_thread(self) -> None:
        """Choose thread and block."""
        self.push_screen(Question("Thread and block", self.session.places()), self._choose_thread)

    def _choose_thread(self, answer: str | None) -> None:
        place = self.session.place_of(answer) if answer else None
        if place is not None:
            self.session.remark = "That thread is being recorded …"
            self.shoot(*place)
        self.draw()

    def action_ask_watch(self) -> None:
        """Watch a variable."""
        remark = "A variable, or an element such as accs[3]. One that is watched already: no longer."
        if self.session.watches:
            remark += f"\nWatched: {', '.join(self.session.watches)}"
        self.push_screen(Question("Watch", remark, suggestions=self.session.names()), self._watch)

    def _watch(self, answer: str | None) -> None:
        if answer:
            self.session.watch(answer)
            self.moved()

    def action_ask_subject(self) -> None:
        """Choose what the lanes show."""
        remark = "A variable, or an element of one, for the lanes. Empty: what happens."
        question = Question("Lanes", remark, suggestions=self.session.names(), value=self.session.subject)
        self.push_screen(question, self._subject)

    def _subject(self, answer: str | None) -> None:
        if answer is not None:
            self.session.show_in_lanes(answer)
            self.draw()

    async def action_quit(self) -> None:
        """Keep the place, and quit."""
        self.save_now()
        self.exit()
