"""What the page says of the ops' grids: the counts, the errors and the bounds of the committed record.

A record that no longer matches the code is shown and called stale; without one the page says so.
"""

from __future__ import annotations

import math
from typing import Any

from walkthroughs import grid
from walkthroughs.grid_workers import PASSED

from .inline import plain
from .proof import number

MAKE_IT = "`make grid-record`, on a machine with a GPU, makes one."
NONE = "–"


def lines(record: dict[str, Any] | None, fresh: bool) -> list[str]:
    """The section's Markdown: where it ran, a row for each group, the bounds."""
    if record is None:
        return ["", f"○ **Not yet measured.** There is no GPU record of these grids. {MAKE_IT}", ""]
    found = ["", _where(record, fresh), "", *_groups(record), ""]
    return [*found, *_outside(record), *_bounds(record["bounds"]), ""]


def project_lines() -> list[str]:
    """The same for the committed record; raises EvidenceError."""
    record = grid.load()
    return lines(record, record is not None and grid.fresh(record))


def _where(record: dict[str, Any], fresh: bool) -> str:
    calls = sum(group["runs"] for group in record["groups"])
    ran = f"{plain(record['device'])}, {record['date'][:10]}: {calls:,} calls in {record['seconds']:.0f} s."
    if fresh:
        return f"✔ **{ran}** The record matches the code as it is now."
    return f"⚠ **Stale:** the code has changed since the run on {ran}"


def _groups(record: dict[str, Any]) -> list[str]:
    head = ["grid", "cases passed", "largest error", "its tolerance", "zeros would pass", "mis-paired keys would pass"]
    return [_row(head), _row(["---"] * len(head)), *(_row(_group(group)) for group in record["groups"])]


def _group(group: dict[str, Any]) -> list[str]:
    worst, compared = group["worst"], group["compared"]
    return [
        plain(group["title"]),
        f"{group['passed']}/{group['cases']}",
        "not finite" if worst["error"] is None else number(worst["error"]),
        number(worst["tolerance"]),
        *(f"{group[what]}/{compared}" if compared else NONE for what in ("zeros_pass", "shuffled_keys_pass")),
    ]


def _outside(record: dict[str, Any]) -> list[str]:
    """Every case that did not pass, by name."""
    rows = [(group, row) for group in record["groups"] for row in group["rows"] if row[3] != PASSED]
    if not rows:
        return []
    said = [
        f"* ✘ {plain(group['title'])}, {plain(row[0])}: {row[3]}, "
        f"error {'not finite' if row[1] is None else number(row[1])}, tolerance {number(row[2])}"
        for group, row in rows
    ]
    return ["**Not passed:**", "", *said, ""]


def _bounds(bounds: list[dict[str, Any]]) -> list[str]:
    head = ["dtype", "bound of our matrix", "u", "where it comes from"]
    rows = [[bound["dtype"], f"`{formula(bound)}`", power(bound["unit"]), plain(bound["why"])] for bound in bounds]
    return [_row(head), _row(["---"] * len(head)), *(_row(row) for row in rows)]


def formula(bound: dict[str, Any]) -> str:
    """A bound as a reader wants it."""
    parts = [f"u ({bound['roundings']} A + out)"] if bound["unit"] else []
    parts.append(f"{number(bound['float32_share'])} min(A, 1)")
    if bound["grain"]:
        parts.append(f"{power(bound['grain'])} (sum of v + tokens)")
    return " + ".join(parts)


def power(value: float) -> str:
    """A power of two as such; a dash for zero."""
    return f"2^{round(math.log2(value))}" if value else NONE


def _row(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"
