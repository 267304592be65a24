"""Progress on disk: there and back, damaged files, folders that cannot be written."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from walkthroughs.stepper.progress import Place, Progress, load, save, state_file

NAMES = st.sampled_from(["a/x", "a/y", "b/x", "b/z"])
PLACES = st.builds(
    Place,
    moment=st.integers(0, 9999),
    length=st.integers(0, 9999),
    block=st.integers(0, 9),
    focus=st.integers(0, 1023),
    watches=st.lists(st.text(max_size=5), max_size=3).map(tuple),
)
PROGRESS = st.builds(
    Progress,
    last=NAMES,
    steps=st.dictionaries(st.sampled_from("ab"), NAMES),
    seen=st.sets(NAMES),
    places=st.dictionaries(NAMES, PLACES),
)


@given(PROGRESS)
def test_there_and_back(tmp_path_factory: pytest.TempPathFactory, progress: Progress) -> None:
    path = tmp_path_factory.mktemp("state") / "deep" / "walk.json"
    assert save(path, progress) == ""
    assert load(path) == (progress, "")
    assert [p.name for p in path.parent.iterdir()] == ["walk.json"]


def test_none_yet_is_no_remark(tmp_path: Path) -> None:
    assert load(tmp_path / "walk.json") == (Progress(), "")


WHOLE = {"schema": 1, "last": "", "steps": {}, "seen": [], "places": {}}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "null",
        "{}",
        json.dumps(WHOLE | {"schema": 2}),
        json.dumps(WHOLE | {"last": 3}),
        json.dumps(WHOLE | {"seen": [1]}),
        json.dumps(WHOLE | {"steps": []}),
        json.dumps(WHOLE | {"places": {"a/x": {}}}),
        json.dumps(WHOLE | {"places": {"a/x": {"moment": -1, "length": 3, "block": 0, "focus": 0, "watches": []}}}),
        json.dumps(WHOLE | {"places": {"a/x": {"moment": True, "length": 3, "block": 0, "focus": 0, "watches": []}}}),
    ],
)
def test_damaged_files_are_ignored_with_a_remark(tmp_path: Path, text: str) -> None:
    path = tmp_path / "walk.json"
    path.write_text(text)
    progress, said = load(path)
    assert progress == Progress()
    assert str(path) in said
    assert "starting over" in said


def test_bytes_that_are_no_text(tmp_path: Path) -> None:
    path = tmp_path / "walk.json"
    path.write_bytes(b"\xff\xfe{}")
    assert "cannot be read" in load(path)[1]


def test_a_folder_in_its_place(tmp_path: Path) -> None:
    (tmp_path / "walk.json").mkdir()
    progress, said = load(tmp_path / "walk.json")
    assert (progress, "cannot be read" in said) == (Progress(), True)


def test_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert "not kept" in save(tmp_path / "file" / "walk.json", Progress())


def test_forgetting_one_walkthrough_or_all() -> None:
    place = Place(1, 2, 0, 0)
    progress = Progress("a/x", {"a": "a/x", "b": "b/y"}, {"a/x", "b/y"}, {"a/x": place, "b/y": place})
    progress.forget("a")
    assert progress == Progress("", {"b": "b/y"}, {"b/y"}, {"b/y": place})
    progress.forget()
    assert progress == Progress()


def test_standing_at_a_step() -> None:
    progress = Progress()
    progress.at("a/x")
    progress.at("b/y")
    assert progress == Progress("b/y", {"a": "a/x", "b": "b/y"}, {"a/x", "b/y"})


def test_the_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PAGEWALK_STATE", str(tmp_path))
    assert state_file() == tmp_path / "walk.json"
    monkeypatch.delenv("PAGEWALK_STATE")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "xdg"))
    assert state_file().name == "walk.json"
    assert "pagewalk" in state_file().parts
