"""What a page shows of `lab serve`: a phase's requests, its questions, and its readings upon what they may be.

The line of a single request is computed anew, and so are the bounds of several, from how far each was at a reading.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape

from walkthroughs.lab import serve_record
from walkthroughs.lab.chart import SIGNS, WORDS
from walkthroughs.lab.phases import BLOCK_SIZE, NOT_SENT, NUM_BLOCKS, Mark, Outcome, Phase, Sample, marks, phases
from walkthroughs.lab.questions import questions
from walkthroughs.lab.scenarios import NULL_BLOCKS
from walkthroughs.lab.serve_record import Kept, Record

from .bench_svg import figure, svg, text
from .errors import UnknownPageItem
from .lab_page import LEFT, PLOT, RIGHT, TOP, ticks

BOTTOM, APART = 52.0, 9.0
MAKE_IT = "`make live-lab` and then `pagewalk lab serve --record` make one."
ORDER = ("hit", "admitted", "freed", "edge")
"""Whose mark stands where there is room for one only."""
Scale = Callable[[int], float]


def project_phase(name: str, stash: Callable[[str], str]) -> list[str]:
    """A phase with its chart and badge, by the committed record, as Markdown; raises UnknownPageItem."""
    known = {phase.id: phase for phase in phases()}
    if name not in known:
        raise UnknownPageItem("phase of `lab serve`", name, list(known))
    return phase_lines(known[name], serve_record.load(), stash)


def phase_lines(phase: Phase, made: Record | None, stash: Callable[[str], str]) -> list[str]:
    """The same for any phase and record."""
    asked = [f"* {ask.name}: {len(ask.prompt)} tokens in the prompt, generates {ask.generate}" for ask in phase.asks]
    first = ["", *asked, "", f"{NUM_BLOCKS - NULL_BLOCKS} blocks of {BLOCK_SIZE} tokens. What would you say?", ""]
    first += [f"{n}. {question.text}" for n, question in enumerate(questions(phase), 1)]
    kept = next((one for one in made.phases if one.id == phase.id), None) if made else None
    if made is None or kept is None:
        hint = f"○ **Not yet seen.** There is no record of it. {MAKE_IT}"
        return [*first, "", stash(_answers(phase, None)), "", hint, "{ .pw-hint }", ""]
    caption = (
        f"Blocks in use over the tokens that were generated. {'Line' if phase.line() else 'Band'}: predicted"
        f"{'' if phase.line() else ', the least and the most'}. Points: what the server's metrics said, "
        f"{len(kept.samples)} of {kept.readings} readings."
    )
    chart = figure(f"serve-{phase.id}", lambda width: phase_svg(phase, kept, width), caption)
    return [*first, "", stash(_answers(phase, kept)), "", _badge(made, kept), "{ .pw-hint }", "", stash(chart), ""]


def _badge(made: Record, kept: Kept) -> str:
    if not serve_record.fresh(made):
        return f"○ **Stale.** The lab has changed since this was seen ({made.badge}, {made.date[:10]}). {MAKE_IT}"
    said = [f"{kept.fit} of {kept.readings} readings fit, {kept.exact} of them predicted exactly"]
    said += [f"tokens found in the prefix cache: {kept.hits}", f"blocks in use at the end: {kept.left}"]
    wrong = f" **Not as predicted:** {'; '.join(kept.problems)}." if kept.problems else ""
    return f"**Seen on a {made.badge}**, {made.date[:10]}: {'; '.join(said)}.{wrong}"


def _answers(phase: Phase, kept: Kept | None) -> str:
    """The questions' answers, folded up: the number, the sum behind it, and what was read."""
    outcome = Outcome(phase, list(kept.samples), kept.hits, kept.left) if kept else None
    items = [
        f"<li><strong>{question.answer}</strong>: {escape(question.why)}"
        + (f"; {escape(question.read(outcome))}" if outcome else "")
        + "</li>"
        for question in questions(phase)
    ]
    return f"<details><summary>The answers</summary><ol>{''.join(items)}</ol></details>"


def phase_svg(phase: Phase, kept: Kept, width: int) -> str:
    """One chart: tokens to the right, blocks upwards, a letter under each token at which something happens."""
    samples, end = kept.samples, phase.generate
    most = max([1, kept.most, *(high for _, high in bounds(phase, samples))])

    def across(tokens: int) -> float:
        return LEFT + (width - LEFT - RIGHT) * tokens / end

    def up(blocks: int) -> float:
        return TOP + PLOT * (1 - blocks / most)

    body = [text(LEFT, 16, phase.title, "bold")]
    for blocks in ticks(most):
        body.append(text(LEFT - 6, up(blocks) + 4, str(blocks), "small soft", ' text-anchor="end"'))
        body.append(f'<path class="empty" d="M{LEFT:.1f} {up(blocks):.1f}H{width - RIGHT:.1f}"/>')
    body += _predicted(phase, samples, across, up)
    read = [*((sample.generated, sample.used) for sample in samples), (end, kept.left)]
    body += [f'<circle class="head-first" cx="{across(n):.1f}" cy="{up(used):.1f}" r="2"/>' for n, used in read]
    groups = _groups(phase, marks(phase, samples, over=True), across)
    body += [_sign(phase, group, across) for group in groups]
    body.append(text(LEFT, TOP + PLOT + 34, f"tokens 0 to {end}", "small soft"))
    shown = {group[0].kind for group in groups}
    words = ", ".join(f"{SIGNS[kind]} {WORDS[kind]}" for kind in SIGNS if kind in shown)
    body.append(text(LEFT + 100, TOP + PLOT + 34, words, "small soft"))
    said = f"{end} tokens; up to {kept.most} blocks in use; {kept.fit} of {kept.readings} readings fit."
    return svg(f"serve-{phase.id}", width, TOP + PLOT + BOTTOM, phase.title, said, body)


def bounds(phase: Phase, samples: Sequence[Sample]) -> list[tuple[int, int]]:
    """The least and the most blocks in use at every number of tokens, computed anew.

    From what had come of each request by the last reading before; whom the next one knows of has been sent.
    """
    known = [tuple(NOT_SENT for _ in phase.asks), *(sample.received for sample in samples)]
    begins = [0, *(sample.generated for sample in samples)]
    following = [*known[1:], tuple(0 for _ in phase.asks)]
    found = []
    for n in range(phase.generate):
        place = max(index for index, generated in enumerate(begins) if generated <= n)
        sent = [
            max(count, 0) if later != NOT_SENT else count
            for count, later in zip(known[place], following[place], strict=True)
        ]
        found.append(phase.expected(n, sent))
    return [*found, (0, 0)]


def _predicted(phase: Phase, samples: Sequence[Sample], across: Scale, up: Scale) -> list[str]:
    """The prediction: one line for one request; for several the least and the most, and the ground between them."""
    if line := phase.line():
        return [f'<path class="edge" d="{_stairs([(n, blocks) for n, blocks in enumerate(line)], across, up)}"/>']
    found = bounds(phase, samples)
    low, high = ([*enumerate(side)] for side in zip(*found, strict=True))
    ground = f"{_stairs(high, across, up)}{_back(low, across, up)}Z"
    return [f'<path class="second" style="stroke-dasharray:none;stroke-width:0.8" d="{ground}"/>']


def _stairs(points: Sequence[tuple[int, int]], across: Scale, up: Scale) -> str:
    """A path that is level up to each point, and upright where two differ; level stretches are joined."""
    path, level = f"M{across(points[0][0]):.1f} {up(points[0][1]):.1f}", points[0][1]
    for tokens, blocks in points[1:]:
        if blocks != level:
            path += f"H{across(tokens):.1f}V{up(blocks):.1f}"
            level = blocks
    return f"{path}H{across(points[-1][0]):.1f}"


def _back(points: Sequence[tuple[int, int]], across: Scale, up: Scale) -> str:
    """The same stairs from their end to their beginning, as what follows in a path."""
    path = f"V{up(points[-1][1]):.1f}"
    for (tokens, blocks), (_, before) in zip(reversed(points), reversed(points[:-1]), strict=False):
        if before != blocks:
            path += f"H{across(tokens):.1f}V{up(before):.1f}"
    return f"{path}H{across(points[0][0]):.1f}"


def _groups(phase: Phase, happened: Sequence[Mark], across: Scale) -> list[list[Mark]]:
    """The events that find room, each a letter, the rarer kinds first.

    Of several requests those of one kind that are close stand together.
    """
    several, groups = len(phase.asks) > 1, list[list[Mark]]()
    room = 3 * APART if several else APART
    for mark in sorted(happened, key=lambda mark: ORDER.index(mark.kind)):
        near = [group for group in groups if abs(across(group[0].generated) - across(mark.generated)) < room]
        if not near:
            groups.append([mark])
        elif several and near[0][0].kind == mark.kind:
            near[0].append(mark)
    return groups


def _sign(phase: Phase, group: Sequence[Mark], across: Scale) -> str:
    """A letter, of several requests with their names as `Abc`, and what it says where a pointer rests."""
    said = "; ".join(f"token {mark.generated}: {WORDS[mark.kind]}, {mark.request}" for mark in group)
    sign = SIGNS[group[0].kind] + ("".join(mark.request for mark in group) if len(phase.asks) > 1 else "")
    words = text(across(group[0].generated), TOP + PLOT + 18, sign, "mono mid")
    return words.replace("</text>", f"<title>{said}</title></text>")
