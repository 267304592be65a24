"""Two of the benchmark's charts: the ladder, rung by rung down to the limit, and how near each shape comes to it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kernels.tuned.bench_record import PEER, RUNG, Cell

from .bench_axis import Log, dodge, time_text, times_text, wrapped
from .bench_svg import NARROW, OURS, RIVAL, WIDE, Bar, Draw, bars, dot, line, rect, square, svg, text, triangle

TITLE = "The ladder, down to the limit"
RACE = "How near to reading alone"


def ladder(cell: Cell, numbers: Mapping[str, int], shape: str) -> Draw:
    """The rungs of one shape as bars down to its limit, the peers as lines across.

    A bar's length is how many times the limit it takes, on a logarithmic scale that begins at one.
    """
    rungs, peers = bars(cell, numbers)
    limit = cell.limit.us if cell.limit and cell.limit.us else 1.0
    each = (f"{bar.title}: {time_text(bar.us)}, {times_text(bar.us / limit)} the limit" for bar in (*rungs, *peers))
    said = f"{shape}. The limit, reading the keys and values once: {time_text(limit)}. {'; '.join(each)}."

    def draw(width: int) -> str:
        height, body = (_rows if width == NARROW else _columns)(width, limit, rungs, peers)
        return svg("ladder", width, height, TITLE, said, [text(8, 20, TITLE, "bold title"),
                                                          text(8, 38, shape, "small soft"), *body])  # fmt: skip

    return draw


def _columns(width: int, limit: float, rungs: Sequence[Bar], peers: Sequence[Bar]) -> tuple[float, list[str]]:
    """For a screen: columns that come down, the peers' names at the right."""
    left, right, top, bottom = 52.0, width - 218.0, 78.0, 452.0
    axis = Log(limit, 1.15 * max([limit * 2, *(bar.us for bar in (*rungs, *peers))]), bottom, top)
    out = [text(8, top - 22, "times the limit", "small soft")]
    for factor, tick in axis.factors(limit):
        out += [line(left, tick, right, tick, "grid"), text(left - 8, tick + 4, f"{factor:g}×", "small soft end")]
    step = (right - left) / max(1, len(rungs))
    for number, bar in enumerate(rungs):
        x, y = left + step * (number + 0.5), axis(bar.us)
        out.append(rect(x - step * 0.35, y, step * 0.7, bottom - y, f"bar{bar.tone}"))
        out.append(text(x, bottom + 42, bar.sign, f"bold mid {bar.tone}"))
        for at, words in enumerate(wrapped(bar.title, max(9, int(step / 6.4)))[:4]):
            out.append(text(x, bottom + 58 + 14 * at, words, "small mid"))
    for bar, place in zip(peers, dodge([axis(bar.us) for bar in peers], 15, top, bottom + 12), strict=True):
        y = axis(bar.us)
        out += [line(left, y, right, y, f"peer{bar.tone}"), line(right, y, right + 14, place, f"lead info{bar.tone}")]
        out.append(text(right + 18, place + 4, f"{bar.title}  {time_text(bar.us)}", f"small info {bar.tone}"))
    for number, bar in enumerate(rungs):
        x, y = left + step * (number + 0.5), axis(bar.us)
        out.append(text(x, y - 18, time_text(bar.us), f"bold mid halo {bar.tone}"))
        out.append(text(x, y - 5, times_text(bar.us / limit), f"small mono mid halo {bar.tone}"))
    out += [rect(left, bottom, right - left, 24, fill=f"url(#ladder-{WIDE}-hatch)"),
            line(left, bottom, right, bottom, "limit")]  # fmt: skip
    words = f"the limit: reading every key and value once takes {time_text(limit)}"
    return bottom + 118, [*out, text(left + 8, bottom + 16, words, "small bold halo")]


def _rows(width: int, limit: float, rungs: Sequence[Bar], peers: Sequence[Bar]) -> tuple[float, list[str]]:
    """For a phone: rows that grow shorter; the peers' names stand above, each at its line."""
    left, right, top = 10.0, width - 10.0, 66.0 + 15 * len(peers)
    axis = Log(limit, 1.05 * max([limit * 2, *(bar.us for bar in (*rungs, *peers))]), left, right)
    bottom = top + 36.0 * len(rungs) + 4
    out = []
    for factor, tick in axis.factors(limit):
        out += [line(tick, top, tick, bottom, "grid"), text(tick, bottom + 15, f"{factor:g}×", "small soft mid")]
    for number, bar in enumerate(peers):
        x, y = axis(bar.us), 66.0 + 15 * number
        far = x > width / 2
        out.append(line(x, y - 9, x, bottom, f"peer{bar.tone}"))
        words = f"{bar.title} {time_text(bar.us)}"
        out.append(text(x + (-5 if far else 5), y, words, f"small info halo {'end' if far else ''} {bar.tone}"))
    for number, bar in enumerate(rungs):
        y = top + 36.0 * number
        times = f"{time_text(bar.us)}  {times_text(bar.us / limit)}"
        out.append(rect(left, y + 18, max(2.0, axis(bar.us) - left), 12, f"bar{bar.tone}"))
        out.append(text(left + 7, y + 13, f"{bar.sign} · {bar.title}", f"halo {bar.tone}"))
        out.append(text(right, y + 13, times, f"mono bold end halo {bar.tone}"))
    words = f"left edge: the limit, {time_text(limit)} to read every key and value"
    return bottom + 42, [*out, line(left, top - 4, left, bottom, "limit"),
                         text(left, bottom + 32, words, "small soft")]  # fmt: skip


def race(cells: Sequence[Cell], shapes: Sequence[str]) -> Draw:
    """For each cell what part of the read-only speed the ring and its peers reach; `shapes`: the cells in words.

    Linear, so that what is near the limit stays apart.
    """
    said = "; ".join(f"{words}: {_spoken(cell)}" for cell, words in zip(cells, shapes, strict=True))

    def draw(width: int) -> str:
        wide = width == WIDE
        left, right, top = (250.0 if wide else 12.0), width - (54.0 if wide else 46.0), 66.0
        step = 30.0 if wide else 44.0
        bottom = top + step * len(cells)
        out = [text(8, 20, RACE, "bold title"), *_legend()]
        for part in range(0, 101, 20):
            tick = left + (right - left) * part / 100
            out.append(line(tick, top, tick, bottom, "grid" if part < 100 else "limit"))
            out.append(text(tick, bottom + 16, f"{part} %", "small soft mid"))
        for number, (cell, words) in enumerate(zip(cells, shapes, strict=True)):
            y = top + step * number + (step / 2 if wide else step - 14)
            out += [text(8, y + 4 if wide else y - 13, words, "halo"), *_runners(cell, left, right, y)]
        return svg("race", width, bottom + 30, RACE, said, out)

    return draw


def _legend() -> list[str]:
    marks = [dot(13, 36), square(90, 36, kind=" rival"), triangle(258, 36.5)]
    return [*marks, text(22, 40, "the ring", "small"), text(99, 40, "FlashInfer, tensor cores", "small"),
            text(268, 40, "the others", "small")]  # fmt: skip


def _runners(cell: Cell, left: float, right: float, y: float) -> list[str]:
    """The marks of one row: the ring last, so that nothing covers it."""
    rows = [row for row in cell.rows if row.share is not None and (row.kind == PEER or row.who == OURS)]
    out = [line(left, y, right, y, "track")]
    for row in sorted(rows, key=lambda row: (row.who == OURS, row.who == RIVAL)):
        share = row.share or 0.0
        x = left + (right - left) * min(1.03, share)
        if row.who == OURS:
            out += [dot(x, y), text(right + 10, y + 4, f"{100 * share:.0f} %", "mono bold best")]
        else:
            out.append(square(x, y, kind=" rival") if row.who == RIVAL else triangle(x, y, row.title))
    return out


def _spoken(cell: Cell) -> str:
    rows = [row for row in cell.rows if row.share is not None and (row.kind != RUNG or row.who == OURS)]
    return ", ".join(f"{row.title} {100 * (row.share or 0):.0f} %" for row in rows) or "nothing measured"
