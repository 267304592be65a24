"""`pagewalk drill`: a sitting of interview questions, and everything about the bank and the answers kept."""

from __future__ import annotations

import functools
import importlib
import json
import secrets
from collections import Counter
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec

import click

from walkthroughs.commands.output import (
    console,
    emit_json,
    json_option,
    notice,
    print_rows,
    reports_errors,
    require_known,
)

if TYPE_CHECKING:
    from walkthroughs.drills.asking import Bank
    from walkthroughs.drills.item import Item
    from walkthroughs.drills.log import Entry
    from walkthroughs.drills.store import Store

P = ParamSpec("P")
FIRST = """Interview questions on how PagedAttention kernels work: about ten minutes.
Answer aloud or type. Numbers and source lines are graded; the rest you judge by
a model answer. Then 1 to 4 say how well you knew it, and so when it is back.
Each answer is kept at once. q leaves, and `pagewalk drill` goes on from there."""
FILE = click.Path(dir_okay=False, path_type=Path)
kind_option = click.option("--kind", "kinds", multiple=True, metavar="KIND", help="Only this kind; may be repeated.")


def drill_errors(command: Callable[P, None]) -> Callable[P, None]:
    """Like `reports_errors`, and a drill's own errors end in one line, too."""

    @functools.wraps(command)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> None:
        from walkthroughs.drills.errors import DrillError

        try:
            command(*args, **kwargs)
        except DrillError as error:
            raise click.ClickException(str(error)) from error

    return reports_errors(wrapper)


def clock() -> datetime:
    """The time here and now, with its time zone."""
    return datetime.now().astimezone()


def the_bank() -> Bank:
    """The bank of drills."""
    from walkthroughs.drills import bank

    return bank


def opened() -> Store:
    """The reader's answers."""
    from walkthroughs.drills.store import Store, store_file

    return Store(store_file())


ELSEWHERE = {
    "interview": "drill_interview",
    **dict.fromkeys(("fix", "check", "watch", "hint", "solution"), "drill_fix"),
}
"""Commands with a module of their own under walkthroughs.commands, where NAME_command is; imported on use."""


class DrillGroup(click.Group):
    """The group, with the commands that live elsewhere."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Every name, in order."""
        return sorted({*super().list_commands(ctx), *ELSEWHERE})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """One command, or None."""
        if cmd_name not in ELSEWHERE:
            return super().get_command(ctx, cmd_name)
        module = importlib.import_module(f"walkthroughs.commands.{ELSEWHERE[cmd_name]}")
        command: click.Command = getattr(module, f"{cmd_name}_command")
        return command


@click.group("drill", cls=DrillGroup, invoke_without_command=True)
@click.option("--new", "limit", type=click.IntRange(min=0), help="New items in this session, at most.  [default: 10]")
@kind_option
@click.option("--seed", type=click.IntRange(0, 2**31 - 1), help="Ask with the numbers of this seed.")
@click.option("--restart", is_flag=True, help="Leave the open session, and begin another.")
@click.pass_context
@drill_errors
def drill_command(
    ctx: click.Context, limit: int | None, kinds: tuple[str, ...], seed: int | None, restart: bool
) -> None:
    """Be asked as in an interview, and graded by running code.

    Without a command: a session, or the one that you left. What is due comes first, then new questions.
    """
    if ctx.invoked_subcommand is not None:
        return
    from walkthroughs.commands.drill_session import Keys, Sitting, open_session

    bank, screen = the_bank(), console()
    require_kinds(kinds, bank)
    with opened() as store:
        if store.empty():
            click.echo(FIRST)
        number = secrets.randbelow(2**31) if seed is None else seed
        restart = restart or seed is not None
        session, resumed = open_session(store, seed=number, now=clock(), limit=limit, kinds=kinds, restart=restart)
        if resumed and session.item in bank.items():
            click.echo("Going on where you left. `pagewalk drill --restart` begins another session.")
        Sitting(store, bank, session, clock, screen, Keys(screen)).run()


@drill_command.command("list")
@kind_option
@json_option
@drill_errors
def list_command(kinds: tuple[str, ...], as_json: bool) -> None:
    """List every item: how many of each kind, and when each is due."""
    bank, now = the_bank(), clock()
    require_kinds(kinds, bank)
    with opened() as store:
        entries = store.entries()
    chosen = [item for item in bank.items().values() if not kinds or item.kind in kinds]
    counts = Counter(item.kind for item in chosen)
    parts = ", ".join(f"{count} {kind}" for kind, count in counts.items())
    summary = f"{len(chosen)} items: {parts}" if len(counts) > 1 else parts or "no items"
    if as_json:
        notice(summary)
        emit_json("drills", [as_row(item, entries.get(item.id), now) for item in chosen])
        return
    click.echo(summary)
    rows = [(item.id, when(entries.get(item.id), now), item.title) for item in chosen]
    print_rows(rows, ["yellow" if row[1] == "now" else "" for row in rows])


@drill_command.command("show")
@click.argument("name", metavar="ID")
@click.option("--answer", is_flag=True, help="Show the answer, too.")
@json_option
@drill_errors
def show_command(name: str, answer: bool, as_json: bool) -> None:
    """Show one item: a question of it, where it leads, and how it stands."""
    from walkthroughs.drills.asking import fixed_seed, places

    bank, now = the_bank(), clock()
    item = known(name, bank)
    with opened() as store:
        entry, events = store.entry(item.id), store.events(item.id)
    question = bank.ask(item, fixed_seed(item))
    solution = bank.solve(question) if answer else None
    where = places(item.steps, item.concepts, item.claims)
    followed = [other.id for other in bank.items().values() if other.after == item.id]
    if as_json:
        row = as_row(item, entry, now) | {"question": question.text, "form": question.form, "seed": question.seed}
        row |= {"answer": solution.answer if solution else None, "followed_by": followed, "events": len(events)}
        emit_json("drills", [row])
        return
    from rich.markdown import Markdown

    screen = console()
    width = min(screen.width, 88)
    click.echo(f"{item.title}  ({item.id}, level {item.level})")
    screen.print(Markdown(question.text, hyperlinks=False), width=width)
    if solution:
        points = "\n".join(f"- {point.text}" for point in solution.points)
        text = "\n\n".join(part for part in (f"**Answer.** {solution.answer}", points, solution.why) if part)
        screen.print(Markdown(text, hyperlinks=False), width=width)
    for line in where:
        click.echo(f"  {line}")
    for label, names in (("follows", [item.after] if item.after else []), ("followed by", followed)):
        if names:
            click.echo(f"  {label} {', '.join(names)}")
    click.echo(f"  due: {when(entry, now)}; {entry.reviews} reviews, {entry.lapses} lapses")


@drill_command.command("due")
@json_option
@drill_errors
def due_command(as_json: bool) -> None:
    """List what is due now, the longest overdue first."""
    bank, now = the_bank(), clock()
    with opened() as store:
        entries = store.entries()
        chosen = [bank.items()[name] for name in store.due(now) if name in bank.items()]
    new = sum(name not in entries or entries[name].card.due is None for name in bank.items())
    counts = ", ".join(f"{count} {kind}" for kind, count in Counter(item.kind for item in chosen).items())
    notice(f"{len(chosen)} due{f' ({counts})' if counts else ''}, {new} new")
    if as_json:
        emit_json("drills", [as_row(item, entries[item.id], now) for item in chosen])
        return
    rows = [(item.id, since(entries[item.id], now), item.title) for item in chosen]
    print_rows(rows, [""] * len(rows))


@drill_command.command("stats")
@click.option("--streak", is_flag=True, help="Count the days in a row, too.")
@json_option
@drill_errors
def stats_command(streak: bool, as_json: bool) -> None:
    """Say by kind how things stand: new, in learning, learnt, due, and how the last 30 days went."""
    from walkthroughs.drills.figures import days_in_a_row, figures

    bank, now = the_bank(), clock()
    with opened() as store:
        events = store.events()
        found = figures(bank.items(), store.entries(), events, now)
    if streak:
        notice(f"days in a row: {days_in_a_row(events, now)}")
    if as_json:
        emit_json("kinds", [{"id": row.kind, "status": "passed", **row.as_json()} for row in found])
        return
    head = ("kind", "items", "new", "learning", "learnt", "due", "asleep", "reviews", "right, 30 days")
    print_rows([head, *(row.cells() for row in found)], ["bold", *("" for _ in found)])


@drill_command.command("reset")
@click.argument("names", nargs=-1, required=True, metavar="ID...")
@json_option
@drill_errors
def reset_command(names: tuple[str, ...], as_json: bool) -> None:
    """Make items new again. Their reviews stay in the log, and count no more."""
    change(names, "reset", as_json)


@drill_command.command("suspend")
@click.argument("names", nargs=-1, required=True, metavar="ID...")
@json_option
@drill_errors
def suspend_command(names: tuple[str, ...], as_json: bool) -> None:
    """Ask these items no more."""
    change(names, "suspend", as_json)


@drill_command.command("unsuspend")
@click.argument("names", nargs=-1, required=True, metavar="ID...")
@json_option
@drill_errors
def unsuspend_command(names: tuple[str, ...], as_json: bool) -> None:
    """Ask suspended items again."""
    change(names, "unsuspend", as_json)


@drill_command.command("export")
@click.argument("form", metavar="json|csv|markdown|anki", type=click.Choice(["json", "csv", "markdown", "anki"]))
@click.argument("path", type=FILE)
@json_option
@drill_errors
def export_command(form: str, path: Path, as_json: bool) -> None:
    """Write your history (json), or the bank as csv, as markdown, or as an Anki package.

    json is for `pagewalk drill import` on another machine. An Anki package updates its cards when imported again.
    """
    from annotate.files import write_text
    from walkthroughs.drills import exports, log

    bank, now = the_bank(), clock()
    with opened() as store:
        entries, events = store.entries(), store.events()
    absent: dict[str, str] = {}
    if form == "json":
        write_text(path, json.dumps(log.to_json(events), ensure_ascii=False, indent=1) + "\n")
        count, what = len(events), "events"
    else:
        found, absent = exports.leaves(bank, exports.ANKI_KINDS if form == "anki" else ())
        count, what = len(found), "items"
        if form == "anki":
            exports.write_anki(path, found, now)
        else:
            write_text(path, exports.to_csv(found, entries) if form == "csv" else exports.to_markdown(found))
    for name, why in absent.items():
        notice(f"{name} is left out: {why}")
    notice(f"{path}: {count} {what}")
    if as_json:
        row = {"id": form, "status": "passed", "path": str(path), "count": count, "left_out": sorted(absent)}
        emit_json("exports", [row])


@drill_command.command("import")
@click.argument("path", type=click.Path(dir_okay=False, exists=True, path_type=Path))
@json_option
@drill_errors
def import_command(path: Path, as_json: bool) -> None:
    """Merge a history that `export json` wrote into this one. Twice does no harm."""
    from walkthroughs.drills import log
    from walkthroughs.drills.errors import StoreError

    try:
        events = log.from_json(json.loads(path.read_bytes()))
    except StoreError as error:
        raise StoreError(f"{path}: {error}. Nothing was imported") from error
    except (ValueError, RecursionError) as error:
        raise StoreError(f"{path} is no JSON: {error}. Nothing was imported") from error
    with opened() as store:
        added = store.merge(events)
    notice(f"{path}: {added} new of {len(events)} events")
    if as_json:
        emit_json("imports", [{"id": str(path), "status": "passed", "events": len(events), "added": added}])


def change(names: tuple[str, ...], what: str, as_json: bool) -> None:
    """Do one thing to items, all or none, and say so."""
    bank, now = the_bank(), clock()
    chosen = [known(name, bank) for name in dict.fromkeys(names)]
    with opened() as store:
        with store.transaction():
            for item in chosen:
                getattr(store, what)(item.id, now)
        entries = store.entries()
    for item in chosen:
        notice(f"{item.id}: {when(entries[item.id], now)}")
    if as_json:
        emit_json("drills", [as_row(item, entries[item.id], now) for item in chosen])


def known(name: str, bank: Bank) -> Item:
    """The item of an id; exit 2 with the nearest ids for one that nobody knows."""
    require_known("drill", name, bank.items(), "pagewalk drill list")
    return bank.items()[name]


def require_kinds(kinds: tuple[str, ...], bank: Bank) -> None:
    """Refuse a kind of which there is no item."""
    there = {item.kind: item for item in bank.items().values()}
    for kind in kinds:
        require_known("kind of drill", kind, there, "pagewalk drill list")


def as_row(item: Item, entry: Entry | None, now: datetime) -> dict[str, Any]:
    """One item as its JSON row."""
    from walkthroughs.drills.log import NOTHING

    entry = entry or NOTHING
    row: dict[str, Any] = {"id": item.id, "status": "passed", "kind": item.kind, "title": item.title}
    row |= {"level": item.level, "after": item.after}
    row |= {name: list(getattr(item, name)) for name in ("concepts", "steps", "claims")}
    row |= {"state": entry.card.state, "due": entry.card.due.isoformat() if entry.card.due else None}
    row |= {"suspended": entry.suspended, "buried": entry.buried > now.timestamp() * 1000}
    return row | {"reviews": entry.reviews, "lapses": entry.lapses}


def when(entry: Entry | None, now: datetime) -> str:
    """When an item is due, in words."""
    from walkthroughs.drills.schedule import label

    if entry is None:
        return "new"
    if entry.suspended:
        return "suspended"
    if entry.asleep(now):
        return "buried"
    if entry.card.due is None:
        return "new"
    return "now" if entry.due(now) else f"in {label(entry.card.due - now)}"


def since(entry: Entry, now: datetime) -> str:
    """For how long an item has been due."""
    from walkthroughs.drills.schedule import label

    late = now - (entry.card.due or now)
    return f"for {label(late)}" if late >= timedelta(minutes=1) else "now"
