"""`pagewalk drill fix`, `check`, `watch`, `hint`, `solution`: kernels that the reader puts right in their own folder.

What the reader wrote is run by a process of its own, never here.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from walkthroughs.commands.drill import drill_errors
from walkthroughs.commands.output import (
    console,
    did_you_mean,
    emit_json,
    json_option,
    notice,
    print_rows,
)

if TYPE_CHECKING:
    from walkthroughs.drills.fix import Task
    from walkthroughs.drills.fix_folder import Folder
    from walkthroughs.drills.fix_verdict import Verdict

PAUSE = 0.3
folder_option = click.option(
    "--folder", type=click.Path(file_okay=False, path_type=Path), help="Your work folder.  [default: in your user data]"
)
backend_option = click.option(
    "--backend", type=click.Choice(["all", "sim", "cuda"]), default="all", show_default=True,
    help="Where to run it: on the SIMT machine, on the GPU, or on all that is here.",
)  # fmt: skip
seed_option = click.option(
    "--seed", "seeds", type=click.IntRange(0, 2**31 - 1), multiple=True,
    help="Hold out the case of this seed, as a failure names it; may be repeated.",
)  # fmt: skip


@click.command("fix")
@click.argument("name", metavar="[ID]", default="")
@folder_option
@click.option("--restart", is_flag=True, help="Begin again: write the file anew. Yours is kept as FILE.before.")
@json_option
@drill_errors
def fix_command(name: str, folder: Path | None, restart: bool, as_json: bool) -> None:
    """Take a kernel to fix: its file is written into your folder. Without ID: list them all.

    Your own work is never overwritten unless you say --restart.
    """
    work = opened(folder)
    if not name:
        list_all(work, as_json)
        return
    task = known(name)
    written = work.begin(task, restart=restart)
    if as_json:
        emit_json("drills", [as_row(task, work) | {"written": written, "task": task.text}])
        return
    show_task(task)
    file = work.file(task)
    click.echo(f"  {file}" if written else f"  {file}\n  is there already, and stays as it is (--restart begins again)")
    click.echo(f"  pagewalk drill check {task.item.id}   judges it; watch judges it at each save")
    click.echo(f"  pagewalk drill hint {task.item.id}    has {len(task.hints)} hints, from vague to the line")


@click.command("check")
@click.argument("name", metavar="[ID]", default="")
@folder_option
@backend_option
@seed_option
@json_option
@drill_errors
def check_command(name: str, folder: Path | None, backend: str, seeds: tuple[int, ...], as_json: bool) -> None:
    """Run your file: the steps of its task, then cases that you have not seen. Without ID: every file you began.

    Exit 1 where something does not hold yet.
    """
    work = opened(folder)
    rows, fine = [], True
    for task in chosen(name, work):
        verdicts = judged(task, work, backends_of(backend), seeds)
        fine = fine and all(verdict.passed for verdict in verdicts)
        if as_json:
            rows.append(as_row(task, work) | as_checked(verdicts))
        else:
            show_verdicts(task, work, verdicts)
    if as_json:
        emit_json("drills", rows)
    if not fine:
        raise SystemExit(1)


@click.command("watch")
@click.argument("name", metavar="[ID]", default="")
@folder_option
@backend_option
@drill_errors
def watch_command(name: str, folder: Path | None, backend: str) -> None:
    """Run your file now and at each save, until Ctrl-C. Without ID: every file you began."""
    work = opened(folder)
    tasks, where = chosen(name, work), backends_of(backend)
    seen: dict[str, bytes] = {}
    click.echo(f"Watching {work.path}. Ctrl-C ends.")
    try:
        while True:
            for task in tasks:
                data = saved(task, work)
                if data is None or data == seen.get(task.item.id):
                    continue
                seen[task.item.id] = data
                show_verdicts(task, work, judged(task, work, where, ()))
            time.sleep(PAUSE)
    except KeyboardInterrupt:
        click.echo()


@click.command("hint")
@click.argument("name", metavar="ID")
@folder_option
@click.option("--all", "all_of_them", is_flag=True, help="Show all hints at once.")
@json_option
@drill_errors
def hint_command(name: str, folder: Path | None, all_of_them: bool, as_json: bool) -> None:
    """Show the next hint: each time one more, from vague to the line itself."""
    task, work = known(name), opened(folder)
    first, last = (1, len(task.hints)) if all_of_them else (number := work.next_hint(task), number)
    shown = [(number, task.hints[number - 1]) for number in range(first, last + 1)]
    if as_json:
        emit_json("drills", [as_row(task, work) | {"hints": [{"number": n, "text": hint} for n, hint in shown]}])
        return
    for number, hint in shown:
        markdown(f"**Hint {number} of {len(task.hints)}.** {hint}")
    if last == len(task.hints) and not all_of_them:
        click.echo(f"That is all: `pagewalk drill solution {task.item.id}` shows the solution.")


@click.command("solution")
@click.argument("name", metavar="ID")
@folder_option
@json_option
@drill_errors
def solution_command(name: str, folder: Path | None, as_json: bool) -> None:
    """Show what to change, as a diff from your file (or from the file as it is given), and why."""
    from walkthroughs.drills import fix

    task, work = known(name), opened(folder)
    text = work.read(task) if work.file(task).is_file() else None
    diff = fix.diff(task, text)
    if as_json:
        emit_json("drills", [as_row(task, work) | {"diff": diff, "why": task.why}])
        return
    screen = console()
    for line in diff.splitlines():
        style = {"+": "green", "-": "red", "@": "cyan"}.get(line[:1], "")
        screen.print(line, style=style, markup=False, highlight=False, soft_wrap=True)
    markdown(task.why)


def known(name: str) -> Task:
    """The task of an id, with or without `fix/` before it; exit 2 with the nearest ids for one that nobody knows."""
    from walkthroughs.drills import fix

    for spelled in (name, f"fix/{name}"):
        if spelled in fix.tasks():
            return fix.tasks()[spelled]
    hint = did_you_mean(name, fix.tasks())
    raise click.UsageError(f"no kernel to fix is called {name!r}.{hint} `pagewalk drill fix` lists them.")


def opened(folder: Path | None) -> Folder:
    """The reader's work folder."""
    from walkthroughs.drills.fix_folder import Folder, work_folder

    return Folder(work_folder(folder))


def chosen(name: str, work: Folder) -> list[Task]:
    """The task named, or all that were begun; exit 2 where there is no file."""
    tasks = [known(name)] if name else work.begun()
    if not tasks:
        raise click.UsageError(f"{work.path} has no kernel yet: `pagewalk drill fix` lists those that you can take.")
    missing = next((task for task in tasks if not work.file(task).is_file()), None)
    if missing:
        raise click.UsageError(f"{work.file(missing)} is not there: `pagewalk drill fix {missing.item.id}` writes it.")
    return tasks


def backends_of(name: str) -> tuple[str, ...]:
    """Where to run; raises BackendUnavailable for `cuda` without a GPU."""
    from walkthroughs import runner
    from walkthroughs.drills import fix_judge

    if name == "all":
        return fix_judge.backends()
    return (runner.choose(name).name,)


def judged(task: Task, work: Folder, backends: Sequence[str], seeds: Sequence[int]) -> list[Verdict]:
    """Run the reader's file; what cannot be read as text is a verdict, too."""
    from walkthroughs.drills import fix_judge
    from walkthroughs.drills.errors import DrillError
    from walkthroughs.drills.fix_verdict import Failure, Verdict

    notice(f"{task.item.id}: checking on {' and '.join(backends)} …")
    try:
        return fix_judge.judge(task, work.read(task), backends, seeds or None)
    except DrillError as error:
        return [Verdict(backends[0], "error", Failure("unreadable", str(error)))]


def saved(task: Task, work: Folder) -> bytes | None:
    """The file as it was saved, or None while an editor puts it in place."""
    try:
        return work.file(task).read_bytes()
    except OSError:
        return None


def list_all(work: Folder, as_json: bool) -> None:
    """Every kernel to fix, and which of them the reader has begun."""
    from walkthroughs.drills import fix

    tasks = list(fix.tasks().values())
    if as_json:
        emit_json("drills", [as_row(task, work) for task in tasks])
        return
    click.echo(f"{len(tasks)} kernels; yours are in {work.path}")
    rows = [(task.item.id, "begun" if work.file(task).is_file() else task.form, task.item.title) for task in tasks]
    print_rows(rows, ["yellow" if row[1] == "begun" else "" for row in rows])


def as_row(task: Task, work: Folder) -> dict[str, Any]:
    """One task as its JSON row."""
    from walkthroughs.drills import fix

    first, last = fix.excerpt(task)
    file = work.file(task)
    row: dict[str, Any] = {"id": task.item.id, "status": "passed", "title": task.item.title, "level": task.item.level}
    row |= {"form": task.form, "port": task.file, "region": task.shows, "first": first, "last": last}
    row |= {"path": str(file), "begun": file.is_file(), "hints_seen": work.hints(task), "steps": list(task.steps)}
    return row


def as_checked(verdicts: Sequence[Verdict]) -> dict[str, Any]:
    """What a check adds to the row: the status of the worst, and each backend's verdict."""
    worst = next((verdict for verdict in verdicts if not verdict.passed), verdicts[-1])
    return {"status": worst.status, "message": worst.said, "backends": [verdict.to_json() for verdict in verdicts]}


def show_task(task: Task) -> None:
    """A task as a reader meets it."""
    click.echo(f"{task.item.title}  ({task.item.id}, level {task.item.level})")
    markdown(task.text)


def show_verdicts(task: Task, work: Folder, verdicts: Sequence[Verdict]) -> None:
    """What came out, a line where all held; the first failure with its lines."""
    from walkthroughs.commands.drill_fix_report import failure_lines

    screen = console()
    for verdict in verdicts:
        if verdict.first is None:
            text = f"{task.item.id}: right on {verdict.backend}, {verdict.held} checks, {verdict.seconds:.1f} s"
            screen.print(text, style="green", markup=False)
            continue
        screen.print(f"{task.item.id}: not yet, on {verdict.backend}", style="red", markup=False)
        for line in failure_lines(task, work.file(task), verdict.first):
            screen.print(line, markup=False, highlight=False, soft_wrap=True)


def markdown(text: str) -> None:
    """Print Markdown, at most 88 columns wide."""
    from rich.markdown import Markdown

    screen = console()
    screen.print(Markdown(text, hyperlinks=False), width=min(screen.width, 88))
