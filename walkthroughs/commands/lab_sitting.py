"""What a reader sees of `pagewalk lab run`: questions before each scenario, the chart while it runs, the verdict."""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Iterator, Sequence

import click
from rich.console import Console
from rich.live import Live
from rich.text import Text

from walkthroughs.lab.chart import LEGEND, chart
from walkthroughs.lab.predict import Moment, predict
from walkthroughs.lab.scenarios import Scenario
from walkthroughs.lab.watch import Result, Seen

Step = tuple[Result, Seen] | None
Steps = Iterator[Step]
WIDEST = 100
SHOWN = 5
"""The most mismatches of a scenario that are printed; `--json` has all of them."""


class Guesses:
    """What a reader said: each question is asked once, and told again beside its answer."""

    def __init__(self, screen: Console) -> None:
        self.screen, self.asked, self.right = screen, 0, 0
        self._said: dict[str, str] = {}

    def ask(self, question: str, truth: int) -> None:
        """Ask, and say nothing of the answer yet. An empty line leaves the question open."""
        self.asked += 1
        answer = click.prompt(f"  {question}", default="", show_default=False, prompt_suffix=" ").strip()
        right = answer.isdecimal() and int(answer) == truth
        self.right += right
        self._said[question] = "as you said" if right else f"you said {answer}" if answer else "left open"
        self.screen.print("    noted" if answer else "    left open", style="dim")

    def said(self, question: str) -> str:
        """What the reader said to a question, in words: right, wrong, or nothing."""
        return self._said[question]


class Sitting:
    """What a reader sees of a run: questions before each scenario, the chart while it runs, the verdict after it."""

    def __init__(self, screen: Console, asks: bool, pace: float, *, quiet: bool = False) -> None:
        self.screen, self.asks, self.pace, self.quiet = screen, asks, pace, quiet
        self.results: list[Result] = []
        self.guesses = Guesses(screen)

    def run(self, chosen: Sequence[Scenario], steps: Steps) -> None:
        """Take the steps scenario by scenario; those of the next one wait until the reader has answered."""
        following = next(steps)  # the engine's process runs; it loads while the reader thinks
        for scenario in chosen:
            self._open(scenario, predict(scenario))
            following = self._follow(scenario, following or next(steps, None), steps)
            self._close(self.results[-1])

    def _open(self, scenario: Scenario, moments: Sequence[Moment]) -> None:
        if self.quiet:
            return
        say = self._say
        say("")
        say(scenario.title, style="bold")
        for ask in scenario.requests:
            say(f"  {ask.name}: {len(ask.prompt)} tokens in the prompt, generates {ask.generate}, "
                f"comes before step {ask.arrives}")  # fmt: skip
        usable = scenario.num_blocks - 1
        say(f"  {usable} blocks of {scenario.block_size} tokens; prefix caching {'on' if scenario.sharing else 'off'}",
            style="dim")  # fmt: skip
        if self.asks:
            for step in scenario.moments:
                self.guesses.ask(_question(step), moments[step - 1].used)

    def _follow(self, scenario: Scenario, first: Step, steps: Steps) -> Step:
        """Show one scenario's steps; return the first step of the next one, if it was read."""
        result = Result(scenario, predict(scenario))
        current = first
        live = Live(console=self.screen, auto_refresh=False) if self.screen.is_terminal and not self.quiet else None
        with live or contextlib.nullcontext():
            while current is not None and current[0].scenario.id == scenario.id:
                result = current[0]
                if live:
                    live.update(Text("\n".join(self.drawn(result))), refresh=True)
                    time.sleep(self.pace)
                current = next(steps, None)
        self.results.append(result)
        if live is None and not self.quiet:
            self.screen.print("\n".join(self.drawn(result)), markup=False)
        return current

    def drawn(self, result: Result) -> list[str]:
        """The chart of a result as it is now."""
        kinds = [[event.kind for event in moment.events] for moment in result.predicted]
        used = [seen.used for seen in result.seen]
        lines = chart([moment.used for moment in result.predicted], used, kinds, width=chart_width(self.screen))
        return [f"blocks in use: {'─'} predicted, {'●'} observed", *lines, LEGEND]

    def _close(self, result: Result) -> None:
        if self.quiet:
            return
        for step in result.scenario.moments if self.asks else ():
            self._say(f"  after step {step}: {self._why(result, step)}: {self.guesses.said(_question(step))}")
        for mismatch in result.mismatches[:SHOWN]:
            self._say(f"  MISMATCH {mismatch}", style="bold red")
        verdict = "as predicted" if result.status == "passed" else f"mismatches: {len(result.mismatches)}"
        style = "green" if result.status == "passed" else "bold red"
        self.screen.print(f"  {len(result.seen)} steps, {verdict}", style=style)

    def _say(self, words: str, style: str | None = None) -> None:
        """Print a line: folded between words on a terminal, whole in a file."""
        self.screen.print(words, style=style, markup=False, soft_wrap=not self.screen.is_terminal)

    def _why(self, result: Result, step: int) -> str:
        """The blocks in use at a moment, with the sum they come from."""
        moment = result.predicted[step - 1]
        parts = [f"{row.name} {row.blocks}" for row in moment.rows if row.blocks]
        held = sum(row.blocks for row in moment.rows)
        shared = f", less {held - moment.used} counted before" if held > moment.used else ""
        return f"{moment.used} in use ({', '.join(parts) or 'nobody holds any'}{shared})"


def chart_width(screen: Console) -> int:
    """Columns that a chart may take. Of a terminal without abilities rich says 80, whatever it has."""
    columns = shutil.get_terminal_size((screen.width, 0)).columns if screen.is_dumb_terminal else screen.width
    return min(columns, WIDEST)


def _question(step: int) -> str:
    return f"Blocks in use after step {step}?"
