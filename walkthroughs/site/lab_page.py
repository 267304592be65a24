"""What a page shows of the live lab: blocks in use of a scenario, the prediction a line, what vLLM did points upon it.

The points come out of the committed record, the line is computed anew. A badge says which machine the record is from;
one that no longer matches the code is shown and called stale.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from walkthroughs.lab import record
from walkthroughs.lab.chart import SIGNS
from walkthroughs.lab.predict import Event, Moment, predict
from walkthroughs.lab.record import Kept, Record
from walkthroughs.lab.scenarios import Scenario, scenarios

from .bench_svg import figure, svg, text
from .errors import UnknownPageItem

TOP, LEFT, RIGHT, BOTTOM, PLOT = 30.0, 34.0, 10.0, 64.0, 150.0
LEGEND = ("A admitted, H prefix hit, + a block more,", "P preempted, F freed")
MAKE_IT = "`make live-lab` and then `pagewalk lab run --record` make one."


def project_lab(name: str, stash: Callable[[str], str]) -> list[str]:
    """A scenario's chart with its badge, by the committed record, as Markdown; raises UnknownPageItem."""
    known = scenarios()
    if name not in known:
        raise UnknownPageItem("scenario", name, list(known))
    return lab_lines(known[name], record.load(), stash)


def lab_lines(scenario: Scenario, made: Record | None, stash: Callable[[str], str]) -> list[str]:
    """The same for any scenario and record."""
    kept = next((one for one in made.scenarios if one.id == scenario.id), None) if made else None
    if made is None or kept is None:
        return ["", f"○ **Not yet seen.** There is no record of it. {MAKE_IT}", "{ .pw-hint }", ""]
    state = f"{kept.steps} steps, {len(kept.mismatches)} mismatches"
    badge = f"**Seen on a {made.badge}**, {made.date[:10]}: {state}."
    if not record.fresh(made):
        badge = f"○ **Stale.** The lab has changed since this was seen ({made.badge}, {made.date[:10]}). {MAKE_IT}"
    moments = predict(scenario)
    caption = (
        f"Blocks in use after each step, blocks of {scenario.block_size}. Line: predicted. Points: vLLM's own count."
    )
    chart = figure(f"lab-{scenario.id}", lambda width: lab_svg(scenario, moments, kept, width), caption)
    return ["", badge, "{ .pw-hint }", "", stash(chart), ""]


def lab_svg(scenario: Scenario, moments: Sequence[Moment], kept: Kept, width: int) -> str:
    """One chart: steps to the right, blocks upwards, a letter under each step at which something happens."""
    most = max([1, *(moment.used for moment in moments), *kept.used])
    last = max(len(moments), len(kept.used), 2)

    def across(step: int) -> float:
        return LEFT + (width - LEFT - RIGHT) * (step - 1) / (last - 1)

    def up(blocks: int) -> float:
        return TOP + PLOT * (1 - blocks / most)

    body = [text(LEFT, 16, scenario.title, "bold")]
    for blocks in ticks(most):
        body.append(text(LEFT - 6, up(blocks) + 4, str(blocks), "small soft", ' text-anchor="end"'))
        body.append(f'<path class="empty" d="M{LEFT:.1f} {up(blocks):.1f}H{width - RIGHT:.1f}"/>')
    body.append(f'<path class="edge" d="{_line(moments, across, up)}"/>')
    body += [
        f'<circle class="head-first" cx="{across(step):.1f}" cy="{up(used):.1f}" r="{1.8 if last > 60 else 2.6}"/>'
        for step, used in enumerate(kept.used, 1)
    ]
    for moment in moments:
        if moment.events:
            said = "; ".join(f"{event.kind} {event.request}: {event.blocks}" for event in moment.events)
            words = text(across(moment.step), TOP + PLOT + 18, _sign(moment.events), "mono mid")
            body.append(words.replace("</text>", f"<title>step {moment.step}: {said}</title></text>"))
    body.append(text(LEFT, TOP + PLOT + 36, f"steps 1 to {len(moments)}", "small soft"))
    body += [text(LEFT + 90, TOP + PLOT + 36 + 14 * n, words, "small soft")
             for n, words in enumerate(LEGEND)]  # fmt: skip
    said = f"{len(moments)} steps; up to {most} blocks in use; {len(kept.mismatches)} steps differ from the prediction."
    return svg(f"lab-{scenario.id}", width, TOP + PLOT + BOTTOM, scenario.title, said, body)


def _line(moments: Sequence[Moment], across: Callable[[int], float], up: Callable[[int], float]) -> str:
    """The prediction as a path: level at each step, and upright between two that differ."""
    path = f"M{across(1):.1f} {up(moments[0].used):.1f}"
    for moment in moments[1:]:
        path += f"H{across(moment.step):.1f}V{up(moment.used):.1f}"
    return path


def _sign(events: Sequence[Event]) -> str:
    kinds = {event.kind for event in events}
    return next(sign for kind, sign in reversed(SIGNS.items()) if kind in kinds)


def ticks(most: int) -> list[int]:
    """At most six numbers from 0 to the most."""
    step = -(-most // 5)
    return [*range(0, most, step), most] if most % step else list(range(0, most + 1, step))
