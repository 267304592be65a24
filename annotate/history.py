"""What drift found, without any upstream text: where each piece of code lies in each release, and its verdicts.

One compact file a release is committed in `annotate/drift/`, so that pages tell a piece's history without
fourteen releases on the machine. Verdicts are not stored: they follow from the facts.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from annotate.errors import AnnotateError
from annotate.files import write_text
from annotate.releases import order

FOLDER = Path(__file__).with_name("drift")
SCHEMA = 1
VERDICTS = ("same", "moved", "reformatted", "changed", "gone", "new")
# What a row leaves out.
_USUAL = {"how": "anchor", "likeness": 1.0}
# How a place was found. The last two rest on likeness alone, and are called guesses.
HOW = {
    "anchor": "found by its symbol and landmark",
    "chosen": "several symbols have this name; the one most like it was taken",
    "aligned": "a guess: the landmark is not there, this is where most of its tokens went",
    "followed": "a guess: the symbol has another name here, its body is alike",
    "unreadable": "the parser could not read these lines, so that nothing is said about them",
}


@dataclass(frozen=True)
class State:
    """One piece in one release: lines `first` to `last` of `path`, in `symbol`.

    `digest` is over tokens, `text` over the lines as they stand. `how` is a key of HOW; `likeness` (0 to 1) compares
    its tokens with those of the release that the anchor was written for.
    """

    path: str
    first: int
    last: int
    symbol: str
    digest: str
    text: str
    how: str
    likeness: float

    @property
    def guessed(self) -> bool:
        """Whether the place rests on likeness alone."""
        return self.how in ("aligned", "followed")


@dataclass(frozen=True)
class Delta:
    """What came and went since the release before (`since`) of those looked into.

    `came` and `went` count tokens; `new` and `old` name what they made up: loops, declarations, parameters, calls.
    """

    since: str
    came: int
    went: int
    new: tuple[str, ...] = ()
    old: tuple[str, ...] = ()

    def __str__(self) -> str:
        named = [f"{sign}{name}" for sign, names in (("+", self.new), ("-", self.old)) for name in names]
        return " ".join([f"+{self.came} -{self.went} tokens", *named])


@dataclass(frozen=True)
class Facts:
    """What one release holds of every track; None where a piece is not there.

    `pin` is the digest of the archive that was read, `wording` that of the anchors at the time, `files` what was kept.
    """

    source: str
    pin: str
    states: Mapping[str, State | None]
    wording: str = ""
    files: tuple[str, ...] = ()
    deltas: Mapping[str, Delta] = field(default_factory=dict)

    @property
    def revision(self) -> str:
        """The release's number."""
        return self.source.partition("@")[2]


def text_digest(lines: Sequence[bytes]) -> str:
    """Return a digest of lines as they stand, without white space at their ends: 12 hexadecimal digits."""
    return hashlib.sha256(b"\n".join(line.rstrip() for line in lines)).hexdigest()[:12]


def verdict(before: State | None, after: State | None) -> str | None:
    """Say what became of a piece from one release to a later one; None if it is in neither, or cannot be read.

    `same`: the same text in the same symbol of the same file, on whatever lines; `moved`: the same text in another
    one; `reformatted`: the same tokens with other white space or comments; `changed`: other tokens.
    """
    if after is None:
        return None if before is None else "gone"
    if before is None:
        return "new"
    if "unreadable" in (before.how, after.how):
        return None
    if before.digest != after.digest:
        return "changed"
    if before.text != after.text:
        return "reformatted"
    return "same" if (before.path, before.symbol) == (after.path, after.symbol) else "moved"


@dataclass(frozen=True)
class Cell:
    """One track in one release. `verdict` compares with the release before it among those that were read.

    It is None in the oldest of them, and where the piece is in neither. `since` is the first release of this state:
    the tokens have been these, or the piece has been away, from there on. `as_written` compares with the release that
    the anchor was written for.
    """

    source: str
    state: State | None
    verdict: str | None
    since: str
    as_written: str | None
    delta: Delta | None = None


@dataclass(frozen=True)
class Lane:
    """One track over the releases that were read, the oldest first."""

    track: str
    cells: tuple[Cell, ...]

    def at(self, source: str) -> Cell | None:
        """Return the cell of a release, None if that one was not read."""
        return next((cell for cell in self.cells if cell.source == source), None)

    @property
    def living(self) -> bool:
        """Whether the newest release that was read still has the piece."""
        return bool(self.cells) and self.cells[-1].state is not None

    @property
    def gone_at(self) -> str | None:
        """The release that the piece left in and never came back, None while it lives or if it never was."""
        last = next((cell for cell in reversed(self.cells) if cell.verdict == "gone"), None)
        return None if self.living or last is None else last.source


def lanes(facts: Iterable[Facts], origins: Mapping[str, str] | None = None) -> dict[str, Lane]:
    """Lay the facts of several releases side by side. `origins` maps a track to the release it was written for."""
    ordered = sorted(facts, key=lambda entry: order(entry.revision))
    written = {entry.source: entry for entry in ordered}
    found = {}
    for track in dict.fromkeys(name for entry in ordered for name in entry.states):
        own = written.get((origins or {}).get(track, ""))
        home = own.states.get(track) if own else None
        cells: list[Cell] = []
        for entry in (entry for entry in ordered if track in entry.states):
            state = entry.states[track]
            judged = verdict(cells[-1].state, state) if cells else None
            kept = cells and judged in ("same", "moved", "reformatted", None)
            since = cells[-1].since if kept else entry.source
            delta = entry.deltas.get(track)
            near = delta if delta and cells and delta.since == cells[-1].source else None
            as_written = verdict(home, state) if home else None
            cells.append(Cell(entry.source, state, judged, since, as_written, near))
        found[track] = Lane(track, tuple(cells))
    return found


def file_moves(facts: Iterable[Facts]) -> dict[str, list[tuple[str, tuple[str, ...]]]]:
    """Return where each file of interest has been: by file name, the paths from each release with other ones on."""
    ordered = sorted(facts, key=lambda entry: order(entry.revision))
    found: dict[str, list[tuple[str, tuple[str, ...]]]] = {}
    for name in sorted({path.rpartition("/")[2] for entry in ordered for path in entry.files}):
        found[name] = []
        for entry in ordered:
            paths = tuple(path for path in entry.files if path.rpartition("/")[2] == name)
            if paths != (found[name][-1][1] if found[name] else ()):
                found[name].append((entry.source, paths))
    return found


def write(facts: Facts, folder: Path | None = None) -> Path:
    """Write a release's facts as JSON, one track a line, by temporary file and rename. Returns the path."""
    target = (folder or FOLDER) / f"{facts.source}.json"
    write_text(target, dumps(facts))
    return target


def dumps(facts: Facts) -> str:
    """Return a release's facts as the text of their file. Paths and symbols are told once and pointed to."""
    table = list(dict.fromkeys(name for state in facts.states.values() if state for name in (state.path, state.symbol)))
    place = {name: index for index, name in enumerate(table)}
    rows = []
    for track, state in facts.states.items():
        row: dict[str, Any] = {"id": track}
        if state is not None:
            row |= asdict(state) | {"path": place[state.path], "symbol": place[state.symbol]}
            for name, usual in _USUAL.items():
                if row[name] == usual:
                    del row[name]
        if track in facts.deltas:
            delta = facts.deltas[track]
            row["delta"] = [delta.since, delta.came, delta.went, delta.new, delta.old]
        rows.append("  " + json.dumps(row, separators=(",", ":")))
    head = {
        "schema": SCHEMA,
        "source": facts.source,
        "pin": facts.pin,
        "wording": facts.wording,
        "files": facts.files,
        "names": table,
    }
    return json.dumps(head)[:-1] + ', "tracks": [\n' + ",\n".join(rows) + "\n]}\n"


def loads(text: str, where: str = "facts") -> Facts:
    """Read the text that `dumps` wrote. Raises AnnotateError for anything else."""
    try:
        data = json.loads(text)
        if data["schema"] != SCHEMA:
            raise AnnotateError(f"{where}: schema {data['schema']!r} is not {SCHEMA}; run make drift")
        names = data["names"]
        states: dict[str, State | None] = {}
        deltas = {}
        for row in data["tracks"]:
            track = row.pop("id")
            if (delta := row.pop("delta", None)) is not None:
                deltas[track] = Delta(*delta[:3], *map(tuple, delta[3:]))
            row = _USUAL | row
            states[track] = (
                State(**row | {"path": names[row["path"]], "symbol": names[row["symbol"]]}) if "path" in row else None
            )
        return Facts(
            data["source"], data["pin"], MappingProxyType(states), data["wording"], tuple(data["files"]), deltas
        )
    except (ValueError, KeyError, TypeError, IndexError) as error:
        raise AnnotateError(f"{where} cannot be read ({error}); run make drift") from error


def committed(name: str = "vllm", folder: Path | None = None) -> list[Facts]:
    """Return the committed facts of a source's releases, the oldest first."""
    paths = (folder or FOLDER).glob(f"{name}@*.json")
    found = [loads(path.read_text(encoding="utf-8"), path.name) for path in paths]
    return sorted(found, key=lambda entry: order(entry.revision))
