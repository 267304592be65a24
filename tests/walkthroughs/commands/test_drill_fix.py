"""`pagewalk drill fix`, `check`, `watch`, `hint`, `solution`, and a kernel inside a sitting: by pipe, as a reader."""

from __future__ import annotations

import csv
import io
import json
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from walkthroughs.digest import ROOT
from walkthroughs.drills import fix
from walkthroughs.drills.store import Store

SLOT = fix.task("fix/slot-split")
Drill = Callable[..., "subprocess.CompletedProcess[str]"]
Rows = Callable[["subprocess.CompletedProcess[str]", str], list[dict[str, Any]]]
FAULT, RIGHT = "block_offset = slot_idx // block_size", "block_offset = slot_idx % block_size"


def environment(folder: Path) -> dict[str, str]:
    own = {"PYTHONPATH": str(ROOT), "PAGEWALK_STATE": str(folder), "COLUMNS": "80", "PAGEWALK_CACHE": str(folder)}
    return {**os.environ, **own}


@pytest.fixture
def drill(tmp_path: Path) -> Drill:
    """Run `pagewalk drill ARGS`, in a state of its own and without any source."""

    def run(*args: str, typed: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "walkthroughs.cli", "drill", *args], cwd=ROOT, env=environment(tmp_path),
            input=typed, capture_output=True, text=True, timeout=300, check=False,
        )  # fmt: skip

    return run


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "drills" / "fix" / "slot-split.py"


def put_right(file: Path) -> None:
    text = file.read_text("utf-8")
    assert FAULT in text
    file.write_text(text.replace(FAULT, RIGHT), "utf-8")


def test_from_the_first_look_to_the_end(drill: Drill, file: Path, json_rows: Rows) -> None:
    taken = drill("fix", "slot-split")
    assert taken.returncode == 0, taken.stderr
    assert "A slot is a block and an offset  (fix/slot-split, level 1)" in taken.stdout
    assert f"  {file}\n" in taken.stdout
    assert file.is_file()

    failed = drill("check", "fix/slot-split")
    assert failed.returncode == 1
    shown = failed.stdout.splitlines()
    assert shown[:5] == [
        "fix/slot-split: not yet, on sim",
        "  offset of each token, element [0]",
        "  observed   2",
        "  expected   0",
        "  tolerance  0 (the worst is off by 4)",
    ]
    assert shown[5] == "  in         vllm-classic/slots"
    first, last = fix.excerpt(SLOT, file.read_text("utf-8"))
    assert shown[6] == f"  your file  {file}:{first}-{last}"
    own = fix.excerpt(SLOT)
    assert shown[7] == f"  port       kernels/vllm/cache.py:{own[0]}-{own[1]}"
    assert shown[8].startswith("  upstream   vllm@0.24.0 csrc/libtorch_stable/cache_kernels.cu:")
    assert shown[9].strip().startswith("https://github.com/vllm-project/vllm/blob/v0.24.0/csrc/")
    assert failed.stderr == "fix/slot-split: checking on sim …\n"

    put_right(file)
    passed = drill("check", "--json")
    assert passed.returncode == 0, passed.stderr
    (row,) = json_rows(passed, "drills")
    assert (row["id"], row["status"], row["path"]) == ("fix/slot-split", "passed", str(file))
    (verdict,) = row["backends"]
    assert (verdict["backend"], verdict["status"], verdict["failure"]) == ("sim", "passed", None)
    assert verdict["checks"] == verdict["held"] > 10


def test_the_readers_work_is_never_overwritten(drill: Drill, file: Path, json_rows: Rows) -> None:
    drill("fix", "slot-split")
    file.write_text("mine", "utf-8")
    again = drill("fix", "fix/slot-split")
    assert again.returncode == 0
    assert "is there already, and stays as it is" in again.stdout
    assert file.read_text("utf-8") == "mine"
    (row,) = json_rows(drill("fix", "slot-split", "--restart", "--json"), "drills")
    assert row["written"]
    assert FAULT in file.read_text("utf-8")
    assert file.with_name("slot-split.py.before").read_text("utf-8") == "mine"


def test_another_folder(drill: Drill, tmp_path: Path, file: Path, json_rows: Rows) -> None:
    elsewhere = tmp_path / "else where"
    drill("fix", "slot-split", "--folder", str(elsewhere))
    assert not file.exists()
    assert (elsewhere / "slot-split.py").is_file()
    rows = json_rows(drill("fix", "--folder", str(elsewhere), "--json"), "drills")
    assert len(rows) == len(fix.tasks())
    assert [row["id"] for row in rows if row["begun"]] == ["fix/slot-split"]
    plain = drill("fix", "--folder", str(elsewhere))
    assert f"{len(rows)} kernels" in plain.stdout
    assert max(map(len, plain.stdout.splitlines()[1:])) <= 80
    assert "\x1b" not in plain.stdout


def test_several_at_once_and_what_breaks_them(drill: Drill, file: Path, json_rows: Rows) -> None:
    for name in ("slot-split", "slot-guard", "k-shelf"):
        drill("fix", name)
    put_right(file)
    file.with_name("k-shelf.py").write_bytes(b"\xff\xfe")
    done = drill("check", "--json", "--seed", "5")
    assert done.returncode == 1
    rows = {row["id"]: row for row in json_rows(done, "drills")}
    assert {name: row["status"] for name, row in rows.items()} == {
        "fix/slot-split": "passed", "fix/slot-guard": "failed", "fix/k-shelf": "error"
    }  # fmt: skip
    assert "the blank ____ is still there: `if ____:`" in rows["fix/slot-guard"]["message"]
    assert "not UTF-8 text" in rows["fix/k-shelf"]["message"]


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("check",), "has no kernel yet: `pagewalk drill fix` lists those that you can take."),
        (("check", "slot-split"), "is not there: `pagewalk drill fix fix/slot-split` writes it."),
        (("check", "slot-splat"), "no kernel to fix is called 'slot-splat'. Did you mean fix/slot-split"),
        (("fix", "recall/x"), "no kernel to fix is called 'recall/x'."),
        (("hint",), "Missing argument 'ID'"),
        (("solution", "nothing"), "no kernel to fix is called 'nothing'."),
        (("watch",), "has no kernel yet"),
    ],
)
def test_wrong_use(drill: Drill, args: tuple[str, ...], said: str) -> None:
    done = drill(*args)
    assert done.returncode == 2
    assert said in done.stderr
    assert done.stdout == ""


def test_hints_and_the_solution(drill: Drill, file: Path, json_rows: Rows) -> None:
    shown = [drill("hint", "slot-split").stdout for _ in range(3)]
    assert [text.split(".")[0] for text in shown] == [f"Hint {n} of 3" for n in (1, 2, 3)]
    assert FAULT in shown[2]
    assert "`pagewalk drill solution fix/slot-split` shows the solution." in shown[2]
    (row,) = json_rows(drill("hint", "slot-split", "--all", "--json"), "drills")
    assert [hint["text"] for hint in row["hints"]] == list(SLOT.hints)
    assert row["hints_seen"] == 3
    solution = drill("solution", "slot-split")
    assert f"-    {FAULT}\n+    {RIGHT}\n" in solution.stdout
    assert "the offset the remainder" in " ".join(solution.stdout.split())
    drill("fix", "slot-split")
    put_right(file)
    (row,) = json_rows(drill("solution", "slot-split", "--json"), "drills")
    assert row["diff"] == ""


class Watched:
    """`pagewalk drill watch` as it runs, and the lines that it has printed so far."""

    def __init__(self, folder: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "walkthroughs.cli", "drill", "watch", "slot-split"], cwd=ROOT,
            env=environment(folder) | {"PYTHONUNBUFFERED": "1"}, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            text=True,
        )  # fmt: skip
        self._lines: queue.Queue[str] = queue.Queue()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(line.rstrip())

    def wait_for(self, said: str) -> str:
        while said not in (line := self._lines.get(timeout=120)):
            pass
        return line

    def end(self) -> int:
        self.process.send_signal(signal.SIGINT)
        code = self.process.wait(timeout=60)
        self._reader.join()
        assert self.process.stdout is not None
        self.process.stdout.close()
        return code


def test_watch_judges_at_each_save(drill: Drill, tmp_path: Path, file: Path) -> None:
    drill("fix", "slot-split")
    watched = Watched(tmp_path)
    try:
        watched.wait_for("fix/slot-split: not yet, on sim")
        # As an editor saves: another file is put in its place.
        new = file.with_name("new")
        new.write_text(file.read_text("utf-8").replace(FAULT, "block_offset = ("), "utf-8")
        file.unlink()
        new.replace(file)
        assert "was never closed" in watched.wait_for("line ")
        file.write_text(file.read_text("utf-8").replace("block_offset = (", RIGHT), "utf-8")
        watched.wait_for("fix/slot-split: right on sim")
    finally:
        code = watched.end()
    assert code == 0


def test_in_a_sitting(drill: Drill, file: Path, tmp_path: Path) -> None:
    with Store(tmp_path / "drills.db") as store:
        for name in fix.tasks():
            if name != SLOT.item.id:
                store.suspend(name, datetime.now(UTC) - timedelta(hours=1))
    first = drill("--kind", "fix", "--seed", "3", typed="\nh\nwords\nq\n")
    assert first.returncode == 0, first.stderr
    assert f"Your file: {file}" in first.stdout
    assert "Enter checks your file, h gives a hint, x shows the solution.  ?: keys." in first.stdout
    assert "Not yet, on sim:\n  offset of each token, element [0]\n  observed   2\n  expected   0\n" in first.stdout
    assert "Hint 1 of 3. Slot 35 with blocks of 16" in first.stdout
    assert "The answer is the file: Enter checks it" in first.stdout
    put_right(file)
    second = drill(typed="\n3\n")
    assert f"Your file, as you left it: {file}" in second.stdout
    assert "Right: it holds on sim." in second.stdout
    assert "+    block_offset = slot_idx % block_size" in second.stdout
    assert "Good: again in" in second.stdout
    with Store(tmp_path / "drills.db") as store:
        (event,) = [event for event in store.events() if event.what == "review"]
        assert (event.item, event.rating, event.form) == (SLOT.item.id, 3, "file")
        store.reset(SLOT.item.id, datetime.now(UTC))
    gave_up = drill("--kind", "fix", "--seed", "4", typed="x\n\n")
    assert "Here it is.\nAgain: again in" in gave_up.stdout


def test_it_is_listed_and_shown(drill: Drill, json_rows: Rows) -> None:
    rows = json_rows(drill("list", "--kind", "fix", "--json"), "drills")
    assert [row["id"] for row in rows] == list(fix.tasks())
    (row,) = json_rows(drill("show", "fix/slot-split", "--answer", "--json"), "drills")
    assert row["form"] == "file"
    assert RIGHT in row["answer"]


def test_exports_cope_with_files() -> None:
    from walkthroughs.drills import bank, exports

    found, absent = exports.leaves(bank, ("fix",))
    assert absent == {}
    assert [leaf.item.id for leaf in found] == list(fix.tasks())
    rows = {line["id"]: line for line in csv.DictReader(io.StringIO(exports.to_csv(found, {})))}
    assert f"+    {RIGHT}" in rows["fix/slot-split"]["answer"]
    assert "the offset the remainder" in " ".join(rows["fix/slot-split"]["answer"].split())
    page = exports.to_markdown(found)
    assert "## Fix\n\n### Two query heads read the wrong keys\n\n`fix/kv-head`, level 1" in page
    assert page.count("```diff\n") == len(fix.tasks())
    assert page.count("```") == 2 * page.count("```diff\n")
    assert "fix" not in exports.ANKI_KINDS, "no card can run a kernel"


def test_the_message_of_a_check_is_json_for_every_reader(drill: Drill, json_rows: Rows) -> None:
    drill("fix", "slot-split")
    done = drill("check", "slot-split", "--json")
    assert done.returncode == 1
    data = json.loads(done.stdout)
    assert data["schema"] == 1
    (row,) = json_rows(done, "drills")
    assert row["status"] == "failed"
    failure = row["backends"][0]["failure"]
    assert (failure["got"], failure["wanted"], failure["at"]) == ("2", "0", "[0]")
    assert failure["upstream"][0]["link"].startswith("https://")


def test_a_folder_that_cannot_be_made_ends_no_sitting(drill: Drill, tmp_path: Path) -> None:
    (tmp_path / "drills").write_text("in the way", "utf-8")
    done = drill("--kind", "fix", "--seed", "3", typed="\nq\n")
    assert done.returncode == 0, done.stderr
    assert "PAGEWALK_STATE can name another folder." in done.stdout
    assert "Kept." in done.stdout
    alone = drill("fix", "slot-split")
    assert alone.returncode == 1
    assert alone.stderr.startswith("Error: ")
    assert len(alone.stderr.splitlines()) == 1
