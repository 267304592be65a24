"""The report of an interview, to keep: Markdown with every question, what was typed, the points, and what to read."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from itertools import chain, count
from pathlib import Path

from walkthroughs.drills.asking import places
from walkthroughs.drills.interview import MOVES, Interview
from walkthroughs.drills.interview_roles import role
from walkthroughs.drills.interview_score import Answered, Reading, Row, Score, readings, score
from walkthroughs.drills.schedule import from_ms

FOLDER = "interviews"


def report_file(interview: Interview, folder: Path) -> Path:
    """Where the report goes: the file that was wished for, else one in `folder` named by start, role and seed."""
    if interview.output:
        return Path(interview.output)
    started = from_ms(interview.started).astimezone()
    return folder / FOLDER / f"{started:%Y-%m-%d-%H%M%S}-{interview.role}-{interview.seed}.md"


def unused(path: Path) -> Path:
    """The path itself where nothing is there, else the first free name beside it: `name-2.md`, `name-3.md`."""
    names = (path.with_name(f"{path.stem}-{number}{path.suffix}") for number in count(2))
    return next(one for one in chain([path], names) if not os.path.lexists(one))


def report(interview: Interview, found: Sequence[Answered]) -> str:
    """The whole report. `found`: what `interview_score.recalled` made of the interview."""
    result = score(found)
    parts = [_head(interview, result), _tables(result), _reading(readings(found), bool(found))]
    if found:
        parts.append("## Questions")
    numbers = {one.item.id: one.number for one in found}
    parts += [_question(one, numbers.get(one.turn.parent, 0)) for one in found]
    if interview.answer:
        said = f"`{interview.item}` was answered, and its points were not ticked; it does not count."
        parts.append(f"## Left open\n\n{said}\n\n{_fenced(interview.answer)}")
    if lost := len(interview.turns) - len(found):
        parts.append(f"{counted(lost, 'question')} cannot be shown here: the bank of this machine does not have them.")
    return "\n\n".join(part for part in parts if part) + "\n"


def took(milliseconds: int) -> str:
    """A time in words: `45 s`, `2 min`, `1 min 40 s`."""
    minutes, seconds = divmod(round(milliseconds / 1000), 60)
    if not minutes:
        return f"{seconds} s"
    return f"{minutes} min {seconds} s" if seconds else f"{minutes} min"


def counted(count: int, word: str) -> str:
    """`1 question`, `2 questions`."""
    return f"{count} {word}" if count == 1 else f"{count} {word}s"


def _head(interview: Interview, result: Score) -> str:
    started = from_ms(interview.started).astimezone()
    every = result.all
    facts = [
        f"For {role(interview.role).title}",
        counted(len(interview.turns), "question"),
        f"{took(interview.spent)} of {interview.minutes} min",
        f"seed {interview.seed}",
    ]
    head = f"# Mock interview, {started:%Y-%m-%d %H:%M}\n\n{'; '.join(facts)}."
    if not every.questions:
        return f"{head}\n\nNothing was answered, so there is no score."
    return f"{head}\n\n**Score: {every.percent}** ({every.had} of {counted(every.of, 'point')})."


def _tables(result: Score) -> str:
    parts = [("Kind", result.kinds), ("Topic", result.topics), ("Level", result.levels)]
    tables = [_table(title, rows) for title, rows in parts if rows]
    explained = "A question counts the part of its points that you had; a graded one has one point."
    return "\n\n".join(["## Score", *tables, explained]) if tables else ""


def _table(title: str, rows: Sequence[Row]) -> str:
    lines = [f"| {title} | Questions | Points | Score |", "| --- | ---: | ---: | ---: |"]
    lines += [f"| {row.title} | {row.questions} | {row.had} of {row.of} | {row.percent} |" for row in rows]
    return "\n".join(lines)


def _reading(wanted: Sequence[Reading], asked: bool) -> str:
    if not asked:
        return ""
    if not wanted:
        return "## What to read next\n\nNo point was missed. `pagewalk drill` has more."
    lines = [
        f"{number}. `{one.command}` or the page `{one.page}` "
        f"(question{'s' if len(one.questions) > 1 else ''} {', '.join(map(str, one.questions))})"
        for number, one in enumerate(wanted, 1)
    ]
    return "\n".join(["## What to read next", "", "From the points that you missed:", "", *lines])


def _question(one: Answered, parent: int) -> str:
    turn, item = one.turn, one.item
    why = MOVES[turn.move] + (f", after question {parent}" if parent else "")
    parts = [
        f"### {one.number}. {item.title}",
        f"`{item.id}`, level {item.level}, {took(turn.took)}; {why}.",
        f"**Asked.** {one.question.text.strip()}",
        f"**You.**\n\n{_fenced(turn.answer)}" if turn.answer.strip() else f"**You.** {_silence(one)}",
    ]
    if turn.said:
        parts.append(f"**Graded.** {turn.said}")
    if one.question.form == "self":
        parts.append(_points(one))
    parts.append(f"**Answer.** {one.solution.answer.strip()}")
    parts += [one.solution.why.strip()]
    where = places(item.steps, item.concepts, item.claims) if one.question.form != "self" and one.missed() else []
    parts.append("\n".join(f"- `{place}`" for place in where))
    return "\n\n".join(part for part in parts if part)


def _silence(one: Answered) -> str:
    return "Aloud, or not at all." if one.question.form == "self" else "No answer."


def _points(one: Answered) -> str:
    lines = [f"**Points: {len(one.turn.had)} of {one.turn.of}.**", ""]
    for number, point in enumerate(one.points, 1):
        had = number in one.turn.had
        lines.append(f"- [{'x' if had else ' '}] {point.text}")
        if not had:
            lines += [f"    - `{place}`" for place in places(point.steps, point.concepts, point.claims)]
    return "\n".join(lines)


def _fenced(text: str) -> str:
    """What was typed, as it was typed: a fence that nothing in it can end."""
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}text\n{text}\n{fence}"
