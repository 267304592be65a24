"""What a reader sees of `pagewalk lab serve`: questions before each phase, the chart while it runs, the verdict."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import nullcontext

from rich.console import Console
from rich.live import Live
from rich.padding import Padding
from rich.text import Text

from walkthroughs.commands.lab_sitting import SHOWN, Guesses, chart_width
from walkthroughs.lab.chart import BAND, BESIDE, LINE, POINT, SERVER_LEGEND, server_chart
from walkthroughs.lab.phases import BLOCK_SIZE, NUM_BLOCKS, Outcome, Phase
from walkthroughs.lab.questions import Question, questions
from walkthroughs.lab.scenarios import NULL_BLOCKS
from walkthroughs.lab.server import Server

BETWEEN = 0.08
"""Seconds between two drawings: the readings come faster than an eye follows, and drawing delays the next one."""


class ServeSitting:
    """Goes through the phases with a reader; `asks`: asks first. What came of them is in `outcomes`."""

    def __init__(self, screen: Console, asks: bool, *, quiet: bool = False) -> None:
        self.screen, self.asks, self.quiet = screen, asks, quiet
        self.outcomes: list[Outcome] = []
        self.guesses = Guesses(screen)
        self._opened: set[str] = set()

    def open(self, phase: Phase, server: Server) -> None:
        """Show what a phase sends, and ask; does so once. Raises EngineDied where the server dies meanwhile."""
        if self.quiet or phase.id in self._opened:
            return
        self._opened.add(phase.id)
        self.screen.print()
        self._say(phase.title, "bold", indent=0)
        for ask in phase.asks:
            self._say(f"{ask.name}: {len(ask.prompt)} tokens in the prompt, generates {ask.generate}")
        self._say(f"{NUM_BLOCKS - NULL_BLOCKS} blocks of {BLOCK_SIZE} tokens; prefix caching on", "dim")
        for question in questions(phase) if self.asks else ():
            self.guesses.ask(question.text, question.answer)
            server.check()

    def run(self, phases: Sequence[Phase], server: Server) -> None:
        """Send the phases one after the other; each begins when the reader has answered."""
        for phase in phases:
            self.open(phase, server)
            self.outcomes.append(self._watch(phase, server))
            self._close(self.outcomes[-1])

    def _watch(self, phase: Phase, server: Server) -> Outcome:
        if self.quiet:
            return server.run(phase)
        live = Live(console=self.screen, auto_refresh=False) if self.screen.is_terminal else None
        drawn = 0.0

        def seen(outcome: Outcome) -> None:
            nonlocal drawn
            if live and (outcome.left >= 0 or time.monotonic() - drawn > BETWEEN):
                live.update(Text("\n".join(self.chart(outcome))), refresh=True)
                drawn = time.monotonic()

        with live or nullcontext():
            outcome = server.run(phase, seen)
        if live is None:
            self.screen.print("\n".join(self.chart(outcome)), markup=False, soft_wrap=True)
        return outcome

    def chart(self, outcome: Outcome) -> list[str]:
        """The chart of an outcome as it is now, with what its signs mean."""
        band = f"{LINE} predicted" if len(outcome.phase.asks) == 1 else f"{LINE} or {BAND} predicted, at each reading"
        beside = f", {BESIDE} read and not as predicted" if any(not sample.fits for sample in outcome.samples) else ""
        lines = server_chart(outcome, width=chart_width(self.screen))
        return [f"blocks in use: {band}, {POINT} read{beside}", *lines, SERVER_LEGEND]

    def _close(self, outcome: Outcome) -> None:
        if self.quiet:
            return
        for question in questions(outcome.phase):
            self._say(f"{question.text} {question.answer}{self._said(question)}")
            self._say(f"{question.why}; {question.read(outcome)}", "dim", indent=4)
        exact = sum(sample.low == sample.high for sample in outcome.samples)
        fit = sum(sample.fits for sample in outcome.samples)
        style = "green" if outcome.status == "passed" else "bold red"
        self._say(f"{fit} of {len(outcome.samples)} readings fit, {exact} of them predicted exactly", style)
        self._say(f"tokens found in the prefix cache: {outcome.hits}", style)
        for problem in outcome.problems[:SHOWN]:
            self._say(f"MISMATCH {problem}", "bold red")

    def _say(self, words: str, style: str = "", *, indent: int = 2) -> None:
        """Print a line, folded between words where the terminal is narrow."""
        self.screen.print(Padding(Text(words, style), (0, 0, 0, indent), expand=False))

    def _said(self, question: Question) -> str:
        return f", {self.guesses.said(question.text)}" if self.asks else ""
