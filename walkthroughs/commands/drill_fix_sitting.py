"""A kernel to fix inside a sitting: its file is written, Enter checks it, h gives a hint, x gives up.

The sitting asks and keeps the answers; this only knows what a typed line means for a file.
"""

from __future__ import annotations

from typing import Literal

import click

from walkthroughs.drills.errors import DrillError
from walkthroughs.drills.item import Question

Judged = tuple[Literal["yes", "no", "self", "again"], str]
GIVE_UP = "x"
HINT = "h"


def begin(question: Question) -> str:
    """Write the file where there is none yet; answers what to say of it, "" for another form of question."""
    if question.form != "file":
        return ""
    from walkthroughs.drills import fix
    from walkthroughs.drills.fix_folder import Folder, work_folder

    task, work = fix.task(question.item.id), Folder(work_folder())
    try:
        written = work.begin(task)
    except OSError as error:
        return f"{work.path}: {error.strerror}. PAGEWALK_STATE can name another folder."
    return f"{'Your file' if written else 'Your file, as you left it'}: {work.file(task)}"


def judge(question: Question, typed: str) -> Judged:
    """What a line means: nothing checks the file, h is a hint, x gives up."""
    from walkthroughs.commands.drill_fix_report import failure_lines
    from walkthroughs.drills import fix, fix_judge
    from walkthroughs.drills.fix_folder import Folder, work_folder

    task, work = fix.task(question.item.id), Folder(work_folder())
    if typed == GIVE_UP:
        return "no", "Here it is."
    if typed == HINT:
        number = work.next_hint(task)
        return "again", f"Hint {number} of {len(task.hints)}. {task.hints[number - 1]}"
    if typed:
        return "again", "The answer is the file: Enter checks it, h gives a hint, x shows the solution."
    click.echo("Running your file …")
    try:
        verdicts = fix_judge.judge(task, work.read(task))
    except DrillError as error:
        return "again", f"{error}."
    for verdict in verdicts:
        if verdict.first is not None:
            lines = failure_lines(task, work.file(task), verdict.first)
            return "again", "\n".join([f"Not yet, on {verdict.backend}:", *lines])
    return "yes", f"Right: it holds on {' and '.join(verdict.backend for verdict in verdicts)}."
