"""Blocks in use as text: the prediction a line or a band, what the engine did points upon it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from walkthroughs.lab.phases import Outcome, marks

LINE, BAND, POINT, BESIDE = "─", "░", "●", "✗"
SIGNS = {"admitted": "A", "hit": "H", "edge": "+", "preempted": "P", "freed": "F"}
"""The letter of each event under the chart; where several fall into one column, the last in this order stands."""
WORDS = {"admitted": "admitted", "hit": "prefix hit", "edge": "block more", "preempted": "preempted", "freed": "freed"}
LEGEND = " · ".join(f"{sign} {WORDS[kind]}" for kind, sign in SIGNS.items())
SERVER_KINDS = ("edge", "admitted", "hit", "freed")
"""The events that are seen from outside a server, the one that stands last."""
SERVER_LEGEND = " · ".join(f"{SIGNS[kind]} {WORDS[kind]}" for kind in SIGNS if kind in SERVER_KINDS)
HEIGHT = 10
LEAST = 10


class Grid:
    """Cells over columns and rows: a row stands for one number of blocks or for several, the largest written beside."""

    def __init__(self, top: int, columns: int) -> None:
        self.per_row = -(-top // HEIGHT)
        self.margin = margin(top)
        self.cells = [[" "] * columns for _ in range(-(-top // self.per_row) + 1)]
        self.signs = [" "] * columns

    def row(self, blocks: int) -> int:
        """The row of a number of blocks; the topmost for what is above the chart."""
        return min(-(-blocks // self.per_row), len(self.cells) - 1)

    def put(self, column: int, blocks: int, sign: str) -> None:
        """Write a sign at a number of blocks."""
        self.cells[self.row(blocks)][column] = sign

    def mark(self, column: int, kinds: set[str], order: Iterable[str] = SIGNS) -> None:
        """Write the sign of one of the kinds under a column: the last in the order."""
        self.signs[column] = next((SIGNS[kind] for kind in reversed([*order]) if kind in kinds), " ")

    def lines(self, below: str, *, signs: bool = True) -> list[str]:
        """The chart with its axes, and `below` as its last line."""
        left = self.margin - 2
        lines = [f"{row * self.per_row:>{left}} │{''.join(self.cells[row])}".rstrip()
                 for row in range(len(self.cells) - 1, -1, -1)]  # fmt: skip
        lines.append(f"{'':>{left}} └{'─' * len(self.signs)}")
        if signs:
            lines.append(f"{'':>{self.margin}}{''.join(self.signs)}".rstrip())
        return [*lines, f"{'':>{self.margin}}{below}"]


def chart(
    predicted: Sequence[int], observed: Sequence[int], kinds: Sequence[Sequence[str]] = (), *, width: int = 72
) -> list[str]:
    """Lines of text: blocks upwards, steps to the right. `kinds`: the events of each step.

    A column stands for one step, or for the last of several where there are more steps than columns; a row likewise
    for one number of blocks or several.
    """
    top = max([1, *predicted, *observed])
    columns = spans(len(predicted), max(LEAST, width - margin(top)))
    grid = Grid(top, len(columns))
    for place, (first, last) in enumerate(columns):
        grid.put(place, predicted[last], LINE)
        if last < len(observed):
            grid.put(place, observed[last], POINT)
            grid.mark(place, {kind for step in kinds[first : last + 1] for kind in step})
    return grid.lines(f"step 1 .. {len(predicted)}", signs=bool(kinds))


def server_chart(outcome: Outcome, *, width: int = 72) -> list[str]:
    """Lines of text: blocks upwards, tokens that were generated to the right, as far as the readings have come.

    One request has a line, which is known beforehand; several have a band at each reading, from the least to the most
    blocks. A column shows its last reading, but one that does not fit is never left out.
    """
    phase, over = outcome.phase, outcome.left >= 0
    readings = [(s.generated, s.used, s.low, s.high) for s in outcome.samples]
    readings += [(phase.generate, outcome.left, 0, 0)] if over else []
    top, line = max([1, phase.most, *(used for _, used, _, _ in readings)]), phase.line()
    columns = spans(phase.generate + 1, max(LEAST, width - margin(top)))
    grid, happened = Grid(top, len(columns)), marks(phase, outcome.samples, over=over)
    for place, (first, last) in enumerate(columns):
        if line:
            grid.put(place, line[last], LINE)
        here = [reading for reading in readings if first <= reading[0] <= last]
        beside = [reading for reading in here if not reading[2] <= reading[1] <= reading[3]]
        for _, used, low, high in (beside or here)[-1:]:
            for row in range(grid.row(low), grid.row(high) + 1):
                grid.cells[row][place] = LINE if low == high else BAND
            grid.put(place, used, BESIDE if beside else POINT)
        grid.mark(place, {mark.kind for mark in happened if first <= mark.generated <= last}, SERVER_KINDS)
    return grid.lines(f"0 .. {phase.generate} tokens generated")


def spans(steps: int, most: int) -> list[tuple[int, int]]:
    """The first and last step (from 0) of each column."""
    count = min(steps, most)
    return [(n * steps // count, (n + 1) * steps // count - 1) for n in range(count)]


def margin(top: int) -> int:
    """Columns left of the chart, where numbers up to `top` stand."""
    return len(str(top)) + 2
