"""`pagewalk drill interview`: begins a mock interview or goes on with one, and ends it with a score and a report."""

from __future__ import annotations

import os
import secrets
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.text import Text

from walkthroughs.commands.drill import FILE, clock, drill_errors, opened, the_bank
from walkthroughs.commands.drill_session import WIDTH, Keys
from walkthroughs.commands.interview_talk import Talk, left
from walkthroughs.commands.output import console, emit_json, json_option, notice, require_known
from walkthroughs.drills import interview as state
from walkthroughs.drills.asking import Bank
from walkthroughs.drills.interview import MINUTES, Interview
from walkthroughs.drills.interview_report import FOLDER, counted, report, report_file, unused
from walkthroughs.drills.interview_roles import ROLES, role
from walkthroughs.drills.interview_score import Answered, readings, recalled, score
from walkthroughs.drills.schedule import to_ms
from walkthroughs.drills.store import Store

FIRST = """A mock interview: {minutes}, for {role}.
Nobody listens: answer aloud, or type. Numbers and lines are graded at once; of
the rest you tick the points that you had. Your answers decide what comes next.
At the end: a score, and a report to keep. q leaves, and the same line goes on."""
PLACES = 5


@click.command("interview")
@click.option("--minutes", type=click.IntRange(1, 240), help=f"How long it is.  [default: {MINUTES}]")
@click.option("--role", "name", metavar="ROLE", help=f"For whom: {', '.join(ROLES)}.  [default: general]")
@click.option("--seed", type=click.IntRange(0, 2**31 - 1), help="The same seed and answers: the same interview.")
@click.option("--output", type=FILE, help="Where the report goes, a new Markdown file; else into your data folder.")
@click.option("--restart", is_flag=True, help="Leave the open interview, with a report of it, and begin another.")
@click.option("--end", is_flag=True, help="End the open interview now, with its score and report.")
@json_option
@drill_errors
def interview_command(
    minutes: int | None,
    name: str | None,
    seed: int | None,
    output: Path | None,
    restart: bool,
    end: bool,
    as_json: bool,
) -> None:
    """Hold a mock interview, for a score and a report.

    It is timed, and follows your answers up. One that you left goes on where it was.
    """
    if name is not None:
        require_known("role", name, ROLES, "pagewalk drill interview --help")
    if output is not None and os.path.lexists(output):
        raise click.UsageError(f"{output} is there already. Name another file for the report, or move this one away")
    bank, screen = the_bank(), console(stderr=as_json)
    wished = {"minutes": minutes, "role": name, "seed": seed}
    with opened() as store:
        kept = state.from_json(store.interview())
        kept = kept if kept is not None and kept.role in ROLES else None
        if kept is None and end:
            raise click.UsageError("no interview is open. `pagewalk drill interview` begins one")
        if kept is None:
            _set_aside(store)
        elif restart and not end:
            if kept.turns or kept.answer:
                notice(f"The one before has a report: {_written(store, bank, kept)[0]}")
            kept = None
        if kept is None:
            interview = _begun(wished, output)
            store.keep_interview(state.to_json(interview))
            length = counted(interview.minutes, "minute")
            screen.print(Text(FIRST.format(minutes=length, role=role(interview.role).title)))
        else:
            interview = _resumed(kept, {} if end else wished, output)
            store.keep_interview(state.to_json(interview))
            if not end:
                answers = counted(len(kept.turns), "answer")
                screen.print(Text(f"Your interview for {role(kept.role).title} goes on: {answers} so far."))
        talk = Talk(store, bank, interview, clock, screen, Keys(screen, plain=as_json))
        if end or talk.run():
            row = closed(store, bank, talk.interview, screen)
        else:
            row = as_row(talk.interview) | {"ended": False}
    if as_json:
        emit_json("interviews", [row])


def _begun(wished: dict[str, Any], output: Path | None) -> Interview:
    """A new interview, as it was wished for."""
    seed = secrets.randbelow(2**31) if wished["seed"] is None else wished["seed"]
    place = str(output.absolute()) if output else ""
    minutes = wished["minutes"] or MINUTES
    return Interview(seed, to_ms(clock()), minutes, wished["role"] or "general", output=place)


def _set_aside(store: Store) -> None:
    """Write an interview that cannot be read into the reports' folder, before another begins. Raises OSError."""
    from annotate.files import write_text

    if text := store.interview_text():
        name = f"unreadable-{clock().astimezone():%Y-%m-%d-%H%M%S}.json"
        path = unused(store.path.parent / FOLDER / name)
        write_text(path, text)
        notice(f"The interview that was open cannot be read; it is kept in {path}. Another begins.")


def _resumed(kept: Interview, wished: dict[str, Any], output: Path | None) -> Interview:
    """The open interview; refuses (exit 2) where another one was wished for."""
    for key, value in wished.items():
        if value is not None and value != getattr(kept, key):
            said = f"an interview with --{key} {getattr(kept, key)} is open, {left(kept)}"
            raise click.UsageError(f"{said}. Without --{key} it goes on; --restart begins another")
    return replace(kept, output=str(output.absolute())) if output else kept


def closed(store: Store, bank: Bank, interview: Interview, screen: Console) -> dict[str, Any]:
    """Write the report, say the score, and drop the interview; answers its JSON row. Raises OSError, and keeps it."""
    path, found = _written(store, bank, interview)
    result, wanted = score(found), readings(found, PLACES)
    width = min(screen.width, WIDTH)

    def say(text: str, style: str = "") -> None:
        screen.print(Text(text, style=style), width=width)

    say("")
    if found:
        questions, points = counted(result.all.questions, "question"), counted(result.all.of, "point")
        say(f"Score: {result.all.percent}, {result.all.had} of {points} in {questions}.", "bold")
        for part in (*result.kinds, *result.topics, *result.levels):
            say(f"  {part.title:<30}{part.percent:>6}   {part.had} of {part.of}")
    else:
        say("Nothing was answered, so there is no score.")
    if wanted:
        say("To read next, from the points that you missed:")
        for one in wanted:
            say(f"  {one.command}", "cyan")
    say("The report, with every question, your answers and the right ones:")
    screen.print(Text(str(path), overflow="fold"), soft_wrap=True)
    row = as_row(interview) | {"ended": True, "report": str(path), "score": result.all.share if found else None}
    row |= {name: [part.as_json() for part in getattr(result, name)] for name in ("kinds", "topics", "levels")}
    return row | {"read_next": [one.command for one in wanted]}


def _written(store: Store, bank: Bank, interview: Interview) -> tuple[Path, list[Answered]]:
    from annotate.files import write_text

    wished = report_file(interview, store.path.parent)
    path = unused(wished)
    if path != wished:
        notice(f"{wished} is there already and stays as it is; the report goes beside it.")
    found = recalled(interview, bank)
    write_text(path, report(interview, found))
    # Only now: an interview whose report could not be written is still there.
    store.keep_interview(None)
    return path, found


def as_row(interview: Interview) -> dict[str, Any]:
    """An interview as its JSON row, without a score."""
    row: dict[str, Any] = {"id": f"{interview.role}-{interview.seed}", "status": "passed"}
    row |= {name: getattr(interview, name) for name in ("role", "seed", "minutes", "spent", "started")}
    turns = interview.turns
    row["questions"] = [
        {"id": turn.item, "move": turn.move, "after": turn.parent, "seed": turn.seed, "took": turn.took}
        | {"answer": turn.answer, "had": list(turn.had), "of": turn.of}
        for turn in turns
    ]
    return row
