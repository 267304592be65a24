"""A mock interview as it is talked through in the terminal: plain prompts, so that a pipe can answer.

Each answer is kept, with its review, before anything else happens.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta

import click
from rich.console import Console
from rich.markdown import Markdown
from rich.text import Text

from annotate.errors import AnnotateError
from kernels.errors import KernelError
from walkthroughs.commands.drill_session import FORMS, LONGEST, WIDTH, Clock, Keys, Quit, look_in
from walkthroughs.drills import interview as state
from walkthroughs.drills.asking import Bank
from walkthroughs.drills.errors import DrillError
from walkthroughs.drills.interview import MOVES, Interview
from walkthroughs.drills.interview_plan import LEAST, next_step
from walkthroughs.drills.interview_report import counted, took
from walkthroughs.drills.interview_score import points_of
from walkthroughs.drills.item import Question
from walkthroughs.drills.log import NOTHING
from walkthroughs.drills.store import Store

COMMANDS = {
    "q": "quit; the interview is kept, and its clock stands still",
    "e": "end it now: the score and the report",
    "?": "these keys",
}
SELF = "Aloud, or typed: an empty line ends it."
TICK = "Which did you have? Such as 1 2; a: all; 0: none.  ?: keys."
Review = Callable[[datetime], None]


class End(Exception):
    """The reader ends the interview before its time."""


class Talk:
    """One run of `pagewalk drill interview`, over an interview that may have been begun before."""

    def __init__(
        self, store: Store, bank: Bank, interview: Interview, clock: Clock, screen: Console, keys: Keys
    ) -> None:
        self.store, self.bank, self.clock = store, bank, clock
        self.interview = interview
        self._items = bank.items()
        self._screen, self._keys = screen, keys
        self._width = min(screen.width, WIDTH)
        self._seen = clock()

    def run(self) -> bool:
        """Ask until the time is up; answers False where the reader leaves before."""
        try:
            while self._open():
                name = self.interview.item
                try:
                    self._one(self.bank.ask(self._items[name], self.interview.question))
                except (AnnotateError, KernelError) as error:
                    click.echo(f"{name} is left out: {error}", err=True)
                    self._keep(state.skip(self.interview))
        except End:
            self._keep(self.interview)
            return True
        except (Quit, KeyboardInterrupt):
            self._keep(self.interview)
            answers = counted(len(self.interview.turns), "answer")
            self._say(f"\nKept: {answers}, {left(self.interview)}. `pagewalk drill interview` goes on here.")
            return False
        self._say("\nTime is up." if self.interview.left < LEAST else "\nThat was all there is to ask.")
        return True

    def _open(self) -> bool:
        """Open the next question, or the one that is open still; False where the interview is over."""
        if self.interview.item not in self._items:
            self._keep(self.interview)
            entries, now = self.store.entries(), self.clock()
            asleep = {name for name in self._items if entries.get(name, NOTHING).asleep(now)}
            step = next_step(self.interview, self._items, asleep)
            if step is None:
                return False
            self._keep(state.opened(self.interview, step.item, step.move, step.parent))
        interview, item = self.interview, self._items[self.interview.item]
        said = f"{len(interview.turns) + 1} · {item.kind} · level {item.level} · {MOVES[interview.move]}"
        self._screen.print()
        self._say(f"── {said} · {left(interview)}", "bold cyan")
        return True

    def _keep(self, interview: Interview, review: Review | None = None) -> None:
        """Keep it, with the time that has passed, and a review of what was answered; all or nothing.

        Raises DrillError where another process has gone on with it.
        """
        now = self.clock()
        made = state.passes(interview, (now - self._seen) // timedelta(milliseconds=1))
        with self.store.transaction():
            kept = state.from_json(self.store.interview())
            if kept is None or (kept.started, kept.turns) != (self.interview.started, self.interview.turns):
                raise DrillError("another `pagewalk drill interview` went on with this one; what it keeps stays")
            self.store.keep_interview(state.to_json(made))
            if review is not None:
                review(now)
        self.interview, self._seen = made, now

    def _one(self, question: Question) -> None:
        item = question.item
        self._say(f"{item.title}  ({item.id})", "bold")
        self._markdown(question.text)
        if question.form == "self":
            self._recall(question)
        else:
            self._graded(question)

    def _recall(self, question: Question) -> None:
        """An answer in words, then its points, ticked by the reader."""
        answer = self.interview.answer
        if answer is None:
            self._say(f"{SELF}  ?: keys.", "dim")
            answer = self._words()
        elif answer:
            self._say(f"You said: {answer}")
        points = points_of(question, self.bank.solve(question))
        self._say("A good answer has:", "bold")
        self._markdown("\n".join(f"{number}. {point.text}" for number, point in enumerate(points, 1)))
        self._say(TICK, "dim")
        self._keys.drain()  # what was pasted is no tick
        while True:
            typed = self._keys.line()
            if self._command(typed):
                continue
            try:
                had = state.ticked(typed, len(points))
                break
            except DrillError as error:
                self._say(f"{error}.", "yellow")
        self._answered(question, answer, had, len(points), self.interview.took)
        self._say(f"{len(had)} of {len(points)}.", "green" if len(had) == len(points) else "")

    def _words(self) -> str:
        """Lines until an empty one, kept as the answer; so are those of a reader who leaves before."""
        begun = self.clock()
        lines: list[str] = []

        def keep() -> str:
            answer = "\n".join(lines).rstrip()
            self._keep(state.typed(self.interview, answer, self._since(begun)))
            return answer

        try:
            while True:
                typed = self._keys.line(first=not lines)
                if not lines and self._command(typed):
                    continue
                if not typed and not (lines and self._keys.waiting()):  # an empty line of what is pasted ends nothing
                    return keep()
                lines += _writable(typed).splitlines() or [""]  # what is pasted may come as one
        except (Quit, KeyboardInterrupt):
            if lines:
                keep()
                self._say("\nWhat you typed is kept as your answer: its points are to be ticked still.")
            raise

    def _graded(self, question: Question) -> None:
        """An answer that the bank grades."""
        unit = f" in {question.unit}" if question.unit else ""
        self._say(FORMS[question.form].format(unit=unit) + "  ?: keys.", "dim")
        self._say(look_in(question), "dim")
        begun = self.clock()
        while True:
            typed = self._keys.line()
            if self._command(typed):
                continue
            typed = typed[1:] if typed.startswith("=") and typed[1:] in COMMANDS else typed
            try:
                graded = self.bank.grade(question, typed) if typed else None
                break
            except DrillError as error:
                self._say(f"{error}. Try again.", "yellow")
        right, said = (bool(graded.right), graded.said) if graded else (False, "")
        spent = self._since(begun)
        solution = self.bank.solve(question)
        self._answered(question, _writable(typed), (1,) if right else (), 1, spent, said)
        self._say(said, "green" if right else "red")
        if not right:
            self._markdown(f"**Answer.** {solution.answer}")

    def _answered(
        self, question: Question, answer: str, had: tuple[int, ...], of: int, spent: int, said: str = ""
    ) -> None:
        """Keep an answer: in the interview and, as a review, in the log; both or neither."""
        after = state.answered(self.interview, answer, had, of, spent, said)
        rating, item = after.turns[-1].rating, question.item.id

        def review(now: datetime) -> None:
            self.store.review(item, rating, now, form=question.form, seed=question.seed, took=spent)

        self._keep(after, review)

    def _since(self, begun: datetime) -> int:
        return min(LONGEST, max(0, (self.clock() - begun) // timedelta(milliseconds=1)))

    def _command(self, typed: str) -> bool:
        """Do what a key says; answers whether it was one. Raises Quit or End."""
        if typed not in COMMANDS:
            return False
        if typed == "q":
            raise Quit
        if typed == "e":
            raise End
        for name, meaning in COMMANDS.items():
            self._say(f"  {name}  {meaning}")
        self._say("  Of the points: the numbers that you had, such as 1 2; a for all, 0 for none.")
        self._say("  =q answers with the letter q itself; the same for the other keys.")
        return True

    def _say(self, text: str, style: str = "") -> None:
        if text:
            self._screen.print(Text(text, style=style), width=self._width)

    def _markdown(self, text: str) -> None:
        self._screen.print(Markdown(text, hyperlinks=False), width=self._width)


def _writable(typed: str) -> str:
    """What was typed, as a file can hold it: a terminal of another encoding may have sent lone surrogates."""
    return typed.encode(errors="replace").decode()


def left(interview: Interview) -> str:
    """The time left, in words."""
    if not interview.left:
        return "time is up after this one"
    whole = -(-interview.left // state.MINUTE)
    return f"{whole} min left" if whole > 1 else f"{took(interview.left)} left"
