"""What the ladder's page says of the benchmark record: a rung's times on a few shapes, and all rungs side by side.

Nothing here is typed in: times, shares and registers come out of the record. A record that no longer matches the code
is shown and called stale; without one the page says so, and how to make one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kernels.tuned import bench_text
from kernels.tuned.bench_record import LIMIT, MEASURED, Cell, Record, Row, Set
from kernels.tuned.shapes import FOUR, WRITES
from walkthroughs import bench

from .errors import UnknownPageItem
from .inline import plain

NONE = "–"
MAKE_IT = "`make bench`, on a machine with a GPU, makes one."
WRITER, WRITER_PORT = "writer", "writer-port"
SHAPES = tuple(shape.id for shape in FOUR)
WRITE_SHAPES = tuple(shape.id for shape in WRITES)
HEAD = ("Shape", "Time, µs", "TB/s", "Of reading alone", "Against the rung below", "Registers", "Local bytes")
WRITER_HEAD = ("Shape", "Time, µs", "TB/s", "Of a copy", "Against vLLM's, ported", "Registers", "Local bytes")


def project_rung(rung: str) -> list[str]:
    """A rung of the project, or its writer, by the committed record; raises UnknownPageItem, RecordError."""
    from kernels.tuned.ladder import RUNGS

    order = list(RUNGS)
    below = {WRITER: WRITER_PORT, **dict(zip(order[1:], order, strict=False))}
    if rung not in {WRITER, *order}:
        raise UnknownPageItem("rung", rung, [*order, WRITER])
    record = bench.load()
    return rung_lines(record, _fresh(record), rung, below.get(rung))


def project_rungs() -> list[str]:
    """All rungs of the project by the committed record; raises RecordError."""
    from kernels.tuned.ladder import RUNGS

    record = bench.load()
    return ladder_lines(record, _fresh(record), {rung.id: rung.title for rung in RUNGS.values()})


def _fresh(record: Record) -> dict[str, bool]:
    return {made.id: bench.fresh(made) for made in record.sets.values()}


def rung_lines(record: Record, fresh: Mapping[str, bool], rung: str, below: str | None) -> list[str]:
    """A rung's rows as Markdown. `fresh`: for each set of the record, whether it matches the code."""
    found = [(cell, *row) for cell in cells(record) if (row := _row(cell, rung))]
    if not found:
        return ["", f"○ **Not yet measured.** There is no benchmark record of it. {MAKE_IT}", "{ .pw-hint }", ""]
    table = [_line([_name(cell), *_measured(cell, row, below)]) for cell, row in found]
    # A rung only reads the cache; what the writer reads it also writes, so its limit is another.
    head, limit = (WRITER_HEAD, "a copy") if rung == WRITER else (HEAD, "reading alone")
    words = _in_words(found, limit)
    return ["", *_where(record, fresh, rung), "", *_table(head, table), "", *_refused(found), "", words, ""]


def ladder_lines(record: Record, fresh: Mapping[str, bool], rungs: Mapping[str, str]) -> list[str]:
    """Every rung (id and title) in one table: TB/s on each shape, and the best of them marked."""
    shown = [cell for cell in cells(record) if cell.id in SHAPES]
    if not shown:
        return ["", f"○ **Not yet measured.** There is no benchmark record of the rungs. {MAKE_IT}", "{ .pw-hint }", ""]
    lines = []
    for number, (rung, title) in enumerate(rungs.items()):
        speeds = [_speed(cell, rung) for cell in shown]
        lines.append(_line([f"{number}. [{plain(title)}](#step-{rung})", *speeds]))
    limits = [f"{cell.limit.tbs:.2f}" if cell.limit and cell.limit.tbs else NONE for cell in shown]
    lines.append(_line(["Reading alone", *limits]))
    said = "TB/s: bytes of keys and values over time. Each row is a rung."
    head = ("Rung", *map(_name, shown))
    return ["", *_where(record, fresh, *rungs), "", said, "", *_table(head, lines), ""]


def cells(record: Record) -> list[Cell]:
    """The cells that the ladder shows, in the order of the shapes."""
    known = record.cells()
    return [known[name] for name in (*SHAPES, *WRITE_SHAPES) if name in known]


def _name(cell: Cell) -> str:
    """A shape by its name, and what it is: batch and context, query heads and KV heads, head size."""
    return plain(f"{cell.name} ({bench_text.shape(cell)})")


def _row(cell: Cell, who: str) -> tuple[Row] | None:
    found = next((row for row in cell.rows if row.who == who), None)
    return (found,) if found else None


def _measured(cell: Cell, row: Row, below: str | None) -> list[str]:
    if row.state != MEASURED or row.us is None:
        return [plain(row.state), *[NONE] * (len(HEAD) - 2)]
    ratio = cell.ratio(row.who, below) if below else None
    return [
        f"{row.us:,.0f}" if row.us >= 100 else f"{row.us:.1f}",
        _digits(row.tbs, 2),
        NONE if row.share is None else _share(row.share),
        f"{ratio:.2f} times as fast" if ratio else NONE,
        NONE if row.registers is None else str(row.registers),
        NONE if row.local_bytes is None else str(row.local_bytes),
    ]


def _speed(cell: Cell, rung: str) -> str:
    found = _row(cell, rung)
    if found is None:
        return NONE
    (row,) = found
    if row.state != MEASURED or row.tbs is None:
        return plain(row.state)
    best = max((other.tbs or 0.0 for other in cell.rows if other.kind != LIMIT and other.kind == row.kind), default=0.0)
    return f"**{row.tbs:.2f}**" if row.tbs == best else f"{row.tbs:.2f}"


def _refused(found: Sequence[tuple[Cell, Row]]) -> list[str]:
    rows = [(cell, row) for cell, row in found if row.state != MEASURED]
    return [f"* {plain(cell.name)}, {plain(row.state)}: {plain(row.reason)}" for cell, row in rows]


def _in_words(found: Sequence[tuple[Cell, Row]], limit: str) -> str:
    """What the rows say of a rung: where it is nearest to the limit, where furthest, and whether registers spill."""
    shares = sorted((row.share, _name(cell)) for cell, row in found if row.share is not None)
    said = []
    if len(shares) > 1:
        (least, far), (most, near) = shares[0], shares[-1]
        said.append(f"Nearest to {limit}: {near}, {_share(most)}. Furthest from it: {far}, {_share(least)}.")
    spilt = [row.local_bytes for _, row in found if row.local_bytes is not None]
    if spilt:
        said.append(
            f"Registers spill: up to {max(spilt):,} bytes of a thread lie in local memory." if any(spilt)
            else "Nothing spills: all that a thread holds lies in registers."
        )  # fmt: skip
    return " ".join(said)


def _where(record: Record, fresh: Mapping[str, bool], *rungs: str) -> list[str]:
    """Which runs the rows come from, and whether they still hold."""
    shown = {cell.id for cell in cells(record) if any(_row(cell, rung) for rung in rungs)}
    lines = []
    for made in _of(record, shown):
        ran = f"{plain(made.device)}, {plain(made.date[:10])}"
        if fresh.get(made.id):
            lines.append(f"✔ **Measured** on {ran}, by {_how(made)}; the record matches the code as it is now.")
        else:
            lines.append(f"⚠ **Stale:** measured on {ran}; the code has changed since.")
    return lines


def _of(record: Record, shown: set[str]) -> list[Set]:
    """The sets that the shown cells come from: of two with the same cell, the smaller, as in `Record.cells`."""
    home: dict[str, Set] = {}
    for made in sorted(record.sets.values(), key=lambda each: -len(each.cells)):
        home.update({cell.id: made for cell in made.cells if cell.id in shown})
    return list({made.id: made for made in home.values()}.values())


def _how(made: Set) -> str:
    ways = {row.how for cell in made.cells for row in cell.rows if row.how}
    return "graph replay" if ways == {"graph"} else " and ".join(sorted(ways)) or "no clock"


def _share(value: float) -> str:
    """A share in whole percent; a small one with a place more."""
    return f"{value:.1%}" if value < 0.02 else f"{value:.0%}"


def _digits(value: float | None, places: int) -> str:
    return NONE if value is None else f"{value:.{places}f}"


def _table(head: Sequence[str], lines: Sequence[str]) -> list[str]:
    return [_line(head), _line(["---", *["---:"] * (len(head) - 1)]), *lines]


def _line(parts: Sequence[str]) -> str:
    return f"| {' | '.join(parts)} |"
