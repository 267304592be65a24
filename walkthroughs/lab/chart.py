"""Blocks in use over the steps, as text: the prediction a line, what the engine did points upon it."""

from __future__ import annotations

from collections.abc import Sequence

LINE, POINT = "─", "●"
SIGNS = {"admitted": "A", "hit": "H", "edge": "+", "preempted": "P", "freed": "F"}
"""The letter of each event under the chart; where several fall into one column, the last in this order stands."""
LEGEND = "A admitted · H prefix hit · + block more · P preempted · F freed"
HEIGHT = 10


def chart(
    predicted: Sequence[int], observed: Sequence[int], kinds: Sequence[Sequence[str]] = (), *, width: int = 72
) -> list[str]:
    """Lines of text: blocks upwards, steps to the right. `kinds`: the events of each step.

    A column stands for one step, or for the last of several where there are more steps than columns; a row likewise
    for one number of blocks or several.
    """
    top = max([1, *predicted, *observed])
    margin = len(str(top)) + 2
    columns = _columns(len(predicted), max(10, width - margin))
    per_row = -(-top // HEIGHT)
    rows = -(-top // per_row) + 1
    cells = [[" "] * len(columns) for _ in range(rows)]
    marks = [" "] * len(columns)
    for place, (first, last) in enumerate(columns):
        cells[-(-predicted[last] // per_row)][place] = LINE
        if last < len(observed):
            cells[-(-observed[last] // per_row)][place] = POINT
        seen = {kind for step in kinds[first : last + 1] for kind in step} if last < len(observed) else set()
        marks[place] = next((sign for kind, sign in reversed(SIGNS.items()) if kind in seen), " ")
    lines = [f"{row * per_row:>{margin - 2}} │{''.join(cells[row])}".rstrip() for row in range(rows - 1, -1, -1)]
    lines.append(f"{'':>{margin - 2}} └{'─' * len(columns)}")
    if kinds:
        lines.append(f"{'':>{margin}}{''.join(marks)}".rstrip())
    steps = f"step 1 .. {len(predicted)}"
    lines.append(f"{'':>{margin}}{steps}")
    return lines


def _columns(steps: int, most: int) -> list[tuple[int, int]]:
    """The first and last step (from 0) of each column."""
    count = min(steps, most)
    return [(n * steps // count, (n + 1) * steps // count - 1) for n in range(count)]
