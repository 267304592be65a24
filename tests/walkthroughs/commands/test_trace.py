"""`pagewalk trace` as a reader runs it: the walk, the file, --json, and every refusal."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from kernels.simt.trace import Trace
from walkthroughs.commands.trace import folded, write_whole

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def trace(run_cli):
    def run(*args, **env):
        # The checkout under test goes first, also where another one is installed.
        return run_cli("trace", *args, env={"PYTHONPATH": str(ROOT), **env})

    return run


def test_the_walk_shows_lines_with_what_they_did(trace):
    done = trace("scatter", "--thread", "4")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == "thread 4 (4, 0, 0) of block (0, 0, 0)"
    source = (ROOT / "kernels" / "gather.py").read_text("utf-8").splitlines()
    at = next(n for n, line in enumerate(source, 1) if line.strip().startswith("physical_block_number = "))
    shown = lines.index(f"{at:5} {source[at - 1].strip()}")
    assert lines[shown + 1 : shown + 4] == [
        "        read global block_table[1] = 1",
        "        physical_block_number = 1",
        f"{at + 1:5} {source[at].strip()}",
    ]
    assert lines[-1] == "returned"
    assert done.stderr == ""


def test_the_walk_names_the_thread_whenever_it_changes(trace):
    lines = trace("classic-v1", "--thread", "0,33").stdout.splitlines()
    heads = [line.split()[1] for line in lines if line.startswith("thread ")]
    assert heads[:4] == ["0", "33", "0", "33"]
    assert any("shfl_xor_sync" in line and "from lane 16" in line for line in lines)
    assert any(line.strip() == "waits in syncthreads, which ends interval 0" for line in lines)


@pytest.mark.parametrize("columns", [20, 40, 80])
def test_the_walk_fits_a_narrow_terminal(trace, columns):
    done = trace("scatter", "--thread", "1", COLUMNS=str(columns), NO_COLOR="1")
    assert done.returncode == 0
    assert "\x1b" not in done.stdout
    for line in done.stdout.splitlines():
        assert len(line) <= columns or len(line.split()) == 1, line


def test_a_file_is_written_and_is_a_trace(trace, tmp_path, json_rows):
    path = tmp_path / "t.json"
    done = trace("classic-v1", "--thread", "0,33", "--block", "0,0", "-o", str(path), "--json")
    assert done.returncode == 0, done.stderr
    (row,) = json_rows(done, "traces")
    found = Trace.from_json(path.read_text("utf-8"))
    assert row["id"] == "classic-v1"
    assert row["status"] == "passed"
    assert row["events"] == len(found) == sum(row["kinds"].values())
    assert [t.number for t in found.threads] == [0, 33] == [t["number"] for t in row["threads"]]
    assert row["truncated"] is None
    assert found.case == row["case"] == "small"
    assert found.block == (128, 1, 1)
    assert f"{len(found)} events" in done.stderr
    assert [p.name for p in tmp_path.iterdir()] == ["t.json"]


def test_without_json_a_file_leaves_stdout_empty(trace, tmp_path):
    done = trace("gather", "-o", str(tmp_path / "t.json"))
    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.parametrize(
    ("options", "numbers"), [(("--thread", "0-3"), [0, 1, 2, 3]), (("--thread", "2:0:0,5"), [2, 5])]
)
def test_threads_as_ranges_and_places(trace, tmp_path, options, numbers):
    path = tmp_path / "t.json"
    assert trace("scatter", *options, "-o", str(path)).returncode == 0
    assert [t.number for t in Trace.from_json(path.read_text("utf-8")).threads] == numbers


def test_several_blocks_another_case_and_schedule(trace, tmp_path):
    path = tmp_path / "t.json"
    options = ("--case", "grouped", "--schedule", "reversed", "--block", "1,1", "--block", "0", "-o", str(path))
    assert trace("classic-v1", *options).returncode == 0
    found = Trace.from_json(path.read_text("utf-8"))
    assert [t.block for t in found.threads] == [(1, 1, 0), (0, 0, 0)]
    assert (found.case, found.schedule) == ("grouped", "reversed")


def test_the_second_launch_of_v2_is_its_reduce_kernel(trace, tmp_path):
    path = tmp_path / "t.json"
    assert trace("classic-v2", "--launch", "2", "-o", str(path)).returncode == 0
    found = Trace.from_json(path.read_text("utf-8"))
    assert (found.kernel, found.launches) == ("paged_attention_v2_reduce_kernel", 2)


@pytest.mark.parametrize(("option", "by"), [(("--limit", "100"), "events"), (("--max-bytes", "6000"), "bytes")])
def test_a_cut_is_said_on_stderr_and_in_the_file(trace, tmp_path, json_rows, option, by):
    path = tmp_path / "t.json"
    done = trace("classic-v1", *option, "-o", str(path), "--json")
    assert done.returncode == 0, done.stderr
    cut = Trace.from_json(path.read_text("utf-8")).truncated
    assert cut is not None
    assert (cut.by, cut.limit) == (by, int(option[1]))
    assert cut.total > cut.kept
    assert f"truncated: cut at {option[1]} {by}: {cut.kept} of {cut.total} events" in done.stderr
    assert json_rows(done, "traces")[0]["truncated"] == {
        "by": by, "limit": cut.limit, "kept": cut.kept, "total": cut.total,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("clasic-v1",), "no kernel is called 'clasic-v1'. Did you mean classic-v1"),
        (("zzz",), "scatter"),
        (("classic-v1", "--case", "smal"), "Did you mean small"),
        (("classic-v1", "--thread", "128"), "0 to 127"),
        (("classic-v1", "--thread", "0:1:0"), "below 128,1,1"),
        (("classic-v1", "--block", "1,0"), "block 1,0: there are 1, 0 to 0"),
        (("classic-v1", "--thread", "a"), "give numbers"),
        (("classic-v1", "--thread", "5-3"), "give numbers"),
        (("classic-v1", "--block", "x"), "give one block"),
        (("classic-v1", "--schedule", "sideways"), "must be in-order, reversed"),
        (("classic-v1", "--limit", "0"), "--limit"),
        (("classic-v1", "--launch", "2"), "nth = 2: the run made 1 launch"),
        ((), "Missing argument"),
    ],
)
def test_wrong_use_exits_2_and_says_what_would_be_right(trace, args, said):
    done = trace(*args)
    assert done.returncode == 2, done.stderr
    assert said in done.stderr
    assert done.stdout == ""


def test_a_folder_that_is_not_there_exits_1(trace, tmp_path):
    done = trace("gather", "-o", str(tmp_path / "none" / "t.json"))
    assert done.returncode == 1
    assert "none" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_file_is_replaced_whole_with_the_usual_mode(tmp_path):
    path = tmp_path / "t.json"
    other = tmp_path / "other"
    other.write_text("")
    path.write_text("old")
    write_whole(path, "new")
    assert path.read_text("utf-8") == "new"
    assert stat.S_IMODE(path.stat().st_mode) == stat.S_IMODE(other.stat().st_mode)


def test_a_failed_write_leaves_the_old_file_and_nothing_beside_it(tmp_path):
    path = tmp_path / "t.json"
    path.write_text("old")
    with pytest.raises(UnicodeEncodeError):
        write_whole(path, "\udc00")
    assert path.read_text("utf-8") == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["t.json"]


def test_folding_keeps_the_indent_and_every_word():
    line = "        read global k_cache[123] = 0.25 and more words"
    parts = folded(line, 24)
    assert " ".join(" ".join(parts).split()) == " ".join(line.split())
    assert parts[0].startswith("        read")
    assert all(part.startswith("   ") for part in parts)
    assert folded("short", 80) == ["short"]


def test_help_names_the_options(trace):
    done = trace("--help")
    assert done.returncode == 0
    for option in ("--thread", "--block", "--case", "--schedule", "--limit", "--max-bytes", "--output", "--json"):
        assert option in done.stdout


def test_json_is_one_object(trace):
    done = trace("gather", "--json")
    assert set(json.loads(done.stdout)) == {"schema", "traces"}


def test_a_kernel_that_fails_is_still_written_and_exits_1(tmp_path, monkeypatch):
    import numpy as np
    from click.testing import CliRunner

    from kernels.simt import cuda, launch
    from walkthroughs import launchables
    from walkthroughs.cli import cli

    def past_the_end(a):
        i = cuda.threadIdx.x + 3
        a[i] = 1

    def run(backend):
        launch(past_the_end, 1, 2, (np.zeros(4),), schedule=backend.schedule, tracer=backend.tracer)
        return {}

    case = launchables.Case("it", "one store past the end", run)
    broken = launchables.Launchable("broken", "Writes past the end.", "kernels/gather.py", {"it": case})
    monkeypatch.setitem(launchables._MAKERS, "broken", lambda: broken)
    path = tmp_path / "t.json"
    done = CliRunner().invoke(cli, ["trace", "broken", "--thread", "1", "-o", str(path), "--json"])
    assert done.exit_code == 1
    assert "a[4] is outside shape (4,)" in done.stderr
    (row,) = json.loads(done.stdout)["traces"]
    assert row["status"] == "failed"
    last = Trace.from_json(path.read_text("utf-8")).events[-1]
    assert (last.kind, last.what) == ("end", "error")
    walk = CliRunner().invoke(cli, ["trace", "broken", "--thread", "1"])
    assert walk.exit_code == 1
    assert "error: OutOfBounds" in walk.stdout
