"""The films' files: what the page gets is the trace itself, small, whole, and written only when it changed."""

from __future__ import annotations

import base64
import gzip
import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernels.simt.trace import Trace
from walkthroughs.stepper import film_files
from walkthroughs.stepper.films import film, films, join, record

ROOT = Path(__file__).resolve().parents[3]
SMALL = ("scatter", "copy-blocks", "slot-mapping")


def unpacked(text: str) -> tuple[str, dict[str, Any]]:
    """A film's file, read as the page reads it: its id and its content."""
    found = re.fullmatch(
        r'\(window\.pagewalkFilms=window\.pagewalkFilms\|\|\{\}\)\["([a-z0-9-]+)"\]="([^"]*)";\n', text
    )
    assert found is not None
    return found[1], json.loads(gzip.decompress(base64.b64decode(found[2], validate=True)))


def rows_of(packed: dict[str, Any]) -> list[list[Any]]:
    """Columns back to rows, by hand."""
    used: dict[str, int] = dict.fromkeys(packed["columns"], 0)
    rows = []
    for letter, thread in zip(packed["kinds"], packed["threads"], strict=True):
        rows.append([letter, thread, *(column[used[letter]] for column in packed["columns"][letter])])
        used[letter] += 1
    assert all(len(column) == used[letter] for letter, columns in packed["columns"].items() for column in columns)
    return rows


@pytest.mark.parametrize("name", list(films()))
def test_a_file_holds_the_whole_trace_and_is_small(name: str) -> None:
    text = film_files.script(film(name))
    assert len(text.encode()) <= film_files.LIMIT
    assert "\n" not in text[:-1]
    given_name, content = unpacked(text)
    assert given_name == content["film"]["id"] == name
    head = content["trace"]
    whole = Trace.from_json(json.dumps({**head, "events": rows_of(head["events"])}))
    assert whole == record(film(name))
    assert whole.truncated is None


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("L"), st.integers(0, 9), st.integers(1, 99), st.lists(st.integers(-1, 9), max_size=4)),
            st.tuples(st.just("R"), st.integers(0, 9), st.integers(0, 9), st.integers(0, 99), st.integers(0, 9)),
            st.tuples(st.just("A"), st.integers(0, 9), st.integers(0, 9)),
        ).map(list),
        max_size=40,
    )
)
def test_columns_hold_every_row(rows: list[list[Any]]) -> None:
    assert rows_of(film_files.columns(rows)) == rows


@pytest.mark.parametrize("name", ["classic-v1", "reshape-and-cache", "gather"])
def test_regions_and_lines_are_those_of_the_port(name: str) -> None:
    content = film_files.content(film(name))
    joined, trace = join(film(name)), record(film(name))
    seen = 0
    for event in trace.events:
        if event.kind != "line":
            continue
        path = trace.files[trace.functions[event.function].file].path
        inside = [entry for entry in content["regions"][path] if entry[0] <= event.line <= entry[1]]
        assert tuple(name for _, _, name in inside) == joined.concepts_at(path, event.line)
        assert (
            content["lines"][path][event.line] == (ROOT / path).read_text("utf-8").split("\n")[event.line - 1].strip()
        )
        seen += 1
    assert seen > 50
    assert {name for found in content["regions"].values() for _, _, name in found} == set(content["titles"])


def test_a_file_holds_no_upstream_text() -> None:
    """Its only texts are names, our own lines, and what the scene calls things."""
    content = film_files.content(film("classic-v1"))
    assert set(content) == {"film", "trace", "scene", "regions", "titles", "lines"}
    assert all((ROOT / path).is_file() and path.startswith("kernels/") for path in content["lines"])
    assert all(path.startswith("kernels/") for path in content["regions"])


def test_the_same_film_gives_the_same_bytes() -> None:
    assert film_files.script(film("scatter")) == film_files.script(film("scatter"))


def test_files_are_written_once_and_old_ones_go(tmp_path: Path) -> None:
    folder = tmp_path / "films"
    wanted = {name: film(name) for name in SMALL}
    first = film_files.write_all(folder, wanted)
    assert sorted(path.name for path in first) == sorted(f"{name}.js" for name in SMALL)
    before = {path: path.stat().st_mtime_ns for path in first}
    (folder / "gone.js").write_text("old", "utf-8")
    (folder / "scatter.js").write_text("damaged", "utf-8")
    touched = film_files.write_all(folder, wanted)
    assert {path.name for path in touched} == {"gone.js", "scatter.js"}
    assert sorted(path.name for path in folder.iterdir()) == sorted(f"{name}.js" for name in SMALL), (
        "no rest of a write"
    )
    assert unpacked((folder / "scatter.js").read_text("utf-8"))[0] == "scatter"
    for name in ("copy-blocks", "slot-mapping"):
        assert (folder / f"{name}.js").stat().st_mtime_ns == before[folder / f"{name}.js"]


def test_the_films_are_made_and_not_committed() -> None:
    ignored = (ROOT / ".gitignore").read_text("utf-8").split()
    assert "/" + film_files.FOLDER.relative_to(ROOT).as_posix() + "/" in ignored
