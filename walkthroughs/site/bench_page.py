"""The benchmark's page: charts, goals and tables, all of them computed from the committed record.

Every cell is shown, lost ones too. A record that no longer matches the code is shown and called stale; without one the
page says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from html import escape

from kernels.tuned import goals, shapes
from kernels.tuned.bench_record import PEER, Cell, Record, Set
from kernels.tuned.bench_text import shape, size
from kernels.tuned.goals import MISSED, REACHED, Goal, figure
from walkthroughs import bench

from . import bench_chart, bench_matrix, bench_roofline, bench_svg, bench_tables
from .bench_axis import time_text
from .errors import UnknownPageItem
from .inline import plain
from .render import Stash

FEW = 12
MICROSECONDS = "Microseconds, and in small TB/s. Each cell with everything that was measured is folded below."
MAKE_IT = "`make bench`, on a machine with a GPU, makes one."
SIGNS = {REACHED: "✔ reached", MISSED: "✘ missed"}
OURS = bench_svg.OURS


@dataclass(frozen=True)
class Shown:
    """A record, for each set whether it matches the code, and the rungs' numbers by id."""

    record: Record
    fresh: Mapping[str, bool]
    numbers: Mapping[str, int]

    def cells(self, names: Iterable[str]) -> list[Cell]:
        """The cells of these ids that were measured, in this order."""
        known = self.record.cells()
        return [known[name] for name in names if name in known and known[name].limit]


def project_lines(part: str, stash: Stash) -> list[str]:
    """One part of the page by the committed record; raises UnknownPageItem, RecordError."""
    from kernels.tuned.ladder import RUNGS

    record = bench.load()
    fresh = {name: bench.fresh(made) for name, made in record.sets.items()}
    return lines(part, Shown(record, fresh, {rung.id: rung.number for rung in RUNGS.values()}), stash)


def lines(part: str, shown: Shown, stash: Stash) -> list[str]:
    """One part of the page, as Markdown; raises UnknownPageItem."""
    if part not in PARTS:
        raise UnknownPageItem("part of the benchmark", part, list(PARTS))
    if not shown.record.sets:
        return ["", f"○ **Not yet measured.** There is no record of this benchmark. {MAKE_IT}", "{ .pw-hint }", ""]
    return ["", *PARTS[part](shown, stash), ""]


def where(shown: Shown, stash: Stash) -> list[str]:
    """Which run each set comes from, what its memory can do, and what the peers are."""
    out: list[str] = []
    for name, made in shown.record.sets.items():
        ran = f"{plain(made.device)}, driver {plain(made.driver)}, {made.date[:10]}, {len(made.cells)} cells"
        state = f"✔ **{name}: {ran}.** The record matches the code as it is now." if shown.fresh.get(name) else (
            f"⚠ **Stale: {name}, measured on {ran};** the code has changed since.")  # fmt: skip
        out.append(f"* {state} {_limits(made)}")
    titles = {row.who: row.title for cell in shown.record.cells().values() for row in cell.rows}
    words = {who: said for made in shown.record.sets.values() for who, said in made.words.items()}
    out += ["", *(f"* {plain(titles.get(who, who))}: {plain(said)}." for who, said in words.items())]
    versions = {key: value for made in shown.record.sets.values() for key, value in made.versions.items()}
    return [*out, "", "Versions: " + ", ".join(f"{plain(key)} {plain(value)}" for key, value in versions.items()) + "."]


def _limits(made: Set) -> str:
    parts = (
        [f"a device copy reaches {made.copy.tbs:.2f} TB/s, read plus written"] if made.copy and made.copy.tbs else []
    )
    parts += [f"an empty launch takes {time_text(made.floor.us)}"] if made.floor and made.floor.us else []
    return f"There {' and '.join(parts)}." if parts else ""


def ladder_chart(shown: Shown, stash: Stash) -> list[str]:
    """The rungs on one shape."""
    found = shown.cells([shapes.LLAMA_8B.id])
    if not found:
        return []
    words = f"{found[0].name}: {shape(found[0])}, {size(found[0].moved)} of keys and values"
    draw = bench_chart.ladder(found[0], shown.numbers, words)
    said = "How many times as long as reading alone each rung takes: bars on a logarithmic scale, lines for the peers."
    return [stash(bench_svg.figure("ladder", draw, said))]


def roofline_chart(shown: Shown, stash: Stash) -> list[str]:
    """Every shape, bytes against time."""
    found = [cell for cell in shown.record.cells().values() if _decode(cell) and cell.row(OURS) and cell.limit]
    if not found:
        return []
    column = shown.cells([shapes.LLAMA_8B.id])
    floors = [made.floor.us for made in shown.record.sets.values() if made.floor and made.floor.us]
    draw = bench_roofline.roofline(found, column[0] if column else None, shown.numbers, min(floors, default=None))
    said = (
        "Each mark is one shape: right of others it moves more bytes, above others it takes longer. Nothing can be in "
        "the hatched part. The names belong to Llama-3-8B, 64 sequences of 4,096 tokens."
    )
    return [stash(bench_svg.figure("roofline", draw, said))]


def race_chart(shown: Shown, stash: Stash) -> list[str]:
    """The shapes of the facts and the goals, as shares of the limit."""
    wanted = [made.id for made in (*shapes.FACTS, *shapes.extra()) if made.query_len == 1]
    found = shown.cells(dict.fromkeys(wanted))
    if not found:
        return []
    draw = bench_chart.race(found, [cell.name or shape(cell) for cell in found])
    rows = [row for cell in found for row in cell.rows if row.kind == PEER and row.share is not None]
    others = dict.fromkeys(row.title for row in rows if row.who != bench_svg.RIVAL)
    said = (
        "The part of the read-only speed that each kernel reaches; that speed was measured in the same run, over the "
        f"same bytes. The others: {'; '.join(others) or 'none was there'}."
    )
    return [stash(bench_svg.figure("race", draw, said))]


def _sentence(text: str) -> str:
    """A sentence begins with a capital letter; a name, such as vLLM's or fp8, stays as it is."""
    first = text.split(" ", 1)[0]
    return text[:1].upper() + text[1:] if first.isalpha() and first.islower() else text


def goal_table(shown: Shown, stash: Stash) -> list[str]:
    """Every goal, what was measured, and the cells that missed."""
    found = goals.goals(shown.record)
    rows = [
        [
            escape(_sentence(goal.asked)),
            escape(goal.measured),
            SIGNS.get(goal.state, f"○ {goal.state}"),
        ]
        for goal in found
    ]
    out = [stash(bench_tables.table(["What was asked", "What was measured", ""], rows, "pw-goals"))]
    missed = [line for goal in found if goal.state == MISSED and len(goal.items) > 1 for line in _missed(goal)]
    return [*out, "", *(["Cells that missed theirs:", "", *missed] if missed else [])]


def _missed(goal: Goal) -> list[str]:
    short = [(item, item.value) for item in goal.known if not item.reached and item.value is not None]
    if len(short) > FEW:
        return [f"* {plain(goal.asked)}: {len(short)} cells, marked {bench_matrix.LOST} [below](#matrix)"]
    each = (f"{plain(item.name or item.cell)} {figure(value)} (asked {item.need:g})" for item, value in short)
    return [f"* {plain(goal.asked)}: {'; '.join(each)}"]


def cells_of(name: str) -> Callable[[Shown, Stash], list[str]]:
    """Every cell of a set: side by side, then each of them whole."""

    def part(shown: Shown, stash: Stash) -> list[str]:
        made = shown.record.sets.get(name)
        if made is None or not made.cells:
            return [f"○ **Not yet measured.** The record has no set `{name}`."]
        speeds = [MICROSECONDS] if any(cell.moved for cell in made.cells) else ["Microseconds."]
        return [*speeds, "", stash(bench_tables.overview(made.cells)), "",
                *(stash(bench_tables.whole(cell)) for cell in made.cells)]  # fmt: skip

    return part


def _decode(cell: Cell) -> bool:
    return "context" in cell.shape and cell.moved > 0


def matrix(shown: Shown, stash: Stash) -> list[str]:
    """The whole matrix."""
    made = shown.record.sets.get("matrix")
    if made is None:
        return ["○ **Not yet measured.** The record has no set `matrix`."]
    return bench_matrix.lines(made, stash)


PARTS: Mapping[str, Callable[[Shown, Stash], list[str]]] = {
    "where": where,
    "ladder": ladder_chart,
    "roofline": roofline_chart,
    "race": race_chart,
    "goals": goal_table,
    "matrix": matrix,
    "facts": cells_of("facts"),
    "asked": cells_of("goals"),
    "writer": cells_of("writer"),
    "host": cells_of("host"),
}
