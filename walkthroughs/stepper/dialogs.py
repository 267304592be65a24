"""What comes up over the screen: the keys, a hint, the list of steps, and a question for one line of text."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, ClassVar

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.screen import ModalScreen
from textual.suggester import SuggestFromList
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from walkthroughs.stepper.keys import HELP
from walkthroughs.stepper.palette import Palette

if TYPE_CHECKING:
    from textual.app import ComposeResult

    from walkthroughs.step import Walkthrough


class Leaf(ModalScreen[None]):
    """Something to read; any of its keys closes it."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,enter,question_mark,h", "dismiss", "close"),
        Binding("up", "turn(-1)", show=False),
        Binding("down", "turn(1)", show=False),
        Binding("pageup", "turn(-10)", show=False),
        Binding("pagedown,space", "turn(10)", show=False),
    ]

    def __init__(self, title: str, content: RenderableType) -> None:
        super().__init__()
        self._title = title
        self._content = content

    def compose(self) -> ComposeResult:
        """One scrolling box."""
        with VerticalScroll(classes="box", can_focus=False) as box:
            box.border_title = self._title
            box.border_subtitle = "Esc closes"
            yield Static(self._content, markup=False)

    def action_turn(self, by: int) -> None:
        """Scroll."""
        self.query_one(".box").scroll_relative(y=by, animate=False)


def keys_table(palette: Palette) -> Table:
    """The list of keys."""
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True, min_width=6)
    table.add_column()
    for shown, text in HELP:
        table.add_row(Text(shown, palette.key), text)
    return table


class Question(ModalScreen[str | None]):
    """Asks for a line of text, with suggestions to the right of what was typed; Escape answers None."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "dismiss(None)", "close")]

    def __init__(self, title: str, remark: str, *, suggestions: Sequence[str] = (), value: str = "") -> None:
        super().__init__()
        self._title, self._remark, self._value = title, remark, value
        self._suggestions = suggestions

    def compose(self) -> ComposeResult:
        """The question, what may be answered, and the line."""
        with Vertical(classes="box question") as box:
            box.border_title = self._title
            box.border_subtitle = "Enter takes it, Esc leaves it"
            yield Static(self._remark, markup=False)
            suggester = SuggestFromList(self._suggestions, case_sensitive=True) if self._suggestions else None
            yield Input(self._value, suggester=suggester, compact=True)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Answer."""
        self.dismiss(event.value)


class Contents(ModalScreen[str | None]):
    """The list of all steps; answers with the chosen step's id."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q,l", "dismiss(None)", "close")]

    def __init__(
        self, walkthroughs: Iterable[Walkthrough], current: str, seen: Callable[[str], bool], palette: Palette
    ) -> None:
        super().__init__()
        self._walkthroughs, self._current, self._seen, self._palette = list(walkthroughs), current, seen, palette

    def compose(self) -> ComposeResult:
        """Walkthroughs as headings, their steps below."""
        options: list[Option | None] = []
        for walkthrough in self._walkthroughs:
            heading = Text.assemble((walkthrough.id, self._palette.title), f"  {walkthrough.title}")
            options.append(Option(heading, disabled=True))
            for number, step in enumerate(walkthrough.steps, start=1):
                mark = "▶" if step.id == self._current else "✓" if self._seen(step.id) else " "
                line = Text.assemble(
                    (f" {mark} ", self._palette.mark),
                    (f"{number:>2} ", self._palette.gutter),
                    step.title,
                    (f"  {step.slug}", self._palette.quiet),
                )
                options.append(Option(line, id=step.id))
        listing = OptionList(*options, classes="box", compact=True, markup=False)
        listing.border_title = "Steps"
        listing.border_subtitle = "Enter opens one, Esc closes"
        yield listing

    def on_mount(self) -> None:
        """Begin at the present step."""
        listing = self.query_one(OptionList)
        listing.highlighted = listing.get_option_index(self._current)

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """Answer."""
        self.dismiss(event.option.id)
