"""The reader's own folder: what is written, what never is, what can be read, and how many hints were seen."""

from __future__ import annotations

from pathlib import Path

import pytest

from walkthroughs.drills import fix
from walkthroughs.drills.errors import DrillError
from walkthroughs.drills.fix_folder import Folder, header, work_folder

TASK, OTHER = fix.task("fix/kv-head"), fix.task("fix/v-tail")


@pytest.fixture
def work(tmp_path: Path) -> Folder:
    return Folder(tmp_path / "mine")


def test_where_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert work_folder(tmp_path) == tmp_path
    monkeypatch.setenv("PAGEWALK_STATE", str(tmp_path / "state"))
    assert work_folder() == tmp_path / "state" / "drills" / "fix"
    monkeypatch.delenv("PAGEWALK_STATE")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("HOME", str(tmp_path))
    assert work_folder().parts[-3:] == ("pagewalk", "drills", "fix")


def test_a_file_is_written_once(work: Folder) -> None:
    assert work.begun() == []
    assert work.begin(TASK)
    file = work.file(TASK)
    assert file.name == "kv-head.py"
    assert file.read_text("utf-8") == header(TASK) + fix.unsolved(TASK) == work.read(TASK)
    file.write_text("mine", "utf-8")
    assert not work.begin(TASK)
    assert file.read_text("utf-8") == "mine"
    assert work.begin(OTHER)
    assert work.begun() == [TASK, OTHER]


def test_restart_keeps_what_was_there(work: Folder) -> None:
    work.begin(TASK)
    work.file(TASK).write_text("mine", "utf-8")
    work.next_hint(TASK)
    assert work.begin(TASK, restart=True)
    assert work.read(TASK) == header(TASK) + fix.unsolved(TASK)
    assert (work.path / "kv-head.py.before").read_text("utf-8") == "mine"
    assert work.hints(TASK) == 0
    assert work.begun() == [TASK]
    assert work.begin(OTHER, restart=True), "nothing was there"


def test_restart_again_and_again_loses_nothing(work: Folder) -> None:
    for text in ("first", "second"):
        work.begin(TASK)
        work.file(TASK).write_text(text, "utf-8")
        assert work.begin(TASK, restart=True)
        assert work.begin(TASK, restart=True), "what nobody changed is not put aside"
    kept = {path.name: path.read_text("utf-8") for path in work.path.glob("kv-head.py.*")}
    assert kept == {"kv-head.py.before": "first", "kv-head.py.before-2": "second"}


def test_hints_come_one_by_one(work: Folder) -> None:
    assert [work.next_hint(TASK) for _ in range(5)] == [1, 2, 3, 3, 3]
    assert (work.hints(TASK), work.hints(OTHER)) == (3, 0)
    assert work.next_hint(OTHER) == 1
    assert Folder(work.path).hints(TASK) == 3


@pytest.mark.parametrize("kept", ["", "[]", "{", '{"fix/kv-head": "many"}', '{"fix/kv-head": null}', "\0"])
def test_a_spoilt_count_of_hints_begins_again(work: Folder, kept: str) -> None:
    work.begin(TASK)
    (work.path / ".hints.json").write_text(kept, "utf-8")
    assert work.hints(TASK) == 0
    assert work.next_hint(TASK) == 1


def test_a_count_from_elsewhere_is_no_more_than_there_are(work: Folder) -> None:
    work.begin(TASK)
    (work.path / ".hints.json").write_text('{"fix/kv-head": 99}', "utf-8")
    assert work.hints(TASK) == len(TASK.hints)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (None, "is not there: `pagewalk drill fix fix/kv-head` writes it"),
        (b"x = 1\ny = '\xff'\n", "line 2: not UTF-8 text"),
        (b"x = 1\0", "holds a NUL byte"),
        (b"#" * (1 << 20) + b"\n", "1,048,577 bytes: it is no kernel any more"),
    ],
)
def test_what_cannot_be_read(work: Folder, data: bytes | None, said: str) -> None:
    if data is not None:
        work.begin(TASK)
        work.file(TASK).write_bytes(data)
    with pytest.raises(DrillError) as caught:
        work.read(TASK)
    assert said in str(caught.value)
    assert str(work.file(TASK)) in str(caught.value)


def test_a_folder_in_its_place(work: Folder) -> None:
    work.file(TASK).mkdir(parents=True)
    with pytest.raises(DrillError, match="kv-head"):
        work.read(TASK)
    assert work.begun() == []


def test_editors_of_windows_are_welcome(work: Folder) -> None:
    work.begin(TASK)
    text = work.read(TASK)
    work.file(TASK).write_bytes(b"\xef\xbb\xbf" + text.replace("\n", "\r\n").encode())
    read = work.read(TASK)
    assert "\ufeff" not in read
    assert read == text
