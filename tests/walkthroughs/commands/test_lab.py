"""`pagewalk lab`: the questions, the chart, the verdict, and errors that say what to do; with a stand-in engine."""

from __future__ import annotations

import io
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pexpect
import pytest
from click.testing import CliRunner
from click.testing import Result as Done
from rich.console import Console

from walkthroughs.commands.lab import lab_command
from walkthroughs.commands.lab_sitting import Sitting, chart_width
from walkthroughs.lab import environment
from walkthroughs.lab.environment import Lab
from walkthroughs.lab.predict import predict
from walkthroughs.lab.scenarios import scenarios
from walkthroughs.lab.watch import Result

ENGINE = """
import json, sys
request = json.loads(sys.stdin.readline())
wanted = [one["id"] for part in request["engines"] for one in part["scenarios"]]
events = json.loads(open(__file__ + ".json").read())
print(json.dumps({"event": "imported", "versions": {"vllm": "1.2.3"}, "seconds": 1}))
print(json.dumps({"event": "loaded", "device": "CPU", "seconds": 1}))
for name in wanted:
    for event in events[name]:
        print(json.dumps(event))
print(json.dumps({"event": "done"}))
"""


def steps(name: str) -> list[dict[str, Any]]:
    """What an engine tells that does as predicted: ids are made up, a number of its own for each request."""
    found = []
    for moment in predict(scenarios()[name]):
        requests = {
            row.name: {"status": row.status, "blocks": [8 * n + k for k in range(1, row.blocks + 1)],
                       "generated": row.generated, "hit": row.hit, "tokens": []}
            for n, row in enumerate(moment.rows)
        }  # fmt: skip
        found.append({"event": "step", "scenario": name, "step": moment.step, "used": moment.used,
                      "requests": requests})  # fmt: skip
    return found


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[dict[str, Any]], None]:
    """Put the stand-in in the engine's place; a test says what it tells."""
    script = tmp_path / "engine.py"
    script.write_text(ENGINE)
    monkeypatch.setattr(environment, "ENGINE", script)
    monkeypatch.setattr(environment, "find", lambda **own: Lab(Path(sys.executable), tmp_path, tmp_path))

    def tells(events: dict[str, Any]) -> None:
        Path(f"{script}.json").write_text(json.dumps(events))

    tells({name: steps(name) for name in ("growing-32", "growing-128")})
    return tells


def say(*args: str) -> Done:
    return CliRunner().invoke(lab_command, args)


def test_list_needs_no_engine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PAGEWALK_LAB", str(tmp_path / "none"))
    done = say("list", "--json")
    rows = json.loads(done.stdout)["scenarios"]
    assert done.exit_code == 0
    assert [row["id"] for row in rows] == list(scenarios())
    assert {row["status"] for row in rows} == {"unavailable"}
    assert "make live-lab" in done.stderr
    assert "growing-32" in say("list").stdout


def test_a_missing_environment_is_wrong_use_and_says_how_to_make_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PAGEWALK_LAB", str(tmp_path / "none"))
    done = say("run", "--json")
    assert (done.exit_code, done.stdout) == (2, "")
    assert "`make live-lab` makes it" in done.stderr


def test_an_unknown_scenario_has_near_ones(engine: Any) -> None:
    done = say("run", "growing-23")
    assert done.exit_code == 2
    assert "growing-32" in done.stderr


def test_json_has_every_step(engine: Any) -> None:
    done = say("run", "growing-32", "growing-128", "--json")
    assert done.exit_code == 0, done.stderr
    envelope = json.loads(done.stdout)
    assert envelope["schema"] == 1
    one, two = envelope["scenarios"]
    assert (one["id"], one["status"], one["steps"], one["mismatches"]) == ("growing-32", "passed", 100, [])
    assert one["observed"] == one["predicted"]
    assert one["tables"][0] == {"a": [1]}
    assert (two["device"], two["versions"]) == ("CPU", {"vllm": "1.2.3"})
    assert "160 steps, 0 mismatches" in done.stderr


def test_without_a_terminal_nothing_is_asked_and_the_chart_is_printed(engine: Any) -> None:
    done = say("run", "growing-128")
    assert done.exit_code == 0, done.stderr
    assert "Blocks in use after" not in done.stdout
    assert "●" in done.stdout
    assert "60 steps, as predicted" in done.stdout


def test_a_difference_is_named_and_exits_1(engine: Any) -> None:
    told = steps("growing-128")
    told[9]["used"] = 5
    engine({"growing-128": told})
    done = say("run", "growing-128")
    assert done.exit_code == 1
    assert "MISMATCH after step 10: blocks in use: predicted 1, observed 5" in done.stdout
    assert "60 steps, mismatches: 1" in done.stdout


def test_an_engine_that_stops_too_early_is_no_success(engine: Any) -> None:
    engine({"growing-128": steps("growing-128")[:-1]})
    assert say("run", "growing-128").exit_code == 1
    engine({"growing-128": []})
    assert say("run", "growing-128").exit_code == 1


def test_an_engines_own_error_is_one_line_and_exit_1(engine: Any) -> None:
    engine({"growing-128": [{"event": "error", "kind": "ValueError", "message": "no such model"}]})
    done = say("run", "growing-128")
    assert done.exit_code == 1
    assert done.stderr.splitlines()[-1] == "Error: the engine raised ValueError: no such model"


def test_too_little_memory_starts_nothing(engine: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(environment, "NEEDED", 2**60)
    monkeypatch.setattr(environment.need_memory, "__defaults__", (2**60, environment.MEMINFO))
    done = say("run", "growing-128")
    assert done.exit_code == 1
    assert "nothing was started" in done.stderr


def test_a_record_is_of_everything(engine: Any) -> None:
    done = say("run", "growing-32", "--record")
    assert done.exit_code == 2
    assert "leave the names out" in done.stderr


def test_a_record_is_kept_and_the_steps_that_read_it_run_on_it(engine: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from walkthroughs.lab import record
    from walkthroughs.lab import scenarios as table
    from walkthroughs.lab import steps as reading

    names = ("growing-32", "growing-128")
    few = {name: scenarios()[name] for name in names}
    monkeypatch.setattr(table, "scenarios", lambda: few)
    kept: list[record.Record] = []
    failed: list[str] = []
    monkeypatch.setattr(record, "write", kept.append)
    monkeypatch.setattr(reading, "write_steps", lambda: failed if kept else ["run before the record was there"])
    engine({name: steps(name) for name in names})
    done = say("run", "--record", "--no-ask")
    assert done.exit_code == 0, done.stderr
    assert "wrote record.json and the records of the steps that read it" in done.stderr
    assert [one.id for one in kept[0].scenarios] == list(names)
    assert (kept[0].device, kept[0].versions) == ("CPU", {"vllm": "1.2.3"})
    failed.append("live-engine/edges failed")
    done = say("run", "--record", "--no-ask")
    assert done.exit_code == 1
    assert "live-engine/edges failed" in done.stderr


def test_a_reader_is_asked_before_anything_is_shown(tmp_path: Path) -> None:
    """In a terminal: the questions come first, then the chart, then the sums, and how many were right."""
    script = tmp_path / "engine.py"
    script.write_text(ENGINE)
    Path(f"{script}.json").write_text(json.dumps({"growing-128": steps("growing-128")}))
    program = tmp_path / "program.py"
    program.write_text(
        "import sys\nfrom pathlib import Path\nfrom walkthroughs.lab import environment\n"
        f"environment.ENGINE = Path({str(script)!r})\n"
        "environment.find = lambda **own: environment.Lab(Path(sys.executable), Path(), Path())\n"
        "from walkthroughs.commands.lab import lab_command\nlab_command(['run', 'growing-128'])\n"
    )
    variables = {**os.environ, "PYTHONPATH": str(environment.ROOT), "TERM": "xterm", "NO_COLOR": "1"}
    child = pexpect.spawn(
        sys.executable, [str(program)], env=variables, encoding="utf-8", timeout=60, dimensions=(40, 80)
    )
    for step, answer in ((1, "1"), (29, "7"), (30, "2")):
        child.expect(f"Blocks in use after step {step}\\?")
        assert "●" not in (child.before or "")
        child.sendline(answer)
    child.expect("as predicted")
    assert "after step 29: 1 in use (a 1): you said 7" in child.before
    assert "after step 30: 2 in use (a 2): as you said" in child.before
    child.expect("You predicted 2 of 3 moments")
    child.expect(pexpect.EOF)
    child.close()
    assert child.exitstatus == 0


def test_a_terminal_without_abilities_has_a_chart_of_its_width(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Console(force_terminal=True, _environ={"TERM": "dumb"})
    assert screen.width == 80
    for columns, width in ((40, 40), (300, 100)):
        monkeypatch.setenv("COLUMNS", str(columns))
        assert chart_width(screen) == width
    assert chart_width(Console(width=60)) == 60


def test_shared_blocks_are_counted_once_in_the_sum() -> None:
    """Three blocks stand in three tables: twelve places, and six of them were counted before."""
    scenario = scenarios()["shared-32"]
    sitting = Sitting(Console(), asks=True, pace=0)
    assert sitting._why(Result(scenario, predict(scenario)), 4) == "6 in use (a 4, b 4, c 4, less 6 counted before)"
    assert sitting._why(Result(scenario, predict(scenario)), 43) == "0 in use (nobody holds any)"


def test_a_narrow_terminal_folds_between_words_and_a_file_does_not() -> None:
    for terminal, longest in ((True, 40), (False, 200)):
        out = io.StringIO()
        sitting = Sitting(Console(file=out, force_terminal=terminal, width=40, color_system=None), asks=False, pace=0)
        sitting._say("  a: 100 tokens in the prompt, generates 60, comes before step 1")
        lines = out.getvalue().splitlines()
        assert max(map(len, lines)) <= longest
        assert " ".join(" ".join(lines).split()) == "a: 100 tokens in the prompt, generates 60, comes before step 1"
        assert len(lines) == (2 if terminal else 1)
