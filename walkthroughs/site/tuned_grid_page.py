"""What the page says of the ladder's grid and sanitizers: counts, refusals and bounds of the committed records.

What each rung takes comes from its table, everything else from the records. A record that no longer matches the code is
shown and called stale; without one the page says so.
"""

from __future__ import annotations

import re
from typing import Any

from walkthroughs import grid, tuned_sanitizers
from walkthroughs.grid import TUNED
from walkthroughs.grid_workers import REFUSED

from .grid_page import NONE, power
from .inline import plain
from .proof import number

MAKE_GRID = "`make ladder-record`, on a machine with a GPU, makes one."
FINE = ("passed", REFUSED)
CLEAN_MARK, FOUND_MARK = "✔ clean", "✘"


def project_grid() -> list[str]:
    """The grid's section, of the committed record; raises EvidenceError."""
    record = grid.load(subject=TUNED)
    return grid_lines(record, record is not None and grid.fresh(record, TUNED))


def project_sanitizers() -> list[str]:
    """The sanitizers' section, of the committed record; raises EvidenceError."""
    record = tuned_sanitizers.load()
    return sanitizer_lines(record, record is not None and record["digest"] == tuned_sanitizers.sanitizers_digest())


def grid_lines(record: dict[str, Any] | None, fresh: bool) -> list[str]:
    """Where the grid ran, a row for each group, what was refused and why, the bounds."""
    if record is None:
        return ["", f"○ **Not yet measured.** There is no GPU record of this grid. {MAKE_GRID}", ""]
    calls = sum(group["runs"] for group in record["groups"])
    where = _where(record, fresh, f"{calls:,} calls")
    return ["", where, "", *_groups(record), "", *_outside(record), *_refusals(record), *_bounds(record["bounds"])]


def takes_lines() -> list[str]:
    """What each rung takes: its row of the table."""
    from kernels.tuned.ladder import RUNGS
    from kernels.tuned.takes import TAKES

    head = [
        "rung", "fp8 cache", "block size", "head size, a multiple of", "query heads a KV head",
        "tokens asked for at once", "longest sequence",
    ]  # fmt: skip
    rows = []
    for rung in RUNGS.values():
        takes = TAKES[rung.id]
        fp8 = any(kind != "auto" for kind in takes.kind)
        step = str(takes.head_step) + (f" ({takes.fp8_head_step} for fp8)" if fp8 else "")
        most = f"{takes.columns}, times tokens asked for" if takes.columns else takes.most_in_group or "any"
        asked = f"1 to {max(takes.query_len)}" if len(takes.query_len) > 1 else "1"
        blocks = ", ".join(map(str, takes.block_size))
        longest = f"{takes.longest:,}" if takes.longest else "any"
        cells = [plain(f"{rung.number}. {rung.title}"), "yes" if fp8 else "no", blocks, step, str(most), asked, longest]
        rows.append(cells)
    return ["", *_table(head, rows), ""]


def sanitizer_lines(record: dict[str, Any] | None, fresh: bool) -> list[str]:
    """A row for each rung, a column for each tool."""
    if record is None:
        return ["", f"○ **Not yet asked.** There is no GPU record of the sanitizers. {MAKE_GRID}", ""]
    tools = list(dict.fromkeys(row["tool"] for row in record["rows"]))
    answers = {(row["rung"], row["tool"]): row for row in record["rows"]}
    rungs = list(dict.fromkeys(row["rung"] for row in record["rows"]))
    rows = [[f"`{rung}`", *(_answer(answers.get((rung, tool))) for tool in tools)] for rung in rungs]
    said = [
        f"* {'◐' if row['result'] == tuned_sanitizers.EXPLAINED else FOUND_MARK} `{row['rung']}`, {row['tool']}: "
        f"{plain(row['note'][:300]) or row['result']}"
        for row in record["rows"]
        if row["result"] != tuned_sanitizers.CLEAN
    ]
    where = _where(record, fresh, f"{len(record['rows'])} runs")
    return ["", where, "", *_table(["rung", *tools], rows), "", *said, ""]


def _where(record: dict[str, Any], fresh: bool, what: str) -> str:
    ran = f"{plain(record['device'])}, {record['date'][:10]}: {what} in {record['seconds']:.0f} s."
    if fresh:
        return f"✔ **{ran}** The record matches the code as it is now."
    return f"⚠ **Stale:** the code has changed since the run on {ran}"


def _groups(record: dict[str, Any]) -> list[str]:
    head = ["grid", "cases passed", "refused, as they must be", "largest error", "its tolerance"]
    return _table(head, [_group(group) for group in record["groups"]])


def _group(group: dict[str, Any]) -> list[str]:
    worst = group["worst"]
    return [
        plain(group["title"]),
        f"{group['passed']}/{group['cases'] - group[REFUSED]}",
        str(group[REFUSED] or NONE),
        "not finite" if worst["error"] is None else number(worst["error"]),
        number(worst["tolerance"]),
    ]


def _outside(record: dict[str, Any]) -> list[str]:
    """Every case that neither passed nor had to be refused, by name."""
    said = [
        f"* ✘ {plain(group['title'])}, {plain(row[0])}: {row[3]}, "
        f"error {'not finite' if row[1] is None else number(row[1])}, tolerance {number(row[2])}"
        for group in record["groups"]
        for row in group["rows"]
        if row[3] not in FINE
    ]
    return ["**Not passed:**", "", *said, ""] if said else []


def _refusals(record: dict[str, Any]) -> list[str]:
    """The refusals in the rungs' own words: each kind once, with the rungs that say so and how often it came."""
    found: dict[str, list[str]] = {}
    for group in record["groups"]:
        for row in group["rows"]:
            if row[3] == REFUSED:
                found.setdefault(_kind(row[-1]), []).append(group["id"].removeprefix("vllm-"))
    rows = [
        [", ".join(f"`{rung}`" for rung in dict.fromkeys(rungs)), plain(words), str(len(rungs))]
        for words, rungs in found.items()
    ]
    return [*_table(["rungs", "refuse, in their own words", "cases"], rows), ""] if rows else []


def _kind(words: str) -> str:
    """A refusal without what differs from case to case: the value, and what it comes to."""
    name, _, rest = words.partition(" = ")
    _, must, what = rest.partition(": must")
    return f"{name}{must}{what}" if must else re.sub(r"\d+", "…", words)


def _bounds(bounds: list[dict[str, Any]]) -> list[str]:
    head = ["rungs", "dtype", "an output element may be off by", "u", "because"]
    rows = []
    for bound in bounds:
        rungs = ", ".join(f"`{rung}`" for rung in bound["rungs"])
        rows.append([rungs, bound["dtype"], f"`{formula(bound)}`", power(bound["unit"]), plain(bound["why"])])
    return [*_table(head, rows), ""]


def formula(bound: dict[str, Any]) -> str:
    """A bound as a reader wants it: A, u, out and v as on the page."""
    many = f"{bound['roundings']} A + " if bound["roundings"] > 1 else "A + " if bound["roundings"] else ""
    parts = [f"u ({many}out)" if many else "u out", f"{number(bound['float32_share'])} min(A, 1)"]
    if bound["port"] == "v2":
        parts.append("u A, with partitions")
    if bound["grain"]:
        more = "sum of v + tokens" if bound["port"] else "sum of v + 1" if bound["roundings"] else "1"
        parts.append(f"{power(bound['grain'])} ({more})" if more != "1" else power(bound["grain"]))
    return " + ".join(parts)


def _answer(row: dict[str, Any] | None) -> str:
    if row is None:
        return NONE
    known = {tuned_sanitizers.CLEAN: CLEAN_MARK, tuned_sanitizers.EXPLAINED: "◐ see below"}
    return known.get(row["result"], f"{FOUND_MARK} {row['result']}")


def _table(head: list[str], rows: list[list[str]]) -> list[str]:
    return [f"| {' | '.join(cells)} |" for cells in (head, ["---"] * len(head), *rows)]
