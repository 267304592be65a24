"""The roofline: bytes moved against time, with the limits drawn. Below them is nothing: no kernel beats the memory."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kernels.tuned.bench_record import Cell

from .bench_axis import Log, dodge, time_text
from .bench_svg import OURS, RIVAL, WIDE, Bar, Draw, bars, dot, line, square, svg, text

TITLE = "Bytes moved against time"


@dataclass(frozen=True)
class _Plot:
    """The axes and limits of one drawing: bytes a microsecond (`speed`) and the least time (`floor`)."""

    width: int
    x: Log
    y: Log
    speed: float
    floor: float

    @property
    def wide(self) -> bool:
        """Whether there is room at the right."""
        return self.width == WIDE

    def at(self, moved: float, us: float) -> tuple[float, float]:
        """The place of so many bytes in so many microseconds."""
        return self.x(moved), self.y(us)

    def limit(self, moved: float) -> float:
        """The least time for so many bytes."""
        return max(self.floor, self.y.low, moved / self.speed)


def roofline(cells: Sequence[Cell], column: Cell | None, numbers: Mapping[str, int], floor: float | None) -> Draw:
    """The ring and FlashInfer on every cell, and on one of them every rung and peer with its name.

    `cells`: at least one, each with bytes and a measured time; `floor`: microseconds of a launch that does nothing.
    """
    fastest = max([cell.limit.tbs for cell in cells if cell.limit and cell.limit.tbs] or [4.0])
    named = bars(column, numbers) if column else ([], [])
    spoken = "; ".join(f"{bar.title} {time_text(bar.us)}" for part in named for bar in part)
    said = (
        "Time against bytes of keys and values, both logarithmic. The limit rises with the bytes: reading alone "
        f"reaches {fastest:.2f} TB/s{f', and a launch takes {time_text(floor)}' if floor else ''}. "
        f"{len(cells)} shapes{f'. On {column.name}: {spoken}' if column else ''}."
    )

    def draw(width: int) -> str:
        height = 560.0 if width == WIDE else 540.0
        plot = _plot(cells, width, height, fastest * 1e6, floor or 0.0)
        body = [text(8, 20, TITLE, "bold title"), *_legend(plot.wide), *_grid(plot), *_limits(plot)]
        body += _marks(cells, plot)
        body += _column(column.moved, named, plot) if column else []
        return svg("roofline", width, height, TITLE, said, body)

    return draw


def _plot(cells: Sequence[Cell], width: int, height: float, speed: float, floor: float) -> _Plot:
    wide = width == WIDE
    left, right, top, bottom = 52.0 if wide else 46.0, width - (222.0 if wide else 12.0), 58.0, height - 44.0
    moved = [cell.moved for cell in cells]
    times = [row.us for cell in cells for row in cell.rows if row.us]
    least = 0.55 * min([floor or math.inf, *times])
    x = Log(min(moved) * 0.5, max(moved) * 2, left, right)
    return _Plot(width, x, Log(least, max(times) * 1.6, bottom, top), speed, floor)


def _legend(wide: bool) -> list[str]:
    words = "FlashInfer, tensor cores" + (": every shape that was measured" if wide else "")
    return [dot(13, 34, 3.4), square(90, 34, 3.5), text(22, 38, "the ring", "small"), text(99, 38, words, "small")]


def _grid(plot: _Plot) -> list[str]:
    x, y = plot.x, plot.y
    out = []
    for value, tick in x.decades():
        out += [line(tick, y.end, tick, y.start, "grid"), text(tick, y.start + 16, _bytes(value), "small soft mid")]
    for value, tick in y.decades():
        out += [
            line(x.start, tick, x.end, tick, "grid"),
            text(x.start - 6, tick + 4, time_text(value), "small soft end"),
        ]
    return [*out, text(x.end, y.start + 34, "bytes of keys and values", "small soft end")]


def _limits(plot: _Plot) -> list[str]:
    """What reading alone takes, flat where a launch takes longer, and where a tenth of that speed lies."""
    x, y = plot.x, plot.y
    knee = max(plot.floor, y.low) * plot.speed
    bytes_at = [x.low, *([knee] if x.low < knee < x.high else []), x.high]
    path = [plot.at(moved, min(y.high, plot.limit(moved))) for moved in bytes_at]
    points = " ".join(f"{px:.1f},{py:.1f}" for px, py in path)
    corners = f"{x.end:.1f},{y.start:.1f} {x.start:.1f},{y.start:.1f}"
    (x1, y1), (x2, y2) = path[-2], path[-1]
    tilt = math.degrees(math.atan2(y2 - y1, x2 - x1))
    part = 0.3 if plot.wide else 0.27
    place = f"translate({x1 + (x2 - x1) * part + 10:.1f} {y1 + (y2 - y1) * part + 14:.1f}) rotate({tilt:.1f})"
    out = [
        f'<polygon fill="url(#roofline-{plot.width}-hatch)" points="{points} {corners}"/>',
        f'<polyline class="limit" points="{points}"/>',
        f'<text class="small bold halo mid" transform="{place}">reading alone: {plot.speed / 1e6:.2f} TB/s</text>',
    ]
    if plot.floor and len(path) > 2:
        words = f"an empty launch: {time_text(plot.floor)}"
        out.append(text(x.start + 6, y1 + 16, words, "small bold halo"))
    first, last = max(x.low, y.low * plot.speed / 10), min(x.high, y.high * plot.speed / 10)
    if first < last:
        ends = [plot.at(moved, moved / plot.speed * 10) for moved in (first, last)]
        out.append(line(*ends[0], *ends[1], "guide"))
        out.append(text(ends[1][0] - 8, ends[1][1] + 12, "a tenth of it", "small soft halo end"))
    return out


def _marks(cells: Sequence[Cell], plot: _Plot) -> list[str]:
    """Rivals first, so that our own stay visible; of marks that would cover each other, one."""
    seen: set[tuple[str, int, int]] = set()
    out = []
    for who in (RIVAL, OURS):
        for cell in cells:
            row = cell.row(who)
            if row is None or row.us is None:
                continue
            place = plot.at(cell.moved, row.us)
            if (key := (who, round(place[0]), round(place[1]))) not in seen:
                seen.add(key)
                out.append(dot(*place, 3) if who == OURS else square(*place, 3.5))
    return out


def _column(moved: int, named: tuple[list[Bar], list[Bar]], plot: _Plot) -> list[str]:
    """Every kernel of one shape with its name: rungs at the left; peers at the right where there is room."""
    x, y = plot.x, plot.y
    at = x(moved)
    rungs, peers = named
    every = sorted([*rungs, *peers], key=lambda bar: -bar.us)
    out = []
    for chosen, right in [(rungs, False), (peers, True)] if plot.wide else [(every, False)]:
        ordered = sorted(chosen, key=lambda bar: -bar.us)
        edge = x.end + 10 if right else at - (70 if plot.wide else 58)
        places = dodge([y(bar.us) for bar in ordered], 15 if plot.wide else 13, y.end + 8, y.start - 60)
        for bar, place in zip(ordered, places, strict=True):
            tone = "" if bar.sign else " info"
            sign = f"{bar.sign} · " if bar.sign else ""
            words = f"{sign}{bar.title if plot.wide else bar.short}  {time_text(bar.us)}"
            out.append(line(at + (6 if right else -6), y(bar.us), edge + (-3 if right else 3), place, f"lead{tone}"))
            out.append(text(edge, place + 4, words, f"small halo {'' if right else 'end'} {tone} {bar.tone}"))
    out += [square(at, y(bar.us), 4, bar.tone) for bar in peers]
    return [*out, *(f'<circle class="step{bar.tone}" cx="{at:.1f}" cy="{y(bar.us):.1f}" r="4.6"/>' for bar in rungs)]


def _bytes(value: float) -> str:
    for unit, many in (("GB", 1e9), ("MB", 1e6), ("KB", 1e3)):
        if value >= many:
            return f"{value / many:g} {unit}"
    return f"{value:g} B"
