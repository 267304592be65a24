"""`pagewalk drill interview`: by pipe, by terminal and by a clock of its own; left, killed, taken up and ended."""

from __future__ import annotations

import contextlib
import io
import json
import os
import random
import re
import select
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from click.testing import CliRunner
from rich.console import Console

from walkthroughs.commands.drill import drill_command
from walkthroughs.commands.drill_interview import closed
from walkthroughs.commands.drill_session import Keys, Quit
from walkthroughs.commands.interview_talk import Talk
from walkthroughs.digest import ROOT
from walkthroughs.drills import interview as state
from walkthroughs.drills.errors import DrillError
from walkthroughs.drills.interview import MINUTE, Interview
from walkthroughs.drills.schedule import to_ms
from walkthroughs.drills.store import Store

SAMPLE = ROOT / "tests" / "walkthroughs" / "drills" / "sample.py"
Done = subprocess.CompletedProcess[str]
Rows = Callable[[Done, str], list[dict[str, Any]]]
Hold = Callable[..., Done]
HEAD = re.compile(r"^── (\d+) · (\w+) · level (\d) · ([a-z ]+) · (.*)\n.*\(([a-z]+/[a-z-]+)\)$", re.MULTILINE)
SUM = re.compile(r"What is \d+ of (\d+) \+ (\d+)\?")
NOTHING = "\n0\n" * 60
"""Enter to everything, and 0 for no point."""


def environment(folder: Path, columns: int = 80) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT), "PAGEWALK_STATE": str(folder), "COLUMNS": str(columns)}


@pytest.fixture
def hold(tmp_path: Path, sample: ModuleType, monkeypatch: pytest.MonkeyPatch) -> Hold:
    """Run `pagewalk drill interview ARGS` over the made-up bank, in this process, with `typed` as its input."""
    monkeypatch.setattr("walkthroughs.commands.drill_interview.the_bank", sample.Sample)

    def run(*args: str, typed: str = "") -> Done:
        env = {"PAGEWALK_STATE": str(tmp_path), "COLUMNS": "80"}
        done = CliRunner().invoke(drill_command, ["interview", *args], input=typed, env=env)
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            raise done.exception
        return subprocess.CompletedProcess(args, done.exit_code, done.stdout, done.stderr)

    return run


@pytest.fixture
def hold_apart(tmp_path: Path) -> Hold:
    """The same as a program of its own."""

    def run(*args: str, typed: str = "") -> Done:
        command = [sys.executable, str(SAMPLE), "drill", "interview", *args]
        return subprocess.run(
            command, cwd=ROOT, env=environment(tmp_path), input=typed, capture_output=True, text=True, timeout=120,
            check=False,
        )  # fmt: skip

    return run


def asked(done: Done) -> list[str]:
    """The items that were asked, in order."""
    return [match[5] for match in HEAD.findall(done.stdout)]


def kept(folder: Path) -> Interview | None:
    with Store(folder / "drills.db") as store:
        return state.from_json(store.interview())


def reviews(folder: Path) -> list[tuple[str, int | None, str]]:
    with Store(folder / "drills.db") as store:
        return [(event.item, event.rating, event.form) for event in store.events() if event.what == "review"]


def reports(folder: Path) -> list[Path]:
    return sorted((folder / "interviews").glob("*"))


def test_a_whole_interview_by_pipe(hold_apart: Hold, tmp_path: Path) -> None:
    done = hold_apart("--seed", "7", "--role", "kernel", typed=NOTHING)
    assert done.returncode == 0, done.stderr
    first = done.stdout.partition("\n\n")[0].splitlines()
    assert first[0] == "A mock interview: 20 minutes, for a kernel engineer."
    assert len(first) == 4
    names = asked(done)
    assert "find/absent is left out: vllm@0.0 is not available" in done.stderr
    answered = [name for name in names if name != "find/absent"]
    assert len(set(names)) == len(names)
    assert {name.split("/")[0] for name in answered} == {"recall", "compute", "find"}
    assert "That was all there is to ask." in done.stdout
    assert f"Score: 0 %, 0 of {sum(2 if n[0] == 'r' else 1 for n in answered)} points" in done.stdout
    assert "To read next, from the points that you missed:\n  pagewalk " in done.stdout
    assert reviews(tmp_path) == [(n, 1, {"r": "self", "c": "number", "f": "lines"}[n[0]]) for n in answered]
    (path,) = reports(tmp_path)
    assert done.stdout.splitlines()[-1] == str(path)
    text = path.read_text()
    assert re.findall(r"^### \d+\. .*\n\n`(\S+)`", text, re.MULTILINE) == answered
    assert kept(tmp_path) is None
    assert max(map(len, done.stdout.splitlines()[:-1])) <= 80
    assert "\x1b" not in done.stdout


def test_the_same_seed_is_the_same_interview(hold: Hold) -> None:
    def shown(seed: int) -> list[str]:
        return HEAD.findall(hold("--seed", str(seed), "--restart", typed="It is\na table\n\na\n" + NOTHING).stdout)

    assert shown(5) == shown(5)
    assert shown(5) != shown(6)


def test_points_are_ticked(hold: Hold, tmp_path: Path) -> None:
    done = hold("--seed", "7", "--output", str(tmp_path / "r.md"), typed="It\nmaps\n\n3\n?\n2 1\ne\n")
    assert "A good answer has:\n\n 1 logical to physical" in done.stdout
    assert "Which did you have? Such as 1 2; a: all; 0: none." in done.stdout
    assert "'3' is no point: 1 to 2, a for all, 0 for none." in done.stdout
    assert "  e  end it now" in done.stdout
    assert "such as 1 2; a for all, 0 for none" in done.stdout
    assert "\n2 of 2.\n" in done.stdout
    assert "Score: 100 %, 2 of 2 points in 1 question." in done.stdout
    ((_, rating, form),) = reviews(tmp_path)
    assert (rating, form) == (3, "self")
    assert "```text\nIt\nmaps\n```" in (tmp_path / "r.md").read_text()
    assert not reports(tmp_path)


def test_json_is_alone_on_stdout(hold: Hold, json_rows: Rows, tmp_path: Path) -> None:
    done = hold("--seed", "7", "--json", typed="words\n\n1\n" + NOTHING)
    (row,) = json_rows(done, "interviews")
    assert (row["id"], row["role"], row["seed"], row["ended"]) == ("general-7", "general", 7, True)
    assert "── 1 · recall" in done.stderr
    first = row["questions"][0]
    assert (first["answer"], first["had"], first["of"], first["move"]) == ("words", [1], 2, "opens")
    shares = [len(q["had"]) / q["of"] for q in row["questions"]]
    assert row["score"] == pytest.approx(sum(shares) / len(shares))
    assert sum(part["questions"] for part in row["topics"]) == len(row["questions"])
    assert Path(row["report"]).is_file()
    assert all(command.startswith("pagewalk ") for command in row["read_next"])


def test_json_of_one_that_is_left(hold: Hold, json_rows: Rows, tmp_path: Path) -> None:
    (row,) = json_rows(hold("--seed", "7", "--json", typed="words\n\n1\nq\n"), "interviews")
    assert (row["ended"], len(row["questions"])) == (False, 1)
    assert "report" not in row
    (row,) = json_rows(hold("--end", "--json"), "interviews")
    assert (row["ended"], len(row["questions"]), row["score"]) == (True, 1, 0.5)


def test_it_goes_on_where_it_was_left(hold: Hold, tmp_path: Path) -> None:
    first = hold("--seed", "7", "--role", "serving", typed="one\n\na\nq\n")
    assert first.returncode == 0
    assert "Kept: 1 answer, 20 min left." in first.stdout
    second = hold()  # no input at all
    assert "Your interview for an inference or serving engineer goes on: 1 answer so far." in second.stdout
    assert "A mock interview" not in second.stdout
    assert asked(second) == asked(first)[-1:]
    assert HEAD.findall(second.stdout)[0][0] == "2"
    third = hold(typed=NOTHING)
    assert asked(third)[0] == asked(second)[0]
    assert not set(asked(first)[:-1]) & set(asked(third))
    assert len(reports(tmp_path)) == 1
    assert "one" in reports(tmp_path)[0].read_text()


def test_an_answer_waits_for_its_points(hold: Hold, tmp_path: Path) -> None:
    first = hold("--seed", "7", typed="one\ntwo\n\nq\n")
    assert "Kept: 0 answers" in first.stdout
    assert reviews(tmp_path) == []
    second = hold(typed="1\nq\n")
    assert "You said: one\ntwo\nA good answer has:" in second.stdout
    interview = kept(tmp_path)
    assert interview is not None
    assert [(turn.answer, turn.had) for turn in interview.turns] == [("one\ntwo", (1,))]
    assert reviews(tmp_path) == [(asked(first)[0], 2, "self")]


def test_another_wish_is_refused_while_one_is_open(hold: Hold, tmp_path: Path) -> None:
    hold("--seed", "7", "--role", "serving", typed="one\n\na\nq\n")
    for args in (["--role", "kernel"], ["--seed", "8"], ["--minutes", "5"]):
        done = hold(*args)
        assert done.returncode == 2
        assert f"an interview with {args[0]} " in done.stderr
        assert "--restart begins another" in done.stderr
    assert asked(hold("--role", "serving", "--seed", "7", "--minutes", "20")) == asked(hold())
    interview = kept(tmp_path)
    assert interview is not None
    assert len(interview.turns) == 1


def test_restart_keeps_a_report_of_the_one_before(hold: Hold, tmp_path: Path) -> None:
    hold("--seed", "7", typed="one\n\na\nq\n")
    done = hold("--seed", "8", "--restart", typed="q\n")
    (path,) = reports(tmp_path)
    assert f"The one before has a report: {path}" in done.stderr
    assert "**Score: 100 %**" in path.read_text()
    assert HEAD.findall(done.stdout)[0][0] == "1"
    hold("--restart")  # nothing was answered: nothing to report
    assert reports(tmp_path) == [path]
    hold("--seed", "9", "--restart", typed="half a thought\n\nq\n")
    hold("--restart")
    (other,) = set(reports(tmp_path)) - {path}
    assert "half a thought" in other.read_text()


def test_end(hold: Hold, tmp_path: Path) -> None:
    done = hold("--end")
    assert done.returncode == 2
    assert "no interview is open" in done.stderr
    hold("--seed", "7", typed="one\n\nq\n")
    done = hold("--end")
    assert "Nothing was answered, so there is no score." in done.stdout
    (path,) = reports(tmp_path)
    assert "## Left open" in path.read_text()
    assert kept(tmp_path) is None


def test_wrong_use(hold: Hold, tmp_path: Path) -> None:
    done = hold("--role", "kernal")
    assert done.returncode == 2
    assert "no role is called 'kernal'. Did you mean kernel or " in done.stderr
    assert hold("--minutes", "0").returncode == 2
    assert hold("--seed", "-1").returncode == 2
    assert hold("--output", str(tmp_path)).returncode == 2
    assert not (tmp_path / "drills.db").exists()
    for name in ("general", "kernel", "serving", "research"):
        assert name in hold("--help").stdout


def test_a_report_that_cannot_be_written_keeps_the_interview(hold_apart: Hold, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    bad, good = tmp_path / "file" / "r.md", tmp_path / "r.md"
    done = hold_apart("--seed", "7", "--output", str(bad), typed="one\n\na\ne\n")
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    interview = kept(tmp_path)
    assert interview is not None
    assert len(interview.turns) == 1
    assert hold_apart("--end", "--output", str(good)).returncode == 0
    assert "**Score: 100 %**" in good.read_text()
    assert sorted(path.name for path in tmp_path.iterdir() if path.suffix != ".db") == ["file", "r.md"]


def test_a_blank_line_inside_an_answer_ticks_nothing(hold: Hold, tmp_path: Path) -> None:
    done = hold("--seed", "7", typed="It maps.\n\nEvery block.\n\n\n2\nq\n")
    assert "'Every' is no point: 1 to 2, a for all, 0 for none." in done.stdout
    assert done.stdout.count("Type which points you had: 1 to 2, a for all, 0 for none.") == 2
    interview = kept(tmp_path)
    assert interview is not None
    assert [(turn.answer, turn.had) for turn in interview.turns] == [("It maps.", (2,))]


def test_the_end_of_the_input_keeps_what_was_typed(hold: Hold, tmp_path: Path) -> None:
    done = hold("--seed", "7", typed="one\ntwo\n")
    assert "What you typed is kept as your answer: its points are to be ticked still." in done.stdout
    assert reviews(tmp_path) == []
    second = hold(typed="1\nq\n")
    assert "You said: one\ntwo\nA good answer has:" in second.stdout
    interview = kept(tmp_path)
    assert interview is not None
    assert [(turn.answer, turn.had) for turn in interview.turns] == [("one\ntwo", (1,))]


def test_a_report_overwrites_nothing(hold: Hold, tmp_path: Path) -> None:
    path = tmp_path / "r.md"
    path.write_text("mine")
    done = hold("--seed", "7", "--output", str(path))
    assert done.returncode == 2
    assert "r.md is there already. Name another file for the report, or move this one away" in done.stderr
    assert not (tmp_path / "drills.db").exists()
    path.unlink()
    hold("--seed", "7", "--output", str(path), typed="one\n\na\nq\n")
    path.write_text("mine")  # since it began
    done = hold("--end")
    assert done.returncode == 0
    assert f"{path} is there already and stays as it is; the report goes beside it." in done.stderr
    assert done.stdout.splitlines()[-1] == str(tmp_path / "r-2.md")
    assert path.read_text() == "mine"
    assert "**Score: 100 %**" in (tmp_path / "r-2.md").read_text()


@pytest.mark.parametrize("text", ['{"turns": 3, "role": "general"}', "{half of i"])
def test_one_that_cannot_be_read_is_set_aside(hold: Hold, tmp_path: Path, text: str) -> None:
    with Store(tmp_path / "drills.db") as store:
        store.keep_interview({})
    with contextlib.closing(sqlite3.connect(tmp_path / "drills.db")) as db, db:
        db.execute("UPDATE interview SET data = ?", (text,))
    done = hold("--end")
    assert done.returncode == 2
    assert reports(tmp_path) == []
    done = hold("--seed", "8", typed="q\n")
    (path,) = reports(tmp_path)
    assert re.fullmatch(r"unreadable-\d{4}-\d\d-\d\d-\d{6}\.json", path.name)
    assert path.read_text() == text
    assert f"The interview that was open cannot be read; it is kept in {path}. Another begins." in done.stderr
    interview = kept(tmp_path)
    assert interview is not None
    assert interview.seed == 8
    assert "cannot be read" not in hold().stderr


def test_one_for_a_role_that_is_gone_is_set_aside(hold: Hold, tmp_path: Path) -> None:
    gone = state.to_json(Interview(7, 1, role="captain"))
    with Store(tmp_path / "drills.db") as store:
        store.keep_interview(gone)
    hold("--restart", typed="q\n")
    (path,) = reports(tmp_path)
    assert state.from_json(json.loads(path.read_text())) == Interview(7, 1, role="captain")


def test_one_that_cannot_be_set_aside_stays(hold: Hold, tmp_path: Path) -> None:
    with Store(tmp_path / "drills.db") as store:
        store.keep_interview({"turns": 3})
    (tmp_path / "interviews").write_text("no folder")
    assert hold("--seed", "8").returncode == 1
    with Store(tmp_path / "drills.db") as store:
        assert store.interview() == {"turns": 3}


def test_what_is_suspended_is_not_asked(hold: Hold, tmp_path: Path) -> None:
    with Store(tmp_path / "drills.db") as store:
        store.suspend("compute/slot", datetime.now(UTC))
        store.suspend("recall/table", datetime.now(UTC))
    names = asked(hold("--seed", "7", typed=NOTHING))
    assert "compute/sum" in names
    assert not {"compute/slot", "recall/table", "recall/deeper"} & set(names)


def test_a_command_as_an_answer_and_one_that_cannot_be_read(hold: Hold, tmp_path: Path) -> None:
    with Store(tmp_path / "drills.db") as store:
        for name in ("recall/table", "recall/why-paged", "find/walk", "find/absent", "compute/sum"):
            store.suspend(name, datetime.now(UTC))
    done = hold("--seed", "7", typed="many\n=q\n7\n")
    assert "'many' is no number. Try again." in done.stdout
    assert "'q' is no number. Try again." in done.stdout
    assert "No: the carry was forgotten.\nAnswer. " in done.stdout
    assert reviews(tmp_path) == [("compute/slot", 1, "number")]


# With a clock of its own


class Script:
    """Keys that answer from a list of (milliseconds, text), each taking its time; then the input ends."""

    def __init__(self, sample: ModuleType, *lines: tuple[int, str]) -> None:
        self.now = datetime(2026, 3, 1, 9, tzinfo=UTC)
        self.lines = iter(lines)
        self.bank = sample.Sample()
        self.before: Callable[[], None] = lambda: None

    def clock(self) -> datetime:
        return self.now

    def line(self, *, first: bool = False) -> str:
        self.before()
        for milliseconds, text in self.lines:
            self.now += timedelta(milliseconds=milliseconds)
            if text == "^C":
                raise KeyboardInterrupt
            return text
        raise Quit

    def waiting(self) -> bool:
        return False

    def drain(self) -> None:
        pass


def talk(store: Store, script: Script, interview: Interview | None = None) -> tuple[Talk, io.StringIO]:
    out = io.StringIO()
    begun = interview or Interview(7, to_ms(script.now), minutes=3)
    store.keep_interview(state.to_json(begun))
    screen = Console(file=out, width=80)
    return Talk(store, script.bank, begun, script.clock, screen, script), out  # type: ignore[arg-type]


def test_the_time_runs_out_after_the_open_question(sample: ModuleType, store: Store) -> None:
    script = Script(sample, (10_000, "aloud"), (50_000, ""), (5_000, "a"), *[(100_000, ""), (100_000, "0")] * 20)
    held, out = talk(store, script)
    assert held.run()
    left = [match[4] for match in HEAD.findall(out.getvalue())]
    assert left == ["3 min left", "2 min left", "15 s left"][: len(left)]
    assert out.getvalue().endswith("\nTime is up.\n")
    after = held.interview
    first = after.turns[0]
    assert (first.took, first.had, first.of) == (60_000, (1, 2), 2)  # to answer; to tick is not answering
    # 65 seconds for the first; whatever else was begun was begun in time, and was finished.
    assert after.spent == 65_000 + sum(200_000 if turn.kind == "recall" else 100_000 for turn in after.turns[1:])
    assert after.spent - 200_000 < 3 * MINUTE - 30_000


def test_it_says_that_the_time_is_up_where_nothing_fits_any_more(sample: ModuleType, store: Store) -> None:
    script = Script(sample, (143_000, "aloud"), (0, ""), (0, "a"))  # 37 seconds are left of three minutes
    held, out = talk(store, script)
    assert held.run()
    assert len(held.interview.turns) == 1
    assert out.getvalue().endswith("\nTime is up.\n")


def test_pauses_do_not_count(sample: ModuleType, store: Store) -> None:
    script = Script(sample, (1_000, "aloud"), (0, ""), (1_000, "a"), (7_000, "q"))
    held, _ = talk(store, script)
    assert not held.run()
    interview = state.from_json(store.interview())
    assert interview is not None
    assert interview.spent == 9_000
    script.now += timedelta(days=3)
    script.lines = iter([(2_000, "q")])
    again, out = talk(store, script, interview)
    assert not again.run()
    assert again.interview.spent == 11_000
    assert "Kept: 1 answer, 3 min left." in out.getvalue()


def test_ctrl_c_keeps_what_was_answered(sample: ModuleType, store: Store) -> None:
    held, out = talk(store, Script(sample, (0, "aloud"), (0, ""), (0, "1"), (0, "^C")))
    assert not held.run()
    assert "Kept: 1 answer" in out.getvalue()
    interview = state.from_json(store.interview())
    assert interview == held.interview
    assert len(interview.turns) == len(store.events()) == 1


def test_ctrl_c_keeps_what_was_typed(sample: ModuleType, store: Store) -> None:
    held, out = talk(store, Script(sample, (4_000, "one"), (2_000, "two"), (1_000, "^C")))
    assert not held.run()
    interview = state.from_json(store.interview())
    assert interview == held.interview
    assert (interview.answer, interview.took, interview.spent, interview.turns) == ("one\ntwo", 7_000, 7_000, ())
    again, _ = talk(store, Script(sample, (9_000, "0")), interview)
    again.run()
    assert [(turn.answer, turn.had, turn.took) for turn in again.interview.turns] == [("one\ntwo", (), 7_000)]
    assert "What you typed is kept" in out.getvalue()


def test_to_leave_before_a_line_was_typed_keeps_the_question_open(sample: ModuleType, store: Store) -> None:
    held, out = talk(store, Script(sample, (4_000, "^C")))
    assert not held.run()
    assert (held.interview.item[:6], held.interview.answer) == ("recall", None)
    assert "What you typed" not in out.getvalue()


def test_a_clock_that_goes_back_gives_no_time(sample: ModuleType, store: Store) -> None:
    held, _ = talk(store, Script(sample, (-50_000, "aloud"), (0, ""), (1_000, "a"), (0, "q")))
    held.run()
    assert held.interview.spent == 1_000
    assert held.interview.turns[0].took == 0


def test_what_no_file_can_hold_is_replaced(sample: ModuleType, store: Store) -> None:
    lines = [(0, "aloud \udcff"), (0, ""), (0, "a"), (0, "\udcff"), (0, "3\udcff"), (0, "e")]
    held, out = talk(store, Script(sample, *lines))
    assert held.run()
    row = closed(store, sample.Sample(), held.interview, Console(file=out, width=80))
    assert "aloud ?" in Path(row["report"]).read_text()


def test_two_processes_do_not_mix_their_answers(sample: ModuleType, store: Store) -> None:
    script = Script(sample, (0, "aloud"), (0, ""), (0, "a"), *[(0, "")] * 9)
    held, _ = talk(store, script)

    def the_other_answers() -> None:
        if held.interview.turns:
            store.keep_interview(state.to_json(Interview(7, held.interview.started)))

    script.before = the_other_answers
    with pytest.raises(DrillError, match="went on with this one"):
        held.run()
    assert len(store.events()) == 1  # no review without its place in the interview
    other = state.from_json(store.interview())
    assert other is not None
    assert other.turns == ()


def test_one_that_another_process_ended_is_not_raised_again(sample: ModuleType, store: Store) -> None:
    script = Script(sample, (0, "aloud"), (0, ""), (0, "a"), (0, ""))
    held, _ = talk(store, script)
    script.before = lambda: store.keep_interview(None)
    with pytest.raises(DrillError, match="went on with this one"):
        held.run()
    assert store.interview() is None
    assert store.empty()


def test_right_answers_lead_on(sample: ModuleType, store: Store) -> None:
    """A reader who knows everything: the chain is followed, and every review is Good."""

    class Knows(Script):
        def line(self, *, first: bool = False) -> str:
            self.now += timedelta(seconds=1)
            question = self.bank.ask(self.bank.items()[held.interview.item], held.interview.question)
            if question.form == "self":
                return "a" if held.interview.answer is not None else ""
            return str(question.state["sum"]) if question.form == "number" else "17"

    script = Knows(sample)
    held, _ = talk(store, script, Interview(7, to_ms(script.now), minutes=20))
    assert held.run()
    turns = {turn.item: turn for turn in held.interview.turns}
    assert (turns["recall/deeper"].move, turns["recall/deeper"].parent) == ("deeper", "recall/table")
    assert (turns["recall/deepest"].move, turns["recall/deepest"].parent) == ("deeper", "recall/deeper")
    assert {event.rating for event in store.events()} == {3}
    assert [event.seed for event in store.events()] == [turn.seed for turn in held.interview.turns]
    assert {event.took for event in store.events()} == {1_000}
    row = closed(store, script.bank, held.interview, Console(file=io.StringIO(), width=80))
    assert (row["score"], row["read_next"]) == (1, [])
    assert json.loads(json.dumps(row)) == row


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """An empty store."""
    with Store(tmp_path / "drills.db") as made:
        yield made


@pytest.fixture(scope="module")
def sample() -> ModuleType:
    """The module of the made-up bank."""
    import importlib.util

    spec = importlib.util.spec_from_file_location("drills_sample", SAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# Killed, and at a terminal


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="there is no kill -9 here")
def test_kill_9_in_the_middle_loses_at_most_the_answer_being_typed(hold_apart: Hold, tmp_path: Path) -> None:
    chance = random.Random(3)
    command = [sys.executable, str(SAMPLE), "drill", "interview"]
    answered = 0
    for turn in range(4):
        process = subprocess.Popen(
            [*command, *(("--seed", "7") if not turn else ())], cwd=ROOT,
            env=environment(tmp_path) | {"PYTHONUNBUFFERED": "1"}, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL, text=True,
        )  # fmt: skip
        assert process.stdin is not None
        assert process.stdout is not None
        said = []
        for line in ("\n", "0\n", "\n")[: chance.randrange(1, 4)]:
            process.stdin.write(line)
            process.stdin.flush()
        while not any(line.startswith("── ") for line in said):  # it is up and running
            said.append(process.stdout.readline())
        time.sleep(chance.random() * 0.2)
        process.send_signal(signal.SIGKILL)
        said.append(process.stdout.read())
        process.wait(timeout=60)
        process.stdin.close()
        process.stdout.close()
        told = len(re.findall(r"^(?:0 of 2\.|Answer\. )", "".join(said), re.MULTILINE))
        interview = kept(tmp_path)
        assert interview is not None
        assert answered + told <= len(interview.turns) <= answered + told + 1
        answered = len(interview.turns)
        # The answer and its review are kept together.
        assert [(turn.item, turn.rating) for turn in interview.turns] == [row[:2] for row in reviews(tmp_path)]
    assert answered
    done = hold_apart(typed=NOTHING)
    assert done.returncode == 0, done.stderr
    (path,) = reports(tmp_path)
    assert len(re.findall(r"^### ", path.read_text(), re.MULTILINE)) == 5  # all that follows nothing up


@pytest.mark.skipif(sys.platform == "win32", reason="there are no pseudo-terminals here")
def test_at_a_terminal(tmp_path: Path, prompted: Callable[..., None]) -> None:
    import pexpect

    def spawned(*args: str) -> Any:
        return pexpect.spawn(
            sys.executable, [str(SAMPLE), "drill", "interview", *args], cwd=str(ROOT), encoding="utf-8", timeout=60,
            env=environment(tmp_path) | {"TERM": "xterm", "NO_COLOR": "1"}, dimensions=(24, 80),
        )  # fmt: skip

    child = spawned("--seed", "7")
    try:
        child.expect_exact("── 1 · recall")
        prompted(child)
        child.send("a")
        child.expect_exact("a")
        child.send("bcd\x7f\r")  # edited
        prompted(child)
        child.send("second\r")
        prompted(child)
        child.send("\r")
        child.expect_exact("A good answer has:")
        prompted(child)
        child.send("1 2\r")
        child.expect_exact("2 of 2.")
        child.expect_exact("── 2 ·")
        prompted(child)
        child.sendintr()
        child.expect_exact("Kept: 1 answer")
        child.expect(pexpect.EOF)
    finally:
        child.close(force=True)
    assert child.exitstatus == 0
    child = spawned()
    try:
        child.expect_exact("── 2 ·")
        prompted(child)
        child.send("\x04")  # the end of the input
        child.expect_exact("Kept: 1 answer")
        child.expect(pexpect.EOF)
    finally:
        child.close(force=True)
    interview = kept(tmp_path)
    assert interview is not None
    assert [turn.answer for turn in interview.turns] == ["abc\nsecond"]


@pytest.mark.skipif(sys.platform == "win32", reason="there are no pseudo-terminals here")
def test_what_waits_at_a_terminal_is_seen_and_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = os.openpty()
    with os.fdopen(ours, "wb", buffering=0) as typist, os.fdopen(theirs, "rb", buffering=0) as terminal:
        monkeypatch.setattr("sys.stdin", terminal)
        monkeypatch.setattr("sys.stdout", terminal)
        keys, plain = Keys(Console()), Keys(Console(), plain=True)
        assert not keys.waiting()
        for _ in range(2):
            typist.write(b"1 2\n")
            assert select.select([terminal], [], [], 60)[0]
            assert keys.waiting()
            assert not plain.waiting()
            plain.drain()
            assert keys.waiting()
            keys.drain()
            assert not keys.waiting()


@pytest.mark.skipif(sys.platform == "win32", reason="there are no pseudo-terminals here")
def test_what_is_pasted_is_one_answer_and_ticks_nothing(tmp_path: Path, prompted: Callable[..., None]) -> None:
    import pexpect

    child = pexpect.spawn(
        sys.executable, [str(SAMPLE), "drill", "interview", "--seed", "7"], cwd=str(ROOT), encoding="utf-8", timeout=60,
        env=environment(tmp_path) | {"TERM": "xterm", "NO_COLOR": "1"}, dimensions=(24, 80),
    )  # fmt: skip
    first = "A table that maps blocks, long enough for one read."
    try:
        child.expect_exact("── 1 · recall")
        prompted(child)
        child.send(f"{first}\r\rTwo paragraphs later.\r\r1\r")
        child.expect(r"1\r\n.*?> ")
        child.send("\r")
        child.expect_exact("0: none.")
        prompted(child)
        child.send("\r")
        child.expect_exact("Type which points you had")
        prompted(child)
        child.send("0\r")
        child.expect_exact("0 of 2.")
        prompted(child)
        child.send("\x04")
        child.expect(pexpect.EOF)
    finally:
        child.close(force=True)
    interview = kept(tmp_path)
    assert interview is not None
    assert [(turn.answer, turn.had) for turn in interview.turns] == [(f"{first}\n\nTwo paragraphs later.\n\n1", ())]


def test_a_whole_interview_over_the_bank_itself(sample: ModuleType, store: Store) -> None:
    """Somebody who says nothing for a minute each time: every kind is asked, and the report has it all."""
    from walkthroughs.drills import bank

    class Silent(Script):
        def line(self, *, first: bool = False) -> str:
            self.now += timedelta(minutes=1)
            return "" if held.interview.answer is None else "0"

    script = Silent(sample)
    script.bank = bank
    held, out = talk(store, script, Interview(11, to_ms(script.now), minutes=25, role="kernel"))
    assert held.run()
    turns = held.interview.turns
    assert {turn.kind for turn in turns} == {"recall", "compute", "predict", "find"}
    assert "smaller" in {turn.move for turn in turns}
    row = closed(store, bank, held.interview, Console(file=out, width=80))
    *lines, path = out.getvalue().splitlines()
    assert max(map(len, lines)) <= 80
    assert path == row["report"]
    text = Path(path).read_text()
    for number, turn in enumerate(turns, 1):
        assert re.search(rf"^### {number}\. .*\n\n`{turn.item}`, level", text, re.MULTILINE)
    assert text.count("**Answer.**") == len(turns)
    assert "cannot be shown here" not in text
    assert row["score"] == 0
    assert len(row["read_next"]) == 5


def test_over_the_bank_itself(run_cli: Callable[..., Done], json_rows: Rows, tmp_path: Path) -> None:
    env = {"PAGEWALK_STATE": str(tmp_path), "COLUMNS": "80"}
    done = run_cli("drill", "interview", "--seed", "4", "--role", "research", env=env)
    assert done.returncode == 0, done.stderr
    assert "── 1 · recall · level" in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80
    assert "Kept: 0 answers" in done.stdout
    (row,) = json_rows(run_cli("drill", "interview", "--end", "--json", env=env), "interviews")
    assert (row["score"], row["questions"]) == (None, [])
    assert Path(row["report"]).parent == tmp_path / "interviews"
