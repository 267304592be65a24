"""The reader's own files: one a kernel to fix, in their work folder, and how many hints were read.

A file that is there is the reader's work: nothing overwrites it unless it is asked to.
"""

from __future__ import annotations

import itertools
import json
import os
from dataclasses import dataclass
from pathlib import Path

from annotate.files import write_text
from walkthroughs.drills.errors import DrillError
from walkthroughs.drills.fix import Task, excerpt, tasks, unsolved
from walkthroughs.drills.fix_cut import BLANK

HINTS = ".hints.json"
BEFORE = ".before"
"""What the name of a file ends with that `restart` put aside, with a number from the second on."""
LONGEST = 1 << 20


def work_folder(chosen: Path | None = None) -> Path:
    """Where the reader's files are: the folder chosen, else below PAGEWALK_STATE or the user's data folder."""
    if chosen is not None:
        return chosen
    state = os.environ.get("PAGEWALK_STATE")
    if state:
        return Path(state) / "drills" / "fix"
    from platformdirs import user_data_path

    return user_data_path("pagewalk", appauthor=False) / "drills" / "fix"


def header(task: Task) -> str:
    """What stands at the top of a reader's file: comments that say what to do."""
    what = f"Fill the blank {BLANK}" if task.form == "blank" else "Put right what is wrong"
    line = excerpt(task)[0]
    lines = [
        f"Drill {task.item.id}: {task.item.title}",
        f"{what}: region {task.shows}, from line {{line}} on. The `# region` lines must stay.",
        f"Then save, and:  pagewalk drill check {task.item.id}",
        f"Stuck?           pagewalk drill hint {task.item.id}",
        f"(A copy of {task.file} with one cut. Nothing else needs to change.)",
    ]
    text = "".join(f"# {line}\n" for line in lines) + "\n"
    return text.replace("{line}", str(line + text.count("\n")))


@dataclass(frozen=True)
class Folder:
    """The files below one folder."""

    path: Path

    def file(self, task: Task) -> Path:
        """Where the reader's file of a task is, or will be."""
        return self.path / f"{task.name}.py"

    def begin(self, task: Task, *, restart: bool = False) -> bool:
        """Write the task's file where there is none; answers whether it was written.

        `restart`: write it anew. What the reader changed is kept beside it, each time under another name, and hints
        begin again. Raises OSError.
        """
        file = self.file(task)
        text = header(task) + unsolved(task)
        if restart and file.exists():
            if file.read_bytes() == text.encode():
                file.unlink()
            else:
                file.rename(self.aside(task))
        if restart:
            self._keep(task, 0)
        file.parent.mkdir(parents=True, exist_ok=True)
        try:
            with file.open("x", encoding="utf-8") as out:
                out.write(text)
        except FileExistsError:
            return False
        return True

    def aside(self, task: Task) -> Path:
        """The first free name for a file that is put aside."""
        for number in itertools.count(1):
            path = self.path / f"{task.name}.py{BEFORE}{f'-{number}' if number > 1 else ''}"
            if not path.exists():
                return path
        raise AssertionError("there is always another number")

    def read(self, task: Task) -> str:
        """The reader's text; raises DrillError where there is none, or none that can be a kernel's."""
        file = self.file(task)
        try:
            data = file.read_bytes()
        except FileNotFoundError:
            raise DrillError(f"{file} is not there: `pagewalk drill fix {task.item.id}` writes it") from None
        except OSError as error:
            raise DrillError(f"{file}: {error.strerror}") from error
        if len(data) > LONGEST:
            raise DrillError(f"{file} has {len(data):,} bytes: it is no kernel any more")
        if b"\0" in data:
            raise DrillError(f"{file} holds a NUL byte, which no Python file may")
        try:
            return data.decode("utf-8-sig").replace("\r\n", "\n")
        except UnicodeDecodeError as error:
            line = data[: error.start].count(b"\n") + 1
            raise DrillError(f"{file}, line {line}: not UTF-8 text") from error

    def begun(self) -> list[Task]:
        """The tasks that have a file here, in the order of the table."""
        return [task for task in tasks().values() if self.file(task).is_file()]

    def hints(self, task: Task) -> int:
        """How many hints the reader has seen."""
        return min(self._kept().get(task.item.id, 0), len(task.hints))

    def next_hint(self, task: Task) -> int:
        """Count one hint more as seen; answers its number from 1 on, the last one again where there are no more."""
        seen = min(self.hints(task) + 1, len(task.hints))
        self._keep(task, seen)
        return seen

    def _kept(self) -> dict[str, int]:
        try:
            found = json.loads((self.path / HINTS).read_text("utf-8"))
            return {str(name): int(count) for name, count in found.items()}
        except (OSError, ValueError, TypeError, AttributeError):
            return {}

    def _keep(self, task: Task, seen: int) -> None:
        kept = self._kept() | {task.item.id: seen}
        write_text(self.path / HINTS, json.dumps(kept, indent=1) + "\n")
