"""Where the reader left: the last step, and the moment in each, kept in the user's state folder.

The file is a convenience. One that cannot be read is put aside with a remark, and one that cannot be written costs no
more than the place in the book.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from annotate.files import write_text

SCHEMA = 1
NAME = "walk.json"


@dataclass(frozen=True)
class Place:
    """A moment of a step: of which thread of which block (linear), and what is watched.

    `length`: how many moments the thread had. Another number means another recording: the moment is then void.
    """

    moment: int
    length: int
    block: int
    focus: int
    watches: tuple[str, ...] = ()


@dataclass
class Progress:
    """The last step of all, the last of each walkthrough, the steps seen, and the place in each that has a film."""

    last: str = ""
    steps: dict[str, str] = field(default_factory=dict)
    seen: set[str] = field(default_factory=set)
    places: dict[str, Place] = field(default_factory=dict)

    def at(self, step: str) -> None:
        """The reader stands at a step."""
        self.last = step
        self.steps[step.split("/")[0]] = step
        self.seen.add(step)

    def forget(self, walkthrough: str = "") -> None:
        """Start over: one walkthrough, or all."""

        def stays(step: str) -> bool:
            return bool(walkthrough) and step.split("/")[0] != walkthrough

        self.last = self.last if stays(self.last) else ""
        self.steps = {name: step for name, step in self.steps.items() if stays(step)}
        self.seen = {step for step in self.seen if stays(step)}
        self.places = {step: place for step, place in self.places.items() if stays(step)}


def state_file() -> Path:
    """Where progress is kept: in the folder that PAGEWALK_STATE names, else in the user's state folder."""
    from platformdirs import user_state_path

    folder = os.environ.get("PAGEWALK_STATE")
    return (Path(folder) if folder else user_state_path("pagewalk", appauthor=False)) / NAME


def load(path: Path) -> tuple[Progress, str]:
    """The progress of a file, and a remark where it had to be ignored; none yet is no remark."""
    try:
        text = path.read_text("utf-8")
    except FileNotFoundError:
        return Progress(), ""
    except (OSError, UnicodeDecodeError) as error:
        return Progress(), f"{path}: cannot be read ({error}); starting over"
    try:
        return _from_json(json.loads(text)), ""
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        return Progress(), f"{path}: damaged ({error}); starting over"


def save(path: Path, progress: Progress) -> str:
    """Write the file, temporary file first; a remark where that failed."""
    data = {
        "schema": SCHEMA,
        "last": progress.last,
        "steps": progress.steps,
        "seen": sorted(progress.seen),
        "places": {step: asdict(place) for step, place in progress.places.items()},
    }
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, json.dumps(data, indent=1, ensure_ascii=False) + "\n")
    except OSError as error:
        return f"{path}: cannot be written ({error}); your place is not kept"
    return ""


def _from_json(data: Any) -> Progress:
    if data["schema"] != SCHEMA:
        raise ValueError(f"schema {data['schema']!r}, not {SCHEMA}")
    steps = {_text(name): _text(step) for name, step in data["steps"].items()}
    places = {_text(step): _place(fields) for step, fields in data["places"].items()}
    return Progress(_text(data["last"]), steps, {_text(step) for step in data["seen"]}, places)


def _place(fields: Any) -> Place:
    numbers = {name: fields[name] for name in ("moment", "length", "block", "focus")}
    if not all(type(number) is int and number >= 0 for number in numbers.values()):
        raise ValueError(f"{fields!r} is no place")
    return Place(**numbers, watches=tuple(_text(name) for name in fields["watches"]))


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    return value
