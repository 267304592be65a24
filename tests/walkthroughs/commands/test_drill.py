"""`pagewalk drill` over a made-up bank: sessions by pipe and by terminal, killed and taken up again; its commands."""

from __future__ import annotations

import csv
import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from annotate.sourcetree import SCHEMA
from walkthroughs.digest import ROOT
from walkthroughs.drills.schedule import to_ms
from walkthroughs.drills.store import Store

SAMPLE = ROOT / "tests" / "walkthroughs" / "drills" / "sample.py"
Rows = Callable[["subprocess.CompletedProcess[str]", str], list[dict[str, Any]]]
Drill = Callable[..., "subprocess.CompletedProcess[str]"]
SUM = re.compile(r"What is \d+ of (\d+) \+ (\d+)\?")
ESCAPE = "\x1b"


def environment(folder: Path, columns: int = 80) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT), "PAGEWALK_STATE": str(folder), "COLUMNS": str(columns)}


@pytest.fixture
def drill(tmp_path: Path) -> Drill:
    """Run `pagewalk drill ARGS` over the made-up bank, with `typed` as its input."""

    def run(*args: str, typed: str = "", folder: Path = tmp_path) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, str(SAMPLE), "drill", *args]
        return subprocess.run(
            command, cwd=ROOT, env=environment(folder), input=typed, capture_output=True, text=True, timeout=120,
            check=False,
        )  # fmt: skip

    return run


def titles(done: subprocess.CompletedProcess[str]) -> list[str]:
    """The ids of the questions that were asked, in order."""
    return re.findall(r"^── .*\n.*\(([a-z]+/[a-z-]+)\)$", done.stdout, re.MULTILINE)


def events(folder: Path) -> list[tuple[str, str, int | None]]:
    with Store(folder / "drills.db") as store:
        return [(event.what, event.item, event.rating) for event in store.events()]


def test_a_first_session(drill: Drill, tmp_path: Path) -> None:
    done = drill("--seed", "7", typed="I think\n3\nq\n")
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    first, _, rest = done.stdout.partition("\n\n")
    assert len(first.splitlines()) == 4
    assert first.startswith("Interview questions on how PagedAttention kernels work")
    assert max(map(len, first.splitlines())) <= 80
    assert titles(done) == ["recall/table", "recall/deeper"]
    assert "You said 7 letters." in rest
    assert " 1 logical to physical" in rest
    assert "   pagewalk walk paged-reference/lookup" in rest
    assert "1 Again (1 min)   2 Hard (6 min)   3 Good (10 min)   4 Easy (8 d)   Enter: 3" in rest
    assert rest.count("How well did you know it?") == 1
    assert "Good: again in 10 min." in rest
    assert rest.endswith("Kept. `pagewalk drill` goes on here.\n")
    assert ESCAPE not in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80
    assert events(tmp_path) == [("review", "recall/table", 3)]


def test_the_next_day_of_a_first_session_says_nothing_of_beginnings(drill: Drill) -> None:
    drill("--seed", "7", typed="\n3\nq\n")
    again = drill(typed="q\n")
    assert "Interview questions" not in again.stdout
    assert "How well did you know it?" not in again.stdout
    assert "Going on where you left." in again.stdout


def test_the_same_question_is_asked_after_an_interruption(drill: Drill) -> None:
    shown = [SUM.findall(drill("--kind", "compute", typed="").stdout) for _ in range(3)]
    assert len(shown[0]) == 1
    assert shown[0] == shown[1] == shown[2]
    other = SUM.findall(drill("--kind", "compute", "--restart", "--seed", "99", typed="").stdout)
    assert other != shown[0]


def test_numbers_are_graded_at_once(drill: Drill, tmp_path: Path) -> None:
    shown = drill("--kind", "compute", "--seed", "3", typed="").stdout
    ((a, b),) = SUM.findall(shown)
    done = drill("--kind", "compute", typed=f"many\n{int(a) + int(b)}\n5\n4\n0\n\n")
    assert "'many' is no number. Try again." in done.stdout
    assert "Right.\n" in done.stdout
    assert "'5' is none of 1, 2, 3 and 4." in done.stdout
    assert "Easy: again in 8 d." in done.stdout
    assert "No: the carry was forgotten.\nAgain: again in 1 min." in done.stdout
    assert "Done: 2 answers (1 Again, 1 Easy).\nNext: 1 in 1 min.\n" in done.stdout
    assert events(tmp_path) == [("review", "compute/slot", 4), ("review", "compute/sum", 1)]
    with Store(tmp_path / "drills.db") as store:
        assert store.session() is None
        assert all(e.form == "number" and e.seed is not None and e.took is not None for e in store.events())


def test_enter_alone_is_not_knowing_and_a_letter_can_be_an_answer(drill: Drill, tmp_path: Path) -> None:
    done = drill("--kind", "find", "--seed", "3", typed="=u\n\nq\n")
    assert "Right." in done.stdout
    assert events(tmp_path) == [("review", "find/walk", 3)]
    assert "find/absent is left out: vllm@0.0 is not available" in done.stderr
    assert "Done: 1 answer (1 Good)." in done.stdout
    drill("reset", "find/walk")
    done = drill("--kind", "find", "--seed", "3", typed="\n\n")
    assert "Here it is.\nAgain: again in 1 min." in done.stdout
    assert "line 17" in done.stdout


def test_what_cannot_be_graded_here_is_left_out_too(drill: Drill, tmp_path: Path) -> None:
    done = drill("--kind", "find", "--seed", "3", typed="lost\n")
    assert "find/walk is left out: vllm@0.1 is not available" in done.stderr
    assert "Done: 0 answers." in done.stdout
    assert events(tmp_path) == []
    assert titles(drill("--kind", "find", typed="q\n")) == ["find/walk"]  # in the next session it is tried again


def test_undo_suspend_bury_and_the_keys(drill: Drill, tmp_path: Path) -> None:
    done = drill("--seed", "7", typed="u\n?\n\n4\nu\n\n1\ns\nu\ns\nb\nq\n")
    assert "Nothing to undo in this session." in done.stdout
    for key in "usbq?":
        assert f"  {key}  " in done.stdout
    asked = titles(done)
    assert asked[:3] == ["recall/table", "recall/deeper", "recall/table"]
    assert "Undone: review of recall/table." in done.stdout
    suspended = re.findall(r"^(\S+) is suspended", done.stdout, re.MULTILINE)
    assert len(suspended) == 2
    assert suspended[0] == suspended[1]
    assert f"Undone: suspend of {suspended[0]}." in done.stdout
    (buried,) = re.findall(r"^(\S+) is buried until tomorrow", done.stdout, re.MULTILINE)
    kept = [(what, item) for what, item, _ in events(tmp_path)]
    assert kept == [
        ("review", "recall/table"), ("undo", "recall/table"), ("review", "recall/table"), ("suspend", suspended[0]),
        ("undo", suspended[0]), ("suspend", suspended[0]), ("bury", buried),
    ]  # fmt: skip
    again = drill(typed="q\n")
    assert not {suspended[0], buried} & set(titles(again))


def test_undoing_a_wrong_answer_asks_the_same_numbers_again(drill: Drill, tmp_path: Path) -> None:
    done = drill("--kind", "compute", "--seed", "3", typed="0\nu\nq\n")
    asked = SUM.findall(done.stdout)
    assert len(asked) == 2
    assert asked[0] == asked[1]
    assert [what for what, _, _ in events(tmp_path)] == ["review", "undo"]
    assert "0 due, 8 new" in drill("due").stderr


def test_at_the_end_it_says_what_comes(drill: Drill) -> None:
    done = drill("--new", "1", "--seed", "7", typed="\n3\n")
    assert "Done: 1 answer (1 Good).\nNext: 1 in 10 min.\n7 new ones wait" in done.stdout
    empty = drill("--new", "0", typed="")
    assert "Done: 0 answers." in empty.stdout


def test_due_comes_before_new(drill: Drill, tmp_path: Path) -> None:
    now = datetime.now(UTC)
    with Store(tmp_path / "drills.db") as store:
        store.review("compute/sum", 1, now - timedelta(days=2))
        store.review("recall/why-paged", 1, now - timedelta(days=3))
        store.review("gone/item", 1, now - timedelta(days=4))
    assert titles(drill(typed="\n1\n0\n\nq\n"))[:3] == ["recall/why-paged", "compute/sum", "find/walk"]


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="there is no kill -9 here")
def test_kill_9_in_mid_session_loses_at_most_the_answer_being_typed(drill: Drill, tmp_path: Path) -> None:
    chance = random.Random(11)
    answered = 0
    command = [sys.executable, str(SAMPLE), "drill", "--kind", "compute", "--kind", "recall"]
    for _ in range(4):
        process = subprocess.Popen(
            command, cwd=ROOT, env=environment(tmp_path) | {"PYTHONUNBUFFERED": "1"}, stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        )  # fmt: skip
        assert process.stdin is not None
        assert process.stdout is not None
        for _ in range(chance.randrange(0, 5)):
            process.stdin.write("\n")
            process.stdin.flush()
        time.sleep(chance.random() * 0.4)
        process.send_signal(signal.SIGKILL)
        said = process.stdout.read()
        process.wait(timeout=60)
        process.stdin.close()
        process.stdout.close()
        told = len(re.findall(r"^(?:Again|Good): again in", said, re.MULTILINE))
        with Store(tmp_path / "drills.db") as store:
            times = [event.when for event in store.events()]
            count = len(times)
            assert answered + told <= count <= answered + told + 1  # kept before it is said
            session = store.session()
            kept = store.entries()
            store.recompute()
            assert store.entries() == kept
        answered = count
        if session is not None:
            # The answer and the place in the session are kept together.
            assert session["asked"] == sum(when >= session["started"] for when in times)
    done = drill("--kind", "compute", "--kind", "recall", typed="q\n")
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(sys.platform == "win32", reason="there are no pseudo-terminals here")
def test_at_a_terminal_space_reveals_and_one_key_rates(tmp_path: Path, prompted: Callable[..., None]) -> None:
    import pexpect

    env = environment(tmp_path) | {"TERM": "xterm", "NO_COLOR": "1"}
    child = pexpect.spawn(
        sys.executable, [str(SAMPLE), "drill", "--seed", "7"], env=env, cwd=str(ROOT), encoding="utf-8", timeout=60,
        dimensions=(40, 80),
    )  # fmt: skip
    try:
        child.expect_exact("recall/table")
        prompted(child)
        child.send(" ")
        child.expect_exact("It maps blocks.")
        prompted(child, "1-4 ")
        child.send("4")
        child.expect_exact("Easy: again in 8 d.")
        child.expect_exact("recall/deeper")
        prompted(child)
        child.send("abc\r")
        child.expect_exact("You said 3 letters.")
        prompted(child, "1-4 ")
        child.send("\r")
        child.expect_exact("Good: again in 10 min.")
        prompted(child)
        child.send("\x1b[A")  # an arrow: nothing
        child.send("x")
        child.expect_exact("x")
        child.send("yz\x7f\r")  # edited: xy
        child.expect_exact("You said 2 letters.")
        prompted(child, "1-4 ")
        child.send("q")
        child.expect_exact("Kept.")
        child.expect(pexpect.EOF)
    finally:
        child.close(force=True)
    assert child.exitstatus == 0
    assert events(tmp_path) == [("review", "recall/table", 4), ("review", "recall/deeper", 3)]


# The commands beside the session


def test_list(drill: Drill, json_rows: Rows, tmp_path: Path) -> None:
    now = datetime.now(UTC)
    with Store(tmp_path / "drills.db") as store:
        store.review("recall/table", 4, now)
        store.review("compute/slot", 1, now - timedelta(hours=1))
        store.suspend("find/walk", now)
        store.bury("recall/deepest", now, now + timedelta(days=1))
    text = drill("list").stdout.splitlines()
    assert text[0] == "8 items: 4 recall, 2 compute, 2 find"
    says = {name: said for name, said, _ in (re.split(r"  +", line.rstrip()) for line in text[1:])}
    assert says == {
        "recall/table": "in 8 d", "recall/why-paged": "new", "recall/deeper": "new",
        "recall/deepest": "buried", "compute/slot": "now", "compute/sum": "new",
        "find/walk": "suspended", "find/absent": "new",
    }  # fmt: skip
    done = drill("list", "--json")
    rows = {row["id"]: row for row in json_rows(done, "drills")}
    assert done.stderr == "8 items: 4 recall, 2 compute, 2 find\n"
    assert rows["find/walk"]["suspended"] is True
    assert rows["recall/deepest"]["buried"] is True
    assert rows["recall/deeper"]["after"] == "recall/table"
    assert datetime.fromisoformat(rows["recall/table"]["due"]) - now > timedelta(days=7)
    assert [row["id"] for row in json_rows(drill("list", "--kind", "find", "--json"), "drills")] == [
        "find/walk", "find/absent",
    ]  # fmt: skip


def test_show(drill: Drill, json_rows: Rows) -> None:
    text = drill("show", "recall/table").stdout
    assert text.startswith("What is a block table?  (recall/table, level 1)\n")
    assert "It maps blocks." not in text
    assert "  followed by recall/deeper\n" in text
    assert "due: new; 0 reviews" in text
    assert "It maps blocks." in drill("show", "recall/table", "--answer").stdout
    (row,) = json_rows(drill("show", "compute/slot", "--json", "--answer"), "drills")
    ((a, b),) = SUM.findall(row["question"])
    assert row["answer"] == f"{int(a) + int(b)} bytes"
    (row,) = json_rows(drill("show", "compute/slot", "--json"), "drills")
    assert row["answer"] is None
    absent = drill("show", "find/absent")
    assert (absent.returncode, absent.stdout) == (1, "")
    assert "pagewalk fetch vllm@0.0" in absent.stderr


@pytest.mark.parametrize("command", ["show", "reset", "suspend", "unsuspend"])
def test_unknown_ids_answer_with_the_nearest(drill: Drill, tmp_path: Path, command: str) -> None:
    done = drill(command, "recal/tabel")
    assert done.returncode == 2
    assert "Did you mean recall/table" in done.stderr
    assert "slot" in drill(command, "slot").stderr
    if command != "show":
        assert drill(command, "recall/table", "nonsense").returncode == 2
    assert not (tmp_path / "drills.db").exists() or events(tmp_path) == []


def test_unknown_kinds_and_commands(drill: Drill) -> None:
    done = drill("--kind", "recal")
    assert done.returncode == 2
    assert "Did you mean recall?" in done.stderr
    assert drill("nonsense").returncode == 2
    assert drill("--new", "-1").returncode == 2
    assert drill("export", "pdf", "x").returncode == 2


def test_due_and_stats(drill: Drill, json_rows: Rows, tmp_path: Path) -> None:
    now = datetime.now(UTC)
    with Store(tmp_path / "drills.db") as store:
        store.review("recall/table", 1, now - timedelta(hours=3))
        store.review("compute/slot", 1, now - timedelta(hours=5))
    done = drill("due")
    assert done.stderr == "2 due (1 compute, 1 recall), 6 new\n"
    assert [line.split()[0] for line in done.stdout.splitlines()] == ["compute/slot", "recall/table"]
    assert "for 5 h" in done.stdout
    assert [row["id"] for row in json_rows(drill("due", "--json"), "drills")] == ["compute/slot", "recall/table"]
    rows = {row["id"]: row for row in json_rows(drill("stats", "--json"), "kinds")}
    assert list(rows) == ["recall", "compute", "find", "all"]
    assert (rows["all"]["due"], rows["all"]["recent"], rows["all"]["right"]) == (2, 2, 0)
    text = drill("stats").stdout
    assert "0 % of 2" in text
    assert "in a row" not in drill("stats").stderr
    assert re.search(r"days in a row: \d", drill("stats", "--streak").stderr)
    assert max(map(len, text.splitlines())) <= 80


def test_reset_suspend_unsuspend(drill: Drill, json_rows: Rows, tmp_path: Path) -> None:
    drill("--seed", "7", typed="\n4\nq\n")
    done = drill("suspend", "recall/table", "recall/deeper", "--json")
    assert [row["suspended"] for row in json_rows(done, "drills")] == [True, True]
    assert done.stderr == "recall/table: suspended\nrecall/deeper: suspended\n"
    assert "in 8 d" in drill("unsuspend", "recall/table").stderr
    (row,) = json_rows(drill("reset", "recall/table", "--json"), "drills")
    assert (row["state"], row["reviews"], row["due"]) == ("new", 0, None)
    assert [what for what, _, _ in events(tmp_path)] == ["review", "suspend", "suspend", "unsuspend", "reset"]


def test_two_machines(drill: Drill, json_rows: Rows, tmp_path: Path) -> None:
    here, there, file = tmp_path / "here", tmp_path / "there", tmp_path / "history.json"
    drill("--seed", "1", typed="\n3\n\n4\nq\n", folder=here)
    drill("--seed", "2", typed="\n1\nq\n", folder=there)
    assert drill("export", "json", str(file), folder=here).returncode == 0
    (row,) = json_rows(drill("import", str(file), "--json", folder=there), "imports")
    assert (row["events"], row["added"]) == (2, 2)
    assert "0 new of 2 events" in drill("import", str(file), folder=there).stderr
    drill("export", "json", str(file), folder=there)
    drill("import", str(file), folder=here)
    assert len(events(here)) == 3
    assert events(here) == events(there)
    assert drill("list", folder=here).stdout == drill("list", folder=there).stdout


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is no JSON"), ("[", "is no JSON"), ("[" * 100_000, "is no JSON"), ("[]", "no export of drills"),
        ('{"schema": 1, "kind": "pagewalk-drills", "log": [{}]}', "log[0] is no event"),
    ],
)  # fmt: skip
def test_what_cannot_be_imported_changes_nothing(drill: Drill, tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "history.json"
    file.write_text(text)
    done = drill("import", str(file))
    assert done.returncode == 1
    assert said in done.stderr
    assert "Nothing was imported" in done.stderr
    assert "Traceback" not in done.stderr


def test_exports(drill: Drill, json_rows: Rows, tmp_path: Path) -> None:
    drill("--seed", "7", typed="\n4\nq\n")
    paths = {form: tmp_path / "deep" / f"drills.{form}" for form in ("json", "csv", "markdown", "anki")}
    for form, path in paths.items():
        done = drill("export", form, str(path), "--json")
        (row,) = json_rows(done, "exports")
        assert row["left_out"] == ([] if form == "json" else ["find/absent"])
        assert row["count"] == (1 if form == "json" else 7)
    assert json.loads(paths["json"].read_text())["kind"] == "pagewalk-drills"
    assert len(list(csv.DictReader(paths["csv"].read_text().splitlines()))) >= 7
    assert paths["markdown"].read_text().startswith("# Pagewalk: drills")
    assert paths["anki"].read_bytes()[:2] == b"PK"


def test_a_store_that_cannot_be_used_is_one_line(drill: Drill, tmp_path: Path) -> None:
    (tmp_path / "drills.db").write_bytes(b"no database at all, but rather long" * 40)
    for args in ([], ["list"], ["due"], ["reset", "recall/table"]):
        done = drill(*args)
        assert done.returncode == 1
        assert "not a database. Move the file away" in done.stderr
        assert "Traceback" not in done.stderr


def test_another_day_begins_another_session_with_the_open_question(drill: Drill, tmp_path: Path) -> None:
    drill("--kind", "compute", "--seed", "3", typed="0\n\n")
    with Store(tmp_path / "drills.db") as store:
        kept = store.session()
        assert kept is not None
        store.keep(kept | {"started": to_ms(datetime.now(UTC) - timedelta(days=2))})
    drill(typed="")
    with Store(tmp_path / "drills.db") as store:
        after = store.session()
    assert after is not None
    assert (after["item"], after["question"]) == (kept["item"], kept["question"])
    assert (kept["asked"], after["asked"], after["fresh"]) == (1, 0, 0)


def test_a_list_imports_nothing_heavy(tmp_path: Path) -> None:
    code = (
        "import sys, runpy\n"
        f"sys.argv = [{str(SAMPLE)!r}, 'drill', 'list']\n"
        "try:\n    runpy.run_path(sys.argv[0], run_name='__main__')\n"
        "except SystemExit as end:\n    assert not end.code\n"
        "heavy = {'numba', 'torch', 'tree_sitter', 'textual', 'genanki'}\n"
        "found = {name.partition('.')[0] for name in sys.modules} & heavy\n"
        "assert not found, found\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=environment(tmp_path), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_over_the_bank_itself(
    run_cli: Callable[..., subprocess.CompletedProcess[str]], json_rows: Rows, tmp_path: Path
) -> None:
    env = {"PAGEWALK_STATE": str(tmp_path), "COLUMNS": "80"}
    listed = run_cli("drill", "list", "--json", env=env)
    rows = json_rows(listed, "drills")
    counts = Counter(row["kind"] for row in rows)
    assert counts["recall"] >= 80
    assert counts["compute"] >= 25
    assert min(counts["predict"], counts["find"]) >= 10
    parts = ", ".join(f"{count} {kind}" for kind, count in counts.items())
    assert listed.stderr == f"{len(rows)} items: {parts}\n"
    text = run_cli("drill", "list", env=env).stdout.splitlines()
    assert max(map(len, text)) <= 80
    assert [line.split()[0] for line in text[1:] if line[0] != " "] == [row["id"] for row in rows]
    done = run_cli("drill", "--seed", "1", env=env)  # no input at all: it asks, keeps the session, and leaves
    assert done.returncode == 0, done.stderr
    assert "Kept." in done.stdout
    with Store(tmp_path / "drills.db") as store:
        session = store.session()
    assert session is not None
    assert session["item"] in {row["id"] for row in rows}


@pytest.mark.parametrize(("form", "said"), [("lines", "pagewalk fetch vllm@0.24.0"), ("number", ""), ("self", "")])
def test_where_to_look(form: Any, said: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from annotate.sourcetree import pins
    from walkthroughs.commands.drill_session import look_in
    from walkthroughs.drills.item import Item, Question

    monkeypatch.setenv("PAGEWALK_CACHE", str(tmp_path))
    item = Item("find/walk", "", 1)
    question = Question(item, 1, "Where?", form, state={"source": "vllm@0.24.0"})
    assert said in look_in(question)
    assert bool(said) == bool(look_in(question))
    assert look_in(Question(item, 1, "Where?", form)) == ""
    # Where the source is here, its folder is said.
    pin = pins()["vllm@0.24.0"]
    home = tmp_path / "sources" / pin.id
    (home / "tree").mkdir(parents=True)
    manifest = {"schema": SCHEMA, "digest": pin.digest, "globs": [*pin.files, *pin.beside]}
    (home / "manifest.json").write_text(json.dumps(manifest | {"files": {}, "marked_copy": False}))
    assert look_in(question) == (f"Its files are in {home / 'tree'}" if said else "")
