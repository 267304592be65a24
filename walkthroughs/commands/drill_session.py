"""A sitting of drills in the terminal: plain prompts, line by line, so that a pipe can answer as well as a reader.

Each answer is kept, with the place in the sitting, before anything else happens.
"""

from __future__ import annotations

import os
import re
import select
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Literal

import click
from rich.console import Console
from rich.markdown import Markdown
from rich.padding import Padding
from rich.text import Text

from annotate.errors import AnnotateError
from kernels.errors import KernelError
from walkthroughs.commands import drill_fix_sitting
from walkthroughs.drills import session as sitting
from walkthroughs.drills.asking import Bank, places
from walkthroughs.drills.errors import DrillError
from walkthroughs.drills.item import Question, Solution
from walkthroughs.drills.log import NOTHING
from walkthroughs.drills.schedule import AGAIN, GOOD, RATINGS, from_ms, label, labels, to_ms, tomorrow
from walkthroughs.drills.session import Session
from walkthroughs.drills.store import Store

COMMANDS = {
    "u": "undo the last thing done in this session",
    "s": "suspend: do not ask this item again",
    "b": "bury: not again today",
    "q": "quit; the session is kept",
    "?": "these keys",
}
ARROW = re.compile(r"\x1b(?:\[[0-9;]*[A-Za-z~]|O[A-Z])")
LONGEST = 24 * 3600 * 1000
WIDTH = 88
FORMS = {
    "self": "Answer aloud or in writing; Enter or space reveals.",
    "number": "A number{unit}. Enter alone: I do not know.",
    "text": "A few words. Enter alone: I do not know.",
    "lines": "Lines. Enter alone: I do not know.",
    "file": "Enter checks your file, h gives a hint, x shows the solution.",
}
Clock = Callable[[], datetime]


class Quit(Exception):
    """The reader leaves, or there is no more input."""


class Keys:
    """Where answers come from: single keys at a terminal where one is enough, else lines."""

    def __init__(self, screen: Console, *, plain: bool = False) -> None:
        self._screen = screen
        self._live = not plain and sys.stdin.isatty() and sys.stdout.isatty()

    def line(self, *, first: bool = False) -> str:
        """A typed line, without its ends; `first`: a space alone is an empty one. Raises Quit at the end of input."""
        if not self._live:
            self._screen.print("> ", end="")
            typed = sys.stdin.readline()
            self._screen.print()
            if not typed:
                raise Quit
            return typed.strip()
        begun = self._press("> ") if first else ""
        whole = begun == " " or begun.endswith(("\r", "\n"))
        if first and whole:
            self._screen.print(Text(begun.strip()))
            return begun.strip()
        return _edited("" if first else "> ", begun).strip()

    def waiting(self) -> bool:
        """Whether more was typed already, as when lines are pasted at a terminal."""
        if not self._live or os.name == "nt":  # select takes only sockets there
            return False
        return bool(select.select([sys.stdin], [], [], 0)[0])

    def drain(self) -> None:
        """Forget what was typed at the terminal and not read yet."""
        with suppress(ImportError):
            import termios

            if self._live:
                termios.tcflush(sys.stdin, termios.TCIFLUSH)

    def key(self, prompt: str) -> str:
        """One key, or over a pipe a line; an empty string is Enter or space."""
        if not self._live:
            return self.line()
        pressed = self._press(prompt)[0].strip()
        self._screen.print(Text(pressed))
        return pressed

    def _press(self, prompt: str) -> str:
        """A key, or several that came at once, as when something is pasted; arrows and the like are passed over."""
        self._screen.print(prompt, end="")
        while True:
            try:
                pressed = click.getchar()
            except (EOFError, KeyboardInterrupt) as error:
                raise Quit from error
            pressed = "".join(c for c in ARROW.sub("", pressed) if c.isprintable() or c in "\r\n")
            if pressed:
                return pressed


def _edited(prompt: str, begun: str) -> str:
    """A line edited at the terminal; what was begun already stands in it."""
    try:
        import readline
    except ImportError:
        click.echo(begun, nl=False)
        return begun + _input(prompt)
    readline.set_startup_hook(lambda: readline.insert_text(begun))
    try:
        return _input(prompt)
    finally:
        readline.set_startup_hook(None)


def _input(prompt: str) -> str:
    try:
        return input(prompt)
    except (EOFError, KeyboardInterrupt) as error:
        raise Quit from error


class Sitting:
    """One run of `pagewalk drill`."""

    def __init__(self, store: Store, bank: Bank, session: Session, clock: Clock, screen: Console, keys: Keys) -> None:
        self.store, self.bank, self.clock = store, bank, clock
        self.session = session
        self._items = bank.items()
        self._screen, self._keys = screen, keys
        self._width = min(screen.width, WIDTH)

    def run(self) -> bool:
        """Ask until nothing is left, or the reader quits; answers whether nothing is left."""
        try:
            while self._open():
                name = self.session.item
                try:
                    self._one(self.bank.ask(self._items[name], self.session.question))
                except (AnnotateError, KernelError) as error:
                    click.echo(f"{name} is left out: {error}", err=True)
                    if self.session.item == name:
                        self._keep(sitting.skip(self.session))
        except Quit:
            self._say("Kept. `pagewalk drill` goes on here.")
            return False
        self._finish()
        return True

    def _open(self) -> bool:
        entries, now = self.store.entries(), self.clock()
        self._keep(sitting.advance(self.session, self._items, entries, now))
        if not self.session.item:
            return False
        left = len(sitting.queue(self.session, self._items, entries, now))
        item = self._items[self.session.item]
        after = f" · follows {item.after}" if item.after else ""
        self._screen.print()
        self._say(f"── {item.kind} · level {item.level} · {left} to go{after}", "bold cyan")
        return True

    def _keep(self, session: Session) -> None:
        self.store.keep(sitting.to_json(session))
        self.session = session

    def _one(self, question: Question) -> None:
        """Ask one question until it is answered, or left by a command."""
        item = question.item
        self._say(f"{item.title}  ({item.id})", "bold")
        self._markdown(question.text)
        unit = f" in {question.unit}" if question.unit else ""
        self._say(FORMS[question.form].format(unit=unit) + "  ?: keys.", "dim")
        self._say(look_in(question) or drill_fix_sitting.begin(question), "dim", whole=True)
        begun = self.clock()
        while True:
            typed = self._keys.line(first=question.form == "self")
            if typed in COMMANDS:
                if self._command(typed):
                    return
                continue
            right, said = self._judge(question, typed)
            if right != "again":
                break
            self._say(said, "yellow", whole="\n" in said)
        took = min(LONGEST, max(0, (self.clock() - begun) // timedelta(milliseconds=1)))
        if said:
            self._say(said, {"yes": "green", "no": "red"}.get(right, ""))
        if right == "no":
            self._answered(question, AGAIN, took)
        self._solution(question, self.bank.solve(question))
        if right == "no":
            self._wait()
        else:
            self._rate(question, took)

    def _judge(self, question: Question, typed: str) -> tuple[Literal["yes", "no", "self", "again"], str]:
        if question.form == "file":
            return drill_fix_sitting.judge(question, typed)
        if question.form != "self" and not typed:
            return "no", "Here it is."
        # A leading = says that a single letter is an answer, not a command.
        typed = typed[1:] if typed.startswith("=") and typed[1:] in COMMANDS else typed
        if question.form == "self" and not typed:
            return "self", ""
        try:
            graded = self.bank.grade(question, typed)
        except DrillError as error:
            return "again", f"{error}. Try again."
        if graded.right is None:
            return "self", graded.said
        return ("yes" if graded.right else "no"), graded.said

    def _solution(self, question: Question, solution: Solution) -> None:
        """The answer, then why, and where to look; each point of a rubric has its own places."""
        item = question.item
        self._markdown(f"**Answer.** {solution.answer}")
        shown: list[str] = []
        for number, point in enumerate(solution.points if question.form == "self" else (), 1):
            where = places(point.steps, point.concepts, point.claims)
            self._markdown(f"{number}. {point.text}")
            self._where(where)
            shown += where
        if solution.why:
            self._screen.print()
            self._markdown(solution.why)
        self._where([place for place in places(item.steps, item.concepts, item.claims) if place not in shown])

    def _where(self, where: Sequence[str]) -> None:
        for place in where:
            self._screen.print(Padding(Text(place, style="cyan", overflow="fold"), (0, 0, 0, 3), expand=False))

    def _rate(self, question: Question, took: int) -> None:
        """Let the reader say how well it went, with what each rating leads to."""
        now = self.clock()
        next_times = labels(self.store.entry(question.item.id).card, now)
        choices = "   ".join(f"{number} {RATINGS[number]} ({next_times[number]})" for number in RATINGS)
        if not self.session.asked:
            self._say("How well did you know it? It comes back sooner or later accordingly:", "dim")
        while True:
            self._say(f"{choices}   Enter: {GOOD}")
            pressed = self._keys.key("1-4 ")
            if pressed in COMMANDS:
                if self._command(pressed):
                    return
            elif pressed in ("", *map(str, RATINGS)):
                self._answered(question, int(pressed or GOOD), took)
                return
            else:
                self._say(f"{pressed!r} is none of 1, 2, 3 and 4.", "yellow")

    def _wait(self) -> None:
        """After a wrong answer, which is kept already: time to read."""
        while True:
            self._say("Enter: on   u: undo")
            pressed = self._keys.key("")
            if pressed not in COMMANDS or (pressed not in ("s", "b") and self._command(pressed)):
                return

    def _answered(self, question: Question, rating: int, took: int) -> None:
        item, now = question.item.id, self.clock()
        with self.store.transaction():
            before = self.store.entry(item)
            self.store.review(item, rating, now, form=question.form, seed=question.seed, took=took)
            after = sitting.answered(self.session, self._items, before, rating)
            self.store.keep(sitting.to_json(after))
        self.session = after
        due = self.store.entry(item).card.due
        self._say(f"{RATINGS[rating]}: again in {label(due - now)}." if due else "", "bold")

    def _command(self, key: str) -> bool:
        """Do what a key says; answers whether the open question is left."""
        item, now = self.session.item, self.clock()
        if key == "?":
            for name, meaning in COMMANDS.items():
                self._say(f"  {name}  {meaning}")
            self._say("  =s answers with the letter s itself; the same for the other keys.")
            return False
        if key == "q":
            raise Quit
        if key == "u":
            return self._undo(now)
        if key == "s":
            self.store.suspend(item, now)
            self._say(f"{item} is suspended: `pagewalk drill unsuspend {item}` brings it back.")
        else:
            self.store.bury(item, now, tomorrow(now))
            self._say(f"{item} is buried until tomorrow.")
        return True

    def _undo(self, now: datetime) -> bool:
        with self.store.transaction():
            event = self.store.undo(now, since=from_ms(self.session.started))
            after = self.session
            if event is not None and event.item in self._items:
                entry = self.store.entry(event.item)
                seed = event.seed if event.seed is not None else sitting.seed_of(self.session, event.item)
                after = sitting.reopened(self.session, self._items, event.item, seed, event.rating, entry)
                self.store.keep(sitting.to_json(after))
        left, self.session = after is not self.session, after
        self._say(f"Undone: {event.what} of {event.item}." if event else "Nothing to undo in this session.")
        return left

    def _finish(self) -> None:
        """What was done, and what comes next."""
        session, now = self.session, self.clock()
        self.store.keep(None)
        counts = ", ".join(f"{n} {RATINGS[rating]}" for rating, n in enumerate(session.ratings, 1) if n)
        done = f"Done: {session.asked} {_plural('answer', session.asked)}"
        self._say(f"{done} ({counts})." if counts else f"{done}.", "bold")
        entries = self.store.entries()
        awake = {name: entries.get(name, NOTHING) for name in self._items}
        coming = [e.card.due for e in awake.values() if e.card.due and e.card.due > now and not e.asleep(now)]
        if coming:
            soon = min(coming)
            many = sum(due <= soon + timedelta(minutes=10) for due in coming)
            self._say(f"Next: {many} in {label(soon - now)}.")
        waiting = sum(e.card.due is None and not e.asleep(now) for e in awake.values())
        if waiting:
            self._say(f"{waiting} new ones wait: `pagewalk drill` again brings up to {sitting.NEW_ITEMS} of them.")

    def _say(self, text: str, style: str = "", *, whole: bool = False) -> None:
        """Print a text; `whole`: its lines stay whole, for paths and links to be copied."""
        if text:
            self._screen.print(Text(text, style=style), width=None if whole else self._width, soft_wrap=whole)

    def _markdown(self, text: str) -> None:
        self._screen.print(Markdown(text, hyperlinks=False), width=self._width)


def look_in(question: Question) -> str:
    """Where the source is that a question wants lines of, or how it comes here; "" for any other question."""
    from annotate.sourcetree import open_tree

    source = question.state.get("source")
    if question.form != "lines" or not isinstance(source, str):
        return ""
    try:
        return f"Its files are in {open_tree(source).root}"
    except AnnotateError:
        return f"Its files are not here: `pagewalk fetch {source}` brings them."


def open_session(
    store: Store, *, seed: int, now: datetime, limit: int | None, kinds: tuple[str, ...], restart: bool
) -> tuple[Session, bool]:
    """The session to go on with, and whether it was begun before.

    Another day, or another wish, begins a new one; a question that is still open is asked first all the same.
    """
    kept = None if restart else sitting.from_json(store.session())
    if kept is None:
        made = Session(seed, to_ms(now), sitting.NEW_ITEMS if limit is None else limit, kinds)
        return made, False
    same = limit in (None, kept.limit) and (not kinds or kinds == kept.kinds)
    if same and now < tomorrow(from_ms(kept.started).astimezone(now.tzinfo)):
        return replace(kept, skipped=()), True  # what was missing may be here by now
    fits = not kinds or kept.item.split("/")[0] in kinds
    made = Session(seed, to_ms(now), sitting.NEW_ITEMS if limit is None else limit, kinds)
    if not (fits and kept.item):
        return made, False
    return Session(seed, made.started, made.limit, kinds, item=kept.item, question=kept.question), True


def _plural(word: str, count: int) -> str:
    return word if count == 1 else f"{word}s"
